"""Scans of a batch by groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from hushpore import InputError, Volume
from hushpore.cli.commands import hushpore as command
from hushpore.io.results import write_image
from hushpore.runs.batch_groups import (
    draw_groups,
    group_table,
    groups_of,
    groups_picture,
    has_figures,
    note_on_units,
)

if TYPE_CHECKING:
    from pathlib import Path


def summary() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "name": ["a", "b", "c", "d"],
            "group": ["dry", "wet", "dry", "wet"],
            "porosity": [0.1, 0.4, 0.3, np.nan],
            "count": [10, 20, 30, np.nan],
            "median_diameter": [5.0, 0.007, 7.0, np.nan],
            "unit": ["um", "mm", "um", None],
        }
    )


def test_groups_have_the_means_and_deviations_of_their_scans_in_one_unit() -> None:
    table = group_table(summary()).set_index("group")
    assert table.loc["dry", "scans"] == 2
    assert table.loc["dry", "porosity_mean"] == pytest.approx(0.2)
    assert table.loc["dry", "porosity_deviation"] == pytest.approx(np.std([0.1, 0.3], ddof=1))
    # what failed is not counted, of one scan there is no deviation
    assert table.loc["wet", "scans"] == 1
    assert table.loc["wet", "median_diameter_mean"] == pytest.approx(7)
    assert np.isnan(table.loc["wet", "count_deviation"])
    assert set(table["unit"]) == {"um"}


@pytest.mark.parametrize("unknown", [0, 1, 2])
def test_lengths_that_cannot_be_compared_are_left_out_and_it_is_said(unknown: int) -> None:
    found = summary()
    found.loc[unknown, "unit"] = "pixel"
    table = group_table(found).set_index("group")
    # the third scan is 7 um, the second 0.007 mm
    known = {"dry": [[7], [5, 7], [5]][unknown], "wet": [[7], [], [7]][unknown]}
    factor = {"um": 1, "mm": 1000}[table.loc["dry", "unit"]]
    for group, lengths in known.items():
        mean = table.loc[group, "median_diameter_mean"] * factor
        assert mean == pytest.approx(np.mean(lengths) if lengths else np.nan, nan_ok=True)
        assert table.loc[group, "median_diameter_scans"] == len(lengths)
    # what has no unit is of all scans
    assert table["porosity_scans"].to_dict() == {"dry": 2, "wet": 1}
    assert "lengths of 1 of 3 scans are in pixel" in note_on_units(found)
    figure = Figure()
    draw_groups(figure, found)
    assert figure.axes[2].get_title() == "without 1 scan in other units"
    assert figure.axes[0].get_title() == ""


def test_lengths_in_pixels_alone_are_told_to_be_such() -> None:
    found = summary().assign(unit="pixel")
    assert set(group_table(found)["unit"]) == {"pixel"}
    assert "None of the 3 scans has a voxel size" in note_on_units(found)
    # nothing is compared
    assert note_on_units(found.iloc[:1]) == ""
    assert note_on_units(summary()) == ""


def test_groups_are_folders_or_stand_in_a_table(tmp_path: Path) -> None:
    paths = ["/scans/dry/001.tif", "/scans/wet/002.tif"]
    assert groups_of(paths, ["001", "002"], "folder") == ["dry", "wet"]
    file = tmp_path / "groups.csv"
    file.write_text("name,group\n001,old\n002.tif,new\n")
    assert groups_of(paths, ["001", "002"], str(file)) == ["old", "new"]
    assert groups_of(paths[:1], ["other"], str(file)) == [""]
    file.write_text("scan,kind\n")
    with pytest.raises(InputError, match="columns name and group"):
        groups_of(paths, ["001", "002"], str(file))
    with pytest.raises(InputError, match="cannot be read"):
        groups_of(paths, ["001", "002"], str(tmp_path / "none.csv"))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_a_table_of_groups_may_be_of_any_spreadsheet(
    tmp_path: Path, separator: str, encoding: str
) -> None:
    rows = [("Name", "Group"), ("001", "Grün"), ("002.tif", "Größe 1")]
    file = tmp_path / "groups.csv"
    file.write_bytes("\r\n".join(map(separator.join, rows)).encode(encoding))
    paths = ["/scans/dry/001.tif", "/scans/wet/002.tif"]
    assert groups_of(paths, ["001", "002"], str(file)) == ["Grün", "Größe 1"]


def test_a_scan_of_two_groups_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "groups.csv"
    file.write_text("name,group\na.tif,old\na.tif,new\nb.tif,old\nb.tif,old\n")
    with pytest.raises(InputError, match=r"a\.tif two groups, old and new"):
        groups_of(["/scans/a.tif"], ["a"], str(file))


def test_there_is_a_plot_where_there_is_something_to_plot() -> None:
    assert has_figures(summary())
    assert groups_picture(summary()).startswith(b"\x89PNG")
    assert not has_figures(summary().iloc[3:])
    assert not has_figures(summary().drop(columns="group"))


def test_the_command_writes_table_and_plot(tmp_path: Path) -> None:
    z, y, x = np.ogrid[:12, :12, :12]
    for group, radius in (("small", 3), ("large", 5)):
        (tmp_path / group).mkdir()
        ball = (z - 6) ** 2 + (y - 6) ** 2 + (x - 6) ** 2 < radius**2
        scan = Volume(np.where(ball, 100, 900).astype(np.uint16), spacing=2, unit="um")
        write_image(tmp_path / group / f"{group}.tif", scan)
    # and one that does not say how large its voxels are
    write_image(tmp_path / "large" / "unsized.tif", Volume(scan.data))
    words = ["batch", f"{tmp_path}/*/*.tif", "-o", str(tmp_path / "out"), "--no-denoise"]
    done = CliRunner().invoke(command, [*words, "--device", "cpu", "--groups", "folder"])
    assert done.exit_code == 0, done.output
    assert "groups.csv" in done.output
    assert "lengths of 1 of 3 scans are in pixel" in done.output
    table = pd.read_csv(tmp_path / "out" / "groups.csv").set_index("group")
    assert table.loc["large", "porosity_mean"] > table.loc["small", "porosity_mean"]
    assert table.loc["large", ["porosity_scans", "median_diameter_scans"]].tolist() == [2, 1]
    assert (tmp_path / "out" / "groups.png").read_bytes().startswith(b"\x89PNG")
    whole = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert sorted(whole["group"]) == ["large", "large", "small"]


def test_phases_of_many_scans_have_a_row_each_and_are_compared_by_their_shares(
    tmp_path: Path,
) -> None:
    for group, width in (("thin", 4), ("thick", 8)):
        (tmp_path / group).mkdir()
        grey = np.repeat([30, 100, 200], [width, 6, 10 - width]).astype(np.uint8)
        scan = Volume(np.broadcast_to(grey, (4, 8, 16)).copy(), spacing=2, unit="um")
        write_image(tmp_path / group / f"{group}.tif", scan)
    words = ["batch-phases", f"{tmp_path}/*/*.tif", "-o", str(tmp_path / "out"), "--no-denoise",
             "--thresholds", "60,150", "--names", "pores, clay, quartz", "--exterior", "keep",
             "--groups", "folder"]  # fmt: skip
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    whole = pd.read_csv(tmp_path / "out" / "summary.csv").set_index("name")
    assert whole["share of pores"].to_dict() == {"thick": 0.5, "thin": 0.25}
    assert whole["specific_area of contact clay - pores"].notna().all()
    table = pd.read_csv(tmp_path / "out" / "groups.csv").set_index("group")
    assert table.loc["thick", "share of quartz_mean"] == 0.125
    assert (tmp_path / "out" / "groups.png").read_bytes().startswith(b"\x89PNG")
