"""Percentiles of weighted sizes, and log-normal fits to them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Float64s

#: Percentiles of sizes that tables and plots show: D10, D50 and D90.
PERCENTILES = (10, 50, 90)


class LognormalFit(NamedTuple):
    """A log-normal distribution with the mean and the deviation of the logarithms of sizes.

    Attributes
    ----------
    median : float
        Its median, the geometric mean of the sizes.
    geometric_deviation : float
        Its geometric standard deviation, 1 or more.
    distance : float
        Largest difference of its cumulative distribution from that of the sizes
        (Kolmogorov-Smirnov): 0 is a perfect fit, above about 0.1 sizes are not log-normal. NaN if
        all sizes are equal.
    """

    median: float
    geometric_deviation: float
    distance: float

    def up_to(self, sizes: npt.ArrayLike) -> Float64s:
        """Return the cumulative share at sizes above 0."""
        from scipy.special import ndtr

        logs = np.log(np.asarray(sizes, np.float64) / self.median)
        share: Float64s = ndtr(logs / math.log(self.geometric_deviation))
        return share


def cumulative(sizes: Float64s, weights: Float64s) -> tuple[Float64s, Float64s]:
    """Return sizes in rising order, and the share of the weights up to each.

    Parameters
    ----------
    sizes, weights : numpy.ndarray
        (sizes,), float64; weights above 0.

    Returns
    -------
    sizes, shares : numpy.ndarray
        (sizes,), float64.
    """
    order = np.argsort(sizes, kind="stable")
    shares = np.cumsum(weights[order])
    return sizes[order], shares / (shares[-1] if shares.size else 1.0)


def percentiles(
    sizes: Float64s, weights: Float64s, levels: Sequence[float] = PERCENTILES
) -> list[float]:
    """Return percentiles of weighted sizes.

    Parameters
    ----------
    sizes, weights : numpy.ndarray
        (sizes,), float64; weights above 0.
    levels : sequence of float
        In per cent.

    Returns
    -------
    list of float
        For each level the smallest size up to which that share of the weights lies; NaN if there
        are no sizes.

    Examples
    --------
    >>> percentiles(np.array([3.0, 1.0, 2.0]), np.array([6.0, 1.0, 3.0]))
    [1.0, 3.0, 3.0]
    """
    rising, shares = cumulative(sizes, weights)
    if not rising.size:
        return [math.nan] * len(levels)
    # rounding of the sum must not skip a size
    places = np.searchsorted(shares, np.asarray(levels) / 100 - 1e-12)
    return [float(rising[min(int(place), rising.size - 1)]) for place in places]


def lognormal_fit(sizes: Float64s, weights: Float64s) -> LognormalFit | None:
    """Fit a log-normal distribution to weighted sizes.

    Parameters
    ----------
    sizes, weights : numpy.ndarray
        (sizes,), float64; weights above 0.

    Returns
    -------
    LognormalFit or None
        None if there are no sizes, or not all of them are above 0.

    Examples
    --------
    >>> fit = lognormal_fit(np.array([1.0, 100.0]), np.ones(2))
    >>> round(fit.median, 6), round(fit.geometric_deviation, 6)
    (10.0, 10.0)
    """
    rising, up_to = cumulative(sizes, weights)
    if not rising.size or rising[0] <= 0:
        return None
    logs, share = np.log(rising), np.diff(up_to, prepend=0.0)
    mean = float((logs * share).sum())
    deviation = math.sqrt(float(((logs - mean) ** 2 * share).sum()))
    fit = LognormalFit(math.exp(mean), math.exp(deviation), math.nan)
    if math.isclose(fit.geometric_deviation, 1, rel_tol=1e-12):
        return fit
    fitted = fit.up_to(rising)
    # the distribution of the sizes rises in a step at each of them
    distance = float(np.maximum(up_to - fitted, fitted - (up_to - share)).max())
    return fit._replace(distance=distance)
