"""Flow through networks, against tubes, circuits and widest ways that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.sparse.csgraph import connected_components

import hushpore
from hushpore import Volume
from hushpore.pores.flow import (
    Network,
    capillary_pressure,
    drainage_columns,
    formation_factor,
    permeability,
    threshold_diameter,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = np.array([12.0, 8.0, 5.0])


def network(
    pores: list[float], throats: list[tuple[int, int, float]], ends: tuple[list[int], list[int]]
) -> Network:
    """A network whose pores lie 1 from each throat, and 2 from the faces along the first axis."""
    faces = np.zeros((3, 2, len(pores)), bool)
    faces[0, 0, ends[0]] = faces[0, 1, ends[1]] = True
    joined = np.array([each[:2] for each in throats], np.int64).reshape(-1, 2)
    return Network(
        np.array(pores, float),
        np.arange(1.0, len(pores) + 1),
        joined,
        np.array([each[2] for each in throats], float),
        np.ones((len(throats), 2)),
        faces,
        np.full((3, 2, len(pores)), 2.0),
        SIZE,
    )


def random_network(seed: int, count: int = 60) -> Network:
    """Pores at random, each joined to near ones, at the faces along each axis."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, 1, (count, 3)) * SIZE
    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    ends = np.argwhere(np.triu(apart < np.sort(apart, axis=1)[:, 4:5], 1))
    diameter = rng.uniform(0.8, 1.5, count)
    throat = diameter[ends].min(axis=1) * rng.uniform(0.1, 0.9, len(ends))
    lengths = np.repeat(apart[tuple(ends.T)][:, None] / 2, 2, axis=1)
    to_face = np.stack([places.T, (SIZE - places).T], axis=1)
    return Network(diameter, diameter**3, ends, throat, lengths, to_face < 1.5, to_face, SIZE)


def test_a_tube_has_poiseuilles_flow_and_the_resistance_of_its_section() -> None:
    # three pores as wide as the throats between them: one tube, 2 + 2 * 2 + 2 = 8 long
    tube = network([1, 1, 1], [(0, 1, 1), (1, 2, 1)], ([0], [2]))
    assert tube.conductance_along(0, hydraulic=True) == pytest.approx(np.pi / 128 / 8)
    assert tube.conductance_along(0, hydraulic=False) == pytest.approx(np.pi / 4 / 8)
    assert permeability(tube, 0) == pytest.approx(np.pi / 128 / 8 * 12 / 40)
    assert formation_factor(tube, 0) == pytest.approx(40 / (np.pi / 4 / 8 * 12))


def test_a_throat_is_two_cones() -> None:
    narrow = network([2, 1.2], [(0, 1, 0.5)], ([0], [1]))

    def resistance(power: int) -> float:
        cones = ((1.0, 0.25), (0.6, 0.25))
        return sum(quad(lambda s, a=a, b=b: (a + (b - a) * s) ** -power, 0, 1)[0] for a, b in cones)

    assert narrow.conductances(hydraulic=True)[0] == pytest.approx(np.pi / 8 / resistance(4))
    assert narrow.conductances(hydraulic=False)[0] == pytest.approx(np.pi / resistance(2))


def test_narrower_widths_close_throats() -> None:
    found = network([2, 2, 1], [(0, 1, 0.5), (0, 1, 1.5), (1, 2, 0.6)], ([0], [1, 2])).widened(-0.6)
    assert found.pore_diameter == pytest.approx([1.4, 1.4, 0.4])
    assert found.throat_diameter == pytest.approx([0.9])
    assert found.ends.tolist() == [[0, 1]]
    alike = network([1.4, 1.4, 0.4], [(0, 1, 0.9)], ([0], [1, 2]))
    assert permeability(found, 0) == permeability(alike, 0)
    assert found.widened(-2).conductance_along(0, hydraulic=True) == 0


def test_tubes_side_by_side_add_up_and_dead_ends_do_not_count() -> None:
    both = network(
        [1, 1, 2, 2, 3, 1, 1], [(0, 1, 1), (2, 3, 2), (1, 4, 0.5), (5, 6, 1)], ([0, 2, 5], [1, 3])
    )
    # each 2 + 2 + 2 long
    assert both.conductance_along(0, hydraulic=True) == pytest.approx(np.pi / 128 / 6 * (1 + 16))
    assert both.conductance_along(1, hydraulic=True) == 0
    assert permeability(both, 1) == 0
    assert formation_factor(both, 1) == np.inf


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("hydraulic", [False, True])
@pytest.mark.parametrize("direct", [0, 1000])
def test_flow_is_that_of_a_dense_solver(
    monkeypatch: pytest.MonkeyPatch, seed: int, hydraulic: bool, direct: int
) -> None:
    monkeypatch.setattr(hushpore.pores.flow, "_DIRECT", direct)
    found = random_network(seed)
    link = found.conductances(hydraulic=hydraulic)
    for axis in range(3):
        inlet, outlet = (found.face_conductances(axis, k, hydraulic=hydraulic) for k in (0, 1))
        matrix = np.diag(inlet + outlet)
        for (a, b), each in zip(found.ends, link, strict=True):
            matrix[[a, b], [a, b]] += each
            matrix[a, b] -= each
            matrix[b, a] -= each
        expected = outlet @ np.linalg.lstsq(matrix, inlet, rcond=None)[0]
        flow = found.conductance_along(axis, hydraulic=hydraulic)
        assert flow == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_the_widest_ball_is_that_of_all_thresholds(seed: int) -> None:
    found = random_network(seed)
    for axis in range(3):
        low, high = found.faces[axis]
        best = max(found.pore_diameter[low & high], default=0.0)
        for width in found.throat_diameter:
            part = components(found, width)
            if set(part[low]) & set(part[high]):
                best = max(best, width)
        way = found.breakthrough(axis)
        assert way.diameter == best
        if not best:
            assert way.path.size == 0
            continue
        assert low[way.path[0]]
        assert high[way.path[-1]]
        widths = {frozenset(e): w for e, w in zip(found.ends.tolist(), found.throat_diameter,
                                                  strict=True)}  # fmt: skip
        for step in zip(way.path[:-1].tolist(), way.path[1:].tolist(), strict=True):
            assert widths[frozenset(step)] >= best


def components(found: Network, width: float) -> np.ndarray:
    graph = np.zeros((found.count,) * 2)
    graph[tuple(found.ends[found.throat_diameter >= width].T)] = 1
    labels: np.ndarray = connected_components(graph, directed=False)[1]
    return labels


@pytest.mark.parametrize("seed", range(6))
def test_a_liquid_enters_what_is_connected_to_its_face_by_wide_throats(seed: int) -> None:
    found = random_network(seed)
    curve = drainage_columns(found, 1e-6)
    assert (np.diff(curve["diameter"]) < 0).all()
    sources = {"saturation": found.faces.any(axis=(0, 1)), "saturation_y": found.faces[1, 0]}
    for name, at in sources.items():
        for row, width in enumerate(curve["diameter"]):
            part = components(found, width)
            entered = np.isin(part, part[at & (found.pore_diameter >= width)])
            expected = found.pore_volume[entered].sum() / found.pore_volume.sum()
            assert curve[name][row] == pytest.approx(expected)
    np.testing.assert_allclose(
        curve["mercury_pressure"], 4 * 0.485 * np.cos(np.radians(40)) / curve["diameter"] / 1e-6
    )


def test_half_of_the_void_is_entered_at_its_threshold() -> None:
    # volumes 1, 2, 3: entered at 5, 2 and 1
    row = network([5, 5, 5], [(0, 1, 2), (1, 2, 1)], ([0], [2]))
    curve = drainage_columns(row, None)
    assert "mercury_pressure" not in curve
    assert curve["saturation_z"].tolist() == [1 / 6, 3 / 6, 1]
    assert threshold_diameter(curve, 0.5, "saturation_z") == 2
    assert threshold_diameter(curve, 0.6, "saturation_z") == 1
    assert np.isnan(threshold_diameter(curve, 0.5, "saturation_y"))
    assert capillary_pressure(1e-6) == pytest.approx(1.486e6, rel=1e-3)


def test_a_tube_in_a_scan_has_its_permeability() -> None:
    y, x = np.indices((40, 40)) - 19.5
    void = np.broadcast_to(y**2 + x**2 < 12.5**2, (50, 40, 40)).copy()
    found = hushpore.segment_pores(Volume(void, spacing=2.0, unit="um"), exterior="keep")
    tube = Network.of(*found._columns, found.volume)
    # widths are right within a voxel in 25, and flow goes with their fourth power
    assert permeability(tube, 0) == pytest.approx(np.pi * 25**4 / 8 / 80**2, rel=0.18)
    assert formation_factor(tube, 0) == pytest.approx(80**2 / (np.pi * 25**2), rel=0.09)
    way = tube.breakthrough(0)
    assert way.diameter == pytest.approx(50, abs=2)
    assert tube.breakthrough(1).path.size == 0


def test_a_row_of_balls_lets_through_what_passes_its_necks(
    balls: Callable[..., np.ndarray],
) -> None:
    centres = [(z, 15, 15) for z in range(0, 81, 16)]
    void = balls((81, 31, 31), centres, 10)
    found = hushpore.segment_pores(Volume(void, spacing=0.5, unit="mm"), exterior="keep")
    assert len(found.pores) == 6
    row = Network.of(*found._columns, found.volume)
    way = row.breakthrough(0)
    # balls of 10 whose centres are 16 apart meet in circles of 6
    assert way.diameter == pytest.approx(0.5 * 12, abs=0.5)
    assert way.path.tolist() == list(range(6))


def test_pores_without_a_shape_are_as_wide_as_their_throats_at_least() -> None:
    noise = np.random.default_rng(1).random((30, 30, 30)) < 0.4
    found = hushpore.segment_pores(noise, merge_height=0)
    tiny = Network.of(*found._columns, found.volume)
    assert np.isfinite(tiny.pore_diameter).all()
    assert (tiny.pore_diameter[tiny.ends] >= tiny.throat_diameter[:, None] - 1e-9).all()
    assert permeability(tiny, 0) > 0


def test_the_path_of_a_tube_runs_from_face_to_face() -> None:
    # a tube along z that is wide in the middle, and a narrow straight one
    void = np.zeros((40, 40, 40), bool)
    void[:, 8:16, 8:16] = void[14:26, 4:20, 4:20] = void[:, 30:33, 30:33] = True
    scan = hushpore.Volume(void, spacing=0.5, unit="um", origin=(10.0, 0.0, 0.0))
    found = hushpore.segment_pores(scan, exterior="keep", report_form="rock")
    table = found.files().tables["breakthrough_path"]
    assert set(table["axis"]) == {"z"}
    assert table["position_z"].is_monotonic_increasing
    # from face to face, half a voxel beyond the centres of the outermost voxels
    assert table["position_z"].iloc[[0, -1]].tolist() == [9.75, 29.75]
    labels = table["pore"].tolist()
    assert labels[0] == labels[-1] == 0
    assert set(labels[1:-1]) == set(np.unique(found.labels[:, :20, :20])) - {0}
    form = found.form("rock").set_index("symbol")["value"]
    assert table["diameter"].unique().tolist() == [pytest.approx(form["d_c,z"])]
    pd.testing.assert_frame_equal(found.breakthrough_paths, table)
    other = hushpore.segment_pores(scan, exterior="keep")
    assert other.breakthrough_paths.empty
