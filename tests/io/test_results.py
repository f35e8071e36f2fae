from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import tifffile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hushpore.base.errors import InputError, OutputError
from hushpore.base.volume import Volume
from hushpore.io import read
from hushpore.io.results import read_points, write_image, write_results

if TYPE_CHECKING:
    from pathlib import Path


DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float64"]
AXES = ["yx", "zyx", "tyx", "cyx", "tzyx", "czyx", "ctyx", "tczyx", "ctzyx", "tcyx"]


@st.composite
def volumes(draw):
    axes = draw(st.sampled_from([axes for axes in AXES if axes.index("y") < 4]))
    shape = tuple(draw(st.integers(1, 5)) for _ in axes)
    n_spatial = 3 if axes.endswith("zyx") else 2
    size = st.floats(1e-6, 1e6)
    place = st.floats(-1e6, 1e6)
    seed = draw(st.integers(0, 2**32 - 1))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    values = np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)
    if draw(st.booleans()):
        values = np.asfortranarray(values).astype(dtype.newbyteorder(">"))
    return Volume(
        values,
        spacing=tuple(draw(size) for _ in range(n_spatial)),
        unit=draw(st.sampled_from(["mm", "um", "nm", "m", "cm", "pixel"])),
        axes=axes,
        origin=tuple(draw(place) for _ in range(n_spatial)),
        name=draw(st.text(st.characters(), max_size=8)),
    )


@given(volumes())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_type_axes_and_geometry_survive_a_round_trip(tmp_path_factory, volume):
    path = tmp_path_factory.mktemp("image") / "a.tif"
    write_image(path, volume)
    back = read(path)
    ordered = "".join(axis for axis in "tczyx" if axis in volume.axes)
    values = np.asarray(volume.data).transpose([volume.axes.index(axis) for axis in ordered])
    assert back.axes == ordered
    np.testing.assert_array_equal(back.data, values)
    assert back.dtype == volume.dtype.newbyteorder("=")
    assert (back.spacing, back.unit, back.origin) == (volume.spacing, volume.unit, volume.origin)
    # sizes of any length are written, and those that no scan has are doubted
    assert [note for note in back.notes if "is unusual" not in note] == []


def test_the_gaps_between_hundreds_of_tiny_planes_are_not_missing_slices(tmp_path):
    planes = np.random.default_rng(0).integers(0, 2, (125, 1, 1), dtype=bool)
    write_image(tmp_path / "a.tif", Volume(planes))
    assert read(tmp_path / "a.tif").notes == []


def test_another_program_sees_an_ome_tiff_with_its_voxel_size(tmp_path, ramp):
    path = tmp_path / "a.tif"
    write_image(path, Volume(ramp, spacing=(2, 0.7, 0.5), unit="um"))
    with tifffile.TiffFile(path) as tif:
        assert tif.series[0].axes == "ZYX"
        assert 'PhysicalSizeX="0.5" PhysicalSizeXUnit="µm"' in tif.ome_metadata


@pytest.mark.parametrize("odd", [*map(chr, range(32)), "\x7f", "\ud800", "\ufffe", "\uffff"])
def test_what_xml_has_no_place_for_stands_in_no_description(tmp_path, ramp, odd):
    path = write_image(tmp_path / "a.tif", Volume(ramp, 0.5, "um", name=f"多孔 {odd} <&>"))
    with tifffile.TiffFile(path) as tif:
        told = tif.ome_metadata
        assert tif.is_ome
        assert tif.series[0].axes == "ZYX"
    # a parser that knows nothing of what wrote it
    image = ElementTree.fromstring(told).find("{*}Image")
    assert image.get("Name").startswith("多孔 ")
    assert image.get("Name").endswith(" <&>")
    assert image.find("{*}Pixels").get("PhysicalSizeX") == "0.5"


def test_labels_are_compressed_and_grey_values_are_not(tmp_path):
    labels = np.zeros((20, 50, 50), np.int32)
    write_image(tmp_path / "labels.tif", Volume(labels))
    write_image(tmp_path / "grey.tif", Volume(labels.astype(np.float32)))
    assert (tmp_path / "labels.tif").stat().st_size < 30_000
    assert (tmp_path / "grey.tif").stat().st_size > 200_000


@pytest.mark.parametrize("suffix", ["tif", "zarr"])
def test_labels_are_known_as_such_when_they_are_read(tmp_path, suffix):
    scan = Volume(np.zeros((3, 8, 8)), spacing=2, unit="um", metadata={"value_unit": "HU"})
    values = np.arange(192, dtype=np.int32).reshape(3, 8, 8)
    labels = scan.as_labels(values, "pores")
    # what is not said to be is none, whatever its type; nor is what has been made of labels
    others = [scan.replace(values), labels.replace(values / 3.0)]
    found = [
        read(write_image(tmp_path / f"{number}.{suffix}", each))
        for number, each in enumerate([labels, *others])
    ]
    assert [each.holds_labels for each in found] == [True, False, False]
    np.testing.assert_array_equal(found[0].array(), values)
    assert (found[0].spacing, found[0].unit) == ((2, 2, 2), "um")


def test_64_bit_labels_that_fit_are_narrowed_and_others_refused(tmp_path):
    values = np.array([[0, 1], [2, 2**31 - 1]])
    write_image(tmp_path / "a.tif", Volume(values))
    assert read(tmp_path / "a.tif").dtype == np.int32
    with pytest.raises(InputError, match="32 bits"):
        write_image(tmp_path / "b.tif", Volume(values + 1))
    assert not (tmp_path / "b.tif").exists()


def test_half_precision_is_widened(tmp_path):
    write_image(tmp_path / "a.tif", Volume(np.ones((3, 4), np.float16)))
    assert read(tmp_path / "a.tif").dtype == np.float32


def test_a_mask_is_one_of_0_and_1_for_other_programs(tmp_path):
    mask = np.eye(40, dtype=bool)
    path = write_image(tmp_path / "a.tif", Volume(mask))
    np.testing.assert_array_equal(tifffile.imread(path), mask.astype(np.uint8))
    # what another program makes of it, with our words still in it, 255 for true
    with tifffile.TiffFile(path) as tif:
        told = tif.ome_metadata
    tifffile.imwrite(tmp_path / "b.tif", mask * np.uint8(255), description=told.encode(), ome=False)
    back = read(tmp_path / "b.tif")
    assert back.dtype == np.bool_
    np.testing.assert_array_equal(back.data[3:, ::2], mask[3:, ::2])
    # grey values in its place are grey values
    tifffile.imwrite(
        tmp_path / "c.tif", mask * np.uint16(999), description=told.encode(), ome=False
    )
    assert read(tmp_path / "c.tif").dtype == np.uint16


@pytest.mark.parametrize("padding", [-2000, 0, 0.1])
def test_what_a_scan_is_filled_in_with_is_kept(tmp_path, padding):
    values = np.ones((3, 4, 5), np.float32)
    path = write_image(tmp_path / "a.tif", Volume(values, metadata={"padding_value": padding}))
    assert read(path).metadata == {"padding_value": padding}
    told = tifffile.tiffcomment(path).replace(f": {float(padding)}}}", ': "none"}')
    assert "none" in told
    tifffile.tiffcomment(path, told.encode())
    assert read(path).metadata == {}


def test_an_empty_volume_is_refused(tmp_path):
    with pytest.raises(InputError, match="empty"):
        write_image(tmp_path / "a.tif", Volume(np.zeros((0, 4, 4))))
    assert list(tmp_path.iterdir()) == []


def test_an_image_is_replaced_only_when_asked(tmp_path, ramp):
    path = write_image(tmp_path / "a.tif", Volume(ramp))
    with pytest.raises(OutputError, match="already exists"):
        write_image(path, Volume(ramp))
    write_image(path, Volume(ramp[:2]), overwrite=True)
    assert read(path).shape == (2, 6, 7)


@pytest.fixture
def content(ramp):
    return {
        "images": {"denoised": Volume(ramp.astype(np.float32)), "labels": Volume(np.abs(ramp))},
        "tables": {"pores": pd.DataFrame({"label": [1, 2], "volume": [0.1 + 0.2, 1e-300]})},
        "provenance": {"job": "pores", "settings": {"h": np.float32(1)}, "bad": [np.nan, np.inf]},
        "figures": {"report": b"\x89PNG"},
    }


@pytest.mark.parametrize("content", ['{"shape": [2, 3, 4]}', "[1]", "no JSON", ""])
def test_what_is_no_record_is_never_replaced_by_one(tmp_path, ramp, content):
    # the header of a raw file, or what another program knows of a scan
    (tmp_path / "a.json").write_text(content)
    record = {"job": "denoise"}
    for overwrite in (False, True):
        with pytest.raises(OutputError, match=r"Cannot write .*a\.json: it already exists"):
            write_image(tmp_path / "a.tif", Volume(ramp), provenance=record, overwrite=overwrite)
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == content
    (tmp_path / "a.json").write_text('{"job": "pores"}')
    write_image(tmp_path / "a.tif", Volume(ramp), provenance=record, overwrite=True)
    assert json.loads((tmp_path / "a.json").read_text()) == record


def test_a_result_holds_images_tables_figures_and_the_record(tmp_path, content):
    folder = write_results(tmp_path / "out", **content)
    names = ["denoised.tif", "labels.tif", "pores.csv", "report.png", "result.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    provenance = json.loads((folder / "result.json").read_text())
    assert provenance["files"] == names
    assert provenance["settings"] == {"h": 1.0}
    assert provenance["bad"] == [None, None]
    lines = (folder / "pores.csv").read_text().splitlines()
    assert lines[0] == "label,volume"
    assert [float(line.split(",")[1]) for line in lines[1:]] == [0.1 + 0.2, 1e-300]


def test_a_result_is_replaced_as_a_whole_when_asked(tmp_path, content):
    folder = write_results(tmp_path / "out", **content)
    with pytest.raises(OutputError, match="already exists"):
        write_results(folder, **content)
    write_results(folder, **{**content, "figures": {}}, overwrite=True)
    assert not (folder / "report.png").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failure_half_way_leaves_the_old_result(tmp_path, content):
    folder = write_results(tmp_path / "out", **content)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    broken = {**content, "provenance": {"no": object()}}
    with pytest.raises(TypeError):
        write_results(folder, **broken, overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden", "a\0b"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, content, name):
    with pytest.raises(InputError, match="not a valid file name"):
        write_results(tmp_path / "out", **{**content, "figures": {name: b""}})
    assert list(tmp_path.iterdir()) == []


def table(folder: Path, text: str) -> Path:
    path = folder / "points.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "z,y,x\n1,2,3\n4,5.5,6\n",
        "name, X, Y, Z\na, 3, 2, 1\nb, 6, 5.5, 4\n",
        "index,axis-0,axis-1,axis-2\n0.0,1.0,2.0,3.0\n1.0,4.0,5.5,6.0\n",
    ],
)
def test_columns_are_found_by_name_in_any_order(tmp_path: Path, text: str) -> None:
    points = read_points(table(tmp_path, text))
    np.testing.assert_array_equal(points, [[1, 2, 3], [4, 5.5, 6]])
    assert points.dtype == np.float64


@pytest.mark.parametrize(
    "text", ["z;y;x\n1,5;2;3,25\n", "\ufeffz\ty\tx\n1,5\t2\t3,25\n", "z;y;x\n1.5;2;3.25\n"]
)
def test_points_may_be_of_a_spreadsheet_with_decimal_commas(tmp_path: Path, text: str) -> None:
    (tmp_path / "points.csv").write_text(text, encoding="utf-8")
    np.testing.assert_array_equal(read_points(tmp_path / "points.csv"), [[1.5, 2, 3.25]])


def test_points_of_an_image_have_two_coordinates(tmp_path: Path) -> None:
    np.testing.assert_array_equal(read_points(table(tmp_path, "y,x\n1,2\n")), [[1, 2]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "points.csv has the columns a, b. Expected one row per point"),
        ("", "not a table of points"),
        ("z,y,x\n1,2,3\n1,,3\n", "a coordinate of point 2 is not a number"),
        ("z,y,x\n1,two,3\n", "a coordinate of point 1 is not a number"),
        ('z,y,x\n1,2,"3\n', "not a table of points"),
    ],
)
def test_what_is_no_table_of_points_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_points(table(tmp_path, text))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_points(tmp_path / "none.csv")
