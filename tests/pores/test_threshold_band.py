"""Thresholds that a scan cannot tell apart, on balls of known grey values, noise and blur."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from hushpore.pores.threshold_band import shares_of_void, threshold_band


def scan(noise: float, blur: float = 1.0) -> np.ndarray:
    """A dark ball of radius 12 and grey value 100 in a solid of 200."""
    away = np.linalg.norm(np.indices((40,) * 3) - 19.5, axis=0)
    grey = ndimage.gaussian_filter(np.where(away <= 12, 100.0, 200.0), blur)
    return grey + np.random.default_rng(0).normal(0, noise, grey.shape)


NOWHERE = np.zeros((40,) * 3, bool)


def test_the_middle_between_the_phases_cannot_be_told_from_what_was_taken() -> None:
    for threshold in (130.0, 150.0, 170.0):
        low, high = threshold_band(scan(2), NOWHERE, threshold, 12)
        assert low <= min(threshold, 150)
        assert high >= max(threshold, 150)
        assert high - low < 60


def test_without_noise_a_small_part_of_a_voxel_is_left() -> None:
    # the slope of an edge of 100 that is blurred by 1 voxel: 39.9 a voxel, less between voxels
    low, high = threshold_band(scan(0), NOWHERE, 150, 40)
    assert (150 - low, high - 150) == (pytest.approx(5.2, abs=1.5), pytest.approx(5.2, abs=1.5))


def test_noise_moves_the_threshold_away_from_the_rarer_phase() -> None:
    # by its variance over the contrast, times the logarithm of how much rarer: 25 / 100 * log(0.13)
    quiet, noisy = (threshold_band(scan(noise), NOWHERE, 150, 12) for noise in (0, 20))
    assert quiet.low - noisy.low == pytest.approx(400 / 100 * np.log(0.872 / 0.128), rel=0.4)
    assert noisy.high == pytest.approx(quiet.high, abs=3)


def test_the_smaller_pores_are_for_the_blur_the_farther_it_may_lie() -> None:
    wide, narrow = (threshold_band(scan(0, 1.5), NOWHERE, 150, radius) for radius in (40, 4))
    assert narrow.high - narrow.low > 2 * (wide.high - wide.low)


def test_what_is_outside_the_sample_does_not_count() -> None:
    grey = scan(2)
    outside = NOWHERE.copy()
    outside[:8] = True
    grey[:8] = 5000
    low, high = threshold_band(grey, outside, 150, 12)
    assert 120 < low < high < 180


def test_of_one_phase_alone_nothing_is_known() -> None:
    assert threshold_band(scan(2), NOWHERE, 5000, 12) == (5000, 5000)


def test_the_quieter_phase_draws_the_threshold_near() -> None:
    away = np.linalg.norm(np.indices((40,) * 3) - 19.5, axis=0)
    noise = np.random.default_rng(0).normal(0, 1, away.shape) * np.where(away <= 12, 25, 3)
    grey = np.where(away <= 12, 100.0, 200.0) + noise
    low, high = threshold_band(grey, NOWHERE, 150, 12)
    # where both are as likely: 200 - 3 x with exp(-x^2 / 2) / 3 as much as of the ball at 25
    assert high > 180
    assert 100 < low <= 150


@pytest.mark.parametrize("bright", [False, True])
def test_the_share_of_void_is_told_without_a_threshold(bright: bool) -> None:
    grey = np.rint(100 * scan(12)).astype(np.uint16)
    void = float((np.linalg.norm(np.indices((40,) * 3) - 19.5, axis=0) <= 12).mean())
    for share in shares_of_void(grey, NOWHERE, bright=bright):
        assert share == pytest.approx(1 - void if bright else void, abs=0.02)
    assert len(shares_of_void(grey, NOWHERE, bright=bright)) == 3
    assert (
        shares_of_void(
            np.random.default_rng(0).normal(0, 9, (9,) * 3), NOWHERE[:9, :9, :9], bright=bright
        )
        == []
    )
