"""Voxels without a grey value (NaN), as reconstructions have them outside their field of view."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.formatting import readable_grey, readable_percent
from hushpore.base.rescaled import Scaled
from hushpore.io.lazy_arrays import DiskArray, chunk_depth, slabs
from hushpore.io.parts import filled_in_slabs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hushpore.base.arrays import Array, Mask
    from hushpore.base.volume import Volume

#: Smallest magnitude that is no grey value: programs write 1e30 or the limits of float32 in
#: voxels without a value.
_LARGEST = 1e20
#: Distance of the fill value from the lowest grey value, as a fraction of the range.
_BELOW = 0.1


class Filled(DiskArray):
    """Lazy array in which NaN and infinite values are a fill value.

    `base`: an array that takes slices. `fill`: the value.

    >>> Filled(np.array([[np.nan, 0], [5, np.inf]], np.float32), -1)[...].tolist()
    [[-1.0, 0.0], [5.0, -1.0]]
    """

    def __init__(self, base: Any, fill: float) -> None:
        super().__init__(tuple(map(int, base.shape)), np.dtype(base.dtype).newbyteorder("="))
        self._base, self._fill = base, fill
        self.chunks = getattr(base, "chunks", None)

    def _read_part(self, keys: list[Any]) -> Array:
        values = np.array(self._base[tuple(keys)], self.dtype)
        values[_undefined(values)] = self._fill
        return values

    def read_into(self, values: Array) -> Iterator[int]:
        """Fill an array of the same shape; see `DiskArray`."""
        yield from filled_in_slabs(self, values, chunk_depth(self._base, max(0, self.ndim - 3)), 0)


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
