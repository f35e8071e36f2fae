"""The match of the residual with the noise, in cases that are known exactly."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from hushpore import Volume
from hushpore.denoising.noise import examine_residual, match_noise, windowed_spectrum
from hushpore.denoising.plane_reader import PlaneReader
from hushpore.scan.noise import estimate_noise
from hushpore.scan.noise_model import NoiseModel


def model_of(kernel: np.ndarray, sd: float, **more: object) -> NoiseModel:
    """Return the noise model of white noise convolved with a kernel of odd edges, in 2D."""
    full = np.fft.irfft2(np.abs(np.fft.rfft2(kernel, (16, 16))) ** 2, (16, 16))
    lags = np.arange(-5, 6) % 16
    covariance = sd**2 * full[np.ix_(lags, lags)] / full[0, 0]
    zero = np.zeros_like(covariance)
    plain = NoiseModel(covariance, zero, 0.0, sd**2, 0.0, np.empty(0), 1.0, 0.0, 100)
    return dataclasses.replace(plain, **more)


WHITE = model_of(np.ones((1, 1)), 20.0)
BLUR = np.outer([1.0, 2.0, 1.0], [1.0, 2.0, 1.0])


def blocks_of(noise: np.ndarray) -> np.ndarray:
    """Return blocks of 16 x 16 pixels of slices, (n, 1, 16, 16)."""
    n, height, width = noise.shape
    cut = noise.reshape(n, height // 16, 16, width // 16, 16)
    return cut.transpose(0, 1, 3, 2, 4).reshape(-1, 1, 16, 16)


@pytest.fixture
def noise(rng: np.random.Generator) -> np.ndarray:
    return blocks_of(rng.normal(0, 20, (20, 128, 128)))


MIDDLES = np.full((1280, 2), 0.5)
FLAT = np.zeros((1280, 1, 16, 16))


def test_white_noise_that_is_removed_wholly_matches(noise: np.ndarray) -> None:
    found = match_noise(noise, FLAT, MIDDLES, WHITE)
    assert found is not None
    assert found.share > 0.98
    assert found.noise == pytest.approx([1.0] * 8)
    assert found.flat == pytest.approx([1.0] * 8, abs=0.1)


def test_a_part_of_the_noise_that_is_left_is_found(noise: np.ndarray) -> None:
    found = match_noise(0.7 * noise, FLAT, MIDDLES, WHITE)
    assert found is not None
    # 0.3 of the noise is in the result: 9 % of its power
    assert found.noise_left == pytest.approx(0.09, abs=0.01)
    assert found.image_lost == 0
    assert found.share == pytest.approx(1 / 1.09, abs=0.01)


def test_half_an_edge_that_was_removed_is_found(noise: np.ndarray) -> None:
    edge = np.zeros((1280, 1, 16, 16))
    # in every tenth block, half of a step of 200
    edge[::10, ..., 8:] = 100.0
    edge[::10] -= 50.0
    found = match_noise(noise + edge, edge, MIDDLES, WHITE)
    assert found is not None
    window = np.outer(*[np.hanning(18)[1:-1]] * 2)
    lost = np.mean((edge * window) ** 2) / np.mean((20 * window) ** 2)
    assert found.image_lost == pytest.approx(lost, abs=0.02)
    assert lost > 0.5
    assert found.noise_left < 0.01
    assert found.share < 0.68
    assert max(found.edges) > 2 * max(found.flat)


def test_correlated_noise_is_compared_with_its_own_spectrum(rng: np.random.Generator) -> None:
    white = rng.normal(size=(20, 130, 130))
    blurred = sum(
        BLUR[y, x] * white[:, y : y + 128, x : x + 128] for y in range(3) for x in range(3)
    )
    residual = blocks_of(20 * np.asarray(blurred) / np.sqrt((BLUR**2).sum()))
    mine = match_noise(residual, FLAT, MIDDLES, model_of(BLUR, 20.0))
    other = match_noise(residual, FLAT, MIDDLES, WHITE)
    assert mine is not None
    assert other is not None
    assert mine.share > 0.98
    assert other.share < 0.7
    window = np.outer(*[np.hanning(18)[1:-1]] * 2)
    measured = (np.abs(np.fft.fft2(residual * window)) ** 2).mean((0, 1))
    expected = windowed_spectrum(model_of(BLUR, 20.0).autocovariance, 16)
    assert measured == pytest.approx(expected, rel=0.2, abs=0.005 * expected.max())


def test_noise_that_grows_with_the_grey_value_and_differs_by_place(noise: np.ndarray) -> None:
    bright = np.arange(1280) % 2
    residual = noise * np.sqrt(1 + 2 * bright)[:, None, None, None]
    denoised = FLAT + 100.0 * bright[:, None, None, None]
    grows = dataclasses.replace(WHITE, offset=400.0, slope=8.0)
    middles = np.column_stack([0.25 + 0.5 * bright, np.full(1280, 0.5)])
    varies = dataclasses.replace(WHITE, strength=np.sqrt([[1.0], [3.0]]).astype(np.float32))
    for model in (grows, varies):
        found = match_noise(residual, denoised, middles, model)
        assert found is not None
        assert found.share > 0.98
    plain = match_noise(residual, denoised, middles, WHITE)
    assert plain is not None
    assert plain.share < 0.6


def test_there_is_no_figure_where_nothing_is_known(noise: np.ndarray) -> None:
    assert match_noise(0 * noise, FLAT, MIDDLES, WHITE) is None
    assert match_noise(noise[:10], FLAT[:10], MIDDLES[:10], WHITE) is None
    doubtful = dataclasses.replace(WHITE, doubts=("No region is flat enough.",))
    assert match_noise(noise, FLAT, MIDDLES, doubtful) is None


def test_results_of_a_scan_are_ranked_by_their_error(rng: np.random.Generator) -> None:
    blobs = gaussian_filter(rng.normal(size=(12, 128, 128)), (4, 8, 8), mode="wrap")
    clean = 100.0 * (blobs > 0)
    noisy = clean + gaussian_filter(rng.normal(0, 50, clean.shape), (0, 0.7, 0.7))
    # a round field of view
    y, x = np.indices(clean.shape[1:]) - 63.5
    noisy[:, np.hypot(y, x) > 63] = -500
    results = {
        "clean": np.where(noisy > -500, clean, -500),
        **{f"blur {s}": gaussian_filter(noisy, (0, s, s)) for s in (0.3, 1, 2, 4)},
    }
    model = estimate_noise(Volume(noisy))
    shares, errors = [], []
    inside = np.broadcast_to(np.hypot(y, x) < 50, clean.shape)
    for image in results.values():
        found = examine_residual(PlaneReader(Volume(noisy), 2), image, model).match
        assert found is not None
        shares.append(found.share)
        errors.append(np.mean((image - clean)[inside] ** 2))
    assert shares[0] > 0.9
    assert np.argsort(shares)[::-1].tolist() == np.argsort(errors).tolist()
