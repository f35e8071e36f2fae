"""Voxels without a grey value (NaN), sizes without a unit, and metadata of values in files."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.fill_value import stated_fill_value
from hushpore.base.formatting import METRES, on_one_line, readable_grey, readable_percent, unit_of
from hushpore.base.rescaled import Scaled
from hushpore.base.volume import LONGEST_UNIT
from hushpore.io.lazy_arrays import Derived, slabs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hushpore.base.arrays import Array, Mask
    from hushpore.base.volume import Volume


#: Smallest magnitude that is no grey value: programs write 1e30 or the limits of float32 in
#: voxels without a value.
_LARGEST = 1e20
#: Lengths of a voxel in metres, beyond which a size is doubted.
_SMALLEST, _LARGEST_VOXEL = 1e-9, 5e-3
#: Distance of the fill value from the lowest grey value, as a fraction of the range.
_BELOW = 0.1


class Filled(Derived):
    """Lazy array in which NaN and infinite values are a fill value.

    `base`: an array that takes slices. `fill`: the value.

    >>> Filled(np.array([[np.nan, 0], [5, np.inf]], np.float32), -1)[...].tolist()
    [[-1.0, 0.0], [5.0, -1.0]]
    """

    def __init__(self, base: Any, fill: float) -> None:
        super().__init__(base)
        self._fill = fill
        self.chunks = getattr(base, "chunks", None)

    def _read_part(self, keys: list[Any]) -> Array:
        values = np.array(self._base[tuple(keys)], self.dtype)
        values[_undefined(values)] = self._fill
        return values


def with_fill_value(volume: Volume) -> Volume:
    """Return a scan in which NaN, infinite and absurdly large values are a fill value.

    Parameters
    ----------
    volume : Volume
        A scan. Floating-point values in memory are changed in place, those on disk lazily: a scan
        on disk is searched if its first, middle or last slice has such values.

    Returns
    -------
    Volume
        With ``metadata["padding_value"]`` below all grey values, and a note. The same volume if
        all values are usable, or none is.

    Examples
    --------
    >>> import numpy as np
    >>> from hushpore.base.volume import Volume
    >>> scan = with_fill_value(Volume(np.array([[np.nan, 0], [5, 10]], np.float32)))
    >>> scan.data.tolist(), scan.metadata["padding_value"]
    ([[-1.0, 0.0], [5.0, 10.0]], -1.0)
    """
    values = volume.data
    if np.dtype(values.dtype).kind != "f" or isinstance(values, Scaled) or not values.size:
        return volume
    in_memory = isinstance(values, np.ndarray) and not isinstance(values, np.memmap)
    count, lowest, highest = _searched(values, in_memory)
    if count in (0, values.size):
        return volume
    fill = float(np.dtype(values.dtype).type(lowest - _BELOW * ((highest - lowest) or 1.0)))
    if in_memory:
        values[_undefined(values)] = fill
    else:
        coarser = tuple(Filled(level, fill) for level in getattr(values, "coarser", ()))
        values = Filled(values, fill)
        values.coarser = coarser
    note = (
        f"{count:,} voxels ({readable_percent(count / values.size)} of the volume) have no value "
        f"(NaN, infinite or beyond 1e20). They were set to {readable_grey(fill)} and are excluded "
        "as fill value."
    )
    return dataclasses.replace(
        volume,
        data=values,
        notes=[*volume.notes, note],
        metadata={**volume.metadata, "padding_value": fill},
    )


def _searched(values: Any, in_memory: bool) -> tuple[int, float, float]:
    """Return the number of values that are no grey values, and the range of the others."""
    count, lowest, highest = 0, np.inf, -np.inf
    axis = max(0, values.ndim - 3)
    places = {0, values.shape[axis] // 2, values.shape[axis] - 1}
    planes = (np.asarray(values[(0,) * axis + (place,)]) for place in sorted(places))
    if all(map(_is_finite, [values] if in_memory else planes)):
        return count, lowest, highest
    for part in [values] if in_memory else (part for _, part in slabs(values)):
        bad = _undefined(part)
        count += int(np.count_nonzero(bad))
        lowest = min(lowest, float(np.min(part, initial=np.inf, where=~bad)))
        highest = max(highest, float(np.max(part, initial=-np.inf, where=~bad)))
    return count, lowest, highest


def _undefined(values: Array) -> Mask:
    """Return where values are NaN, infinite or too large to be grey values."""
    with np.errstate(invalid="ignore", over="ignore"):
        defined: Mask = np.abs(values) < _LARGEST
    return ~defined


def _is_finite(values: Array) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):
        # NaN spreads to both ends
        return bool(values.min() > -_LARGEST and values.max() < _LARGEST)


def unitless_notes(steps: Sequence[float], unit: str = "") -> list[str]:
    """Return a note that a voxel size without a known unit is not used.

    `steps`: voxel size in the file, along z, y, x. `unit`: that in the file, if it is not a known
    one.
    Returns: no note if all numbers are 1, the usual placeholder.

    >>> unitless_notes((1, 1, 1))
    []
    """
    if all(step == 1 for step in steps) and not unit:
        return []
    numbers = [f"{step:.4g}" for step in steps]
    without = f"in the unknown unit {unit!r}" if unit else "without a unit"
    return [
        f"The file gives a voxel size of {' x '.join(numbers)} {without}, so lengths are in "
        f"voxels. Set the size with its unit: --voxel-size {','.join(numbers)}um, or in napari the "
        "field Voxel size."
    ]


#: Units in which voxels of scans are given, the most common first.
_USUAL = ("um", "mm", "nm")


def is_plausible(steps: Sequence[float], unit: str) -> bool:
    """Return whether voxels have a size of scans, from 1 nm to 5 mm, or one without a unit.

    >>> is_plausible((5, 0.5, 0.5), "mm"), is_plausible((12.7, 12.7), "mm")
    (True, False)
    """
    metres = METRES.get(unit)
    return metres is None or all(
        _SMALLEST <= float(f"{step * metres:.9g}") <= _LARGEST_VOXEL for step in steps
    )


def with_checked_size(volume: Volume) -> Volume:
    """Return a volume with a note if its voxels are larger or smaller than those of any scan."""
    if is_plausible(volume.spacing, volume.unit):
        return volume
    likely = next((unit for unit in _USUAL if is_plausible(volume.spacing, unit)), "")
    meant = dataclasses.replace(volume, unit=likely).size_in_words if likely else "another value"
    note = (
        f"The voxel size, {volume.size_in_words}, is unusual: voxels of scans have 1 nm to 5 mm. "
        f"If {meant} is meant, set it: --voxel-size, or in napari the field Voxel size."
    )
    return dataclasses.replace(volume, notes=[*volume.notes, note])


def in_one_unit(
    steps: Sequence[float], units: Sequence[str]
) -> tuple[tuple[float, ...], str] | None:
    """Return a voxel size in the unit of its last axis, and this unit.

    `steps`: voxel size along z, y, x. `units`: unit of each axis, as written in a file.
    Returns: None if the unit of an axis is unknown or is pixels.

    >>> in_one_unit((0.002, 1, 1), ("mm", "um", "micron")), in_one_unit((1, 1), ("", "um"))
    (((2.0, 1.0, 1.0), 'um'), None)
    """
    found = [unit_of(unit) for unit in units]
    known = [each for each in found if each is not None and each[0] != "pixel"]
    if len(known) < len(units):
        return None
    last = known[-1][0]
    return tuple(
        float(f"{step * factor * METRES[name] / METRES[last]:.12g}")
        if name != last
        else step * factor
        for step, (name, factor) in zip(steps, known, strict=True)
    ), last


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
