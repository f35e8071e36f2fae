from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from hushpore import Volume
from hushpore.denoising.noise import noise_curves
from hushpore.scan.noise import estimate_noise


@pytest.fixture(scope="module")
def curves():
    """Those of noise that is averaged over two neighbours along x, and white along y and z."""
    white = np.random.default_rng(0).normal(size=(24, 64, 64))
    noise = ndimage.convolve1d(white, [0.5, 0.5], axis=2, mode="wrap")
    return noise_curves(estimate_noise(Volume(100 + 5 * noise))).set_index(["curve", "axis"])


@pytest.mark.parametrize("kind", ["measured", "drawn"])
def test_the_correlation_is_that_of_the_filter(curves, kind: str) -> None:
    along_x, along_y = (curves.loc[("correlation", axis)] for axis in "xy")
    np.testing.assert_allclose(along_x[kind], [1, 0.5, 0, 0, 0, 0], atol=0.06)
    np.testing.assert_allclose(along_y[kind], [1, 0, 0, 0, 0, 0], atol=0.06)
    assert list(along_x["at"]) == [0, 1, 2, 3, 4, 5]
    assert (along_x["error"] < 0.05).all()


@pytest.mark.parametrize("kind", ["measured", "drawn"])
def test_the_spectrum_is_that_of_the_filter_and_one_for_white_noise(curves, kind: str) -> None:
    along_x, along_z = (curves.loc[("spectrum", axis)] for axis in "xz")
    np.testing.assert_allclose(along_x[kind], 1 + np.cos(2 * np.pi * along_x["at"]), atol=0.2)
    np.testing.assert_allclose(along_z[kind], 1, atol=0.2)


def test_an_image_has_two_axes() -> None:
    image = np.random.default_rng(0).normal(100, 5, (128, 128))
    assert set(noise_curves(estimate_noise(Volume(image)))["axis"]) == {"x", "y"}
