from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

import hushpore
from hushpore.denoising.images import Images
from hushpore.denoising.plane_reader import Scale
from hushpore.denoising.recorruption import Thinning


@pytest.mark.parametrize("mean", [0.7, 40.0])
def test_counts_are_parted_into_two_independent_images_of_the_same_mean(mean: float) -> None:
    unit, scale = 0.25, Scale((1.0,), (2.0,))
    counts = np.random.default_rng(0).poisson(mean, (1, 200, 200))
    images = Images.of(torch.from_numpy((counts * unit - 1.0) / 2.0).float())
    corners, turned = torch.tensor([[0, 0, 0]]), torch.zeros((1, 3), dtype=torch.bool)
    thinning = Thinning.of(unit, scale)
    drawn = torch.Generator().manual_seed(0)
    pair = thinning.pairs(images, corners, (200, 200), turned, drawn)
    seen, wanted = ((2.0 * each.numpy().ravel() + 1.0) / unit for each in pair)
    assert seen.mean() == pytest.approx(mean, rel=0.02)
    assert wanted.mean() == pytest.approx(mean, rel=0.03)
    assert seen.var() == pytest.approx(mean * thinning.input_variance, rel=0.05)
    assert wanted.var() == pytest.approx(mean * thinning.target_variance, rel=0.05)
    # two Poisson variables that sum up to one are independent: also how much they vary
    assert abs(np.corrcoef(seen, wanted)[0, 1]) < 0.02
    assert abs(np.corrcoef((seen - mean) ** 2, (wanted - mean) ** 2)[0, 1]) < 0.02


def test_counts_are_denoised_from_counts_alone_and_the_record_says_so() -> None:
    y, x = np.indices((64, 64)) / 64
    clean = 3 + 2 * np.sin(4 * x) * np.cos(3 * y)
    noisy = (0.5 * np.random.default_rng(1).poisson(clean)).astype(np.float32)
    settings = {"steps": 100, "patch_size": 32, "batch_size": 4, "device": "cpu"}
    result = hushpore.denoise(noisy, **settings)
    assert result.provenance["noise_model"]["count"] == pytest.approx(0.5)
    assert any("are photon counts" in note for note in result.notes)
    assert not any("masked" in note for note in result.notes)
    error = np.asarray(result.volume.data) - 0.5 * clean
    narrow = gaussian_filter(noisy, 1) - 0.5 * clean
    assert (error**2).mean() < 0.5 * (narrow**2).mean()
    assert abs(np.asarray(result.volume.data).mean() - noisy.mean()) < 0.03 * noisy.mean()


def test_grey_values_between_counts_are_divided_without_a_shift_of_the_mean() -> None:
    scale = Scale((10.0,), (4.0,))
    # three tenths of a count above the grey value without photons
    images = Images.of(torch.full((1, 200, 200), (6.0 - 10.0) / 4.0))
    thinning = Thinning.of(10.0, scale, zero=3.0)
    corners, turned = torch.tensor([[0, 0, 0]]), torch.zeros((1, 3), dtype=torch.bool)
    drawn = torch.Generator().manual_seed(0)
    pair = thinning.pairs(images, corners, (200, 200), turned, drawn)
    for each in pair:
        assert 4.0 * float(each.mean()) + 10.0 == pytest.approx(6.0, abs=0.15)
    assert thinning.noise[0] == pytest.approx((10.0 * 7.0) ** 0.5 / 4.0)
