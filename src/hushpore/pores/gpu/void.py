"""Grey values, threshold, void and air on a GPU, bit for bit as on the host.

The threshold is that of the CPU, because whole numbers of voxels are counted for each grey value on
the GPU, and the method is applied on the host. Connected components are joined by pointers to
earlier voxels, so that each ends in its first voxel in any order of threads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.rescaled import Scaled, held
from hushpore.base.volume import require_range
from hushpore.pores.gpu.engine import BITS, Flags
from hushpore.pores.void.components import AIR, SOLID
from hushpore.pores.void.threshold import Range, bins_of, counted_once
from hushpore.scan.histogram import Histogram

if TYPE_CHECKING:
    from hushpore.base.arrays import Float32s, Int32s
    from hushpore.base.volume import Volume
    from hushpore.pores.gpu.engine import Gpu
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.void.threshold import Rounding
    from hushpore.pores.work import Work


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

    `volume`: 2D or 3D, in memory, of a type that has a `kind_of`. `there`: its values, if they are
    on the GPU already; only the type and the shape of the volume count then.
    """

    def __init__(self, gpu: Gpu, volume: Volume, there: Any = None) -> None:
        self._gpu, self._volume = gpu, volume
        self.dtype = volume.dtype.newbyteorder("=")
        self.shape = (1,) * (3 - volume.n_spatial) + volume.shape
        self._count = math.prod(self.shape)
        kind = kind_of(volume)
        assert kind is not None, "it can be read on the GPU"
        if there is None:
            stored = held(volume.data)
            native = np.ascontiguousarray(stored, np.dtype(stored.dtype).newbyteorder("="))
            there = gpu.put(native.reshape(-1).view(np.uint8))
        self._values = (there.reshape(-1).view(np.uint8), np.int32(kind), *self._line())

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
        """Return 1 where values are beyond a threshold, else 0; None: beyond 0."""
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
        return np.float64(threshold or 0.0), np.int32(bright), np.int64(self._count)

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


#: Bytes a voxel that are in use at once while the air outside is looked for, in a larger volume.
BYTES_OUTSIDE = 12


def why_on_host(volume: Volume, settings: PoreSettings, padding: float | None = None) -> str:
    """Say why the void of a volume is found on the host, and not on a GPU; empty where it need not.

    `padding`: grey value of what is filled in, where there is such.

    A mask of the sample would have to cross as well, and a local threshold takes sums in windows,
    which are worked on as slices come.
    """
    if settings.sample_mask:
        return "the host applies the sample mask"
    if padding is not None:
        return "the host finds the masked-out region around the scan"
    if settings.is_local and volume.dtype != np.bool_:
        return f"the host finds the local threshold {settings.threshold}"
    if settings.keeps_void:
        return "the host measures it once more"
    if kind_of(volume) is None:
        return f"values of {np.dtype(held(volume.data).dtype).name} are larger than their void"
    return ""


class GpuParts:
    """The 6-connected parts of a void on a GPU.

    `phase`: (z, y, x), uint8: void is what is `OPEN`. `full`: whether voxels that share an edge or
    a corner are connected too.
    `parts`: int32: for each voxel one of its part that comes before, for the first itself; -1 where
    there is none. `is_marked`: uint8: which parts are marked, at their first voxels.
    """

    def __init__(self, gpu: Gpu, phase: Any, *, full: bool = False) -> None:
        self._gpu = gpu
        self._count = int(phase.size)
        self._size = (np.int32(phase.shape[1]), np.int32(phase.shape[2]))
        where = (np.int64(self._count), *self._size)
        self.parts = gpu.xp.empty(self._count, np.int32)
        gpu.void.launch("link_runs", self._count, phase, self.parts, *where)
        gpu.void.launch("union_parts", self._count, self.parts, np.int32(full), *where)
        self.is_marked = gpu.xp.zeros(self._count, np.uint8)

    def mark_faces(self, *, along_z: tuple[bool, bool], along_y: bool) -> None:
        """Mark what reaches a face along x, one before or after it along z, and those along y."""
        height, width = map(int, self._size)
        plane = height * width
        depth = self._count // plane
        # first voxel, rows and what lies between them, columns and what lies between them
        faces = [(0, depth, plane, height, width), (width - 1, depth, plane, height, width)]
        if along_y:
            faces += [(0, depth, plane, width, 1), (plane - width, depth, plane, width, 1)]
        firsts = (0, self._count - plane)
        faces += [
            (first, height, width, width, 1)
            for first, counts in zip(firsts, along_z, strict=True)
            if counts
        ]
        for first, rows, row_step, columns, column_step in faces:
            self._gpu.void.launch(
                "mark_face", rows * columns, self.parts, self.is_marked, np.int64(first),
                np.int32(rows), np.int64(row_step), np.int32(columns), np.int32(column_step),
            )  # fmt: skip

    def mark_neighbours(self, phase: Any, which: int) -> None:
        """Mark what shares a face with a voxel of one phase."""
        where = (np.int32(which), np.int64(self._count), *self._size)
        self._gpu.void.launch(
            "mark_neighbours", self._count, self.parts, phase, self.is_marked, *where
        )

    def numbered(self) -> tuple[Any, int]:
        """Number the parts from 1, by their first voxels, in place of `parts`.

        Returns: int32, 0 where there is no void; and how many parts there are. Waits for the GPU
        once.
        """
        gpu, count = self._gpu, np.int64(self._count)
        is_first = gpu.xp.zeros(-(-self._count // BITS), np.uint32)
        gpu.basins.launch("point_to_firsts", self._count, self.parts, is_first, count)
        firsts = Flags(gpu, is_first)
        how = (firsts.flags, firsts.counts, np.int64(0), count, np.int32(0))
        gpu.basins.launch("number", self._count, self.parts, *how)
        (number,) = gpu.numbers(firsts.total)
        return self.parts, number

    def measure(self, first: int, last: int) -> tuple[Any, Any]:
        """Count voxels, and find the parts in the slices that begin with two voxels.

        Returns: int32, at the first voxel of each part how many it has; int32, shape (2, y, x), the
        first voxels of the parts there, -1 where there is none.
        """
        xp, where = self._gpu.xp, (np.int64(first), np.int64(last), np.int64(self._count))
        voxels = xp.zeros(self._count, np.int32)
        in_slices = xp.empty((2, *map(int, self._size)), np.int32)
        given = (self.parts, voxels, in_slices, *where, *self._size)
        self._gpu.void.launch("measure_parts", self._count, *given)
        return voxels, in_slices

    def classify(self, phase: Any, marked: int, unmarked: int) -> Any:
        """Write a phase label for marked parts, and one for others.

        Returns: (3,), uint64: how many parts there are, voxels of marked ones, and of others.
        """
        given = (self.parts, self.is_marked, phase), (np.int32(marked), np.int32(unmarked))
        return self._gpu.totals(self._gpu.void, "classify_parts", self._count, 3, *given)


def mark_outside(gpu: Gpu, work: Work, phase: Any) -> None:
    """Mark as `AIR` what `hushpore.pores.void.components.mark_outside` does, in place.

    `phase`: (z, y, x), uint8: of the whole volume, or of some slices where each is one for itself.
    """
    ball = work.ball(phase.shape)
    xp, no_walls, limit = gpu.xp, (False, False, False), np.float32(ball.limit)
    balls = xp.ones(ball.shape, np.uint8)
    balls[ball.inner] = phase != SOLID
    # where the ball fits
    balls[...] = gpu.squared_distance(balls, ball.spacing, no_walls) > limit
    if ball.slicewise:
        # a row of solid between slices, and one below the other they are an image
        balls[:, -1] = 0
    parts = GpuParts(gpu, balls.reshape(1, -1, ball.shape[2]) if ball.slicewise else balls)
    parts.mark_faces(along_z=(False, False), along_y=False)
    parts.classify(balls, 1, 0)
    del parts
    # and where it does not get to
    balls ^= 1
    near = gpu.squared_distance(balls, ball.spacing, no_walls)[ball.inner] <= limit
    gpu.xp.copyto(phase, np.uint8(AIR), where=near & (phase != SOLID))


def bytes_outside(work: Work) -> int:
    """Return how much memory `classify_void` takes at most, beside grey values and void."""
    if not work.has_air:
        return 0
    return BYTES_OUTSIDE * math.prod(work.ball(work.shape).shape)
