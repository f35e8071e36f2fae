"""Photon noise with a gain, an offset and read noise, as in the images of a camera.

In a micrograph the flattest regions are often the dark background, and its noise says little about
that of bright cells. The variance is therefore measured everywhere, from mixed second differences
(along y of those along x), which hardly contain image structure, and fitted as a line over the grey
value: its slope is the grey value of one photon, and its offset the read noise.

After Foi, Trimeche, Katkovnik, Egiazarian, Practical Poissonian-Gaussian noise modeling and fitting
for single-image raw-data, https://doi.org/10.1109/TIP.2008.2001399; here with small squares in
place of a segmentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from hushpore.base.arrays import Float64s, Int64s


#: Edge length, in pixels, of the squares for measuring the variance.
_EDGE = 8

#: Number of groups of squares with similar grey values, and minimum number of squares in each.
_GROUPS, _LEAST = 24, 20

#: Squares whose variance exceeds this multiple of the median of their group contain an edge.
_EDGES = 3.0

#: Minimum ratio of the variances in the brightest and in the darkest group.
_GROWTH = 2.0

#: Maximum median deviation of the groups from the line, relative to it.
_SCATTER = 0.2

#: Minimum ratio of the variances from mixed and from simple second differences in the calmest
#: squares of a group: 0.86 for white noise, 0.69 for a correlation of 0.15.
_WHITE = 0.76

#: Smallest variance of the line, relative to the largest.
_LEAST_VARIANCE = 1e-3


class PhotonNoise(NamedTuple):
    """The variance of white noise as a line over the grey value: ``slope * (value - zero)``."""

    slope: float  # grey value of one photon
    zero: float  # grey value without photons and read noise


def measure_photon_noise(boxes: Float64s) -> PhotonNoise | None:
    """Measure the growth of white noise with the grey value.

    Parameters
    ----------
    boxes : numpy.ndarray
        Grey values, shape (n, ..., y, x), from random positions.

    Returns
    -------
    PhotonNoise or None
        None if the noise is correlated, hardly grows with the grey value, or is no line over it.
    """
    squares = _squares(boxes.reshape(-1, *boxes.shape[-2:]))
    if len(squares) < _GROUPS * _LEAST:
        return None
    along_y, along_x = (np.diff(squares, 2, axis=axis) for axis in (1, 2))
    mixed, *simple = (
        (each**2).mean((1, 2)) / factor
        for each, factor in ((np.diff(along_y, 2, axis=2), 36), (along_y, 6), (along_x, 6))
    )
    means, plain = squares.mean((1, 2)), sum(simple) / 2
    order = np.argsort(means, kind="stable")
    at, variances, white = np.transpose(
        [
            (means[group].mean(), _typical(mixed[group]), _whiteness(mixed, plain, group))
            for group in np.array_split(order, _GROUPS)
        ]
    )
    if not (variances > 0).all() or np.median(white) < _WHITE:
        return None
    offset, slope = _fit(at - at[0], variances)
    line = offset + slope * (at - at[0])
    if line[-1] < _GROWTH * line[0] or np.median(np.abs(variances / line - 1)) > _SCATTER:
        return None
    return PhotonNoise(slope, float(at[0] - offset / slope))


def _squares(planes: Float64s) -> Float64s:
    """Divide planes into squares, (n, y, x)."""
    _, height, width = planes.shape
    return np.concatenate(
        [
            planes[:, y : y + _EDGE, x : x + _EDGE].astype(np.float64)
            for y in range(0, height - _EDGE + 1, _EDGE)
            for x in range(0, width - _EDGE + 1, _EDGE)
        ]
        or [np.empty((0, _EDGE, _EDGE))]
    )


def _typical(variances: Float64s) -> float:
    """Return the mean variance of squares without edges."""
    return float(variances[variances <= _EDGES * np.median(variances)].mean())


def _whiteness(mixed: Float64s, plain: Float64s, group: Int64s) -> float:
    """Return the ratio of both variances in the calmest quarter of a group."""
    calm = group[np.argsort(plain[group], kind="stable")[: len(group) // 4]]
    return float(mixed[calm].mean() / max(plain[calm].mean(), np.finfo(float).tiny))


def _fit(values: Float64s, variances: Float64s) -> tuple[float, float]:
    """Return offset and slope of a line, not negative, by least squares of relative errors."""
    from scipy.optimize import nnls

    least = _LEAST_VARIANCE * variances.max()
    line = variances
    for _ in range(5):
        weights = 1 / np.maximum(line, least)
        terms = np.stack([weights, values * weights], 1)
        (offset, slope), _residual = nnls(terms, variances * weights)
        line = offset + slope * values
    return float(offset), float(slope)
