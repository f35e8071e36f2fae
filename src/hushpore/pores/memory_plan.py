"""Memory plan of a segmentation: the number of slabs into which a volume is cut."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.base.preferences import memory_limit
from hushpore.device.backend import Backend, cpu_threads
from hushpore.pores.slabs import Slabs, check_disk
from hushpore.pores.void.local_threshold import BYTES_IN_WINDOW
from hushpore.pores.void.rolling_ball import ball_around, exterior_bytes
from hushpore.pores.work import is_slicewise, spacing_of, window_of

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings

#: Bytes per voxel in use at once, besides the input, if everything is in memory: void state 1,
#: distance 4, basins 4, labels 4, and 1 for tables of basins.
BYTES_A_VOXEL = 14

#: Bytes per voxel of a slab in use at once, besides its grey values, if stacks are on disk: the
#: same, and 2 for the runs of a noisy void.
BYTES_IN_SLAB = 16

#: Bytes per voxel, of a volume in memory or of a slab, for local thickness: diameters 4, and the
#: balls that paint them, up to three per ten voxels.
BYTES_OF_THICKNESS = 12

#: Bytes per voxel for tortuosity: the void twice 2, path lengths 4, and the queue of the front;
#: void state and distance are freed by then.
BYTES_OF_PATHS = 8

#: Bytes per voxel kept for uncertainty intervals during further segmentations: void state 1,
#: basins 4, labels 4, pores and sample 2, and 1 for tables of basins.
BYTES_OF_INTERVALS = 12

#: Bytes per voxel of one slice for data beside a slab: slices before and after it, and the distance
#: and exits carried to the next slab.
BYTES_IN_SLICE = 80

#: Bytes per voxel on disk at once: void state 1, distance 4, basins 4, one slice per slab 4.
BYTES_ON_DISK = 13

#: Bytes per basin while all tables are made; in noise a basin has seven neighbours.
BYTES_A_BASIN = 1500

#: Fraction of the memory budget for slabs; the rest is for tables of basins.
SHARE = 0.6

#: Voxels per thread of a slab in memory, and minimum number of slices: about a tenth of a second of
#: work, after which previews are shown and the job can be cancelled.
AT_A_TIME, LEAST_SLICES = 1 << 21, 8

_LITTLE = 5e7  # tables up to this size in bytes are always accepted
_MOST = 2**31 - 1  # limit of int32 indices for a slab with the slices beside it


def plan_slabs(volume: Volume, settings: PoreSettings) -> Slabs:
    """Return slabs in memory if everything fits into the budget, else slabs on disk.

    `volume`: 2D or 3D; not read. `settings`: with ``memory_budget`` in GB, or None for all free
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
    if settings.tortuosity:
        raise MemoryLimitError(
            f"The geodesic tortuosity needs {volume.name} in memory in one piece "
            f"({_gb(bytes_in_memory(volume, settings))} GB), but {_gb(budget)} GB {whose}. "
            "Leave it out (tortuosity=False), or crop or bin the volume."
        )
    if settings.removes_air:
        # the ball needs an enlarged volume, but nothing else is in memory then
        slice_voxels = math.prod(ball_around(stacked, *_ball(volume, settings)).shape[1:])
    if 5 * slice_voxels > _MOST >= 5 * math.prod(stacked[1:]):
        raise InputError(
            f"A rolling ball of radius {settings.ball_radius:g} voxels needs a larger margin "
            f"around a slice of {volume.name} than can be indexed. Use a smaller radius "
            "(ball_radius), or count the air as pore (exterior='keep')."
        )
    if 5 * slice_voxels > _MOST:
        raise InputError(
            f"A slice of {volume.name} has {slice_voxels:,} voxels; at most {_MOST // 5:,} can "
            "be segmented. Crop it, or bin it 2 x 2 x 2."
        )
    # grey values of the current slab and of the next one, which is read ahead
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
            f"slabs, but {_gb(budget)} GB {whose}. Crop or bin the volume, or "
            f"{'close other programs' if settings.memory_budget is None else 'allow more'}."
        )
    thickness = min(thickness, depth, _MOST // slice_voxels - 4)
    # diameters of void and solid, and one more distance map
    more = 4 * (len(settings.thickness_of) + 1) if settings.thickness_of else 0
    check_disk(math.prod(stacked) * (BYTES_ON_DISK + more))
    return _even(depth, thickness, on_disk=True)


def _even(depth: int, most: int, *, on_disk: bool = False) -> Slabs:
    """Return the fewest slabs of at most `most` slices, as equal as possible."""
    count = -(-depth // most)
    return Slabs(depth, -(-depth // count), on_disk)


def check_tables(volume: Volume, settings: PoreSettings, slabs: Slabs, basins: int) -> None:
    """Raise MemoryLimitError if the tables of so many basins do not fit into memory."""
    if basins * BYTES_A_BASIN <= _LITTLE:
        return
    left = float(Backend().free_memory())
    if settings.memory_budget is not None:
        budget = settings.memory_budget * 1e9
        # in use besides the tables: slabs, or distance and basins
        others = SHARE * budget if slabs.on_disk else 8.0 * math.prod(volume.shape)
        left = min(left, budget - others)
    if basins * BYTES_A_BASIN > left:
        raise MemoryLimitError(
            f"The void of {volume.name} has {basins:,} watershed basins, whose tables need about "
            f"{_gb(basins * BYTES_A_BASIN)} GB of memory, but {_gb(left)} GB are left. Most may be "
            "noise: denoise the volume first, crop it, or raise the memory limit (memory_budget)."
        )


def bytes_in_memory(volume: Volume, settings: PoreSettings) -> int:
    """Return the memory, without tables, of a segmentation without temporary files."""
    count = math.prod(volume.shape)
    in_place = isinstance(volume.data, np.ndarray) and volume.data.flags.c_contiguous
    needed = count * (BYTES_A_VOXEL + BYTES_OF_THICKNESS * len(settings.thickness_of))
    diameters = 4 * len(settings.thickness_of)
    if settings.tortuosity:
        # including basins and labels
        needed = max(needed, count * (8 + diameters + BYTES_OF_PATHS))
    if settings.intervals:
        needed = max(needed, count * (BYTES_OF_INTERVALS + diameters + BYTES_A_VOXEL))
    if settings.removes_air:
        shape = (1,) * (3 - volume.n_spatial) + volume.shape
        needed = max(needed, exterior_bytes(shape, *_ball(volume, settings)))
    return needed + (0 if in_place else count * volume.dtype.itemsize)


def _ball(volume: Volume, settings: PoreSettings) -> tuple[tuple[float, ...], float, bool]:
    """Return spacing, ball radius, and whether slices are treated separately."""
    return spacing_of(volume), settings.ball_radius, is_slicewise(volume, settings)


def _gb(count: float) -> str:
    return f"{count / 1e9:.3g}"
