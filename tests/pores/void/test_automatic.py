"""The automatic threshold, on mixtures of Gaussian groups whose shares are known."""

from __future__ import annotations

import numpy as np
import pytest

from hushpore.pores.parallel import KernelThreads
from hushpore.pores.void.threshold import make_histogram
from hushpore.sample_data import foam_phantom
from hushpore.scan.histogram import AUTO, Histogram, automatic, find_any_threshold, find_threshold

PORE, SOLID, NOISE = 500.0, 2000.0, 100.0


def groups_of(*shares_and_greys: tuple[float, float], noise: float = NOISE) -> np.ndarray:
    """Grey values of groups of these shares, uint16, as one row."""
    rng = np.random.default_rng(0)
    parts = [np.full(round(share * 400_000), grey) for share, grey in shares_and_greys]
    values = np.concatenate(parts)
    return (values + rng.normal(0, noise, values.size)).clip(0, 65535).astype(np.uint16)[None]


@pytest.fixture(scope="module")
def threads():
    with KernelThreads(1) as threads:
        yield threads


@pytest.mark.parametrize("bright", [False, True])
@pytest.mark.parametrize(
    ("share", "noise"),
    [(0.001, 60), (0.001, 100), (0.001, 180), (0.02, 180), (0.1, 250), (0.3, 300), (0.6, 200)],
)
def test_the_share_of_pores_is_right(
    share: float, noise: float, bright: bool, threads: KernelThreads
) -> None:
    pore, solid = (SOLID, PORE) if bright else (PORE, SOLID)
    # far from 0, so that no value is cut off
    values = groups_of((share, pore + 3000), (1 - share, solid + 3000), noise=noise)
    found = automatic(make_histogram(values, threads), bright)
    void = values > found.threshold if bright else values <= found.threshold
    assert void.mean() == pytest.approx(share, rel=0.1)
    assert found.second
    assert found.pore == pytest.approx(pore + 3000, abs=0.6 * noise)
    assert found.solid == pytest.approx(solid + 3000, abs=0.6 * noise)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_two_groups_get_the_threshold_of_otsu(share: float, threads: KernelThreads) -> None:
    histogram = make_histogram(groups_of((share, PORE), (1 - share, SOLID)), threads)
    found = automatic(histogram)
    assert found.method == "otsu"
    assert (
        found.threshold == find_threshold(histogram, "otsu") == find_any_threshold(histogram, AUTO)
    )


def test_grains_of_metal_are_no_solid(threads: KernelThreads) -> None:
    values = groups_of((0.048, PORE), (0.95, SOLID), (0.002, 30_000))
    histogram = make_histogram(values, threads)
    assert (values <= find_threshold(histogram, "otsu")).mean() > 0.99
    found = automatic(histogram)
    assert found.grains == pytest.approx(0.002, rel=0.05)
    assert (values <= found.threshold).mean() == pytest.approx(0.048, rel=0.05)


def test_one_group_has_a_threshold_below_its_noise(threads: KernelThreads) -> None:
    values = groups_of((1, SOLID))
    found = automatic(make_histogram(values, threads))
    assert (found.method, found.second) == ("main peak", False)
    assert found.noise == pytest.approx(NOISE, rel=0.1)
    assert (values <= found.threshold).mean() < 1e-4


def test_overlapping_groups_have_their_errors_stated(threads: KernelThreads) -> None:
    values = groups_of((0.2, 5000.0), (0.8, 6500.0), noise=500)
    found = automatic(make_histogram(values, threads))
    solid = np.random.default_rng(1).normal(6500, 500, 10**6)
    assert found.false_void == pytest.approx((solid <= found.threshold).mean(), abs=0.02)


@pytest.mark.parametrize("counts", [[3, 7], [1, 0, 0, 9], [5, 2, 3]])
def test_few_grey_values_get_the_threshold_of_otsu(counts: list[int]) -> None:
    histogram = Histogram(np.array(counts), np.arange(len(counts), dtype=float))
    assert automatic(histogram).threshold == find_threshold(histogram, "otsu")


def test_a_noisy_foam_has_its_errors_stated(threads: KernelThreads) -> None:
    foam = foam_phantom((48, 96, 96))
    histogram = make_histogram(foam.volume.data, threads)
    found = automatic(histogram)
    assert found.void == pytest.approx(foam.porosity, abs=0.04)
    assert found.otsu_void == histogram.share_beyond(find_threshold(histogram, "otsu"))
    assert found.false_void > 0.05


def test_the_noise_of_a_larger_group_is_not_divided(threads: KernelThreads) -> None:
    # Otsu's threshold counts 69 % of them as void
    values = groups_of((0.89, 8000), (0.11, 12000), noise=1240)
    histogram = make_histogram(values, threads)
    assert (values <= find_threshold(histogram, "otsu")).mean() < 0.8
    found = automatic(histogram)
    assert (found.method, found.second) == ("mixture", True)
    assert (values <= found.threshold).mean() == pytest.approx(0.89, abs=0.01)


def test_gaps_between_grey_values_hide_no_group(threads: KernelThreads) -> None:
    values = groups_of((0.02, PORE), (0.98, SOLID))
    levels = (values.astype(float) / values.max() * 40).round().astype(np.uint8) * 6
    found = automatic(make_histogram(levels, threads))
    assert (levels <= found.threshold).mean() == pytest.approx(0.02, abs=0.002)


@pytest.mark.parametrize("apart", [2.0, 2.5, 3.0])
def test_groups_that_noise_joins_to_one_peak_are_divided(
    apart: float, threads: KernelThreads
) -> None:
    values = groups_of((0.3, 5000), (0.7, 5000 + apart * 400), noise=400)
    found = automatic(make_histogram(values, threads))
    assert (values <= found.threshold).mean() == pytest.approx(0.3, abs=0.01)
    assert found.pore == pytest.approx(5000, abs=80)
    assert found.solid == pytest.approx(5000 + apart * 400, abs=80)
