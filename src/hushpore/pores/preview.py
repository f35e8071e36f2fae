"""What a segmentation will do, as a preview: grey values, threshold, and the void of a slice.

A person who chooses a threshold looks at one slice, and wants to see its void while the number
changes. What is shown is found by the functions that the job calls
(`hushpore.pores.void.threshold`, `hushpore.pores.void.components`,
`hushpore.pores.void.local_threshold`), so that it is what the job will find.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_grey, readable_percent
from hushpore.base.rescaled import held
from hushpore.base.volume import SPATIAL_AXES, Volume
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.slabs import Slabs
from hushpore.pores.void.components import find_filled_in, find_runs
from hushpore.pores.void.exterior import (
    Exterior,
    find_exterior,
)
from hushpore.pores.void.grey import GreyValues
from hushpore.pores.void.histogram import find_threshold
from hushpore.pores.void.rolling_ball import outside_of_slices
from hushpore.pores.void.threshold import make_void, survey
from hushpore.pores.void.thumbnail import make_thumbnail
from hushpore.pores.work import local_threshold, spacing_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.pores.engine import Pass
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.void.histogram import Histogram
    from hushpore.pores.void.threshold import Range
    from hushpore.pores.void.thumbnail import Thumbnail

#: Voxels up to which all grey values in memory are counted; of more, slices from all over are.
WHOLE = 1 << 26

#: About how many voxels of a larger volume are counted, and slices at most of one on disk.
SAMPLE, SLICES = 1 << 24, 16

#: Voxels that are counted between two looks at whether this is still wanted.
_AT_A_TIME = 1 << 22

#: What a voxel of a slice is: solid, void, or, with hysteresis, void if it hangs together with
#: stricter void in other slices.
SOLID, VOID, WEAK = 0, 1, 2


@dataclass(frozen=True, eq=False)
class GreySurvey:
    """What is known of the grey values of a volume."""

    histogram: Histogram  # how often each grey value occurs
    range: Range  # the lowest and the highest
    share: float = 1.0  # which share of the voxels was counted; below 1 all of this is of a sample
    unit: str = ""  # of the grey values, for example HU; empty where they have none
    whole: GreySurvey | None = None  # the same with what is filled in; None where nothing is
    _found: dict[tuple[str, int, bool], float | InputError] = field(default_factory=dict)

    def of(self, settings: PoreSettings) -> GreySurvey:
        """Return what is known of the voxels that count for settings."""
        return self.whole if self.whole is not None and settings.keeps_all else self

    def share_up_to(self, value: float) -> float:
        """Return which share of the voxels is not brighter than a grey value."""
        counts = self.histogram.counts
        return float(counts[self.histogram.centers <= value].sum() / counts.sum())

    def find(self, settings: PoreSettings) -> float | InputError | None:
        """Return the threshold that settings lead to, and remember it; see `known`."""
        greys, key = self.of(settings), _key(settings)
        if key is not None and key not in greys._found:
            try:
                greys._found[key] = find_threshold(greys.histogram, *key)
            except InputError as error:
                greys._found[key] = error
        return self.known(settings)

    def is_known(self, settings: PoreSettings) -> bool:
        """Return whether `known` has all there is to know for settings."""
        key = _key(settings)
        return key is None or key in self.of(settings)._found

    def known(self, settings: PoreSettings) -> float | InputError | None:
        """Return the threshold that settings lead to, as far as it is known.

        `settings`: with a method, or a number, which is returned.
        Returns: the grey value, or why a method finds none; None where `find` was not asked for
        this method yet, and for a local threshold, which is another one for each voxel.
        """
        if not isinstance(settings.threshold, str):
            return float(settings.threshold)
        key = _key(settings)
        return None if key is None else self.of(settings)._found.get(key)

    def explain(self, settings: PoreSettings) -> dict[str, str]:
        """Return what the threshold of settings and the stricter one come to, as far as known."""
        found = self.known(settings)
        if found is None:
            return {}
        if isinstance(found, InputError):
            return {"threshold": str(found)}
        unit, bright = f" {self.unit}".rstrip(), settings.pores_are == "bright"
        greys = self.of(settings)
        low, high = greys.range.low, greys.range.high
        of = "voxels" if self.share == 1 else "voxels of a sample"
        way = "brighter" if bright else "darker"

        def beyond(value: float) -> str:
            dark = greys.share_up_to(value)
            return f"{readable_percent(1 - dark if bright else dark)} of the {of} are {way}"

        if low <= found < high:
            which = f"{beyond(found)}."
        else:
            none = (found < low) != bright
            which = (
                f"{'no' if none else 'all'} {of} are {way}: "
                f"grey values go from {readable_grey(low)} to {readable_grey(high)}{unit}."
            )
        if isinstance(settings.threshold, str):
            text = f"{settings.in_words('threshold')}: {readable_grey(found)}{unit}; {which}"
        else:
            text = which[0].upper() + which[1:]
        if np.count_nonzero(greys.histogram.counts) == 2:
            text += (
                f" There are two values only, {readable_grey(low)} and {readable_grey(high)}: "
                f"{readable_grey(high if bright else low)} is pore (Pores are)."
            )
        strict = settings.hysteresis
        if strict is None:
            return {"threshold": text}
        line = f"{beyond(strict)}; other void counts where it touches these."
        if (strict < found) == bright:
            side = "above" if bright else "below"
            line = f"Must be {side} the threshold, {readable_grey(found)}{unit}."
        return {"threshold": text, "hysteresis": line}


def _key(settings: PoreSettings) -> tuple[str, int, bool] | None:
    """Return what a threshold that is found from the histogram depends on."""
    method = settings.threshold
    if not isinstance(method, str) or settings.is_local:
        return None
    return method, settings.phases, settings.pores_are == "bright"


def survey_greys(volume: Volume, threads: KernelThreads) -> Pass[GreySurvey]:
    """Count the grey values of a volume; of a large one or one on disk, of slices from all over.

    `volume`: with any leading axes, whose images are counted together.
    Yields: the share that is done.
    Raises InputError if the values are empty, all the same, or some of them are not finite.
    """
    if 0 in volume.shape:
        raise InputError(f"{volume.name} is empty: its shape is {volume.shape}.")
    counted = _counted(volume)
    rows = math.prod(counted.shape[1:])
    slabs = Slabs(counted.shape[0], max(1, _AT_A_TIME // rows), on_disk=True)
    padding = None
    if volume.axes in SPATIAL_AXES and volume.dtype != np.bool_:
        # as the job does, which leaves it out
        padding = make_thumbnail(volume).padding
    values = GreyValues(counted, slabs)
    share = math.prod(counted.shape) / math.prod(volume.shape)
    unit = str(volume.metadata.get("value_unit", ""))
    greys: GreySurvey | None = None
    for left_out in dict.fromkeys((None, padding)):
        found, histogram = yield from survey(values, True, threads, left_out)
        assert histogram is not None, "it was asked for"
        greys = GreySurvey(histogram, found, share, unit, greys)
    assert greys is not None, "all was counted"
    return greys


def _counted(volume: Volume) -> Volume:
    """Return all of a volume as a stack, or some of its slices."""
    *leading, height, width = volume.shape
    count, plane = math.prod(leading), height * width
    in_memory = type(held(volume.data)) is np.ndarray
    if in_memory and count * plane <= WHOLE:
        if volume.ndim == 3:
            return Volume(volume.data, axes="zyx", name=volume.name)
        if isinstance(volume.data, np.ndarray) and volume.data.flags.c_contiguous:
            return Volume(volume.data.reshape(count, height, width), axes="zyx", name=volume.name)
    most = max(1, SAMPLE // plane) if in_memory else min(SLICES, max(1, SAMPLE // plane))
    places = (np.arange(min(most, count)) + 0.5) / min(most, count) * count
    # of a plane that is larger than the sample every n-th row and column
    every = (slice(None, None, math.ceil(math.sqrt(plane / SAMPLE))),) * 2
    planes = []
    for place in places:
        index = tuple(int(at) for at in np.unravel_index(int(place), tuple(leading) or (1,)))
        planes.append(np.asarray(volume.data[(*index[: len(leading)], *every)]))
    return Volume(np.stack(planes), axes="zyx", name=volume.name)


class SliceVoid:
    """Finds the void of single slices of a volume as the job does.

    The grey values that were read last are kept: while a threshold is moved nothing is read.

    `volume`: grey values, with any leading axes.
    """

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._read: tuple[Any, npt.NDArray[Any]] | None = None
        self._small: tuple[Any, Thumbnail] | None = None
        self._around: tuple[Any, Exterior] | None = None

    def phase(
        self, index: Sequence[int], settings: PoreSettings, greys: GreySurvey
    ) -> npt.NDArray[np.uint8] | None:
        """Return what the voxels of a slice are: `SOLID`, `VOID` or `WEAK`.

        Without air around the sample, as the job leaves it out; before open void is told from
        closed. The air is found slice by slice, also where the job rolls a ball through all slices.

        `index`: position on the axes before y and x. `greys`: what is known of the volume; of a
        sample, a threshold that is found is that of the sample.
        Returns: (y, x), uint8. None where the method finds no threshold.
        """
        found = self._look_at(index, settings, greys)
        if found is None:
            return None
        phase, left_out = found
        phase[left_out] = SOLID
        return phase

    def left_out(
        self, index: Sequence[int], settings: PoreSettings, greys: GreySurvey
    ) -> npt.NDArray[np.bool_]:
        """Return what of a slice (y, x) is not of the sample, for arguments as of `phase`."""
        found = self._look_at(index, settings, greys)
        return np.zeros(self._volume.shape[-2:], np.bool_) if found is None else found[1]

    def _look_at(
        self, index: Sequence[int], settings: PoreSettings, greys: GreySurvey
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]] | None:
        """Return what the voxels of a slice are, with all around the sample, and what that is."""
        n_leading = len(self._volume.leading_shape)
        leading = dict(zip(self._volume.axes, index[:n_leading], strict=False))
        volume = self._volume.at(**leading)
        z = index[-1] if volume.n_spatial == 3 else 0
        depth = volume.shape[0] if volume.n_spatial == 3 else 1
        bright, strict = settings.pores_are == "bright", settings.hysteresis

        def values_of(*cut: int) -> npt.NDArray[Any]:
            key = (tuple(leading.items()), cut)
            if self._read is None or self._read[0] != key:
                self._read = key, GreyValues(volume, Slabs(depth, 1, on_disk=True)).read(*cut)
            return self._read[1]

        # a slice is not cut into ranges of slices: more threads would have nothing to do
        with KernelThreads(1) as threads:
            around = self._surroundings(volume, tuple(leading.items()), settings)
            if settings.is_local:
                of_all = greys.of(settings).range
                local = local_threshold(volume, settings, depth, of_all, around.padding)
                cut = local.slices(z, z + 1)
                values = values_of(*cut)
                phase = local.void(values, z, z + 1, threads).view(np.uint8)
                values = values[z - cut[0] :][:1]
            else:
                threshold = greys.find(settings)
                if not isinstance(threshold, float):
                    return None
                values = values_of(z, z + 1)
                phase = make_void(values, threshold, bright, threads).view(np.uint8)
                if strict is not None:
                    runs = find_runs(phase, threads)
                    kept = runs.holding(make_void(values, strict, bright, threads))
                    runs.paint(phase, np.where(kept, VOID, WEAK).astype(np.uint8), threads)
            left_out = _find_left_out(phase, values, volume, around, threads)
        return phase[0], left_out[0]

    def _surroundings(
        self, volume: Volume, leading: tuple[Any, ...], settings: PoreSettings
    ) -> Exterior:
        """Return what the job finds around the sample, for the settings that were last asked for.

        `leading`: which of the images of a series it is; a thumbnail of it is kept.
        """
        if settings.keeps_all:
            # nothing need be looked at while a threshold is moved
            return Exterior(settings.exterior, settings.ball_radius)
        if self._small is None or self._small[0] != leading:
            self._small = leading, make_thumbnail(volume)
        if self._around is None or self._around[0] != (leading, settings):
            self._around = (leading, settings), find_exterior(volume, settings, self._small[1])
        return self._around[1]


def _find_left_out(
    phase: npt.NDArray[np.uint8],
    values: npt.NDArray[Any],
    volume: Volume,
    around: Exterior,
    threads: KernelThreads,
) -> npt.NDArray[np.bool_]:
    """Return what is around the sample in a slice (1, y, x)."""
    padded = np.zeros(phase.shape, np.bool_)
    if around.padding is not None:
        padded = find_filled_in(values, around.padding, threads)
    if around.treatment != "keep":
        void = (phase != SOLID) | padded
        padded |= outside_of_slices(void, spacing_of(volume), around.radius, threads)
    return padded
