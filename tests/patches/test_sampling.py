from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hushpore.patches.places import draw_corners, draw_orientations, draw_stratified, read_windows


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_every_patch_fits_into_the_image(axes: list[tuple[int, int]]) -> None:
    size = [edge for edge, _ in axes]
    shape = [edge + room for edge, room in axes]
    corners = draw_corners(shape, size, 200, generator())
    assert corners.shape == (200, len(axes))
    assert (corners >= 0).all()
    assert (corners + torch.tensor(size) <= torch.tensor(shape)).all()


def test_every_place_is_equally_likely() -> None:
    corners = draw_corners((7, 70), (1, 64), 7000, generator())
    counts = np.zeros((7, 7))
    np.add.at(counts, tuple(corners.numpy().T), 1)
    assert stats.chisquare(counts.ravel()).pvalue > 0.01


def test_a_seed_gives_the_same_corners_and_leaves_the_global_state_alone() -> None:
    before = torch.get_rng_state()
    first = draw_corners((90, 90), (9, 9), 50, generator(3))
    assert torch.equal(first, draw_corners((90, 90), (9, 9), 50, generator(3)))
    assert not torch.equal(first, draw_corners((90, 90), (9, 9), 50, generator(4)))
    assert torch.equal(before, torch.get_rng_state())


@given(st.integers(2, 3), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_windows_equal_slices_turned_by_numpy(n_spatial: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(6, 12, n_spatial + 1))
    size = (int(rng.integers(1, 6)),) * (n_spatial - 2) + (5, 5)
    image = rng.integers(-500, 500, shape).astype(np.int16)
    draw = generator(seed)
    corners = draw_corners(shape, (1, *size), 6, draw)
    turned = draw_orientations(6, n_spatial, draw)
    windows = read_windows(torch.from_numpy(image), corners, size, turned)
    for corner, orientation, window in zip(corners.tolist(), turned.tolist(), windows, strict=True):
        where = tuple(slice(c, c + n) for c, n in zip(corner, (1, *size), strict=True))
        expected = np.flip(image[where][0], np.flatnonzero(orientation[:-1]))
        if orientation[-1]:
            expected = expected.swapaxes(-1, -2)
        np.testing.assert_array_equal(window, expected)


def test_windows_read_as_they_lie_without_orientations() -> None:
    image = torch.arange(60).reshape(3, 4, 5)
    windows = read_windows(image, torch.tensor([[2, 1, 1]]), (3, 2))
    assert torch.equal(windows[0], image[2, 1:4, 1:3])


@pytest.mark.parametrize("n_spatial", [2, 3])
def test_all_orientations_are_drawn_equally_often(n_spatial: int) -> None:
    turned = draw_orientations(8000, n_spatial, generator()).long()
    codes = (turned * 2 ** torch.arange(n_spatial + 1)).sum(1)
    assert stats.chisquare(torch.bincount(codes, minlength=2 ** (n_spatial + 1))).pvalue > 0.01


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=4),
    st.integers(1, 300),
)
@settings(max_examples=50, deadline=None)
def test_every_stratified_patch_fits_into_the_image(
    axes: list[tuple[int, int]], count: int
) -> None:
    size = [edge for edge, _ in axes]
    shape = [edge + room for edge, room in axes]
    corners = draw_stratified(shape, size, count, generator())
    assert corners.shape == (count, len(axes))
    assert (corners >= 0).all()
    assert (corners + torch.tensor(size) <= torch.tensor(shape)).all()


def test_every_place_is_equally_likely_when_stratified() -> None:
    counts = np.zeros((7, 7))
    for seed in range(700):
        np.add.at(counts, tuple(draw_stratified((7, 70), (1, 64), 10, generator(seed)).T), 1)
    # strata make the counts more even than chance would, never less
    assert stats.chisquare(counts.ravel()).pvalue > 0.01


def test_stratified_patches_are_spread_more_evenly_than_random_ones() -> None:
    def counts(draw) -> np.ndarray:
        corners = draw((128, 128), (1, 1), 64, generator(2)).numpy() // 16
        found = np.zeros((8, 8), int)
        np.add.at(found, tuple(corners.T), 1)
        return found

    assert (counts(draw_stratified) == 1).all()
    assert counts(draw_corners).max() > 1


def test_more_stratified_patches_than_places_take_each_place_as_often() -> None:
    corners = draw_stratified((5, 6), (4, 4), 15, generator())
    _, counts = torch.unique(corners, dim=0, return_counts=True)
    assert sorted(counts.tolist()) == [2, 2, 2, 3, 3, 3]


def test_sampling_reads_no_value_on_the_host() -> None:
    # every value of a tensor on this device is unknown: to read one is an error
    for draw in (draw_corners, draw_stratified):
        assert draw((9, 80, 80), (1, 16, 16), 20, None, "meta").shape == (20, 3)
