"""Corrections by hand: each equals measuring all corrected labels from scratch."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from scipy import ndimage

from hushpore import Corrections, InputError, Volume, correct, measure_labels, segment_pores
from hushpore.pores.corrections.operations import Operation
from hushpore.pores.flow import Network
from hushpore.pores.forms.figures import pore_throat_ratio
from hushpore.pores.forms.findings import Findings
from hushpore.pores.result import restored

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


#: Totals of threshold, exterior and merging, which corrections do not change.
FROM_SCAN = {
    "threshold", "pores_are", "only_values", "threshold_groups", "exterior", "ball_radius",
    "padding_value", "air_kept_share", "merged_by", "merge_height", "minimum_voxels",
}  # fmt: skip


def assert_from_scratch(given: Pores, fix: Corrections) -> None:
    """Require that corrections are measured as `measure_labels` measures their labels.

    For results without excluded void or void of another type.
    """
    found, volume, settings = fix.result, given.volume, given.settings
    values, mask = found.labels, ""
    if fix._labels.exterior is not None:
        # void outside the sample mask is air
        values = np.where(fix._labels.exterior, values.max() + 1, values)
        mask = ~fix._labels.exterior
    labels = Volume(values, volume.spacing, volume.unit)
    truth = measure_labels(
        labels,
        values="labels",
        image=volume if volume.dtype != np.bool_ else "",
        connectivity=settings.connectivity,
        border_is_solid=settings.border_is_solid,
        sample_mask=mask,
    )
    names = found.pores["label"].to_numpy()
    ours = found.pores.drop(columns="label")
    pd.testing.assert_frame_equal(ours, truth.pores[list(ours)], check_exact=True)
    theirs = truth.throats.copy()
    for end in ("pore_1", "pore_2"):
        theirs[end] = names[theirs[end] - 1]
    pd.testing.assert_frame_equal(found.throats, theirs, check_exact=True)
    own, totals = found.provenance["result"], truth.provenance["result"]
    for name in (totals.keys() & own.keys()) - FROM_SCAN:
        assert own[name] == totals[name], name
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
    is_simple = not {"pore_type", "minimum_voxels", "edge_pores"} & set(settings)
    fix, rng, made = Corrections(given), np.random.default_rng(7), 0
    while made < 9 and len(fix.result.pores) >= 4:
        with contextlib.suppress(InputError):
            random_correction(fix, rng)
            made += 1
            if is_simple:
                assert_from_scratch(given, fix)
    assert made > 5
    last = fix.result
    while fix.next_undo:
        fix.undo()
    assert fix.result is given
    np.testing.assert_array_equal(np.maximum(fix._labels.values, 0).ravel(), given.labels.ravel())
    while fix.next_redo:
        fix.redo()
    again = correct(given, last.corrections)
    for found in (fix.result, again):
        np.testing.assert_array_equal(found.labels, last.labels)
        pd.testing.assert_frame_equal(found.pores, last.pores, check_exact=True)
        pd.testing.assert_frame_equal(found.throats, last.throats, check_exact=True)
        assert found.provenance == last.provenance


@pytest.mark.parametrize("name", CASES)
def test_painting_back_what_was_erased_gives_the_same_figures(name: str) -> None:
    volume, settings = CASES[name]
    given = segment_pores(volume, **settings)
    fix = Corrections(given)
    voxels = np.argwhere(given.labels == 2)
    fix.erase(voxels)
    assert fix.result.porosity < given.porosity
    fix.paint(voxels, 2)
    found = fix.result
    pd.testing.assert_frame_equal(found.pores, given.pores, check_exact=True)
    pd.testing.assert_frame_equal(found.throats, given.throats, check_exact=True)
    assert found.provenance["result"] == given.provenance["result"]


def test_labels_of_another_program_are_corrected_like_a_segmentation() -> None:
    volume = CASES["3d"][0]
    given = segment_pores(volume)
    fix, rng = Corrections(given), np.random.default_rng(3)
    for _ in range(8):
        with contextlib.suppress(InputError):
            random_correction(fix, rng)
    labels = Volume(given.labels, volume.spacing, volume.unit)
    measured = measure_labels(labels, values="labels", image=volume)
    found = correct(measured, fix.operations)
    pd.testing.assert_frame_equal(found.pores, fix.result.pores, check_exact=True)
    pd.testing.assert_frame_equal(found.throats, fix.result.throats, check_exact=True)


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
    pores, throats = found._columns
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
