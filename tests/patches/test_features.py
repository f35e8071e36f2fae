from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from hushpore.patches.features import patch_features


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
    monkeypatch.setattr("hushpore.patches.features._PIECE", 7 * 64)
    for name, values in patch_features(patches).items():
        np.testing.assert_allclose(values, whole[name], rtol=1e-12, atol=1e-12)


def test_a_small_deviation_on_a_large_mean_is_seen():
    patches = np.float32(1e6) + np.tile(np.float32([0, 1]), (2, 4, 4))
    assert patch_features(patches)["sd"].tolist() == [0.5, 0.5]
