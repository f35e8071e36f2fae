from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hushpore.pores.geometry.contacts import scan_rows
from hushpore.pores.geometry.sums import DIRECTIONS, SUMS, add_rows, order_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.watershed import graph as graph_module
from hushpore.pores.watershed.graph import Tables

if TYPE_CHECKING:
    from hushpore.pores.geometry.contacts import Piece

maps = hnp.arrays(
    np.int32, hnp.array_shapes(min_dims=3, max_dims=3, max_side=6), elements=st.integers(0, 4)
)


def consecutive(labels: np.ndarray) -> np.ndarray:
    present = np.unique(labels[labels > 0])
    return np.where(labels > 0, np.searchsorted(present, labels) + 1, 0).astype(np.int32)


def graph_of(
    labels: np.ndarray,
    height: np.ndarray,
    threads: KernelThreads,
    faces_only: bool = False,
    grey: np.ndarray | None = None,
):
    count = int(labels.max())
    peaks = np.array([np.flatnonzero(labels == i)[0] for i in range(1, count + 1)], np.int64)
    tables = Tables(labels.shape, peaks, faces_only=faces_only)
    tables.add(labels, height, threads, grey=grey)
    return tables.graph()


def plain_edges(labels: np.ndarray, height: np.ndarray, faces_only: bool) -> dict:
    edges: dict = {}
    shape = np.array(labels.shape)
    for place in np.argwhere(labels > 0):
        for k, step in enumerate(DIRECTIONS):
            other = place + step
            if (other < 0).any() or (other >= shape).any():
                continue
            pair = [tuple(place), tuple(other)]
            a, b = (int(labels[at]) for at in pair)
            if b in (0, a):
                continue
            contacts, ways = edges.setdefault((min(a, b), max(a, b)), (np.zeros(13, int), []))
            contacts[k] += 1
            if faces_only and k > 2:
                continue
            flat = [int(np.ravel_multi_index(at, labels.shape)) for at in pair]
            low = min(float(height[at]) for at in pair)
            at_low = flat[0] if height[pair[0]] == low else flat[1]
            ways.append((-low, at_low))
    return edges


@settings(max_examples=80, deadline=None)
@given(maps, st.integers(0, 2**32 - 1), st.booleans())
def test_edges_are_those_of_a_plain_search(
    threads: KernelThreads, labels: np.ndarray, seed: int, faces_only: bool
) -> None:
    labels = consecutive(labels)
    height = np.random.default_rng(seed).integers(1, 5, labels.shape).astype(np.float32)
    graph = graph_of(labels, height, threads, faces_only)
    expected = plain_edges(labels, height, faces_only)
    assert list(zip(graph.a.tolist(), graph.b.tolist(), strict=True)) == sorted(expected)
    for i, (_, (contacts, ways)) in enumerate(sorted(expected.items())):
        np.testing.assert_array_equal(graph.contacts[i], contacts)
        if not ways:
            assert graph.saddle[i] == -1
            continue
        low, at = min(ways)
        assert graph.saddle[i] == -low
        assert graph.saddle_at[i] == at


@settings(max_examples=80, deadline=None)
@given(maps)
def test_sums_bounds_and_ends_are_those_of_each_basin(
    threads: KernelThreads, labels: np.ndarray
) -> None:
    labels = consecutive(labels)
    grey = np.arange(labels.size, dtype=np.int32).reshape(labels.shape) % 7
    graph = graph_of(labels, np.ones(labels.shape, np.float32), threads, grey=grey)
    padded = np.pad(labels, 1)
    for basin in range(1, graph.count + 1):
        place = np.argwhere(labels == basin)
        values = np.column_stack([place, grey[labels == basin]])
        for i, each in enumerate(SUMS):
            assert graph.sums[basin, i] == (values**each.powers).prod(axis=1).sum()
        np.testing.assert_array_equal(graph.bounds[basin, :3], place.min(axis=0))
        np.testing.assert_array_equal(graph.bounds[basin, 3:], place.max(axis=0) + 1)
        for k, step in enumerate(DIRECTIONS):
            crossings = padded[tuple((place + 1 + step).T)] != basin
            assert graph.crossings[basin, k] == crossings.sum()


def test_a_thread_holds_the_tables_of_one_piece_and_the_graph_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = consecutive(np.random.default_rng(3).integers(0, 300, (12, 30, 20)))
    height = labels.astype(np.float32)
    with KernelThreads(2) as threads:
        expected = graph_of(labels, height, threads).arrays
    sums: list[weakref.ref[Any]] = []
    most = 0

    def noted(*arguments: Any) -> Piece:
        nonlocal most
        piece = scan_rows(*arguments)
        sums.append(weakref.ref(piece[1]))
        most = max(most, sum(each() is not None for each in sums))
        return piece

    monkeypatch.setattr(graph_module, "scan_rows", noted)
    monkeypatch.setattr(graph_module, "_AT_A_TIME", 200)
    with KernelThreads(2) as threads:
        found = graph_of(labels, height, threads).arrays
    # of ten rows each
    assert len(sums) == 36
    assert most <= 2
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize(("edge", "kind"), [(4, np.int8), (20, np.int16), (190, np.int32)])
def test_contacts_take_the_bits_that_they_need_in_all_pieces_together(
    monkeypatch: pytest.MonkeyPatch, edge: int, kind: type
) -> None:
    # two halves that touch in a plane, of which a piece has two rows
    labels = np.repeat(np.array([1, 2], np.int32), 2) * np.ones((edge, edge, 1), np.int32)
    monkeypatch.setattr(graph_module, "_AT_A_TIME", 8)
    with KernelThreads(2) as threads:
        graph = graph_of(labels, np.ones(labels.shape, np.float32), threads)
    assert graph.contacts.dtype == kind
    assert graph.contacts[0, 2] == edge**2
    assert graph.contacts[0, 5:7].tolist() == [edge * (edge - 1)] * 2
    assert graph.by_neck.tolist() == [0]
    found = np.full((2, 13), 5, np.int64)
    add_rows(graph.contacts, np.ones(1, np.int64), found)
    np.testing.assert_array_equal(found, [[5] * 13, 5 + graph.contacts[0].astype(np.int64)])


def test_a_crowd_of_basins_outgrows_the_first_table() -> None:
    labels = np.arange(1, 30 * 16 * 16 + 1, dtype=np.int32).reshape(30, 16, 16)
    with KernelThreads(1) as one:
        graph = graph_of(labels, np.ones(labels.shape, np.float32), one)
    with KernelThreads(3) as three:
        same = graph_of(labels, np.ones(labels.shape, np.float32), three)
    # every voxel a basin of its own: each direction has one edge for each pair within the volume
    size = np.array(labels.shape)
    assert graph.a.size == sum(np.prod(size - np.abs(step)) for step in DIRECTIONS)
    assert (graph.contacts.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(graph.contacts, same.contacts)
    np.testing.assert_array_equal(graph.saddle_at, same.saddle_at)


@given(
    hnp.arrays(
        np.int64,
        st.integers(0, 40),
        elements=st.integers(-(2**62), 2**62) | st.integers(-3, 3) | st.just(1 << 40),
    )
)
def test_keys_are_sorted_and_equal_ones_stay_in_their_order(keys: np.ndarray) -> None:
    np.testing.assert_array_equal(order_of(keys), np.argsort(keys, kind="stable"))


def test_the_directions_are_half_of_the_26_neighbours() -> None:
    both = {tuple(step) for step in DIRECTIONS} | {tuple(-step) for step in DIRECTIONS}
    assert len(both) == 26
    assert (0, 0, 0) not in both
    z, y, x = DIRECTIONS.T
    assert ((z * 9 + y * 3 + x) > 0).all(), "later in memory"


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 4)])
def test_a_volume_without_void_has_an_empty_graph(shape: tuple[int, ...]) -> None:
    with KernelThreads(2) as threads:
        graph = graph_of(np.zeros(shape, np.int32), np.zeros(shape, np.float32), threads)
    assert graph.count == 0
    assert graph.a.size == 0
