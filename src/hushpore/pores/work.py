"""Context shared by all steps of a pore segmentation, and checks of settings against a volume."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.volume import require_grey
from hushpore.pores.engine import Engine
from hushpore.pores.void.components import AIR, CLOSED, FILLED_IN, OPEN, SOLID, Ball, ball_around
from hushpore.pores.void.threshold import LocalThreshold, window_in_voxels
from hushpore.scan.histogram import AUTO, automatic, examine, find_threshold, only_otsu

if TYPE_CHECKING:
    from hushpore.base.arrays import Int64s, Mask, UInt8s
    from hushpore.base.volume import Volume
    from hushpore.device.timing import StageTimer
    from hushpore.pores.engine import VoidCounts
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.slabs import Scratch, Slabs
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
