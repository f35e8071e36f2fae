from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import ndimage
from skimage import filters

import hushpore
from hushpore import Volume
from hushpore.base.errors import InputError
from hushpore.base.events import result_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slabs import Slabs
from hushpore.pores.void.threshold import (
    GreyValues,
    LocalThreshold,
    Range,
    find_range,
    make_histogram,
    survey,
    window_in_voxels,
)
from hushpore.scan.histogram import AUTO, METHODS, _smoothed, find_threshold, two_groups
from hushpore.scan.settings import LOCAL_METHODS


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


class Counting:
    """An array that counts how many slices are read of it."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape, self.dtype, self.read = values, values.shape, values.dtype, 0

    def __getitem__(self, key: slice) -> np.ndarray:
        self.read += len(self.values[key])
        return self.values[key]


@pytest.mark.parametrize(
    ("dtype", "readings"),
    [(np.uint8, 1), (">i2", 1), (np.uint16, 1), (np.int32, 2), (np.float32, 2), (np.float64, 2)],
)
def test_a_streamed_histogram_is_that_of_the_whole_in_few_readings(
    threads: KernelThreads, dtype: Any, readings: int
) -> None:
    values = np.random.default_rng(0).normal(100, 20, (11, 12, 13)).clip(3, 250).astype(dtype)
    source = Counting(values)
    grey = GreyValues(Volume(source), Slabs(11, 4, on_disk=True))
    found, histogram = result_of(survey(grey, True, threads))
    assert source.read == 11 * readings
    native = values.astype(values.dtype.newbyteorder("="))
    expected = make_histogram(native, threads)
    assert histogram is not None
    np.testing.assert_array_equal(histogram.counts, expected.counts)
    np.testing.assert_array_equal(histogram.centers, expected.centers)
    assert found == find_range(native, threads)


@pytest.mark.parametrize("on_disk", [False, True])
def test_values_are_native_and_in_c_order(on_disk: bool) -> None:
    values = np.asfortranarray(np.arange(60, dtype=">u2").reshape(5, 3, 4))
    part = GreyValues(Volume(values), Slabs(5, 2, on_disk)).read(2, 4)
    assert part.flags.c_contiguous
    assert part.dtype == np.uint16
    assert part.dtype.isnative
    np.testing.assert_array_equal(part, values[2:4])


@pytest.mark.parametrize("on_disk", [False, True])
def test_an_image_is_read_as_one_slice(on_disk: bool) -> None:
    image = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(
        GreyValues(Volume(image), Slabs(1, 1, on_disk)).read(0, 1), image[None]
    )


def uneven_scan(shape: tuple[int, ...] = (13, 40, 37)) -> np.ndarray:
    """Pores in a ground whose grey rises along x, as under a cupping artefact."""
    rng = np.random.default_rng(3)
    pores = ndimage.gaussian_filter(rng.normal(size=shape), 1.5) > 0.1
    ground = 120 + 3.0 * np.arange(shape[-1])
    return ground - 60 * pores + rng.normal(0, 6, shape)


def find(
    image: np.ndarray,
    threads: KernelThreads,
    method: str = "sauvola",
    window: tuple[int, int, int] = (5, 9, 7),
    bright: bool = False,
    slabs: int = 1,
) -> np.ndarray:
    grey = find_range(image, threads)
    local = LocalThreshold(method, window, 0.2, bright, len(image), grey)
    cuts = np.linspace(0, len(image), slabs + 1).astype(int)
    pieces = []
    for first, last in itertools.pairwise(cuts):
        begin, end = local.slices(first, last)
        pieces.append(local.void(image[begin:end], first, last, threads))
    return np.concatenate(pieces)


def expected_threshold(image: np.ndarray, method: str, window: tuple[int, ...]) -> np.ndarray:
    """scikit-image's, in float64, of grey values that begin at 0."""
    grey = image.astype(float) - float(image.min())
    if method == "niblack":
        return filters.threshold_niblack(grey, window, 0.2)
    return filters.threshold_sauvola(grey, window, 0.2, r=np.ptp(grey) / 2)


@pytest.mark.parametrize("method", LOCAL_METHODS)
@pytest.mark.parametrize("window", [(5, 9, 7), (1, 11, 11), (3, 1, 1), (25, 5, 5)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_whole_numbers_get_the_threshold_of_scikit_image(
    dtype: type, window: tuple[int, int, int], method: str, threads: KernelThreads
) -> None:
    image = uneven_scan().clip(0, 255).astype(dtype)
    if dtype is np.int16:
        image = image * np.int16(8) - np.int16(1000)
    threshold = expected_threshold(image, method, window)
    grey = image - float(image.min())
    found = find(image, threads, method, window)
    # a grey value that is its own threshold may fall on either side there
    clear = np.abs(grey - threshold) > 1e-7 * np.ptp(grey)
    np.testing.assert_array_equal(found[clear], (grey <= threshold)[clear])
    assert clear.mean() > 0.99
    assert 0.05 < found.mean() < 0.95


@pytest.mark.parametrize("method", LOCAL_METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint64])
def test_other_types_agree_to_a_hundred_thousandth_of_the_range(
    dtype: type, method: str, threads: KernelThreads
) -> None:
    image = (uneven_scan() * 1e5).astype(dtype)
    if dtype is np.uint64:
        image += np.uint64(2**63)
    grey = (image - image.min()).astype(float)
    threshold = expected_threshold(grey, method, (5, 9, 7))
    found = find(image, threads, method)
    clear = np.abs(grey - threshold) > 1e-5 * np.ptp(grey)
    np.testing.assert_array_equal(found[clear], (grey <= threshold)[clear])
    assert clear.mean() > 0.99


@pytest.mark.parametrize("method", LOCAL_METHODS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_slabs_and_threads_change_no_bit(method: str, dtype: type) -> None:
    image = uneven_scan().clip(0, 255).astype(dtype)
    with KernelThreads(1) as one:
        expected = find(image, one, method)
    for threads, slabs in ((1, 2), (2, 3), (3, 7), (2, 13)):
        with KernelThreads(threads) as several:
            found = find(image, several, method, slabs=slabs)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("method", LOCAL_METHODS)
def test_bright_pores_of_the_negative_are_the_dark_pores(
    method: str, threads: KernelThreads
) -> None:
    image = uneven_scan().clip(0, 255).astype(np.uint8)
    dark = find(image, threads, method)
    np.testing.assert_array_equal(find(255 - image, threads, method, bright=True), dark)


@pytest.mark.parametrize("method", LOCAL_METHODS)
def test_the_void_does_not_depend_on_the_scale_of_the_greys(
    method: str, threads: KernelThreads
) -> None:
    image = uneven_scan().clip(0, 255).astype(np.uint8)
    hounsfield = image.astype(np.int16) * np.int16(7) - np.int16(1024)
    np.testing.assert_array_equal(find(hounsfield, threads, method), find(image, threads, method))


def test_pores_in_an_uneven_ground_are_found(threads: KernelThreads) -> None:
    rng = np.random.default_rng(4)
    pores = ndimage.gaussian_filter(rng.normal(size=(20, 60, 160)), 2) > 0.02
    ground = np.linspace(80, 230, 160)
    image = (ground - 50 * pores + rng.normal(0, 4, pores.shape)).clip(0, 255).astype(np.uint8)
    found = find(image, threads, "niblack", (15, 21, 21))
    local = (found == pores).mean()
    best_global = max(((image <= level) == pores).mean() for level in range(60, 240, 4))
    assert best_global < 0.85
    assert local > 0.95


def test_a_constant_window_has_no_deviation(threads: KernelThreads) -> None:
    image = np.full((5, 20, 20), 100, np.uint8)
    image[:, :4] = 30
    # at the ground's own grey, nothing is darker by anything; Niblack calls it all void
    assert find(image, threads, "niblack", (3, 3, 3))[:, 10:].all()
    assert not find(image, threads, "sauvola", (3, 3, 3))[:, 10:].any()


@pytest.mark.parametrize("method", LOCAL_METHODS)
@pytest.mark.parametrize("bright", [False, True])
@pytest.mark.parametrize("padding", [-2000, 0, 4000])
def test_what_is_filled_in_is_in_no_window(
    padding: int, bright: bool, method: str, threads: KernelThreads
) -> None:
    image = uneven_scan().clip(1, 255).astype(np.int16)
    y, x = np.indices(image.shape[1:])
    sample = np.broadcast_to(np.hypot(y - 20, x - 18) < 15, image.shape)
    grey = find_range(image[sample], threads)
    window = (5, 9, 7)
    local = LocalThreshold(method, window, 0.2, bright, len(image), grey, padding)
    found = local.void(np.where(sample, image, padding).astype(np.int16), 0, len(image), threads)
    height = np.where(sample, grey.high - image if bright else image - grey.low, 0).astype(float)

    def summed(values: np.ndarray) -> np.ndarray:
        return ndimage.uniform_filter(values, window, mode="mirror") * np.prod(window)

    count = summed(sample.astype(float))
    mean, squares = (summed(each)[sample] / count[sample] for each in (height, height**2))
    deviation = np.sqrt(np.maximum(squares - mean**2, 0))
    expected = mean - 0.2 * deviation
    if method == "sauvola":
        expected = mean * (1 + 0.2 * (deviation / ((grey.high - grey.low) / 2) - 1))
    clear = np.abs(height[sample] - expected) > 1e-6
    np.testing.assert_array_equal(found[sample][clear], (height[sample] <= expected)[clear])
    assert clear.mean() > 0.99


def test_a_slab_needs_half_a_window_more() -> None:
    local = LocalThreshold("niblack", (7, 3, 3), 0.2, False, 20, Range(0, 1))
    assert local.slices(0, 5) == (0, 8)
    assert local.slices(8, 12) == (5, 15)
    assert local.slices(18, 20) == (15, 20)


def test_a_window_has_the_same_width_along_every_axis() -> None:
    assert window_in_voxels(15, (1.0, 1.0, 1.0), False) == (15, 15, 15)
    assert window_in_voxels(16, (1.0, 1.0, 1.0), True) == (1, 17, 17)
    assert window_in_voxels(51, (5.0, 0.49, 0.49), False) == (5, 51, 51)
    assert window_in_voxels(3, (50.0, 0.5, 1.0), False) == (1, 3, 1)


# in the job


@pytest.mark.parametrize("method", LOCAL_METHODS)
def test_the_job_takes_a_local_threshold_whatever_the_slabs(
    method: str, threads: KernelThreads
) -> None:
    image = uneven_scan((40, 60, 64)).clip(0, 255).astype(np.float32)
    settings = {"threshold": method, "local_window": 9, "minimum_voxels": 1}
    result = hushpore.segment_pores(image, **settings)
    np.testing.assert_array_equal(result.labels > 0, find(image, threads, method, (9, 9, 9)))
    assert result.threshold is None
    assert result.provenance["result"]["threshold"] is None
    assert result.provenance["settings"]["threshold"] == method
    slabs = hushpore.segment_pores(image, memory_budget=0.002, **settings)
    assert any("slabs" in note for note in slabs.notes)
    np.testing.assert_array_equal(slabs.labels, result.labels)


def test_a_window_in_one_slice_sees_nothing_of_the_others(threads: KernelThreads) -> None:
    image = uneven_scan().clip(0, 255).astype(np.uint8)
    volume = Volume(image, spacing=(4.0, 1.0, 1.0))
    settings = {"threshold": "niblack", "local_window": 11, "minimum_voxels": 1}
    in_slice = hushpore.segment_pores(volume, local_window_by_slice=True, **settings)
    np.testing.assert_array_equal(in_slice.labels > 0, find(image, threads, "niblack", (1, 11, 11)))
    as_wide = hushpore.segment_pores(volume, **settings)
    np.testing.assert_array_equal(as_wide.labels > 0, find(image, threads, "niblack", (3, 11, 11)))
    one = hushpore.segment_pores(image[3], **settings)
    alone = find(image[3:4], threads, "niblack", (1, 11, 11))
    np.testing.assert_array_equal(one.labels > 0, alone[0])


@pytest.mark.parametrize(("setting", "value"), [("hysteresis", 50.0), ("otsu_classes", 3)])
def test_what_has_no_meaning_with_a_local_threshold_is_refused(setting: str, value: float) -> None:
    with pytest.raises(InputError, match="sauvola"):
        hushpore.segment_pores(uneven_scan(), threshold="sauvola", **{setting: value})


#: Values that reconstructions leave in one voxel or a few.
FAR_OUTSIDE = (1e5, 1e6, 1e8, 1e19, -1e5, -1e6, -1e9)


def scan_with(*hot: float, dtype: type = np.float32, seed: int = 0) -> tuple[np.ndarray, float]:
    """Balls of void in noise, with a few voxels far outside; and the porosity without these."""
    z, y, x = np.ogrid[:20, :45, :60]
    balls = ((8, 14, 12, 5), (15, 34, 30, 6), (10, 30, 48, 4))
    void = np.zeros((20, 45, 60), np.bool_)
    for *centre, radius in balls:
        void |= sum((g - c) ** 2 for g, c in zip((z, y, x), centre, strict=True)) <= radius**2
    noise = np.random.default_rng(seed).normal(0, 20, void.shape)
    values = np.where(void, 300.0, 1000.0) + noise
    for k, value in enumerate(hot):
        values[2, 2 + 3 * k, 2] = value
    return values.astype(dtype), float(void.mean())


@pytest.mark.parametrize("hot", FAR_OUTSIDE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_one_voxel_far_outside_hides_no_pores(hot: float, dtype: type) -> None:
    hot = max(min(hot, 2e18), -2e18)
    image, porosity = scan_with(hot, dtype=dtype)
    result = hushpore.segment_pores(image)
    assert result.porosity == pytest.approx(porosity, rel=0.01)
    np.testing.assert_allclose(result.pores["mean_grey"], 300, atol=3)
    assert len(result.pores) == 3
    said = " ".join(note.message for note in result.remarks)
    assert "only two values" not in said
    assert "air" not in said


@pytest.mark.parametrize("method", ["otsu", "li", "isodata", "sauvola"])
def test_a_few_voxels_at_both_ends_hide_no_pores_from_any_method(method: str) -> None:
    image, _ = scan_with(1e8, -1e7, 3e6)
    plain, _ = scan_with()
    with_few = hushpore.segment_pores(image, threshold=method, exterior="keep")
    without = hushpore.segment_pores(plain, threshold=method, exterior="keep")
    assert with_few.porosity == pytest.approx(without.porosity, rel=0.05)


def test_slabs_on_disk_see_no_voxel_far_outside() -> None:
    image, _ = scan_with(1e8, -1e7)
    found = []
    for thickness in (20, 3):
        values = GreyValues(Volume(image), Slabs(20, thickness, on_disk=thickness < 20))
        found.append(result_of(survey(values, True, KernelThreads(1))))
    (whole, counted), (ends, by_slabs) = found
    assert whole == ends
    np.testing.assert_array_equal(by_slabs.counts, counted.counts)
    assert counted.counts.sum() == image.size


@pytest.mark.parametrize("pores", [1, 3, 200])
@pytest.mark.parametrize(("solid", "pore"), [(0.0, 1e-3), (1e8, 1e8 + 16), (-5.0, 7e5)])
def test_two_values_are_two_values_however_few_have_one(
    pores: int, solid: float, pore: float
) -> None:
    image = np.full((20, 45, 60), solid, np.float32)
    image.reshape(-1)[100 : 100 + pores] = pore
    result = hushpore.segment_pores(image, pores_are="bright", exterior="keep")
    assert result.porosity == pytest.approx(pores / image.size)
    assert any("has only two values" in note.message for note in result.remarks)


def test_two_narrow_groups_are_no_two_values() -> None:
    image, porosity = scan_with(dtype=np.float64)
    narrow = np.where(image < 650, 0.1, 0.8) + 1e-6 * image / 1000
    result = hushpore.segment_pores(narrow)
    assert result.porosity == pytest.approx(porosity)
    assert not any("only two values" in note.message for note in result.remarks)


def test_one_wide_group_takes_no_time_and_is_not_called_two() -> None:
    """Noise over all of 16 bits was smoothed by filters of tens of thousands of bins."""
    image = np.random.default_rng(0).integers(0, 60000, (20, 45, 37)).astype(np.uint16)
    # a Fourier transform smooths as a Gaussian filter does
    counts = np.bincount(image.ravel(), minlength=60000).astype(np.float64)
    for spread in (201.0, 999.5):
        expected = ndimage.gaussian_filter1d(counts, spread, mode="constant", truncate=8)
        np.testing.assert_allclose(_smoothed(counts, spread), expected, atol=1e-4)
    first = hushpore.segment_pores(image).remarks[0].message
    assert "separates no second group of grey values from the main one" in first
