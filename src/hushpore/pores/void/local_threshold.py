"""Local thresholds: a threshold for each voxel, from its neighbourhood.

The threshold of a voxel depends on mean m and standard deviation s of a window centred on it:

- Niblack: ``m - k * s``;
- Sauvola: ``m * (1 + k * (s / r - 1))``, where r is the largest standard deviation to expect.

Sauvola designed the formula for 8-bit pages: grey values start at 0, and r is half the range of the
type. That is meaningless for CT numbers below zero, floats, or 12 bits stored in 16. Here grey
values are counted from the lowest value of the volume, and r is half the range of the volume, so
that the void does not depend on the scale of the grey values. For bright pores, grey values are
counted from the highest value down. Beyond its faces the volume is mirrored, as in scikit-image's
functions of these names. Padding is excluded from all windows.

Window sums are taken in integers and thus exact: the void is bit-identical for any slabs and number
of threads. Values with more than 65,536 levels, such as floats, are rounded to 2**-18 of the
range.

References
----------
W. Niblack (1986), "An Introduction to Digital Image Processing", pp. 115-116, Prentice-Hall.

J. Sauvola and M. Pietikäinen (2000), "Adaptive document image binarization", Pattern Recognition
33, 225-236. https://doi.org/10.1016/S0031-3203(99)00055-2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.void.threshold import Range

#: Bytes per voxel of one slice that each thread needs for its sums.
BYTES_IN_WINDOW = 80

#: Whether a method uses the largest standard deviation r.
_TAKES_RANGE = {"sauvola": True, "niblack": False}

_EXACT = 1 << 16  # integers of up to this many levels are not rounded
_LEVELS = 1 << 18  # levels of other values: sums of squares in the largest window fit int64
_NOTHING = -1  # level of padding, which is in no window


@dataclass(frozen=True, eq=False)
class LocalThreshold:
    """Parameters of a local threshold that is applied slab by slab."""

    method: str  # ``sauvola`` or ``niblack``
    window: tuple[int, int, int]  # (z, y, x): voxels of the window along each axis, odd
    k: float  # factor k of the method
    bright: bool  # whether the pores are brighter than solid
    depth: int  # slices of the whole stack
    grey: Range  # of the whole stack, without padding
    padding: float | None = None  # grey value of padding; None if there is none

    def slices(self, first: int, last: int) -> tuple[int, int]:
        """Return the slices needed for a slab: half a window more on both sides."""
        half = self.window[0] // 2
        return max(first - half, 0), min(last + half, self.depth)

    def void(
        self,
        values: npt.NDArray[Any],
        first: int,
        last: int,
        threads: KernelThreads,
        out: npt.NDArray[np.bool_] | None = None,
    ) -> npt.NDArray[np.bool_]:
        """Return the void of a slab.

        `values`: (z, y, x), any real dtype: the `slices` for this slab. `first`, `last`: slices of
        the slab in the whole stack.
        Returns: (last - first, y, x), bool, C order.

        Each thread uses `BYTES_IN_WINDOW`, independent of the window.
        """
        begin, _ = self.slices(first, last)
        shape = (last - first, *values.shape[1:])
        void = np.empty(shape, np.bool_) if out is None else out
        end = self.grey.low if self.bright else self.grey.high
        high = self._height(np.asarray([end], values.dtype))[0]
        exact = values.dtype.kind in "iu" and high < _EXACT
        scale = 1.0 if exact else (_LEVELS - 1) / float(high)
        at_z = _mirrored(self.depth, self.window[0])
        at_y, at_x = (
            _mirrored(length, window)
            for length, window in zip(values.shape[1:], self.window[1:], strict=True)
        )
        sauvola_range = float(high) * scale / 2 if _TAKES_RANGE[self.method] else 0.0

        def levels(z: int) -> npt.NDArray[np.int32]:
            plane = values[at_z[z] - begin]
            height = self._height(plane)
            found = height.astype(np.int32) if exact else (height * scale).astype(np.int32)
            if self.padding is not None:
                found[plane == self.padding] = _NOTHING
            return found

        def threshold_slices(begin_slab: int, end_slab: int) -> None:
            sums = np.zeros((2 + (self.padding is not None), *values.shape[1:]), np.int64)
            below = np.empty(values.shape[1:], np.float64)
            start = first + begin_slab
            for z in range(start, start + self.window[0] - 1):
                _add(levels(z), 1, sums)
            for z in range(start, first + end_slab):
                _add(levels(z + self.window[0] - 1), 1, sums)
                _threshold_plane(sums, at_y, at_x, self.window, self.k, sauvola_range, below)
                height = self._height(values[z - begin])
                np.less_equal(height, below / scale, out=void[z - first])
                _add(levels(z), -1, sums)

        # each range of slices starts by summing a whole window
        threads.over(last - first, threshold_slices, smallest=max(1, self.window[0] // 2))
        return void

    def _height(self, plane: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return grey values above the lowest or, for bright pores, below the highest value.

        Values are clipped to the range of the volume.
        """
        low, high = (plane.dtype.type(end) for end in (self.grey.low, self.grey.high))
        plane = plane.clip(low, high)
        if plane.dtype.kind == "f":
            wide = plane.astype(np.float64)
            return float(high) - wide if self.bright else wide - float(low)
        # may wrap around in a signed type; as unsigned it is the correct difference
        difference = high - plane if self.bright else plane - low
        height: npt.NDArray[Any] = difference.view(f"u{plane.itemsize}")
        return height


def window_in_voxels(
    window: float, spacing: Sequence[float], per_slice: bool
) -> tuple[int, int, int]:
    """Return the size of a window along z, y and x: odd numbers of voxels, close to a cube.

    `window`: edge length in voxels of the smallest spacing. `spacing`: voxel size (z, y, x).
    `per_slice`: whether the window is 2D, within a slice.
    """
    sides = [2 * round((window * min(spacing) / step - 1) / 2) + 1 for step in spacing]
    return (1 if per_slice else max(1, sides[0]), max(1, sides[1]), max(1, sides[2]))


def _mirrored(length: int, window: int) -> npt.NDArray[np.int64]:
    """Return indices along an axis that is mirrored by half a window on both sides.

    Entries i to ``i + window`` are the window around voxel i.
    """
    return np.pad(np.arange(length), window // 2, mode="reflect")


@kernel
def _add(levels: npt.NDArray[np.int32], sign: int, sums: npt.NDArray[np.int64]) -> None:
    """Add a plane of levels and their squares to the sums, or subtract it (`sign` -1).

    A third plane counts the voxels if levels may be `_NOTHING`.
    """
    height, width = levels.shape
    for y in range(height):
        for x in range(width):
            level = np.int64(levels[y, x])
            if len(sums) == 3:
                sums[2, y, x] += sign * (level >= 0)
                level = max(level, np.int64(0))
            sums[0, y, x] += sign * level
            sums[1, y, x] += sign * level * level


@kernel
def _threshold_plane(
    sums: npt.NDArray[np.int64],
    at_y: npt.NDArray[np.int64],
    at_x: npt.NDArray[np.int64],
    window: tuple[int, int, int],
    k: float,
    sauvola_range: float,
    out: npt.NDArray[np.float64],
) -> None:
    """Write the threshold of each voxel of a slice, from the window sums along z.

    Niblack if `sauvola_range` is 0.
    """
    kinds, height, width = sums.shape
    voxels = window[0] * window[1] * window[2]
    column = np.zeros((3, width), np.int64)
    for i in range(window[1] - 1):
        for kind in range(kinds):
            for x in range(width):
                column[kind, x] += sums[kind, at_y[i], x]
    for y in range(height):
        enters, leaves = at_y[y + window[1] - 1], at_y[y]
        for kind in range(kinds):
            for x in range(width):
                column[kind, x] += sums[kind, enters, x]
        total, squares, count = np.int64(0), np.int64(0), np.int64(0)
        for i in range(window[2] - 1):
            total += column[0, at_x[i]]
            squares += column[1, at_x[i]]
            count += column[2, at_x[i]]
        for x in range(width):
            last, first = at_x[x + window[2] - 1], at_x[x]
            total += column[0, last]
            squares += column[1, last]
            count += column[2, last]
            # the threshold of an empty window is never used
            size = float(max(count, np.int64(1)) if kinds == 3 else voxels)
            mean = total / size
            deviation = np.sqrt(max(squares / size - mean * mean, 0.0))
            if sauvola_range > 0:
                out[y, x] = mean * (1 + k * (deviation / sauvola_range - 1))
            else:
                out[y, x] = mean - k * deviation
            total -= column[0, first]
            squares -= column[1, first]
            count -= column[2, first]
        for kind in range(kinds):
            for x in range(width):
                column[kind, x] -= sums[kind, leaves, x]
