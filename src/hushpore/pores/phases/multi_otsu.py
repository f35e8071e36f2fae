"""Multi-Otsu thresholds between several phases.

References
----------
P. Liao, T. Chen and P. Chung (2001), "A fast algorithm for multilevel thresholding", Journal of
Information Science and Engineering 17, 713-727. https://doi.org/10.6688/JISE.2001.17.5.1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from hushpore.base.arrays import Float64s, Int64s
    from hushpore.scan.histogram import Histogram

#: Maximum number of bins, as in `hushpore.scan.histogram.find_threshold`.
BINS = 256


def find_thresholds(histogram: Histogram, phases: int) -> tuple[float, ...]:
    """Return the thresholds between phases, in ascending order.

    The thresholds minimise the variance of the grey values within the phases. Each lies halfway
    between two occupied bins, so that rounding puts no value at a threshold. Dynamic programming
    takes ``phases * bins**2`` steps instead of the ``bins**(phases - 1)`` of an exhaustive search.

    `phases`: 2 or more.
    Raises InputError if there are fewer grey values than phases.
    """
    coarse = histogram.trimmed().coarser(BINS)
    full = coarse.counts > 0
    counts, centers = coarse.counts[full].astype(np.float64), coarse.centers[full]
    if counts.size < phases:
        raise InputError(
            f"Multi-Otsu cannot find {phases} phases in {counts.size} different grey values. "
            "Choose fewer phases, or give the thresholds."
        )
    between = _between(counts, centers)
    best = between[0]
    came_from: list[Int64s] = []
    for _ in range(phases - 1):
        # all earlier phases up to a bin, plus one phase from the next bin on
        joined = best[:-1, None] + between[1:]
        came_from.append(np.argmax(joined, axis=0))
        best = joined.max(axis=0)
    last, found = counts.size - 1, []
    for before in reversed(came_from):
        last = int(before[last])
        found.append(float(centers[last] + centers[last + 1]) / 2)
    return tuple(reversed(found))


def _between(counts: Float64s, centers: Float64s) -> Float64s:
    """Return the contribution of a phase from one bin to another to the between-phase variance.

    Returns: (first, last): square of the sum of its values over their count; minus infinity for an
    empty phase.
    """
    # relative to the mean: a large offset would cost precision
    shifted = centers - (counts @ centers) / counts.sum()
    weight = np.concatenate([[0.0], np.cumsum(counts)])
    moment = np.concatenate([[0.0], np.cumsum(counts * shifted)])
    number = weight[None, 1:] - weight[:-1, None]
    total = moment[None, 1:] - moment[:-1, None]
    added = np.full(number.shape, -np.inf)
    np.divide(total**2, number, out=added, where=number > 0)
    return added
