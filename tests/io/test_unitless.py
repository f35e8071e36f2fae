"""A length is in voxels or has a unit; never numbers of a header without one."""

from __future__ import annotations

import numpy as np
import pytest
import tifffile

from hushpore.io import read

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
