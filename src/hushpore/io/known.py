"""What files that hushpore writes say of their values, for which their formats have no place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushpore.base.filled_in import stated_padding
from hushpore.base.text import on_one_line
from hushpore.base.volume import LONGEST_UNIT

if TYPE_CHECKING:
    from collections.abc import Mapping


def known_of_values(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of values, as JSON can hold it: for a file, or from one.

    Whether they are labels, what is filled in around the scan, and the unit of grey values.

    `known`: the metadata of a volume, or what a file says, where all has the same names. Whatever
    is not of the type that it should be is left out.
    """
    said: dict[str, Any] = {}
    if known.get("labels") is True:
        said["labels"] = True
    padding = stated_padding(known)
    if padding is not None:
        said["padding_value"] = padding
    unit = known.get("value_unit")
    if unit and isinstance(unit, str):
        said["value_unit"] = on_one_line(unit, LONGEST_UNIT)
    return said
