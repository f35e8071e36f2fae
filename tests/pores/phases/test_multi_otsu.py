"""Thresholds of several phases against scikit-image's, and against all that there are."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from skimage.filters import threshold_multiotsu

from hushpore import InputError
from hushpore.pores.phases.labelling import find_thresholds
from hushpore.scan.histogram import Histogram, find_threshold


def histogram(means: tuple[float, ...], seed: int, bins: int = 100) -> Histogram:
    rng = np.random.default_rng(seed)
    values = np.concatenate([rng.normal(mean, 8, rng.integers(500, 3000)) for mean in means])
    counts, edges = np.histogram(values, bins)
    return Histogram(counts, (edges[1:] + edges[:-1]) / 2)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("means", [(40, 90), (40, 90, 150), (40, 60, 150, 170)])
def test_they_are_those_of_scikit_image(means: tuple[float, ...], seed: int) -> None:
    grey = histogram(means, seed)
    expected = threshold_multiotsu(hist=(grey.counts, grey.centers), classes=len(means))
    # where bins are empty, one threshold is as good as the next
    values = grey.centers[grey.counts > 0]
    found = np.searchsorted(find_thresholds(grey, len(means)), values)
    np.testing.assert_array_equal(found, np.searchsorted(expected, values))


def test_the_lowest_is_that_of_pores() -> None:
    grey = histogram((40, 90, 150), 7, 900)
    values = grey.coarser(256).centers[grey.coarser(256).counts > 0]
    darkest = values <= find_threshold(grey, "otsu", 3)
    np.testing.assert_array_equal(values <= find_thresholds(grey, 3)[0], darkest)


@pytest.mark.parametrize("phases", [5, 6, 8])
def test_no_other_thresholds_vary_less_within_phases(phases: int) -> None:
    counts = np.random.default_rng(phases).integers(0, 50, 13)
    grey = Histogram(counts, np.arange(13.0) + 1000)
    full = np.flatnonzero(counts)

    def within(splits: tuple[int, ...]) -> float:
        parts = np.split(np.repeat(grey.centers, counts), np.cumsum(counts)[list(splits)])
        return float(sum(part.size * part.var() for part in parts))

    best = min(within(splits) for splits in combinations(full[:-1].tolist(), phases - 1))
    found = tuple(int(full[full < value - 1000][-1]) for value in find_thresholds(grey, phases))
    assert within(found) == pytest.approx(best)


def test_eight_phases_of_many_levels_take_no_choice_of_all_of_them() -> None:
    # 256 bins have 1e13 choices
    grey = histogram(tuple(range(20, 180, 20)), 0, 4000)
    found = find_thresholds(grey, 8)
    assert len(found) == 7
    np.testing.assert_allclose(found, np.arange(30, 170, 20), atol=4)


def test_fewer_grey_values_than_phases_are_refused() -> None:
    grey = Histogram(np.array([5, 0, 0, 5]), np.arange(4.0))
    assert find_thresholds(grey, 2) == (1.5,)
    with pytest.raises(InputError, match="cannot find 3 phases in 2 different grey values"):
        find_thresholds(grey, 3)
