from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

import numpy as np
import openpyxl
import pandas as pd
import pytest
from click.testing import CliRunner

import hushpore
from hushpore import InputError, Volume
from hushpore.base.errors import MissingPackageError, OutputError
from hushpore.cli.commands import hushpore as command
from hushpore.io.export import workbook
from hushpore.io.results import write_image
from hushpore.runs.pore_result import open_result, read_result_table
from hushpore.runs.result_folder import read_provenance, write_result

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.pores.result import Pores


@pytest.mark.parametrize(
    ("name", "to", "files"),
    [
        ("net.csv", "", ["net.csv"]),
        ("net.npz", "openpnm", ["net.npz"]),
        ("net", "openpnm", ["net.csv"]),
        ("foam", "vtk", ["foam.vti", "foam.vtp"]),
        ("foam.vtp", "", ["foam.vtp"]),
        ("v1.2", "stl", ["v1.2.stl"]),
        ("foam.ply", "", ["foam.ply"]),
    ],
)
def test_a_result_and_its_folder_give_the_same_files(
    tmp_path: Path, found: Pores, folder: Path, name: str, to: str, files: list[str]
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = hushpore.export(found, tmp_path / "one" / name, to)
    two = hushpore.export(folder, tmp_path / "two" / name, to)
    assert [path.name for path in one] == [path.name for path in two] == files
    for a, b in zip(one, two, strict=True):
        # tables have full precision, but whole numbers have no width in a CSV file
        assert a.suffix == ".vtp" or a.read_bytes() == b.read_bytes()


def test_pores_of_which_no_two_touch_are_the_same_from_their_folder(tmp_path: Path) -> None:
    grey = np.full((12, 12, 12), 900, np.uint16)
    grey[4:8, 4:8, 4:8] = 100
    alone = hushpore.segment_pores(Volume(grey, spacing=5, unit="um"), device="cpu")
    assert alone.throats.empty
    folder = write_result(tmp_path / "result", [alone], alone.volume)
    for each in hushpore.export(folder, tmp_path / "foam", "vtk"):
        assert each.stat().st_size
    pytest.importorskip("pyarrow")
    throats = pd.read_parquet(hushpore.export(folder, tmp_path / "foam.parquet")[1])
    pd.testing.assert_frame_equal(throats, alone.throats)


def test_parquet_holds_both_tables(tmp_path: Path, found: Pores) -> None:
    pytest.importorskip("pyarrow")
    files = hushpore.export(found, tmp_path / "foam.parquet")
    assert [path.name for path in files] == ["foam_pores.parquet", "foam_throats.parquet"]
    pd.testing.assert_frame_equal(pd.read_parquet(files[0]), found.pores)
    pd.testing.assert_frame_equal(pd.read_parquet(files[1]), found.throats)


def test_without_pyarrow_parquet_says_what_to_install(
    tmp_path: Path, found: Pores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'hushpore\[parquet\]'"):
        hushpore.export(found, tmp_path / "foam", "parquet")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_unless_asked_for(tmp_path: Path, found: Pores) -> None:
    (tmp_path / "foam.vtp").write_text("mine")
    with pytest.raises(OutputError, match="already exists"):
        hushpore.export(found, tmp_path / "foam", "vtk")
    assert not (tmp_path / "foam.vti").exists()
    assert (tmp_path / "foam.vtp").read_text() == "mine"
    hushpore.export(found, tmp_path / "foam", "vtk", overwrite=True)
    assert (tmp_path / "foam.vtp").read_bytes().startswith(b"<?xml")


def test_one_table_is_written_where_the_name_says_which(tmp_path: Path, found: Pores) -> None:
    pytest.importorskip("pyarrow")
    (file,) = hushpore.export(found, tmp_path / "a_throats.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(file), found.throats)


@pytest.mark.parametrize(
    ("name", "to", "keywords", "words"),
    [
        ("a.xyz", "", {}, "does not determine the format"),
        ("a", "gltf", {}, r"Unknown export format 'gltf'\. Available: openpnm"),
        ("a.vti", "", {"apart": True}, "surfaces only"),
        ("a.ply", "", {"labels": [999]}, "Pore 999 does not exist"),
    ],
)
def test_what_cannot_be_exported_is_said(
    tmp_path: Path, found: Pores, name: str, to: str, keywords: dict, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        hushpore.export(found, tmp_path / name, to, **keywords)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_result_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InputError, match="No result found in"):
        hushpore.export(tmp_path, tmp_path.parent / "a.stl")
    (folder / "labels.tif").unlink()
    with pytest.raises(InputError, match=r"missing: labels\.tif"):
        hushpore.export(folder, tmp_path / "a.stl")


def test_the_command_writes_chosen_pores(tmp_path: Path, folder: Path) -> None:
    words = ["export", str(folder), "-o", str(tmp_path / "two.ply"), "--label", "1", "--label", "2"]
    done = CliRunner().invoke(command, [*words, "--apart"])
    assert done.exit_code == 0, done.output
    assert "two.ply" in done.output
    wrong = CliRunner().invoke(command, ["export", str(tmp_path), "-o", "x.stl"])
    assert wrong.exit_code == 1
    assert "hushpore: No result found" in wrong.output


def test_a_workbook_holds_totals_tables_form_and_settings_as_numbers_with_units(
    tmp_path: Path,
) -> None:
    grid = np.indices((20, 20, 36))
    void = np.zeros(grid.shape[1:], bool)
    for x in (10, 24):
        void |= (grid[0] - 10) ** 2 + (grid[1] - 10) ** 2 + (grid[2] - x) ** 2 < 8**2
    volume = Volume(void, 0.5, "um")
    found = hushpore.segment_pores(volume, report_form="casting")
    (file,) = hushpore.export(found, tmp_path / "result.xlsx")
    sheets = pd.read_excel(file, sheet_name=None)
    assert list(sheets) == ["Totals", "Pores", "Throats", "Form", "Settings"]
    totals = sheets["Totals"].set_index("name")
    assert totals.loc["porosity", "value"] == pytest.approx(void.mean(), rel=1e-12)
    assert totals.loc["specific_surface", "unit"] == "um^-1"
    pores = sheets["Pores"]
    np.testing.assert_allclose(pores["volume (µm³)"], found.pores["volume"], rtol=1e-12)
    np.testing.assert_allclose(
        pores["equivalent_diameter (µm)"], found.pores["equivalent_diameter"], rtol=1e-12
    )
    assert pores["sphericity"].dtype == np.float64
    assert list(sheets["Throats"].columns[:2]) == ["pore_1", "pore_2"]
    assert sheets["Form"]["value"].dtype == np.float64
    settings = sheets["Settings"].set_index("setting")["value"]
    assert settings["report_form"] == "casting"
    assert set(sheets["Settings"]["job"]) == {"pores"}
    folder = write_result(tmp_path / "folder", [found], volume)
    (again,) = hushpore.export(folder, tmp_path / "again.xlsx")
    for name in ("Totals", "Throats", "Form", "Settings"):
        sheet = pd.read_excel(again, sheet_name=name)
        pd.testing.assert_frame_equal(sheet, sheets[name], check_dtype=False)


def test_text_in_a_workbook_is_no_formula(tmp_path: Path, found: Pores) -> None:
    table = found.pores.assign(name="=1+1")
    result = dataclasses.replace(open_result(found), pores=table)
    (file,) = hushpore.export(result, tmp_path / "result.xlsx")
    sheet = openpyxl.load_workbook(file)["Pores"]
    assert sheet.cell(2, sheet.max_column).data_type == "s"
    assert sheet.cell(2, sheet.max_column).value == "=1+1"


def test_a_table_longer_than_a_sheet_is_refused(
    tmp_path: Path, found: Pores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbook, "_ROWS", len(found.pores))
    with pytest.raises(InputError, match="Export to Parquet"):
        hushpore.export(found, tmp_path / "result.xlsx")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch on workbooks and decimal commas for a test."""
    monkeypatch.setenv("HUSHPORE_WORKBOOK", "true")
    monkeypatch.setenv("HUSHPORE_CSV_DECIMAL", "comma")


@pytest.mark.usefixtures("switched_on")
def test_a_result_too_long_for_a_workbook_is_written_without_it(
    tmp_path: Path, found: Pores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbook, "_ROWS", len(found.pores))
    folder = write_result(tmp_path / "result", [found], found.volume)
    assert not (folder / "result.xlsx").exists()
    (note,) = read_provenance(folder)["notes"]
    assert "The workbook was not written. The table Totals has" in note


@pytest.mark.usefixtures("switched_on")
def test_a_workbook_of_phases_has_every_table_with_units(tmp_path: Path) -> None:
    labels = np.repeat(np.array([1, 2, 3], np.uint8), 4)[:, None, None] * np.ones((1, 9, 9), int)
    volume = Volume(labels.astype(np.uint8), 2.0, "um")
    phases = hushpore.measure_phases(volume, are_labels=True, regions=True, device="cpu")
    folder = write_result(tmp_path / "result", [phases], volume)
    sheets = pd.read_excel(folder / "result.xlsx", sheet_name=None)
    names = ["Phases", "Contacts", "Profile", "Regions", "Region contacts", "Settings"]
    assert list(sheets) == names
    assert sheets["Phases"]["volume (µm³)"].tolist() == [4 * 81 * 8] * 3
    assert sheets["Contacts"]["area (µm²)"].tolist() == phases.contacts["area"].tolist()
    assert sheets["Profile"]["position (µm)"].tolist() == [2.0 * number for number in range(12)]


def test_without_the_package_a_workbook_is_refused_before_the_run(
    tmp_path: Path, scan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    words = ["pores", str(scan), "-o", str(tmp_path / "new"), "--workbook"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 1
    assert "hushpore[xlsx]" in done.output
    assert not (tmp_path / "new").exists()


def test_commands_write_workbooks_and_decimal_commas_that_are_read_as_others(
    tmp_path: Path,
) -> None:
    """A batch writes them for each scan, and its summary too."""
    void = np.zeros((3, 12, 20, 20), bool)
    for number in range(3):
        void[number, 3:9, 4:12, 4 : 10 + number] = True
    for number, each in enumerate(void):
        write_image(
            tmp_path / f"{number}.tif", Volume(np.where(each, 10, 200).astype("u1"), 0.3, "um")
        )
    flags = ["--csv-decimal", "comma", "--workbook", "--exterior", "keep", "--device", "cpu"]
    words = ["batch", "--no-denoise", *flags, "-o", str(tmp_path / "new")]
    done = CliRunner().invoke(command, [*words, *(str(tmp_path / f"{n}.tif") for n in range(3))])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "new" / "summary.csv").read_text("utf-8").startswith("name;state;porosity")
    summary = read_result_table(tmp_path / "new" / "summary.csv")
    np.testing.assert_allclose(summary["porosity"], void.mean(axis=(1, 2, 3)), rtol=1e-12)
    folder = tmp_path / "new" / "0"
    lines = (folder / "totals.csv").read_text("utf-8").splitlines()
    assert lines[:2] == [
        "name;title;value;unit",
        f"porosity;Porosity;{void[0].mean()};".replace(".", ","),
    ]
    assert "result.xlsx" in read_provenance(folder)["files"]
    sheet = pd.read_excel(folder / "result.xlsx", sheet_name="Pores")
    pores = open_result(folder).pores
    assert sheet["volume (µm³)"].tolist() == pytest.approx(pores["volume"].tolist(), rel=1e-12)
    # the flags hold for one command
    again = CliRunner().invoke(command, ["rerun", str(folder), "-o", str(tmp_path / "again")])
    assert "Identical" in again.output
    assert (tmp_path / "again" / "totals.csv").read_text("utf-8").startswith("name,title")
    assert not (tmp_path / "again" / "result.xlsx").exists()
