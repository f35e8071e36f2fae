from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage

from hushpore.pores.engine import Engine
from hushpore.pores.slab_steps import distances
from hushpore.pores.slabs import Scratch, Slabs, Stack
from hushpore.pores.watershed.distance import squared_distance

if TYPE_CHECKING:
    from hushpore.pores.parallel import KernelThreads

NOWHERE = (False, False, False)
CUBIC = (1.0, 1.0, 1.0)
voids = hnp.arrays(
    np.bool_,
    hnp.array_shapes(min_dims=3, max_dims=3, max_side=9),
    elements=st.sampled_from([True, True, True, False]),
)


@settings(max_examples=200, deadline=None)
@given(voids)
def test_cubic_voxels_give_the_exact_whole_numbers(
    threads: KernelThreads, void: np.ndarray
) -> None:
    found = squared_distance(void, CUBIC, NOWHERE, threads)
    if void.all():
        assert np.isinf(found).all()
    else:
        expected = ndimage.distance_transform_edt(void) ** 2
        np.testing.assert_array_equal(found, np.rint(expected))


@settings(max_examples=200, deadline=None)
@given(voids, st.tuples(*[st.floats(0.1, 10)] * 3))
def test_any_spacing_agrees_with_scipy(
    threads: KernelThreads, void: np.ndarray, spacing: tuple[float, float, float]
) -> None:
    found = squared_distance(void, spacing, NOWHERE, threads)
    if not void.all():
        expected = ndimage.distance_transform_edt(void, sampling=spacing)
        np.testing.assert_allclose(np.sqrt(found) * min(spacing), expected, rtol=2e-6)


@settings(max_examples=100, deadline=None)
@given(voids, st.sampled_from([CUBIC, (2.0, 1.0, 1.0), (2.5, 4.75, 3.0)]), st.floats(0, 50))
def test_of_what_is_farther_than_asked_only_that_is_told(
    threads: KernelThreads, void: np.ndarray, spacing: tuple[float, float, float], within: float
) -> None:
    whole = squared_distance(void, spacing, NOWHERE, threads)
    found = squared_distance(void, spacing, NOWHERE, threads, within)
    near = whole <= within
    np.testing.assert_array_equal(found[near], whole[near])
    assert (found[~near] > within).all()


@settings(max_examples=100, deadline=None)
@given(voids, st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_solid_outside_is_a_layer_of_solid_around(
    threads: KernelThreads, void: np.ndarray, outside: tuple[bool, bool, bool]
) -> None:
    found = squared_distance(void, CUBIC, outside, threads)
    padded = np.pad(void, [(int(side),) * 2 for side in outside])
    inner = tuple(slice(1, -1) if side else slice(None) for side in outside)
    if padded.all():
        assert np.isinf(found).all()
    else:
        expected = ndimage.distance_transform_edt(padded)[inner] ** 2
        np.testing.assert_array_equal(found, np.rint(expected))


@settings(max_examples=100, deadline=None)
@given(
    voids,
    st.integers(1, 9),
    st.sampled_from([(1, 1, 1), (0.3, 1, 2), (2.5, 1, 0.7)]),
    st.booleans(),
)
def test_cuts_into_slabs_change_no_bit(
    threads: KernelThreads,
    void: np.ndarray,
    thickness: int,
    spacing: tuple[float, float, float],
    solid: bool,
) -> None:
    outside = (solid, False, solid)
    expected = squared_distance(void, spacing, outside, threads)
    slabs = Slabs(len(void), thickness)
    phase = Stack.of(void.astype(np.uint8))
    found = np.full(void.shape, -1, np.float32)
    for first, part in distances(phase, slabs, Scratch(False), spacing, outside, Engine(threads)):
        found[first : first + len(part)] = part
    np.testing.assert_array_equal(found, expected)
    padded = np.pad(void, [(int(side),) * 2 for side in outside])
    if not padded.all():
        inner = tuple(slice(1, -1) if side else slice(None) for side in outside)
        scipy = ndimage.distance_transform_edt(padded, sampling=spacing)[inner]
        np.testing.assert_allclose(np.sqrt(found) * min(spacing), scipy, rtol=2e-6)


def test_a_large_sparse_volume_agrees_with_scipy(threads: KernelThreads) -> None:
    void = np.random.default_rng(0).random((60, 70, 80)) > 2e-4
    found = squared_distance(void, (2.0, 0.7, 0.5), NOWHERE, threads)
    expected = ndimage.distance_transform_edt(void, sampling=(2.0, 0.7, 0.5))
    np.testing.assert_allclose(np.sqrt(found) * 0.5, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(3, 200, 260), (260, 3, 200), (200, 260, 3)])
def test_far_distances_are_as_exact_as_near_ones(
    shape: tuple[int, ...], threads: KernelThreads
) -> None:
    void = np.random.default_rng(1).random(shape) > 1e-4
    found = squared_distance(void, CUBIC, NOWHERE, threads)
    assert found.max() > 60**2
    expected = ndimage.distance_transform_edt(void) ** 2
    np.testing.assert_array_equal(found, np.rint(expected))


def test_a_real_rock_has_its_known_distances(berea: np.ndarray, threads: KernelThreads) -> None:
    found = squared_distance(berea, CUBIC, NOWHERE, threads)
    assert found.max() == 200
    assert found.sum(dtype=np.float64) == 10403143
    np.testing.assert_array_equal(found, np.rint(found))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_single_solid_voxel_reaches_along_a_long_axis(axis: int, threads: KernelThreads) -> None:
    shape = [1, 1, 1]
    shape[axis] = 5000
    void = np.ones(shape, bool)
    void[0, 0, 0] = False
    found = squared_distance(void, CUBIC, NOWHERE, threads)
    # exact up to 2**24, the first distances beyond are rounded to float32
    np.testing.assert_array_equal(found.ravel()[:4097], np.arange(4097) ** 2)
    np.testing.assert_array_equal(found.ravel(), (np.arange(5000.0) ** 2).astype(np.float32))
