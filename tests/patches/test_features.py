from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage
from skimage.filters import threshold_otsu

from hushpore.patches.places import foreground, gradient_magnitude, patch_features


@pytest.mark.parametrize("shape", [(7, 8, 9), (5, 4, 6, 7)])
def test_features_are_those_of_numpy_and_scipy(shape, rng):
    patches = rng.integers(-900, 900, shape).astype(np.int16)
    found = patch_features(patches)
    flat = patches.reshape(len(patches), -1)
    assert found["order"].tolist() == list(range(1, len(patches) + 1))
    np.testing.assert_allclose(found["mean"], flat.mean(1))
    np.testing.assert_allclose(found["sd"], flat.std(1))
    n_spatial = len(shape) - 1
    for patch, gradient in zip(patches, found["gradient"], strict=True):
        slopes = [
            ndimage.sobel(patch.astype(float), axis, mode="nearest") for axis in range(n_spatial)
        ]
        steep = np.sqrt(sum(slope**2 for slope in slopes)) / (2 * 4 ** (n_spatial - 1))
        assert gradient == pytest.approx(steep.mean(), rel=1e-4)


def test_features_do_not_depend_on_how_many_patches_there_are(rng, monkeypatch):
    patches = rng.normal(size=(50, 8, 8)).astype(np.float32)
    whole = patch_features(patches)
    monkeypatch.setattr("hushpore.patches.places._PIECE", 7 * 64)
    for name, values in patch_features(patches).items():
        np.testing.assert_allclose(values, whole[name], rtol=1e-12, atol=1e-12)


def test_a_small_deviation_on_a_large_mean_is_seen():
    patches = np.float32(1e6) + np.tile(np.float32([0, 1]), (2, 4, 4))
    assert patch_features(patches)["sd"].tolist() == [0.5, 0.5]


def test_foreground_is_what_scikit_image_finds_above_otsus_threshold(rng) -> None:
    image = np.concatenate([rng.normal(-500, 60, 4000), rng.normal(300, 60, 9000)]).reshape(
        130, 100
    )
    found = foreground(torch.from_numpy(image.astype(np.float32))).numpy()
    expected = image > threshold_otsu(image, nbins=512)
    assert (found == expected).mean() > 0.999


def test_a_foreground_is_found_in_whole_numbers() -> None:
    image = torch.tensor([[0, 0, 1], [1000, 1001, 1000]], dtype=torch.int16)
    assert foreground(image).tolist() == [[False] * 3, [True] * 3]


@pytest.mark.parametrize("shape", [(3, 12, 15), (2, 7, 9, 8)])
def test_gradients_are_those_of_scipys_sobel_filter(shape, rng) -> None:
    images = rng.normal(size=shape).astype(np.float32)
    n_spatial = len(shape) - 1
    found = gradient_magnitude(torch.from_numpy(images), n_spatial).numpy()
    for image, result in zip(images, found, strict=True):
        slopes = [ndimage.sobel(image, axis, mode="nearest") for axis in range(n_spatial)]
        scale = 2 * 4 ** (n_spatial - 1)
        expected = np.sqrt(sum((slope / scale) ** 2 for slope in slopes))
        np.testing.assert_allclose(result, expected, atol=1e-5)


def test_a_ramp_has_its_own_slope_in_values_a_voxel() -> None:
    ramp = 3.0 * torch.arange(10).expand(6, 10)
    assert gradient_magnitude(ramp, 2)[:, 1:-1].unique().tolist() == [3.0]
