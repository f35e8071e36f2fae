from __future__ import annotations

import numpy as np
import pytest

from hushpore import Volume
from hushpore.scan.noise import estimate_noise

IMAGE = np.kron([[0.5, 1.2], [1.6, 0.7]], np.ones((80, 80)))


@pytest.mark.parametrize("unit", [1.0, 255 / 2, 1 / 3])
@pytest.mark.parametrize("counts", [1, 8, 500])
def test_the_grey_value_of_a_count_is_found(unit: float, counts: int) -> None:
    noisy = np.random.default_rng(0).poisson(counts * IMAGE) * unit
    assert estimate_noise(Volume(noisy.astype(np.float32))).count == pytest.approx(unit, rel=1e-6)


#: Gain and grey value without photons of the images with photon noise. Where read noise is clipped,
#: the growth of the variance is steeper than that of the photons.
PHOTONS = {
    "counts above a dark level": (1.0, 30.0),
    "counts with noise of reading": (2.0, -2.5),
    "counts in steps of a camera's": (0.6, 0.0),
    "values below zero": (1.0, -8.0),
}


def no_counts() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    normal = rng.normal(size=IMAGE.shape)
    poisson = rng.poisson(8 * IMAGE)
    return {
        "values of any size": 100 * IMAGE + 10 * normal,
        "whole numbers with normal noise": np.rint(100 * IMAGE + 20 * normal),
        "whole numbers with more noise where they are brighter": np.rint(3.0 * poisson),
        "counts above a dark level": poisson + 30.0,
        "counts with noise of reading": np.rint(poisson + 4 * normal).clip(0),
        "counts in steps of a camera's": np.rint(0.6 * poisson),
        "an image without noise": np.rint(10 * IMAGE),
        "nothing at all": np.zeros((40, 40)),
        "values below zero": poisson - 8.0,
    }


@pytest.mark.parametrize("name", no_counts())
def test_other_grey_values_are_not_taken_for_whole_counts(name: str) -> None:
    values = no_counts()[name]
    found = estimate_noise(Volume(values.astype(np.float32)))
    if name.startswith("whole numbers with more"):
        assert found.count == 3.0  # as they are counts, of 3 each
        assert found.zero is None
    elif name in PHOTONS:
        # the gain and the zero are measured
        gain, zero = PHOTONS[name]
        assert found.count == pytest.approx(gain, rel=0.2)
        assert found.zero == pytest.approx(zero, abs=2)
        # the corners of the image differ in grey value, so that this is noise alone
        quarters = values.reshape(2, 80, 2, 80).var((1, 3))
        assert found.deviation**2 == pytest.approx(quarters.mean(), rel=0.1)
    else:
        assert found.count is None
