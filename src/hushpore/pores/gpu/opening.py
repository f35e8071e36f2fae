"""A GPU for pores: made ready, and into how thin slabs a volume has to be cut to fit there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import DeviceError, first_line
from hushpore.base.events import result_of
from hushpore.base.formatting import readable_bytes
from hushpore.base.rescaled import held
from hushpore.base.volume import Volume
from hushpore.device.memory import POOLED
from hushpore.device.timing import StageTimer
from hushpore.pores.gpu.engine import Gpu
from hushpore.pores.gpu.engines import GpuWhole
from hushpore.pores.gpu.void import BYTES_OUTSIDE, GpuParts, bytes_outside
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
from hushpore.pores.slabs import Scratch, Slabs
from hushpore.pores.void.threshold import AS_IS, Rounding
from hushpore.pores.work import Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hushpore.device.backend import Backend

#: Voxels of a volume that a CPU takes seconds for: with fewer there is nothing to gain by a GPU.
LARGE = 1 << 25

#: Bytes a voxel that are in use on the GPU at once: distance, sums around and pointers 4 each, void
#: 1. The rest is for tables.
BYTES_A_VOXEL = 14

#: Bytes a voxel that each stage reads and writes on the GPU, of integers of a scanner, of 16 bits:
#: each array of each kernel once, without what is read again because it was not kept at hand, and
#: without flags, a bit a voxel.
MOVED = {"threshold": 4, "void": 18, "distance": 21, "basins": 28, "measuring": 18}

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
    GpuParts(gpu, gpu.put((grey > 127).astype(np.uint8))).measure(0, 0)
