import sys

import numpy as np
import pytest

from hushpore.base.errors import HushporeError, InputError, MissingPackageError
from hushpore.io import kind_of, read

nibabel = pytest.importorskip("nibabel")


def written(path, values, spacing=(2, 0.7, 0.5), unit="mm", slope=None):
    image = nibabel.Nifti1Image(values.T, np.diag([*spacing[::-1], 1]))
    image.header.set_xyzt_units(unit)
    if slope is not None:
        image.header.set_slope_inter(slope, -1024)
    nibabel.save(image, path)
    return path


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@pytest.mark.parametrize("dtype", ["u1", "<i2", ">i2", "f4"])
def test_values_spacing_and_unit_are_those_that_nibabel_wrote(tmp_path, ramp, name, dtype):
    values = np.abs(ramp).astype(dtype)
    path = written(tmp_path / name, values)
    assert kind_of(path) == "nifti"
    volume = read(path)
    np.testing.assert_array_equal(volume.data, values)
    assert volume.dtype == values.dtype.newbyteorder("=")
    assert (volume.axes, volume.unit, volume.name) == ("zyx", "mm", "a")
    assert volume.spacing == (2, 0.7, 0.5)


@pytest.mark.needs("SimpleITK")
def test_simpleitk_and_hushpore_read_the_same(tmp_path, ramp):
    import SimpleITK

    image = SimpleITK.GetImageFromArray(ramp)
    image.SetSpacing((0.5, 0.75, 2.0))
    SimpleITK.WriteImage(image, str(tmp_path / "itk.nii.gz"))
    by_nibabel = written(tmp_path / "nibabel.nii", ramp, (2, 0.75, 0.5))
    for path in (tmp_path / "itk.nii.gz", by_nibabel):
        volume, other = read(path), SimpleITK.ReadImage(str(path))
        np.testing.assert_array_equal(volume.data, ramp)
        np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(other), ramp)
        assert (volume.spacing, volume.unit) == (other.GetSpacing()[::-1], "mm")


def test_slope_and_intercept_are_applied(tmp_path, ramp):
    path = written(tmp_path / "a.nii", ramp)
    content = bytearray(path.read_bytes())
    content[112:120] = np.array([2, -1024], "<f4").tobytes()
    path.write_bytes(content)
    volume = read(path)
    assert volume.dtype == np.float32
    np.testing.assert_array_equal(volume.data, ramp * 2.0 - 1024)


def test_time_comes_first(tmp_path, ramp):
    values = np.stack([ramp, ramp + 1, ramp + 2, ramp + 3])
    image = nibabel.Nifti1Image(values.T, np.eye(4))
    nibabel.save(image, tmp_path / "a.nii")
    volume = read(tmp_path / "a.nii")
    assert volume.axes == "tzyx"
    np.testing.assert_array_equal(volume.data, values)


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_a_file_that_was_cut_is_told(tmp_path, ramp, name):
    path = written(tmp_path / name, ramp)
    content = path.read_bytes()
    path.write_bytes(content[: int(0.8 * len(content))])
    with pytest.raises(InputError):
        read(path)


def test_flipped_bits_give_an_image_or_a_clear_error(tmp_path, ramp, rng):
    path = written(tmp_path / "a.nii", ramp)
    content = np.frombuffer(path.read_bytes(), np.uint8)
    for _ in range(150):
        broken = content.copy()
        broken[rng.integers(0, 352, 3)] ^= rng.integers(1, 255, 3, dtype=np.uint8)
        path.write_bytes(broken.tobytes())
        try:
            read(path)
        except HushporeError:
            continue


def test_without_nibabel_the_command_that_installs_it_is_given(tmp_path, ramp, monkeypatch):
    path = written(tmp_path / "a.nii", ramp)
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'hushpore\[nifti\]'"):
        read(path)
