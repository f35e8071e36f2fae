"""The strength of noise all over a sample, which differs from that in its flattest regions.

The flattest regions of a dense sample are its calmest ones, near the rim for example. Mixed second
differences (along y of those along x) remove edges along either axis and most of all other image
structure, so that they measure the noise everywhere; but only the finest part of it, which is
therefore compared with the same differences of the noise model. Averaged over neighbourhoods, they
make a map of the strength over the slice.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from hushpore.base.arrays import Array, Float32s, Float64s

#: Factors of `fine_variance` for lags of -2 to 2 along one axis: the autocorrelation of 1, -2, 1.
_LAGS = np.array([1.0, -4.0, 6.0, -4.0, 1.0])

#: Maximum ratio of the root mean square of differences in a box and their median magnitude over
#: that of a normal distribution: higher in boxes with an edge.
_NORMAL = 1.15

#: Median magnitude of normal numbers, in standard deviations.
_MEDIAN = 0.6745

#: Minimum noise relative to the variation of the grey values: below, differences of voxels contain
#: too much of the image.
_LEAST_NOISE = 0.3

#: Minimum excess over the flattest regions for a correction.
_NOTABLE = 1.03

#: Minimum number of boxes for a correction, and for a map.
_FEWEST, _FEWEST_FOR_MAP = 20, 200

#: Cells of a map along y and x; standard deviation of the neighbourhoods, relative to the edge of
#: a slice; and number of boxes with the mean strength that are added to each.
_CELLS, _NEAR, _ADDED = 24, 0.08, 4.0

#: Minimum relative standard deviation of a map: below, the noise is uniform.
_VARIES = 0.03


class Strength(NamedTuple):
    """The noise all over a sample, relative to that of a noise model.

    `factor`: ratio of the standard deviations; 1 where it is not clearly higher, or cannot be
    measured because the noise is weak. `map`: that at each place of a slice, relative to `factor`,
    float32, shape (y, x) of a few cells; None for uniform noise.
    """

    factor: float = 1.0
    map: Float32s | None = None


def measure_strength(
    boxes: Float64s, places: Float64s, autocovariance: Float64s, line: tuple[float, float]
) -> Strength:
    """Measure the strength of noise in boxes from all over a sample.

    Parameters
    ----------
    boxes : numpy.ndarray
        Grey values, shape (n, ..., y, x), from random positions; at least 3 pixels in y and x.
    places : numpy.ndarray
        Their middles in y and x, relative to the edges of a slice, shape (n, 2); empty: no map is
        made.
    autocovariance : numpy.ndarray
        That of `NoiseModel`, in squared grey values.
    line : tuple of float
        Offset and slope of the variance against the grey value, as in `NoiseModel`.
    """
    values = boxes.reshape(len(boxes), -1, *boxes.shape[-2:])
    variance = float(autocovariance.flat[autocovariance.size // 2])
    expected = fine_variance(autocovariance)
    if expected <= 0 or math.sqrt(variance) < _LEAST_NOISE * float(values.std()):
        return Strength()
    fine = np.diff(np.diff(values, 2, axis=-1), 2, axis=-2).reshape(len(values), -1)
    square = (fine**2).mean(1)
    typical = np.median(np.abs(fine), axis=1) / _MEDIAN
    chosen = (typical > 0) & (np.sqrt(square) <= _NORMAL * typical)
    if chosen.sum() < _FEWEST:
        return Strength()
    ratio = math.sqrt(square[chosen].mean() / expected)
    factor = ratio if ratio >= _NOTABLE else 1.0
    if len(places) == 0 or chosen.sum() < _FEWEST_FOR_MAP:
        return Strength(factor)
    # what the grey value explains is no matter of the place
    offset, slope = line
    of_grey = (offset + slope * values.mean((1, 2, 3))[chosen]) / variance
    relative = square[chosen] / np.maximum(of_grey, 0.1)
    smooth = _map_of(relative / relative.mean(), places[chosen])
    if smooth.std() < _VARIES * smooth.mean():
        return Strength(factor)
    return Strength(factor, smooth)


def _map_of(variances: Float64s, places: Float64s) -> Float32s:
    """Return the mean standard deviation in the neighbourhood of each cell."""
    centres = (np.arange(_CELLS) + 0.5) / _CELLS
    y, x = (np.exp(-0.5 * ((centres[:, None] - at) / _NEAR) ** 2) for at in places.T)
    sums, counts = (y * variances) @ x.T, y @ x.T
    found: Float32s = np.sqrt((sums + _ADDED) / (counts + _ADDED))
    return found.astype(np.float32)


def fine_variance(autocovariance: Array) -> float:
    """Return the variance of mixed second differences of noise with an autocovariance."""
    slices = autocovariance
    if slices.ndim == 3:
        slices = slices[len(slices) // 2]
    y, x = (n // 2 for n in slices.shape)
    if min(y, x) < 2:
        return 0.0
    near = slices[y - 2 : y + 3, x - 2 : x + 3]
    return float(_LAGS @ near @ _LAGS)
