"""Two measurements of phases side by side, of plates of which all is known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import hushpore
from hushpore import InputError, Volume
from hushpore.cli.commands import hushpore as command
from hushpore.pores.phases.measures import PHASES, PhaseSums
from hushpore.pores.tables.measures import Measure
from hushpore.runs.compare import compare
from hushpore.runs.result_folder import write_result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hushpore.pores.phases.result import Phases
    from hushpore.pores.result import Pores


def plates(*thick: int, names: str = "pores, clay, quartz", **volume: Any) -> Phases:
    """Plates of 30, 100 and 200, so many slices thick, in voxels of 2 um, measured."""
    grey = np.repeat([30.0, 100.0, 200.0], thick)
    image = np.broadcast_to(grey[:, None, None], (grey.size, 8, 8))
    how = {"thresholds": "60, 150", "names": names, "exterior": "keep", "thickness": True}
    scan = Volume(image.copy(), **{"spacing": 2.0, "unit": "um", "name": "plates", **volume})
    return hushpore.measure_phases(scan, device="cpu", regions=True, **how)


@pytest.fixture(scope="module", autouse=True)
def toy() -> Iterator[None]:
    """A measure of phases that is declared here alone."""
    edge = Measure[PhaseSums](
        "toy_edge",
        1,
        "Of a cube as large.",
        lambda phases: np.cbrt(phases.voxels * phases.volume.voxel_size),
    )
    PHASES.append(edge)
    yield
    PHASES.remove(edge)


@pytest.fixture(scope="module")
def one() -> Phases:
    return plates(6, 8, 6)


@pytest.mark.parametrize("names", ["1, 2, 3", "NA, nan, None", "01, 1.0, 1e3"])
def test_names_that_look_like_numbers_or_nothing_are_names_in_a_folder(
    tmp_path: Path, names: str
) -> None:
    named = plates(6, 8, 6, names=names)
    folder = write_result(tmp_path / "named", [named], named.volume)
    table, kept = compare(named, named), compare(named, folder)
    assert list(kept["quantity"]) == list(table["quantity"])
    np.testing.assert_allclose(kept["b"], table["b"])


def test_shares_thickness_and_contacts_stand_side_by_side(one: Phases) -> None:
    table = compare(one, plates(6, 4, 10)).set_index("quantity")
    row = table.loc["share of clay"]
    assert (row["a"], row["b"], row["relative"]) == pytest.approx((0.4, 0.2, -0.5))
    # 8 and 4 slices of 2 um between two others
    row = table.loc["thickness of clay"]
    assert (row["a"], row["b"], row["unit"]) == (16, 8, "um")
    row = table.loc["specific_area of contact clay - quartz"]
    assert row["relative"] == pytest.approx(0)
    assert row["unit"] == "1/um"
    assert np.isfinite(table.loc["median_diameter of clay", "ks"])
    assert not any(quantity.startswith(("volume", "grey")) for quantity in table.index)


def test_phases_are_those_of_the_same_name_whatever_their_number(one: Phases) -> None:
    table = compare(one, plates(6, 8, 6, names="quartz, clay, pores")).set_index("quantity")
    assert table.loc["share of quartz", "b"] == pytest.approx(0.3)
    assert table.loc["share of contact clay - quartz", "difference"] == pytest.approx(0)
    other = compare(one, plates(6, 8, 6, names="pores, clay, pyrite")).set_index("quantity")
    assert np.isnan(other.loc["share of quartz", "b"])
    assert np.isnan(other.loc["share of pyrite", "a"])
    with pytest.raises(InputError, match="no phase name in common"):
        compare(one, plates(6, 8, 6, names="a, b, c"))


def test_lengths_are_compared_in_one_unit(one: Phases) -> None:
    table = compare(one, plates(6, 8, 6, spacing=2e-3, unit="mm"))
    np.testing.assert_allclose(table["a"], table["b"], rtol=1e-6)


def test_a_slice_is_not_compared_with_a_volume(one: Phases) -> None:
    grey = Volume(one.volume.data[:, 0], spacing=2.0, unit="um", name="slice")
    how = {"thresholds": "60, 150", "names": "pores, clay, quartz", "exterior": "keep"}
    with pytest.raises(InputError, match="slice is 2D and plates is 3D"):
        compare(hushpore.measure_phases(grey, device="cpu", **how), one)


def test_pores_are_not_compared_with_phases(one: Phases, found: Pores) -> None:
    for pair in ((one, found), (found, one)):
        with pytest.raises(InputError, match="is not a phase result, but the other one is"):
            compare(*pair)


def test_the_command_compares_folders_and_draws_both(one: Phases, tmp_path: Path) -> None:
    folders = [
        write_result(tmp_path / name, [result], result.volume)
        for name, result in (("before", one), ("after", plates(6, 4, 10)))
    ]
    picture = tmp_path / "both.png"
    words = ["compare", *map(str, folders), "-o", str(picture)]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    (line,) = (line for line in done.output.splitlines() if "share of clay" in line)
    assert " · clay 40.0 → 20.0 %" in done.output.splitlines()[0]
    assert line.split()[-5:] == ["0.4", "0.2", "-0.2", "-50.0", "%"]
    assert matplotlib.image.imread(picture).ndim == 3
    # what was declared in one place is in table, record, report and comparison, and is resized
    edge = np.cbrt([384, 512, 384]) * 2
    np.testing.assert_allclose(pd.read_csv(folders[0] / "phases.csv")["toy_edge"], edge)
    (made,) = json.loads((folders[0] / "result.json").read_text())["jobs"]
    assert [row["toy_edge"] for row in made["result"]["phases"]] == pytest.approx(list(edge))
    assert "Toy edge (\u00b5m)" in (folders[0] / "report.html").read_text(encoding="utf-8")
    (line,) = (line for line in done.output.splitlines() if "toy_edge of clay" in line)
    assert "16" in line.split()
    resized = one.resized((6.0, 6.0, 6.0), "um").phases
    np.testing.assert_allclose(resized["toy_edge"], 3 * edge)
    same = compare(folders[0], one)
    assert (same["difference"].dropna() == 0).all()
