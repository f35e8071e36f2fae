from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import ndimage
from skimage import filters

import hushpore
from hushpore.base.errors import InputError
from hushpore.pores.settings import PoreSettings
from hushpore.pores.void.threshold import make_histogram
from hushpore.scan.histogram import AUTO, METHODS, find_threshold, two_groups
from hushpore.scan.settings import LOCAL_METHODS

if TYPE_CHECKING:
    from hushpore.pores.parallel import KernelThreads


def two_phases(seed: int, dark: float, bright: float, noise: float, share: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    phase = rng.random((12, 40, 40)) < share
    return np.where(phase, dark, bright) + rng.normal(0, noise, phase.shape)


@pytest.mark.parametrize("method", [m for m in METHODS if hasattr(filters, f"threshold_{m}")])
@pytest.mark.parametrize("share", [0.15, 0.5, 0.7])
def test_eight_bit_thresholds_are_those_of_scikit_image(
    method: str, share: float, threads: KernelThreads
) -> None:
    image = two_phases(1, 80, 170, 18, share).clip(0, 255).astype(np.uint8)
    expected = getattr(filters, f"threshold_{method}")(image)
    assert find_threshold(make_histogram(image, threads), method) == pytest.approx(expected)


@pytest.mark.parametrize("method", ["otsu", "li", "triangle", "yen", "isodata"])
@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int32, np.int64])
def test_whole_numbers_are_counted_level_by_level(
    method: str, dtype: type, threads: KernelThreads
) -> None:
    image = two_phases(2, 300, 2400, 350, 0.3).clip(0, 5000).astype(dtype)
    if dtype != np.uint16:
        image -= 1000
    expected = getattr(filters, f"threshold_{method}")(image)
    assert find_threshold(make_histogram(image, threads), method) == pytest.approx(expected)


@pytest.mark.parametrize("method", ["otsu", "li", "yen", "isodata"])
def test_float_thresholds_agree_with_scikit_image_within_two_bins(
    method: str, threads: KernelThreads
) -> None:
    image = two_phases(3, -1.0, 2.0, 0.4, 0.4).astype(np.float32)
    expected = getattr(filters, f"threshold_{method}")(image)
    bin_width = float(np.ptp(image)) / 256
    found = find_threshold(make_histogram(image, threads), method)
    assert found == pytest.approx(expected, abs=2 * bin_width)


def test_the_histogram_counts_every_value_once(threads: KernelThreads) -> None:
    values = np.random.default_rng(0).integers(-40, 90, (5, 6, 7)).astype(np.int8)
    histogram = make_histogram(values, threads)
    levels, counts = np.unique(values, return_counts=True)
    present = histogram.counts > 0
    np.testing.assert_array_equal(histogram.centers[present], levels)
    np.testing.assert_array_equal(histogram.counts[present], counts)


@pytest.mark.parametrize("values", [[-128, 127], [0, 255], [-32768, 32767], [0, 65535], [5, 2**62]])
def test_the_whole_range_of_a_type_is_counted(values: list[int], threads: KernelThreads) -> None:
    dtype = np.min_scalar_type(values[0] if values[0] < 0 else values[1])
    histogram = make_histogram(np.array([[values]], dtype), threads)
    assert histogram.counts[0] == histogram.counts[-1] == 1
    assert histogram.counts.sum() == 2


def test_coarser_bins_keep_the_count_and_the_mean(threads: KernelThreads) -> None:
    values = np.random.default_rng(0).integers(0, 1000, (5, 60, 70)).astype(np.uint16)
    fine = make_histogram(values, threads)
    coarse = fine.coarser(256)
    assert coarse.counts.size <= 256
    assert coarse.counts.sum() == values.size
    mean = (coarse.counts * coarse.centers).sum() / values.size
    assert mean == pytest.approx(values.mean(), abs=1)


def test_a_method_that_finds_nothing_says_so(threads: KernelThreads) -> None:
    ramp = np.repeat(np.arange(4, dtype=np.uint8), 16).reshape(4, 4, 4)
    with pytest.raises(InputError, match="give the threshold as a number"):
        find_threshold(make_histogram(ramp, threads), "minimum")


def test_the_settings_offer_every_method() -> None:
    option = next(option for option in PoreSettings.options() if option.name == "threshold")
    assert option.choices == (AUTO, *METHODS, *LOCAL_METHODS)


@pytest.mark.parametrize("phases", [3, 4])
@pytest.mark.parametrize("bright", [False, True])
def test_several_phases_are_those_of_scikit_images_multi_otsu(
    phases: int, bright: bool, threads: KernelThreads
) -> None:
    rng = np.random.default_rng(0)
    grey = np.array([40, 100, 170, 230])[rng.integers(0, phases, (10, 40, 40))]
    image = (grey + rng.normal(0, 9, grey.shape)).clip(0, 255).astype(np.uint8)
    expected = filters.threshold_multiotsu(image, phases)
    found = find_threshold(make_histogram(image, threads), "otsu", phases, bright)
    assert found == expected[-1 if bright else 0]


def test_only_otsu_knows_several_phases(threads: KernelThreads) -> None:
    image = two_phases(1, 80, 170, 18, 0.5).astype(np.uint8)
    with pytest.raises(InputError, match="Only threshold='otsu' can find 3 classes"):
        find_threshold(make_histogram(image, threads), "li", 3)


@pytest.mark.parametrize(
    ("dtype", "offset"),
    [(np.int32, 10**8), (np.uint32, 4 * 10**9), (np.int64, -(10**15)), (np.uint64, 10**15),
     (np.dtype(">i4"), 10**8), (np.float16, 1000.0), (np.float64, 1e8), (np.dtype(">f8"), -1e12)],
)  # fmt: skip
def test_pores_are_the_same_of_any_type_and_as_far_from_zero(
    dtype: np.dtype, offset: float
) -> None:
    image = two_phases(4, 300, 900, 90, 0.4).clip(200, 1000).round()
    expected = filters.threshold_otsu(image.astype(np.uint16))
    moved = (image.astype(np.asarray(offset).dtype) + offset).astype(dtype)
    found = hushpore.segment_pores(moved, minimum_voxels=1)
    # of floating-point numbers there are 1024 bins
    bins = 0 if np.dtype(dtype).kind in "iu" else 2
    assert found.threshold - offset == pytest.approx(expected, abs=bins)
    dark = image <= found.threshold - offset
    np.testing.assert_array_equal(found.labels > 0, dark)


@pytest.mark.parametrize(("dtype", "offset"), [(np.int64, -(2**62)), (np.uint64, 2**63)])
def test_whole_numbers_that_no_threshold_parts_are_refused(dtype: type, offset: int) -> None:
    image = two_phases(4, 300, 900, 90, 0.4).clip(200, 1000).astype(dtype)
    with pytest.raises(InputError, match=r"steps of .* Subtract .* from the scan first"):
        hushpore.segment_pores(image + dtype(offset))
    # far apart they are told apart
    wide = np.where(image % 2 == 0, dtype(0), dtype(abs(offset)))
    assert 0 < hushpore.segment_pores(wide, exterior="keep").porosity < 1


def materials(*shares_and_greys: tuple[float, float], noise: float, seed: int = 4) -> np.ndarray:
    """Cubes of materials of these shares and grey values, blurred as by a detector, with noise."""
    shares, greys = zip(*shares_and_greys, strict=True)
    rng = np.random.default_rng(seed)
    cubes = rng.choice(greys, (6, 10, 10), p=shares)
    image = ndimage.gaussian_filter(np.kron(cubes, np.ones((8, 8, 8))), 0.6)
    return np.asarray(image + rng.normal(0, noise, image.shape), np.float32)


PORE, BINDER, GRAIN = 10.0, 45.0, 100.0


@pytest.mark.parametrize("noise", [2, 6])
@pytest.mark.parametrize("bright", [False, True])
def test_a_third_material_among_the_pores_is_seen(
    noise: float, bright: bool, threads: KernelThreads
) -> None:
    image = materials((0.4, PORE), (0.2, BINDER), (0.4, GRAIN), noise=noise)
    image, expected = (-image, (-BINDER, -PORE)) if bright else (image, (PORE, BINDER))
    histogram = make_histogram(image, threads)
    found = two_groups(histogram, find_threshold(histogram, "otsu"), bright)
    assert found == pytest.approx(expected, abs=3)


def test_grains_of_metal_that_draw_the_threshold_to_them_are_seen(threads: KernelThreads) -> None:
    image = materials((0.2, PORE), (0.8, GRAIN), noise=4)
    image[10:18, 10:18, 10:18] = 4000
    histogram = make_histogram(image, threads)
    threshold = find_threshold(histogram, "otsu")
    assert threshold > GRAIN
    assert two_groups(histogram, threshold, False) == pytest.approx((PORE, GRAIN), abs=4)


@pytest.mark.parametrize("noise", [1, 10, 25, 40])
@pytest.mark.parametrize("share", [0.05, 0.15, 0.5, 0.9])
def test_pores_and_solid_are_no_three_materials(
    share: float, noise: float, threads: KernelThreads
) -> None:
    image = materials((share, PORE), (1 - share, GRAIN), noise=noise)
    cut_off = image.clip(5, 105)
    with_gaps = np.round((image + 500) / 4).astype(np.uint16) * 4
    for each in (image, cut_off, cut_off.astype(np.uint8), with_gaps):
        histogram = make_histogram(each, threads)
        assert two_groups(histogram, find_threshold(histogram, "otsu"), False) is None


def test_two_minerals_of_the_solid_are_no_pores(threads: KernelThreads) -> None:
    image = materials((0.3, PORE), (0.3, 85.0), (0.4, 120.0), noise=3)
    histogram = make_histogram(image, threads)
    assert two_groups(histogram, find_threshold(histogram, "otsu"), False) is None


def test_a_porosity_of_two_materials_is_told() -> None:
    image = materials((0.4, PORE), (0.2, BINDER), (0.4, GRAIN), noise=4)
    default, three = (hushpore.segment_pores(image, otsu_classes=n) for n in (2, 3))
    (note,) = default.notes
    assert "two groups of grey values, about 10" in note
    assert default.porosity == pytest.approx(0.6, abs=0.06)
    assert three.porosity == pytest.approx(0.4, abs=0.06)
    assert three.notes == ()


def test_grains_of_metal_for_which_all_else_is_pore_are_told() -> None:
    image = materials((0.12, PORE), (0.88, GRAIN), noise=4)
    image[10:18, 10:18, 10:18] = image[30:38, 50:58, 40:48] = 4000
    (note,) = hushpore.segment_pores(image, threshold="otsu").notes
    assert "two groups of grey values, about 1" in note
    default = hushpore.segment_pores(image)
    assert default.notes == ()
    assert default.remarks[0].message.startswith("Grains of another material")
    assert default.porosity == pytest.approx(0.12, abs=0.04)
    assert hushpore.segment_pores(image, otsu_classes=3).porosity == pytest.approx(0.12, abs=0.04)


def balls_in_a_solid(count: int, noise: float) -> np.ndarray:
    """A solid of 48 x 64 x 64 voxels with pores of 257 voxels, in a grid."""
    z, y, x = np.indices((48, 64, 64))
    pores = np.zeros(z.shape, bool)
    places = [(a, b, c) for a in (9, 21, 33) for b in (9, 21, 43, 55) for c in (9, 21, 43, 55)]
    for a, b, c in places[:count]:
        pores |= (z - a) ** 2 + (y - b) ** 2 + (x - c) ** 2 <= 16
    image = np.where(pores, 500, 2000) + np.random.default_rng(1).normal(0, noise, pores.shape)
    return image.clip(0).round().astype(np.uint16)


@pytest.mark.parametrize(("count", "noise"), [(1, 60), (1, 100), (5, 180), (20, 100)])
def test_few_pores_in_a_solid_are_counted(count: int, noise: float) -> None:
    found = hushpore.segment_pores(balls_in_a_solid(count, noise), minimum_voxels=50)
    assert len(found.pores) == count
    assert found.porosity == pytest.approx(count * 257 / (48 * 64 * 64), rel=0.1)


def test_one_ball_of_metal_hides_no_pores() -> None:
    image = balls_in_a_solid(36, 60)
    z, y, x = np.indices(image.shape)
    image[(z - 24) ** 2 + (y - 32) ** 2 + (x - 32) ** 2 <= 16] = 30_000
    found = hushpore.segment_pores(image)
    assert len(found.pores) == 36
    assert found.porosity == pytest.approx(36 * 257 / image.size, rel=0.1)
    assert found.remarks[0].message.startswith("Grains of another material")
