"""Detection of photon counts, whose noise is known without measuring it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hushpore.base.arrays import Float64s


#: Maximum deviation of a value from a whole number of counts, in counts.
_ROUNDING = 0.01

#: Number of counts above which the noise is normal, and float32 too coarse.
_MOST = 20_000

#: Minimum ratio of variance and mean, in counts, in dark and in bright flat regions.
_LEAST = 0.85
#: Maximum of the same ratio: regions that are not quite flat have a higher variance.
_LARGEST = 1.3


def find_count(values: Float64s, means: Float64s, variances: Float64s) -> float | None:
    """Return the grey value of one count, if the values are counts with Poisson noise.

    Counts are whole multiples of one grey value, and their variance equals their mean in dark and
    in bright flat regions. Integers of a camera or a reconstruction do not fulfil the latter.

    `values`: grey values from the whole volume. `means`, `variances`: of flat regions. Returns:
    None if the values are not counts.
    """
    count = _largest_unit(np.unique(values))
    if count is None:
        return None
    halves = np.array_split(np.argsort(means, kind="stable"), 2)
    sums = np.array([(means[half].sum(), variances[half].sum() / count) for half in halves])
    expected, found = sums[sums[:, 0] > 0].T
    fits = (found >= _LEAST * expected) & (found <= _LARGEST * expected)
    return count if fits.any() and fits.all() else None


def _largest_unit(values: Float64s) -> float | None:
    """Return the smallest difference of values, if all are whole multiples of it."""
    if len(values) < 2 or values[0] < 0:
        return None
    unit = float(np.diff(values).min())
    if values[-1] > _MOST * unit:
        return None
    # the highest value gives the most exact unit
    unit = float(values[-1]) / round(float(values[-1]) / unit)
    counts = values / unit
    return unit if np.abs(counts - counts.round()).max() < _ROUNDING else None
