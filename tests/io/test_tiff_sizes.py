from __future__ import annotations

import struct

import numpy as np
import pytest
import tifffile

from hushpore.base.formatting import METRES, unit_of
from hushpore.io import describe, read
from hushpore.io.tiff_sizes import ome_voxel_size

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
    [("mm", "mm", 1), ("cm", "cm", 1), ("nm", "nm", 1), ("m", "m", 1)],
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


@pytest.mark.parametrize(
    ("resolution", "unit"),
    [((72, 72), "INCH"), ((2, 2), "INCH"), ((400, 400), "INCH"), ((28.3464567,) * 2, 3)],
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
    assert "0.2 x 0.2 x 0.2 without a unit" in volume.notes[0]


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


def tiff(path, pages, tags, reduced=(), behind=b""):
    """Write a TIFF by hand: one page for each image.

    `tags`: code, type, count and content of further tags of the first page; the content may be a
    function of its place in the file. `reduced`: numbers of the pages that are marked as smaller
    copies of others. `behind`: bytes behind the first image.
    """
    out, link = bytearray(b"II*\0\0\0\0\0"), 4
    for number, page in enumerate(pages):
        place = len(out)
        out += page.astype("<u2").tobytes() + (b"" if number else behind)
        own = {254: int(number in reduced), 256: page.shape[1], 257: page.shape[0], 258: 16, 259: 1,
               262: 1, 273: place, 277: 1, 278: page.shape[0], 279: page.nbytes}  # fmt: skip
        stated = [(code, 4, 1, struct.pack("<I", value)) for code, value in own.items()]
        entries = b""
        for code, kind, count, content in sorted(stated + ([] if number else tags)):
            value = content(len(out)) if callable(content) else content
            at = struct.pack("<I", len(out))
            if len(value) > 4:
                out += value + b"\0"
            entries += struct.pack("<HHI", code, kind, count) + (at if len(value) > 4 else value)
        struct.pack_into("<I", out, link, len(out))
        out += struct.pack("<H", len(entries) // 12) + entries
        link = len(out)
        out += bytes(4)
    path.write_bytes(out)
    return path


def lsm(z, y, x):
    """The tag of Zeiss LSM, with the voxel size in metres."""
    info = np.zeros(1, [(name, kind) for name, kind in tifffile.TIFF.CZ_LSMINFO])
    values = {
        "MagicNumber": 67127628, "StructureSize": info.nbytes, "DimensionX": 5, "DimensionY": 4,
        "DimensionZ": 3, "DimensionChannels": 1, "DimensionTime": 1, "DataType": 2,
        "VoxelSizeX": x, "VoxelSizeY": y, "VoxelSizeZ": z,
    }  # fmt: skip
    for name, value in values.items():
        info[name] = value
    return [(34412, 1, info.nbytes, info.tobytes())]


def fei(y, x, section="Scan"):
    text = f"[User]\nUserText=\n[{section}]\nPixelWidth={x}\nPixelHeight={y}\n".encode()
    return [(34682, 2, len(text), text)]


def zeiss_sem(step, unit, key="AP_IMAGE_PIXEL_SIZE"):
    text = f"0\n0\nDP_MODE\nMode = Fish\n{key}\nImage Pixel Size = {step} {unit}\n".encode("cp1252")
    return [(34118, 2, len(text), text)]


def stk(z, step, unit, count=3):
    """The tags of MetaMorph: calibration in the first, distance of the slices in the second."""

    def calibration(place):
        # four numbers and their values or the places of their values, which follow
        behind = place + 32
        words = struct.pack("<I", len(unit) + 1) + unit.encode() + b"\0"
        pairs = struct.pack("<8I", 3, 1, 4, behind, 5, behind, 6, behind + 8)
        return pairs + struct.pack("<2I", round(1000 * step), 1000) + words

    planes = struct.pack("<6I", round(1000 * z), 1000, 0, 0, 0, 0) * count
    return [(33628, 4, 4, calibration), (33629, 5, count, planes)]


def microscope(path, tags):
    """Write the slices as the program does that writes such tags."""
    pages, reduced, behind = list(VALUES), (), b""
    if tags[0][0] == 34412:  # LSM has a smaller copy behind each slice
        pages, reduced = [page for each in VALUES for page in (each, each[:2, :2])], (1, 3, 5)
    if tags[0][0] == 33628:  # STK has one page for all slices
        pages, behind = [VALUES[0]], VALUES[1:].tobytes()
    return tiff(path, pages, tags, reduced, behind)


@pytest.mark.parametrize(
    ("tags", "spacing"),
    [
        (lsm(1.5e-6, 2.5e-7, 2.5e-7), (1.5, 0.25, 0.25)),
        (lsm(5e-9, 4e-9, 4e-9), (0.005, 0.004, 0.004)),
        (stk(2.0, 0.5, "um"), (2, 0.5, 0.5)),
        (stk(40, 25, "nm"), (0.04, 0.025, 0.025)),
        (fei(4e-9, 4e-9), (0.004, 0.004, 0.004)),
        (fei(5e-9, 4e-9, "EScan"), (0.005, 0.005, 0.004)),
        (zeiss_sem(4.5, "nm"), (0.0045,) * 3),
        (zeiss_sem(1.2, "\xb5m", "AP_PIXEL_SIZE"), (1.2,) * 3),
    ],
)
def test_the_voxel_size_of_microscopes_is_read(tmp_path, tags, spacing):
    volume = read(microscope(tmp_path / "a.tif", tags))
    np.testing.assert_array_equal(volume.data, VALUES)
    factor = {"um": 1, "nm": 1e-3}[volume.unit]
    assert [factor * step for step in volume.spacing] == pytest.approx(spacing)


OME = {"PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5, "PhysicalSizeZ": 2.0}


def test_of_two_statements_the_better_one_is_used_and_both_are_said(tmp_path):
    path = tmp_path / "a.tif"
    options = {"resolutionunit": "CENTIMETER", "photometric": "minisblack"}
    tifffile.imwrite(path, VALUES, ome=True, metadata={"axes": "ZYX", **OME},
                     resolution=(1000, 1000), **options)  # fmt: skip
    volume = read(path)
    assert (volume.spacing, volume.unit) == ((2, 0.5, 0.5), "um")
    said = "two pixel sizes: 0.5 µm (OME) is used, 0.01 mm (resolution) is not."
    assert said in volume.notes[-1]
    # as ImageJ reads it, a pixel would have 0.05 nm
    tifffile.imwrite(path, VALUES, imagej=True, resolution=(20000, 20000),
                     metadata={"unit": "um", "axes": "ZYX"}, **options)  # fmt: skip
    volume = read(path)
    assert volume.unit == "mm"
    assert volume.spacing[1:] == pytest.approx((5e-4, 5e-4))
    assert "0.0005 mm (resolution) is used, 5e-05 µm (ImageJ) is not." in volume.notes[0]
    # the same size twice is no contradiction
    tifffile.imwrite(path, VALUES, ome=True, metadata={"axes": "ZYX", **OME},
                     resolution=(20000, 20000), **options)  # fmt: skip
    assert [note for note in read(path).notes if "two" in note] == []


@pytest.mark.parametrize("unit", ["um", "mm", "nm"])
def test_a_unit_in_a_description_stands_against_the_inch_of_tifffile(tmp_path, unit):
    metadata = {"axes": "ZYX", "spacing": 2.0, "unit": unit}
    tifffile.imwrite(
        tmp_path / "a.tif", VALUES, photometric="minisblack", resolution=(2, 4), metadata=metadata
    )
    volume = read(tmp_path / "a.tif")
    assert (volume.spacing, volume.unit) == ((2.0, 0.25, 0.5), unit)
    assert any("that of the resolution is another one" in note for note in volume.notes)


@pytest.mark.parametrize("per_inch", [72, 100, 600])
def test_a_resolution_for_printing_is_none_in_a_header_of_imagej(tmp_path, per_inch):
    volume = imagej(tmp_path / "a.tif", (per_inch, per_inch), spacing=3.0, unit="inch")
    assert volume.unit == "pixel"
    assert any(f"({per_inch} dots per inch) is for printing" in note for note in volume.notes)


@pytest.mark.parametrize(
    ("unit", "metres"),
    [("Å", 1e-10), ("pm", 1e-12), ("Mm", 1e6), ("mm", 1e-3), ("dm", 0.1), ("km", 1e3),
     ("fm", 1e-15), ("dam", 10), ("hm", 100), ("in", 0.0254), ("Gm", 1e9)],
)  # fmt: skip
def test_ome_in_any_unit_of_the_standard_is_a_length(tmp_path, unit, metres):
    units = {f"PhysicalSize{axis}Unit": unit for axis in "XYZ"}
    volume = ome(tmp_path, **OME, **units)
    lengths = np.array(volume.spacing) * METRES[volume.unit]
    assert lengths == pytest.approx(metres * np.array([2, 0.5, 0.5]))
    assert any("unusual" in note for note in volume.notes) == (metres != 1e-3)


@pytest.mark.parametrize("axis", ["X", "Y"])
def test_a_size_along_one_axis_is_given_with_the_flag_that_sets_it(tmp_path, axis):
    volume = ome(tmp_path, **{f"PhysicalSize{axis}": 0.5})
    assert volume.unit == "pixel"
    assert f"along {axis.lower()} only (0.5 um)" in volume.notes[0]
    assert "--voxel-size 0.5um" in volume.notes[0]


@pytest.mark.parametrize("unit", ["Mikrometer", "mkm", "µ"])
def test_numbers_in_an_unknown_unit_are_given_with_the_flag_that_sets_them(tmp_path, unit):
    text = f"ImageJ=1.54f\nimages=3\nslices=3\nunit={unit}\nspacing=2.0\n".replace("µ", "\\u00B5")
    tifffile.imwrite(tmp_path / "a.tif", VALUES, description=text, metadata=None,
                     resolution=(4, 2), resolutionunit=1, photometric="minisblack")  # fmt: skip
    volume = read(tmp_path / "a.tif")
    assert volume.unit == "pixel"
    assert "--voxel-size 2,0.5,0.25um" in volume.notes[0]


# the sweep: what the description says and what the tags say, each with the lengths in metres along
# z, y, x that are right, by the definitions of the formats; None where no length is stated
METRE = {"um": 1e-6, "µm": 1e-6, "nm": 1e-9, "mm": 1e-3, "cm": 1e-2, "inch": 0.0254}
NO_LENGTH = ["", "pixel", "Mikrometer"]
TAGS = {  # resolution along x and y, its unit, and the length of a pixel in metres
    "1": ((1, 1), "NONE", None),
    "4 without unit": ((4, 4), "NONE", None),
    "72 per inch": ((72, 72), "INCH", None),
    "300 per inch": ((300, 300), "INCH", None),
    "25400 per inch": ((25400, 25400), "INCH", 1e-6),
    "118.11 per cm": ((118.11, 118.11), "CENTIMETER", None),
    "5000 per cm": ((5000, 5000), "CENTIMETER", 2e-6),
    "2000 per mm": ((2000, 2000), "MILLIMETER", 5e-7),
    "0.5 per um": ((0.5, 0.5), "MICROMETER", 2e-6),
}
PLAUSIBLE = 1e-9, 5e-3


def described(kind, unit, z):
    """The options of tifffile that write a description of one kind."""
    lines = ["ImageJ=1.54f", "images=3", "slices=3", *([f"unit={unit}"] if unit else []),
             *([f"spacing={z}"] if z else [])]  # fmt: skip
    if kind == "ImageJ":
        text = "\n".join(lines) + "\n"
        return {"description": text.replace("µ", "\\u00B5"), "metadata": None}
    if kind == "tifffile":
        return {"metadata": {"axes": "ZYX", "unit": unit} | ({"spacing": z} if z else {})}
    if kind == "OME":
        sizes = {f"PhysicalSize{axis}": size for axis, size in (("X", 0.5), ("Y", 0.5), ("Z", z))}
        units = {f"PhysicalSize{axis}Unit": unit for axis in "XYZ"} if unit else {}
        stated = {name: size for name, size in sizes.items() if size}
        return {"ome": True, "metadata": {"axes": "ZYX"} | stated | units}
    return {"metadata": None}


def right(kind, unit, z, tags):
    """The lengths in metres that are right, and those that another statement would give."""
    resolution, _, by_tag = TAGS[tags]
    factor = METRE.get(unit or ("um" if kind == "OME" else ""))
    pixel = {"OME": 0.5, "": None}.get(kind, 1 / resolution[0])
    if kind in ("ImageJ", "tifffile") and unit == "inch" and (1 / pixel if pixel else 1) <= 600:
        factor = None  # a resolution for printing
    if kind in ("ImageJ", "tifffile") and unit == "cm" and tags in ("118.11 per cm", "1"):
        factor = None
    said = None if factor is None or not pixel else factor * pixel
    lengths = [length for length in (said, by_tag) if length]
    plausible = [each for each in lengths if PLAUSIBLE[0] * 0.999 <= each <= PLAUSIBLE[1] * 1.001]
    used = next(iter([*plausible, *lengths]), None)
    depth = factor * z if used and used == said and z else used
    return used, depth, [each for each in lengths if not np.isclose(each, used, rtol=0.01)]


SWEEP = [
    ("", None, None, tags) for tags in TAGS
] + [
    (kind, unit, z, tags)
    for kind in ("ImageJ", "tifffile", "OME")
    for unit in (*METRE, *NO_LENGTH)
    for z in (None, 2.0)
    for tags in TAGS
    if not (kind == "tifffile" and not unit) and not (kind == "OME" and unit == "inch")
]  # fmt: skip


def test_no_length_of_a_tiff_is_wrong_without_a_word(tmp_path):
    """Each of several hundred headers, against the table above."""
    path, wrong = tmp_path / "a.tif", []
    for kind, unit, z, tags in SWEEP:
        resolution, per, _ = TAGS[tags]
        tifffile.imwrite(path, VALUES, photometric="minisblack", resolution=resolution,
                         resolutionunit=per, **described(kind, unit, z))  # fmt: skip
        (volume,) = describe(path)
        used, depth, others = right(kind, unit, z, tags)
        metres = METRES.get(volume.unit)
        found = None if metres is None else [metres * step for step in volume.spacing]
        expected = None if used is None else [depth, used, used]
        fits = found == expected or (found and expected and np.allclose(found, expected, rtol=1e-6))
        said = " ".join(volume.notes)
        silent = bool(others) and "two pixel sizes" not in said
        # numbers that give no length are said, with the flag
        numbers = kind in ("ImageJ", "OME") and z and unit in NO_LENGTH[1 if kind == "OME" else 0 :]
        silent |= used is None and bool(numbers) and "--voxel-size" not in said
        silent |= used is None and resolution != (1, 1) and "--voxel-size" not in said
        # a resolution of 1 is also what programs write without one
        silent |= used is not None and kind != "OME" and tags == "1" and "check it" not in said
        if not fits or silent:
            wrong.append((kind, unit, z, tags, found, expected, volume.notes))
    assert len(SWEEP) >= 300
    assert wrong == []


@pytest.mark.parametrize(
    "stated",
    [lsm(1.5e-6, 2.5e-7, 2.5e-7), stk(1.5, 0.25, "um"), fei(2.5e-7, 2.5e-7), zeiss_sem(250, "nm")],
    ids=["LSM", "STK", "FEI", "Zeiss SEM"],
)
def test_a_microscope_counts_more_than_the_resolution(tmp_path, stated):
    for (per_x, _), unit, by_tag in TAGS.values():
        number, code = struct.pack("<2I", round(1000 * per_x), 1000), tifffile.RESUNIT[unit]
        more = [(282, 5, 1, number), (283, 5, 1, number), (296, 3, 1, struct.pack("<I", code))]
        volume = read(microscope(tmp_path / "a.tif", [*stated, *more]))
        assert volume.spacing[-1] * METRES[volume.unit] == pytest.approx(2.5e-7)
        assert any("two pixel sizes" in note for note in volume.notes) == (by_tag is not None)
