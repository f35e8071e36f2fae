"""Size distributions: their data, percentiles and fits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hushpore.base.distributions import cumulative, lognormal_fit, percentiles
from hushpore.figures.drawing import PAPER, add_plots, new_figure
from hushpore.figures.size_plots import distribution_table, draw_distribution

SIZES = np.random.default_rng(3).lognormal(np.log(7), 0.4, 4000)


def test_percentiles_are_those_of_repeated_sizes() -> None:
    rng = np.random.default_rng(0)
    sizes, weights = rng.uniform(1, 5, 200), rng.integers(1, 9, 200)
    repeated = np.repeat(sizes, weights)
    expected = np.quantile(repeated, (0.1, 0.5, 0.9), method="inverted_cdf")
    np.testing.assert_array_equal(percentiles(sizes, weights.astype(float)), expected)


def test_a_fit_is_scipys_and_its_distance_that_of_its_test() -> None:
    fit = lognormal_fit(SIZES, np.ones(SIZES.size))
    shape, _, scale = stats.lognorm.fit(SIZES, floc=0)
    assert fit is not None
    assert fit.median == pytest.approx(scale, rel=1e-6)
    assert fit.geometric_deviation == pytest.approx(np.exp(shape), rel=1e-6)
    expected = stats.kstest(SIZES, stats.lognorm(shape, scale=scale).cdf).statistic
    assert fit.distance == pytest.approx(expected, rel=1e-3)
    assert lognormal_fit(np.array([0.0, 1.0]), np.ones(2)) is None


@pytest.mark.parametrize("log", [False, True])
def test_the_fit_of_a_table_agrees_with_log_normal_sizes(log: bool) -> None:
    table = distribution_table(SIZES, np.ones(SIZES.size), log=log, bins=12)
    assert len(table) == 12
    np.testing.assert_allclose(table["lognormal"], table["share"], atol=0.02)


def test_a_thinned_cumulative_curve_keeps_large_pores() -> None:
    # half of the volume is in one pore of many
    sizes, volumes = np.r_[SIZES, 90.0], np.r_[np.ones(SIZES.size), 4000.0]
    table = distribution_table(sizes, volumes, is_cumulative=True)
    assert len(table) <= 1000
    rising, shares = cumulative(sizes, volumes)
    # the curve is drawn in steps
    places = np.searchsorted(table["size"], rising, side="right") - 1
    found = table["cumulative"].to_numpy()[places]
    np.testing.assert_allclose(found, shares, atol=0.0025)
    assert table["size"].iloc[-1] == 90


@pytest.mark.parametrize("is_cumulative", [False, True])
@pytest.mark.parametrize("log", [False, True])
def test_lines_are_at_the_percentiles(is_cumulative: bool, log: bool) -> None:
    (axes,) = add_plots(new_figure(3, 3), 1)
    weights = np.ones(SIZES.size)
    table = distribution_table(SIZES, weights, is_cumulative=is_cumulative, log=log)
    draw_distribution(axes, SIZES, weights, table, "mm", PAPER, log=log)
    found = [line.get_xdata()[0] for line in axes.lines[-3:]]
    expected = np.quantile(SIZES, (0.1, 0.5, 0.9), method="inverted_cdf")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("sizes", [[], [2.0], [0.0, 1.0], [np.nan, 3.0]])
@pytest.mark.parametrize("is_cumulative", [False, True])
def test_few_sizes_are_drawn_without_a_fit(sizes: list[float], is_cumulative: bool) -> None:
    (axes,) = add_plots(new_figure(3, 3), 1)
    values, weights = np.array(sizes), np.ones(len(sizes))
    table = distribution_table(values, weights, is_cumulative=is_cumulative)
    draw_distribution(axes, values, weights, table, "mm", PAPER)
    assert "lognormal" not in table
