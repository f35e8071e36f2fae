from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import stats
from skimage.measure import block_reduce
from skimage.util import view_as_blocks

from hushpore.base.errors import InputError
from hushpore.base.rescaled import Scaled
from hushpore.base.volume import Volume
from hushpore.io import describe, is_on_disk, read, resample_evenly
from hushpore.io.lazy_arrays import DiskArray
from hushpore.io.parts import Bin, Crop, binned, cropped, resampled
from hushpore.io.results import write_image
from hushpore.runs.scan_recipe import ScanRecipe

SHAPE = (11, 14, 9)
RNG = np.random.default_rng(1)
VALUES = RNG.integers(0, 65535, SHAPE).astype(np.uint16)


def lazily(tmp_path, suffix, values=VALUES, **known):
    known = {"spacing": (2, 1, 0.5), "unit": "um", **known}
    path = write_image(tmp_path / f"a{suffix}", Volume(values, **known))
    (volume,) = describe(path)
    assert is_on_disk(volume)
    return volume


def means(values, factors):
    """Means of the whole blocks, by scikit-image."""
    whole = values[tuple(slice(0, n // f * f) for n, f in zip(values.shape, factors, strict=True))]
    return block_reduce(whole.astype(np.float64), factors, np.mean)


@pytest.mark.parametrize("suffix", [".tif", ".npy", ".zarr"])
def test_a_crop_is_the_slice_of_numpy_in_its_place(tmp_path, suffix):
    if suffix == ".npy":
        np.save(tmp_path / "a.npy", VALUES)
        (volume,) = describe(tmp_path / "a.npy")
    else:
        volume = lazily(tmp_path, suffix)
    part = cropped(volume, "2:9,:,3:8")
    expected = VALUES[2:9, :, 3:8]
    assert is_on_disk(part)
    np.testing.assert_array_equal(part.array(), expected)
    filled = np.empty(part.shape, part.dtype)
    assert list(part.data.read_into(filled))[-1] == 7
    np.testing.assert_array_equal(filled, expected)
    wanted = np.array([2, 0, 3]) * volume.spacing
    np.testing.assert_allclose(np.subtract(part.origin, volume.origin), wanted)
    assert "2:9,0:14,3:8 (z,y,x) of 11 x 14 x 9" in part.notes[-1]


@pytest.mark.parametrize(
    "key",
    [3, -1, (slice(None), 2), (slice(1, 6, 2), slice(None, None, -1), -2), (..., slice(4, 1)),
     (slice(5, 0, -2), 0, 0), slice(-3, None)],
)  # fmt: skip
def test_parts_are_indexed_as_numpy_is(tmp_path, key):
    stack = lazily(tmp_path, ".tif").data
    crop = Crop(stack, [slice(2, 9), slice(1, 13), slice(3, 8)])
    np.testing.assert_array_equal(crop[key], VALUES[2:9, 1:13, 3:8][key])
    expected = np.rint(means(VALUES, (1, 2, 2))).astype(np.uint16)
    np.testing.assert_array_equal(Bin(stack, (1, 2, 2))[key], expected[key])


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
@pytest.mark.parametrize("factors", ["2", "1,2,3", "3,1,2"])
def test_bins_are_the_means_of_scikit_image(tmp_path, dtype, factors):
    values = (VALUES >> 8).astype(dtype)
    volume = lazily(tmp_path, ".tif", values)
    small = binned(volume, factors)
    each = [int(n) for n in factors.split(",")] * (3 if factors == "2" else 1)
    expected = means(values, tuple(each))
    expected = (np.rint(expected) if dtype != "float32" else expected).astype(dtype)
    assert is_on_disk(small)
    np.testing.assert_array_equal(small.array(), expected)
    filled = np.empty(small.shape, small.dtype)
    assert list(small.data.read_into(filled))[-1] == small.shape[0]
    np.testing.assert_array_equal(filled, expected)
    assert small.spacing == tuple(np.multiply(volume.spacing, each))
    centre = (np.array(each) - 1) / 2 * volume.spacing
    np.testing.assert_allclose(np.subtract(small.origin, volume.origin), centre)


@pytest.mark.parametrize(("suffix", "steps"), [(".tif", [1, 2, 3, 4, 5]), (".zarr", [5])])
def test_slabs_of_a_few_planes_give_the_same(tmp_path, monkeypatch, suffix, steps):
    monkeypatch.setattr("hushpore.io.lazy_arrays.SLAB", 60)
    crop = cropped(lazily(tmp_path, suffix), "1:11,:,1:9")
    expected = VALUES[1:, :, 1:]
    filled = np.empty(crop.shape, crop.dtype)
    assert list(crop.data.read_into(filled))[-1] == 10
    np.testing.assert_array_equal(filled, expected)
    part = binned(crop, "2")
    expected = np.rint(means(expected, (2, 2, 2)))
    filled = np.empty(part.shape, part.dtype)
    # a compressed chunk of Zarr is read once
    assert list(part.data.read_into(filled)) == steps
    np.testing.assert_array_equal(filled, expected)
    np.testing.assert_array_equal(part.array(), expected)


def test_time_points_and_single_images_are_cut_in_space():
    series = Volume(np.arange(2 * 4 * 6 * 6).reshape(2, 4, 6, 6).astype(float), axes="tzyx")
    part = binned(cropped(series, "1:3,0:4,2:6"), "2")
    expected = means(series.data[:, 1:3, :4, 2:], (1, 2, 2, 2))
    np.testing.assert_array_equal(part.array(), expected)
    image = Volume(VALUES[0].astype(np.float32), spacing=1, unit="um")
    np.testing.assert_array_equal(cropped(image, "1:5,:7").data, image.data[1:5, :7])
    assert binned(image, "2,3").spacing == (2, 3)


def test_slopes_and_positions_of_slices_follow():
    slope, places = np.arange(1.0, 12), np.arange(11.0) ** 2
    metadata = {"slice_positions": places.tolist()}
    for scale in (2.0, slope):
        scan = Volume(Scaled(VALUES >> 8, scale, -5), spacing=1, unit="um", metadata=metadata)
        part = cropped(scan, "3:10,:,:")
        np.testing.assert_array_equal(part.array(), scan.array()[3:10])
        assert part.origin[0] == 9.0
        assert part.metadata["slice_positions"] == places[3:10].tolist()
        small = binned(part, "2")
        expected = means(part.array(), (2, 2, 2))
        # whole stored integers
        np.testing.assert_allclose(
            small.array(), expected, atol=1.0 if scale is not slope else 1e-3
        )
        assert small.metadata["slice_positions"] == [12.5, 30.5, 56.5]
        assert small.origin[0] == 12.5


def test_the_fill_value_is_not_mixed_with_the_sample():
    values = np.full((4, 4), 100, np.int16)
    values[0, 1] = -2000
    scan = Volume(values, metadata={"padding_value": -2000})
    assert binned(scan, "2").array().tolist() == [[-2000, 100], [100, 100]]
    hounsfield = Volume(Scaled(values, 2, -1000), metadata={"padding_value": -5000})
    assert binned(hounsfield, "2").array().tolist() == [[-5000, -800], [-800, -800]]


@pytest.mark.parametrize(
    "crop", ["", "1:2", "1:2,0:3,0:99", "5:5,:,:", "6:5,:,:", "-3:,:,:", "a:b,:,:", "1,2,3",
             ":,:,:,:", "0:1:2,:,:"],
)  # fmt: skip
def test_a_box_that_does_not_fit_is_told_with_the_shape(crop):
    message = rf"--crop {crop}: expected a range .* z,y,x, .* 11 x 14 x 9 of volume.*--crop 2:9,3:"
    with pytest.raises(InputError, match=message):
        cropped(Volume(VALUES), crop)


@pytest.mark.parametrize("factors", ["", "0", "2.5", "-2", "2,2", "12", "1,1,1,1", "2,,2", "two"])
def test_blocks_that_do_not_fit_are_told_with_the_shape(factors):
    with pytest.raises(InputError, match=rf"--bin {factors}: expected .* 11 x 14 x 9 of volume"):
        binned(Volume(VALUES), factors)


@pytest.mark.parametrize("dtype", ["bool", "int32"])
@pytest.mark.parametrize("factors", [(2, 2, 2), (1, 2, 3), (3, 1, 2)])
def test_a_block_of_labels_is_its_most_frequent_value(rng, dtype, factors):
    values = rng.integers(0, 2 if dtype == "bool" else 4, (9, 12, 12)).astype(dtype)
    whole = tuple(
        slice(n // factor * factor) for n, factor in zip(values.shape, factors, strict=True)
    )
    blocks = view_as_blocks(values[whole], factors).reshape(-1, np.prod(factors))
    expected = stats.mode(blocks.astype(int), axis=1).mode
    small = binned(Volume(values).as_labels(values, "mask"), ",".join(map(str, factors)))
    assert (small.dtype, small.holds_labels) == (values.dtype, True)
    np.testing.assert_array_equal(small.array().ravel(), expected)
    np.testing.assert_array_equal(small.data[1:3, ::2, -1], small.array()[1:3, ::2, -1])
    filled = np.empty(small.shape, small.dtype)
    assert list(small.data.read_into(filled))[-1] == small.shape[0]
    np.testing.assert_array_equal(filled, small.array())
    assert "most frequent value" in small.notes[-1]


def test_of_twenty_gigabytes_only_the_box_is_read(tmp_path):
    side, at = 2160, 1000
    path = tmp_path / "huge.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<u2", "fortran_order": False, "shape": (side, side, side)}
        )
        head = file.tell()
        file.truncate(head + 2 * side**3)
        expected = RNG.integers(0, 65535, (64, 64, 64)).astype("<u2")
        for z in range(64):
            for y in range(64):
                file.seek(head + 2 * (((at + z) * side + at + y) * side + at))
                file.write(expected[z, y].tobytes())
    (volume,) = describe(path)
    assert volume.nbytes > 20e9
    box = ",".join([f"{at}:{at + 64}"] * 3)
    tracemalloc.start()
    try:
        part = cropped(volume, box)
        small = binned(part, "2")
        assert isinstance(small.data, DiskArray)
        values, halves = part.array(), small.array()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(halves, np.rint(means(expected, (2, 2, 2))))
    assert peak < 40e6
    assert part.origin == (at,) * 3


def uneven(places, **known):
    """A stack whose values are its places, so that interpolation must give the place back."""
    values = np.asarray(places, np.float32)[:, None, None] * np.ones((1, 2, 3), np.float32)
    metadata = {"slice_positions": list(places)}
    return Volume(values, spacing=(2, 1, 1), unit="mm", metadata=metadata, **known)


def test_values_that_grow_evenly_are_even_afterwards():
    volume = resample_evenly(uneven([0, 2, 4, 7.5, 11, 14.5]))
    np.testing.assert_allclose(volume.data[:, 0, 0], np.arange(0, 14.5, 2))
    assert volume.spacing == (2, 1, 1)
    assert "5 of 8 slices were interpolated" in volume.notes[-1]
    assert "slice_positions" not in volume.metadata


def test_slices_that_are_there_stay_as_they_are():
    rng = np.random.default_rng(0)
    before = uneven([-3, -1, 1, 5, 7])
    before = before.replace(rng.normal(size=before.shape).astype(np.float32))
    after = resample_evenly(before)
    assert after.shape[0] == 6
    np.testing.assert_array_equal(after.data[[0, 1, 2, 4, 5]], before.data)
    np.testing.assert_allclose(after.data[3], (before.data[2] + before.data[3]) / 2, rtol=1e-6)


@pytest.mark.parametrize("suffix", ["tif", "zarr"])
@pytest.mark.parametrize("size", ["", "2mm", "500um", "3,1,1um"])
def test_uneven_slices_are_resampled_alike_from_a_file_and_with_any_voxel_size(
    tmp_path, suffix, size
):
    path = write_image(tmp_path / f"a.{suffix}", uneven([0, 2, 4, 10, 12]))
    even = ScanRecipe(str(path), voxel_size=size, resample=True).read()
    np.testing.assert_allclose(even.data[:, 0, 0], np.arange(0, 14, 2))


def test_another_spacing_may_be_asked_for():
    volume = resample_evenly(uneven([0, 2, 4, 10]), spacing=2.5)
    np.testing.assert_allclose(volume.data[:, 0, 0], [0, 2.5, 5, 7.5, 10])
    with pytest.raises(InputError, match="must be positive"):
        resample_evenly(uneven([0, 2, 4, 10]), spacing=-1)


def test_slices_can_be_interpolated_when_they_are_asked_for():
    before = uneven([0, 2, 4, 10])
    lazy = resampled(before)
    assert is_on_disk(lazy)
    np.testing.assert_array_equal(np.asarray(lazy.data), resample_evenly(before).data)
    assert lazy.notes == resample_evenly(before).notes


def test_an_even_stack_is_refused():
    with pytest.raises(InputError, match="nothing to resample"):
        resample_evenly(Volume(np.zeros((3, 4, 5))))


def test_a_missing_slice_of_a_series_is_filled_in(data_folder, truth):
    volume = resample_evenly(read(data_folder / "dicom" / "missing_slice"))
    assert volume.shape == truth.shape
    np.testing.assert_allclose(volume.data[5], (truth[4] + truth[6]) / 2, atol=0.51)
    kept = [k for k in range(12) if k != 5]
    np.testing.assert_allclose(volume.data[kept], truth[kept], atol=0.51)
