"""Corrections by hand: each equals measuring all corrected labels from scratch."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from scipy import ndimage

from hushpore import Corrections, InputError, Volume, correct, measure_labels, segment_pores
from hushpore.base.events import result_of
from hushpore.pores.corrections.boxes import moved
from hushpore.pores.corrections.operations import Operation
from hushpore.pores.flow.network import Network
from hushpore.pores.forms.entries import Findings
from hushpore.pores.forms.rock import pore_throat_ratio
from hushpore.pores.geometry.sums import SUMS
from hushpore.pores.numbering import measured, numbering_of, totals_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.slabs import Slabs, Stack
from hushpore.pores.stored import restored
from hushpore.pores.tables.measures import void_walls
from hushpore.pores.topology.euler import find_euler_number
from hushpore.pores.void.components import AIR, CLOSED, Components, closed_bits, find_runs
from hushpore.pores.void.grey import AS_IS
from hushpore.pores.void.rolling_ball import count_crossings, face_neighbours
from hushpore.pores.void_totals import void_totals
from hushpore.pores.watershed.distance import edge_plane, fill_distance
from hushpore.pores.watershed.graph import Tables
from hushpore.pores.work import Threshold, VoidTotals

if TYPE_CHECKING:
    from hushpore.pores.result import Pores


def foam(shape: tuple[int, ...], seed: int = 0, count: int = 14) -> Volume:
    """A solid with spherical pores, some of which touch each other or the faces."""
    rng = np.random.default_rng(seed)
    grid = np.indices(shape)
    void = np.zeros(shape, bool)
    for _ in range(count):
        centre, radius = rng.uniform(0, shape), rng.uniform(2, 5)
        void |= sum((g - c) ** 2 for g, c in zip(grid, centre, strict=True)) <= radius**2
    spacing = (2.0, 1.0, 1.0)[-len(shape) :]
    return Volume(np.where(void, 20, 200).astype(np.uint8), spacing, "um")


def core(seed: int = 0) -> Volume:
    """A cylinder with pores in air."""
    grey = np.asarray(foam((14, 40, 40), seed, 30).data).copy()
    y, x = np.mgrid[:40, :40]
    grey[:, (y - 19.5) ** 2 + (x - 19.5) ** 2 > 17**2] = 20
    return Volume(grey, 1.0, "um")


def from_scratch(given: Pores, fix: Corrections) -> dict[str, Any]:
    """Measure all of a corrected volume, without what is known of it."""
    regions, settings, volume = fix._regions, given.settings, given.volume
    nodes = np.unique(regions.values, return_inverse=True)[1].reshape(regions.shape)
    ids = np.unique(regions.values)
    # pores first, then excluded void, with the solid as 0
    order = np.concatenate([[0], ids[ids > 0], ids[ids < 0][::-1]])
    rank = np.searchsorted(ids, order)
    new = np.empty(ids.size, np.int32)
    new[rank] = np.arange(order.size)
    assert 0 in ids
    nodes = new[nodes]
    phase = np.where(regions.phase >= AIR, regions.phase, (nodes != 0).astype(np.uint8))
    faces_only = settings.connectivity == "faces"
    with KernelThreads(2) as threads:
        distance = np.empty(phase.shape, np.float32)
        n_spatial = volume.n_spatial
        solid = tuple(settings.border_is_solid and face for face in (n_spatial == 3, True, True))
        highest = CLOSED if settings.border_is_solid else AIR + 1
        edge = edge_plane(phase.shape, solid[0])
        spacing = (min(volume.spacing),) * (3 - n_spatial) + volume.spacing
        fill_distance(phase, distance, edge, edge, spacing, solid, threads, highest)
        distance[phase >= AIR] = 0
        components = Components((n_spatial == 3, True, True), Slabs(len(phase), len(phase)))
        runs = find_runs(phase, threads)
        components.add(runs, runs.holding(face_neighbours(phase >= AIR)))
        components.join()
        painted = phase.copy()
        components.paint(0, painted, np.where(components.is_open, 1, 2).astype(np.uint8), threads)
        peaks = [int(np.where(nodes == k, distance, -1).argmax()) for k in range(1, order.size)]
        tables = Tables(phase.shape, np.full(len(peaks), -1), faces_only=faces_only)
        scan = np.asarray(volume.data).reshape(phase.shape)
        grey = None if volume.dtype == np.bool_ else scan.astype(np.int32)
        tables.add(nodes, distance, threads, grey=grey)
        tables.add_closed(nodes, closed_bits(painted, threads), threads)
        tables._peak_squared_distance[1:] = distance.reshape(-1)[peaks]
        tables._peaks = np.array(peaks, np.int64)
        air = count_crossings((phase == 1), phase >= AIR)
        graph = tables.graph(AS_IS, air)
        euler = result_of(
            find_euler_number(
                Stack.of(nodes), Slabs(len(nodes), len(nodes)), threads, faces_only=faces_only
            )
        )
    labels = np.maximum(regions.values, 0).reshape(volume.shape)
    numbering = numbering_of(labels, graph)
    found = result_of(measured(graph, numbering, settings, volume))
    before = given.provenance["result"]
    opened, closed, count = components.totals
    phases = VoidTotals(opened, closed, count, given.sample, before["exterior_share"])
    known = {
        **before,
        **void_totals(phases, Threshold(before["threshold"]), void_walls(graph), graph, volume),
        "euler_number": euler,
        "only_values": before["only_values"],
    }
    return {**found, "totals": totals_of(found, volume, known, "keep")}


def assert_from_scratch(given: Pores, fix: Corrections) -> None:
    """Require that columns, network and totals of corrections are those of a new measurement."""
    truth, found = from_scratch(given, fix), fix.result
    names = {"pores": "_pore_columns", "throats": "_throat_columns"}
    for name, columns in names.items():
        wanted = pd.DataFrame(truth[columns])
        pd.testing.assert_frame_equal(getattr(found, name), wanted, check_exact=True)
    for name, value in truth["totals"].items():
        assert found.provenance["result"][name] == (
            pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
        ), name
    assert sorted(set(np.unique(found.labels)) - {0}) == found.pores["label"].tolist()


def random_correction(fix: Corrections, rng: np.random.Generator) -> None:
    """Make a random correction that fits the pores."""
    labels = fix.result.labels
    pores = fix.result.pores["label"].to_numpy()
    kind = rng.choice(["merge", "walls", "split", "cut", "delete", "paint", "erase"])
    if kind == "merge":
        fix.merge(rng.choice(pores, min(3, pores.size), replace=False))
    elif kind == "walls":
        fix.merge_walls(pores)
    elif kind == "split":
        pore = rng.choice(pores)
        places = np.argwhere(labels == pore)
        fix.split(int(pore), places[rng.choice(len(places), min(3, len(places)), replace=False)])
    elif kind == "cut":
        pore = int(rng.choice(pores))
        middle = np.argwhere(labels == pore).mean(axis=0)
        across = rng.normal(size=middle.size)
        fix.cut(pore, [middle, middle + across], int(rng.integers(3)) if middle.size == 3 else 0)
    elif kind == "delete":
        fix.delete(rng.choice(pores, min(2, pores.size), replace=False))
    else:
        centre = rng.uniform(0, labels.shape)
        ball = sum((g - c) ** 2 for g, c in zip(np.indices(labels.shape), centre, strict=True))
        mask = ball <= rng.uniform(1, 5) ** 2
        if kind == "erase":
            fix.erase(mask)
        else:
            fix.paint(mask, None if rng.random() < 0.3 else int(rng.choice(pores)))


CASES = {
    "3d": (foam((16, 36, 36)), {}),
    "2d": (foam((60, 64), 1, 30), {}),
    "excluded void": (foam((16, 36, 36), 2, 24), {"minimum_voxels": 60}),
    "edge pores excluded": (foam((22, 44, 44), 6, 60), {"edge_pores": "remove"}),
    "faces, solid border": (
        foam((16, 36, 36), 3),
        {"connectivity": "faces", "border_is_solid": True},
    ),
    "air": (core(4), {"exterior": "remove", "ball_radius": 6}),
    "open pores": (foam((16, 36, 36), 5), {"pore_type": "open"}),
}


@pytest.mark.parametrize("name", CASES)
def test_random_corrections_equal_measuring_from_scratch(name: str) -> None:
    volume, settings = CASES[name]
    given = segment_pores(volume, **settings)
    before = given.labels.copy()
    fix, rng, made = Corrections(given), np.random.default_rng(7), 0
    for _ in range(30):
        try:
            random_correction(fix, rng)
        except InputError:
            continue
        made += 1
        if settings.get("pore_type") != "open":
            assert_from_scratch(given, fix)
        if len(fix.result.pores) < 4:
            break
    assert made > 8
    last = fix.result
    while fix.next_undo:
        fix.undo()
        if fix.next_undo and settings.get("pore_type") != "open":
            assert_from_scratch(given, fix)
    assert fix.result is given
    np.testing.assert_array_equal(given.labels, before)
    np.testing.assert_array_equal(np.maximum(fix._regions.values, 0).reshape(before.shape), before)
    while fix.next_redo:
        fix.redo()
    again = correct(given, last.corrections)
    for found in (fix.result, again):
        np.testing.assert_array_equal(found.labels, last.labels)
        pd.testing.assert_frame_equal(found.pores, last.pores, check_exact=True)
        pd.testing.assert_frame_equal(found.throats, last.throats, check_exact=True)
        assert found.provenance == last.provenance


def test_corrected_pores_are_measured_as_given_labels_are() -> None:
    volume = CASES["3d"][0]
    given = segment_pores(volume)
    fix, rng = Corrections(given), np.random.default_rng(3)
    for _ in range(8):
        with contextlib.suppress(InputError):
            random_correction(fix, rng)
    labels = Volume(fix.result.labels, volume.spacing, volume.unit)
    for found in (fix.result, _corrected_labels(given, fix)):
        truth = measure_labels(labels, values="labels", image=volume)
        ours = found.pores.drop(columns=["label"])
        names = found.pores["label"].to_numpy()
        pd.testing.assert_frame_equal(ours, truth.pores[list(ours)], check_exact=True)
        ends = found.throats[["pore_1", "pore_2"]].to_numpy()
        theirs = truth.throats[["pore_1", "pore_2"]].to_numpy()
        np.testing.assert_array_equal(ends, names[theirs - 1])
        for total in ("porosity", "count", "open_porosity", "closed_porosity", "euler_number"):
            assert found.provenance["result"][total] == truth.provenance["result"][total]


def _corrected_labels(given: Pores, fix: Corrections) -> Pores:
    """Make the corrections of a segmentation on its labels, measured as given ones."""
    volume = given.volume
    labels = Volume(given.labels, volume.spacing, volume.unit)
    return correct(measure_labels(labels, values="labels", image=volume), fix.operations)


def test_merging_a_closed_pore_counts_its_closed_voxels() -> None:
    void = np.zeros((9, 9, 30), bool)
    void[2:7, 2:7, :9] = void[2:7, 2:7, 12:19] = void[2:7, 2:7, 21:26] = True
    given = segment_pores(Volume(void))
    assert given.pores["closed_voxels"].tolist() == [0, 175, 125]
    fix = Corrections(given)
    fix.merge([1, 2])
    assert_from_scratch(given, fix)
    fix.merge([1, 3])
    assert fix.result.pores["closed_voxels"].tolist() == [300]
    fix.undo()
    assert_from_scratch(given, fix)


def test_a_stored_corrected_result_is_restored_and_corrected_further() -> None:
    fix = Corrections(segment_pores(CASES["3d"][0]))
    pores = fix.result.pores["label"].tolist()
    fix.merge(pores[:2])
    fix.delete(pores[3:4])
    result = fix.result
    assert result.pores["label"].tolist() != list(range(1, len(result.pores) + 1))
    tables = {"pores": result.pores, "throats": result.throats}
    again = restored(result.labels_volume, result.merging_arrays, result.provenance, tables)
    pd.testing.assert_frame_equal(again.pores, result.pores, check_exact=True)
    pd.testing.assert_frame_equal(again.throats, result.throats, check_exact=True)
    without = Corrections(again)
    without.merge(again.pores["label"].tolist()[:2])
    further = Corrections(again, CASES["3d"][0])
    further.merge(again.pores["label"].tolist()[:2])
    assert [each.kind for each in further.result.corrections] == ["merge", "delete", "merge"]
    fix.merge(result.pores["label"].tolist()[:2])
    pd.testing.assert_frame_equal(further.result.pores, fix.result.pores, check_exact=True)
    grey = ["mean_grey", "grey_deviation"]
    is_unknown = without.result.pores.set_index("label")[grey].isna().all(axis=1)
    merged = set(without.result.pores["label"]) & set(again.pores["label"][:2])
    assert set(is_unknown.index[is_unknown]) == merged
    kept = without.result.pores.drop(columns=grey)
    pd.testing.assert_frame_equal(kept, fix.result.pores.drop(columns=grey), check_exact=True)
    wide = again.resized((4.0, 2.0, 2.0), "um")
    assert wide.pores["label"].tolist() == result.pores["label"].tolist()
    with pytest.raises(InputError, match="corrected by hand"):
        again.remerge(1.0)


def test_labels_and_colours_of_other_pores_stay() -> None:
    given = segment_pores(CASES["3d"][0])
    fix = Corrections(given)
    sizes = given.pores.set_index("label")["num_voxels"]
    fix.merge([1, 2])
    keeps = sizes.loc[[1, 2]].idxmax()
    same = given.labels > 2
    np.testing.assert_array_equal(fix.result.labels[same], given.labels[same])
    assert set(np.unique(fix.result.labels[(given.labels == 1) | (given.labels == 2)])) == {keeps}


def test_a_dumbbell_is_split_at_its_neck() -> None:
    grid = np.indices((17, 17, 40))
    void = sum((g - c) ** 2 for g, c in zip(grid, (8, 8, 10), strict=True)) <= 49
    void |= sum((g - c) ** 2 for g, c in zip(grid, (8, 8, 26), strict=True)) <= 81
    void[6:11, 6:11, 10:26] = True
    given = segment_pores(Volume(void), merge_height=50)
    assert len(given.pores) == 1
    fix = Corrections(given)
    # both points lie in the wide ball and the narrow one, far from the neck
    fix.split(1, [(8, 8, 6), (8, 8, 30)])
    found = fix.result.labels
    necks = np.flatnonzero(
        [np.unique(part[part > 0]).size > 1 for part in found.transpose(2, 0, 1)]
    )
    assert found[8, 8, 6] == 2
    assert found[8, 8, 30] == 1
    assert found[8, 8, 10] == 2
    assert found[8, 8, 24] == 1
    assert not necks.size or (necks.min() >= 14 and necks.max() <= 20)


def test_a_tube_is_split_halfway_and_cut_along_a_line() -> None:
    void = np.zeros((9, 9, 41), bool)
    void[2:7, 2:7, 3:38] = True
    given = segment_pores(Volume(void), merge_height=50)
    fix = Corrections(given)
    fix.split(1, [(4, 4, 10), (4, 4, 30)])
    sizes = sorted(fix.result.pores["num_voxels"])
    assert abs(sizes[0] - sizes[1]) <= 2 * 25
    fix.undo()
    fix.cut(1, [(4, 0, 20), (4, 8, 20)])
    assert sorted(fix.result.pores["num_voxels"]) == [25 * 17, 25 * 18]
    fix.undo()
    fix.cut(1, [(0, 0, 20), (8, 0, 20)], axis=1)
    assert sorted(fix.result.pores["num_voxels"]) == [25 * 17, 25 * 18]


def test_a_wall_of_one_voxel_is_filled() -> None:
    void = np.zeros((9, 9, 30), bool)
    void[2:7, 2:7, 2:9] = void[2:7, 2:7, 10:17] = void[2:7, 2:7, 19:26] = True
    given = segment_pores(Volume(void))
    assert len(given.pores) == 3
    fix = Corrections(given)
    fix.merge_walls([1, 2, 3])
    assert sorted(fix.result.pores["num_voxels"]) == [175, 375]
    assert_from_scratch(given, fix)
    with pytest.raises(InputError, match="No wall of one voxel"):
        fix.merge_walls(fix.result.pores["label"])


def test_edited_labels_are_taken_over_in_one_step() -> None:
    given = segment_pores(CASES["3d"][0])
    edited = given.labels.copy()
    edited[given.labels == 2] = 0
    edited[5:9, 10:14, 10:14] = 77
    edited[9:11, 10:14, 10:14] = 1
    fix = Corrections(given)
    fix.paint_labels(edited)
    np.testing.assert_array_equal(fix.result.labels, edited)
    assert 77 in fix.result.pores["label"].to_numpy()
    assert_from_scratch(given, fix)
    fix.undo()
    assert fix.result is given
    with pytest.raises(InputError, match="Nothing to change"):
        fix.paint_labels(given.labels)


def test_painting_a_bridge_opens_a_closed_pore() -> None:
    void = np.zeros((11, 11, 11), bool)
    void[3:8, 3:8, 3:8] = True
    fix = Corrections(segment_pores(Volume(void)))
    assert not fix.result.pores["is_open"].any()
    bridge = np.zeros(void.shape, bool)
    bridge[5, 5, :3] = True
    fix.paint(bridge, 1)
    assert fix.result.pores["is_open"].all()
    totals = fix.result.provenance["result"]
    assert (totals["closed_porosity"], totals["open_porosity"]) == (0, 128 / 11**3)


def test_the_exterior_is_not_painted_and_needs_the_scan() -> None:
    volume, settings = CASES["air"]
    given = segment_pores(volume, **settings)
    fix = Corrections(given)
    everything = np.ones(volume.shape, bool)
    fix.paint(everything)
    sample = given.provenance["result"]["sample_voxels"]
    assert fix.result.pores["num_voxels"].tolist() == [sample]
    stored = restored(given.labels_volume, given.merging_arrays, given.provenance)
    with pytest.raises(InputError, match="needs the scan"):
        Corrections(stored)
    with_scan = Corrections(stored, volume)
    with_scan.paint(everything)
    pd.testing.assert_frame_equal(with_scan.result.pores, fix.result.pores, check_exact=True)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda fix: fix.merge([1]), "two pores or more"),
        (lambda fix: fix.merge([1, 9999]), "no pore 9999"),
        (lambda fix: fix.delete([9999]), "no pore 9999"),
        (lambda fix: fix.split(1, [(0, 0, 0), (1, 1, 1)]), "not in pore 1"),
        (lambda fix: fix.split(1, [(0, 0, 0)]), "at least two points"),
        (lambda fix: fix.cut(1, [(0, 0, 0), (0, 0, 0)]), "longer line"),
        (lambda fix: fix.cut(1, [(-900, 0, 0), (-900, 0, 9)]), "whole"),
        (lambda fix: fix.paint([(99, 0, 0)]), "outside the volume"),
        (lambda fix: fix.paint(np.zeros((2, 2), bool)), "boolean mask"),
        (lambda fix: fix.erase(np.zeros((16, 36, 36), bool)), "Nothing to change"),
        (lambda fix: fix.paint_labels(np.zeros((2, 2), int)), "of shape"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(call: Any, says: str) -> None:
    given = segment_pores(CASES["3d"][0])
    fix = Corrections(given)
    with pytest.raises(InputError, match=says):
        call(fix)
    assert fix.result is given
    assert not fix.next_undo


def test_moved_sums_are_those_of_moved_voxels() -> None:
    places = np.random.default_rng(0).integers(0, 50, (40, 3))
    offset = np.array([3, 70, 11])

    def sums(places: np.ndarray) -> np.ndarray:
        return np.array(
            [
                [
                    (places[:, 0] ** s.z * places[:, 1] ** s.y * places[:, 2] ** s.x).sum()
                    for s in SUMS
                ]
            ]
        )

    np.testing.assert_array_equal(moved(sums(places), offset), sums(places + offset))


def test_operations_survive_their_record() -> None:
    fix = Corrections(segment_pores(CASES["2d"][0]))
    fix.paint([(3, 4), (3, 5), (9, 9)])
    fix.erase(ndimage.binary_dilation(fix.result.labels == 2))
    for each in fix.operations:
        assert Operation.of_dict(each.to_dict()) == each
    with pytest.raises(InputError, match="unknown correction"):
        Operation.of_dict({"kind": "melt"})
    with pytest.raises(InputError, match="damaged"):
        Operation.of_dict({"pores": [1]})


def test_gaps_between_labels_do_not_change_flow_and_throats() -> None:
    volume = foam((24, 36, 36), 3, 60)
    fix = Corrections(segment_pores(volume, merge_height=0.1))
    fix.delete(fix.result.pores["label"].tolist()[:2])
    found = fix.result
    assert found.pores["label"].tolist()[0] == 3
    pores, throats = found._pore_columns, found._throat_columns
    assert len(found.throats) > 3
    names = pores["label"]
    even = {**pores, "label": np.arange(1, names.size + 1)}
    ends = {end: np.searchsorted(names, throats[end]) + 1 for end in ("pore_1", "pore_2")}
    one = Network.of(pores, throats, volume)
    other = Network.of(even, {**throats, **ends}, volume)
    np.testing.assert_array_equal(one.ends, other.ends)
    known = found.provenance["result"]
    gapped = Findings(known, pores, throats, volume, found.settings, found.basins)
    whole = Findings(known, even, {**throats, **ends}, volume, found.settings, found.basins)
    assert pore_throat_ratio(gapped) == pore_throat_ratio(whole)
