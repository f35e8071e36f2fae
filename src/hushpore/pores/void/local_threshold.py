"""Local thresholds: a voxel is void where it is darker than what is around it, by so much.

What is around a voxel is a window centred on it, of mean m and standard deviation s. Thresholds:

- Niblack: ``m - k * s``;
- Sauvola: ``m * (1 + k * (s / r - 1))``, where r is the greatest deviation to be expected.

Sauvola's was made for pages of 8 bits: it takes grey values to begin at 0 and r to be half of what
a type can hold, which says nothing for CT numbers below zero, for floats, or for 12 bits in a type
of 16. So here grey values are counted from the lowest one in the volume, and r is half of the range
of the volume; the void is then the same whatever the scale of the greys. For bright pores the scale
is turned over, and counted from the highest value down. Beyond the faces of the volume it is
mirrored, as in scikit-image's functions of these names. What is filled in around a scan with one
value is no part of any window.

The sums of a window are taken in whole numbers and so are exact: the void is the same, bit for bit,
however the volume is cut into slabs and whatever the number of threads. Values of more than 65,536
levels, floats among them, are rounded for that to 2**-18 of the range.

References
----------
W. Niblack (1986), "An Introduction to Digital Image Processing", pp. 115-116, Prentice-Hall.

J. Sauvola and M. Pietikäinen (2000), "Adaptive document image binarization", Pattern Recognition
33, 225-236. https://doi.org/10.1016/S0031-3203(99)00055-2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Array, Float64s, Int32s, Int64s, Mask
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.void.threshold import Range

#: Bytes a voxel of one slice that each thread needs for its sums.
BYTES_IN_WINDOW = 80

#: Whether the threshold of a method depends on how far values deviate at most.
_TAKES_RANGE = {"sauvola": True, "niblack": False}

_EXACT = 1 << 16  # levels that whole numbers are counted by as they are
_LEVELS = 1 << 18  # levels of anything else: their squares, summed in the largest window, fit int64
_NOTHING = -1  # level of a voxel that is in no window


@dataclass(frozen=True, eq=False)
class LocalThreshold:
    """How to find the void slab by slab by a local threshold."""

    method: str  # ``sauvola`` or ``niblack``
    window: tuple[int, int, int]  # (z, y, x): voxels of the window along each axis, odd
    k: float  # how far below the mean, in the method's own measure
    bright: bool  # whether the pores are the bright phase
    depth: int  # slices of the whole stack
    grey: Range  # the range of the whole stack, without what is filled in
    padding: float | None = None  # the value that is filled in, where there is such

    def slices(self, first: int, last: int) -> tuple[int, int]:
        """Return the slices that are needed for those of a slab: half a window more."""
        half = self.window[0] // 2
        return max(first - half, 0), min(last + half, self.depth)

    def void(
        self, values: Array, first: int, last: int, threads: KernelThreads, out: Mask | None = None
    ) -> Mask:
        """Return where the pores are in a slab.

        `values`: (z, y, x), any real dtype: the `slices` for this slab. `first`, `last`: the slices
        of the slab, counted in the whole stack.
        Returns: (last - first, y, x), bool, C order.

        Takes `BYTES_IN_WINDOW` for each thread, whatever the window.
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

        def levels(z: int) -> Int32s:
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

        # each range begins with as many slices as a window has
        threads.over(last - first, threshold_slices, smallest=max(1, self.window[0] // 2))
        return void

    def _height(self, plane: Array) -> Array:
        """Count grey values from the lowest up, or for bright pores from the highest down.

        What lies beyond the range counts as its end.
        """
        low, high = (plane.dtype.type(end) for end in (self.grey.low, self.grey.high))
        plane = plane.clip(low, high)
        if plane.dtype.kind == "f":
            wide = plane.astype(np.float64)
            return float(high) - wide if self.bright else wide - float(low)
        # a difference that wraps around is right in the unsigned twin of the type
        difference = high - plane if self.bright else plane - low
        height: Array = difference.view(f"u{plane.itemsize}")
        return height


def window_in_voxels(
    window: float, spacing: Sequence[float], per_slice: bool
) -> tuple[int, int, int]:
    """Return the voxels of a window along z, y and x: odd numbers, as near as can be to a cube.

    `window`: its side in voxels of the smallest spacing. `spacing`: voxel size in z, y, x order.
    `per_slice`: whether it lies in one slice.
    """
    sides = [2 * round((window * min(spacing) / step - 1) / 2) + 1 for step in spacing]
    return (1 if per_slice else max(1, sides[0]), max(1, sides[1]), max(1, sides[2]))


def _mirrored(length: int, window: int) -> Int64s:
    """Return where the voxels of an axis lie that is continued by half a window on both sides.

    Entry i to ``i + window`` are the window around voxel i.
    """
    return np.pad(np.arange(length), window // 2, mode="reflect")


@kernel
def _add(levels: Int32s, sign: int, sums: Int64s) -> None:
    """Add a plane of levels and of their squares to planes of sums, or take it away.

    And how many there are, to a third of these planes where levels may be `_NOTHING`.
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
    sums: Int64s,
    at_y: Int64s,
    at_x: Int64s,
    window: tuple[int, int, int],
    k: float,
    sauvola_range: float,
    out: Float64s,
) -> None:
    """Write the threshold of every voxel of a slice from the sums of its window along z.

    Niblack's where `sauvola_range` is 0.
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
            # of a window without anything in it nobody asks for the threshold
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
