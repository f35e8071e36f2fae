from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage

from hushpore.pores.void.components import find_components
from hushpore.pores.void.threshold import make_void

if TYPE_CHECKING:
    from hushpore.pores.parallel import KernelThreads

ALL_FACES = (True, True, True)
voids = hnp.arrays(np.bool_, hnp.array_shapes(min_dims=3, max_dims=3, max_side=8))


def touches_a_face(labels: np.ndarray, faces: tuple[bool, bool, bool]) -> np.ndarray:
    touching = np.zeros(labels.max() + 1, bool)
    for axis in np.flatnonzero(faces):
        touching[np.take(labels, [0, -1], axis)] = True
    return touching[1:]


@settings(max_examples=150, deadline=None)
@given(voids, st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_components_are_those_of_scipy(
    threads: KernelThreads, void: np.ndarray, faces: tuple[bool, bool, bool]
) -> None:
    labels, count = ndimage.label(void)
    found = find_components(void, faces, threads)
    opened, closed, components = found.totals
    assert components == count
    np.testing.assert_array_equal(np.sort(found.voxels), np.sort(np.bincount(labels.ravel())[1:]))
    touching = touches_a_face(labels, faces)
    assert opened == np.isin(labels, np.flatnonzero(touching) + 1).sum()
    assert opened + closed == void.sum()


@settings(max_examples=100, deadline=None)
@given(voids)
def test_closed_voids_are_what_filling_holes_fills(
    threads: KernelThreads, void: np.ndarray
) -> None:
    closed = void.copy()
    found = find_components(closed, ALL_FACES, threads)
    found.paint(0, closed.view(np.uint8), (~found.is_open).view(np.uint8), threads)
    np.testing.assert_array_equal(closed, ndimage.binary_fill_holes(~void) & void)


def test_many_threads_find_the_same_components(berea: np.ndarray, threads: KernelThreads) -> None:
    assert find_components(berea, ALL_FACES, threads).totals[1:] == (5405, 328)


def test_dark_pores_are_at_or_below_the_threshold_and_bright_ones_above(
    threads: KernelThreads,
) -> None:
    values = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    np.testing.assert_array_equal(make_void(values, 3, False, threads), values <= 3)
    np.testing.assert_array_equal(make_void(values, 3, True, threads), values > 3)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint64, np.float16, np.float64])
@pytest.mark.parametrize("threshold", [-1e9, -0.5, 0, 2.5, 6.99, 7, 1e30])
@pytest.mark.parametrize("bright", [False, True])
def test_any_threshold_can_be_asked_of_any_type(
    dtype: type, threshold: float, bright: bool, threads: KernelThreads
) -> None:
    values = np.arange(8).reshape(2, 2, 2)
    expected = values > threshold if bright else values <= threshold
    void = make_void(values.astype(dtype), threshold, bright, threads)
    np.testing.assert_array_equal(void, expected)


def test_a_boolean_volume_is_copied_not_changed(threads: KernelThreads) -> None:
    given = np.ones((3, 3, 3), bool)
    void = make_void(given, None, False, threads)
    void[:] = False
    assert given.all()
