"""Tests and intervals of two samples, of which it is known how they differ."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hushpore.runs.two_samples import ks_distance, mann_whitney, shift_of_medians


@pytest.mark.parametrize("sizes", [(40, 31), (8, 200)])
def test_the_interval_is_that_of_samples_drawn_one_by_one(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.lognormal(size=sizes[0]), rng.lognormal(0.5, size=sizes[1])
    drawn = [np.median(rng.choice(each, (20_000, each.size)), axis=1) for each in (a, b)]
    expected = np.quantile(drawn[1] - drawn[0], [0.025, 0.975])
    spread = expected[1] - expected[0]
    assert shift_of_medians(a, b) == pytest.approx(tuple(expected), abs=0.06 * spread)
    assert shift_of_medians(a, b) == shift_of_medians(a, b)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        low, high = shift_of_medians(rng.normal(0, 1, 101), rng.normal(0.3, 1, 80))
        held += low <= 0.3 <= high
    # 190 of 200, and three standard deviations of that
    assert 180 <= held <= 200


def test_the_test_is_that_of_scipy_whatever_the_unit() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(1, 9, 60) * 0.1, rng.integers(2, 9, 50) * 0.1
    expected = stats.mannwhitneyu(a, b, method="asymptotic").pvalue
    assert mann_whitney(a, b) == pytest.approx(expected)
    # equal but for rounding
    assert mann_whitney(a, b * 1e-6 * 1e6) == pytest.approx(expected)
    assert ks_distance(a, b) == pytest.approx(stats.ks_2samp(a, b).statistic)


def test_what_is_alike_differs_by_nothing() -> None:
    a = np.full(7, 3.0)
    assert mann_whitney(a, a) == 1
    assert shift_of_medians(a, a) == (0, 0)
    assert all(np.isnan([mann_whitney(a, a[:0]), *shift_of_medians(a[:0], a)]))
