"""Noise that is stronger elsewhere than in the flattest regions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from hushpore import Volume
from hushpore.scan.noise import estimate_noise
from hushpore.scan.noise_strength import fine_variance, measure_strength


def correlated_noise(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return noise of unit variance, blurred within slices."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    blurred = ndimage.gaussian_filter(noise, (*[0] * (len(shape) - 2), 0.7, 0.7), mode="wrap")
    return np.asarray(blurred / blurred.std())


def test_fine_variance_is_that_of_differences_of_such_noise() -> None:
    noise = correlated_noise((40, 64, 64), 0)
    lags = range(-3, 4)
    autocovariance = np.array(
        [[np.mean(noise * np.roll(noise, (y, x), (1, 2))) for x in lags] for y in lags]
    )
    fine = np.diff(np.diff(noise, 2, axis=-1), 2, axis=-2)
    assert fine_variance(autocovariance) == pytest.approx(fine.var(), rel=0.02)


@pytest.mark.parametrize("true", [0.9, 1.0, 1.3])
def test_strength_of_noise_among_edges(true: float) -> None:
    white = np.zeros((7, 7))
    white[3, 3] = 1.0
    boxes = true * np.random.default_rng(0).standard_normal((400, 6, 12, 12))
    # an edge in every fourth box, slanted so that differences do not remove it; a little blurred
    y, x = np.indices((12, 12))
    boxes[::4] += 6.0 / (1 + np.exp(-2 * (y + 0.5 * x - 9)))
    # weaker noise is what the flattest regions say
    assert measure_strength(boxes, boxes[:0, 0, 0, :2], white, (1.0, 0.0)).factor == pytest.approx(
        max(true, 1.0), abs=0.04
    )


def test_weak_noise_is_not_corrected_by_image_structure() -> None:
    white = np.zeros((7, 7))
    white[3, 3] = 1e-4
    boxes = np.random.default_rng(0).random((100, 6, 12, 12))
    assert measure_strength(boxes, boxes[:0, 0, 0, :2], white, (1.0, 0.0)).factor == 1.0


def test_noise_is_not_that_of_the_calmest_place() -> None:
    """Dense sample: calm and flat at its rim, stronger noise and pores in its middle."""
    shape = (24, 128, 128)
    rng = np.random.default_rng(3)
    y, x = np.indices(shape[1:]) - 63.5
    away = np.hypot(y, x) / 64
    strength = np.where(away < 0.75, 1.5, 1.0)
    pores = ndimage.gaussian_filter(rng.standard_normal(shape), 1.5) > 0.1
    clean = np.where(pores & (away < 0.75), 0.0, 4.0)
    # the detector blurs the image as the noise
    clean = ndimage.gaussian_filter(clean, (0, 0.7, 0.7))
    scan = clean + correlated_noise(shape, 4) * strength
    model = estimate_noise(Volume(scan.astype(np.float32), axes="zyx"))
    true = float(np.sqrt(np.mean(np.broadcast_to(strength, shape) ** 2)))
    assert model.deviation == pytest.approx(true, rel=0.05)
    # and it is known where it is stronger
    assert model.strength is not None
    assert model.strength[12, 12] * model.deviation == pytest.approx(1.5, rel=0.05)
    assert model.strength[1, 1] * model.deviation == pytest.approx(1.0, rel=0.07)


def test_uniform_noise_has_no_map() -> None:
    noise = correlated_noise((16, 96, 96), 5)
    assert estimate_noise(Volume(noise.astype(np.float32), axes="zyx")).strength is None
