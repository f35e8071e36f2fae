"""Whether grey values are counts of photons: then their noise is known without measuring it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hushpore.n2v2.noise.diagnosis import draw_blocks, flattest_blocks

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume

#: How far a value may lie from a whole number of counts, and how many they may be: beyond that,
#: noise is normal, and float32 is too coarse.
_ROUNDING, _MOST = 0.01, 20_000

#: Variance over mean, in counts, in dark and in bright flat places. In places that are not quite
#: flat there is more.
_LEAST, _LARGEST = 0.85, 1.3


def find_count(volume: Volume, seed: int = 0) -> float | None:
    """Return the grey value of one count, where values are counts with the noise of such.

    Counts are whole multiples of one grey value, and their variance is their mean: in flat places,
    as `diagnose_noise` finds them, be they dark or bright. Integers of a camera or a reconstruction
    fail the latter.

    `volume`, `seed`: as for `diagnose_noise`.
    Returns: None where they are not.
    """
    blocks, _ = draw_blocks(volume, 1, np.random.default_rng(seed))
    count = _largest_unit(np.unique(blocks))
    if count is None:
        return None
    flat = blocks[flattest_blocks(blocks)] / count
    means = flat.mean((1, 2, 3))
    across = [np.diff(flat, 2, axis=axis).var((1, 2, 3)) for axis in (2, 3)]
    # white noise of variance v has second differences of variance (1 + 4 + 1) v
    variances = (across[0] + across[1]) / 12
    halves = np.array_split(np.argsort(means, kind="stable"), 2)
    sums = np.array([(means[half].sum(), variances[half].sum()) for half in halves])
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
