"""The grey values of the sample alone, without exterior air and padding.

While a threshold is chosen, the window shows their histogram and the share of void in it. The steps
of the job find the exterior. In memory and up to `WHOLE` voxels it is the exterior of the job; of a
larger scan, and of one on disk, sampled slices are looked at, each on its own.
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.rescaled import held
from hushpore.base.volume import Volume
from hushpore.pores.preview import sampled_slices
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slab_steps import find_air, find_grey_value, find_void
from hushpore.pores.slabs import Scratch, Slabs
from hushpore.pores.void.components import AIR
from hushpore.pores.void.threshold import make_histogram
from hushpore.pores.work import Work, beyond_mask
from hushpore.scan.exterior import find_exterior, make_thumbnail
from hushpore.scan.histogram import Histogram

if TYPE_CHECKING:
    from hushpore.pores.engine import Pass
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.preview import GreySurvey
    from hushpore.scan.exterior import Thumbnail

#: Up to this many voxels in memory, the exterior is found in the whole volume.
WHOLE = 1 << 23

#: Voxels of sampled slices that are worked on at a time.
_AT_A_TIME = 1 << 22

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
        thickness = depth if not slices else max(1, _AT_A_TIME // math.prod(part.shape[-2:]))
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
    for (first, last), values in zip(work.slabs, grey.values.ahead(), strict=True):
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
    if is_array and math.prod(volume.shape) <= WHOLE:
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
