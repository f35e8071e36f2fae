"""Grey values that cross to a GPU as a scanner wrote them, and the void that is found there.

The threshold is that of the CPU because what it comes from is: whole numbers of voxels for each
grey value, counted on the GPU; the method is applied to them on the host. Parts of the void are
joined by pointers to voxels that come before, so that each ends in its first voxel, whatever the
order of threads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.scaled import Scaled, held
from hushpore.base.volume import require_range
from hushpore.pores.local_threshold import LOCAL_METHODS
from hushpore.pores.passes import check_hysteresis, threshold_of
from hushpore.pores.threshold import Histogram, Range, bins_of, counted_once
from hushpore.pores.void import CLOSED, OPEN, SOLID

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.pores.on_gpu import Gpu
    from hushpore.pores.passes import Work
    from hushpore.pores.settings import PoreSettings

#: Threads of a kernel in which each has several voxels: as many as a large GPU runs at a time.
_THREADS = 1 << 18

#: Counters of all tables of a histogram: 1 MB.
_COUNTERS = 1 << 18

#: Types that are read on the GPU, as void.cu numbers them. Of larger ones the void is smaller.
_KINDS = {"b1": 0, "u1": 0, "i1": 1, "u2": 2, "i2": 3, "f4": 4}

_UNKNOWN = 2**31 - 1  # above and, negative, below the rank of every value


def why_on_host(volume: Volume, settings: PoreSettings) -> str:
    """Say why the void of a volume is found on the host, and not on a GPU; empty where it need not.

    Air outside a sample takes two more distance maps, in a larger volume; a mask of it would have
    to cross as well; and a local threshold takes windows, whose sums are worked on as slices come.
    """
    if settings.outside != "keep" or settings.sample_mask:
        return "what is outside the sample is told on the host"
    if settings.threshold in LOCAL_METHODS and volume.dtype != np.bool_:
        return f"the host finds the local threshold {settings.threshold}"
    if _kind(volume) not in _KINDS:
        return f"values of {np.dtype(held(volume.data).dtype).name} are larger than their void"
    return ""


def _kind(volume: Volume) -> str:
    return str(np.dtype(held(volume.data).dtype).str)[1:]


class Found(NamedTuple):
    """The void on the GPU, and what is known of it."""

    codes: Any  # (z, y, x), uint8
    totals: Any  # 3, uint64: parts, voxels of open ones, voxels of closed ones


class GpuGrey:
    """The grey values of a volume on a GPU.

    Parameters
    ----------
    gpu : Gpu
        Where to.
    volume : Volume
        2D or 3D, in memory, such that there is no reason of `why_on_host`.
    """

    def __init__(self, gpu: Gpu, volume: Volume) -> None:
        self._gpu, self._volume = gpu, volume
        self.shape = (1,) * (3 - volume.n_spatial) + volume.shape
        stored = held(volume.data)
        native = np.ascontiguousarray(stored, np.dtype(stored.dtype).newbyteorder("="))
        self._count = math.prod(self.shape)
        there = gpu.put(native.reshape(-1).view(np.uint8))
        self._values = (there, np.int32(_KINDS[_kind(volume)]), *self._line())

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
        there = self._gpu.put(np.stack(lines))
        return there[0], there[1], np.int64(self._count // lines[0].size)

    def survey(self, *, with_histogram: bool) -> tuple[Range, Histogram | None]:
        """Do as `hushpore.pores.threshold.survey`; waits for the GPU once."""
        dtype = self._volume.dtype.newbyteorder("=")
        counted = counted_once(dtype) if with_histogram else None
        if counted:
            centers, _ = bins_of(dtype, counted)
            levels = self._gpu.get_all([self._levels(int(counted.low), centers.size)])
            histogram = Histogram(levels[0], centers).trimmed()
            found = Range(*dtype.type(histogram.centers[[0, -1]]))
            require_range(self._volume, *found)
            return found, histogram
        xp = self._gpu.xp
        extremes = xp.full(2, _UNKNOWN, np.int32)
        extremes[1] = -_UNKNOWN
        bad = xp.zeros(1, np.int32)
        self._stride("find_range", *self._values, extremes, bad)
        bins = bins_of(dtype, Range(0, 1))[0].size if with_histogram else 0
        counted_in = [self._bins(extremes, bins)] if bins else []
        ranks, others, *counts = self._gpu.get_all([extremes, bad, *counted_in])
        low, high = _values_of(ranks).astype(dtype)
        found = Range(low, high, int(others[0]))
        require_range(self._volume, *found)
        return found, Histogram(counts[0], bins_of(dtype, found)[0]) if counts else None

    def threshold(self, settings: PoreSettings) -> tuple[float | None, str]:
        """Find the threshold, or take the one that is given; see `passes.find_grey_value`."""
        if self._volume.dtype == np.bool_:
            return None, ""
        with_histogram = isinstance(settings.threshold, str)
        (low, high, _), histogram = self.survey(with_histogram=with_histogram)
        threshold, problem = threshold_of(settings, low, high, histogram)
        check_hysteresis(settings, threshold)
        return threshold, problem

    def void(self, work: Work, threshold: float | None) -> Found:
        """Find the void beyond a threshold, and tell open from closed; never waits.

        As `passes.find_void` and `passes.take_apart` do, where all void is of the sample.
        """
        gpu, settings = self._gpu, work.settings
        xp, launch = gpu.xp, gpu.void.launch
        height, width = self.shape[1:]
        all_ = np.int64(self._count)
        bright = threshold is None or settings.pores_are == "bright"
        codes = xp.empty(self.shape, np.uint8)
        beyond = (np.float64(threshold or 0.0), np.int32(bright), all_)
        launch("find_void", self._count, *self._values, codes, *beyond)
        parts = xp.empty(self._count, np.int32)
        size = (np.int32(height), np.int32(width))
        launch("hang", self._count, codes, parts, all_, *size)
        launch("join_parts", self._count, parts, all_, *size)
        gpu.follow(parts)
        if threshold is not None and settings.hysteresis is not None:
            is_marked = xp.zeros(self._count, np.uint8)
            strict = (np.float64(settings.hysteresis), np.int32(bright), all_)
            launch("mark_strict", self._count, *self._values, parts, is_marked, *strict)
            launch("keep_marked", self._count, parts, is_marked, all_)
        is_open = xp.zeros(self._count, np.uint8)
        along_z = np.int32(work.faces[0])
        launch("mark_open", self._count, parts, is_open, all_, *size, along_z)
        totals = xp.zeros(3, np.uint64)
        code_of = (
            np.int32(SOLID if settings.mode == "closed" else OPEN),
            np.int32(SOLID if settings.mode == "open" else CLOSED),
        )
        self._stride("tell_open", parts, is_open, codes, totals, *code_of)
        return Found(codes, totals)

    def _levels(self, lowest: int, bins: int) -> Any:
        counts, tables = self._tables(bins)
        stored, kind = self._values[:2]
        table = (counts, np.int32(bins), tables, np.int32(lowest))
        self._stride("count_levels", stored, kind, *table)
        return counts.sum(axis=0, dtype=np.int64)

    def _bins(self, extremes: Any, bins: int) -> Any:
        counts, tables = self._tables(bins)
        table = (extremes, counts, np.int32(bins), tables)
        self._stride("count_bins", *self._values, *table)
        return counts.sum(axis=0, dtype=np.int64)

    def _tables(self, bins: int) -> tuple[Any, np.int32]:
        tables = _COUNTERS // bins
        return self._gpu.xp.zeros((tables, bins), np.int32), np.int32(tables)

    def _stride(self, name: str, *arguments: Any) -> None:
        """Run a kernel of which each thread has several voxels."""
        threads = min(self._count, _THREADS)
        how = (np.int64(self._count), np.int64(threads))
        self._gpu.void.launch(name, threads, *arguments, *how)


def _values_of(ranks: Any) -> Any:
    """Return the floats of ranks, as void.cu has them; nothing finite gives NaN."""
    bits = np.where(ranks < 0, ranks ^ _UNKNOWN, ranks).astype(np.int32)
    return bits.view(np.float32)
