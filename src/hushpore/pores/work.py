"""Context shared by all steps of a pore segmentation, and checks of settings against a volume.

How much memory a segmentation takes, and so in how many slabs a volume is cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.base.preferences import memory_limit
from hushpore.base.volume import require_grey
from hushpore.device.backend import Backend, cpu_threads
from hushpore.pores.detection import PART
from hushpore.pores.engine import Engine
from hushpore.pores.slabs import Slabs, check_disk
from hushpore.pores.void.components import (
    AIR,
    CLOSED,
    FILLED_IN,
    OPEN,
    SOLID,
    Ball,
    ball_around,
    outside_bytes,
)
from hushpore.pores.void.threshold import BYTES_IN_WINDOW, LocalThreshold, window_in_voxels
from hushpore.scan.histogram import AUTO, automatic, examine, find_threshold, only_otsu

if TYPE_CHECKING:
    from hushpore.base.arrays import Int64s, Mask, UInt8s
    from hushpore.base.volume import Volume
    from hushpore.device.timing import StageTimer
    from hushpore.pores.engine import VoidCounts
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.slabs import Scratch
    from hushpore.pores.void.threshold import Range
    from hushpore.scan.histogram import Groups, Histogram

#: Problem to report if an exterior is looked for and none is found.
NO_AIR = "No air was found around the sample: the rolling ball cannot enter at any face."

#: Alternative to segmenting labels as grey values, appended to an error.
_LABELS_AS_VOID = (
    "; or measure the labels as they are with 'hushpore measure'; or, to count all labels as void "
    "and split it again, convert them to a boolean volume: volume.replace(volume.array() != 0)"
)


@dataclass(frozen=True)
class Work:
    """Context shared by all steps of a job."""

    volume: Volume
    settings: PoreSettings
    slabs: Slabs
    scratch: Scratch
    threads: KernelThreads
    timer: StageTimer | None = None  # records how long reading takes
    padding: float | None = None  # grey value of the padding around the scan
    engine: Any = None  # `Engine` that processes slabs; by default on the CPU
    labels: Any = None  # `GivenLabels` in place of a watershed

    def __post_init__(self) -> None:
        if self.engine is None:
            object.__setattr__(self, "engine", Engine(self.threads))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the stack, (z, y, x); an image is one slice."""
        return (1,) * (3 - self.volume.n_spatial) + self.volume.shape

    @property
    def spacing(self) -> tuple[float, ...]:
        """Voxel size (z, y, x), also for an image."""
        return spacing_of(self.volume)

    @property
    def faces(self) -> tuple[bool, bool, bool]:
        """Whether the volume has faces along each axis; an image has none along z."""
        return (self.volume.n_spatial == 3, True, True)

    @property
    def faces_only(self) -> bool:
        """Whether only voxels that share a face are connected."""
        return self.settings.connectivity == "faces"

    @property
    def has_air(self) -> bool:
        """Whether there may be air or padding around the sample."""
        settings = self.settings
        return settings.removes_air or bool(settings.sample_mask) or self.padding is not None

    @property
    def is_slicewise(self) -> bool:
        """Whether the exterior is found slice by slice."""
        return is_slicewise(self.volume, self.settings)

    @property
    def solid_beyond(self) -> tuple[bool, ...]:
        """Whether the volume boundary counts as solid, for each axis."""
        return tuple(self.settings.border_is_solid and face for face in self.faces)

    @property
    def highest_void(self) -> int:
        """Highest void state that counts as void when distances are measured.

        The mouth of a pore is not a wall: the exterior is treated like the space beyond the faces
        of the volume.
        """
        return CLOSED if self.settings.border_is_solid else FILLED_IN

    @property
    def states_kept(self) -> tuple[int, int]:
        """Void states that open and closed void get: `SOLID` if the pore type excludes them."""
        pore_type = self.settings.pore_type
        return SOLID if pore_type == "closed" else OPEN, SOLID if pore_type == "open" else CLOSED

    def ball(self, shape: tuple[int, ...]) -> Ball:
        """Return the rolling ball for a stack of this shape, with the margin that it needs."""
        return ball_around(shape, self.spacing, self.settings.ball_radius, self.is_slicewise)


def spacing_of(volume: Volume) -> tuple[float, ...]:
    """Return the voxel size (z, y, x), also for an image."""
    return (min(volume.spacing),) * (3 - volume.n_spatial) + volume.spacing


def is_slicewise(volume: Volume, settings: PoreSettings) -> bool:
    """Return whether the exterior is found slice by slice; an image is one slice."""
    return volume.n_spatial == 2 or settings.exterior == "remove-slicewise"


class Threshold(NamedTuple):
    """Grey value that separates pores from solid."""

    value: float | None  # None for a boolean volume or a local threshold
    problem: str = ""
    only_values: tuple[float, float] | None = None  # if the image has only two
    groups: Groups | None = None  # what a method found on both sides


class VoidTotals(NamedTuple):
    """Voxel counts of the open and closed void, and of the sample."""

    open_voxels: int  # connected to a face of the volume, or to the exterior
    closed_voxels: int
    components: int
    sample: Int64s  # voxels of the sample in each slice (in 2D: row)
    exterior_share: float  # of the volume
    problem: str = ""


def void_totals_of(work: Work, counts: VoidCounts) -> VoidTotals:
    """Return totals of the void from its counts, on the host."""
    problem = ""
    if work.settings.removes_air and not counts.air.any():
        problem = NO_AIR
    components, opened, closed = (int(each) for each in counts.totals)
    sample = math.prod(work.volume.shape[1:]) - counts.air
    share = float(counts.air.sum()) / math.prod(work.volume.shape)
    return VoidTotals(opened, closed, components, sample, share, problem)


def check_grey(volume: Volume, settings: PoreSettings) -> None:
    """Check that a volume holds grey values and that the settings suit a local threshold.

    A boolean volume, which is the void itself, passes.
    Raises InputError: says what to change.
    """
    if volume.dtype == np.bool_:
        return
    require_grey(volume, _LABELS_AS_VOID)
    if not settings.is_local:
        return
    if settings.hysteresis is not None:
        raise InputError(
            "The hysteresis threshold is one grey value for the whole volume and cannot be "
            f"combined with the local threshold {settings.threshold!r}. Leave it out "
            "(hysteresis=None), or choose another threshold."
        )
    if settings.otsu_classes > 2:
        raise InputError(only_otsu(settings.otsu_classes, str(settings.threshold)))


def threshold_of(
    settings: PoreSettings, low: float, high: float, histogram: Histogram | None
) -> Threshold:
    """Return the threshold for values from `low` to `high`, with a problem to report if any.

    `histogram`: None if the setting is a number.
    """
    groups = None
    if histogram is None:
        threshold = float(settings.threshold)
    else:
        bright = settings.pores_are == "bright"
        method, classes = str(settings.threshold), settings.otsu_classes
        if method == AUTO and classes == 2:
            groups = automatic(histogram, bright)
            threshold = groups.threshold
        else:
            threshold = find_threshold(histogram, method, classes, bright)
            if classes == 2:
                groups = examine(histogram, threshold, bright)
    problem = ""
    is_beyond_noise = groups is not None and not groups.second and groups.method != "otsu"
    if not low <= threshold < high and not is_beyond_noise:
        side = "above" if threshold >= high else "below"
        problem = (
            f"The threshold {threshold:g} is {side} all grey values ({low:g} to {high:g}), so it "
            "separates nothing. Choose a value within that range."
        )
    are_two = (
        histogram is not None and histogram.is_exact and np.count_nonzero(histogram.counts) == 2
    )
    only_values = (float(low), float(high)) if are_two else None
    return Threshold(threshold, problem, only_values, groups)


def local_threshold(
    volume: Volume, settings: PoreSettings, depth: int, grey: Range, padding: float | None
) -> LocalThreshold:
    """Return the local threshold for a stack of this depth, grey-value range and padding."""
    bright = settings.pores_are == "bright"
    window, method = window_of(volume, settings), str(settings.threshold)
    return LocalThreshold(method, window, settings.sauvola_k, bright, depth, grey, padding)


def check_hysteresis(settings: PoreSettings, threshold: float | None) -> None:
    """Raise InputError unless the hysteresis threshold is stricter than the threshold."""
    bright, strict = settings.pores_are == "bright", settings.hysteresis
    if strict is None or threshold is None:
        return
    if (strict < threshold) == bright:
        raise InputError(
            f"The hysteresis threshold must be stricter than the threshold ({threshold:g}): "
            f"{'above it for bright' if bright else 'below it for dark'} pores; got {strict:g}."
        )


def window_of(volume: Volume, settings: PoreSettings) -> tuple[int, int, int]:
    """Return the window (z, y, x) of a local threshold, in voxels."""
    in_slice = settings.local_window_by_slice or volume.n_spatial == 2
    return window_in_voxels(settings.local_window, spacing_of(volume), in_slice)


def require_solid(volume: Volume, is_solid: bool) -> None:
    """Raise InputError if there is no solid, and so no sample that air could surround."""
    if not is_solid:
        raise InputError(
            f"There is no solid in {volume.name}, so no sample that air could surround. "
            "Choose another threshold, or count the air as pore (exterior='keep')."
        )


def require_sample(volume: Volume, settings: PoreSettings, excluded: Int64s) -> Int64s:
    """Return the excluded voxels of each slice; raise InputError if the sample mask is empty."""
    if excluded.sum() == math.prod(volume.shape):
        name = settings.sample_mask
        raise InputError(f"The sample_mask {name!r} is empty: it has no voxel above 0.")
    return excluded


def apply_mask(work: Work, void_state: UInt8s, first: int, last: int) -> Mask:
    """Mark void outside the sample mask as air in slices `first` to `last`, in place.

    Returns: (z, y, x), bool: the exterior, and padding within the mask.
    """
    excluded = beyond_mask(work, first, last)
    void_state[excluded & (void_state == OPEN)] = AIR
    excluded |= void_state >= AIR
    return excluded


def beyond_mask(work: Work, first: int, last: int) -> Mask:
    """Return which voxels of slices `first` to `last` are outside the sample mask (z, y, x)."""
    mask = work.volume.auxiliary_of(work.settings, "sample_mask")
    own = np.asarray(mask[first:last]) if work.volume.n_spatial == 3 else np.asarray(mask)[None]
    # NaN in the mask counts as outside
    return np.asarray(~(own > 0))


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
#: axes 12, and 2 and half of 20 (`hushpore.pores.transport.diffusion`).
BYTES_OF_TRANSPORT = 25

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
