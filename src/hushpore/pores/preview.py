"""Preview of a segmentation: grey values, threshold, and the void of a slice.

While a threshold is chosen, the void of one slice is shown and follows the number. The preview
calls the functions of the job (`hushpore.pores.void`), so that it shows what the job will find.

The window also shows the histogram of the sample alone, without exterior air and padding, and the
share of void in it. The steps of the job find the exterior: that of the job, up to `_WHOLE_SAMPLE`
voxels in memory; in a larger scan, or one on disk, the exterior of sampled slices.
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_grey, readable_percent
from hushpore.base.rescaled import held
from hushpore.base.volume import SPATIAL_AXES, Volume
from hushpore.pores.advice import PLAUSIBLE
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slab_steps import find_air, find_grey_value, find_void
from hushpore.pores.slabs import Scratch, Slabs
from hushpore.pores.void.components import AIR, find_filled_in, find_runs, outside_of_slices
from hushpore.pores.void.threshold import GreyValues, make_histogram, make_void, survey
from hushpore.pores.work import Work, beyond_mask, local_threshold, spacing_of
from hushpore.scan.exterior import Exterior, are_of_mask, find_exterior, make_thumbnail
from hushpore.scan.histogram import AUTO, Histogram, automatic, examine, find_any_threshold
from hushpore.scan.sample import kind_of_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Array, Mask, UInt8s
    from hushpore.pores.engine import Pass
    from hushpore.pores.void.threshold import Range
    from hushpore.scan.exterior import Thumbnail
    from hushpore.scan.histogram import Groups
    from hushpore.scan.sample import Kind


#: Up to this many voxels in memory, all grey values are counted; of more, only sampled slices.
WHOLE = 1 << 26

#: Approximate number of voxels to sample, and maximum number of slices to read from disk.
SAMPLE, SLICES = 1 << 24, 16

#: Voxels counted between two points at which the survey can be cancelled.
_AT_A_TIME = 1 << 22

#: States of a voxel of a slice: solid, void, or (with hysteresis) void only if it is connected to
#: void beyond the stricter threshold in other slices.
SOLID, VOID, WEAK = 0, 1, 2


#: Share of the voxels that lie beyond the range shown, at either end.
_BEYOND = 5e-4


@dataclass(frozen=True, eq=False)
class GreySurvey:
    """Histogram and range of the grey values of a volume, and thresholds found in it."""

    histogram: Histogram
    range: Range  # lowest and highest grey value
    share: float = 1.0  # fraction of the voxels that was counted; below 1 this is a sample
    unit: str = ""  # unit of the grey values, for example HU; empty if they have none
    whole: GreySurvey | None = None  # the survey including padding; None if there is none
    kind: Kind = ""  # what the values look like if not like grey values
    _found: dict[tuple[str, int, bool], float | InputError] = field(default_factory=dict)
    # what methods of two classes found on both sides
    _groups: dict[tuple[str, int, bool], Groups] = field(default_factory=dict)

    @property
    def limits(self) -> tuple[float, float]:
        """The range of grey values of nearly all voxels, for a plot."""
        centers, counts = self.histogram.centers, self.histogram.counts
        share = np.cumsum(counts) / counts.sum()
        low = float(centers[np.searchsorted(share, _BEYOND)])
        high = float(centers[min(int(np.searchsorted(share, 1 - _BEYOND)), centers.size - 1)])
        margin = 0.04 * (high - low) or 1.0
        return max(low - margin, float(self.range.low)), min(high + margin, float(self.range.high))

    def of(self, settings: PoreSettings) -> GreySurvey:
        """Return the survey of the voxels that count with these settings."""
        return self.whole if self.whole is not None and settings.keeps_all else self

    def find(self, settings: PoreSettings) -> float | InputError | None:
        """Find the threshold for settings, keep it, and return it; see `known`."""
        greys, key = self.of(settings), _key(settings)
        if key is not None and key not in greys._found:
            try:
                if key[:2] == (AUTO, 2):
                    groups = automatic(greys.histogram, key[2])
                    greys._found[key], greys._groups[key] = groups.threshold, groups
                else:
                    greys._found[key] = found = find_any_threshold(greys.histogram, *key)
                    if key[1] == 2:
                        greys._groups[key] = examine(greys.histogram, found, key[2])
            except InputError as error:
                greys._found[key] = error
        return self.known(settings)

    def is_known(self, settings: PoreSettings) -> bool:
        """Return whether the threshold for settings was found already or needs no search."""
        key = _key(settings)
        return key is None or key in self.of(settings)._found

    def known(self, settings: PoreSettings) -> float | InputError | None:
        """Return the threshold for settings if it is known.

        Returns: the grey value, or the error of a method that finds none; None if `find` was not
        called for this method yet, and for a local threshold.
        """
        if not isinstance(settings.threshold, str):
            return float(settings.threshold)
        key = _key(settings)
        return None if key is None else self.of(settings)._found.get(key)

    def plausible(self, settings: PoreSettings) -> tuple[float, float] | None:
        """Return the range of plausible thresholds, as the job reports it; None if not known.

        From 40 to 60 % of the way between pores and solid, extended to the threshold of the method.
        A number has the range of the automatic threshold, if that was found.
        """
        greys, found = self.of(settings), self.known(settings)
        key = _key(settings) or (AUTO, 2, settings.pores_are == "bright")
        groups = greys._groups.get(key)
        is_settled = isinstance(found, float) and settings.hysteresis is None
        if groups is None or not groups.second or not is_settled or greys.has_two_values:
            return None
        ends = groups.threshold, *(groups.between(share) for share in PLAUSIBLE)
        return min(ends), max(ends)

    def decided(self, settings: PoreSettings) -> PoreSettings:
        """Return settings with the phase of the pores as the job decides it."""
        if settings.pores_are != "auto":
            return settings
        is_mask = self.has_two_values and are_of_mask(self.range.low, self.range.high)
        phase = "bright" if is_mask else "dark"
        return dataclasses.replace(settings, pores_are=phase)

    @property
    def has_two_values(self) -> bool:
        """Whether there are only two grey values."""
        return int(np.count_nonzero(self.histogram.counts)) == 2

    def explain(self, settings: PoreSettings, sample: Histogram | None = None) -> dict[str, str]:
        """Return hints on the threshold and the hysteresis threshold, as far as known.

        `sample`: histogram of the sample, of which shares are given; by default of the whole scan.
        """
        settings = self.decided(settings)
        found = self.known(settings)
        if found is None:
            return {}
        if isinstance(found, InputError):
            return {"threshold": str(found)}
        unit, bright = f" {self.unit}".rstrip(), settings.pores_are == "bright"
        greys = self.of(settings)
        low, high = greys.range.low, greys.range.high
        way = "brighter" if bright else "darker"
        histogram, of = greys.histogram, "whole scan"
        if sample is not None:
            histogram, of = sample, "sample"

        def beyond(value: float) -> str:
            return f"{readable_percent(histogram.share_beyond(value, bright))} of the {of}"

        strict = settings.hysteresis
        if low <= found < high:
            which = f"void {'' if strict is None else 'at most '}{beyond(found)}."
        else:
            none = (found < low) != bright
            which = (
                f"{'no' if none else 'all'} voxels are {way} (grey values range from "
                f"{readable_grey(low)} to {readable_grey(high)}{unit})."
            )
        if isinstance(settings.threshold, str):
            groups = greys._groups.get(_key(settings) or ("", 0, False))
            name = settings.in_words("threshold")
            if settings.threshold == AUTO and groups is not None:
                # in one line of the form, for the sample and for the whole scan
                name = groups.method.capitalize()
            text = f"{name} {readable_grey(found)}{unit}: {which}"
        else:
            text = which[0].upper() + which[1:]
        if greys.has_two_values:
            text += (
                f" The image has only two values, {readable_grey(low)} and {readable_grey(high)}; "
                f"{readable_grey(high if bright else low)} is pore (Pores are)."
            )
        if strict is None:
            return {"threshold": text}
        line = f"{beyond(strict)} is {way}; other void is kept only where it is connected to this."
        if (strict < found) == bright:
            side = "above" if bright else "below"
            line = f"Must be {side} the threshold, {readable_grey(found)}{unit}."
        return {"threshold": text, "hysteresis": line}


def _key(settings: PoreSettings) -> tuple[str, int, bool] | None:
    """Return the settings on which a threshold from the histogram depends; None if none is."""
    method = settings.threshold
    if not isinstance(method, str) or settings.is_local:
        return None
    return method, settings.otsu_classes, settings.pores_are == "bright"


def survey_greys(volume: Volume, threads: KernelThreads) -> Pass[GreySurvey]:
    """Count the grey values of a volume; sample slices of a volume that is large or on disk.

    `volume`: with any leading axes, whose images are counted together.
    Yields: the fraction that is done.
    Raises InputError if the values are empty, all the same, or some of them are not finite.
    """
    if 0 in volume.shape:
        raise InputError(f"{volume.name} is empty: its shape is {volume.shape}.")
    counted = _counted(volume)
    rows = math.prod(counted.shape[1:])
    slabs = Slabs(counted.shape[0], max(1, _AT_A_TIME // rows), on_disk=True)
    padding = None
    kind: Kind = ""
    if volume.axes in SPATIAL_AXES and volume.dtype != np.bool_:
        # excluded, as by the job
        padding = make_thumbnail(volume).padding
        kind = kind_of_values(counted)
    values = GreyValues(counted, slabs)
    share = math.prod(counted.shape) / math.prod(volume.shape)
    unit = str(volume.metadata.get("value_unit", ""))
    greys: GreySurvey | None = None
    for excluded in dict.fromkeys((None, padding)):
        found, histogram = yield from survey(values, True, threads, excluded)
        assert histogram is not None, "it was asked for"
        greys = GreySurvey(histogram, found, share, unit, greys, kind)
    assert greys is not None, "all was counted"
    return greys


def _counted(volume: Volume) -> Volume:
    """Return a volume as a stack: all of it, or sampled slices."""
    *leading, height, width = volume.shape
    count, plane = math.prod(leading), height * width
    in_memory = type(held(volume.data)) is np.ndarray
    if in_memory and count * plane <= WHOLE:
        if volume.ndim == 3:
            return Volume(volume.data, axes="zyx", name=volume.name)
        if isinstance(volume.data, np.ndarray) and volume.data.flags.c_contiguous:
            return Volume(volume.data.reshape(count, height, width), axes="zyx", name=volume.name)
    places, every = sampled_slices(volume)
    cut = (slice(None, None, every),) * 2
    planes = []
    for place in places:
        index = tuple(int(at) for at in np.unravel_index(place, tuple(leading) or (1,)))
        planes.append(np.asarray(volume.data[(*index[: len(leading)], *cut)]))
    return Volume(np.stack(planes), axes="zyx", name=volume.name)


def sampled_slices(volume: Volume) -> tuple[list[int], int]:
    """Return which slices to sample of a large volume, and the step between their pixels.

    The slices are numbered through all axes before y and x.
    """
    *leading, height, width = volume.shape
    count, plane = math.prod(leading), height * width
    most = max(1, SAMPLE // plane)
    if type(held(volume.data)) is not np.ndarray:
        most = min(SLICES, most)
    places = (np.arange(min(most, count)) + 0.5) / min(most, count) * count
    # every n-th row and column of a slice that is larger than the sample
    return places.astype(np.int64).tolist(), math.ceil(math.sqrt(plane / SAMPLE))


class SliceVoid:
    """Void of single slices of a volume, found as by the job.

    The slice that was read last is kept, so that moving a threshold reads nothing.

    `volume`: grey values, with any leading axes.
    """

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._read: tuple[Any, Array] | None = None
        self._small: tuple[Any, Thumbnail] | None = None
        self._exterior: tuple[Any, Exterior] | None = None

    def void_state(
        self, index: Sequence[int], settings: PoreSettings, greys: GreySurvey
    ) -> UInt8s | None:
        """Return the state of each voxel of a slice: `SOLID`, `VOID` or `WEAK`.

        The exterior counts as solid, and the pore type is not applied. The exterior is found slice
        by slice, even where the job rolls a ball through all slices.

        `index`: position on the axes before y and x. `greys`: survey of the volume; with a sample,
        a method finds the threshold of the sample.
        Returns: (y, x), uint8; None if the method finds no threshold.
        """
        found = self._look_at(index, settings, greys)
        if found is None:
            return None
        state, excluded = found
        state[excluded] = SOLID
        return state

    def excluded(self, index: Sequence[int], settings: PoreSettings, greys: GreySurvey) -> Mask:
        """Return the exterior in a slice (y, x), bool; parameters as of `void_state`."""
        found = self._look_at(index, settings, greys)
        return np.zeros(self._volume.shape[-2:], np.bool_) if found is None else found[1]

    def _look_at(
        self, index: Sequence[int], settings: PoreSettings, greys: GreySurvey
    ) -> tuple[UInt8s, Mask] | None:
        """Return the voxel states of a slice before the exterior is excluded, and the exterior."""
        n_leading = len(self._volume.leading_shape)
        leading = dict(zip(self._volume.axes, index[:n_leading], strict=False))
        volume = self._volume.at(**leading)
        z = index[-1] if volume.n_spatial == 3 else 0
        depth = volume.shape[0] if volume.n_spatial == 3 else 1
        bright, strict = settings.pores_are == "bright", settings.hysteresis

        def values_of(*cut: int) -> Array:
            key = (tuple(leading.items()), cut)
            if self._read is None or self._read[0] != key:
                self._read = key, GreyValues(volume, Slabs(depth, 1, on_disk=True)).read(*cut)
            return self._read[1]

        # one slice is one range of slices: more threads would be idle
        with KernelThreads(1) as threads:
            exterior = self._find_exterior(volume, tuple(leading.items()), settings)
            if settings.is_local:
                of_all = greys.of(settings).range
                local = local_threshold(volume, settings, depth, of_all, exterior.padding)
                cut = local.slices(z, z + 1)
                values = values_of(*cut)
                state = local.void(values, z, z + 1, threads).view(np.uint8)
                values = values[z - cut[0] :][:1]
            else:
                threshold = greys.find(settings)
                if not isinstance(threshold, float):
                    return None
                values = values_of(z, z + 1)
                state = make_void(values, threshold, bright, threads).view(np.uint8)
                if strict is not None:
                    runs = find_runs(state, threads)
                    kept = runs.holding(make_void(values, strict, bright, threads))
                    runs.paint(state, np.where(kept, VOID, WEAK).astype(np.uint8), threads)
            excluded = _exterior_of_slice(state, values, volume, exterior, threads)
        return state[0], excluded[0]

    def _find_exterior(
        self, volume: Volume, leading: tuple[Any, ...], settings: PoreSettings
    ) -> Exterior:
        """Return the exterior that the job finds; the last one is kept.

        `leading`: position in an image series; the thumbnail of the last image is kept.
        """
        if settings.keeps_all:
            # no search while a threshold is moved
            return Exterior(settings.exterior, settings.ball_radius)
        if self._small is None or self._small[0] != leading:
            self._small = leading, make_thumbnail(volume)
        if self._exterior is None or self._exterior[0] != (leading, settings):
            self._exterior = (leading, settings), find_exterior(volume, settings, self._small[1])
        return self._exterior[1]


def _exterior_of_slice(
    state: UInt8s, values: Array, volume: Volume, exterior: Exterior, threads: KernelThreads
) -> Mask:
    """Return the exterior in a slice (1, y, x): padding, and air that the ball reaches."""
    excluded = np.zeros(state.shape, np.bool_)
    if exterior.padding is not None:
        excluded = find_filled_in(values, exterior.padding, threads)
    if exterior.treatment != "keep":
        void = (state != SOLID) | excluded
        excluded |= outside_of_slices(void, spacing_of(volume), exterior.radius, threads)
    return excluded


#: Up to this many voxels in memory, the exterior is found in the whole volume.
_WHOLE_SAMPLE = 1 << 23

#: Voxels of sampled slices that are worked on at a time.
_SAMPLED_AT_A_TIME = 1 << 22

#: Settings on which the exterior depends.
_USED = (
    "threshold", "otsu_classes", "pores_are", "hysteresis", "local_window",
    "local_window_by_slice", "sauvola_k", "exterior", "sample_mask", "ball_radius",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class SampleGreys:
    """Histogram of the sample, and how much of the scan is excluded from it."""

    histogram: Histogram
    excluded: float = 0.0  # share of the scan that is exterior air or padding
    slices: int = 0  # number of slices that were sampled; 0 if the whole scan was looked at


def sample_settings(settings: PoreSettings, greys: GreySurvey) -> PoreSettings | None:
    """Return the settings on which the sample depends, and defaults for the others.

    None if all voxels count, or if the threshold is not known.
    """
    is_known = settings.is_local or isinstance(greys.known(settings), float)
    if settings.keeps_all or settings.measured_porosity is not None or not is_known:
        return None
    return PoreSettings(**{name: getattr(settings, name) for name in _USED})


class SampleFinder:
    """Finds the sample of one volume; what was read of it is kept for the next threshold.

    `volume`: 2D or 3D grey values.
    """

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self._small: Thumbnail | None = None
        self._part: Volume | None = None

    def find(
        self, settings: PoreSettings, greys: GreySurvey, threads: KernelThreads
    ) -> Pass[SampleGreys]:
        """Count the grey values of the sample.

        `settings`: as `sample_settings` returns them. `greys`: survey of the volume.
        Yields: the fraction that is done.
        Returns: the counts; those of the whole scan if nothing is excluded, or if there is no solid
        that air could surround.
        """
        whole = greys.of(settings)
        if self._small is None:
            self._small = make_thumbnail(self.volume)
        exterior = find_exterior(self.volume, settings, self._small)
        decided, found = exterior.apply(settings), greys.known(settings)
        if isinstance(found, float):
            decided = dataclasses.replace(decided, threshold=found, otsu_classes=2)
        if not decided.removes_air and not decided.sample_mask and exterior.padding is None:
            return SampleGreys(whole.histogram)
        if self._part is None:
            self._part = _part_of(self.volume)
        part, slices = self._part, 0
        if part is not self.volume:
            step = min(part.spacing) / min(self.volume.spacing)
            # slices apart from each other have no ball, window or connection in common
            decided = dataclasses.replace(
                decided, hysteresis=None, local_window_by_slice=True,
                ball_radius=max(decided.ball_radius / step, 1.0),
                exterior="remove-slicewise" if decided.removes_air else decided.exterior,
            )  # fmt: skip
            slices = len(part.data) if part.n_spatial == 3 else 1
        depth = part.shape[0] if part.n_spatial == 3 else 1
        thickness = (
            depth if not slices else max(1, _SAMPLED_AT_A_TIME // math.prod(part.shape[-2:]))
        )
        with closing(Scratch(False)) as scratch:
            work = Work(
                part, decided, Slabs(depth, thickness), scratch, threads, padding=exterior.padding
            )
            try:
                counts = yield from _count(work, whole)
            except InputError:
                return SampleGreys(whole.histogram)
        kept = int(counts.sum())
        if not kept:
            return SampleGreys(whole.histogram)
        excluded = 1 - kept / math.prod(part.shape)
        return SampleGreys(Histogram(counts, whole.histogram.centers), excluded, slices)


def _count(work: Work, greys: GreySurvey) -> Pass[Any]:
    """Count the grey values of the sample in the bins of a survey: (bins,), int64."""
    grey = yield from find_grey_value(work)
    phase = yield from find_void(work, grey)
    yield from find_air(work, phase)
    low, high = greys.range.low, greys.range.high
    counts = np.zeros(greys.histogram.counts.size, np.int64)
    for (first, last), values in zip(work.slabs, grey.values.in_slabs(), strict=True):
        excluded = phase.read(first, last) >= AIR
        if work.settings.sample_mask:
            excluded |= beyond_mask(work, first, last)
        # a survey of other slices may not have all values
        own = np.clip(values[~excluded], low, high).reshape(1, -1)
        if own.size:
            counts += make_histogram(own, work.threads, greys.range).counts
        yield last / work.slabs.depth
    return counts


def _part_of(volume: Volume) -> Volume:
    """Return the volume, or sampled slices of one that is large or on disk, with its masks."""
    is_array = type(held(volume.data)) is np.ndarray
    if is_array and math.prod(volume.shape) <= _WHOLE_SAMPLE:
        return volume
    places, every = sampled_slices(volume)
    cut = (slice(None, None, every),) * 2

    def take(values: Any) -> Any:
        if volume.n_spatial == 2:
            return np.asarray(values[cut])
        return np.stack([np.asarray(values[(place, *cut)]) for place in places])

    masks = {
        name: take(mask)
        for name, mask in volume.auxiliary.items()
        if getattr(mask, "shape", ()) == volume.shape
    }
    spacing = tuple(step * every for step in volume.spacing)
    return Volume(take(volume.data), spacing, volume.unit, name=volume.name, auxiliary=masks)
