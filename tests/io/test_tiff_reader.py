from __future__ import annotations

import logging
import struct

import numpy as np
import pytest
import tifffile

from hushpore.base.errors import HushporeError, InputError, MissingPackageError
from hushpore.io import is_on_disk, read, read_all

CASES = {
    # file: axes, spacing, unit; the values are HU_truth + 1024
    "bigendian.tif": ("zyx", (1, 1, 1), "pixel"),
    "bigtiff_f32_zlib.tif": ("zyx", (1, 1, 1), "pixel"),
    "imagej_zyx_um.tif": ("zyx", (2, 0.7, 0.5), "um"),
    "imagej_tzcyx.tif": ("tczyx", (2, 0.5, 0.5), "um"),
    "int16_signed.tif": ("zyx", (1, 1, 1), "pixel"),
    "ome_zyx_mm.ome.tif": ("zyx", (2, 0.7, 0.5), "mm"),
    "pyramid.ome.tif": ("zyx", (2, 0.7, 0.5), "um"),
    "stack_jpeg2000.tif": ("zyx", (1, 1, 1), "pixel"),
    "stack_lzw.tif": ("zyx", (1, 1, 1), "pixel"),
    "stack_zstd.tif": ("zyx", (1, 1, 1), "pixel"),
    "tiled_res_cm.tif": ("zyx", (0.05, 0.05, 0.05), "mm"),
    "folder": ("zyx", (0.05, 0.05, 0.05), "mm"),
}

COMPRESSED = {"stack_jpeg2000.tif", "stack_lzw.tif", "stack_zstd.tif"}


def stored_as(truth, dtype):
    """The truth as it was written: unsigned files hold HU + 1024, decimals cut off."""
    return (truth + 1024).astype(dtype) if dtype.kind == "u" else truth.astype(dtype)


@pytest.mark.parametrize("name", CASES)
def test_values_axes_and_spacing_agree_with_the_truth(data_folder, truth, name):
    if name in COMPRESSED:
        pytest.importorskip("imagecodecs")
    volume = read(data_folder / "tiff" / name)
    axes, spacing, unit = CASES[name]
    assert (volume.axes, volume.unit) == (axes, unit)
    assert volume.spacing == pytest.approx(spacing, rel=1e-6)
    values = volume.data if axes == "zyx" else volume.data[0, 0]
    np.testing.assert_array_equal(values, stored_as(truth, values.dtype))
    assert volume.dtype.isnative


@pytest.mark.parametrize("name", [*CASES, "pages_mixed_shape.tif"])
def test_a_stack_left_on_disk_gives_the_same_values_plane_by_plane(data_folder, name):
    for lazy, eager in zip(
        read_all(data_folder / "tiff" / name, lazy=True),
        read_all(data_folder / "tiff" / name, lazy=False),
        strict=True,
    ):
        assert is_on_disk(lazy)
        assert not is_on_disk(eager)
        assert (lazy.spacing, lazy.axes, lazy.dtype) == (eager.spacing, eager.axes, eager.dtype)
        np.testing.assert_array_equal(lazy.data[..., 3, ::2], eager.data[..., 3, ::2])
        np.testing.assert_array_equal(lazy.array(), eager.array())


def test_channels_come_before_z_as_imagej_wrote_them(data_folder):
    volume = read(data_folder / "tiff" / "imagej_tzcyx.tif")
    raw = tifffile.imread(data_folder / "tiff" / "imagej_tzcyx.tif")  # t z c y x
    np.testing.assert_array_equal(volume.data, raw.transpose(0, 2, 1, 3, 4))


def test_pages_of_mixed_shape_are_read_one_volume_a_shape(data_folder):
    volumes = read_all(data_folder / "tiff" / "pages_mixed_shape.tif")
    assert [volume.shape for volume in volumes] == [(48, 64), (24, 32)]
    assert all("2 image stacks" in volume.notes[0] for volume in volumes)


def test_a_truncated_stack_is_refused_and_never_filled_with_zeros(data_folder):
    with pytest.raises(InputError, match="incomplete"):
        read(data_folder / "tiff" / "truncated.tif")


def test_the_order_of_a_folder_is_natural(data_folder, truth):
    volume = read(data_folder / "tiff" / "folder")
    np.testing.assert_array_equal(volume.data, stored_as(truth, volume.dtype))


def test_a_stack_that_imagej_saved_itself_is_read(tmp_path, ramp):
    """As ImageJ 1.51 lays it out: all images one behind the other, then the pages after the first.

    A scan without a scale has neither tags nor words of its resolution.
    """
    values = ramp.astype("<u2")
    depth, height, width = values.shape
    text = f"ImageJ=1.51n\nimages={depth}\nslices={depth}\nloop=false\nmin=0.0\nmax=37999.0\0"

    def page(place, offset, is_last):
        tags = [(254, 4, 1, 0), (256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 16),
                (262, 3, 1, 1), (270, 2, len(text), 134), (273, 4, 1, offset), (277, 3, 1, 1),
                (278, 3, 1, height), (279, 4, 1, values[0].nbytes)]  # fmt: skip
        following = 0 if is_last else place + 126 if place > 8 else start + values.nbytes
        entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
        return struct.pack("<H", len(tags)) + entries + struct.pack("<I", following)

    start = 134 + len(text)
    places = [8, *(start + values.nbytes + 126 * k for k in range(depth - 1))]
    pages = [
        page(place, start + k * values[0].nbytes, k == depth - 1) for k, place in enumerate(places)
    ]
    content = b"II*\0" + struct.pack("<I", 8) + pages[0] + text.encode() + values.tobytes()
    (tmp_path / "snow.tif").write_bytes(content + b"".join(pages[1:]))
    volume = read(tmp_path / "snow.tif")
    assert (volume.axes, volume.spacing, volume.unit) == ("zyx", (1, 1, 1), "pixel")
    np.testing.assert_array_equal(volume.data, values)


@pytest.mark.parametrize("kind", ["plain", "imagej", "ome", "zlib", "tiled"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.99])
def test_a_file_cut_anywhere_is_refused_unless_all_pixels_are_there(tmp_path, kind, share):
    path = tmp_path / "cut.tif"
    options = {
        "plain": {},
        "imagej": {"imagej": True},
        "ome": {"ome": True},
        "zlib": {"compression": "zlib"},
        "tiled": {"tile": (16, 16)},
    }[kind]
    values = np.random.default_rng(0).integers(0, 60000, (8, 40, 40), dtype=np.uint16)
    tifffile.imwrite(path, values, photometric="minisblack", **options)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    try:
        volume = read(path)
    except InputError:
        return
    # ImageJ and OME stacks need but the first page's tags, and no pixel is missing here
    assert kind in ("imagej", "ome")
    assert share == 0.99
    np.testing.assert_array_equal(volume.data, values)


def test_no_word_of_the_library_reaches_the_terminal(data_folder, capfd, caplog):
    with caplog.at_level(logging.DEBUG), pytest.raises(InputError):
        read(data_folder / "tiff" / "truncated.tif")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("extension", [".tif", ".ome.tif"])
def test_colour_photographs_are_refused(tmp_path, extension):
    path = tmp_path / f"photo{extension}"
    tifffile.imwrite(path, np.zeros((20, 30, 3), np.uint8), photometric="rgb")
    with pytest.raises(InputError, match="colour image"):
        read(path)


def test_a_folder_of_colour_photographs_is_refused(tmp_path):
    for number in range(3):
        tifffile.imwrite(
            tmp_path / f"{number}.tif", np.zeros((20, 30, 3), np.uint8), photometric="rgb"
        )
    with pytest.raises(InputError, match="colour image"):
        read(tmp_path)


def test_complex_values_are_refused(tmp_path):
    tifffile.imwrite(
        tmp_path / "c.tif", np.zeros((4, 5, 6), np.complex64), photometric="minisblack"
    )
    with pytest.raises(InputError, match="complex64"):
        read(tmp_path / "c.tif")


def test_without_imagecodecs_the_command_that_installs_it_is_given(data_folder, monkeypatch):
    def refuse(*args, **kwargs):
        raise ValueError("<COMPRESSION.LZW: 5> requires the 'imagecodecs' package")

    monkeypatch.setattr(tifffile.TiffPage, "asarray", refuse)
    monkeypatch.setattr(tifffile.TiffFrame, "asarray", refuse)
    with pytest.raises(MissingPackageError, match=r"LZW.*pip install imagecodecs"):
        read(data_folder / "tiff" / "stack_lzw.tif")


def test_multi_page_stacks_of_other_programs_have_z_as_leading_axis(tmp_path, ramp):
    with tifffile.TiffWriter(tmp_path / "pages.tif") as tif:
        for page in ramp:
            tif.write(page, photometric="minisblack", metadata=None, contiguous=False)
    volume = read(tmp_path / "pages.tif")
    assert volume.axes == "zyx"
    np.testing.assert_array_equal(volume.data, ramp)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((6, 7), "yx"), ((3, 6, 7), "zyx"), ((2, 3, 6, 7), "tzyx"), ((2, 3, 4, 6, 7), "tczyx")],
)
def test_axes_that_are_not_named_are_taken_from_their_number(tmp_path, shape, axes):
    values = np.arange(np.prod(shape), dtype=np.uint16).reshape(shape)
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="minisblack")
    volume = read(tmp_path / "a.tif")
    assert volume.axes == axes
    np.testing.assert_array_equal(volume.data, values)


@pytest.mark.parametrize("planar", ["contig", "separate"])
@pytest.mark.parametrize(("samples", "pages"), [(2, 0), (3, 0), (5, 4)])
def test_samples_of_a_pixel_are_channels_and_no_slices(tmp_path, rng, samples, pages, planar):
    values = rng.random((pages or 1, 20, 30, samples)).astype("f4")
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for page in values:
            page = page if planar == "contig" else np.moveaxis(page, -1, 0)  # noqa: PLW2901
            file.write(page, photometric="minisblack", planarconfig=planar, metadata=None)
    volume = read(tmp_path / "a.tif")
    truth = np.moveaxis(values, -1, 0)
    assert volume.axes == ("czyx" if pages else "cyx")
    np.testing.assert_array_equal(volume.data, truth if pages else truth[:, 0])
    np.testing.assert_array_equal(volume.at(c=1).data, volume.data[1])


@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}, {"planarconfig": "separate"}])
@pytest.mark.parametrize("pages", [1, 3])
def test_the_opacity_beside_a_grey_value_is_left_out(tmp_path, options, pages):
    values = np.arange(pages * 120, dtype=np.uint16).reshape(pages, 10, 12)
    both = np.stack([values, np.full_like(values, 65535)], -1)
    if options.get("planarconfig"):
        both = np.moveaxis(both, -1, 1)
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for page in both:
            file.write(page, photometric="minisblack", extrasamples=["unassalpha"], metadata=None,
                       **({"planarconfig": "contig"} | options))  # fmt: skip
    volume = read(tmp_path / "a.tif")
    assert volume.axes == ("zyx" if pages > 1 else "yx")
    np.testing.assert_array_equal(volume.data, values.squeeze())
    assert volume.notes == ["The alpha channel (opacity) was left out."]


def test_samples_beside_channels_are_refused(tmp_path):
    values = np.zeros((2, 20, 30, 3), np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", values, ome=True, photometric="minisblack",
                     planarconfig="contig", metadata={"axes": "CYXS"})  # fmt: skip
    with pytest.raises(InputError, match="more axes"):
        read(tmp_path / "a.tif")


@pytest.mark.parametrize(
    ("lines", "slope", "zero", "unit"),
    [
        ("cf=0\nc0=-32768.0\nc1=1.0\nvunit=Gray Value\n", 1, -32768, None),
        ("cf=0\nc0=-1024.0\nc1=0.5\nvunit=HU\n", 0.5, -1024, "HU"),
        ("cf=20\nc0=5.0\nc1=2.0\n", None, None, None),
        ("cf=0\nc0=0.0\nc1=1.0\n", None, None, None),
        ("cf=1\nc0=1.0\nc1=2.0\nc2=3.0\n", None, None, None),
    ],
)
def test_the_calibration_of_imagej_is_applied(tmp_path, lines, slope, zero, unit):
    values = np.arange(2 * 20 * 30, dtype=np.uint16).reshape(2, 20, 30) + 32000
    text = f"ImageJ=1.54f\nimages=2\nslices=2\nunit=um\nspacing=2.0\n{lines}"
    tifffile.imwrite(tmp_path / "a.tif", values, description=text, metadata=None,
                     resolution=(2, 2), resolutionunit="NONE")  # fmt: skip
    volume = read(tmp_path / "a.tif")
    truth = values if slope is None else zero + slope * values.astype("f4")
    np.testing.assert_array_equal(volume.array(), truth)
    assert volume.metadata.get("value_unit") == unit
    assert len(volume.notes) == (slope is not None or "cf=1" in lines)


def test_slices_that_imagej_saved_one_by_one_have_its_calibration(tmp_path, ramp):
    text = "ImageJ=1.54f\ncf=0\nc0=-32768.0\nc1=1.0\nvunit=Gray Value\n"
    for number, plane in enumerate(ramp):
        stored = (plane.astype("i4") + 32768).astype("u2")
        tifffile.imwrite(tmp_path / f"{number}.tif", stored, description=text, metadata=None)
    np.testing.assert_array_equal(read(tmp_path).array(), ramp)


def test_more_axes_than_we_have_names_for_are_refused(tmp_path):
    values = np.zeros((2, 2, 2, 2, 5, 6), np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="minisblack")
    with pytest.raises(InputError, match="more axes"):
        read(tmp_path / "a.tif")


def test_a_hundred_channels_are_slices_that_a_program_named_wrongly(tmp_path):
    values = np.arange(20 * 6 * 7, dtype=np.uint16).reshape(20, 6, 7)
    tifffile.imwrite(tmp_path / "a.tif", values, imagej=True)  # writes channels=20
    volume = read(tmp_path / "a.tif")
    assert volume.axes == "zyx"
    assert any("20 images are labelled as channels" in note for note in volume.notes)
    tifffile.imwrite(tmp_path / "b.tif", values[:3], imagej=True)
    assert read(tmp_path / "b.tif").axes == "cyx"


def test_a_colour_table_is_left_out_and_said(tmp_path):
    table = np.zeros((3, 256), np.uint16)
    values = np.arange(120, dtype=np.uint8).reshape(10, 12)
    tifffile.imwrite(tmp_path / "p.tif", values, photometric="palette", colormap=table)
    volume = read(tmp_path / "p.tif")
    np.testing.assert_array_equal(volume.data, values)
    assert any("colour table" in note for note in volume.notes)


def test_white_is_zero_is_said(tmp_path):
    values = np.arange(120, dtype=np.uint8).reshape(10, 12)
    tifffile.imwrite(tmp_path / "w.tif", values, photometric="miniswhite")
    volume = read(tmp_path / "w.tif")
    np.testing.assert_array_equal(volume.data, values)
    assert any("MINISWHITE" in note for note in volume.notes)


def _slices(folder, numbers, shape=(6, 7)):
    for number in numbers:
        tifffile.imwrite(
            folder / f"img{number}.tif",
            np.full(shape, number % 1000, np.uint16),
            photometric="minisblack",
            metadata=None,
        )


def test_img2_comes_before_img10(tmp_path):
    _slices(tmp_path, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
    volume = read(tmp_path)
    np.testing.assert_array_equal(volume.data[:, 0, 0], np.arange(1, 12))
    assert volume.notes == []
    assert volume.name == tmp_path.name


def test_a_number_left_out_in_the_file_names_is_said(tmp_path):
    _slices(tmp_path, [1, 2, 3, 5, 6])
    note = "1 slice missing, judging by the file names: 4."
    assert any(note in each for each in read(tmp_path).notes)


@pytest.mark.parametrize("numbers", [[0, 5, 10, 15], [20240101, 20240230, 20250101, 20250107]])
def test_numbers_that_count_otherwise_are_no_gap(tmp_path, numbers):
    _slices(tmp_path, numbers)
    assert read(tmp_path).notes == []


def test_slices_of_mixed_shape_are_read_one_volume_a_shape(tmp_path):
    _slices(tmp_path, [1, 2, 3])
    _slices(tmp_path, [4, 5], shape=(3, 4))
    volumes = read_all(tmp_path)
    assert [volume.shape for volume in volumes] == [(3, 6, 7), (2, 3, 4)]
    assert all("2 image stacks" in volume.notes[0] for volume in volumes)


def test_stacks_in_one_folder_stay_stacks(tmp_path, ramp):
    for name in "ab":
        tifffile.imwrite(tmp_path / f"{name}.tif", ramp, photometric="minisblack")
    assert [volume.name for volume in read_all(tmp_path)] == ["a", "b"]


def test_an_ome_file_whose_other_files_are_gone_is_refused(tmp_path):
    xml = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">'
        '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint8" '
        'SizeX="7" SizeY="6" SizeZ="2" SizeC="1" SizeT="1">'
        '<TiffData FirstZ="0" IFD="0"><UUID FileName="a.ome.tif">urn:uuid:1</UUID></TiffData>'
        '<TiffData FirstZ="1" IFD="0"><UUID FileName="b.ome.tif">urn:uuid:2</UUID></TiffData>'
        "</Pixels></Image></OME>"
    )
    path = tmp_path / "a.ome.tif"
    tifffile.imwrite(path, np.ones((6, 7), np.uint8), description=xml, metadata=None)
    with pytest.raises(InputError, match=r"is not beside it"):
        read(path)


def test_flipped_bits_give_an_image_or_a_clear_error_and_nothing_else(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "x.tif"
    tifffile.imwrite(path, rng.integers(0, 99, (5, 8, 8), dtype=np.uint8), compression="zlib")
    content = np.frombuffer(path.read_bytes(), np.uint8)
    for _ in range(150):
        broken = content.copy()
        broken[rng.integers(0, len(broken), 3)] ^= rng.integers(1, 255, 3, dtype=np.uint8)
        path.write_bytes(broken.tobytes())
        try:
            read_all(path)
        except HushporeError:
            continue


@pytest.mark.parametrize("name", ["jpeg", "jpeg2000"])
def test_a_part_that_states_a_larger_image_than_its_page_is_refused(tmp_path, rng, name):
    imagecodecs = pytest.importorskip("imagecodecs")
    path = tmp_path / "a.tif"
    values = rng.integers(0, 255, (64, 64), dtype=np.uint8)
    tifffile.imwrite(path, values, compression=name, photometric="minisblack")
    assert read(path).shape == (64, 64)
    encode = {"jpeg": imagecodecs.jpeg8_encode, "jpeg2000": imagecodecs.jpeg2k_encode}[name]
    larger = encode(np.zeros((6400, 6400), np.uint8))
    with tifffile.TiffFile(path, mode="r+b") as tif:
        tags = tif.pages.first.tags
        end = path.stat().st_size
        tags["StripOffsets"].overwrite((end,))
        tags["StripByteCounts"].overwrite((len(larger),))
    with path.open("ab") as file:
        file.seek(end)
        file.write(larger)
    with pytest.raises(InputError, match="declares"):
        read(path)


def test_pages_of_many_parts_are_whole(tmp_path, rng):
    values = rng.integers(0, 99, (40, 64, 64), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", values, compression="zlib", rowsperstrip=1)
    volume = read(tmp_path / "a.tif")
    np.testing.assert_array_equal(volume.data, values)
    assert volume.notes == []


def test_of_a_pyramid_all_levels_stay_on_disk(tmp_path, rng):
    values = rng.integers(0, 4000, (6, 64, 80), dtype=np.uint16)
    with tifffile.TiffWriter(tmp_path / "p.ome.tif", ome=True) as file:
        options = {"photometric": "minisblack", "tile": (16, 16), "compression": "zlib"}
        file.write(values, subifds=1, metadata={"axes": "ZYX"}, **options)
        file.write(values[:, ::2, ::2], subfiletype=1, **options)
    (volume,) = read_all(tmp_path / "p.ome.tif", lazy=True)
    full, half = volume.data.levels
    np.testing.assert_array_equal(full[2:4], values[2:4])
    np.testing.assert_array_equal(half[...], values[:, ::2, ::2])
    np.testing.assert_array_equal(read(tmp_path / "p.ome.tif").data, values)
