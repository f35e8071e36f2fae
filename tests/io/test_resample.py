import numpy as np
import pytest

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io import is_on_disk, read, resample_evenly
from hushpore.io.resample import resampled
from hushpore.io.results import write_image
from hushpore.runs.scan_recipe import ScanRecipe


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
