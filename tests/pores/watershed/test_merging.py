from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from scipy.spatial.distance import cdist
from skimage.morphology import local_maxima

import hushpore
from hushpore import Volume
from hushpore.pores.watershed.graph import BasinGraph
from hushpore.pores.watershed.merging import (
    find_height,
    find_overlapping,
    height_of,
    merge_by_height,
    merge_to_markers,
)


def make_graph(radii: list[float], edges: list[tuple[int, int, float]]) -> BasinGraph:
    """Basins of given radii, and edges (a, b, radius of the neck)."""
    count = len(radii)
    edges = sorted((min(a, b), max(a, b), neck) for a, b, neck in edges)
    a, b, neck = (np.array([edge[i] for edge in edges]) for i in range(3))
    return BasinGraph(
        peak=np.arange(-1, count),
        peak_squared_distance=np.array([0, *radii], np.float32) ** 2,
        sums=np.ones((count + 1, 10), np.int64),
        crossings=np.ones((count + 1, 13), np.int64),
        bounds=np.zeros((count + 1, 6), np.int32),
        closed_voxels=np.zeros(count + 1, np.int64),
        border_crossings=np.zeros(13, np.int64),
        a=a.astype(np.int32),
        b=b.astype(np.int32),
        saddle=neck.astype(np.float32) ** 2,
        saddle_at=np.zeros(len(edges), np.int64),
        contacts=np.ones((len(edges), 13), np.int32),
    )


def test_the_lower_peak_joins_the_higher_one() -> None:
    graph = make_graph([5, 8], [(1, 2, 4)])
    assert merge_by_height(graph, 1.0).tolist() == [0, 2, 2]
    assert merge_by_height(graph, 0.99).tolist() == [0, 1, 2]


def test_equal_peaks_join_the_first() -> None:
    assert merge_by_height(make_graph([5, 5], [(1, 2, 5)]), 0).tolist() == [0, 1, 1]


def test_a_merged_pore_is_as_high_as_its_higher_peak() -> None:
    # 2 joins 1 first; what is left of 3 above the neck to them is 3, then, not 0.5
    graph = make_graph([9, 6, 7], [(1, 2, 5.5), (2, 3, 4)])
    assert merge_by_height(graph, 0.5).tolist() == [0, 1, 1, 3]
    assert merge_by_height(graph, 3.0).tolist() == [0, 1, 1, 1]


def test_near_peaks_are_one_whatever_the_height_and_before_all_others() -> None:
    # 3 stands out from 2 by 0.4, but from what 1 and 2 are together by 1.4
    graph = make_graph([9, 6, 7], [(1, 2, 3), (2, 3, 5.6)])
    assert merge_by_height(graph, 0.5).tolist() == [0, 1, 3, 3]
    near = np.array([True, False])
    assert merge_by_height(graph, 0.5, near).tolist() == [0, 1, 1, 3]
    assert merge_by_height(graph, 1.5, near).tolist() == [0, 1, 1, 1]


def test_peaks_are_near_only_where_there_is_a_way_between_them() -> None:
    graph = make_graph([5, 5], [(1, 2, 4)])
    graph.saddle[0] = -1
    assert merge_by_height(graph, 9, np.array([True])).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("shape", "spacing", "unit"),
    [
        ((5, 30, 40), (1, 1, 1), 1),
        ((5, 30, 40), (3, 1.5, 0.5), 0.5),
        ((30, 40), (0.1, 0.4), 0.1),
        ((1, 30, 40), (2, 2, 2), 2),
    ],
)
def test_peaks_are_near_that_lie_no_farther_from_each_other_than_from_the_solid(
    shape: tuple[int, ...], spacing: tuple[float, ...], unit: float
) -> None:
    rng = np.random.default_rng(3)
    count = 200
    place = np.stack([rng.integers(0, side, count) for side in shape], axis=1)
    radius = rng.uniform(0, 20, count).astype(np.float32)
    a, b = rng.integers(0, count, (2, 2000)).astype(np.int32)
    apart = np.linalg.norm((place[a] - place[b]) * np.array(spacing), axis=1) / unit
    flat = np.ravel_multi_index(tuple(place.T), shape)
    found = find_overlapping(flat, radius**2, a, b, shape, spacing)
    lowest = np.minimum(radius[a], radius[b])
    # but for what rounding decides
    sure = np.abs(apart - lowest) > 1e-4
    np.testing.assert_array_equal(found[sure], (apart <= lowest)[sure])
    assert 0 < np.count_nonzero(found) < found.size


def test_peaks_as_far_from_each_other_as_from_the_solid_are_near() -> None:
    pair = np.zeros(1, np.int64), np.ones(1, np.int64)
    peaks = np.array([0, 2 * 100 + 2 * 10 + 1])
    for squared, expected in ((9, True), (8.99, False)):
        distances = np.array([25, squared], np.float32)
        assert find_overlapping(peaks, distances, *pair, (9, 10, 10), (1, 1, 1)).tolist() == [
            expected
        ]


@st.composite
def graphs(draw: st.DrawFn) -> BasinGraph:
    radii = draw(st.lists(st.integers(4, 12).map(float), min_size=1, max_size=12))
    pairs = st.tuples(st.integers(1, len(radii)), st.integers(1, len(radii)))
    chosen = (
        draw(st.sets(pairs.filter(lambda pair: pair[0] < pair[1]), max_size=30))
        if (len(radii) > 1)
        else set()
    )
    edges = [(a, b, min(radii[a - 1], radii[b - 1]) - draw(st.integers(0, 3))) for a, b in chosen]
    return (
        make_graph(radii, edges)
        if edges
        else make_graph([*radii, 5, 5], [(len(radii) + 1, len(radii) + 2, 4)])
    )


@settings(max_examples=150, deadline=None)
@given(graphs(), st.floats(0, 4), st.floats(0, 4))
def test_a_greater_height_merges_more_and_undoes_nothing(
    graph: BasinGraph, h: float, more: float
) -> None:
    few, many = merge_by_height(graph, h), merge_by_height(graph, h + more)
    assert np.unique(many).size <= np.unique(few).size
    # basins of one pore stay together
    assert all(np.unique(many[few == pore]).size == 1 for pore in np.unique(few))


@settings(max_examples=150, deadline=None)
@given(graphs(), st.floats(0, 4))
def test_the_highest_peak_stands_for_its_pore(graph: BasinGraph, h: float) -> None:
    root = merge_by_height(graph, h)
    assert root[0] == 0
    for pore in np.unique(root[1:]):
        assert root[pore] == pore
        assert graph.peak_squared_distance[pore] == graph.peak_squared_distance[root == pore].max()


@pytest.mark.parametrize("h", [0.0, 1.0, 100.0])
def test_basins_that_do_not_touch_never_merge(h: float) -> None:
    graph = make_graph([5, 5, 7, 7], [(1, 2, 5), (3, 4, 7)])
    assert merge_by_height(graph, h).tolist() == [0, 1, 1, 3, 3]


@pytest.mark.parametrize(
    ("radii", "n_spatial", "typical", "h"),
    [
        ([4.5, 1], 3, 4.5, 0.1 + 0.4 * 5 / 7),
        # by volume one ball outweighs seven of half its radius, but not nine; by area not five
        ([4, *[2] * 7], 3, 4, 0.1 + 0.4 * 3 / 7),
        ([4, *[2] * 9], 3, 2, 0.1),
        ([4, *[2] * 5], 2, 2, 0.1),
        ([1, 1.5], 3, 1.5, 0.1),
        ([30, 40], 3, 40, 0.5),
    ],
)
def test_a_height_is_found_by_the_size_of_pores_that_open_into_each_other(
    radii: list[float], n_spatial: int, typical: float, h: float
) -> None:
    row = [(i, i + 1, 0.5) for i in range(1, len(radii))]
    found = height_of(make_graph(radii, row), "auto", n_spatial)
    assert (found.radius, found.merge_height) == (pytest.approx(typical), pytest.approx(h))
    assert f"typical pore radius {typical:.3g} voxels" in found.reason
    assert height_of(make_graph(radii, []), 0.7, n_spatial).to_dict() == {"merge_height": 0.7}


@pytest.mark.parametrize(
    ("edges", "n_spatial", "apart", "h"),
    [
        ([], 3, 1, 0.5),
        # of balls of 1 and 2 times the radius; half of them have all
        ([(1, 3, 1)], 3, 1 / 10, 0.1 + 0.4 * 2 / 10),
        ([(1, 3, 1)], 2, 1 / 6, 0.1 + 0.4 * 2 / 6),
        ([(1, 2, 1)], 3, 8 / 10, 0.5),
    ],
)
def test_the_more_pores_lie_apart_the_more_merge(
    edges: list[tuple[int, int, float]], n_spatial: int, apart: float, h: float
) -> None:
    found = height_of(make_graph([1, 1, 2], edges), "auto", n_spatial)
    assert (found.isolated, found.merge_height) == (pytest.approx(apart), pytest.approx(h))
    assert found.to_dict()["isolated_share"] == found.isolated
    assert f"{100 * found.isolated:.0f} % of the pore volume is isolated" in found.reason


def test_pores_lie_apart_where_they_touch_over_edges_of_voxels_and_only_faces_are_ways() -> None:
    graph = make_graph([1, 1, 2], [(1, 3, 1), (2, 3, 1)])
    graph.saddle[1] = -1
    assert height_of(graph, "auto", 3).isolated == pytest.approx(1 / 10)


def test_a_height_is_found_without_pores_and_without_solid() -> None:
    none, one = np.zeros(0, np.int64), np.ones(1, np.int64)
    nothing = find_height("auto", np.zeros(0, np.float32), none, none, 3)
    everything = find_height("auto", np.array([np.inf], np.float32), one, one, 3)
    assert nothing.merge_height == everything.merge_height == 0.5


def test_an_unmarked_basin_joins_over_its_widest_neck() -> None:
    graph = make_graph([9, 5, 9], [(1, 2, 3), (2, 3, 4)])
    assert merge_to_markers(graph, np.array([0, 1, 0, 2])).tolist() == [0, 1, 2, 2]


def test_what_no_marker_reaches_belongs_to_none() -> None:
    graph = make_graph([5, 5, 7, 7], [(1, 2, 5), (3, 4, 7)])
    assert merge_to_markers(graph, np.array([0, 0, 3, 0, 0])).tolist() == [0, 3, 3, 0, 0]


@settings(max_examples=150, deadline=None)
@given(graphs(), st.data())
def test_marked_basins_keep_their_markers(graph: BasinGraph, data: st.DataObject) -> None:
    marked = np.zeros(graph.count + 1, np.int32)
    for number in range(1, data.draw(st.integers(0, 4)) + 1):
        marked[data.draw(st.integers(1, graph.count))] = number
    merged = merge_to_markers(graph, marked)
    np.testing.assert_array_equal(merged[marked > 0], marked[marked > 0])
    assert set(merged) <= {0, *marked}


def blobs(shape: tuple[int, ...], sigma: float, porosity: float, seed: int) -> np.ndarray:
    noise = ndimage.gaussian_filter(np.random.default_rng(seed).random(shape), sigma)
    return noise < np.quantile(noise, porosity)


def snow_peaks(void: np.ndarray) -> int:
    """Count the peaks by the steps of the paper, each over all voxels (Gostick, 2017)."""
    distance = ndimage.distance_transform_edt(void).astype(np.float32)
    smooth = ndimage.gaussian_filter(distance, 0.4) * void
    ball = (np.indices((9,) * void.ndim) - 4).astype(float)
    ball = (ball**2).sum(axis=0) < 16
    snow_peaks = void & (smooth == ndimage.maximum_filter(smooth + 2 * ~void, footprint=ball))
    # not on a slope or saddle: part of a plateau that nothing beside it exceeds
    snow_peaks &= local_maxima(distance, connectivity=void.ndim, allow_borders=True)
    parts, count = ndimage.label(snow_peaks, np.ones((3,) * void.ndim))
    places = np.array(ndimage.center_of_mass(snow_peaks, parts, range(1, count + 1))).astype(int)
    radius = distance[tuple(places.T)]
    away = cdist(places, places)
    np.fill_diagonal(away, np.inf)
    dropped = set()
    for i, j in enumerate(away.argmin(axis=1)):
        if away[i, j] <= radius[i]:
            dropped.add(i if (radius[i], i) < (radius[j], j) else int(j))
    return count - len(dropped)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("shape", "sigma"), [((60, 60, 60), 2), ((48, 64, 40), 3), ((150, 200), 3), ((200, 150), 5)]
)
def test_there_is_one_pore_for_each_peak_of_the_paper(
    shape: tuple[int, ...], sigma: float, seed: int
) -> None:
    void = blobs(shape, sigma, 0.6, seed)
    result = hushpore.segment_pores(void, merging="snow")
    # a count is off by one where two voxels of a ridge are equally high within a basin
    assert len(result.pores) == pytest.approx(snow_peaks(void), abs=1)
    assert result.provenance["result"]["merged_by"] == {"peaks": len(result.pores)}
    assert result.porosity > 0.98 * void.mean()


def test_berea_has_as_many_pores_as_porespy_finds_regions(berea: np.ndarray) -> None:
    result = hushpore.segment_pores(berea, merging="snow")
    assert len(result.pores) == 1240  # of porespy.filters.snow_partitioning, version 3.2.0


def test_peaks_do_not_depend_on_how_the_volume_is_turned() -> None:
    void = blobs((50, 60, 40), 2, 0.6, 9)
    count = len(hushpore.segment_pores(void, merging="snow").pores)
    for turned in (void[::-1], void[:, ::-1, ::-1], void.transpose(2, 0, 1)):
        turned_count = len(hushpore.segment_pores(turned, merging="snow").pores)
        assert turned_count == pytest.approx(count, abs=2)


def test_a_volume_without_room_for_a_peak_has_no_pores() -> None:
    void = np.zeros((20, 20, 20), bool)
    void[5:7, 5:7, :] = True
    result = hushpore.segment_pores(void, merging="snow")
    assert len(result.pores) == 0
    assert result.porosity == 0
    assert result.provenance["result"]["open_porosity"] == void.mean()
    json.dumps(result.provenance, allow_nan=False)


@pytest.mark.parametrize("fill", [False, True])
def test_a_single_phase_is_no_pore_or_one(fill: bool) -> None:
    result = hushpore.segment_pores(np.full((6, 7, 8), fill), merging="snow")
    assert len(result.pores) == fill


def test_a_height_can_be_chosen_afterwards() -> None:
    void = blobs((40, 40, 40), 2, 0.6, 1)
    by_peaks = hushpore.segment_pores(Volume(void, spacing=(2, 1, 1)), merging="snow")
    by_height = by_peaks.remerge(0.7)
    expected = hushpore.segment_pores(Volume(void, spacing=(2, 1, 1)), merge_height=0.7)
    np.testing.assert_array_equal(by_height.labels, expected.labels)
    assert by_height.provenance["settings"] == expected.provenance["settings"]
    assert by_height.provenance["result"]["merged_by"] == {"merge_height": 0.7}
