"""Metadata of values and slices that hushpore stores in files beyond their format."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hushpore.base.fill_value import stated_fill_value
from hushpore.base.safe_text import on_one_line
from hushpore.base.volume import LONGEST_UNIT

if TYPE_CHECKING:
    from collections.abc import Mapping


def value_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of values as JSON values, for a file or from a file.

    Whether the values are labels or denoised, the fill value around the scan, the unit of the grey
    values, and the positions of unevenly spaced slices.

    `metadata`: of a volume or a file; the names are the same. Entries of the wrong type are
    omitted.
    """
    checked: dict[str, Any] = {}
    if metadata.get("labels") is True:
        checked["labels"] = True
    elif _are_positions(metadata.get("slice_positions")):
        # label values cannot be interpolated between slices
        checked["slice_positions"] = list(metadata["slice_positions"])
    if metadata.get("denoised") is True:
        checked["denoised"] = True
    padding = stated_fill_value(metadata)
    if padding is not None:
        checked["padding_value"] = padding
    unit = metadata.get("value_unit")
    if unit and isinstance(unit, str):
        checked["value_unit"] = on_one_line(unit, LONGEST_UNIT)
    return checked


def _are_positions(value: Any) -> bool:
    numbers = isinstance(value, list) and all(type(each) in (int, float) for each in value)
    return numbers and bool(value) and all(map(math.isfinite, value))
