"""The grey value between pore and solid, and the void on one side of it.

A threshold follows from the histogram alone, so that the volume need not fit into memory. Whole
numbers of up to 65,536 levels are counted level by level; anything else in 1024 equal bins.

Local thresholds: a voxel is void if it is darker than its neighbourhood by a certain amount.

The neighbourhood is a window centred on the voxel, of mean m and standard deviation s:

- Niblack: ``m - k * s``;
- Sauvola: ``m * (1 + k * (s / r - 1))``, where r is the largest expected deviation.

Sauvola's was made for pages of 8 bits: it takes grey values to begin at 0 and r to be half of what
a type can hold, which says nothing for CT numbers below zero, for floats, or for 12 bits in a type
of 16. So here grey values are counted from the lowest one in the volume, and r is half of the range
of the volume; the void is then the same whatever the scale of the greys. For bright pores the scale
is turned over, and counted from the highest value down. Beyond the faces of the volume it is
mirrored, as in scikit-image's functions of these names. Padding around a
scan is not part of any window.

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

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.volume import require_range
from hushpore.device.timing import StageTimer
from hushpore.pores.parallel import kernel
from hushpore.scan.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float64s, Int32s, Int64s, Mask
    from hushpore.base.volume import Volume
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Slabs


_LEVELS = 1 << 16
_BINS = 1024

#: Bins of `_BINS` below which all voxels but a few are counted again in a narrower range, bins that
#: they then have at the least, and the number of times that they are counted.
_HIDDEN, _FINE, _PASSES = 32, 64, 8

#: Steps of float64, in which thresholds are, that the range of whole numbers has at the least.
_FEWEST_STEPS = 256


class Range(NamedTuple):
    """The lowest and the highest of some values, and how many are NaN or infinite."""

    low: Any
    high: Any
    bad: int = 0

    def join(self, other: Range) -> Range:
        """Return the range of both."""
        return Range(min(self.low, other.low), max(self.high, other.high), self.bad + other.bad)


def find_range(values: Array, threads: KernelThreads) -> Range:
    """Return the range of an image of two axes or more."""

    def look(first: int, last: int) -> Range:
        part = values[first:last]
        low, high = part.min(), part.max()
        bad = 0
        if not (np.isfinite(low) and np.isfinite(high)):
            bad = int(part.size - np.count_nonzero(np.isfinite(part)))
        return Range(low, high, bad)

    found: Range = functools.reduce(Range.join, threads.over(len(values), look))
    return found


def make_histogram(values: Array, threads: KernelThreads, among: Range | None = None) -> Histogram:
    """Count the grey values of an image.

    `values`: two axes or more, integer or floating point, finite and not constant. `among`: the
    range of a larger image that this is a part of: the histograms of its parts add up. Values
    beyond it count in the bins at its ends.
    """
    among = among or find_range(values, threads)
    low, high, _ = among
    centers, exact = bins_of(values.dtype, among)
    bins = centers.size
    scale = bins / (float(high) - float(low))

    def count_slices(first: int, last: int) -> Int64s:
        counts = np.zeros(bins, np.int64)
        for plane in values[first:last]:
            if exact:
                # only wider types are counted in a part of their range
                part = plane if plane.itemsize <= 2 else plane.clip(low, high)
                # may wrap around in a signed type; its unsigned twin then holds the difference
                level = (part - low).view(f"u{plane.itemsize}").astype(np.uint16)
            else:
                position = (plane.astype(np.float64) - float(low)) * scale
                level = np.clip(position, 0, bins - 1).astype(np.uint16)
            _count(np.ascontiguousarray(level).reshape(-1), counts)
        return counts

    pieces = threads.over(len(values), count_slices)
    return Histogram(np.sum(pieces, axis=0, dtype=np.int64), centers)


def bins_of(dtype: np.dtype[Any], among: Range) -> tuple[Float64s, bool]:
    """Return the centres of the bins that values of a range are counted in.

    Also whether each bin is a level of whole numbers, from the lowest value up.
    """
    low, high, _ = among
    if dtype.kind in "iu" and int(high) - int(low) < _LEVELS:
        return int(low) + np.arange(int(high) - int(low) + 1, dtype=np.float64), True
    edges = np.linspace(float(low), float(high), _BINS + 1)
    return (edges[:-1] + edges[1:]) / 2, False


def measured(values: Array, padding: float | None) -> Array:
    """Return the values that are not filled in with one, in one row where there are such."""
    return values if padding is None else values[values != padding].reshape(1, -1)


def survey(
    values: GreyValues, with_histogram: bool, threads: KernelThreads, padding: float | None = None
) -> Generator[float, None, tuple[Range, Histogram | None]]:
    """Find the range of a volume, slab by slab, and its histogram where that is wanted.

    `padding`: a value that is none, of voxels that are filled in, and does not count.

    Whole numbers of 16 bits are read once, anything else a second time for the histogram.

    Yields: the share that is done.
    Raises InputError if the values are all the same, some of them are not finite, or they are whole
    numbers too large for thresholds between them.
    """
    counted = counted_once(values.dtype) if with_histogram else None
    if counted:
        counting = _count_all(values, counted, threads, 0.0, padding)
        histogram = (yield from counting).trimmed()
        found = Range(*values.dtype.type(histogram.centers[[0, -1]]))
        require_range(values.volume, *found)
        return found, histogram
    ranges = []
    for (_, last), part in zip(values.slabs, values.in_slabs(), strict=True):
        if (own := measured(part, padding)).size:
            ranges.append(find_range(own, threads))
        yield last / values.slabs.depth / (1 + with_histogram)
    found = functools.reduce(Range.join, ranges)
    require_range(values.volume, *found)
    require_steps(values.volume, found)
    if not with_histogram:
        return found, None
    histogram = yield from _count_all(values, found, threads, 0.5, padding)
    again = functools.partial(_count_all, values, threads=threads, begin=1.0, padding=padding)
    return (yield from narrowed(found, histogram, values.dtype, again))


def narrowed(
    found: Range,
    histogram: Histogram,
    dtype: np.dtype[Any],
    count: Callable[[Range], Generator[Any, Any, Histogram]],
) -> Generator[Any, Any, tuple[Range, Histogram]]:
    """Return range and histogram without the few values far outside that would hide all others.

    `found`, `histogram`: of all values. `count`: counts them again in the bins of another range.
    """
    low, high = found.low, found.high
    if bins_of(dtype, found)[1]:
        return found, histogram
    if np.count_nonzero(histogram.counts) == 2:
        # the voxels with the values at both ends of the range may be all there are
        at_low = yield from count(Range(low, _beside(low, high, dtype)))
        at_high = yield from count(Range(_beside(high, low, dtype), high))
        if at_low.counts[0] + at_high.counts[-1] == histogram.counts.sum():
            return found, histogram
    among, narrow, least = found, histogram, _HIDDEN
    for _ in range(_PASSES):
        ends = narrow.core(least)
        if ends is None:
            return among, dataclasses.replace(narrow, is_exact=False)
        first, last = (math.floor(ends[0]), math.ceil(ends[1])) if dtype.kind in "iu" else ends
        among = Range(dtype.type(max(first, low)), dtype.type(min(last, high)))
        if not among.low < among.high:
            break
        narrow, least = (yield from count(among)), _FINE
        if bins_of(dtype, among)[1]:
            return among, narrow
    # all others are the same
    return found, dataclasses.replace(histogram, is_exact=False)


def _beside(end: Any, other: Any, dtype: np.dtype[Any]) -> Any:
    """Return a value next to an end of a range, toward the other end."""
    if dtype.kind in "iu":
        whole = max(1, int(np.spacing(abs(float(end)))))
        return dtype.type(int(end) + (whole if other > end else -whole))
    step = max(float(np.spacing(abs(end))), 1e-30 * abs(float(other) - float(end)))
    return dtype.type(float(end) + math.copysign(step, float(other) - float(end)))


def require_steps(volume: Volume, found: Range) -> None:
    """Raise `InputError` where whole numbers are so large that no threshold parts them."""
    low, high = float(found.low), float(found.high)
    step = float(np.spacing(max(abs(low), abs(high))))
    if volume.dtype.kind in "iu" and int(found.high) - int(found.low) < _FEWEST_STEPS * step:
        raise InputError(
            f"{volume.name} holds whole numbers from {found.low} to {found.high}, among which "
            f"thresholds, floating-point numbers, have steps of {step:g}. Subtract {found.low} "
            "from the scan first."
        )


def _count_all(
    values: GreyValues, among: Range, threads: KernelThreads, begin: float, padding: float | None
) -> Generator[float, None, Histogram]:
    """Count the grey values of all slabs; what is done before is a share of the whole."""
    counts: Any = 0
    for (_, last), part in zip(values.slabs, values.in_slabs(), strict=True):
        if (own := measured(part, padding)).size:
            counts = counts + make_histogram(own, threads, among).counts
        yield begin + (1 - begin) * last / values.slabs.depth
    return Histogram(counts, bins_of(values.dtype, among)[0])


def counted_once(dtype: np.dtype[Any]) -> Range | None:
    """Return the range of a type that has so few levels that all of them can be counted."""
    if dtype.kind not in "iu" or dtype.itemsize > 2:
        return None
    limits = np.iinfo(dtype)
    return Range(dtype.type(limits.min), dtype.type(limits.max))


def make_void(
    values: Array,
    threshold: float | None,
    bright: bool,
    threads: KernelThreads,
    out: Mask | None = None,
) -> Mask:
    """Return where the pores are: (z, y, x), bool, C order, owned by the caller.

    `values`: (z, y, x), any real dtype. `threshold`: dark pores are at or below it, bright ones
    above; None: of booleans. `bright`: whether the pores are the bright phase.
    """
    void = np.empty(values.shape, np.bool_) if out is None else out
    limit: Any = values.dtype.type(0) if threshold is None else np.float64(threshold)
    if threshold is not None and values.dtype.kind in "iu":
        # whole numbers are compared as such: exact at any size, and no conversion
        info = np.iinfo(values.dtype)
        if threshold < info.min or threshold >= info.max:
            void[...] = (threshold < info.min) == bright
            return void
        limit = values.dtype.type(np.floor(threshold))
    compare = np.greater if bright else np.less_equal

    def compare_slices(first: int, last: int) -> None:
        compare(values[first:last], limit, out=void[first:last])

    threads.over(len(values), compare_slices)
    return void


@kernel
def _count(levels: npt.NDArray[np.uint16], counts: Int64s) -> None:
    for level in levels:
        counts[level] += 1


#: Voxels that a thread rounds at once, so that they stay in its cache.
_AT_ONCE = 1 << 16


#: Bits of a rounded grey value without its sign: the squares of 2**31 of them add up in int64.
_BITS = 16
_MOST = 1 << _BITS


class Rounding(NamedTuple):
    """Rounding of grey values to whole numbers: ``round((grey - offset) / step)``."""

    offset: float = 0.0
    step: float = 1.0

    @classmethod
    def of(cls, dtype: np.dtype[Any], low: float, high: float) -> Rounding:
        """Return the rounding of grey values of a range.

        Exact for integers of up to 16 bits; otherwise to 1/65,536 of the range or finer.
        """
        low, high = float(low), float(high)
        # frexp: a number is less than two to the power of this
        if dtype.kind in "biu" and math.frexp(max(abs(low), abs(high)))[1] <= _BITS:
            return AS_IS
        middle = low + (high - low) / 2
        step = 2.0 ** (math.frexp(high - middle)[1] - _BITS)
        if dtype.kind in "biu":
            step = max(step, 1.0)
        return cls(round(middle / step) * step, step)


#: Grey values as they are, in integers.
AS_IS = Rounding()


class RoundedGrey:
    """Grey values as whole numbers, so that sums are exact in any order."""

    def __init__(self, values: GreyValues, rounding: Rounding) -> None:
        self._values, self.rounding = values, rounding

    def read(self, first: int, last: int, threads: KernelThreads) -> Int32s:
        """Return some slices (z, y, x)."""
        values = self._values.read(first, last)
        rounded = np.empty(values.shape, np.int32)
        rows, own = (each.reshape(-1, values.shape[-1]) for each in (values, rounded))
        offset, step = self.rounding

        def fill(first: int, last: int) -> None:
            part: Array = rows[first:last].reshape(-1)
            room = own[first:last].reshape(-1)
            if self.rounding == AS_IS:
                room[:] = part
            else:
                # compiled for two types
                part = part if part.dtype == np.float32 else part.astype(np.float64)
                _round(part, offset, 1 / step, room)

        threads.over(len(rows), fill, largest=max(1, _AT_ONCE // values.shape[-1]))
        return rounded


@kernel
def _round(values: npt.NDArray[np.floating[Any]], offset: float, steps: float, out: Int32s) -> None:
    for i in range(values.size):
        rounded = np.rint((np.float64(values[i]) - offset) * steps)
        # padding may lie far out of the range
        out[i] = np.int32(min(max(rounded, -float(_MOST)), float(_MOST)))


class GreyValues:
    """The values of a volume as a stack; an image is a stack of one slice.

    `volume`: 2D or 3D, from any source: NumPy, a memory map, dask, zarr, planes of a file. `slabs`:
    how it is read: a slab at a time where stacks lie on disk, else once and for all. `timer`: times
    the reading of slabs.
    """

    def __init__(self, volume: Volume, slabs: Slabs, timer: StageTimer | None = None) -> None:
        self._timer = timer or StageTimer()
        self.volume = volume
        self.slabs = slabs
        self.dtype = volume.dtype.newbyteorder("=")
        self._whole = None if slabs.on_disk else self._stacked(volume.array())

    def read(self, first: int, last: int) -> Array:
        """Return some slices, (z, y, x), in native byte order and C order; not to be changed."""
        if self._whole is not None:
            return self._whole[first:last]
        data = self.volume.data
        part = np.asarray(data[first:last] if self.volume.n_spatial == 3 else data)
        return self._stacked(np.ascontiguousarray(part, self.dtype))

    def in_slabs(
        self, around: Callable[[int, int], tuple[int, int]] | None = None
    ) -> Iterator[Array]:
        """Read all slabs in order.

        `around`: returns the slices to read for those of a slab; by default the slab's own.
        """
        for first, last in self.slabs:
            where = around(first, last) if around else (first, last)
            if self._whole is not None:
                yield self.read(*where)
                continue
            with self._timer.stage("reading") as run:
                values = self.read(*where)
                run.nbytes = values.nbytes
            yield values

    def _stacked(self, values: Array) -> Array:
        return values.reshape((1,) * (3 - values.ndim) + values.shape)


#: Bytes a voxel of one slice that each thread needs for its sums.
BYTES_IN_WINDOW = 80

#: Whether the threshold of a method depends on how far values deviate at most.
_TAKES_RANGE = {"sauvola": True, "niblack": False}

_EXACT = 1 << 16  # levels that whole numbers are counted by as they are
# levels of anything else: their squares, summed in the largest window, fit int64
_LOCAL_LEVELS = 1 << 18
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
        scale = 1.0 if exact else (_LOCAL_LEVELS - 1) / float(high)
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
