from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import hushpore
from hushpore import Volume
from hushpore.denoising.noise import examine_residual, nyquist_energy
from hushpore.denoising.plane_reader import PlaneReader
from hushpore.scan.noise_model import NoiseDiagnosis, NoiseModel


def model_of(noise: NoiseDiagnosis) -> NoiseModel:
    """Return the model of white noise with a diagnosis."""
    covariance = np.zeros((7, 11, 11))
    covariance[3, 5, 5] = noise.noise**2
    none = np.zeros_like(covariance)
    line = noise.noise**2, 0.0
    return NoiseModel(covariance, none, 0.0, *line, np.empty(0), 1.0, 0.0, 100, diagnosis=noise)


WHITE = model_of(NoiseDiagnosis({"z": 0.0, "y": 0.0, "x": 0.0}, 20.0, 0.0, 400.0))


@pytest.fixture
def clean(rng: np.random.Generator) -> np.ndarray:
    return 100 * gaussian_filter(rng.normal(size=(4, 96, 96)), (0, 4, 4)) / 0.07


def test_noise_alone_removed_is_found_in_order(clean: np.ndarray, rng: np.random.Generator) -> None:
    noise = rng.normal(0, 20, clean.shape)
    found = examine_residual(PlaneReader(Volume(clean + noise), 2), clean, WHITE)
    assert found.mean == pytest.approx(noise.mean(), abs=1e-9)
    assert found.deviation == pytest.approx(noise.std(), rel=1e-9)
    assert all(abs(value) < 0.05 for value in found.correlation.values())
    assert list(found.correlation) == ["z", "y", "x"]
    assert found.match is not None
    assert found.match.share > 0.98
    assert found.problems == ()


def test_a_shift_of_grey_values_is_said(clean: np.ndarray, rng: np.random.Generator) -> None:
    noisy = Volume(clean + rng.normal(0, 20, clean.shape))
    found = examine_residual(PlaneReader(noisy, 2), clean - 5, WHITE)
    assert "has a mean of +4.96 (standard" in found.problems[0]


def test_image_that_went_with_the_noise_is_said(
    clean: np.ndarray, rng: np.random.Generator
) -> None:
    noisy = Volume(clean + rng.normal(0, 20, clean.shape))
    found = examine_residual(PlaneReader(noisy, 2), gaussian_filter(clean, (0, 8, 8)), WHITE)
    assert "structure along y and x" in found.problems[0]


def test_correlation_that_the_noise_had_before_is_no_structure(
    clean: np.ndarray, rng: np.random.Generator
) -> None:
    noise = gaussian_filter(rng.normal(0, 20, clean.shape), (0, 0, 1))
    correlated = model_of(NoiseDiagnosis({"z": 0.0, "y": 0.0, "x": 0.75}, 10.0))
    found = examine_residual(PlaneReader(Volume(clean + noise), 2), clean, correlated)
    assert found.correlation["x"] == pytest.approx(0.78, abs=0.05)
    assert found.problems == ()


def test_a_checkerboard_is_found_and_said(clean: np.ndarray, rng: np.random.Generator) -> None:
    board = 4 * (-1.0) ** np.indices(clean.shape[1:]).sum(0)
    noisy = Volume(clean + rng.normal(0, 20, clean.shape))
    found = examine_residual(PlaneReader(noisy, 2), clean + board, WHITE)
    assert min(found.nyquist.values()) > 10
    assert "checkerboard" in found.problems[-1]


def test_white_noise_has_as_much_energy_at_nyquist_as_below(rng: np.random.Generator) -> None:
    energy = nyquist_energy(rng.normal(size=(4000, 16, 16)))
    assert energy == {"y": pytest.approx(1, abs=0.05), "x": pytest.approx(1, abs=0.05)}
    assert nyquist_energy(np.zeros((3, 16, 16))) == {"y": 0, "x": 0}


@pytest.mark.parametrize("shape", [(20, 30), (1, 16, 16), (9, 17)])
def test_small_images_are_examined_too(rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    noisy = rng.normal(size=shape)
    found = examine_residual(PlaneReader(Volume(noisy), 2), np.zeros(shape), WHITE)
    assert found.deviation == pytest.approx(noisy.std())


def test_the_record_holds_what_was_removed(rng: np.random.Generator) -> None:
    noisy = rng.normal(100, 20, (2, 32, 32))
    result = hushpore.denoise(noisy, steps=3, patch_size=16, batch_size=2, device="cpu")
    residual = result.provenance["residual"]
    removed = noisy - result.volume.data
    assert residual["mean"] == pytest.approx(removed.mean(), rel=1e-6)
    assert residual["deviation"] == pytest.approx(removed.std(), rel=1e-6)
    assert set(residual["nyquist"]) == {"y", "x"}
