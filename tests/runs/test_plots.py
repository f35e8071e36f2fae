"""Plots for publications: their files and data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from PIL import Image

import hushpore
from hushpore.base.errors import InputError, OutputError
from hushpore.cli.commands import hushpore as command

if TYPE_CHECKING:
    from hushpore.pores.result import Pores


@pytest.fixture(scope="module")
def found() -> Pores:
    void = np.zeros((24, 24, 24), bool)
    for edge, start in ((2, 1), (3, 5), (5, 10), (6, 17)):
        void[(slice(start, start + edge),) * 3] = True
    scan = hushpore.Volume(void, spacing=0.5, unit="mm", name="cubes")
    return hushpore.segment_pores(scan, exterior="keep", local_thickness="void")


@pytest.mark.parametrize(("width", "pixels"), [("single", 1063), ("double", 2244)])
def test_every_plot_has_its_formats_and_its_data(
    found: Pores, tmp_path: Path, width: str, pixels: int
) -> None:
    files = hushpore.export_plots(found, tmp_path / "plots", width=width, bins=4)
    names = {file.name for file in files}
    for name in ("sizes_number", "sizes_volume_cumulative", "profile", "thickness"):
        assert {f"{name}.{kind}" for kind in ("png", "svg", "pdf", "csv")} <= names
    with Image.open(tmp_path / "plots" / "sizes_number.png") as picture:
        assert abs(picture.width - pixels) <= 1
        assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.1)
    assert b"/FontFile2" in (tmp_path / "plots" / "profile.pdf").read_bytes()
    assert pd.read_csv(tmp_path / "plots" / "sizes_number.csv")["share"].tolist() == [
        0.25,
        0.25,
        0,
        0.5,
    ]
    statistics = pd.read_csv(tmp_path / "plots" / "size_statistics.csv")
    by_size = found.pores["equivalent_diameter"].sort_values().tolist()
    assert statistics["d50"].tolist() == pytest.approx([by_size[1], by_size[3]])


def test_profiles_of_a_form_are_steps_over_its_table(tmp_path: Path) -> None:
    z, y, x = np.indices((24, 24, 24))
    void = (z % 6 < 2) & (np.hypot(y - 11.5, x - 11.5) < 6) & (z > 3)
    scan = hushpore.Volume(void, spacing=0.5, unit="mm", name="core")
    found = hushpore.segment_pores(
        scan, exterior="keep", report_form="casting", local_thickness="void"
    )
    files = hushpore.export_plots(found, tmp_path / "plots", formats=["svg", "png"])
    tables = found.files().tables
    for name in ("profile_depth", "profile_radius"):
        assert tmp_path / "plots" / f"{name}.png" in files
        stored = pd.read_csv(tmp_path / "plots" / f"{name}.csv")
        pd.testing.assert_frame_equal(stored, pd.DataFrame(tables[name]))
    by_radius = tables["profile_radius"]
    assert by_radius["porosity"][by_radius["radius_from"] > 3.5].max() == 0
    shown = (tmp_path / "plots" / "profile_radius.svg").read_text(encoding="utf-8")
    assert "distance from the axis (mm)" in shown


def test_a_folder_gives_what_its_result_gives(found: Pores, tmp_path: Path) -> None:
    void = tmp_path / "void.npy"
    np.save(void, np.asarray(found.volume.data))
    invoke = CliRunner().invoke
    how = ["--voxel-size", "0.5mm", "--exterior", "keep", "--local-thickness", "void"]
    assert invoke(command, ["pores", str(void), "-o", str(tmp_path / "r"), *how]).exit_code == 0
    done = invoke(
        command, ["plots", str(tmp_path / "r"), "-o", str(tmp_path / "p"), "--format", "svg"]
    )
    assert done.exit_code == 0, done.output
    written = hushpore.export_plots(found, tmp_path / "q", formats=["svg"])
    assert [file.name for file in written] == [
        Path(line.removeprefix("Written: ")).name for line in done.output.splitlines()
    ]
    for file in written:
        assert (tmp_path / "p" / file.name).read_bytes() == file.read_bytes(), file.name


def test_nothing_is_replaced_unasked_or_written_into_the_result(
    found: Pores, tmp_path: Path
) -> None:
    hushpore.export_plots(found, tmp_path, formats=["svg"])
    with pytest.raises(OutputError, match="exists"):
        hushpore.export_plots(found, tmp_path, formats=["svg"])
    hushpore.export_plots(found, tmp_path, formats=["svg"], overwrite=True)


@pytest.mark.parametrize(
    "options",
    [{"width": "triple"}, {"formats": ["gif"]}, {"formats": []}, {"bins": 0}, {"bins": True},
     {"column": "label"}],
)  # fmt: skip
def test_unknown_options_are_refused(found: Pores, tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options)) if "column" not in options else "lab"):
        hushpore.export_plots(found, tmp_path / "p", **options)
    assert not (tmp_path / "p").exists()
