"""The passes of a pore segmentation that a GPU takes over: distance, basins and their graph.

Where the GPU's memory holds the stack, its void goes up once, one byte a voxel, and the basins come
down once, with the tables of their graph; in between nothing crosses. The host waits five times:

1. for the number of basins, which the size of their tables depends on;
2. for whether the table of edges had room for all;
3. for the number of edges, of which only those that there are come down;
4. for all tables, in one piece;
5. for the basins, and once more for the distance where peaks are looked for in it.

Where it does not, the stack is worked on in slabs that it holds, in the passes of the CPU: only
what is done to a slab is done on the GPU.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import DeviceError
from hushpore.base.volume import readable_bytes
from hushpore.pores.gpu_slabs import GpuSlabs
from hushpore.pores.on_gpu import Gpu
from hushpore.pores.passes import (
    climb,
    find_distance,
    highest_void,
    measure_basins,
    solid_beyond,
)
from hushpore.pores.slabs import Slabs
from hushpore.pores.void import AIR, OPEN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeVar

    import numpy.typing as npt

    from hushpore.device.backend import Backend
    from hushpore.device.timing import StageTimer
    from hushpore.pores.graph import BasinGraph
    from hushpore.pores.passes import Pass, Work
    from hushpore.pores.slabs import Stack

    T = TypeVar("T")

#: Bytes a voxel that are in use on the GPU at once: distance, pointers, ranks and basins 4 each,
#: void and summits 1 each; before that distance, sums and keys 16 together. The rest is for tables.
BYTES_A_VOXEL = 20

_MOST = 2**31 - 1  # voxels of a slab, with the slices beside it, that int32 can index
_BESIDE = 4  # slices beside a slab


def open_gpu(backend: Backend, work: Work) -> tuple[Gpu, list[Slabs]]:
    """Return the GPU of a backend, and in what slabs to try it: each half as thick as the last.

    Raises
    ------
    DeviceError
        If it cannot be used; says why.
    """
    gpu = Gpu.of(backend)
    slabs = list(_slabs(work, backend.free_memory()))
    if not slabs:
        needed = (1 + _BESIDE) * math.prod(work.shape[1:]) * BYTES_A_VOXEL
        raise DeviceError(
            f"the thinnest slab needs {readable_bytes(needed)} of the GPU's memory, where "
            f"{readable_bytes(backend.free_memory())} are free"
        )
    return gpu, slabs


def _slabs(work: Work, free: int) -> Iterator[Slabs]:
    depth, plane = work.shape[0], math.prod(work.shape[1:])
    slices = min(free // (plane * BYTES_A_VOXEL), _MOST // plane)
    thickness = depth if slices >= depth and not work.slabs.on_disk else slices - _BESIDE
    # what the host holds of a slab is planned for
    most = work.slabs.thickness if work.slabs.on_disk else depth
    thickness = min(thickness, most)
    while thickness >= 1:
        yield Slabs(depth, thickness, work.slabs.on_disk)
        thickness //= 2


def in_one_piece(work: Work, slabs: Slabs) -> bool:
    """Whether the GPU holds the whole stack."""
    return len(slabs) == 1 and not work.slabs.on_disk


def find_graph(
    gpu: Gpu, work: Work, slabs: Slabs, codes: Stack, timer: StageTimer
) -> Pass[tuple[Stack, BasinGraph, Stack]]:
    """Find the basins and their graph.

    Parameters
    ----------
    gpu : Gpu
        Where to.
    work : Work
        What to.
    slabs : Slabs
        In what pieces, one of `open_gpu`.
    codes : Stack
        The void.
    timer : StageTimer
        Times the stages.

    Returns
    -------
    basins, graph, distance
        As `hushpore.pores.passes.climb`, `measure_basins` and `find_distance` have them.
    """
    if in_one_piece(work, slabs):
        return (yield from _in_one_piece(gpu, work, codes, timer))
    return (yield from _in_slabs(gpu, dataclasses.replace(work, slabs=slabs), codes, timer))


def _in_slabs(
    gpu: Gpu, work: Work, codes: Stack, timer: StageTimer
) -> Pass[tuple[Stack, BasinGraph, Stack]]:
    slabs = GpuSlabs(gpu, timer)
    finding = find_distance(work, codes, slabs)
    distance = yield from _timed(timer, "distance", finding, 0.0, 0.4)
    climbing = climb(work, codes, distance, slabs)
    climbed = yield from _timed(timer, "basins", climbing, 0.4, 0.7)
    measuring = measure_basins(work, climbed, distance, slabs)
    graph = yield from _timed(timer, "measuring", measuring, 0.7, 1.0)
    return climbed.stack, graph, distance


def _timed(timer: StageTimer, stage: str, work: Pass[T], begin: float, end: float) -> Pass[T]:
    """Time every step of a pass, and let its shares run from one to another."""
    while True:
        try:
            with timer.stage(stage):
                share = next(work)
        except StopIteration as over:
            result: T = over.value
            return result
        yield begin + (end - begin) * share


def _in_one_piece(
    gpu: Gpu, work: Work, codes: Stack, timer: StageTimer
) -> Pass[tuple[Stack, BasinGraph, Stack]]:
    voxels = math.prod(work.shape)
    void = codes.array()
    with timer.stage("upload", nbytes=void.nbytes):
        there = gpu.put(void)
    with timer.stage("distance", voxels=voxels):
        distance = gpu.squared_distance(there, work.spacing, solid_beyond(work), highest_void(work))
        if work.has_air:
            distance[there == AIR] = 0
        del there
    yield 0.3
    with timer.stage("basins", voxels=voxels, syncs=1):
        climbed = gpu.climb(distance, faces_only=work.faces_only)
    yield 0.6

    def is_open_at(places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.asarray(void.reshape(-1)[places] == OPEN)

    with timer.stage("measuring", voxels=voxels, syncs=3):
        graph = gpu.build_graph(climbed, distance, is_open_at, faces_only=work.faces_only)
    yield 0.9
    found = work.scratch.stack("basins", work.shape, np.int32)
    heights = work.scratch.stack("distance", work.shape, np.float32)
    with timer.stage("download", nbytes=4 * voxels, syncs=1):
        gpu.get(climbed.basins, found.array())
        if work.settings.merging == "snow":
            gpu.get(distance, heights.array())
    return found, graph, heights
