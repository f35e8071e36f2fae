from __future__ import annotations

import math

import pytest

from hushpore.denoising.training.schedule import (
    CHECK_INTERVAL,
    FIRST_CHECK,
    LEAST_GAIN,
    find_plateau,
    gain_of_doubling,
)

STEPS = range(25, 3001, 25)


def falling(noise: float, error: float, power: float = 1.0) -> list[tuple[int, float]]:
    """Return a loss that is noise and an error, which is `error` after 100 steps."""
    return [(step, noise + error * (step / 100) ** -power) for step in STEPS]


def test_a_training_ends_once_its_loss_has_come_down_to_the_noise() -> None:
    # which an error of less than nothing, of what was learnt by heart, does to it
    curve = [(step, 1.05 - 0.1 * step / 1000) for step in STEPS]
    end = find_plateau(curve, noise=1.0)
    assert end is not None
    # the mean of some points lags behind
    assert 500 <= end <= 500 + 2 * CHECK_INTERVAL
    # with the noise unknown, that it falls steadily is all that there is to see
    assert find_plateau(curve, noise=None) is None


def test_a_training_ends_where_its_loss_does_not_fall() -> None:
    assert find_plateau([(step, 1.3) for step in STEPS], noise=1.0) == FIRST_CHECK
    assert find_plateau([(step, 1.3) for step in STEPS], noise=None) == FIRST_CHECK


def test_a_training_goes_on_while_a_doubling_halves_its_error() -> None:
    curve = falling(noise=1.0, error=4.0)
    assert find_plateau(curve, noise=1.0, before=1500) is None
    # 3 dB, but for the mean over some points
    assert gain_of_doubling(curve, 800, noise=1.0) == pytest.approx(3.0, abs=0.3)


def test_an_error_that_hardly_falls_ends_it_where_a_doubling_gains_too_little() -> None:
    power = 0.5 * LEAST_GAIN / (10 * math.log10(2))
    assert find_plateau(falling(1.0, 4.0, power), noise=1.0) == FIRST_CHECK
    assert find_plateau(falling(1.0, 4.0, 4 * power), noise=1.0, before=1500) is None


def test_what_comes_later_does_not_change_the_decision() -> None:
    curve = [(step, 1.05 - 0.1 * step / 1000) for step in STEPS]
    end = find_plateau(curve, noise=1.0)
    assert end is not None
    upto = [point for point in curve if point[0] <= end]
    assert find_plateau(upto, noise=1.0) == end
    assert find_plateau(upto[:-1], noise=1.0) is None
    assert find_plateau([], noise=1.0) is None
