from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage

from hushpore.pores.parallel import KernelThreads
from hushpore.pores.watershed.basins import apply_labels, watershed_slab

shapes = hnp.array_shapes(min_dims=3, max_dims=3, max_side=8)
heights = hnp.arrays(np.float32, shapes, elements=st.integers(0, 4).map(float))


def watershed(
    height: np.ndarray, threads: KernelThreads, *, faces_only: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Basins of a stack in one slab, and their peaks."""
    basins = np.empty(height.shape, np.int32)
    how = (height, basins, threads, 0, len(height))
    return basins, watershed_slab(*how, faces_only=faces_only).peaks


def plain_basins(height: np.ndarray, faces_only: bool) -> tuple[np.ndarray, np.ndarray]:
    """The definition, one voxel after the other."""
    away = sum if faces_only else max
    box = ndimage.convolve(height, np.ones((3, 3, 3)), mode="constant")
    peak = np.full(height.shape, -1)
    flat = np.arange(height.size).reshape(height.shape)
    for place in np.argwhere(height > 0):
        at = tuple(place)
        while True:
            near = [
                (height[n], box[n], -flat[n], n)
                for n in np.ndindex(height.shape)
                if away([abs(a - b) for a, b in zip(n, at, strict=True)]) <= 1
            ]
            best = max(near)[3]
            if best == at:
                break
            at = best
        peak[tuple(place)] = flat[at]
    peaks = np.unique(peak[peak >= 0])
    labels = np.searchsorted(peaks, peak) + 1
    return np.where(peak < 0, 0, labels), peaks


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=3, max_dims=3, max_side=5),
        elements=st.integers(0, 3).map(float),
    ),
    st.booleans(),
)
def test_every_voxel_ascends_to_its_highest_neighbour(
    threads: KernelThreads, height: np.ndarray, faces_only: bool
) -> None:
    basins, peaks = watershed(height, threads, faces_only=faces_only)
    expected, expected_peaks = plain_basins(height, faces_only)
    np.testing.assert_array_equal(peaks, expected_peaks)
    np.testing.assert_array_equal(basins, expected)


@settings(max_examples=100, deadline=None)
@given(heights)
def test_peaks_are_the_highest_of_their_basins(threads: KernelThreads, height: np.ndarray) -> None:
    basins, peaks = watershed(height, threads)
    assert basins.dtype == np.int32
    np.testing.assert_array_equal(basins > 0, height > 0)
    if peaks.size:
        highest = ndimage.maximum(height, basins, np.arange(1, peaks.size + 1))
        np.testing.assert_array_equal(height.ravel()[peaks], highest)
        np.testing.assert_array_equal(basins.ravel()[peaks], np.arange(1, peaks.size + 1))


@settings(max_examples=60, deadline=None)
@given(heights, st.booleans())
def test_every_basin_is_one_piece(
    threads: KernelThreads, height: np.ndarray, faces_only: bool
) -> None:
    basins, peaks = watershed(height, threads, faces_only=faces_only)
    neighbours = None if faces_only else np.ones((3, 3, 3))
    for basin in range(1, peaks.size + 1):
        assert ndimage.label(basins == basin, neighbours)[1] == 1


@pytest.mark.parametrize("faces_only", [False, True])
@pytest.mark.parametrize("threads", [1, 3, 8])
def test_basins_do_not_depend_on_threads_or_on_blocks_of_rows(
    threads: int, faces_only: bool
) -> None:
    rng = np.random.default_rng(5)
    height = ndimage.distance_transform_edt(rng.random((40, 150, 50)) > 0.02).astype(np.float32)
    with KernelThreads(1) as one:
        expected, _ = watershed(height**2, one, faces_only=faces_only)
    with KernelThreads(threads) as several:
        found, _ = watershed(height**2, several, faces_only=faces_only)
    np.testing.assert_array_equal(found, expected)


def test_a_map_without_a_finite_height_is_one_basin(threads: KernelThreads) -> None:
    basins, peaks = watershed(np.full((5, 6, 7), np.inf, np.float32), threads)
    assert (basins == 1).all()
    assert peaks.tolist() == [0]


def test_labels_are_looked_up(threads: KernelThreads) -> None:
    basins = np.random.default_rng(0).integers(0, 5, (4, 5, 6)).astype(np.int32)
    table = np.array([0, 3, 0, 1, 2])
    labels = apply_labels(basins, table, threads)
    assert labels.dtype == np.int32
    np.testing.assert_array_equal(labels, table[basins])
