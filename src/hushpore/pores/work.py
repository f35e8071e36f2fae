"""What all steps of a pore segmentation need to know, and what settings come to for a volume."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.volume import require_grey
from hushpore.pores.engine import Engine
from hushpore.pores.void.components import AIR, CLOSED, FILLED_IN, OPEN, SOLID
from hushpore.pores.void.histogram import find_threshold
from hushpore.pores.void.local_threshold import LocalThreshold, window_in_voxels
from hushpore.pores.void.rolling_ball import Ball, ball_around

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.device.switches import Choices
    from hushpore.device.timing import StageTimer
    from hushpore.pores.engine import VoidCounts
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.slabs import Scratch, Slabs
    from hushpore.pores.void.histogram import Histogram
    from hushpore.pores.void.threshold import Range

#: What else can be done with labels than segment them as grey values.
_OF_LABELS = (
    "; or, to segment all that is labelled anew, a boolean volume: volume.replace(volume.array() "
    "!= 0), or the layer of labels in napari"
)


@dataclass(frozen=True)
class Work:
    """What all passes of a job need to know."""

    volume: Volume
    settings: PoreSettings
    slabs: Slabs
    scratch: Scratch
    threads: KernelThreads
    choices: Choices | None = None  # about optimisations
    timer: StageTimer | None = None  # told how long values are waited for
    padding: float | None = None  # grey value of what is filled in, around what was measured
    engine: Any = None  # `Engine` that does what is done to slabs; by default the CPU

    def __post_init__(self) -> None:
        if self.engine is None:
            object.__setattr__(self, "engine", Engine(self.threads))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the stack: an image is one slice."""
        return (1,) * (3 - self.volume.n_spatial) + self.volume.shape

    @property
    def spacing(self) -> tuple[float, ...]:
        """In z, y, x, also of an image."""
        return spacing_of(self.volume)

    @property
    def faces(self) -> tuple[bool, bool, bool]:
        """Which axes have faces: in an image not z."""
        return (self.volume.n_spatial == 3, True, True)

    @property
    def faces_only(self) -> bool:
        """Whether only voxels that share a face are neighbours."""
        return self.settings.connectivity == "faces"

    @property
    def has_air(self) -> bool:
        """Whether there may be air outside the sample, or what is filled in."""
        settings = self.settings
        return settings.removes_air or bool(settings.sample_mask) or self.padding is not None

    @property
    def is_slicewise(self) -> bool:
        """Whether the air outside is found slice by slice."""
        return is_slicewise(self.volume, self.settings)

    @property
    def solid_beyond(self) -> tuple[bool, ...]:
        """Whether there is solid beyond the faces, by axis."""
        return tuple(self.settings.border_is_solid and face for face in self.faces)

    @property
    def highest_void(self) -> int:
        """The highest phase label that counts as void when distances are measured.

        The mouth of a pore is no wall: what is not of the sample counts like what lies beyond the
        faces of the volume.
        """
        return CLOSED if self.settings.border_is_solid else FILLED_IN

    @property
    def phases_kept(self) -> tuple[int, int]:
        """The phase labels of open void and of closed, of which one may be left out."""
        mode = self.settings.pore_type
        return SOLID if mode == "closed" else OPEN, SOLID if mode == "open" else CLOSED

    def ball(self, shape: tuple[int, ...]) -> Ball:
        """Return the ball that finds the air around a stack, and the room that it needs."""
        return ball_around(shape, self.spacing, self.settings.ball_radius, self.is_slicewise)


def spacing_of(volume: Volume) -> tuple[float, ...]:
    """Spacing in z, y, x, also of an image."""
    return (min(volume.spacing),) * (3 - volume.n_spatial) + volume.spacing


def is_slicewise(volume: Volume, settings: PoreSettings) -> bool:
    """Whether the air outside is found slice by slice: an image is one slice."""
    return volume.n_spatial == 2 or settings.exterior == "remove-slicewise"


class Threshold(NamedTuple):
    """The grey value that parts pores from solid."""

    value: float | None  # None where the values are the void itself, or it is a local one
    problem: str = ""
    only_values: tuple[float, float] | None = None  # where there are only two


class VoidPhases(NamedTuple):
    """How much of the void of a sample is of which phase."""

    open_voxels: int  # connected to a face of the volume, or to the air outside
    closed_voxels: int
    components: int
    sample: npt.NDArray[np.int64]  # voxels of each slice (row, in 2D) that are not air
    share_outside: float  # of the volume that is air
    problem: str = ""


def void_phases_of(work: Work, counts: VoidCounts) -> VoidPhases:
    """Return the phases of the void, from what was counted of it, on the host."""
    problem = ""
    if work.settings.removes_air and not counts.air.any():
        problem = "No air was found outside the sample: the ball cannot reach any."
    components, opened, closed = (int(each) for each in counts.totals)
    sample = math.prod(work.volume.shape[1:]) - counts.air
    share = float(counts.air.sum()) / math.prod(work.volume.shape)
    return VoidPhases(opened, closed, components, sample, share, problem)


def check_grey(volume: Volume, settings: PoreSettings) -> None:
    """Refuse grey values that are none, and what has no meaning for a local threshold.

    Raises InputError: with what to change. Of booleans, which are the void itself, there is nothing
    to refuse.
    """
    if volume.dtype == np.bool_:
        return
    require_grey(volume, _OF_LABELS)
    if not settings.is_local:
        return
    if settings.hysteresis is not None:
        raise InputError(
            "The hysteresis threshold is one grey value for the whole volume and cannot be "
            f"stricter than the local threshold {settings.threshold!r}. Leave it out "
            "(hysteresis=None), or choose another threshold."
        )
    if settings.phases > 2:
        raise InputError(
            f"Only the method 'otsu' knows {settings.phases} phases; got {settings.threshold!r}. "
            "Choose 'otsu', or set phases to 2."
        )


def threshold_of(
    settings: PoreSettings, low: float, high: float, histogram: Histogram | None
) -> Threshold:
    """Return the threshold of values from `low` to `high`, and what is to be said of it.

    The histogram is needed for a method, not for a number.
    """
    if histogram is None:
        threshold = float(settings.threshold)
    else:
        bright = settings.pores_are == "bright"
        threshold = find_threshold(histogram, str(settings.threshold), settings.phases, bright)
    problem = ""
    if not low <= threshold < high:
        side = "above" if threshold >= high else "below"
        problem = (
            f"The threshold {threshold:g} is {side} all grey values ({low:g} to {high:g}): "
            "nothing is separated by it."
        )
    are_two = histogram is not None and np.count_nonzero(histogram.counts) == 2
    return Threshold(threshold, problem, (float(low), float(high)) if are_two else None)


def local_threshold(
    volume: Volume, settings: PoreSettings, depth: int, grey: Range, padding: float | None
) -> LocalThreshold:
    """Return the local threshold of settings for a stack of some depth, range and padding."""
    bright = settings.pores_are == "bright"
    window, method = window_of(volume, settings), str(settings.threshold)
    return LocalThreshold(method, window, settings.sauvola_k, bright, depth, grey, padding)


def check_hysteresis(settings: PoreSettings, threshold: float | None) -> None:
    """Refuse a stricter grey value that is none.

    Raises InputError: with the side on which it must be.
    """
    bright, strict = settings.pores_are == "bright", settings.hysteresis
    if strict is None or threshold is None:
        return
    if (strict < threshold) == bright:
        raise InputError(
            f"The hysteresis threshold must be stricter than the threshold, {threshold:g}: "
            f"{'above' if bright else 'below'} it for {settings.pores_are} pores; got {strict:g}."
        )


def window_of(volume: Volume, settings: PoreSettings) -> tuple[int, int, int]:
    """Return the window of a local threshold in voxels, (z, y, x)."""
    in_slice = settings.local_window_by_slice or volume.n_spatial == 2
    return window_in_voxels(settings.local_window, spacing_of(volume), in_slice)


def require_solid(volume: Volume, is_solid: bool) -> None:
    """Raise `InputError` if there is no solid, where air outside a sample is looked for."""
    if not is_solid:
        raise InputError(
            f"There is no solid in {volume.name}, so no sample that air could be around. "
            "Set another threshold, or have the air count as pore (exterior='keep')."
        )


def require_sample(
    volume: Volume, settings: PoreSettings, outside: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Raise `InputError` if the mask leaves nothing; returns the voxels outside, slice by slice."""
    if outside.sum() == math.prod(volume.shape):
        name = settings.sample_mask
        raise InputError(f"The sample_mask {name!r} is empty: no voxel of it is above 0.")
    return outside


def apply_mask(
    work: Work, phase: npt.NDArray[np.uint8], first: int, last: int
) -> npt.NDArray[np.bool_]:
    """Take void of some slices outside the mask as air, in place.

    Returns what is not of the sample: what is outside, and what is filled in within the mask.
    """
    outside = beyond_mask(work, first, last)
    phase[outside & (phase == OPEN)] = AIR
    outside |= phase >= AIR
    return outside


def beyond_mask(work: Work, first: int, last: int) -> npt.NDArray[np.bool_]:
    """Return where the mask of the sample says of some slices (z, y, x) that it is not."""
    mask = work.volume.auxiliary_of(work.settings, "sample_mask")
    own = np.asarray(mask[first:last]) if work.volume.n_spatial == 3 else np.asarray(mask)[None]
    # there it is not either where it is no number
    return np.asarray(~(own > 0))
