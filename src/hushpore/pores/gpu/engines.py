"""The engines of a GPU: one for slabs of host stacks, one that holds whole stacks.

A GPU for pores: made ready, and into how thin slabs a volume has to be cut to fit there.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import DeviceError, first_line
from hushpore.base.events import result_of
from hushpore.base.formatting import readable_bytes
from hushpore.base.rescaled import held
from hushpore.base.volume import Volume
from hushpore.device.memory import POOLED
from hushpore.device.timing import StageTimer
from hushpore.pores.engine import Engine, VoidCounts
from hushpore.pores.geometry.contacts import N_DIRECTIONS, Edges, span
from hushpore.pores.gpu.engine import Gpu, GpuWatershed, Scan
from hushpore.pores.gpu.void import BYTES_OUTSIDE, GpuGrey, GpuParts, bytes_outside, mark_outside
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slab_steps import (
    classify_void,
    find_air,
    find_basins,
    find_distance,
    find_grey_value,
    find_void,
    measure_basins,
)
from hushpore.pores.slabs import DeviceStack, Scratch, Slabs
from hushpore.pores.void.components import AIR, SOLID
from hushpore.pores.void.threshold import AS_IS, Rounding, narrowed
from hushpore.pores.watershed.basins import SlabWatershed, require_numbers
from hushpore.pores.watershed.graph import Tables
from hushpore.pores.work import Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float32s, Int32s, Int64s, UInt8s
    from hushpore.device.backend import Backend
    from hushpore.pores.engine import Pass
    from hushpore.pores.geometry.contacts import Piece
    from hushpore.pores.slabs import Stack
    from hushpore.pores.void.threshold import Range
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.scan.histogram import Histogram


class GpuSlabs(Engine):
    """Distances, basins and their measures on a GPU, all else on the CPU.

    `timer`: times the copies.
    """

    def __init__(self, gpu: Gpu, threads: KernelThreads, timer: StageTimer) -> None:
        super().__init__(threads)
        self._gpu = gpu
        self._timer = timer

    def fill_distance(
        self,
        phase: UInt8s,
        room: Float32s,
        before: Float32s | None,
        after: Float32s | None,
        spacing: Sequence[float],
        solid_outside: Sequence[bool],
        highest: int = 1,
        within: float = np.inf,
    ) -> Float32s:
        """Do as `Engine.fill_distance`, without `within`."""
        edge = np.float32(0.0 if solid_outside[0] else np.inf)
        planes = [each for each in (before, after) if each is not None]
        on_gpu, *crossed = self._put(phase, *planes)
        nothing = self._gpu.xp.full(phase.shape[1:], edge, np.float32)
        carried = tuple(nothing if each is None else crossed.pop(0) for each in (before, after))
        how = spacing, solid_outside, highest, carried
        self._get(self._gpu.squared_distance(on_gpu, *how), room)
        return room

    def watershed_slab(
        self,
        distance: Float32s,
        pointers: Int32s,
        first: int,
        last: int,
        count: int = 0,
        *,
        faces_only: bool = False,
        further: None = None,
    ) -> SlabWatershed:
        """Do as `Engine.watershed_slab`, without `further`, which raises `InputError` too."""
        (heights,) = self._put(distance)
        found = self._gpu.watershed(heights, first, last, count, faces_only=faces_only)
        require_numbers(count + int(found.peaks.size))
        self._get(found.basins, pointers[first:last])
        peaks, is_exit = self._gpu.get_all([found.peaks, found.is_exit])
        plane = math.prod(distance.shape[1:])
        flags = np.unpackbits(is_exit.view(np.uint8), bitorder="little")
        back, ahead = (np.flatnonzero(flags[part:][:plane]) for part in (0, plane))
        return SlabWatershed(peaks, back, ahead, pointers[first:last])

    def tables(self, shape: Sequence[int], peaks: Int64s, *, faces_only: bool = False) -> Tables:
        """Return tables that this GPU fills."""
        return Tables(shape, peaks, faces_only=faces_only, scan=self.scan_slices)

    def scan_slices(
        self,
        basins: Int32s,
        distance: Float32s,
        grey: Int32s | None,
        shape: tuple[int, int, int],
        faces_only: bool,
        offset: int,
        own: int,
    ) -> Piece:
        """Do as `hushpore.pores.geometry.contacts.scan_rows` of the `own` first slices."""
        low, high = span(basins.reshape(-1, basins.shape[2]), 0, own * basins.shape[1])
        labels, heights, *values = self._put(basins, distance, *([] if grey is None else [grey]))
        where = (shape, (low, high), offset, own)
        found = self._gpu.scan(labels, heights, *where, *values, faces_only=faces_only)
        scan = Scan(*self._gpu.get_all(found))
        edges = Edges(
            np.zeros(0, np.int32),
            scan.keys.view(np.int64),
            scan.saddle.view(np.float32),
            scan.place,
            scan.contacts,
        )
        sums, crossings, border_crossings = (
            each.view(np.int64) for each in (scan.sums, scan.crossings, scan.border_crossings)
        )
        return low, sums, scan.bounds, crossings, border_crossings, edges

    def _put(self, *arrays: Array) -> list[Any]:
        with self._timer.stage("upload", nbytes=sum(values.nbytes for values in arrays)):
            return [self._gpu.put(values) for values in arrays]

    def _get(self, values: Any, out: Array) -> None:
        with self._timer.stage("download", nbytes=out.nbytes, syncs=1):
            self._gpu.get(values, out)


_NO_EXITS = np.zeros(0, np.int64)

#: Voxels that are fetched at a time beside other work, enough for copies through pinned memory even
#: of a byte each; and the largest number of 16 bits.
_FETCHED, _SHORT = 1 << 26, (1 << 16) - 1


class GpuWhole(Engine):
    """A GPU that holds all stacks of a job, as one slab.

    Grey values are uploaded once, as the scanner wrote them. The tables of the graph of basins are
    downloaded once, and then the basins, while the host merges and measures; in between nothing is
    copied. The host waits four times: for the histogram, the number of basins, the number of
    contacts, and all tables in one piece; once more for the distance if it is needed later.

    `timer`: times the copies, and counts the waits of the host.
    """

    holds_all = True

    def __init__(self, gpu: Gpu, threads: KernelThreads, timer: StageTimer) -> None:
        super().__init__(threads)
        self._gpu, self._timer = gpu, timer

    def stack(
        self, scratch: Scratch, name: str, shape: Sequence[int], dtype: npt.DTypeLike
    ) -> Stack:
        """Return a stack that holds what is written to it, on the GPU."""
        return DeviceStack(shape, dtype)

    def take(self, stack: Stack) -> Stack:
        """Send a stack up."""
        taken = DeviceStack(stack.shape, stack.dtype)
        taken.write(0, self._put(stack.array()))
        return taken

    def bring(self, scratch: Scratch, name: str, stack: Stack, highest: int | None = None) -> Stack:
        """Fetch a stack and wait for it; with `highest` beside other work, in the smallest type."""
        brought = scratch.stack(name, stack.shape, stack.dtype)
        values, room = stack.read(0, len(stack)), brought.array()
        if highest is None:
            with self._timer.stage("download", nbytes=brought.nbytes, syncs=1):
                self._gpu.get(values, room)
            return brought
        if highest <= _SHORT:
            values = values.astype(np.min_scalar_type(highest))
        slabs = Slabs(len(stack), max(1, _FETCHED // math.prod(stack.shape[1:])))
        # first the middle, which viewers open
        order = sorted(range(len(slabs)), key=lambda slab: slab != len(slabs) // 2)
        with self._timer.stage("download", nbytes=values.nbytes):
            copies = self._gpu.fetch(values, room, [slabs[slab] for slab in order])
        brought.arrive(slabs, dict(zip(order, copies, strict=True)))
        return brought

    def relabelled(self, basins: Any, label_of: Int32s) -> Any:
        """Return the labels of basins, on the GPU."""
        return self._gpu.put(label_of)[basins]

    def grey(self, volume: Volume, slabs: Slabs, timer: StageTimer | None) -> _Values:
        """Copy the grey values to the GPU."""
        with self._timer.stage("upload", nbytes=volume.nbytes):
            return _Values(self._gpu, volume)

    def survey(
        self, values: GpuGrey, with_histogram: bool, padding: float | None
    ) -> Pass[tuple[Range, Histogram | None]]:
        """Find the range of all values, and their histogram; waits for the GPU once."""
        with self._timer.stage("threshold", syncs=1):
            found, histogram = values.survey(with_histogram=with_histogram)
        yield 1.0
        if histogram is None:
            return found, None

        def count(among: Range) -> Pass[Histogram]:
            yield 1.0
            return values.histogram(among)

        return (yield from narrowed(found, histogram, values.dtype, count))

    def rounded(self, values: GpuGrey, low: float, high: float) -> Any:
        """Return the grey values rounded for exact sums, made when they are read."""
        return _Rounded(values, Rounding.of(values.dtype, low, high))

    def void(self, values: GpuGrey, threshold: float | None, bright: bool, room: Any) -> Any:
        """Return 1 where values are beyond a threshold, else 0, uint8."""
        return values.beyond(threshold, bright=bright)

    def parts(self, faces: tuple[bool, bool, bool], slabs: Slabs) -> Any:
        """Return what finds the parts of the void."""
        return _Parts(self._gpu, faces)

    def is_all_void(self, phase: Stack, slabs: Slabs) -> bool:
        """Return whether there is no solid; waits for the GPU."""
        is_solid = (phase.read(0, len(phase)) == SOLID).any()
        with self._timer.stage("void", syncs=1):
            (some,) = self._gpu.numbers(is_solid.astype(np.int32).reshape(1))
        return not some

    def mark_outside(self, work: Work, phase: Stack) -> None:
        """Mark the air around the sample."""
        mark_outside(self._gpu, work, phase.read(0, len(phase)))

    def count_air(self, lines: Any) -> Any:
        """Count the air in each of some slices (rows, in 2D)."""
        return (lines.reshape(len(lines), -1) == AIR).sum(axis=1, dtype=np.int64)

    def air_crossings(self, phase: Any) -> Any:
        """Count the neighbours of which one is void and one is air, by direction."""
        size = tuple(np.int32(length) for length in phase.shape[1:])
        given = (phase,), (np.int32(AIR), *size)
        name = "count_air_crossings"
        return self._gpu.totals(self._gpu.graph, name, phase.size, N_DIRECTIONS, *given)

    def fill_distance(
        self,
        phase: Any,
        room: Any,
        before: Any,
        after: Any,
        spacing: Sequence[float],
        solid_outside: Sequence[bool],
        highest: int = 1,
        within: float = np.inf,
    ) -> Any:
        """Return the squared distance."""
        return self._gpu.squared_distance(phase, spacing, solid_outside, highest)

    def clear_air(self, distance: Any, phase: Any) -> None:
        """Set the distance to 0 where there is air, in place."""
        self._gpu.xp.copyto(distance, np.float32(0), where=phase >= AIR)

    def watershed_slab(
        self,
        distance: Any,
        pointers: Any,
        first: int,
        last: int,
        count: int = 0,
        *,
        faces_only: bool = False,
        further: Any = None,
    ) -> SlabWatershed:
        """Find the basins; waits for the GPU once."""
        with self._timer.stage("basins", syncs=1):
            found = self._gpu.watershed(distance, faces_only=faces_only, further=further)
        return SlabWatershed(found.peaks, _NO_EXITS, _NO_EXITS, found.basins)

    def tables(self, shape: Sequence[int], peaks: Any, *, faces_only: bool = False) -> _Tables:
        """Return the tables from which the graph of basins is made."""
        return _Tables(self, peaks, faces_only)

    def graph(
        self, tables: _Tables, counts: VoidCounts, rounding: Rounding
    ) -> tuple[BasinGraph, VoidCounts]:
        """Measure basins, and fetch their graph with what was counted; waits for the GPU twice."""
        watershed = GpuWatershed(tables.basins, tables.peaks, None)
        how = {"faces_only": tables.faces_only}
        is_there = [type(each) not in (int, np.ndarray) for each in counts]
        there = [each for each, own in zip(counts, is_there, strict=True) if own]
        with self._timer.stage("measuring", syncs=2):
            graph, found = self._gpu.build_graph(
                watershed, tables.distance, tables.phase, there, tables.grey, **how
            )
        whole = zip(counts, is_there, strict=True)
        counts = VoidCounts(*(found.pop(0).view(np.int64) if own else each for each, own in whole))
        crossings = graph.border_crossings + counts.air_crossings
        return dataclasses.replace(graph, rounding=rounding, border_crossings=crossings), counts

    def _put(self, values: Any) -> Any:
        """Send an array up, if it is of the host."""
        if type(values) is not np.ndarray:
            return values
        with self._timer.stage("upload", nbytes=values.nbytes):
            return self._gpu.put(values)


class _Values(GpuGrey):
    """Grey values of a stack that is one slab."""

    def in_slabs(self, around: object) -> Iterator[GpuGrey]:
        """Yield those of each slab."""
        yield self


class _Rounded(NamedTuple):
    """Grey values as whole numbers, as they are read; see `RoundedGrey`."""

    values: GpuGrey
    rounding: Rounding

    def read(self, first: int, last: int, threads: KernelThreads) -> Any:
        """Return all of them."""
        return self.values.rounded(self.rounding)


class _Parts:
    """The parts of a void on the GPU; as those of `Engine.parts`."""

    def __init__(self, gpu: Gpu, faces: tuple[bool, bool, bool]) -> None:
        self._gpu, self._faces = gpu, faces

    def add_holding(self, phase: Any, values: GpuGrey, limit: float, bright: bool) -> None:
        """Find them, and mark those that hold a value beyond a limit."""
        self._found = GpuParts(self._gpu, phase)
        marks = self._found.parts, self._found.is_marked
        values.mark_beyond(limit, *marks, bright=bright)

    def add(self, phase: Any, around: Any = None, begin: int = 0) -> None:
        """Find them, and mark those that reach a face or, where `around` is given, air."""
        self._found = GpuParts(self._gpu, phase)
        self._found.mark_faces(along_z=(self._faces[0],) * 2, along_y=True)
        if around is not None:
            self._found.mark_neighbours(phase, AIR)

    def classify(self, phase: Stack, marked: int, unmarked: int) -> Pass[Any]:
        """Write a phase label for marked parts, and one for others; returns the totals."""
        totals = self._found.classify(phase.read(0, len(phase)), marked, unmarked)
        del self._found
        yield 1.0
        return totals


class _Tables:
    """What the graph of basins is made of, once it is known that there is room for it."""

    def __init__(self, engine: GpuWhole, peaks: Any, faces_only: bool) -> None:
        self._engine, self.peaks, self.faces_only = engine, peaks, faces_only
        self.phase: Any = None

    def add(
        self,
        basins: Any,
        distance: Any,
        threads: KernelThreads,
        first: int,
        last: int,
        grey: Any = None,
    ) -> None:
        """Take basins, their distances and grey values, where there are sums of these."""
        self.basins, self.distance = basins, distance
        self.grey = None if grey is None else self._engine._put(grey)

    def add_closed(self, basins: Any, phase: Any, threads: KernelThreads) -> None:
        """Take the phases, which say what void is closed."""
        self.phase = phase


#: Voxels of a volume that a CPU takes seconds for: with fewer there is nothing to gain by a GPU.
LARGE = 1 << 25

#: Bytes a voxel in use on the GPU at once: distance, basins and rounded grey values 4 each,
#: void 1, basins in the type in which they are fetched 2.
BYTES_A_VOXEL = 15

#: Bytes a voxel that each stage reads and writes on the GPU, of integers of a scanner, of 16 bits:
#: each array of each kernel once, without what is read again because it was not kept at hand, and
#: without flags, a bit a voxel.
MOVED = {"threshold": 4, "void": 18, "distance": 21, "basins": 16, "measuring": 18}

#: Slices of which 16 bits tell how far the nearest solid is along z, with what is added around.
DEEPEST = 60_000

_MOST = 2**31 - 1  # voxels of a slab, with the slices beside it, that int32 can index
_BESIDE = 4  # slices beside a slab
_WARMED_UP: set[str] = set()  # devices whose kernels are compiled and loaded


def open_gpu(backend: Backend, work: Work) -> tuple[Gpu, list[Slabs]]:
    """Return the GPU of a backend, and in what slabs to try it: each half as thick as the last.

    Raises DeviceError if it cannot be used; says why.
    """
    depth = work.shape[0]
    if depth > DEEPEST:
        raise DeviceError(f"it works on {DEEPEST:,} slices at most, and there are {depth:,}")
    try:
        gpu = Gpu.of(backend)
        if backend.device not in _WARMED_UP:
            _warm_up(gpu)
            _WARMED_UP.add(backend.device)
    except DeviceError:
        raise
    except Exception as error:
        # CuPy, NVRTC and the driver have exceptions of their own
        problem = f"its kernels could not be compiled and run: {first_line(error)}"
        raise DeviceError(problem) from error
    room = room_on(backend)
    slabs = list(_slabs(work, room))
    if not slabs:
        needed = (1 + _BESIDE) * math.prod(work.shape[1:]) * BYTES_A_VOXEL
        raise DeviceError(
            f"the thinnest slab needs {readable_bytes(needed)} of the GPU's memory, where "
            f"{readable_bytes(room)} may be taken"
        )
    return gpu, slabs


def room_on(backend: Backend) -> int:
    """Return how many bytes may be taken on a GPU: as many as the pools are bounded to."""
    return int(POOLED * backend.free_memory())


def problem_of_shape(shape: Sequence[int]) -> str:
    """Return why a volume of this shape is not segmented on a GPU by default; empty if it is."""
    voxels = math.prod(shape)
    if len(shape) < 3 or voxels < LARGE:
        return f"{voxels / 1e6:.3g} million voxels are too few to gain by a GPU"
    return ""


def fitting_slices(free: int, plane: int) -> int:
    """Return the number of slices of a slab that fit into GPU memory, beside those around them.

    `free`: bytes. `plane`: voxels per slice.
    """
    return min(free // (plane * BYTES_A_VOXEL), _MOST // plane) - _BESIDE


def _slabs(work: Work, free: int) -> Iterator[Slabs]:
    depth, plane = work.shape[0], math.prod(work.shape[1:])
    fitting = fitting_slices(free, plane)
    is_whole = fitting + _BESIDE >= depth and not work.slabs.on_disk
    thickness = depth if is_whole else fitting
    # what the host holds of a slab is planned for
    most = work.slabs.thickness if work.slabs.on_disk else depth
    thickness = min(thickness, most)
    while thickness >= 1:
        yield Slabs(depth, thickness, work.slabs.on_disk)
        thickness //= 2


def in_one_piece(work: Work, slabs: Slabs) -> bool:
    """Whether the GPU holds the whole stack."""
    return len(slabs) == 1 and not work.slabs.on_disk


def holds_values(work: Work, slabs: Slabs, free: int) -> bool:
    """Whether the GPU holds the whole stack, and its grey values besides.

    `free`: bytes that may be taken.
    """
    itemsize = np.dtype(held(work.volume.data).dtype).itemsize
    outside = bytes_outside(work)
    needed = math.prod(work.shape) * (BYTES_A_VOXEL + itemsize)
    needed = max(needed, outside + math.prod(work.shape) * (1 + itemsize))
    return in_one_piece(work, slabs) and needed <= free and outside <= BYTES_OUTSIDE * _MOST


def _warm_up(gpu: Gpu) -> None:
    """Do all that is done to a volume to tiny ones: CuPy compiles on first use."""
    grey = np.random.default_rng(0).integers(0, 256, (4, 6, 70))
    ways = [
        (Volume(grey.astype(np.uint16)), PoreSettings(exterior="remove", ball_radius=1)),
        (
            Volume(grey.astype(np.float32)),
            PoreSettings(threshold="otsu", hysteresis=20.0, connectivity="faces"),
        ),
    ]
    whole, timer = Slabs(len(grey), len(grey)), StageTimer()
    for volume, settings in ways:
        with KernelThreads(1) as threads:
            engine, scratch = GpuWhole(gpu, threads, timer), Scratch(on_disk=False)
            work = Work(volume, settings, whole, scratch, threads, engine=engine)
            found = result_of(find_grey_value(work))
            found.values.rounded(Rounding.of(found.values.dtype, 0, 255))
            phase = result_of(find_void(work, found))
            counts = result_of(classify_void(work, phase, result_of(find_air(work, phase))))
            distance = result_of(find_distance(work, phase))
            basins = result_of(find_basins(work, distance))
            how = work, basins, phase, distance, found.rounded
            engine.graph(result_of(measure_basins(*how)), counts, AS_IS)
            engine.bring(scratch, "basins", basins.stack)
    # and to a slab with slices beside it
    gpu.watershed(gpu.put(grey.astype(np.float32)), 1, 3)
    gpu.watershed(gpu.put(grey.astype(np.float32)), further=gpu.put(np.zeros(1, np.int64)))
    parts = GpuParts(gpu, gpu.put((grey > 127).astype(np.uint8)))
    parts.measure(0, 0)
    parts.numbered()
