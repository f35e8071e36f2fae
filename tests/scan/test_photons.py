"""Photon noise with a gain and read noise, as in micrographs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import hushpore
from hushpore.base.volume import Volume
from hushpore.denoising.automatic import decide_method
from hushpore.denoising.settings import DenoiseSettings
from hushpore.scan.noise import estimate_noise
from hushpore.scan.photons import measure_photon_noise


def micrograph(seed: int = 0, size: int = 256) -> np.ndarray:
    """Return bright spots on a dark background, without noise, 5 to 220."""
    spots = np.random.default_rng(seed).random((size, size)) > 0.998
    smooth = gaussian_filter(spots.astype(float), 5)
    return 5 + 215 * np.clip(smooth / smooth.max(), 0, 1)


def photographed(clean: np.ndarray, gain: float, read: float, black: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(1)
    return black + gain * rng.poisson(clean / gain) + rng.normal(0, read, clean.shape)


def boxes_of(image: np.ndarray) -> np.ndarray:
    corners = np.random.default_rng(2).integers(0, np.array(image.shape) - 16, (1000, 2))
    return np.stack([image[y : y + 16, x : x + 16] for y, x in corners])


@pytest.mark.parametrize(("gain", "read", "black"), [(2.0, 4.0, 100.0), (10.0, 3.0, 0.0)])
def test_gain_and_read_noise_of_a_camera_are_found(gain: float, read: float, black: float) -> None:
    found = measure_photon_noise(boxes_of(photographed(micrograph(), gain, read, black)))
    assert found is not None
    assert found.slope == pytest.approx(gain, rel=0.1)
    # read noise of variance v is that of v / gain**2 photons at the black level
    assert found.zero == pytest.approx(black - read**2 / gain, abs=0.3 * gain)


def test_clipped_eight_bit_images_have_their_noise_measured_in_cells_and_background() -> None:
    clean = micrograph()
    noisy = np.clip(photographed(clean, 10, 3).round(), 0, 255).astype(np.uint8)
    model = estimate_noise(Volume(noisy, axes="yx"))
    assert model.count == pytest.approx(10, rel=0.1)
    assert model.deviation == pytest.approx((noisy - clean).std(), rel=0.05)
    assert model.doubts == ()
    assert model.diagnosis.is_independent
    record = model.to_dict()
    assert record["count"] == model.count
    assert record["zero"] == model.zero


@pytest.mark.parametrize(("gain", "method"), [(4, "r2r"), (40, "n2v2")])
def test_blind_spots_are_used_below_one_and_a_half_photons(gain: float, method: str) -> None:
    noisy = photographed(micrograph(), gain, 1)
    found = estimate_noise(Volume(noisy, axes="yx"))
    task = SimpleNamespace(settings=DenoiseSettings(), may_draw_noise=True)
    chosen = decide_method(task, found, float(noisy.std()))  # type: ignore[arg-type]
    assert chosen.name == method
    assert chosen.reason is not None
    assert "photons" in chosen.reason.message


@pytest.mark.parametrize("kind", ["uniform", "correlated", "none"])
def test_other_noise_is_not_taken_for_that_of_photons(kind: str) -> None:
    clean = micrograph()
    image = {
        "uniform": clean + np.random.default_rng(1).normal(0, 10, clean.shape),
        "correlated": gaussian_filter(photographed(clean, 10, 3), 0.7),
        "none": clean,
    }[kind]
    assert measure_photon_noise(boxes_of(image)) is None


def test_few_or_small_boxes_give_no_estimate() -> None:
    noisy = photographed(micrograph(), 10, 3)
    assert measure_photon_noise(boxes_of(noisy)[:20]) is None
    assert measure_photon_noise(noisy[None, :6, :6]) is None


def test_a_short_training_on_a_micrograph_is_better_than_the_best_gaussian() -> None:
    clean = gaussian_filter(np.where(micrograph(3, 128) > 60, 180.0, 8.0), 0.7)
    noisy = np.clip(photographed(clean, 8, 3).round(), 0, 255).astype(np.uint8)
    settings = {"steps": 30, "patch_size": 32, "batch_size": 4, "device": "cpu"}
    result = hushpore.denoise(Volume(noisy, axes="yx"), **settings)
    assert any("one photon" in note for note in result.notes)
    assert result.provenance["network"]["method"] == "r2r"

    def error(image: np.ndarray) -> float:
        return float(np.mean((np.asarray(image, np.float64) - clean) ** 2))

    best = min(error(gaussian_filter(noisy.astype(float), w)) for w in (0.5, 0.7, 0.8, 1.2, 1.6))
    assert error(np.asarray(result.volume.data)) < best
