from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.stats import ks_2samp, mannwhitneyu

import hushpore
from hushpore import InputError, Volume
from hushpore.base.formatting import readable_number
from hushpore.cli.commands import hushpore as command
from hushpore.runs.compare import (
    compare,
    comparison_figure,
    comparison_headline,
    distributions,
    shift_in_words,
)

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.pores.result import Pores


@pytest.fixture(scope="module")
def other(found: Pores) -> Pores:
    alone = {"merge_height": 0.0, "merge_overlapping": False}
    return hushpore.segment_pores(found.volume, threshold=650, device="cpu", **alone)


def test_a_result_does_not_differ_from_itself(found: Pores, folder: Path) -> None:
    for one, two in ((found, found), (found, folder), (folder, found)):
        table = compare(one, two)
        assert (table["difference"].dropna() == 0).all()
        assert (table["ks"].dropna() == 0).all()


def test_totals_and_medians_stand_side_by_side(found: Pores, other: Pores) -> None:
    table = compare(found, other).set_index("quantity")
    row = table.loc["porosity"]
    assert (row["a"], row["b"]) == (found.porosity, other.porosity)
    assert row["difference"] == other.porosity - found.porosity
    assert row["relative"] == pytest.approx(other.porosity / found.porosity - 1)
    assert table.loc["count", "b"] == len(other.pores)
    median = table.loc["median sphericity of pores"]
    assert median["b"] == np.median(other.pores["sphericity"])
    assert table.loc["median volume of pores", "unit"] == "um^3"


def test_the_distance_of_distributions_is_that_of_scipy(found: Pores, other: Pores) -> None:
    table = compare(found, other).set_index("quantity")
    for column in ("equivalent_diameter", "sphericity", "coordination_number"):
        expected = ks_2samp(found.pores[column], other.pores[column]).statistic
        assert table.loc[f"median {column} of pores", "ks"] == pytest.approx(expected)


def test_lengths_are_compared_in_one_unit(found: Pores) -> None:
    in_mm = Volume(found.volume.data, spacing=5e-3, unit="mm", name="foam")
    table = compare(found, hushpore.segment_pores(in_mm, device="cpu"))
    np.testing.assert_allclose(table["a"], table["b"], rtol=1e-9)
    np.testing.assert_allclose(table["ks"].dropna(), 0, atol=1e-9)


def test_an_unknown_voxel_size_is_not_compared_with_a_known_one(found: Pores) -> None:
    unknown = hushpore.segment_pores(found.volume.data, device="cpu")
    with pytest.raises(InputError, match="which cannot be converted"):
        compare(found, unknown)


def test_a_slice_is_not_compared_with_a_volume(found: Pores) -> None:
    image = hushpore.segment_pores(
        Volume(found.volume.data[5], spacing=5, unit="um", name="slice"), device="cpu"
    )
    for way in (compare, distributions, comparison_figure):
        with pytest.raises(InputError, match="foam is 3D and slice is 2D"):
            way(found, image)


def test_a_result_without_pores_can_be_compared(found: Pores) -> None:
    none = hushpore.segment_pores(Volume(np.zeros((4, 8, 8), bool), spacing=5, unit="um"))
    table = compare(found, none).set_index("quantity")
    assert table.loc["count", "b"] == 0
    assert np.isnan(table.loc["median volume of pores", "b"])
    assert comparison_figure(found, none).startswith(b"\x89PNG")


def test_the_picture_shows_both(found: Pores, other: Pores) -> None:
    picture = matplotlib.image.imread(io.BytesIO(comparison_figure(found, other, dpi=60)))
    rgb = (picture[..., :3] * 255).round().astype(int).reshape(-1, 3)
    for colour in ((0x3B, 0x7E, 0xA1), (0xC2, 0x70, 0x3D)):
        assert (np.abs(rgb - colour).max(axis=1) < 8).sum() > 50


def test_the_command_prints_and_writes(folder: Path, tmp_path: Path) -> None:
    files = ["-o", str(tmp_path / "both.png"), "--csv", str(tmp_path / "both.csv")]
    done = CliRunner().invoke(command, ["compare", str(folder), str(folder), *files])
    assert done.exit_code == 0, done.output
    assert "median equivalent_diameter of pores" in done.output
    assert done.output.startswith("Porosity ")
    assert "\n  - Pores of one scan are not independent samples" in done.output
    assert len(pd.read_csv(tmp_path / "both.csv")) == len(compare(folder, folder))
    again = CliRunner().invoke(command, ["compare", str(folder), str(folder), *files])
    assert again.exit_code == 1
    rows = json.loads(
        CliRunner().invoke(command, ["compare", str(folder), str(folder), "--json"]).stdout
    )
    assert rows[0]["quantity"] == "porosity"


def test_distributions_share_their_bins_and_add_up(found: Pores, other: Pores) -> None:
    table = distributions(found, other, "volume", by_volume=True, log=True, bins=12)
    assert len(table) == 12
    volume = other.pores["volume"].to_numpy()
    edges = [*table["from"], table["to"].iloc[-1]]
    expected = np.histogram(volume, edges, weights=volume)[0] / volume.sum()
    np.testing.assert_allclose(table["b"], expected)
    np.testing.assert_allclose(table[["a_cumulative", "b_cumulative"]].iloc[-1], 1)


def test_distributions_are_in_one_unit(found: Pores) -> None:
    in_mm = hushpore.segment_pores(
        Volume(found.volume.data, spacing=5e-3, unit="mm", name="foam"), device="cpu"
    )
    table = distributions(found, in_mm, bins=5)
    np.testing.assert_allclose(table["a"], table["b"])


def test_what_is_not_compared_has_no_distribution(found: Pores) -> None:
    with pytest.raises(InputError, match="'label' is not compared"):
        distributions(found, found, "label")


def test_how_far_medians_shift_stands_in_the_table_and_in_words(found: Pores, other: Pores) -> None:
    table = compare(found, other).set_index("quantity")
    row = table.loc["median equivalent_diameter of pores"]
    assert row["low"] <= row["difference"] <= row["high"]
    sizes = (each.pores["equivalent_diameter"] for each in (found, other))
    assert row["p"] == pytest.approx(mannwhitneyu(*sizes, method="asymptotic").pvalue, rel=1e-3)
    assert np.isnan(table.loc["porosity", "p"])
    words = shift_in_words(compare(found, other), "equivalent_diameter")
    assert "µm (95 % interval" in words
    assert "Mann-Whitney p" in words
    none = hushpore.segment_pores(Volume(np.zeros((4, 8, 8), bool), spacing=5, unit="um"))
    totals = [each.provenance["result"] for each in (found, other)]
    headline = comparison_headline(compare(found, other))
    assert headline.startswith(
        f"Porosity {100 * found.porosity:.1f} → {100 * other.porosity:.1f} %"
    )
    assert f" · {len(found.pores):,} → {len(other.pores):,} pores · D50 " in headline
    by_volume = " → ".join(readable_number(each["median_diameter_by_volume"]) for each in totals)
    assert headline.endswith(f", {by_volume} µm by volume")
    assert "→ 0 pores" in comparison_headline(compare(found, none))
    assert shift_in_words(compare(found, none), "equivalent_diameter") == ""
