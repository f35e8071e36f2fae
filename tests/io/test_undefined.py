"""Fill value in place of NaN, in memory and on disk."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import tifffile
from scipy import ndimage

import hushpore
from hushpore.base.volume import Volume
from hushpore.io import read, read_all
from hushpore.io.results import write_image
from hushpore.io.undefined import Filled, value_metadata, with_fill_value
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


nibabel = pytest.importorskip("nibabel")
zarr = pytest.importorskip("zarr")


@pytest.mark.parametrize("code", [0, 7, 8])
def test_nifti_without_a_unit_is_in_millimetres_and_said(tmp_path, ramp, code):
    """Code 0 is unknown, 7 is no unit at all, and 8 is one of time alone."""
    image = nibabel.Nifti1Image(np.ascontiguousarray(ramp.T), np.diag([0.3, 0.3, 0.4, 1]))
    image.header["xyzt_units"] = code
    nibabel.save(image, tmp_path / "a.nii")
    volume = read(tmp_path / "a.nii")
    assert (volume.spacing, volume.unit) == ((0.4, 0.3, 0.3), "mm")
    assert "millimetres are assumed" in volume.notes[0]


def test_nifti_with_sizes_of_one_and_no_unit_states_nothing(tmp_path, ramp):
    image = nibabel.Nifti1Image(np.ascontiguousarray(ramp.T), np.eye(4))
    image.header["xyzt_units"] = 0
    nibabel.save(image, tmp_path / "a.nii")
    volume = read(tmp_path / "a.nii")
    assert (volume.spacing, volume.unit, volume.notes) == ((1, 1, 1), "pixel", [])


def ome_zarr(folder, values, axes, transformations):
    group = zarr.open_group(folder, mode="w", zarr_format=2)
    array = group.create_array(
        "0", shape=values.shape, chunks=(2, 3, 4), dtype=values.dtype,
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )  # fmt: skip
    array[...] = values
    dataset = {"path": "0", "coordinateTransformations": transformations}
    group.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": [dataset]}]
    return folder


def axes_in(unit):
    return [{"name": n, "type": "space", **({"unit": unit} if unit else {})} for n in "zyx"]


SCALE = {"type": "scale", "scale": [20.0, 10.0, 10.0]}
SHIFT = {"type": "translation", "translation": [5.0, 5.0, 5.0]}


def test_zarr_without_a_unit_is_in_voxels_and_the_numbers_are_said(tmp_path, ramp):
    volume = read(ome_zarr(tmp_path / "a.zarr", ramp, axes_in(""), [SCALE, SHIFT]))
    assert (volume.spacing, volume.unit, volume.origin) == ((1, 1, 1), "pixel", (0, 0, 0))
    assert "20 x 10 x 10 without a unit" in volume.notes[0]
    assert "--voxel-size 20,10,10um" in volume.notes[0]


def test_zarr_with_a_unit_but_no_scale_is_unknown(tmp_path, ramp):
    volume = read(ome_zarr(tmp_path / "a.zarr", ramp, axes_in("micrometer"), []))
    assert (volume.spacing, volume.unit) == ((1, 1, 1), "pixel")
    assert "gives a unit (µm) but no scale" in volume.notes[0]


def test_chunks_that_are_lost_are_counted(tmp_path, ramp):
    folder = ome_zarr(tmp_path / "a.zarr", ramp + 1000, axes_in("micrometer"), [SCALE])
    assert read(folder).notes == []
    (folder / "0" / "0" / "1" / "1").unlink()
    (folder / "0" / "2" / "0" / "0").unlink()
    volume = read(folder)
    assert "2 chunks of 12 are not stored and are read as the fill value 0" in volume.notes[0]


def test_imagej_has_a_unit_for_each_axis(tmp_path, ramp):
    path = tmp_path / "a.tif"
    tifffile.imwrite(
        path, ramp, imagej=True, resolution=(2, 1 / 500),
        metadata={"axes": "ZYX", "unit": "um", "yunit": "nm", "zunit": "mm", "spacing": 0.002},
    )  # fmt: skip
    volume = read(path)
    assert volume.unit == "um"
    assert volume.spacing == pytest.approx((2, 0.5, 0.5))


def test_ome_in_an_unknown_unit_is_in_voxels(tmp_path, ramp):
    path = tmp_path / "a.ome.tif"
    tifffile.imwrite(
        path, ramp, ome=True,
        metadata={"axes": "ZYX", **{f"PhysicalSize{axis}": 5.0 for axis in "XYZ"},
                  **{f"PhysicalSize{axis}Unit": "reference frame" for axis in "XYZ"}},
    )  # fmt: skip
    volume = read(path)
    assert (volume.spacing, volume.unit) == ((1, 1, 1), "pixel")
    assert "5 x 5 x 5 in the unknown unit 'reference frame'" in volume.notes[0]


def test_a_json_file_without_a_unit_gives_no_lengths(tmp_path, ramp):
    ramp.tofile(tmp_path / "a.raw")
    (tmp_path / "a.json").write_text('{"shape": [5, 6, 7], "dtype": "<i2", "spacing": [3, 2, 2]}')
    volume = read(tmp_path / "a.raw")
    assert (volume.spacing, volume.unit) == ((1, 1, 1), "pixel")
    assert "3 x 2 x 2 without a unit" in volume.notes[0]


def nrrd_file(folder, ramp, **header):
    nrrd = pytest.importorskip("nrrd")
    nrrd.write(str(folder / "a.nrrd"), ramp, header, index_order="C")
    return folder / "a.nrrd"


@pytest.mark.parametrize(
    ("units", "spacing", "unit"),
    [
        (["um", "um", "mm"], (2000, 0.7, 0.5), "um"),
        (["mm", "mm", "um"], (0.002, 0.7, 0.5), "mm"),
        (["mm", "", ""], (2, 0.7, 0.5), "mm"),
        (["px"] * 3, (1, 1, 1), "pixel"),
        (["furlong"] * 3, (1, 1, 1), "pixel"),
    ],
)
def test_nrrd_has_a_unit_for_each_axis(tmp_path, ramp, units, spacing, unit):
    volume = read(nrrd_file(tmp_path, ramp, spacings=[-0.5, 0.7, 2.0], units=units))
    assert (volume.spacing, volume.unit) == (spacing, unit)
    said = "2 x 0.7 x 0.5 in the unknown unit 'furlong'" if "furlong" in units else "without a unit"
    assert [said in note for note in volume.notes] == ([True] if unit == "pixel" else [])


@pytest.mark.parametrize("unit", ["px", "ells"])
def test_metaimage_in_pixels_or_an_unknown_unit_is_in_voxels(tmp_path, ramp, unit):
    ramp.tofile(tmp_path / "a.raw")
    (tmp_path / "a.mhd").write_text(
        "ObjectType = Image\nNDims = 3\nDimSize = 7 6 5\nElementType = MET_SHORT\n"
        f"ElementSpacing = 0,5 0,7 2\nDistanceUnits = {unit}\nElementDataFile = a.raw\n"
    )
    volume = read(tmp_path / "a.mhd")
    assert (volume.spacing, volume.unit) == ((1, 1, 1), "pixel")
    assert "2 x 0.7 x 0.5" in volume.notes[0]


def test_ome_in_pixels_is_in_voxels(tmp_path, ramp):
    sizes = {f"PhysicalSize{axis}": 5.0 for axis in "XYZ"}
    units = {f"PhysicalSize{axis}Unit": "pixel" for axis in "XYZ"}
    tifffile.imwrite(
        tmp_path / "a.ome.tif", ramp, ome=True, metadata={"axes": "ZYX", **sizes, **units}
    )
    volume = read(tmp_path / "a.ome.tif")
    assert (volume.spacing, volume.unit) == ((1, 1, 1), "pixel")
    assert "5 x 5 x 5 without a unit" in volume.notes[0]


def test_sizes_that_are_no_numbers_are_unknown(tmp_path, ramp):
    image = nibabel.Nifti1Image(np.ascontiguousarray(ramp.T), np.eye(4))
    nibabel.save(image, tmp_path / "a.nii")
    content = bytearray((tmp_path / "a.nii").read_bytes())
    content[80:92] = np.full(3, np.nan, "<f4").tobytes()
    (tmp_path / "a.nii").write_bytes(content)
    flat = [{"type": "scale", "scale": [0, 1, 1]}]
    zarr_folder = ome_zarr(tmp_path / "a.zarr", ramp, axes_in("micrometer"), flat)
    for path, words in ((tmp_path / "a.nii", "not a number"), (zarr_folder, "not above zero")):
        volume = read(path)
        assert (volume.spacing, volume.unit) == ((1, 1, 1), "pixel")
        assert words in volume.notes[0]


@pytest.mark.parametrize("unit", [{}, {"unit": "px"}])
def test_hdf5_without_a_unit_is_in_voxels_and_the_numbers_are_said(tmp_path, ramp, unit):
    with pytest.importorskip("h5py").File(tmp_path / "a.h5", "w") as file:
        stored = file.create_dataset("volume", data=ramp)
        stored.attrs.update({"voxel_size": [2.0, 1.0, 1.0], **unit})
    volume = read(tmp_path / "a.h5")
    assert (volume.spacing, volume.unit) == ((1, 1, 1), "pixel")
    assert "2 x 1 x 1 without a unit" in volume.notes[0]


GREY = {"padding_value": -2000.5, "value_unit": "HU", "slice_positions": [0, 1.5, 4]}


@pytest.mark.parametrize("suffix", ["tif", "zarr"])
@pytest.mark.parametrize("known", [{}, GREY, {"labels": True}, {"denoised": True}])
def test_what_is_known_of_values_comes_back_from_a_file(tmp_path, suffix, known):
    values = np.arange(192, dtype=np.int16).reshape(3, 8, 8)
    path = write_image(tmp_path / f"a.{suffix}", Volume(values, metadata=known))
    assert read(path).metadata == known


def test_what_only_this_scan_had_is_not_written():
    assert value_metadata(GREY | {"windows": [[0, 1]], "patient": "A"}) == GREY


def test_places_of_slices_are_not_said_of_labels_between_which_nothing_lies():
    assert value_metadata(GREY | {"labels": True}) == {
        key: value for key, value in GREY.items() if key != "slice_positions"
    } | {"labels": True}


@pytest.mark.parametrize(
    "known",
    [
        {"labels": "true"},
        {"labels": 1},
        {"padding_value": "0"},
        {"padding_value": 1e300},
        {"value_unit": 7},
        {"value_unit": ""},
        {"slice_positions": "0 1"},
        {"slice_positions": [0, True]},
        {"slice_positions": [0, math.nan]},
        {"slice_positions": []},
    ],
)
def test_what_is_of_another_type_is_left_out(known):
    assert value_metadata(json.loads(json.dumps(known))) == {}


def test_a_unit_from_a_file_is_one_short_line_without_control_characters():
    unit = value_metadata({"value_unit": "H\x1b[31mU\n" + "x" * 1000})["value_unit"]
    assert unit.isprintable()
    assert len(unit) <= 40
