"""Thresholds that a scan cannot tell apart.

Grey values two voxels away from any surface show the mean
and the noise of each phase. Three thresholds are defensible: the one that was used; the middle
between the phases, where the surface lies in a scan with the same blur on both sides (ISO-50); and
that of minimum error, where a voxel is as likely of one phase as of the other. The range is widened
by the partial volume effect: by the squared blur over the radius of the pores, but at least 0.15
and at most 0.4 voxels, which was calibrated on scans with known porosity. For the porosity, the
shares of void of two groups with blurred edges that are fitted to the histogram
(`hushpore.scan.mixture`) are plausible too, with noise that differs more or less between them.

References
----------
J. Kittler and J. Illingworth (1986), "Minimum error thresholding".
https://doi.org/10.1016/0031-3203(86)90030-0
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hushpore.scan.mixture import APART, fit_mixture

if TYPE_CHECKING:
    from hushpore.base.arrays import Array, Mask

#: Smallest and largest uncertainty of the position of a surface, in voxels.
SURFACE, _FARTHEST = 0.15, 0.4

#: How far the noise of pores and solid may differ in the models of the histogram that tell the
#: share of void: not at all, as usual, and at will.
_MODELS = (0.0, APART, 1.0)

#: Share of the way between both phases that a threshold keeps from either.
_APART = 0.1

#: Noise of a phase at least, as a share of the contrast, and grey values that are tried.
_QUIET, _STEPS = 0.02, 401

#: Bins of a histogram of many grey values.
_BINS = 4096

#: Voxels of a phase, off its surfaces, of which a median says something.
_ENOUGH = 50

#: Standard deviations in a median deviation from the median, of normal noise.
_MAD = 1.4826


class Band(NamedTuple):
    """Thresholds that cannot be told apart: grey values from `low` to `high`."""

    low: float
    high: float


def threshold_band(values: Array, outside: Mask, threshold: float, radius: float) -> Band:
    """Return the thresholds that a scan cannot tell from the one that was taken.

    `values`: (z, y, x), grey values. `outside`: (z, y, x), bool: what is not of the sample, and
    does not count. `threshold`: the one that was taken. `radius`: typical one of the pores, in
    voxels.
    """
    is_dark = (values <= threshold) & ~outside
    is_bright = (values > threshold) & ~outside
    if not (is_dark.any() and is_bright.any()):
        return Band(threshold, threshold)
    dark, noise_of_dark = _phase(values, is_dark)
    bright, noise_of_bright = _phase(values, is_bright)
    apart = bright - dark
    middle = (dark + bright) / 2
    low, high = dark + _APART * apart, bright - _APART * apart
    # where a voxel is as likely of one phase as of the other
    greys = np.linspace(low, high, _STEPS)
    odds = np.zeros(_STEPS)
    for sign, phase, centre, noise in (
        (1, is_dark, dark, noise_of_dark),
        (-1, is_bright, bright, noise_of_bright),
    ):
        sd = max(noise, _QUIET * apart)
        share = math.log(np.count_nonzero(phase) / sd)
        odds += sign * (share - ((greys - centre) / sd) ** 2 / 2)
    likely = float(greys[np.argmin(np.abs(odds))])
    step = _step_at_surfaces(values, is_dark, is_bright, apart)
    blur = apart / (step * math.sqrt(2 * math.pi))
    moved = step * min(max(SURFACE, blur**2 / radius), _FARTHEST)
    defended = (threshold, middle, likely)
    return Band(
        min(max(min(defended) - moved, low), threshold),
        max(min(max(defended) + moved, high), threshold),
    )


def shares_of_void(values: Array, outside: Mask, *, bright: bool) -> list[float]:
    """Return the shares of void by models of the histogram; none that does not fit."""
    inside = values[~outside]
    is_whole = inside.dtype.kind in "iu" and np.ptp(inside) < _BINS
    limits = np.arange(inside.min(), float(inside.max()) + 2) - 0.5 if is_whole else _BINS
    counts, ends = np.histogram(inside, limits)
    fits = [fit_mixture(counts, (ends[1:] + ends[:-1]) / 2, apart) for apart in _MODELS]
    return [1 - each.void if bright else each.void for each in fits if each and each.is_certain]


def is_cut_off(values: Array, outside: Mask, threshold: float) -> bool:
    """Whether most of a phase has the lowest, or highest, grey value of all; as `threshold_band`.

    Of such a scan, of two values at worst, neither noise nor blur can be told.
    """
    inside = values[~outside]
    if not inside.size:
        return False
    dark, bright = inside[inside <= threshold], inside[inside > threshold]
    return any(
        2 * np.count_nonzero(each == end) >= each.size > 0
        for each, end in ((dark, inside.min()), (bright, inside.max()))
    )


def _phase(values: Array, is_phase: Mask) -> tuple[float, float]:
    """Return the grey value of a phase, and the standard deviation of its noise, off surfaces."""
    from scipy import ndimage

    inner = is_phase
    for _ in range(2):
        # thin phases have no inside: what lies next to a surface has to do
        thinner = ndimage.binary_erosion(inner, border_value=1)
        if np.count_nonzero(thinner) < _ENOUGH:
            break
        inner = thinner
    own = values[inner].astype(np.float64)
    middle = float(np.median(own))
    return middle, _MAD * float(np.median(np.abs(own - middle)))


def _step_at_surfaces(values: Array, is_dark: Mask, is_bright: Mask, apart: float) -> float:
    """Return by how much grey values differ on average across a surface, from voxel to voxel."""
    total, count = 0.0, 0
    for axis in range(values.ndim):
        before = tuple(slice(None, -1) if a == axis else slice(None) for a in range(values.ndim))
        after = tuple(slice(1, None) if a == axis else slice(None) for a in range(values.ndim))
        across = (is_dark[before] & is_bright[after]) | (is_bright[before] & is_dark[after])
        one, other = (values[part][across].astype(np.float64) for part in (before, after))
        total += float(np.abs(one - other).sum())
        count += one.size
    return min(total / count, apart) if count else apart
