"""What files that hushpore writes say of values and slices, for which formats have no place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hushpore.base.fill_value import stated_fill_value
from hushpore.base.safe_text import on_one_line
from hushpore.base.volume import LONGEST_UNIT

if TYPE_CHECKING:
    from collections.abc import Mapping


def known_of_values(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of values, as JSON can hold it: for a file, or from one.

    Whether they are labels, what is filled in around the scan, the unit of grey values, and where
    the slices of a scan lie that are uneven.

    `known`: the metadata of a volume, or what a file says, where all has the same names. Whatever
    is not of the type that it should be is left out.
    """
    said: dict[str, Any] = {}
    if known.get("labels") is True:
        said["labels"] = True
    elif _are_places(known.get("slice_positions")):
        # between labels nothing lies that could be interpolated
        said["slice_positions"] = list(known["slice_positions"])
    padding = stated_fill_value(known)
    if padding is not None:
        said["padding_value"] = padding
    unit = known.get("value_unit")
    if unit and isinstance(unit, str):
        said["value_unit"] = on_one_line(unit, LONGEST_UNIT)
    return said


def _are_places(found: Any) -> bool:
    numbers = isinstance(found, list) and all(type(each) in (int, float) for each in found)
    return numbers and bool(found) and all(map(math.isfinite, found))
