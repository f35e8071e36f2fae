"""Grey values that cross to a GPU as a scanner wrote them, and the threshold that is found there.

The threshold is that of the CPU because what it comes from is: whole numbers of voxels for each
grey value, counted on the GPU; the method is applied to them on the host.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.rescaled import Scaled, held
from hushpore.base.volume import require_range
from hushpore.pores.void.threshold import Range, bins_of, counted_once
from hushpore.scan.histogram import Histogram

if TYPE_CHECKING:
    from hushpore.base.arrays import Float32s, Int32s
    from hushpore.base.volume import Volume
    from hushpore.pores.gpu.engine import Gpu
    from hushpore.pores.void.threshold import Rounding

#: Blocks that count, each for itself at first: as many as a large GPU runs at a time.
_BLOCKS = 1 << 10

#: Values that are worth a block.
_LEAST = 1 << 14

#: Types that are read on the GPU, as void.cu numbers them. Of larger ones the void is smaller.
_KINDS = {"b1": 0, "u1": 0, "i1": 1, "u2": 2, "i2": 3, "f4": 4}

_UNKNOWN = 2**31 - 1  # above and, negative, below the rank of every value


def kind_of(volume: Volume) -> int | None:
    """Return by which number void.cu knows the type that would cross; None for others."""
    return _KINDS.get(str(np.dtype(held(volume.data).dtype).str)[1:])


class GpuGrey:
    """The grey values of a volume on a GPU.

    `volume`: 2D or 3D, in memory, of a type that has a `kind_of`.
    """

    def __init__(self, gpu: Gpu, volume: Volume) -> None:
        self._gpu, self._volume = gpu, volume
        self.dtype = volume.dtype.newbyteorder("=")
        self.shape = (1,) * (3 - volume.n_spatial) + volume.shape
        self._count = math.prod(self.shape)
        kind = kind_of(volume)
        assert kind is not None, "it can be read on the GPU"
        stored = held(volume.data)
        native = np.ascontiguousarray(stored, np.dtype(stored.dtype).newbyteorder("="))
        on_gpu = gpu.put(native.reshape(-1).view(np.uint8))
        self._values = (on_gpu, np.int32(kind), *self._line())

    def _line(self) -> tuple[Any, Any, np.int64]:
        """Return slopes and intercepts on the GPU, and of how many voxels each is."""
        xp, data = self._gpu.xp, self._volume.data
        if not isinstance(data, Scaled):
            none = xp.zeros(1, np.float64)
            return none, none, np.int64(0)
        if data.slope.ndim == data.intercept.ndim == 0:
            slope, intercept = (xp.full(1, float(x)) for x in (data.slope, data.intercept))
            return slope, intercept, np.int64(self._count)
        lines = np.broadcast_arrays(data.slope.reshape(-1), data.intercept.reshape(-1))
        on_gpu = self._gpu.put(np.stack(lines))
        return on_gpu[0], on_gpu[1], np.int64(self._count // lines[0].size)

    def survey(self, *, with_histogram: bool) -> tuple[Range, Histogram | None]:
        """Do as `hushpore.pores.void.threshold.survey`; waits for the GPU once."""
        dtype = self.dtype
        counted = counted_once(dtype) if with_histogram else None
        if counted:
            histogram = self.histogram(counted).trimmed()
            found = Range(*dtype.type(histogram.centers[[0, -1]]))
            require_range(self._volume, *found)
            return found, histogram
        extremes, bad = self._extremes()
        given = (*self._values, extremes)
        bins = bins_of(dtype, Range(0, 1))[0].size if with_histogram else 0
        counted_in = [self._counts("count_bins", given, bins)] if bins else []
        ranks, others, *counts = self._gpu.get_all([extremes, bad, *counted_in])
        low, high = _values_of(ranks).astype(dtype)
        found = Range(low, high, int(others[0]))
        require_range(self._volume, *found)
        if not counts:
            return found, None
        return found, Histogram(counts[0].astype(np.int64), bins_of(dtype, found)[0])

    def ends(self) -> Range:
        """Return the range of finite values, NaN where there are none; waits for the GPU once."""
        ranks, bad = self._gpu.get_all([*self._extremes()])
        low, high = _values_of(ranks).astype(self.dtype)
        return Range(low, high, int(bad[0]))

    def histogram(self, among: Range) -> Histogram:
        """Count values as a part of an image of a range; waits for the GPU once.

        Does as `hushpore.pores.void.threshold.make_histogram`. `among`: of finite values.
        """
        centers, exact = bins_of(self.dtype, among)
        if exact:
            counts = self._counts(
                "count_levels", self._values[:2], centers.size, np.int32(int(among.low))
            )
        else:
            ends = np.array([among.low, among.high], np.float32)
            given = (*self._values, self._gpu.put(_ranks_of(ends)))
            counts = self._counts("count_bins", given, centers.size)
        (found,) = self._gpu.get_all([counts])
        return Histogram(found.astype(np.int64), centers)

    def _extremes(self) -> tuple[Any, Any]:
        """Return the ranks of the ends of finite values, and how many are not; on the GPU."""
        xp = self._gpu.xp
        extremes = xp.full(2, _UNKNOWN, np.int32)
        extremes[1] = -_UNKNOWN
        bad = xp.zeros(1, np.int32)
        given = (*self._values, extremes, bad)
        self._gpu.stride(self._gpu.void, "find_range", self._count, *given)
        return extremes, bad

    def rounded(self, rounding: Rounding) -> Any:
        """Return rounded values (z, y, x), int32, as `RoundedGrey` does."""
        rounded = self._gpu.xp.empty(self.shape, np.int32)
        how = (np.float64(rounding.offset), np.float64(1 / rounding.step), np.int64(self._count))
        self._gpu.void.launch("round_grey", self._count, *self._values, rounded, *how)
        return rounded

    def beyond(self, threshold: float | None, *, bright: bool) -> Any:
        """Return 1 where values are beyond a threshold, else 0; None: where they are above 0."""
        phase = self._gpu.xp.empty(self.shape, np.uint8)
        self._gpu.void.launch(
            "find_void", self._count, *self._values, phase, *self._limit(threshold, bright)
        )
        return phase

    def mark_beyond(self, threshold: float, parts: Any, is_marked: Any, *, bright: bool) -> None:
        """Mark the parts of a void, see `GpuParts`, that hold a value beyond a threshold."""
        marks = (parts, is_marked)
        self._gpu.void.launch(
            "mark_strict", self._count, *self._values, *marks, *self._limit(threshold, bright)
        )

    def _limit(self, threshold: float | None, bright: bool) -> tuple[Any, ...]:
        above = threshold is None or bright
        return np.float64(threshold or 0.0), np.int32(above), np.int64(self._count)

    def _counts(self, name: str, before: tuple[Any, ...], bins: int, *after: Any) -> Any:
        """Count values in bins; returns int32, on the GPU."""
        counts = self._gpu.xp.zeros(bins, np.int32)
        given = (*before, counts, np.int32(bins), *after, np.int64(self._count))
        blocks = min(-(-self._count // _LEAST), _BLOCKS)
        self._gpu.void.launch_blocks(name, blocks, *given)
        return counts


def _ranks_of(values: Float32s) -> Int32s:
    """Return the ranks of floats, as void.cu has them."""
    bits = (values + np.float32(0)).view(np.int32)
    return np.where(bits < 0, bits ^ _UNKNOWN, bits).astype(np.int32)


def _values_of(ranks: Any) -> Any:
    """Return the floats of ranks, as void.cu has them; nothing finite gives NaN."""
    bits = np.where(ranks < 0, ranks ^ _UNKNOWN, ranks).astype(np.int32)
    return bits.view(np.float32)
