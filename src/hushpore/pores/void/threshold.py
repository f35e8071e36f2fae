"""The grey value between pore and solid, and the void on one side of it.

The histogram is all that is looked at, so that a volume need not be in memory in one piece. Whole
numbers of up to 65,536 levels are counted level by level; anything else in 1024 equal bins.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.volume import require_range
from hushpore.pores.parallel import kernel
from hushpore.scan.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Generator

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float64s, Int64s, Mask
    from hushpore.base.volume import Volume
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.void.grey import GreyValues

_LEVELS = 1 << 16
_BINS = 1024

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
    range of a larger image that this is a part of: the histograms of its parts add up.
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
                # may wrap around in a signed type; its unsigned twin then holds the difference
                level = (plane - low).view(f"u{plane.itemsize}").astype(np.uint16)
            else:
                position = (plane.astype(np.float64) - float(low)) * scale
                level = np.minimum(position, bins - 1).astype(np.uint16)
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
    for (_, last), part in zip(values.slabs, values.ahead(), strict=True):
        if (own := measured(part, padding)).size:
            ranges.append(find_range(own, threads))
        yield last / values.slabs.depth / (1 + with_histogram)
    found = functools.reduce(Range.join, ranges)
    require_range(values.volume, *found)
    require_steps(values.volume, found)
    if not with_histogram:
        return found, None
    return found, (yield from _count_all(values, found, threads, 0.5, padding))


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
    for (_, last), part in zip(values.slabs, values.ahead(), strict=True):
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
    above; None: `values` is the void itself. `bright`: whether the pores are the bright phase.
    """
    void = np.empty(values.shape, np.bool_) if out is None else out
    if threshold is None:
        threads.over(
            len(values), lambda first, last: np.copyto(void[first:last], values[first:last])
        )
        return void
    limit: Any = np.float64(threshold)
    if values.dtype.kind in "iu":
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
