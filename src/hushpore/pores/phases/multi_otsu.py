"""The grey values that part several phases best, by Otsu's measure.

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
    import numpy.typing as npt

    from hushpore.pores.void.histogram import Histogram

#: Bins that are looked at, as by `hushpore.pores.void.histogram.find_threshold`.
BINS = 256


def find_thresholds(histogram: Histogram, phases: int) -> tuple[float, ...]:
    """Return the thresholds between phases, rising.

    Each lies halfway between two bins that hold values, so that none is at a threshold, however
    values are rounded. They are those between which grey values vary least, summed over all phases.
    What is best for the first phases up to a bin is found once, whatever comes behind it: so it
    takes ``phases * bins**2`` steps, and never the ``bins**(phases - 1)`` that all choices are.

    `phases`: 2 or more.
    Raises InputError if there are fewer grey values than phases.
    """
    coarse = histogram.trimmed().coarser(BINS)
    full = coarse.counts > 0
    counts, centers = coarse.counts[full].astype(np.float64), coarse.centers[full]
    if counts.size < phases:
        raise InputError(
            f"Multi-Otsu finds no {phases} phases in {counts.size} different grey values. Set "
            "fewer phases, or give the thresholds."
        )
    between = _between(counts, centers)
    best = between[0]
    came_from: list[npt.NDArray[np.int64]] = []
    for _ in range(phases - 1):
        # of the phases before, up to a bin, and one more from the next bin on
        joined = best[:-1, None] + between[1:]
        came_from.append(np.argmax(joined, axis=0))
        best = joined.max(axis=0)
    last, found = counts.size - 1, []
    for before in reversed(came_from):
        last = int(before[last])
        found.append(float(centers[last] + centers[last + 1]) / 2)
    return tuple(reversed(found))


def _between(
    counts: npt.NDArray[np.float64], centers: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return what a phase from one bin to another adds to the variance between phases.

    (first, last): the square of the sum of its values over their number; what has no bin at all is
    minus infinity.
    """
    # about the mean, so that the squares are not those of an offset
    shifted = centers - (counts @ centers) / counts.sum()
    weight = np.concatenate([[0.0], np.cumsum(counts)])
    moment = np.concatenate([[0.0], np.cumsum(counts * shifted)])
    number = weight[None, 1:] - weight[:-1, None]
    total = moment[None, 1:] - moment[:-1, None]
    added = np.full(number.shape, -np.inf)
    np.divide(total**2, number, out=added, where=number > 0)
    return added
