from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats
from scipy.ndimage import uniform_filter1d

from hushpore import Volume
from hushpore.sample_data import foam_phantom
from hushpore.scan.noise import estimate_noise, theil_sen

if TYPE_CHECKING:
    from hushpore.scan.noise_model import NoiseDiagnosis


@pytest.fixture(scope="module")
def foam() -> np.ndarray:
    return foam_phantom((32, 96, 96)).clean.array()


def diagnose_noise(volume: Volume) -> NoiseDiagnosis:
    return estimate_noise(volume).diagnosis


def white(shape: tuple[int, ...], deviation: float) -> np.ndarray:
    return np.random.default_rng(1).normal(0, deviation, shape)


def test_white_noise_on_a_foam_is_found_independent(foam: np.ndarray) -> None:
    found = diagnose_noise(Volume(foam + white(foam.shape, 300)))
    assert list(found.correlation) == ["z", "y", "x"]
    assert all(abs(c) < 0.06 for c in found.correlation.values())
    assert found.noise == pytest.approx(300, rel=0.05)
    assert found.summary == "The noise is uncorrelated."


@pytest.mark.parametrize("axis", ["z", "y", "x"])
def test_noise_averaged_over_three_neighbours_has_a_correlation_of_two_thirds(
    foam: np.ndarray, axis: str
) -> None:
    noise = uniform_filter1d(white(foam.shape, 900), 3, axis="zyx".index(axis))
    found = diagnose_noise(Volume(foam + noise))
    assert found.correlation[axis] == pytest.approx(2 / 3, abs=0.06)
    assert found.correlated_axes == axis
    assert f"correlated_along={axis!r}" in found.summary


def test_line_noise_is_correlated_by_its_share_of_the_variance(foam: np.ndarray) -> None:
    lines = np.random.default_rng(2).normal(0, 200, (*foam.shape[:2], 1))
    found = diagnose_noise(Volume(foam + white(foam.shape, 300) + lines))
    assert found.correlation["x"] == pytest.approx(200**2 / (200**2 + 300**2), abs=0.08)


def test_rings_are_found_along_circles_where_no_axis_could_be_named(foam: np.ndarray) -> None:
    rng = np.random.default_rng(2)
    radius = np.hypot(*(np.mgrid[:96, :96] - 47.5))
    rings = np.stack([rng.normal(0, 300, 70)[radius.astype(int)] for _ in foam])
    found = diagnose_noise(Volume(foam + white(foam.shape, 300) + rings))
    assert 0.15 < found.rings < 0.6
    assert not found.is_independent
    assert "rings" in found.summary


def test_lines_and_grain_are_no_rings(foam: np.ndarray) -> None:
    lines = np.random.default_rng(2).normal(0, 300, (*foam.shape[:2], 1))
    assert diagnose_noise(Volume(foam + white(foam.shape, 300) + lines)).rings == 0
    grain = uniform_filter1d(uniform_filter1d(white(foam.shape, 900), 3, axis=1), 3, axis=2)
    assert diagnose_noise(Volume(foam + grain)).rings == 0
    assert diagnose_noise(Volume(foam + white(foam.shape, 300))).is_independent


def test_an_image_without_noise_has_none() -> None:
    found = diagnose_noise(Volume(np.add.outer(np.arange(64.0), np.arange(64.0))))
    assert found.noise == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("axes", ["yx", "zyx", "tzyx", "cyx", "tczyx"])
def test_any_axes_are_looked_at(axes: str) -> None:
    shape = tuple({"t": 2, "c": 2, "z": 3, "y": 40, "x": 30}[axis] for axis in axes)
    found = diagnose_noise(Volume(white(shape, 5).astype(">f4"), axes=axes))
    assert found.noise == pytest.approx(5, rel=0.1)
    assert ("z" in found.correlation) == ("z" in axes)


def test_the_slope_of_photon_noise_is_one_and_that_of_steady_noise_none() -> None:
    steps = np.repeat(np.arange(100, 1700, 100), 16).astype(float)
    image = np.broadcast_to(steps, (256, 256))
    rng = np.random.default_rng(0)
    photons = diagnose_noise(Volume(rng.poisson(image)))
    assert photons.slope == pytest.approx(1, rel=0.15)
    assert photons.variance_at(np.array([1000.0])) == pytest.approx(1000, rel=0.15)
    assert photons.summary.endswith("is uncorrelated and increases with the grey value.")
    steady = diagnose_noise(Volume(image + rng.normal(0, 20, image.shape)))
    assert steady.slope == 0
    assert steady.variance_at(np.array([1000.0])) == pytest.approx(400, rel=0.1)


def test_slopes_are_those_of_scipy(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 200))
    expected = stats.theilslopes(y + 2 * x, x, alpha=0.99)
    assert theil_sen(x, y + 2 * x) == pytest.approx((expected.slope, expected.low_slope), rel=0.01)


def test_noise_is_found_where_the_outside_of_a_round_scan_is_filled_in(foam: np.ndarray) -> None:
    noisy = foam + white(foam.shape, 300)
    away = np.hypot(*(np.mgrid[: foam.shape[1], : foam.shape[2]] - foam.shape[1] / 2 + 0.5))
    for fill in (float(foam.min()), 0.0):
        round_scan = np.where(away < 0.48 * foam.shape[1], noisy, fill)
        found = diagnose_noise(Volume(round_scan))
        assert found.noise == pytest.approx(300, rel=0.05)
        assert found.is_independent


def test_values_that_were_cut_off_are_said(foam: np.ndarray) -> None:
    noisy = foam + white(foam.shape, 300)
    assert diagnose_noise(Volume(noisy)).saturated == 0
    highest = np.percentile(noisy, 80)
    found = diagnose_noise(Volume(np.minimum(noisy, highest)))
    assert found.saturated == pytest.approx(0.2, abs=0.05)
    assert found.saturation.startswith(f"{100 * found.saturated:.0f} % of the voxels")


def test_binning_is_advised_where_it_helps(foam: np.ndarray) -> None:
    # neighbours share half of their noise; of slices binned 2 x 2 they share a sixth
    pairs = white(foam.shape, 900)
    for axis in (1, 2):
        pairs = uniform_filter1d(pairs, 2, axis=axis)
    found = diagnose_noise(Volume(foam + pairs))
    assert found.binned == pytest.approx(1 / 6, abs=0.04)
    assert f"would reduce the correlation to {found.binned:.2f}." in found.summary
    # coarse grain stays what it is
    for axis in (1, 2):
        pairs = uniform_filter1d(pairs, 8, axis=axis)
    coarse = diagnose_noise(Volume(foam + 5 * pairs))
    assert "some of it will remain" in coarse.summary
    assert "Binning" not in coarse.summary
