from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.denoising.settings import DenoiseSettings
from hushpore.io.results import write_image
from hushpore.runs.scan_recipe import ScanRecipe, attach_files, settings_for

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def drying(tmp_path: Path) -> Path:
    values = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
    return write_image(tmp_path / "drying.tif", Volume(values, axes="tzyx"))


def test_what_was_read_is_read_again_from_its_record(
    drying: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(drying.parent)
    first = ScanRecipe("drying.tif", at=("t=1",))
    again = ScanRecipe.of(first.to_dict())
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(again.read().data, np.arange(60, 120).reshape(3, 4, 5))


def test_a_stamp_changes_with_names_sizes_and_times(drying: Path) -> None:
    folder = ScanRecipe(str(drying.parent))
    before = folder.stamp()
    assert (before["files"], before["bytes"]) == (1, drying.stat().st_size)
    assert folder.stamp() == before
    os.utime(drying, ns=(0, 0))
    touched = folder.stamp()
    assert touched != before
    drying.rename(drying.with_name("other.tif"))
    assert folder.stamp() != touched


@pytest.mark.parametrize(
    ("scan", "pattern", "expected"),
    [
        ("bread.tif", "{name}_odd", "bread_odd.tif"),
        ("bread.tif", "{name}_odd.npy", "bread_odd.npy"),
        ("bread_even.ome.tif", "{name%_even}_odd", "bread_odd.ome.tif"),
        ("even/bread.tif", "../odd/{name}", "odd/bread.tif"),
        ("crumb 1.5um", "{name}_odd", "crumb 1.5um_odd"),
        ("bread.ome.zarr", "{name}_odd", "bread_odd.ome.zarr"),
        ("bread.tif", "/scans/other.tif", "/scans/other.tif"),
    ],
)
def test_a_second_scan_is_named_after_the_first(
    tmp_path: Path, scan: str, pattern: str, expected: str
) -> None:
    for name in (scan, expected):
        place = tmp_path / name
        if name.endswith("um") or name.endswith("_odd") or name.endswith(".zarr"):
            place.mkdir(parents=True)
        elif not name.startswith("/"):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    found = settings_for(DenoiseSettings(pair=pattern), tmp_path / scan).pair
    assert found == str(tmp_path / expected)


def test_a_second_scan_is_read_as_the_first_is(drying: Path, tmp_path: Path) -> None:
    values = np.arange(200, 320, dtype=np.uint8).reshape(2, 3, 4, 5)
    other = write_image(tmp_path / "other.tif", Volume(values, axes="tzyx", name="other"))
    source = ScanRecipe(str(drying), at=("t=1",), voxel_size="2um")
    settings = DenoiseSettings(pair=str(other))
    volume = attach_files(source.read(), settings, source)
    np.testing.assert_array_equal(volume.auxiliary_of(settings, "pair"), values[1])
    assert volume.auxiliary[str(other)].spacing == (2, 2, 2)
    with pytest.raises(InputError, match="is the scan itself"):
        attach_files(volume, DenoiseSettings(pair=str(drying)), source)
    with pytest.raises(InputError, match="does not exist"):
        attach_files(volume, DenoiseSettings(pair=str(tmp_path / "gone.tif")), source)


def test_what_is_gone_has_no_stamp(tmp_path: Path) -> None:
    assert ScanRecipe(str(tmp_path / "gone")).stamp() == {}


def test_a_record_without_a_path_is_refused() -> None:
    with pytest.raises(InputError, match="names no file or folder"):
        ScanRecipe.of({"at": []})


@pytest.mark.parametrize("position", ["t", "t=", "t=--1", "t=1.0", "t=²", f"t={'1' * 5000}"])
def test_a_position_needs_an_axis_and_a_number(drying: Path, position: str) -> None:
    with pytest.raises(InputError, match="Give an axis and a number"):
        ScanRecipe(str(drying), at=(position,)).read()


@pytest.mark.parametrize(
    ("text", "spacing", "unit", "said"),
    [
        ("15.4um", (15.4, 15.4, 15.4), "um", "15.4 µm"),
        ("5, .49,4.9e-1 mm", (5, 0.49, 0.49), "mm", "5 x 0.49 x 0.49 mm"),
        ("2 micron", (2, 2, 2), "um", "2 µm"),
        ("0.1inch", (2.54, 2.54, 2.54), "mm", "2.54 mm"),
        ("15,4um", (15.4, 15.4, 15.4), "um", "15.4 µm"),
        ("0,500 mm", (0.5, 0.5, 0.5), "mm", "0.5 mm"),
        ("5; 0,49;0,49 mm", (5, 0.49, 0.49), "mm", "5 x 0.49 x 0.49 mm"),
    ],
)
def test_a_voxel_size_that_the_file_does_not_say_can_be_given(
    tmp_path: Path, text: str, spacing: tuple[float, ...], unit: str, said: str
) -> None:
    path = write_image(tmp_path / "scan.tif", Volume(np.zeros((3, 4, 5), np.uint8)))
    source = ScanRecipe(str(path), voxel_size=text)
    volume = source.read()
    np.testing.assert_allclose(volume.spacing, spacing)
    assert volume.unit == unit
    assert f"Voxel size set by the user: {said}." in volume.notes
    assert ScanRecipe.of(source.to_dict()) == ScanRecipe(str(path.resolve()), voxel_size=text)
    assert "voxel_size" not in ScanRecipe(str(path)).to_dict()


def test_a_voxel_size_that_differs_from_the_file_is_noted(tmp_path: Path) -> None:
    known = Volume(np.zeros((3, 4, 5), np.uint8), spacing=(2, 1, 1), unit="um")
    path = write_image(tmp_path / "scan.tif", known)
    volume = ScanRecipe(str(path), voxel_size="3um").read()
    assert volume.spacing == (3, 3, 3)
    assert "in the file: 2 x 1 x 1 µm" in volume.notes[-1]


@pytest.mark.parametrize("text", ["15.4", "um", "0um", "-1um", "1,um", "3 furlong", "5px", "1|2mm"])
def test_a_voxel_size_that_cannot_be_understood_is_refused(drying: Path, text: str) -> None:
    with pytest.raises(InputError, match="Give one number, or one for each"):
        ScanRecipe(str(drying), voxel_size=text).read()


@pytest.mark.parametrize(
    ("text", "shape"), [("15,4um", (4, 5)), ("1,500um", (3, 4, 5)), ("0,5mm", (4, 5))]
)
def test_one_voxel_size_never_becomes_two(
    tmp_path: Path, text: str, shape: tuple[int, ...]
) -> None:
    path = write_image(tmp_path / "scan.tif", Volume(np.zeros(shape, np.uint8)))
    with pytest.raises(InputError, match=r"ambiguous\. Write a decimal point"):
        ScanRecipe(str(path), voxel_size=text).read()


def test_a_voxel_size_needs_as_many_numbers_as_there_are_axes(drying: Path) -> None:
    with pytest.raises(InputError, match="has 2 numbers, but drying has 3 spatial axes"):
        ScanRecipe(str(drying), voxel_size="5,0.5mm").read()


def test_a_box_comes_after_axes_voxel_size_and_position(tmp_path: Path) -> None:
    values = np.arange(2 * 6 * 8 * 5, dtype=np.uint16).reshape(2, 6, 8, 5)
    path = write_image(tmp_path / "drying.tif", Volume(values, axes="tzyx"))
    source = ScanRecipe(str(path), at=("t=1",), voxel_size="3,2,1um", crop="2:,1:7,:4", bin="1,2,2")
    expected = values[1, 2:, 1:7, :4].reshape(4, 3, 2, 2, 2).mean((2, 4))
    for volume in (source.read(), source.describe()):
        np.testing.assert_array_equal(volume.array(), np.rint(expected))
        assert (volume.spacing, volume.origin) == ((3, 4, 2), (6, 3, 0.5))
    assert ScanRecipe.of(source.to_dict()) == source
    assert not {"crop", "bin"} & set(ScanRecipe(str(path)).to_dict())


def test_the_other_stacks_are_named_beside_a_box(tmp_path: Path) -> None:
    for name, side in (("a", 6), ("b", 4)):
        for index in range(3):
            values = np.full((side, 5), index, np.uint8)
            write_image(tmp_path / f"{name}_{index}.tif", Volume(values))
    scan = ScanRecipe(str(tmp_path), crop=":,1:,:").read()
    assert scan.shape == (3, 5, 5)
    assert any("Of 2 image stacks the largest was read" in note for note in scan.notes)
