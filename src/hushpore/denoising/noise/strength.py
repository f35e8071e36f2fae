"""The strength of noise in all of a sample, where that in its flattest regions is too low.

The flattest regions of a dense sample are its calmest ones, near the rim for example. Mixed second
differences (along y of those along x) remove edges along either axis and most of all other image
structure, so that they measure the noise everywhere; but only the finest part of it, which is
therefore compared with the same differences of the noise model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

#: Factors of `fine_variance` for lags of 0 to 2 along one axis: the autocorrelation of 1, -2, 1.
_LAGS = np.array([1.0, -4.0, 6.0, -4.0, 1.0])

#: Maximum ratio of the root mean square of differences in a box and their median magnitude over
#: that of a normal distribution: higher in boxes with an edge.
_NORMAL = 1.25

#: Median magnitude of normal numbers, in standard deviations.
_MEDIAN = 0.6745

#: Minimum noise relative to the variation of the grey values: below, differences of voxels contain
#: too much of the image.
_LEAST_NOISE = 0.1

#: Minimum excess over the flattest regions, and minimum number of boxes, for a correction.
_NOTABLE, _FEWEST = 1.03, 20


def excess_strength(
    boxes: npt.NDArray[np.float64], autocovariance: npt.NDArray[np.float64]
) -> float:
    """Return the noise in boxes from all over a sample, relative to a noise model.

    Parameters
    ----------
    boxes : numpy.ndarray
        Grey values, shape (n, ..., y, x), from random positions; at least 3 pixels in y and x.
    autocovariance : numpy.ndarray
        That of `NoiseModel`, in squared grey values.

    Returns
    -------
    float
        Ratio of the standard deviations; 1 where it is not clearly higher, or cannot be measured
        because the noise is weak.
    """
    values = boxes.reshape(len(boxes), -1, *boxes.shape[-2:])
    deviation = float(np.sqrt(autocovariance.flat[autocovariance.size // 2]))
    expected = fine_variance(autocovariance)
    if expected <= 0 or deviation < _LEAST_NOISE * float(values.std()):
        return 1.0
    fine = np.diff(np.diff(values, 2, axis=-1), 2, axis=-2).reshape(len(values), -1)
    square = (fine**2).mean(1)
    typical = np.median(np.abs(fine), axis=1) / _MEDIAN
    without_edges = np.sqrt(square) <= _NORMAL * typical
    if without_edges.sum() < _FEWEST:
        return 1.0
    ratio = float(np.sqrt(square[without_edges].mean() / expected))
    return ratio if ratio >= _NOTABLE else 1.0


def fine_variance(autocovariance: npt.NDArray[Any]) -> float:
    """Return the variance of mixed second differences of noise with an autocovariance."""
    slices = autocovariance
    if slices.ndim == 3:
        slices = slices[len(slices) // 2]
    y, x = (n // 2 for n in slices.shape)
    if min(y, x) < 2:
        return 0.0
    near = slices[y - 2 : y + 3, x - 2 : x + 3]
    return float(_LAGS @ near @ _LAGS)
