"""Regions of phases, and the network of all of them, of volumes of which it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import hushpore
from hushpore import InputError, Volume
from hushpore.io.export.network import network_arrays

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.pores.phases.result import Phases


@pytest.fixture(scope="module")
def beads() -> np.ndarray:
    """Three balls of phase 1 in a row, the first two overlapping, and one of phase 3, in 2."""
    grid = np.indices((24, 24, 70))
    labels = np.full(grid.shape[1:], 2, np.uint8)
    for x, radius, phase in ((10, 8, 1), (23, 8, 1), (45, 7, 1), (60, 6, 3)):
        away = (grid[0] - 12) ** 2 + (grid[1] - 12) ** 2 + (grid[2] - x) ** 2
        labels[away <= radius**2] = phase
    return labels


@pytest.fixture(scope="module")
def found(beads: np.ndarray) -> Phases:
    volume = Volume(beads, spacing=2.0, unit="um")
    return hushpore.measure_phases(
        volume, are_labels=True, regions=True, names="pores, binder.x, ore", merge_height=0.5
    )


def test_each_ball_is_a_region_of_its_phase(found: Phases, beads: np.ndarray) -> None:
    table = found.region_table.set_index("label")
    assert found.regions is not None
    labels = found.regions.labels
    # every voxel is of one region, of its own phase
    np.testing.assert_array_equal(table["phase"].to_numpy()[labels - 1], beads)
    at = [labels[12, 12, x] for x in (10, 23, 45, 60)]
    assert len(set(at)) == 4
    of_pores = table[table["phase"] == 1]
    assert sorted(of_pores.index) == sorted(at[:3])
    volume = of_pores["volume"][at[2]]
    assert volume == pytest.approx(4 / 3 * np.pi * 14**3, rel=0.02)
    phases = found.phases.set_index("name")
    assert phases["num_regions"].loc[["pores", "ore"]].tolist() == [3, 1]
    assert phases["median_diameter"]["ore"] == pytest.approx(24, rel=0.02)
    assert table["num_voxels"].sum() == beads.size


def test_regions_touch_within_a_phase_and_across(found: Phases, beads: np.ndarray) -> None:
    assert found.regions is not None
    table, labels = found.region_contacts, found.regions.labels
    one, two, three, ore = (labels[12, 12, x] for x in (10, 23, 45, 60))
    pairs = table.set_index(["pore_1", "pore_2"])
    within = pairs.loc[(min(one, two), max(one, two))]
    # two balls of radius 8 whose centres are 13 apart meet in a disc of radius sqrt(64 - 6.5^2)
    assert within["area"] == pytest.approx(np.pi * (64 - 6.5**2) * 4, rel=0.15)
    assert within["inscribed_diameter"] > 0
    across = table[table["phase_1"] != table["phase_2"]]
    assert across["inscribed_diameter"].isna().all()
    assert not (set(map(tuple, table[["pore_1", "pore_2"]].to_numpy())) & {(three, ore)})
    # what regions of two phases share is what these share
    total = across.groupby(["phase_1", "phase_2"])["area"].sum()
    swapped = {tuple(sorted(pair)): 0.0 for pair in total.index}
    for pair, area in total.items():
        swapped[tuple(sorted(pair))] += area
    expected = found.contacts.set_index(["phase_1", "phase_2"])["area"]
    assert swapped == pytest.approx(expected.to_dict())


@pytest.mark.parametrize("from_folder", [False, True])
def test_the_network_of_all_phases_is_as_openpnm_has_it(
    found: Phases, tmp_path: Path, from_folder: bool
) -> None:
    result: Path | Phases = found
    if from_folder:
        from hushpore.runs.result_folder import write_result

        result = write_result(tmp_path / "folder", [found], found.volume)
    (file,) = hushpore.export(result, tmp_path / "network.npz")
    net = dict(np.load(file))
    np.testing.assert_array_equal(net["pore.phase"], found.region_table["phase"])
    np.testing.assert_array_equal(net["pore.pores"], net["pore.phase"] == 1)
    assert "pore.binder-x" in net
    ends = net["pore.phase"][net["throat.conns"]]
    np.testing.assert_array_equal(ends, net["throat.phases"])
    np.testing.assert_array_equal(
        net["throat.binder-x_pores"], (np.sort(ends, axis=1) == [1, 2]).all(axis=1)
    )
    assert net["throat.pores_pores"].sum() == 1
    assert np.isfinite(net["throat.diameter"]).all()
    total = net["throat.cross_sectional_area"][net["throat.binder-x_ore"]].sum()
    contact = found.contacts.set_index(["phase_1", "phase_2"])["area"][2, 3]
    assert total == pytest.approx(contact * 1e-12)
    assert len(hushpore.export(result, tmp_path / "all", "vtk")) == 2
    (table,) = hushpore.export(result, tmp_path / "network.csv")
    assert "throat.phases[0]" in table.read_text().splitlines()[0]


@pytest.mark.parametrize("names", ["volume, b, c", "all, b, phase", "a b, a_b, c", "a, b, xmin"])
def test_a_phase_does_not_take_the_place_of_something_else_in_the_network(
    found: Phases, names: str
) -> None:
    named = dict(enumerate(map(str.strip, names.split(",")), 1))
    tables = found.region_table, found.region_contacts, found.regions_volume
    with pytest.raises(InputError, match=r"name of a phase gives the key .* twice"):
        network_arrays(*tables, named)


def test_two_phases_have_the_regions_of_pores() -> None:
    grey = np.random.default_rng(2).normal(size=(24, 25, 26))
    for _ in range(2):
        grey = sum(np.roll(grey, step, axis) for axis in range(3) for step in (-1, 0, 1))
    pores = hushpore.segment_pores(grey, exterior="keep")
    both = hushpore.measure_phases(
        grey, thresholds=[pores.threshold], exterior="keep", regions=True
    )
    of_pores = both.region_table[both.region_table["phase"] == 1]
    for column in ("num_voxels", "surface_area", "equivalent_diameter", "centroid_x"):
        np.testing.assert_allclose(of_pores[column], pores.pores[column])
    throats = both.region_contacts
    within = throats[(throats["phase_1"] == 1) & (throats["phase_2"] == 1)]
    np.testing.assert_allclose(within["area"], pores.throats["area"])


def test_without_regions_there_is_no_network(beads: np.ndarray, tmp_path: Path) -> None:
    found = hushpore.measure_phases(beads, are_labels=True)
    assert found.region_table.empty
    with pytest.raises(InputError, match="were measured without regions"):
        hushpore.export(found, tmp_path / "network.npz")
