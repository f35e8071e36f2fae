import numpy as np
import pytest
import tifffile

from hushpore.base.formatting import METRES, unit_of
from hushpore.io import read
from hushpore.io.tiff.voxel_size import ome_voxel_size

VALUES = np.arange(60, dtype=np.uint16).reshape(3, 4, 5)


def imagej(path, resolution, **metadata):
    metadata["axes"] = "ZYX"
    tifffile.imwrite(path, VALUES, imagej=True, resolution=resolution, metadata=metadata)
    return read(path)


@pytest.mark.parametrize("spelling", ["micron", "um", "\\u00B5m", "microns", "MICRON"])
def test_every_spelling_of_the_micrometre_is_um(tmp_path, spelling):
    volume = imagej(tmp_path / "a.tif", (2, 4), spacing=3.0, unit=spelling)
    assert (volume.spacing, volume.unit) == ((3.0, 0.25, 0.5), "um")


@pytest.mark.parametrize(
    ("spelling", "unit", "factor"),
    [("mm", "mm", 1), ("cm", "cm", 1), ("nm", "nm", 1), ("m", "m", 1), ("inch", "mm", 25.4)],
)
def test_units_of_imagej(tmp_path, spelling, unit, factor):
    volume = imagej(tmp_path / "a.tif", (2, 2), spacing=3.0, unit=spelling)
    assert volume.unit == unit
    assert volume.spacing == pytest.approx((3 * factor, 0.5 * factor, 0.5 * factor))


def test_an_unknown_unit_is_said_and_not_guessed(tmp_path):
    volume = imagej(tmp_path / "a.tif", (2, 2), spacing=3.0, unit="furlong")
    assert (volume.spacing, volume.unit) == ((1.0, 1.0, 1.0), "pixel")
    assert any("furlong" in note for note in volume.notes)


def test_pixels_are_no_unit_of_length(tmp_path):
    volume = imagej(tmp_path / "a.tif", (1, 1), spacing=1.0, unit="pixel")
    assert (volume.spacing, volume.unit, volume.notes) == ((1.0, 1.0, 1.0), "pixel", [])


def test_a_flipped_stack_has_its_spacing_above_zero(tmp_path):
    volume = imagej(tmp_path / "a.tif", (2, 2), spacing=-3.0, unit="mm")
    assert volume.spacing == (3.0, 0.5, 0.5)


def test_a_missing_slice_distance_is_taken_from_the_pixels_and_said(tmp_path):
    volume = imagej(tmp_path / "a.tif", (2, 2), unit="mm")
    assert volume.spacing == (0.5, 0.5, 0.5)
    assert any("distance between slices" in note for note in volume.notes)


@pytest.mark.parametrize(("unit", "millimetres"), [("CENTIMETER", 10.0), ("INCH", 25.4)])
def test_resolution_tags_in_centimetres_or_inches_give_millimetres(tmp_path, unit, millimetres):
    path = tmp_path / "a.tif"
    tifffile.imwrite(
        path, VALUES, photometric="minisblack", resolution=(400, 200), resolutionunit=unit
    )
    volume = read(path)
    assert volume.unit == "mm"
    assert volume.spacing[1:] == pytest.approx((millimetres / 200, millimetres / 400))


@pytest.mark.parametrize(
    ("resolution", "unit"), [((72, 72), "INCH"), ((96, 96), "INCH"), ((28.3464567, 28.3464567), 3)]
)
def test_a_resolution_for_printing_is_no_voxel_size(tmp_path, resolution, unit):
    path = tmp_path / "a.tif"
    tifffile.imwrite(
        path, VALUES, photometric="minisblack", resolution=resolution, resolutionunit=unit
    )
    volume = read(path)
    assert (volume.spacing, volume.unit) == ((1.0, 1.0, 1.0), "pixel")
    assert any("printing" in note for note in volume.notes)


def test_a_resolution_without_unit_is_no_voxel_size(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(
        path, VALUES, photometric="minisblack", resolution=(5, 5), resolutionunit="NONE"
    )
    volume = read(path)
    assert volume.unit == "pixel"
    assert any("the resolution has no unit" in note for note in volume.notes)


def ome(tmp_path, **sizes):
    path = tmp_path / "a.ome.tif"
    tifffile.imwrite(
        path, VALUES, photometric="minisblack", ome=True, metadata={"axes": "ZYX", **sizes}
    )
    return read(path)


def test_ome_sizes_in_different_units_are_brought_to_that_of_x(tmp_path):
    volume = ome(
        tmp_path,
        PhysicalSizeX=0.5, PhysicalSizeXUnit="mm",
        PhysicalSizeY=700.0, PhysicalSizeYUnit="µm",
        PhysicalSizeZ=0.2, PhysicalSizeZUnit="cm",
    )  # fmt: skip
    assert volume.unit == "mm"
    assert volume.spacing == pytest.approx((2.0, 0.7, 0.5))


def test_ome_without_unit_is_micrometres_as_the_standard_says(tmp_path):
    volume = ome(tmp_path, PhysicalSizeX=0.5, PhysicalSizeY=0.7, PhysicalSizeZ=2.0)
    assert (volume.spacing, volume.unit) == ((2.0, 0.7, 0.5), "um")
    assert any("micrometres" in note for note in volume.notes)


def test_ome_without_sizes_is_pixels(tmp_path):
    volume = ome(tmp_path)
    assert (volume.spacing, volume.unit) == ((1.0, 1.0, 1.0), "pixel")


@pytest.mark.parametrize("xml", ["", "<OME", "<OME/>", "<a><Image/></a>"])
def test_xml_without_an_image_states_nothing(xml):
    assert ome_voxel_size(xml, 0, 1) is None


@pytest.mark.parametrize("unit", [*METRES, "pixel"])
def test_our_own_names_of_units_are_kept(unit):
    assert unit_of(unit) == (unit, 1.0)


@pytest.mark.parametrize(
    ("unit", "per_unit", "size"),
    [("CENTIMETER", 1000, 0.01), ("MILLIMETER", 100, 0.01), ("MICROMETER", 0.1, 0.01),
     ("NONE", 100, None)],
)  # fmt: skip
def test_the_resolution_unit_of_tags(tmp_path, unit, per_unit, size):
    tifffile.imwrite(
        tmp_path / "a.tif", np.zeros((3, 4, 5), np.uint8), metadata=None, resolutionunit=unit,
        resolution=(per_unit, per_unit), photometric="minisblack",
    )  # fmt: skip
    volume = read(tmp_path / "a.tif")
    assert volume.unit == ("pixel" if size is None else "mm")
    assert volume.spacing == pytest.approx((size or 1,) * 3)
