"""Fill value in place of NaN, in memory and on disk."""

from __future__ import annotations

import numpy as np
import pytest
import tifffile
from scipy import ndimage

import hushpore
from hushpore.base.volume import Volume
from hushpore.io import read, read_all
from hushpore.io.undefined import Filled, with_fill_value
from hushpore.io.zarr import write_zarr


def reconstruction(ramp):
    values = ramp.astype(np.float32)
    values[:, :2, :2], values[:, -1, -1] = np.nan, -np.inf
    return values


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
def test_a_scan_on_disk_is_filled_lazily_with_the_value_of_one_in_memory(tmp_path, ramp, suffix):
    values = reconstruction(ramp)
    path = tmp_path / f"scan{suffix}"
    if suffix == ".npy":
        np.save(path, values)
    else:
        write_zarr(path, Volume(values))
    (volume,) = read_all(path, lazy=True)
    found, expected = with_fill_value(volume), with_fill_value(Volume(values.copy()))
    assert isinstance(found.data, Filled)
    np.testing.assert_array_equal(found.array(), expected.array())
    np.testing.assert_array_equal(found.data[1:3, ::2, -1], expected.data[1:3, ::2, -1])
    assert found.metadata["padding_value"] == expected.metadata["padding_value"] < values[2, 3, 3]
    assert found.notes[-1] == expected.notes[-1]
    into = np.empty(values.shape, np.float32)
    assert list(found.data.read_into(into))[-1] == len(values)
    np.testing.assert_array_equal(into, expected.array())


def test_a_scan_on_disk_without_nan_is_returned_after_three_slices(tmp_path, ramp):
    np.save(tmp_path / "scan.npy", ramp.astype(np.float32))
    (volume,) = read_all(tmp_path / "scan.npy", lazy=True)
    read = []
    original = type(volume.data)._read_part

    def counted(self, keys):
        read.append(keys)
        return original(self, keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(volume.data), "_read_part", counted)
        assert with_fill_value(volume) is volume
    assert len(read) == 3


@pytest.fixture(scope="module")
def core():
    """Pores of 12 % in a core: grey values, where the core is, and where its pores are."""
    rng = np.random.default_rng(0)
    field = ndimage.gaussian_filter(rng.normal(size=(24, 48, 48)), 2)
    pores = field < np.quantile(field, 0.12)
    grey = ndimage.gaussian_filter(np.where(pores, 8000.0, 20_000.0), 0.7)
    grey += rng.normal(0, 600, grey.shape)
    y, x = np.indices((48, 48)) - 23.5
    return grey.astype(np.float32), np.broadcast_to(np.hypot(y, x) < 22, grey.shape), pores


@pytest.mark.parametrize(
    "fill", [np.nan, np.inf, -np.inf, 1e30, np.finfo(np.float32).min, -1000, 0, 32767, -99999]
)
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_any_value_outside_a_core_is_excluded(tmp_path, core, fill, kind):
    grey, inside, pores = core
    np.save(tmp_path / "core.npy", np.where(inside, grey, fill).astype(kind))
    result = hushpore.segment_pores(read(tmp_path / "core.npy"))
    assert result.porosity == pytest.approx(pores[inside].mean(), abs=0.006)
    assert any("Padding around the scan" in remark.message for remark in result.remarks)


def written(folder, kind, values):
    """Write a volume in a format, and return its path."""
    path = folder / f"core.{kind}"
    if kind == "h5":
        with pytest.importorskip("h5py").File(path, "w") as file:
            file["exchange/data"] = values
    elif kind == "nrrd":
        pytest.importorskip("nrrd").write(str(path), values, index_order="C")
    elif kind == "nii":
        nibabel = pytest.importorskip("nibabel")
        nibabel.save(nibabel.Nifti1Image(values.T, np.eye(4)), path)
    elif kind == "tif":
        tifffile.imwrite(path, values)
    elif kind == "raw":
        z, y, x = values.shape
        path = folder / f"core_{x}x{y}x{z}_32bit.raw"
        values.tofile(path)
    else:
        for number, plane in enumerate(values):
            tifffile.imwrite(folder / f"core{number:03d}.tif", plane)
        path = folder
    return path


@pytest.mark.parametrize("kind", ["h5", "nrrd", "nii", "tif", "raw", "folder"])
def test_a_cylinder_of_nan_in_every_format(tmp_path, core, kind):
    grey, inside, _ = core
    values = np.where(inside, grey, np.float32(np.nan))
    volume = read(written(tmp_path, kind, values))
    fill = volume.metadata["padding_value"]
    assert fill < grey.min()
    np.testing.assert_array_equal(volume.data, np.where(inside, grey, np.float32(fill)))
    assert f"{np.count_nonzero(~inside):,} voxels" in volume.notes[-1]


def test_half_precision_and_single_voxels(tmp_path, core):
    values = core[0].astype(np.float16)
    values[3, 4, 5] = np.inf
    np.save(tmp_path / "core.npy", values)
    volume = read(tmp_path / "core.npy")
    assert volume.data[3, 4, 5] == volume.metadata["padding_value"]
    assert volume.dtype == np.float16
