from __future__ import annotations

import numpy as np
import pytest
from scipy import fft

from hushpore.scan.noise_model import NoiseModel


def gaussian_lags(width: float, reach: int) -> np.ndarray:
    """The correlation of white noise that a Gaussian of some width has gone over."""
    return np.exp(-(np.arange(-reach, reach + 1) ** 2) / (4 * width**2))


@pytest.mark.parametrize("shape", [(16, 32, 32), (15, 31, 33), (4, 40, 40)])
def test_the_spectrum_is_that_of_the_autocovariance(shape: tuple[int, ...]) -> None:
    lines = gaussian_lags(0.5, 3), gaussian_lags(0.7, 5), gaussian_lags(0.7, 5)
    correlation = np.einsum("z,y,x->zyx", *lines)
    model = NoiseModel(25 * correlation, 0 * correlation, 0, 25, 0, np.empty(0), 1, 0, 100)
    power = model.spectrum(shape)
    assert power.shape == (*shape[:-1], shape[-1] // 2 + 1)
    assert power.min() >= 0
    lags = fft.irfftn(power, shape)
    assert lags[0, 0, 0] == pytest.approx(25)
    # large lags count a little less
    assert lags[0, 1, 1] == pytest.approx(25 * correlation[3, 6, 6], rel=0.06)
    assert lags[1, 0, -1] == pytest.approx(25 * correlation[4, 5, 4], rel=0.06)
