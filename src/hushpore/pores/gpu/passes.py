"""The passes of a pore segmentation that a GPU takes over: void, distance, basins and their graph.

Where the GPU's memory holds the stack, its grey values go up once, as the scanner wrote them, or
are there already, left by the job before (`hushpore.device.resident`), and the basins come down
once, with the tables of their graph; in between nothing crosses. The host waits five times:

1. for the range of the grey values and their histogram, which give the threshold;
2. for the number of basins, which the size of their tables depends on;
3. for the number of edges, and whether the table of these had room for all;
4. for all tables, in one piece;
5. for the basins; once more for the distance where peaks are looked for in it.

Where the void is found on the host (`hushpore.pores.gpu.void.why_on_host`), it goes up instead, one
byte a voxel, and the first wait falls away.

Where the GPU does not hold the stack it is worked on in slabs that it holds, in the passes of the
CPU: only what is done to a slab is done on the GPU.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import DeviceError, first_line
from hushpore.base.events import result_of
from hushpore.base.readable import readable_bytes
from hushpore.base.scaled import held
from hushpore.base.volume import Volume
from hushpore.device.memory import POOLED
from hushpore.device.timing import StageTimer
from hushpore.pores.geometry.sums import grey_power
from hushpore.pores.gpu.engine import Gpu
from hushpore.pores.gpu.grey import GpuGrey
from hushpore.pores.gpu.void import (
    BYTES_OUTSIDE,
    GpuParts,
    bytes_outside,
    classify_void,
    find_void,
)
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.passes import (
    Threshold,
    VoidPhases,
    Work,
    highest_void,
    solid_beyond,
    void_phases_of,
)
from hushpore.pores.plan import check_tables
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slabs import Scratch, Slabs
from hushpore.pores.void.parts import AIR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt
    import torch

    from hushpore.device.backend import Backend
    from hushpore.pores.passes import Pass
    from hushpore.pores.slabs import Stack
    from hushpore.pores.void.grey import RoundedGrey
    from hushpore.pores.watershed.graph import BasinGraph

#: Bytes a voxel that are in use on the GPU at once: distance, sums around and pointers 4 each, void
#: 1. The rest is for tables.
BYTES_A_VOXEL = 14

#: And where slabs cross beside the computing: the next has its distance there already, and the one
#: before its basins still.
BYTES_IN_SLABS = BYTES_A_VOXEL + 8

#: Bytes a voxel that each stage reads and writes on the GPU, of integers of a scanner, of 16 bits:
#: each array of each kernel once, without what is read again because it was not kept at hand, and
#: without flags, a bit a voxel.
MOVED = {"threshold": 4, "void": 18, "distance": 21, "basins": 28, "measuring": 12}

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
        needed = (1 + _BESIDE) * math.prod(work.shape[1:]) * _bytes_in_slabs(work)
        raise DeviceError(
            f"the thinnest slab needs {readable_bytes(needed)} of the GPU's memory, where "
            f"{readable_bytes(room)} may be taken"
        )
    return gpu, slabs


def room_on(backend: Backend) -> int:
    """Return how many bytes may be taken on a GPU: as many as the pools are bounded to."""
    return int(POOLED * backend.free_memory())


def fitting_slices(free: int, plane: int, a_voxel: int = BYTES_A_VOXEL) -> int:
    """Return how many slices of a slab fit into the memory of a GPU, beside those around them.

    `free`: bytes. `plane`: voxels of a slice. `a_voxel`: bytes that it takes.
    """
    return min(free // (plane * a_voxel), _MOST // plane) - _BESIDE


def _bytes_in_slabs(work: Work) -> int:
    is_off = work.choices is not None and work.choices.asked("stream") is False
    return BYTES_A_VOXEL if is_off else BYTES_IN_SLABS


def _slabs(work: Work, free: int) -> Iterator[Slabs]:
    depth, plane = work.shape[0], math.prod(work.shape[1:])
    is_whole = fitting_slices(free, plane) + _BESIDE >= depth and not work.slabs.on_disk
    thickness = depth if is_whole else fitting_slices(free, plane, _bytes_in_slabs(work))
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

    `free`: bytes that may be taken, with those of grey values that are there already.
    """
    itemsize = np.dtype(held(work.volume.data).dtype).itemsize
    outside = bytes_outside(work)
    needed = math.prod(work.shape) * (BYTES_A_VOXEL + itemsize)
    needed = max(needed, outside + math.prod(work.shape) * (1 + itemsize))
    return in_one_piece(work, slabs) and needed <= free and outside <= BYTES_OUTSIDE * _MOST


class FoundBasins(NamedTuple):
    """What was found in a void that the GPU holds."""

    basins: Stack
    graph: BasinGraph
    distance: Stack | None  # where peaks are looked for in it


class FromValues(NamedTuple):
    """What was found on a GPU in grey values."""

    basins: FoundBasins
    void_phases: VoidPhases
    threshold: Threshold


def find_from_values(
    gpu: Gpu, work: Work, timer: StageTimer, resident: torch.Tensor | None = None
) -> Pass[FromValues]:
    """Find all from grey values in memory, of a stack that the GPU holds (`holds_values`).

    `resident`: the grey values, where they are on the GPU already.
    """
    voxels = math.prod(work.shape)
    if resident is None:
        with timer.stage("upload", nbytes=work.volume.nbytes):
            grey = GpuGrey(gpu, work.volume)
    else:
        grey = GpuGrey(gpu, work.volume, resident)
        del resident
    with timer.stage("threshold", voxels=voxels, syncs=1):
        threshold = grey.threshold(work.settings)
    yield 0.1
    with timer.stage("void", voxels=voxels):
        phase = find_void(gpu, grey, work, threshold.value)
        rounded = grey.rounded if grey_power() else None
        del grey
    yield 0.15
    with timer.stage("void", syncs=int(work.has_air)):
        phase, *about = classify_void(gpu, work, phase)
    yield 0.2
    found, others = yield from _find_whole(gpu, work, phase, about, timer, rounded)
    components, opened, closed = others[0].tolist()
    void_phases = void_phases_of(
        work, (opened, closed, components), others[1].view(np.int64), others[2]
    )
    return FromValues(_with_air(found, void_phases.air_crossings), void_phases, threshold)


def find_from_void(
    gpu: Gpu,
    work: Work,
    phase: Stack,
    grey: RoundedGrey | None,
    air_crossings: npt.NDArray[np.int64] | int,
    timer: StageTimer,
) -> Pass[FoundBasins]:
    """Find the basins and their graph in a void that was found on the host, in one piece.

    `phase`: the void. `grey`: where there are sums of grey values.
    """
    with timer.stage("upload", nbytes=phase.nbytes):
        on_gpu = gpu.put(phase.array())

    def rounded() -> tuple[Any, float]:
        assert grey is not None, "there are sums of them"
        values = grey.read(0, work.slabs.depth)
        with timer.stage("upload", nbytes=values.nbytes):
            return gpu.put(values), grey.step

    found, _ = yield from _find_whole(gpu, work, on_gpu, [], timer, rounded if grey else None)
    return _with_air(found, air_crossings)


def _with_air(found: FoundBasins, air_crossings: npt.NDArray[np.int64] | int) -> FoundBasins:
    """Return basins whose graph has the crossings to the air outside, which is no surface."""
    crossings = found.graph.border_crossings + air_crossings
    return found._replace(graph=dataclasses.replace(found.graph, border_crossings=crossings))


def _find_whole(
    gpu: Gpu,
    work: Work,
    phase: Any,
    more: list[Any],
    timer: StageTimer,
    rounded: Callable[[], tuple[Any, float]] | None,
) -> Pass[tuple[FoundBasins, list[npt.NDArray[Any]]]]:
    """Find all in a void on the GPU; small arrays that lie there come down with the tables.

    Where there are sums of grey values, these are made at last, when there is room for them.
    """
    voxels = math.prod(work.shape)
    with timer.stage("distance", voxels=voxels):
        distance = gpu.squared_distance(phase, work.spacing, solid_beyond(work), highest_void(work))
        if work.has_air:
            gpu.xp.copyto(distance, np.float32(0), where=phase >= AIR)
    yield 0.4
    with timer.stage("basins", voxels=voxels, syncs=1):
        watershed = gpu.watershed(distance, faces_only=work.faces_only)
    check_tables(work.volume, work.settings, work.slabs, int(watershed.peaks.size))
    yield 0.6
    with timer.stage("measuring", voxels=voxels, syncs=2):
        grey, step = rounded() if rounded else (None, 1.0)
        how = {"faces_only": work.faces_only}
        graph, others = gpu.build_graph(watershed, distance, phase, more, grey, **how)
        graph = dataclasses.replace(graph, grey_step=step)
    del phase, grey, rounded
    yield 0.9
    basins = work.scratch.stack("basins", work.shape, np.int32)
    heights = None
    with timer.stage("download", nbytes=4 * voxels, syncs=1):
        gpu.get(watershed.basins, basins.array())
        if work.settings.by_snow:
            heights = work.scratch.stack("distance", work.shape, np.float32)
            gpu.get(distance, heights.array())
    return FoundBasins(basins, graph, heights), others


def _warm_up(gpu: Gpu) -> None:
    """Do all that is done to a volume to tiny ones: CuPy compiles on first use."""
    grey = np.random.default_rng(0).integers(0, 256, (4, 6, 70))
    ways = [
        (Volume(grey.astype(np.uint16)), PoreSettings(outside="remove", outside_radius=1)),
        (Volume(grey.astype(np.float32)), PoreSettings(hysteresis=20.0, connectivity="faces")),
    ]
    whole, timer = Slabs(len(grey), len(grey)), StageTimer()
    for volume, settings in ways:
        with KernelThreads(1) as threads:
            work = Work(volume, settings, whole, Scratch(on_disk=False), threads)
            values = GpuGrey(gpu, volume)
            values.threshold(settings)
            values.rounded()
            result_of(find_from_values(gpu, work, timer))
    # and to a slab with slices beside it
    gpu.watershed(gpu.put(grey.astype(np.float32)), 1, 3)
    GpuParts(gpu, gpu.put((grey > 127).astype(np.uint8))).measure(0, 0)
