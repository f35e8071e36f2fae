"""Band of equally plausible thresholds.

Voxels at least two voxels away from any surface are pure void or solid and give the grey value and
noise of each. Three thresholds are plausible: the one in use, the middle between void and solid
(ISO-50, the surface in a symmetrically blurred scan), and the minimum-error threshold for two such
noisy classes. The band is widened by the partial-volume effect, which displaces the surface by a
tenth of a voxel (the best accuracy of surfaces in X-ray CT) or, for pores small relative to the
blur, by the squared blur divided by their radius.

References
----------
J. Kittler and J. Illingworth (1986), "Minimum error thresholding".
https://doi.org/10.1016/0031-3203(86)90030-0
J. P. Kruth et al. (2011), "Computed tomography for dimensional metrology".
https://doi.org/10.1016/j.cirp.2011.05.006
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

#: Best accuracy of a surface position, in voxels.
SURFACE = 0.1

#: Minimum distance of a threshold from void and solid, as a fraction of their contrast.
_MARGIN = 0.1

#: Minimum number of voxels away from surfaces for a meaningful median.
_ENOUGH = 50

#: Standard deviation of normal noise per median absolute deviation.
_MAD = 1.4826


class Band(NamedTuple):
    """Plausible thresholds: grey values from `low` to `high`."""

    low: float
    high: float


def threshold_band(
    values: npt.NDArray[Any], exterior: npt.NDArray[np.bool_], threshold: float, radius: float
) -> Band:
    """Return the band of thresholds that are as plausible as the one in use.

    `values`: (z, y, x), grey values. `exterior`: (z, y, x), bool: excluded voxels. `threshold`: the
    one in use. `radius`: typical pore radius, in voxels.
    """
    is_dark = (values <= threshold) & ~exterior
    is_bright = (values > threshold) & ~exterior
    if not (is_dark.any() and is_bright.any()):
        return Band(threshold, threshold)
    dark, noise_of_dark = _grey_and_noise(values, is_dark)
    bright, noise_of_bright = _grey_and_noise(values, is_bright)
    apart = bright - dark
    middle = (dark + bright) / 2
    variance = (noise_of_dark**2 + noise_of_bright**2) / 2
    shares = np.count_nonzero(is_dark), np.count_nonzero(is_bright)
    likely = middle + variance / apart * math.log(shares[0] / shares[1])
    step = _step_at_surfaces(values, is_dark, is_bright, apart)
    blur = apart / (step * math.sqrt(2 * math.pi))
    moved = step * max(SURFACE, blur**2 / radius)
    low, high = dark + _MARGIN * apart, bright - _MARGIN * apart
    defended = (threshold, middle, likely)
    return Band(
        min(max(min(defended) - moved, low), threshold),
        max(min(max(defended) + moved, high), threshold),
    )


def is_cut_off(values: npt.NDArray[Any], exterior: npt.NDArray[np.bool_], threshold: float) -> bool:
    """Return whether most of the void or solid is clipped to the lowest or highest grey value.

    Noise and blur cannot be estimated in such a scan. Parameters as for `threshold_band`.
    """
    inside = values[~exterior]
    if not inside.size:
        return False
    dark, bright = inside[inside <= threshold], inside[inside > threshold]
    return any(
        2 * np.count_nonzero(each == end) >= each.size > 0
        for each, end in ((dark, inside.min()), (bright, inside.max()))
    )


def _grey_and_noise(values: npt.NDArray[Any], is_own: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Return the grey value and the noise (standard deviation) of void or solid off surfaces."""
    from scipy import ndimage

    inner = is_own
    for _ in range(2):
        # thin structures have no voxels away from surfaces: use those at surfaces
        thinner = ndimage.binary_erosion(inner, border_value=1)
        if np.count_nonzero(thinner) < _ENOUGH:
            break
        inner = thinner
    own = values[inner].astype(np.float64)
    middle = float(np.median(own))
    return middle, _MAD * float(np.median(np.abs(own - middle)))


def _step_at_surfaces(
    values: npt.NDArray[Any],
    is_dark: npt.NDArray[np.bool_],
    is_bright: npt.NDArray[np.bool_],
    apart: float,
) -> float:
    """Return the mean grey-value step between neighbouring voxels across surfaces."""
    total, count = 0.0, 0
    for axis in range(values.ndim):
        before = tuple(slice(None, -1) if a == axis else slice(None) for a in range(values.ndim))
        after = tuple(slice(1, None) if a == axis else slice(None) for a in range(values.ndim))
        across = (is_dark[before] & is_bright[after]) | (is_bright[before] & is_dark[after])
        one, other = (values[part][across].astype(np.float64) for part in (before, after))
        total += float(np.abs(one - other).sum())
        count += one.size
    return min(total / count, apart) if count else apart
