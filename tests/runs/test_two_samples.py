"""Tests and intervals of two samples, of which it is known how they differ."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hushpore.runs.compare import compare_samples


@pytest.mark.parametrize("sizes", [(40, 31), (8, 200)])
def test_the_interval_is_that_of_samples_drawn_one_by_one(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.lognormal(size=sizes[0]), rng.lognormal(0.5, size=sizes[1])
    drawn = [np.median(rng.choice(each, (20_000, each.size)), axis=1) for each in (a, b)]
    expected = np.quantile(drawn[1] - drawn[0], [0.025, 0.975])
    spread = expected[1] - expected[0]
    assert compare_samples(a, b)[2:] == pytest.approx(tuple(expected), abs=0.06 * spread)
    assert compare_samples(a, b) == compare_samples(a, b)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        _, _, low, high = compare_samples(rng.normal(0, 1, 101), rng.normal(0.3, 1, 80))
        held += low <= 0.3 <= high
    # 190 of 200, and three standard deviations of that
    assert 180 <= held <= 200


def test_the_test_is_that_of_scipy_whatever_the_unit() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(1, 9, 60) * 0.1, rng.integers(2, 9, 50) * 0.1
    p = stats.mannwhitneyu(a, b, method="asymptotic").pvalue
    distance = stats.ks_2samp(np.round(a, 1), np.round(b, 1)).statistic
    # the second time equal but for rounding
    for other in (b, b * 1e-6 * 1e6):
        assert compare_samples(a, other)[:2] == pytest.approx((distance, p))


def test_what_is_alike_differs_by_nothing() -> None:
    a = np.full(7, 3.0)
    assert compare_samples(a, a) == (0, 1, 0, 0)
    for empty in (compare_samples(a, a[:0]), compare_samples(a[:0], a)):
        assert all(np.isnan(empty))
