"""Comparison of two samples: distance of distributions, rank test, and shift of the median.

References
----------
H. B. Mann and D. R. Whitney (1947), "On a test of whether one of two random variables is
stochastically larger than the other", Annals of Mathematical Statistics 18, 50-60.
https://doi.org/10.1214/aoms/1177730491

B. Efron (1979), "Bootstrap methods: another look at the jackknife", Annals of Statistics 7, 1-26.
https://doi.org/10.1214/aos/1176344552
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hushpore.base.arrays import Float64s

#: Remark on every comparison of pores that has tests.
NOT_INDEPENDENT = (
    "Pores of one scan are not independent samples, so p and the interval are too optimistic. To "
    "compare materials, compare several scans of each."
)

_SAMPLES = 2000  # bootstrap samples: interval ends then vary by about 3 % of its length
_LEVEL = 0.95  # share of the bootstrap samples within the interval


def compare_samples(a: Float64s, b: Float64s) -> tuple[float, float, float, float]:
    """Compare two samples; four NaN if one is empty.

    Returns: the Kolmogorov-Smirnov distance; p of the two-sided Mann-Whitney test; both ends of the
    95 % bootstrap interval of the median of `b` minus that of `a` (fixed seed).
    """
    if not a.size or not b.size:
        return (float("nan"),) * 4
    from scipy.stats import mannwhitneyu

    rng = np.random.default_rng(0)
    medians = [_medians(each, rng) for each in (a, b)]
    low, high = np.quantile(medians[1] - medians[0], [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    # values that differ only by the rounding of a change of unit are ties
    a, b = a.astype(np.float32), b.astype(np.float32)
    places = np.concatenate([a, b])
    shares = [np.searchsorted(np.sort(each), places, "right") / each.size for each in (a, b)]
    distance = np.abs(shares[0] - shares[1]).max()
    are_one = min(a.min(), b.min()) == max(a.max(), b.max())
    p = 1.0 if are_one else mannwhitneyu(a, b, method="asymptotic").pvalue
    return float(distance), float(p), float(low), float(high)


def _medians(values: Float64s, rng: np.random.Generator) -> Float64s:
    """Return the medians of samples drawn from `values`, as many from each, with replacement.

    The ranks of the middle values follow from order statistics of a uniform sample, so that the
    samples themselves need not be drawn. Of 5,000
    pores that takes 0.003 s a column, and `scipy.stats.bootstrap` 0.8 s; of 100,000 0.06 and 8 s.
    """
    ordered, count = np.sort(values), values.size
    middle = (count + 1) // 2
    place = rng.beta(middle, count - middle + 1, _SAMPLES)
    lower: Float64s = ordered[np.minimum((place * count).astype(int), count - 1)]
    if count % 2:
        return lower
    place += (1 - place) * rng.beta(1, count - middle, _SAMPLES)
    upper = ordered[np.minimum((place * count).astype(int), count - 1)]
    middles: Float64s = (lower + upper) / 2
    return middles
