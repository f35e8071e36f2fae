import contextlib
import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushpore.base.errors import HushporeError, InputError
from hushpore.io import kind_of, read

HEADER = """ObjectType = Image
NDims = 3
DimSize = 7 6 5
ElementType = MET_SHORT
ElementSpacing = 0.5 0.7 2
Offset = 1 2 3
"""


def meta_image(folder, values, extra="", data="a.raw", header=HEADER):
    path = folder / "a.mhd"
    path.write_text(f"{header}{extra}ElementDataFile = {data}\n")
    if data == "a.raw":
        (folder / data).write_bytes(values)
    return path


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_meta_image_has_its_values_spacing_and_origin(tmp_path, ramp, order):
    extra = f"BinaryDataByteOrderMSB = {order == '>'}\n"
    path = meta_image(tmp_path, ramp.astype(f"{order}i2").tobytes(), extra)
    assert kind_of(path) == "metaimage"
    volume = read(path)
    np.testing.assert_array_equal(volume.data, ramp)
    assert (volume.spacing, volume.unit, volume.origin) == ((2, 0.7, 0.5), "mm", (3, 2, 1))
    assert "millimetres are assumed" in volume.notes[0]
    assert volume.dtype.isnative


@pytest.mark.parametrize(("stated", "unit", "factor"), [("um", "um", 1), ("inch", "mm", 25.4)])
def test_a_meta_image_has_its_lengths_in_a_unit_that_is_known(tmp_path, ramp, stated, unit, factor):
    path = meta_image(tmp_path, ramp.astype("<i2").tobytes(), f"DistanceUnits = {stated}\n")
    volume = read(path)
    assert volume.unit == unit
    assert volume.spacing == pytest.approx([factor * step for step in (2, 0.7, 0.5)])
    assert volume.origin == pytest.approx([factor * place for place in (3, 2, 1)])


def test_numbers_in_an_unknown_unit_are_no_lengths(tmp_path, ramp):
    path = meta_image(tmp_path, ramp.astype("<i2").tobytes(), "DistanceUnits = ?\n")
    volume = read(path)
    assert (volume.unit, volume.spacing, volume.origin) == ("pixel", (1, 1, 1), (0, 0, 0))
    assert "2 x 0.7 x 0.5 in the unknown unit '?'" in volume.notes[0]
    assert "--voxel-size 2,0.7,0.5um" in volume.notes[0]


@pytest.mark.parametrize(("name", "dtype"), [("MET_LONG", "i4"), ("MET_ULONG", "u4")])
def test_long_numbers_have_four_bytes_as_for_itk(tmp_path, ramp, name, dtype):
    values = np.abs(ramp).astype(dtype)
    header = HEADER.replace("MET_SHORT", name)
    volume = read(meta_image(tmp_path, values.tobytes(), header=header))
    np.testing.assert_array_equal(volume.data, values)
    assert volume.dtype == dtype


def test_a_comment_and_the_name_of_a_file_may_be_in_any_letters(tmp_path, ramp):
    (tmp_path / "Größe.raw").write_bytes(ramp.tobytes())
    path = meta_image(tmp_path, b"", "Comment = Probe für µCT\n", data="Größe.raw")
    np.testing.assert_array_equal(read(path).data, ramp)


def test_values_that_are_text_are_no_voxels(tmp_path, ramp):
    text = " ".join(map(str, ramp.ravel())).encode()
    with pytest.raises(InputError, match="as text"):
        read(meta_image(tmp_path, text, "BinaryData = False\n"))


def test_voxels_in_the_header_file_and_compressed_ones_are_read(tmp_path, ramp):
    path = tmp_path / "a.mha"
    header = HEADER + "CompressedData = True\nElementDataFile = LOCAL\n"
    path.write_bytes(header.encode() + zlib.compress(ramp.tobytes()))
    np.testing.assert_array_equal(read(path).data, ramp)


@pytest.mark.needs("SimpleITK")
def test_simpleitk_writes_what_is_read(tmp_path, ramp):
    import SimpleITK

    image = SimpleITK.GetImageFromArray(ramp)
    image.SetSpacing((0.5, 0.7, 2.0))
    image.SetOrigin((1, 2, 3))
    for name, compressed in (("a.mhd", False), ("b.mhd", True), ("c.mha", True)):
        SimpleITK.WriteImage(image, str(tmp_path / name), compressed)
        volume = read(tmp_path / name)
        np.testing.assert_array_equal(volume.data, ramp)
        assert (volume.spacing, volume.origin) == ((2, 0.7, 0.5), (3, 2, 1))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_a_sidecar_may_be_saved_by_programs_of_windows(tmp_path, ramp, encoding):
    path = tmp_path / "scan.raw"
    path.write_bytes(ramp.astype("<i2").tobytes())
    stated = {"shape": ramp.shape, "dtype": "<i2", "spacing": 2, "unit": "µm", "operator": "Jürgen"}
    text = json.dumps(stated, ensure_ascii=False)
    (tmp_path / "scan.json").write_bytes(text.encode(encoding))
    volume = read(path)
    np.testing.assert_array_equal(volume.data, ramp)
    assert (volume.spacing, volume.unit) == ((2, 2, 2), "um")


@pytest.mark.parametrize("sidecar", ["scan.json", "scan.raw.json"])
def test_a_raw_file_is_read_by_the_json_beside_it(tmp_path, ramp, sidecar):
    (tmp_path / "scan.raw").write_bytes(b"head" + ramp.astype(">i2").tobytes())
    stated = {"shape": [5, 6, 7], "dtype": ">i2", "spacing": [2, 1, 1], "unit": "um", "offset": 4}
    assert kind_of(tmp_path / "scan.raw") is None
    (tmp_path / sidecar).write_text(json.dumps(stated))
    volume = read(tmp_path / "scan.raw")
    np.testing.assert_array_equal(volume.data, ramp)
    assert (volume.spacing, volume.unit) == ((2, 1, 1), "um")


@pytest.mark.parametrize("spacing", [2, [2.0], [2, 2, 2]])
def test_one_number_is_the_size_of_a_cubic_voxel(tmp_path, ramp, spacing):
    (tmp_path / "scan.raw").write_bytes(ramp.tobytes())
    stated = {"shape": [5.0, 6, 7], "dtype": "i2", "spacing": spacing, "unit": "um"}
    (tmp_path / "scan.json").write_text(json.dumps(stated))
    assert read(tmp_path / "scan.raw").spacing == (2, 2, 2)


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"shape": [5, 6, 7]}, "is invalid"),
        ({"shape": [50, 6, 7], "dtype": "i2"}, "incomplete"),
        ({"shape": [5, 6, -7], "dtype": "i2"}, "2 to 5 axes"),
        ({"shape": [5, 6, 7], "dtype": "c8"}, "contains complex numbers"),
        ({"shape": [99], "dtype": "O"}, "contains object values; real numbers are needed"),
        ({"shape": "many", "dtype": "i2"}, "is invalid"),
        ({"shape": [4.5, 6, 7], "dtype": "i2"}, "4.5 is not a whole number"),
        ({"shape": [4, 6, 7], "dtype": "i2", "offset": 0.5}, "0.5 is not a whole number"),
        ([1, 2], "is invalid"),
    ],
)
def test_a_sidecar_that_does_not_fit_is_told(tmp_path, ramp, stated, words):
    (tmp_path / "scan.raw").write_bytes(ramp.tobytes())
    (tmp_path / "scan.json").write_text(json.dumps(stated))
    with pytest.raises(InputError, match=words):
        read(tmp_path / "scan.raw")


@pytest.mark.parametrize("name", ["../secret.raw", "/etc/passwd", "LIST", "slice%03d.raw"])
def test_a_header_that_leads_elsewhere_is_refused(tmp_path, ramp, name):
    (tmp_path / "secret.raw").write_bytes(ramp.tobytes())
    (tmp_path / "scan").mkdir()
    with pytest.raises(InputError, match="same folder"):
        read(meta_image(tmp_path / "scan", b"", data=name))


def test_a_file_that_is_too_small_or_gone_is_told(tmp_path, ramp):
    with pytest.raises(InputError, match="incomplete"):
        read(meta_image(tmp_path, ramp.tobytes()[:-1]))
    with pytest.raises(InputError, match="not in the same folder"):
        read(meta_image(tmp_path, b"", data="other.raw"))


def test_a_bomb_is_cut_at_the_stated_size(tmp_path):
    bomb = zlib.compress(bytes(50_000_000))
    volume = read(meta_image(tmp_path, bomb, "CompressedData = True\n"))
    assert volume.shape == (5, 6, 7)


@given(st.binary(max_size=300), st.integers(0, 150))
def test_any_header_gives_an_image_or_a_clear_error(tmp_path_factory, noise, at):
    folder = tmp_path_factory.mktemp("raw")
    path = meta_image(folder, bytes(420))
    content = path.read_bytes()
    path.write_bytes(content[:at] + noise + content[at + len(noise) :])
    with contextlib.suppress(HushporeError):
        read(path)
