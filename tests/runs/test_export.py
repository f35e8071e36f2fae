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
from hushpore.runs import workbook
from hushpore.runs.pore_result import open_result
from hushpore.runs.result_folder import write_result

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
