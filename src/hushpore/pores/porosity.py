"""Porosity that was measured otherwise, or comes from grey values.

The threshold is found at which a segmentation has a porosity that was measured otherwise.

Grey values give a porosity that includes pores smaller than a voxel. A voxel of grey value g holds
a share of void (s - g) / (s - v), if v is the grey value of void and s that of the solid. Its mean
over the sample needs no threshold. Shares are not cut off at 0 and 1, because noise would then no
longer cancel out.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import Driver, Note
from hushpore.base.formatting import percent_digits, readable_grey
from hushpore.pores.slab_steps import classify_void, find_air, find_grey_value, find_void
from hushpore.pores.void.components import AIR, SOLID
from hushpore.pores.void.threshold import GreyValues
from hushpore.pores.work import beyond_mask, void_totals_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from hushpore.base.arrays import Array, Mask
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.slabs import Stack
    from hushpore.pores.work import Work

#: Porosity within which a threshold is accepted, and most thresholds that are tried.
_CLOSE, _MOST = 2e-4, 14

#: Difference of porosity that is worth a warning.
_FAR = 0.005


class Match(NamedTuple):
    """A threshold and the porosity that it gives."""

    threshold: float
    porosity: float

    def note(self, measured: float) -> Note:
        """Return the note on the match; a warning if the porosity differs."""
        is_far = abs(self.porosity - measured) > _FAR
        text = (
            f"The threshold {readable_grey(self.threshold)} was chosen to match the measured "
            f"porosity of {percent_digits(measured)} %; it gives {percent_digits(self.porosity)} %."
        )
        if is_far:
            text += " No threshold comes closer, since too many voxels have the same grey value."
        return Note(text, is_far, "result")

    def apply(self, settings: PoreSettings) -> PoreSettings:
        """Return settings with this threshold; the porosity includes that of small pores."""
        return dataclasses.replace(
            settings,
            threshold=self.threshold,
            measured_porosity=None,
            minimum_voxels=settings.minimum_voxels or 1,
        )


def find_match(work: Work) -> Generator[float, None, Match]:
    """Find the threshold at which the porosity is the measured one.

    The exterior is found again for each threshold that is tried. Only the void is found, on the
    host, so that each takes a small part of a segmentation.

    Parameters
    ----------
    work : Work
        A job with ``measured_porosity``, for a volume of grey values.

    Yields
    ------
    float
        Share that is done.

    Returns
    -------
    Match
        The closest of the thresholds that were tried.

    Raises
    ------
    InputError
        If a hysteresis threshold is set.
    """
    settings = work.settings
    measured = (settings.measured_porosity or 0.0) / 100
    if settings.hysteresis is not None:
        raise InputError(
            "The measured porosity sets the threshold and cannot be combined with a hysteresis "
            "threshold. Leave one of them out (measured_porosity, hysteresis)."
        )
    # the cumulative histogram, by which thresholds are tried: porosity is nearly linear in it
    _, histogram = yield from work.engine.survey(
        work.engine.grey(work.volume, work.slabs, work.timer), True, work.padding
    )
    counts, values = histogram.counts, histogram.centers
    shares = np.cumsum(counts) / counts.sum()
    bright = settings.pores_are == "bright"
    # bracket of the share of dark voxels, with the difference of porosity at its ends
    low, high = (0.0, -measured), (1.0, 1 - measured)
    if bright:
        low, high = (0.0, 1 - measured), (1.0, -measured)
    at, tried = 1 - measured if bright else measured, dict[float, float]()
    for number in range(_MOST):
        place = min(int(np.searchsorted(shares, at)), values.size - 2)
        threshold = float(values[place])
        if threshold in tried:
            # try the middle once; then the bracket holds no other level
            at = (low[0] + high[0]) / 2
            threshold = float(values[min(int(np.searchsorted(shares, at)), values.size - 2)])
            if threshold in tried:
                break
        with Driver(_porosity(work, threshold)) as trial:
            for _ in trial:
                yield number / _MOST
        tried[threshold] = trial.result
        off = tried[threshold] - measured
        if abs(off) < _CLOSE:
            break
        if (off > 0) == (low[1] > 0):
            low = (at, off)
        else:
            high = (at, off)
        # the secant, kept inside the bracket
        slope = (high[1] - low[1]) / (high[0] - low[0])
        width = high[0] - low[0]
        at = float(np.clip(low[0] - low[1] / slope, low[0] + width / 50, high[0] - width / 50))
    best = min(tried, key=lambda threshold: abs(tried[threshold] - measured))
    return Match(best, tried[best])


def _porosity(work: Work, threshold: float) -> Generator[float, None, float]:
    """Return the share of the sample that is void of the pore type at a threshold."""
    settings: PoreSettings = dataclasses.replace(
        work.settings, threshold=threshold, measured_porosity=None
    )
    tried = dataclasses.replace(work, settings=settings)
    grey = yield from find_grey_value(tried)
    phase = yield from find_void(tried, grey)
    air = yield from find_air(tried, phase)
    counts = yield from classify_void(tried, phase, air)
    phase.close()
    totals = void_totals_of(tried, counts)
    of_type = {
        "all": totals.open_voxels + totals.closed_voxels,
        "open": totals.open_voxels,
        "closed": totals.closed_voxels,
    }
    return of_type[settings.pore_type] / max(int(totals.sample.sum()), 1)


#: Voxels that are worked on at a time.
_AT_A_TIME = 1 << 22

#: About as many values of each phase give its grey value.
_VALUES = 1 << 20


def find_subvoxel(work: Work, phase: Stack) -> Generator[float, None, dict[str, Any]]:
    """Find the porosity of the sample from its grey values.

    Parameters
    ----------
    work : Work
        The job. Grey values that its settings do not give are found: the median of the voxels whose
        six neighbours are of the same phase.
    phase : Stack
        (z, y, x), uint8: states of voxels, see `hushpore.pores.void.components`.

    Yields
    ------
    float
        Share that is done.

    Returns
    -------
    dict of str to float
        ``subvoxel_porosity``, ``void_grey`` and ``solid_grey``; empty if a grey value is neither
        given nor found, because a phase is nowhere thicker than two voxels. Voxels of the sample
        that touch its exterior are left out, since they hold air.

    Raises
    ------
    InputError
        If both grey values are equal.
    """
    values, depth = GreyValues(work.volume, work.slabs), work.shape[0]
    step = max(1, _AT_A_TIME // math.prod(work.shape[1:]))
    every = max(1, math.prod(work.shape) // _VALUES)
    found: dict[bool, list[Array]] = {True: [], False: []}
    total, count = 0.0, 0
    for first in range(0, depth, step):
        last = min(first + step, depth)
        low, high = max(first - 1, 0), min(last + 1, depth)
        state = phase.read(low, high)
        outside = state >= AIR
        if work.settings.sample_mask:
            outside |= beyond_mask(work, low, high)
        own = slice(first - low, last - low)
        is_void = (state != SOLID) & ~outside
        sample = ~_beside(outside)[own]
        grey = values.read(first, last)
        # slice by slice, so that the sum does not depend on the step
        for plane, kept in zip(grey, sample, strict=True):
            total += float(plane[kept].sum(dtype=np.float64))
        count += int(np.count_nonzero(sample))
        for phase_is_void, given in ((True, work.settings.void_grey),
                                     (False, work.settings.solid_grey)):  # fmt: skip
            if given is None:
                core = ~_beside(is_void != phase_is_void)[own] & sample
                found[phase_is_void].append(grey[core][::every])
        yield last / depth
    void = _grey_of(work.settings.void_grey, found[True])
    solid = _grey_of(work.settings.solid_grey, found[False])
    if void is None or solid is None or not count:
        return {}
    if void == solid:
        raise InputError(
            f"The grey values of void and solid must differ; both are {readable_grey(void)}. "
            "Set void_grey and solid_grey to the values of air and of solid without pores."
        )
    porosity = (solid - total / count) / (solid - void)
    return {"subvoxel_porosity": porosity, "void_grey": void, "solid_grey": solid}


def _beside(marked: Mask) -> Mask:
    """Return which voxels are marked or share a face with one that is (z, y, x)."""
    wide = marked.copy()
    for axis in range(3):
        low, high = np.moveaxis(wide, axis, 0), np.moveaxis(marked, axis, 0)
        low[1:] |= high[:-1]
        low[:-1] |= high[1:]
    return wide


def _grey_of(given: float | None, values: list[Array]) -> float | None:
    """Return the grey value of a phase; None if it is neither given nor found."""
    if given is not None:
        return float(given)
    own = np.concatenate(values)
    return float(np.median(own)) if own.size else None
