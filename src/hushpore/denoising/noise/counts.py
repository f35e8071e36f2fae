"""Whether grey values are counts of photons: then their noise is known without measuring it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

#: How far a value may lie from a whole number of counts, in counts.
_ROUNDING = 0.01

#: Counts of a voxel beyond which noise is normal, and float32 too coarse.
_MOST = 20_000

#: Variance over mean, in counts, at least, in dark and in bright flat places.
_LEAST = 0.85
#: The same at most: in places that are not quite flat there is more.
_LARGEST = 1.3


def find_count(
    values: npt.NDArray[np.float64],
    means: npt.NDArray[np.float64],
    variances: npt.NDArray[np.float64],
) -> float | None:
    """Return the grey value of one count, where values are counts with the noise of such.

    Counts are whole multiples of one grey value, and their variance is their mean: in flat places,
    be they dark or bright. Integers of a camera or a reconstruction fail the latter.

    `values`: grey values from all over. `means`, `variances`: of flat places.
    Returns: None where they are not.
    """
    count = _largest_unit(np.unique(values))
    if count is None:
        return None
    halves = np.array_split(np.argsort(means, kind="stable"), 2)
    sums = np.array([(means[half].sum(), variances[half].sum() / count) for half in halves])
    expected, found = sums[sums[:, 0] > 0].T
    fits = (found >= _LEAST * expected) & (found <= _LARGEST * expected)
    return count if fits.any() and fits.all() else None


def _largest_unit(values: npt.NDArray[np.float64]) -> float | None:
    """Return the least difference of values, where all are whole multiples of it."""
    if len(values) < 2 or values[0] < 0:
        return None
    unit = float(np.diff(values).min())
    if values[-1] > _MOST * unit:
        return None
    # the highest says most exactly what one is
    unit = float(values[-1]) / round(float(values[-1]) / unit)
    counts = values / unit
    return unit if np.abs(counts - counts.round()).max() < _ROUNDING else None
