"""Raw volumes with headers as Volume Graphics, X-Tek, phoenix and PyHST write them."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.rescaled import Scaled, held
from hushpore.io import describe, kind_of, read, read_all

VGI = r"""{volume1}
[representation]
size = 7 6 5
datatype = unsigned integer
datarange = 0 -1
bitsperelement = 16
[file1]
SkipHeader = 4
FileFormat = raw
Size = 7 6 5
Name = D:\scans\2026\bread.vol
Datatype = unsigned integer
datarange = 0 -1
BitsPerElement = 16
{volumeprimitive12}
[geometry]
resolution = 0.011 0.012 0.013
unit = mm
[volume]
volume = volume1
"""
XTEK = """[XTekCT]
Name=bread
VoxelsX=7
VoxelsY=6
VoxelsZ=5
VoxelSizeX=0.011
VoxelSizeY=0.012
VoxelSizeZ=0.013
[Xrays]
XraykV=120
XrayuA=95
[CTPro]
Filter_ThicknessMM=0.5
Filter_Material=Copper
"""
PCR = """[VolumeData]
Volume_SizeX=7
Volume_SizeY=6
Volume_SizeZ=5
Format=5
VoxelSizeRec=0.0154
"""
PYHST = """! PyHST_SLAVE VOLUME INFO FILE
NUM_X =  7
NUM_Y =  6
NUM_Z =  5
voxelSize =  5.2
BYTEORDER = LOWBYTEFIRST
ValMin =  -1.5
"""


@pytest.fixture
def values(ramp):
    return (ramp + 100).astype(np.uint16)


CASES = {
    "bread.vgi": (VGI, "<u2", 4, (0.013, 0.012, 0.011), "mm"),
    "bread.xtekct": (XTEK, "<f4", 0, (0.013, 0.012, 0.011), "mm"),
    "bread.pcr": (PCR, "<u2", 0, (0.0154,) * 3, "mm"),
    "bread.vol.info": (PYHST, "<f4", 0, (5.2,) * 3, "um"),
}


def written(folder, name, values, text=""):
    header, dtype, offset, *_ = CASES[name]
    (folder / name).write_text(text or header)
    (folder / "bread.vol").write_bytes(bytes(offset) + values.astype(dtype).tobytes())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("opened", ["header", "voxels", "folder"])
def test_header_voxels_and_folder_open_the_same_volume(tmp_path, values, name, opened):
    written(tmp_path, name, values)
    _, dtype, _, spacing, unit = CASES[name]
    path = {"header": tmp_path / name, "voxels": tmp_path / "bread.vol", "folder": tmp_path}[opened]
    assert opened == "folder" or kind_of(path) == "header"
    volume = read(path)
    np.testing.assert_array_equal(volume.data, values)
    assert volume.dtype == np.dtype(dtype).newbyteorder("=")
    assert (volume.name, volume.unit) == ("bread", unit)
    assert volume.spacing == pytest.approx(spacing)


def test_settings_of_the_scanner_are_metadata(tmp_path, values):
    written(tmp_path, "bread.xtekct", values)
    (volume,) = describe(tmp_path / "bread.xtekct")
    assert volume.metadata["scanner"] == {
        "voltage_kv": 120, "current_ua": 95, "filter": "0.5 mm Copper",
    }  # fmt: skip
    (tmp_path / "bread.xtekct").unlink()
    written(tmp_path, "bread.pcr", values)
    (tmp_path / "bread.pca").write_text("[Xray]\nVoltage=100\nCurrent=80\nFilter=0.1 mm Cu\n")
    (volume,) = describe(tmp_path / "bread.vol")
    assert volume.metadata["scanner"] == {
        "voltage_kv": 100, "current_ua": 80, "filter": "0.1 mm Cu",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["Unknown", "Please define a filter.", ""])
def test_a_filter_that_nobody_entered_is_left_out(tmp_path, values, text):
    written(tmp_path, "bread.pcr", values)
    (tmp_path / "bread.pca").write_text(f"[Xray]\nVoltage=100\nFilter={text}\n")
    (volume,) = describe(tmp_path / "bread.pcr")
    assert volume.metadata["scanner"] == {"voltage_kv": 100}


@pytest.mark.parametrize("ending", ["xtekct", "xtekCT", "xtekVolume"])
def test_of_two_reconstructions_of_a_scan_each_has_its_voxels(tmp_path, values, ending):
    # Name is that of the projections, as CT Pro writes it
    for number, header in (("", XTEK), ("_01", XTEK + "[XTekCT]\nOutputName=bread_01\n")):
        (tmp_path / f"bread{number}.{ending}").write_text(header)
        (tmp_path / f"bread{number}.vol").write_bytes(
            (values + len(number)).astype("<f4").tobytes()
        )
    for name in (f"bread_01.{ending}", "bread_01.vol"):
        np.testing.assert_array_equal(read(tmp_path / name).data, values + 3)
    np.testing.assert_array_equal(read(tmp_path / "bread.vol").data, values)
    # a header under a name of its own
    (tmp_path / f"bread_01.{ending}").rename(tmp_path / f"settings.{ending}")
    np.testing.assert_array_equal(read(tmp_path / f"settings.{ending}").data, values + 3)


def test_a_phoenix_header_names_its_volume(tmp_path, values):
    text = PCR + r"VOL_File=S:\scans 2026\bread.vol" + "\n"
    (tmp_path / "settings.pcr").write_text(text)
    (tmp_path / "bread.vol").write_bytes(values.astype("<u2").tobytes())
    np.testing.assert_array_equal(read(tmp_path / "settings.pcr").data, values)


def test_a_raw_file_of_nikon_may_have_16_bits(tmp_path, values):
    (tmp_path / "bread.xtekVolume").write_text(XTEK)
    (tmp_path / "bread.raw").write_bytes(values.astype("<u2").tobytes())
    volume = read(tmp_path / "bread.raw")
    np.testing.assert_array_equal(volume.data, values)
    assert volume.notes[0].startswith("The data type uint16 was guessed from the size of bread.raw")
    assert volume.spacing == pytest.approx((0.013, 0.012, 0.011))


def test_two_volumes_of_a_vgi_are_two_series(tmp_path, values):
    second = VGI.replace("volume1", "volume2").replace("bread.vol", "solid.vol")
    second = second.replace("unsigned integer", "float").replace("= 16", "= 32")
    second = second.replace("SkipHeader = 4", "SkipHeader = 0").replace("primitive12", "primitive3")
    written(tmp_path, "bread.vgi", values, VGI + second.replace("0.013", "0.026"))
    (tmp_path / "solid.vol").write_bytes(values[::-1].astype("<f4").tobytes())
    first, other = read_all(tmp_path / "bread.vgi")
    np.testing.assert_array_equal(first.data, values)
    np.testing.assert_array_equal(other.data, values[::-1])
    assert (first.spacing[0], other.spacing[0]) == (0.013, 0.026)


def test_decimal_commas_other_encodings_and_high_bytes_first(tmp_path, values):
    text = XTEK.replace("0.012", "0,012")
    (tmp_path / "bread.xtekct").write_text("; Höhe µm\n" + text, encoding="utf-16")
    (tmp_path / "bread.vol").write_bytes(values.astype("<f4").tobytes())
    assert read(tmp_path / "bread.vol").spacing == (0.013, 0.012, 0.011)
    (tmp_path / "bread.xtekct").unlink()
    (tmp_path / "bread.vol.info").write_text(PYHST.replace("LOWBYTE", "HIGHBYTE"))
    (tmp_path / "bread.vol").write_bytes(values.astype(">u2").tobytes())
    np.testing.assert_array_equal(read(tmp_path / "bread.vol").data, values)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("ends", "front", "encoding"),
    [("\r\n", "", "utf-8"), ("\r", "", "utf-8"), ("\n", "; Höhe µm, Prüfkörper\n", "latin-1"),
     ("\r\n", "", "utf-8-sig"), ("\r\n", "", "utf-16")],
)  # fmt: skip
def test_line_ends_and_encodings_of_other_computers(tmp_path, values, name, ends, front, encoding):
    written(tmp_path, name, values)
    text = (front + CASES[name][0]).replace("\n", ends)
    (tmp_path / name).write_bytes(text.encode(encoding))
    volume = read(tmp_path / name)
    np.testing.assert_array_equal(volume.data, values)
    assert volume.spacing == pytest.approx(CASES[name][3])


@pytest.mark.parametrize(
    "stated",
    ["/data/old pc/bread.vol", r"\\server\share\bread.vol", r"C:\DATA\BREAD.VOL", '"bread.vol"'],
)
def test_a_path_of_another_computer_means_the_file_beside_the_header(tmp_path, values, stated):
    text = VGI.replace(r"D:\scans\2026\bread.vol", stated)
    written(tmp_path, "bread.vgi", values, text)
    np.testing.assert_array_equal(read(tmp_path / "bread.vgi").data, values)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("share", [0, 0.3, 0.5, 0.7, 0.9])
def test_a_header_that_was_cut_gives_the_voxels_or_a_clear_error(tmp_path, values, name, share):
    written(tmp_path, name, values)
    content = CASES[name][0].encode()
    (tmp_path / name).write_bytes(content[: int(share * len(content))])
    try:
        volume = read(tmp_path / name)
    except InputError:
        with pytest.raises(InputError, match=name):
            read(tmp_path / name)
        return
    np.testing.assert_array_equal(volume.data, values)
    # a length that was lost is not guessed
    assert volume.unit == "pixel" or volume.spacing == pytest.approx(CASES[name][3])


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8", "utf-16"])
def test_a_log_with_a_greek_letter_gives_the_voxel_size(tmp_path, encoding):
    image = pytest.importorskip("PIL.Image")
    for i in range(10):
        image.fromarray(np.full((8, 8), i, np.uint8)).save(tmp_path / f"core__rec{i:08d}.bmp")
    text = "[Acquisition]\r\nOperator=Jörg\r\n[Reconstruction]\r\nPixel Size (µm)=2,5\r\n"
    (tmp_path / "core__rec.log").write_bytes(text.encode(encoding))
    volume = read(tmp_path)
    assert (volume.spacing, volume.unit) == ((2.5,) * 3, "um")


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("bread.vgi", "SkipHeader = 4", "SkipHeader = 5", "incomplete"),
        ("bread.vgi", "FileFormat = raw", "FileFormat = tiff", "expected FileFormat = raw"),
        ("bread.vgi", "[file1]", "[file9]", "names no file of voxels"),
        ("bread.vgi", "BitsPerElement = 16", "BitsPerElement = 12", "8 to 64 bits"),
        ("bread.vgi", r"\bread.vol", r"\other.vol", "not beside it"),
        ("bread.vgi", r"D:\scans\2026\bread.vol", "/etc/passwd", "not beside it"),
        ("bread.xtekct", "VoxelsZ=5", "VoxelsZ=50", "incomplete"),
        ("bread.xtekct", "VoxelsZ=5", "VoxelsZ=many", "whole number above zero"),
        ("bread.pcr", "Format=5", "Format=10", "incomplete"),
        ("bread.pcr", "Volume_SizeY=6", "", "whole number above zero"),
    ],
)
def test_a_header_that_does_not_fit_is_told(tmp_path, values, name, old, new, words):
    written(tmp_path, name, values, CASES[name][0].replace(old, new))
    with pytest.raises(InputError, match=words):
        read(tmp_path / name)


def test_a_header_without_a_voxel_size_says_so(tmp_path, values):
    written(tmp_path, "bread.pcr", values, PCR.replace("VoxelSizeRec=0.0154\n", ""))
    volume = read(tmp_path / "bread.pcr")
    assert volume.unit == "pixel"
    assert volume.notes == ["bread.pcr states no voxel size; the voxel size is not known."]


def test_pyhst_may_state_the_data_type(tmp_path, values):
    (tmp_path / "bread.vol").write_bytes(values.astype("<i2").tobytes())
    (tmp_path / "bread.vol.info").write_text(PYHST + "DATA_TYPE = int16\n")
    volume = read(tmp_path / "bread.vol.info")
    assert (volume.dtype, volume.notes) == (np.int16, [])
    np.testing.assert_array_equal(volume.data, values)
    (tmp_path / "bread.vol.info").write_text(PYHST + "DATA_TYPE = PACKED_BINARY\n")
    with pytest.raises(InputError, match=r"expected DATA_TYPE uint8, .*found 'packed_binary'"):
        read(tmp_path / "bread.vol.info")


def test_the_header_of_pyhst_belongs_to_the_file_that_it_is_named_after(tmp_path, values):
    for ending, shift in (("vol", 0), ("raw", 1)):
        stored = (values + shift).astype("<i4")
        (tmp_path / f"bread.{ending}").write_bytes(stored.tobytes())
        (tmp_path / f"bread.{ending}.info").write_text(PYHST + "DATA_TYPE = int32\n")
        for name in (f"bread.{ending}", f"bread.{ending}.info"):
            volume = read(tmp_path / name)
            np.testing.assert_array_equal(volume.data, stored.reshape(volume.shape))
            assert (volume.name, volume.dtype) == ("bread", np.int32)


@pytest.mark.parametrize("noise", [0, 300])
@pytest.mark.parametrize("order", ["<", ">"])
def test_half_a_file_of_pyhst_is_told_from_16_bits(tmp_path, rng, noise, order):
    text = PYHST.replace("LOWBYTE", "HIGHBYTE") if order == ">" else PYHST
    text = text.replace("NUM_X =  7", "NUM_X =  60").replace("NUM_Y =  6", "NUM_Y =  51")
    (tmp_path / "bread.vol.info").write_text(text)
    scan = 2000 + 500 * np.sin(np.indices((5, 51, 60)).sum(0) / 7)
    scan += noise * rng.normal(size=scan.shape)
    data = tmp_path / "bread.vol"
    data.write_bytes(scan.astype(order + "u2").tobytes())
    volume = read(data)
    np.testing.assert_array_equal(volume.data, scan.astype("u2"))
    assert "uint16 was guessed" in volume.notes[0]
    for mean in (2000, 0, -300):
        whole = ((scan - 2000 + mean) / 7e5).astype(order + "f4").tobytes()
        data.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(InputError, match=r"bread\.vol is incomplete: .* needs 61,200 bytes"):
            read(data)


@pytest.mark.parametrize("name", CASES)
def test_an_empty_header_is_named_when_its_voxels_are_opened(tmp_path, values, name):
    written(tmp_path, name, values)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=rf"The header {name} is empty \(0 bytes\)\. Copy"):
        read(tmp_path / "bread.vol")


def test_any_text_gives_an_image_or_a_clear_error(tmp_path, values, rng):
    for name, (text, *_) in CASES.items():
        content = np.frombuffer(text.encode(), np.uint8)
        for _ in range(60):
            broken = content.copy()
            at = rng.integers(0, len(content), 3)
            broken[at] = rng.integers(0, 255, 3, dtype=np.uint8)
            written(tmp_path, name, values)
            (tmp_path / name).write_bytes(broken.tobytes())
            try:
                read(tmp_path / name)
            except HushporeError:
                continue
        (tmp_path / name).unlink()


def isq_bytes(values, lengths=(70, 60, 50), scaling=4096, blocks=2, patient=b"Doe, Jane"):
    depth, rows, columns = values.shape
    header = bytearray(512 * (blocks + 1))
    header[:16] = b"CTDATA-HEADER_V1"
    struct.pack_into("<6i", header, 44, columns, rows, depth, *lengths)
    struct.pack_into("<i", header, 88, scaling)
    header[128 : 128 + len(patient)] = patient
    struct.pack_into("<2i", header, 168, 70000, 114)
    struct.pack_into("<i", header, 508, blocks)
    return bytes(header) + values.astype("<i2").tobytes()


@pytest.mark.parametrize("blocks", [0, 2])
def test_values_are_attenuation_and_the_voxel_size_is_length_over_number(tmp_path, ramp, blocks):
    path = tmp_path / "bone.ISQ"
    path.write_bytes(isq_bytes(ramp, blocks=blocks))
    assert kind_of(path) == "isq"
    volume = read(path)
    assert isinstance(volume.data, Scaled)
    np.testing.assert_array_equal(held(volume.data), ramp)
    np.testing.assert_array_equal(volume.array(), (ramp / 4096).astype(np.float32))
    assert (volume.spacing, volume.unit) == ((0.01, 0.01, 0.01), "mm")
    assert volume.metadata["value_unit"] == "1/cm"
    assert volume.metadata["scanner"] == {"voltage_kv": 70, "current_ua": 114}


@pytest.mark.needs("itk")
def test_the_scanco_module_of_itk_agrees(tmp_path, ramp):
    import itk

    path = tmp_path / "bone.isq"
    path.write_bytes(isq_bytes(ramp))
    theirs, ours = itk.imread(str(path)), read(path)
    np.testing.assert_array_equal(itk.array_from_image(theirs), held(ours.data))
    assert list(theirs.GetSpacing())[::-1] == pytest.approx(ours.spacing)


def test_the_patient_is_not_read(tmp_path, ramp):
    path = tmp_path / "bone.isq"
    path.write_bytes(isq_bytes(ramp))
    assert "Doe" not in repr(describe(path))


def test_a_scan_that_ends_too_early_is_refused(tmp_path, ramp):
    path = tmp_path / "bone.isq"
    path.write_bytes(isq_bytes(ramp)[:-2])
    with pytest.raises(InputError, match="incomplete"):
        describe(path)
    path.write_bytes(isq_bytes(ramp)[:100])
    with pytest.raises(InputError, match="incomplete"):
        describe(path)


def test_damaged_headers_give_an_image_or_a_clear_error(tmp_path, ramp, rng):
    path = tmp_path / "a.isq"
    content = isq_bytes(ramp)
    for _ in range(150):
        broken = bytearray(content)
        for at in rng.integers(16, 512, 4):
            broken[at] ^= int(rng.integers(1, 255))
        path.write_bytes(bytes(broken))
        try:
            read(path)
        except HushporeError:
            continue
