"""Merging range by range decides as merging the whole at once, and what goes up is small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushpore.cluster.merging import Reduced, combine, contract, look_up
from hushpore.pores.watershed.graph import BasinGraph
from hushpore.pores.watershed.merging import merge_by_height

DEPTH = 24


class Stack:
    """Basins that lie in some slices each, and contacts between them in some of these."""

    def __init__(self, seed: int, count: int, reach: int, levels: int) -> None:
        rng = np.random.default_rng(seed)
        self.first = rng.integers(0, DEPTH, count)
        self.last = np.minimum(self.first + rng.integers(0, reach, count), DEPTH - 1)
        # few levels, so that there are ties
        self.peak_squared_distance = rng.integers(1, levels, count).astype(np.float32)
        self.home = rng.integers(self.first, self.last + 1)
        parts: list[tuple[int, int, int, float, int]] = []
        for a in range(count):
            for b in range(a + 1, count):
                if rng.random() < 0.5:
                    continue
                for z in range(DEPTH):
                    here = [self.first[i] <= z <= self.last[i] for i in (a, b)]
                    near = [self.first[i] <= z + 1 <= self.last[i] for i in (a, b)]
                    if (here[0] and (here[1] or near[1])) or (here[1] and near[0]):
                        way = rng.integers(
                            -1,
                            int(min(self.peak_squared_distance[a], self.peak_squared_distance[b]))
                            + 1,
                        )
                        parts.append((z, a, b, float(way), int(rng.integers(1, 3))))
        columns = np.array(parts or np.zeros((0, 5))).T
        self.at, self.a, self.b = columns[:3].astype(np.int64)
        self.saddle, self.contacts = columns[3].astype(np.float32), columns[4].astype(np.int64)
        self.is_near = rng.random((count, count)) < rng.choice([0, 0.1, 0.5])

    def whole(self) -> BasinGraph:
        """The graph as one machine has it."""
        pairs, which = np.unique(np.stack([self.a, self.b]), axis=1, return_inverse=True)
        saddle = np.full(pairs.shape[1], -1, np.float32)
        np.maximum.at(saddle, which, self.saddle)
        contacts = np.zeros((pairs.shape[1], 13), np.int32)
        np.add.at(contacts[:, 0], which, self.contacts)
        nothing: Any = None
        a, b = (pairs + 1).astype(np.int32)
        peak_squared_distance = np.concatenate([[0], self.peak_squared_distance]).astype(np.float32)
        others = [nothing] * 5
        return BasinGraph(nothing, peak_squared_distance, *others, a, b, saddle, nothing, contacts)

    def slab(self, first: int, last: int) -> Reduced:
        """What is known in some slices, and of contacts with the next one; basins from 1."""
        is_there = (self.first <= last) & (self.last >= first)
        basin = np.flatnonzero(is_there)
        own = (self.at >= first) & (self.at < last)
        pairs, which = np.unique(np.stack([self.a[own], self.b[own]]), axis=1, return_inverse=True)
        saddle = np.full(pairs.shape[1], -1, np.float32)
        np.maximum.at(saddle, which, self.saddle[own])
        saddle[self.is_near[*pairs] & (saddle >= 0)] = np.inf
        contacts = np.zeros(pairs.shape[1], np.int64)
        np.add.at(contacts, which, self.contacts[own])
        at_home = (self.home[basin] >= first) & (self.home[basin] < last)
        radius = np.where(at_home, np.sqrt(self.peak_squared_distance[basin].astype(np.float64)), 0)
        low = (first > 0) & (self.first[basin] <= first)
        high = (last < DEPTH) & (self.last[basin] >= last)
        is_face = np.zeros(self.peak_squared_distance.size, np.bool_)
        is_face[basin] = low | high
        partial = is_face[pairs[0]] & is_face[pairs[1]]
        a, b = pairs + 1
        return Reduced(
            basin + 1, basin + 1, radius, low, high, a, b, a, b, saddle, contacts, partial
        )


def merge_in_slabs(stack: Stack, thickness: int, h: float) -> np.ndarray:
    """Merge slab by slab, and up a tree; return what stands for each basin."""
    maps, found = [], []
    for first in range(0, DEPTH, thickness):
        whole = stack.slab(first, min(first + thickness, DEPTH))
        left, becomes = contract(whole, h)
        found.append(left)
        maps.append([(whole.group, becomes)])
    members = [[slab] for slab in range(len(found))]
    while len(found) > 1:
        pairs = [found[i : i + 2] for i in range(0, len(found), 2)]
        members = [
            [slab for each in members[i : i + 2] for slab in each]
            for i in range(0, len(members), 2)
        ]
        found = []
        for pair, slabs in zip(pairs, members, strict=True):
            whole = combine(*pair) if len(pair) == 2 else pair[0]
            left, becomes = contract(whole, h)
            found.append(left)
            for slab in slabs:
                maps[slab].append((whole.group, becomes))
    assert found[0].group.size == 0
    assert found[0].a.size == 0
    root = np.zeros(stack.peak_squared_distance.size + 1, np.int64)
    for each in maps:
        basins = each[0][0]
        stands = look_up(basins, each)
        assert (root[basins] == 0)[root[basins] != stands].all(), "slabs differ on a basin"
        root[basins] = stands
    return root


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 24),
    reach=st.sampled_from([1, 4, 12, DEPTH]),
    levels=st.sampled_from([3, 9, 60]),
    thickness=st.integers(2, DEPTH),
    h=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
)
@settings(max_examples=300, deadline=None)
def test_slabs_merge_as_the_whole(
    seed: int, count: int, reach: int, levels: int, thickness: int, h: float
) -> None:
    stack = Stack(seed, count, reach, levels)
    whole = stack.whole()
    expected = merge_by_height(whole, h, stack.is_near[whole.a - 1, whole.b - 1])
    np.testing.assert_array_equal(merge_in_slabs(stack, thickness, h), expected)


@pytest.mark.parametrize("h", [0.0, 0.5])
def test_what_reaches_no_face_stays(h: float) -> None:
    stack = Stack(1, 60, 3, 60)
    left, becomes = contract(stack.slab(8, 16), h)
    whole = stack.slab(8, 16)
    assert left.group.size < whole.group.size
    assert set(left.group) <= set(becomes)
    inner = ~(whole.low | whole.high)
    assert inner.any()
    # whatever is left at a face is there still
    assert set(whole.group[~inner]) <= set(left.group)
    assert left.nbytes < whole.nbytes


def test_numbers_that_are_in_no_map_stay() -> None:
    keys, values = np.array([2, 5]), np.array([7, 1])
    nothing = np.zeros(0, np.int64)
    found = look_up(np.array([0, 2, 3, 5, 9]), [(keys, values), (nothing, nothing)])
    np.testing.assert_array_equal(found, [0, 7, 3, 1, 9])
