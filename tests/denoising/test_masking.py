from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hushpore.denoising.pairs import (
    WINDOW,
    Line,
    Replacement,
    draw_positions,
    mask_pixels,
    replacement_values,
    values_at,
)

MEDIAN = Replacement()


def neighbours_written_plainly(
    patch: np.ndarray, position: tuple[int, ...], window: int = WINDOW
) -> list[float]:
    """Return the window around a pixel without the pixel, cropped at the border."""
    reach = range(-(window // 2), window // 2 + 1)
    values = []
    for offset in itertools.product(reach, repeat=patch.ndim):
        where = tuple(p + o for p, o in zip(position, offset, strict=True))
        inside = all(0 <= w < n for w, n in zip(where, patch.shape, strict=True))
        if inside and any(offset):
            values.append(float(patch[where]))
    return values


@given(st.sampled_from([(3, 8), (9, 9), (4, 6, 7), (2, 2)]), st.integers(0, 2**31))
@settings(max_examples=10, deadline=None)
def test_replacement_equals_the_plain_reference_up_to_the_border(
    size: tuple[int, ...], seed: int
) -> None:
    patches = np.random.default_rng(seed).normal(size=(2, *size)).astype(np.float32)
    everywhere = np.stack(np.unravel_index(np.arange(np.prod(size)), size), -1)
    positions = torch.from_numpy(np.stack([everywhere, everywhere]))
    for kind, window in (("median", 5), ("mean", 5), ("median", 3), ("mean", 7)):
        how = Replacement(kind, window)
        for patch, found in zip(
            patches, replacement_values(torch.from_numpy(patches), positions, how), strict=True
        ):
            around = [neighbours_written_plainly(patch, tuple(p), window) for p in everywhere]
            expected = [getattr(np, kind)(values) for values in around]
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@given(st.sampled_from([(8, 8), (16, 12), (4, 8, 8)]), st.data())
@settings(max_examples=30, deadline=None)
def test_a_pixel_never_sees_itself(size: tuple[int, ...], data: st.DataObject) -> None:
    position = tuple(data.draw(st.integers(0, edge - 1)) for edge in size)
    patch = torch.rand(1, *size, generator=torch.Generator().manual_seed(1))
    where = torch.tensor([[position]])
    for kind in ("median", "mean", "uniform"):
        before, after = (
            replacement_values(seen, where, Replacement(kind), torch.Generator().manual_seed(2))
            for seen in (
                patch,
                patch.index_put((torch.tensor(0), *map(torch.tensor, position)), torch.tensor(1e6)),
            )
        )
        assert torch.equal(before, after)


def test_a_uniform_replacement_is_any_of_the_neighbours_equally_often() -> None:
    patch = torch.arange(9.0).reshape(1, 3, 3).repeat(8000, 1, 1)
    where = torch.tensor([1, 1]).expand(8000, 1, 2)
    found = replacement_values(
        patch, where, Replacement("uniform"), torch.Generator().manual_seed(0)
    )
    values, counts = np.unique(found.numpy(), return_counts=True)
    assert values.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert stats.chisquare(counts).pvalue > 0.01


@pytest.mark.parametrize(
    ("size", "share", "cells"),
    [
        ((64, 64), 0.03, 121),
        ((16, 64, 64), 0.03, 2000),
        ((64, 64), 0.00198, 9),
        ((16, 16), 0.2, 49),
    ],
)
def test_the_number_of_hidden_pixels_is_fixed_and_close_to_the_share(
    size: tuple[int, ...], share: float, cells: int
) -> None:
    positions = draw_positions(size, share, 5, torch.Generator().manual_seed(0))
    assert positions.shape == (5, cells, len(size))
    assert cells / np.prod(size) == pytest.approx(share, rel=0.15)


def test_each_cell_of_the_grid_holds_one_pixel_and_all_pixels_are_drawn() -> None:
    positions = draw_positions((15, 15), 1 / 25, 6000, torch.Generator().manual_seed(0))
    assert torch.equal(positions // 5, (positions // 5)[:1].expand_as(positions))
    counts = np.zeros((15, 15))
    np.add.at(counts, tuple(positions.reshape(-1, 2).numpy().T), 1)
    assert stats.chisquare(counts.ravel()).pvalue > 0.01


@given(st.integers(4, 130), st.integers(4, 130), st.floats(0.0005, 0.2))
@settings(max_examples=100, deadline=None)
def test_hidden_pixels_lie_in_the_patch(height: int, width: int, share: float) -> None:
    positions = draw_positions((height, width), share, 20, torch.Generator().manual_seed(1))
    assert (positions >= 0).all()
    assert (positions < torch.tensor([height, width])).all()


def test_hiding_changes_the_chosen_pixels_and_no_others() -> None:
    draw = torch.Generator().manual_seed(0)
    patches = torch.rand(3, 32, 32, generator=draw)
    positions = draw_positions((32, 32), 0.03, 3, draw)
    hidden = mask_pixels(patches, positions)
    assert torch.equal(values_at(hidden, positions), replacement_values(patches, positions, MEDIAN))
    changed = hidden != patches
    assert changed.sum() == positions.shape[0] * positions.shape[1]


def test_the_number_of_operations_does_not_grow_with_the_number_of_pixels(strict: Any) -> None:
    counts = set()
    for batch, edge in ((1, 16), (8, 64)):
        patches = torch.rand(batch, edge, edge)
        mask_pixels(
            patches, draw_positions((edge, edge), 0.03, batch)
        )  # constants are made but once
        with strict.Operations() as count:
            mask_pixels(patches, draw_positions((edge, edge), 0.03, batch))
        counts.add(count.of.total())
    assert len(counts) == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_along_a_line_the_pixels_beside_a_hidden_one_are_hidden_too(axis: int) -> None:
    patches = torch.rand(1, 20, 20, generator=torch.Generator().manual_seed(0))
    hidden = mask_pixels(patches, torch.tensor([[[10, 2]]]), Replacement(line=Line(axis, 4)))
    changed = (hidden != patches)[0].nonzero().tolist()
    along = range(6, 15) if axis == 0 else range(7)
    assert changed == [[k, 2] if axis == 0 else [10, k] for k in along]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_nothing_of_the_line_is_seen_through_its_replacements(axis: int) -> None:
    size = (8, 9, 10)
    patches = torch.rand(1, *size, generator=torch.Generator().manual_seed(0))
    where = [4, 4, 5]
    how = Replacement(line=Line(axis, 3))
    before = mask_pixels(patches, torch.tensor([[where]]), how)
    line: list[object] = list(where)
    line[axis] = slice(where[axis] - 3, where[axis] + 4)
    patches[0][tuple(line)] += 100
    after = mask_pixels(patches, torch.tensor([[where]]), how)
    assert torch.equal(before[0][tuple(line)], after[0][tuple(line)])
