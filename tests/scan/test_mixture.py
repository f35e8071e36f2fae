"""Two groups of grey values with blurred edges, on slices whose share of void is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from hushpore.scan.mixture import Mixture, fit_mixture, spread_over_gaps

PORE, SOLID = 20000.0, 32000.0


def scan(void: float, noise: float, blur: float = 1.0, growth: float = 1.0) -> np.ndarray:
    """A random medium of a share of void, blurred, with correlated noise."""
    rng = np.random.default_rng(0)
    field = ndimage.gaussian_filter(rng.standard_normal((64, 64, 64)), 4, mode="wrap")
    grey = np.where(field <= np.quantile(field, void), PORE, SOLID)
    grey = ndimage.gaussian_filter(grey, blur, mode="wrap")
    grain = ndimage.gaussian_filter(rng.standard_normal(grey.shape), (0.5, 1, 1), mode="wrap")
    strength = noise * growth ** ((grey - PORE) / (SOLID - PORE) - 0.5)
    return np.rint(grey + strength * (SOLID - PORE) * grain / grain.std())


def fitted(values: np.ndarray) -> Mixture:
    counts, limits = np.histogram(values, np.arange(values.min(), values.max() + 2, 10))
    found = fit_mixture(counts.astype(float), (limits[1:] + limits[:-1]) / 2)
    assert found is not None
    return found


@pytest.mark.parametrize("void", [0.1, 0.35, 0.7, 0.9])
@pytest.mark.parametrize("noise", [0.05, 0.2, 0.3])
def test_the_share_of_void_is_found_in_blur_and_noise(void: float, noise: float) -> None:
    found = fitted(scan(void, noise))
    assert found.is_certain
    assert found.void == pytest.approx(void, abs=0.03)
    assert found.noise == pytest.approx(noise * (SOLID - PORE), rel=0.2)
    assert found.misfit < 0.05


@pytest.mark.parametrize("growth", [0.8, 1.4])
def test_noise_may_be_stronger_in_one_group(growth: float) -> None:
    assert fitted(scan(0.4, 0.25, growth=growth)).void == pytest.approx(0.4, abs=0.05)


def test_the_noise_of_particles_that_is_42_percent_of_the_contrast_hides_no_group() -> None:
    # as in a scan of steel particles of 38 % that are blurred over two voxels
    values = 52000 - scan(0.38, 0.42, blur=2.0)
    found = fitted(values)
    assert found.is_certain
    assert found.void == pytest.approx(0.62, abs=0.03)


def test_noise_alone_and_few_pores_in_strong_noise_are_not_two_groups() -> None:
    rng = np.random.default_rng(1)
    assert not fitted(np.rint(rng.normal(30000, 2000, 400_000))).is_certain
    assert not fitted(scan(0.02, 0.6)).is_certain


def test_gaps_between_grey_values_change_nothing() -> None:
    values = scan(0.3, 0.2)
    levels = np.rint((values - values.min()) / (np.ptp(values)) * 40)
    plain, gaps = (
        fit_mixture(*(np.bincount((levels * step).astype(int).ravel()), np.arange(40.0 * step + 1)))
        for step in (1, 6)
    )
    assert gaps.void == pytest.approx(plain.void, abs=1e-6)
    assert gaps.void == pytest.approx(0.3, abs=0.03)


def test_a_grey_value_stands_for_all_that_is_nearer_to_it_than_to_others() -> None:
    ends, up_to = spread_over_gaps(np.array([2.0, 0, 0, 6, 0, 2]), np.arange(6.0))
    assert ends.tolist() == [-1.5, 1.5, 4, 6]
    assert up_to.tolist() == [0, 0.2, 0.8, 1]


def test_one_grey_value_has_no_groups() -> None:
    assert fit_mixture(np.array([5.0]), np.array([7.0])) is None
