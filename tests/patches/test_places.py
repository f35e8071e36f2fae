from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage, stats

from hushpore import InputError
from hushpore.patches.places import Places, corners_at, grid_corners, window_sums


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


AXES = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), min_size=1, max_size=4)


def fits(corners: torch.Tensor, shape: list[int], size: list[int]) -> bool:
    return bool(
        (corners >= 0).all() and (corners + torch.tensor(size) <= torch.tensor(shape)).all()
    )


@given(AXES, st.data())
@settings(max_examples=60, deadline=None)
def test_a_grid_covers_every_voxel_and_leaves_none_outside(axes, data) -> None:
    size = [edge for edge, _ in axes]
    shape = [edge + room for edge, room in axes]
    overlap = [data.draw(st.integers(0, max(edge - 1, 0))) for edge in size]
    corners = grid_corners(shape, size, overlap)
    assert fits(corners, shape, size)
    covered = np.zeros(shape, bool)
    for corner in corners.tolist():
        covered[tuple(slice(c, c + n) for c, n in zip(corner, size, strict=True))] = True
    assert covered.all()
    assert len(torch.unique(corners, dim=0)) == len(corners)


def test_neighbours_on_a_grid_share_what_is_asked_for() -> None:
    assert grid_corners((20,), (8,), 2)[:, 0].tolist() == [0, 6, 12]
    assert grid_corners((21,), (8,), 2)[:, 0].tolist() == [0, 6, 12, 13]
    assert grid_corners((3, 8), (1, 8), 4).tolist() == [[0, 0], [1, 0], [2, 0]]


@pytest.mark.parametrize("overlap", [8, -1])
def test_an_overlap_of_a_whole_patch_is_refused(overlap: int) -> None:
    with pytest.raises(InputError, match="overlap must be from 0 to 7 voxels"):
        grid_corners((20, 20), (8, 8), overlap)


@given(AXES, st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_no_patch_at_a_point_lies_outside(axes, seed: int) -> None:
    size = [edge for edge, _ in axes]
    shape = [edge + room for edge, room in axes]
    points = np.random.default_rng(seed).uniform(-30, 60, (40, len(axes)))
    corners, moved = corners_at(torch.from_numpy(points), shape, size)
    assert fits(corners, shape, size)
    assert 0 <= moved <= 40


@pytest.mark.parametrize(("edge", "corner"), [(4, 8), (5, 8), (1, 10)])
def test_a_patch_lies_about_its_point(edge: int, corner: int) -> None:
    corners, moved = corners_at(torch.tensor([[10.0], [10.3]]), (30,), (edge,))
    assert corners[0, 0] == corner
    assert moved == 0


def test_patches_at_the_border_are_moved_and_counted() -> None:
    points = torch.tensor([[0.0, 15.0], [15.0, 1e30], [15.0, 15.0]])
    corners, moved = corners_at(points, (30, 30), (8, 8))
    assert moved == 2
    assert corners[1].tolist() == [11, 22]


@given(AXES, st.integers(0, 2**31), st.booleans())
@settings(max_examples=60, deadline=None)
def test_sums_of_windows_are_those_of_a_plain_loop(axes, seed: int, whole: bool) -> None:
    size = [edge for edge, _ in axes]
    shape = [min(edge + room, 14) if len(axes) > 3 else edge + room for edge, room in axes]
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2, shape).astype(bool) if whole else rng.random(shape)
    sums = window_sums(torch.from_numpy(values), size).numpy()
    places = [range(length - edge + 1) for length, edge in zip(shape, size, strict=True)]
    for corner in itertools.islice(itertools.product(*places), 30):
        window = values[tuple(slice(c, c + n) for c, n in zip(corner, size, strict=True))]
        assert sums[corner] == (window.sum() if whole else pytest.approx(window.sum(), abs=1e-9))


@given(AXES, st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_no_weighted_patch_lies_outside(axes, seed: int) -> None:
    size = [edge for edge, _ in axes]
    shape = [edge + room for edge, room in axes]
    weights = torch.from_numpy(np.random.default_rng(seed).random(shape)) + 0.01
    assert fits(Places.from_weights(weights, size).draw(100, generator(seed)), shape, size)


def test_patches_are_drawn_in_proportion_to_the_weight_inside(rng: np.random.Generator) -> None:
    weights = rng.random((9, 11)) * (rng.random((9, 11)) < 0.3)
    places = Places.from_weights(torch.from_numpy(weights), (3, 4))
    corners = places.draw(20_000, generator(1)).numpy()
    # SciPy's own sums, whose windows are centred
    expected = ndimage.uniform_filter(weights, (3, 4), mode="constant")[1:8, 2:10] * 12
    counts = np.zeros((7, 8))
    np.add.at(counts, tuple(corners.T), 1)
    assert not counts[expected < 1e-9].any()
    likely = expected > 1e-9
    frequencies = expected[likely] / expected[likely].sum() * 20_000
    assert stats.chisquare(counts[likely], frequencies).pvalue > 0.01


def test_a_patch_without_weight_is_never_drawn() -> None:
    weights = torch.zeros(50, 50, dtype=torch.bool)
    weights[40, 10] = True
    corners = Places.from_weights(weights, (5, 5)).draw(500, generator())
    assert ((corners <= torch.tensor([40, 10])) & (corners > torch.tensor([35, 5]))).all()
    assert len(torch.unique(corners, dim=0)) == 25


def test_a_patch_that_holds_a_forbidden_voxel_is_never_drawn() -> None:
    forbidden = torch.zeros(20, 20, dtype=torch.bool)
    forbidden[:, 12] = True
    places = Places.from_weights(torch.ones(20, 20, dtype=torch.bool), (4, 4), forbidden)
    x = places.draw(1000, generator())[:, 1]
    assert set(x.tolist()) == {*range(9), *range(13, 17)}


def test_given_places_are_drawn_equally_often() -> None:
    corners = torch.tensor([[0, 3], [2, 1], [5, 5]])
    drawn = Places.from_corners(corners, (9, 9)).draw(3000, generator())
    counts = [int((drawn == corner).all(1).sum()) for corner in corners]
    assert sum(counts) == 3000
    assert stats.chisquare(counts).pvalue > 0.01


def test_a_seed_gives_the_same_places() -> None:
    places = Places.from_weights(torch.ones(40, 40), (4, 4))
    assert torch.equal(places.draw(30, generator(5)), places.draw(30, generator(5)))
    assert not torch.equal(places.draw(30, generator(5)), places.draw(30, generator(6)))


def test_a_draw_reads_no_value_on_the_host() -> None:
    # every value of a tensor on this device is unknown: to read one is an error
    places = Places.from_weights(torch.ones(40, 40), (4, 4)).to("meta")
    assert places.draw(16).shape == (16, 2)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.zeros(9, 9), "No patch of 3 x 3 voxels"),
        (-torch.ones(9, 9), "must not be negative; got -1"),
        (torch.full((9, 9), torch.nan), "must be finite; got NaN"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(weights: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Places.from_weights(weights, (3, 3))
