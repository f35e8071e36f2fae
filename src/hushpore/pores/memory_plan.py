"""How much memory a segmentation takes, and so in how many slabs a volume is cut."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.base.preferences import memory_limit
from hushpore.device.backend import Backend, cpu_threads
from hushpore.pores.detection import PART
from hushpore.pores.slabs import Slabs, check_disk
from hushpore.pores.void.components import ball_around, outside_bytes
from hushpore.pores.void.threshold import BYTES_IN_WINDOW
from hushpore.pores.work import is_slicewise, spacing_of, window_of

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings

#: Bytes a voxel that are in use at once where all is in memory, besides the input: phase 1,
#: distance 4, basins 4, labels 4, and 1 for what goes with the number of basins.
BYTES_A_VOXEL = 14

#: Bytes a voxel of a slab that are in use at once, besides its grey values, where stacks lie on
#: disk: the same, and 2 for the runs of a noisy void.
BYTES_IN_SLAB = 16

#: Bytes a voxel, of a volume in memory or of a slab, that a local thickness takes: diameters 4, and
#: the balls that make them, of which there are three for each ten voxels.
BYTES_OF_THICKNESS = 12

#: Bytes a voxel that the ways through the void take: the void twice 2, lengths 4, and the queue of
#: the front; phase and distance are given back by then.
BYTES_OF_WAYS = 8

#: Bytes a voxel that transport takes where half of the voxels are void: the void 1, maps of three
#: axes 12, and 8 and half of 20 (`hushpore.pores.transport.diffusion`).
BYTES_OF_TRANSPORT = 31

#: Bytes a voxel that are kept of a segmentation for its intervals, while others are made: phase 1,
#: basins 4, labels 4, pores and sample 2, and 1 for what goes with the number of basins.
BYTES_OF_INTERVALS = 12

#: Bytes a voxel of the part of a scan that balls are put into for the detection limit: grey values
#: and slopes 40, labels 8, distances 16, and a segmentation of it.
BYTES_OF_DETECTION = 64

#: Bytes a voxel of one slice for what is kept beside a slab: slices before and after it, the
#: distance and the exits that are carried on.
BYTES_IN_SLICE = 80

#: Bytes a voxel on disk at once: phase 1, distance 4, basins 4, a slice a slab 4.
BYTES_ON_DISK = 13

#: Bytes a basin for all tables while they are made: in noise it has seven neighbours.
BYTES_A_BASIN = 1500

#: Share of the memory budget for slabs; the rest is for what goes with the number of basins.
SHARE = 0.6

#: Voxels of a slab in memory for each thread, and its least slices: a tenth of a second of work,
#: after which a job shows what it has and can be cancelled.
AT_A_TIME, LEAST_SLICES = 1 << 21, 8

_LITTLE = 5e7  # bytes of tables that are never refused
_MOST = 2**31 - 1  # voxels of a slab, with the slices beside it, that int32 can index


def plan_slabs(volume: Volume, settings: PoreSettings) -> Slabs:
    """Return slabs in memory where all fits into the budget, else slabs that do, on disk.

    `volume`: 2D or 3D; not read. `settings`: with the ``memory_budget`` in GB, or None for the free
    memory.
    Raises MemoryLimitError if the thinnest slabs do not fit, or the temporary files do not fit on
    the disk; InputError if a single slice has too many voxels.
    """
    stacked = (1,) * (3 - volume.n_spatial) + volume.shape
    depth, slice_voxels = stacked[0], math.prod(stacked[1:])
    if settings.memory_budget is None:
        budget = Backend().free_memory()
        whose = "are free" if memory_limit() is None else "are free, or allowed as preferred"
    else:
        budget, whose = int(settings.memory_budget * 1e9), "are allowed (memory_budget)"
    if bytes_in_memory(volume, settings) <= budget and depth * slice_voxels <= _MOST:
        return _even(depth, max(LEAST_SLICES, cpu_threads() * AT_A_TIME // slice_voxels))
    of_whole = {
        "The geodesic tortuosity": ("tortuosity=False", settings.tortuosity),
        "Transport in voxels": ("transport='none'", settings.transport != "none"),
    }
    for what, (without, is_asked) in of_whole.items():
        if is_asked:
            raise MemoryLimitError(
                f"{what} needs {volume.name} in memory in one piece, "
                f"{_gb(bytes_in_memory(volume, settings))} GB, and {_gb(budget)} GB {whose}. Leave "
                f"it out ({without}), crop the volume or bin it."
            )
    if settings.removes_air:
        # the ball needs more room, in which it is alone
        slice_voxels = math.prod(ball_around(stacked, *_ball(volume, settings)).shape[1:])
    if 5 * slice_voxels > _MOST >= 5 * math.prod(stacked[1:]):
        raise InputError(
            f"A ball of radius {settings.ball_radius:g} voxels needs more room around a slice "
            f"of {volume.name} than can be indexed. Set a smaller one (ball_radius), or "
            "have the air count as pore (exterior='keep')."
        )
    if 5 * slice_voxels > _MOST:
        raise InputError(
            f"A slice of {volume.name} has {slice_voxels:,} voxels; up to {_MOST // 5:,} can be "
            "segmented. Crop it, or bin it 2 x 2 x 2."
        )
    # of the grey values one slab is worked on, and the next one read
    a_voxel = BYTES_IN_SLAB + BYTES_OF_THICKNESS * bool(settings.thickness_of)
    a_slice = slice_voxels * (a_voxel + 2 * volume.dtype.itemsize)
    beside = slice_voxels * BYTES_IN_SLICE
    if settings.is_local:
        around = window_of(volume, settings)[0] * volume.dtype.itemsize
        beside += slice_voxels * (around + BYTES_IN_WINDOW * cpu_threads())
    thickness = int((SHARE * budget - beside) / a_slice)
    if thickness < 1:
        least = (a_slice + beside) / SHARE
        raise MemoryLimitError(
            f"Segmenting {volume.name} needs at least {_gb(least)} GB of memory, in the thinnest "
            f"slabs, and {_gb(budget)} GB {whose}. Crop the volume or bin it, or "
            f"{'close other programs' if settings.memory_budget is None else 'allow more'}."
        )
    thickness = min(thickness, depth, _MOST // slice_voxels - 4)
    # diameters of each phase, and once another distance
    more = 4 * (len(settings.thickness_of) + 1) if settings.thickness_of else 0
    check_disk(math.prod(stacked) * (BYTES_ON_DISK + more))
    return _even(depth, thickness, on_disk=True)


def _even(depth: int, most: int, *, on_disk: bool = False) -> Slabs:
    """Return slabs of at most so many slices: as few as can be, and of these the most even ones."""
    count = -(-depth // most)
    return Slabs(depth, -(-depth // count), on_disk)


def check_tables(volume: Volume, settings: PoreSettings, slabs: Slabs, basins: int) -> None:
    """Refuse more basins than there is memory for, once it is known how many there are.

    Raises MemoryLimitError: with what is needed, and what is left.
    """
    if basins * BYTES_A_BASIN <= _LITTLE:
        return
    left = float(Backend().free_memory())
    if settings.memory_budget is not None:
        budget = settings.memory_budget * 1e9
        # beside the tables: slabs, or distance and basins
        others = SHARE * budget if slabs.on_disk else 8.0 * math.prod(volume.shape)
        left = min(left, budget - others)
    if basins * BYTES_A_BASIN > left:
        raise MemoryLimitError(
            f"The void of {volume.name} falls into {basins:,} parts, whose tables need about "
            f"{_gb(basins * BYTES_A_BASIN)} GB of memory, and {_gb(left)} GB are left for them. It "
            "may be noise: denoise the volume first, or crop it, or allow more memory."
        )


def bytes_in_memory(volume: Volume, settings: PoreSettings) -> int:
    """Return the memory that a segmentation takes that has no temporary files, but for tables."""
    count = math.prod(volume.shape)
    in_place = isinstance(volume.data, np.ndarray) and volume.data.flags.c_contiguous
    needed = count * (BYTES_A_VOXEL + BYTES_OF_THICKNESS * len(settings.thickness_of))
    diameters = 4 * len(settings.thickness_of)
    if settings.tortuosity:
        # with basins and labels
        needed = max(needed, count * (8 + diameters + BYTES_OF_WAYS))
    if settings.transport != "none":
        needed = max(needed, count * (8 + diameters + BYTES_OF_TRANSPORT))
    if settings.intervals:
        needed = max(needed, count * (BYTES_OF_INTERVALS + diameters + BYTES_A_VOXEL))
    if settings.detection_limit:
        part = min(count, PART) * (BYTES_OF_DETECTION + BYTES_A_VOXEL)
        needed = max(needed, count * 8 + part)
    if settings.removes_air:
        shape = (1,) * (3 - volume.n_spatial) + volume.shape
        needed = max(needed, outside_bytes(shape, *_ball(volume, settings)))
    return needed + (0 if in_place else count * volume.dtype.itemsize)


def _ball(volume: Volume, settings: PoreSettings) -> tuple[tuple[float, ...], float, bool]:
    """Return spacing, radius and whether slices are taken each for itself."""
    return spacing_of(volume), settings.ball_radius, is_slicewise(volume, settings)


def _gb(count: float) -> str:
    return f"{count / 1e9:.3g}"
