"""Thresholds that a scan cannot tell apart.

What is known of grey values that are of one phase for sure, two voxels off any surface, is where
each phase lies and how much noise is left. There are three thresholds, then, that one may defend:
the one that was taken, the middle between the phases, where the surface lies in a scan that is
blurred alike on both sides (ISO-50), and the one of minimum error, for which of two phases as noisy
as these the rarer gives way. Beyond them the partial volume moves the surface: by a tenth of a
voxel, as accurate as surfaces are found in X-ray CT at best; or, where pores are small for the
blur, by the blur squared over their radius.

References
----------
J. Kittler and J. Illingworth (1986), "Minimum error thresholding".
https://doi.org/10.1016/0031-3203(86)90030-0
J. P. Kruth et al. (2011), "Computed tomography for dimensional metrology".
https://doi.org/10.1016/j.cirp.2011.05.006
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from hushpore.base.arrays import Array, Mask

#: Smallest uncertainty of the position of a surface, in voxels.
SURFACE = 0.1

#: Share of the way between both phases that a threshold keeps from either.
_APART = 0.1

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
    variance = (noise_of_dark**2 + noise_of_bright**2) / 2
    shares = np.count_nonzero(is_dark), np.count_nonzero(is_bright)
    likely = middle + variance / apart * math.log(shares[0] / shares[1])
    step = _step_at_surfaces(values, is_dark, is_bright, apart)
    blur = apart / (step * math.sqrt(2 * math.pi))
    moved = step * max(SURFACE, blur**2 / radius)
    low, high = dark + _APART * apart, bright - _APART * apart
    defended = (threshold, middle, likely)
    return Band(
        min(max(min(defended) - moved, low), threshold),
        max(min(max(defended) + moved, high), threshold),
    )


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
