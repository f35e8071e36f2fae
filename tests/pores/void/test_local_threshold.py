from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import ndimage
from skimage import filters

import hushpore
from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.void.local_threshold import LocalThreshold, window_in_voxels
from hushpore.pores.void.threshold import Range, find_range
from hushpore.scan.settings import LOCAL_METHODS


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
