"""Euler numbers of shapes of which they are known, and those of scikit-image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage
from skimage.measure import euler_number

import hushpore
from hushpore import Volume
from hushpore.base.events import result_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.slabs import Slabs, Stack
from hushpore.pores.topology.euler import find_euler_number


def found(void: np.ndarray, thickness: int = 5, *, faces_only: bool = False) -> int:
    stack = void if void.ndim == 3 else void[None]
    slabs = Slabs(len(stack), thickness)
    with KernelThreads(2) as threads:
        return result_of(find_euler_number(Stack.of(stack), slabs, threads, faces_only=faces_only))


def distance_from(z: float, y: float, x: float) -> np.ndarray:
    grid = np.indices((20, 32, 44)).transpose(1, 2, 3, 0)
    return np.linalg.norm(grid - (z, y, x), axis=-1)


def torus(y: float, x: float) -> np.ndarray:
    z, at_y, at_x = np.indices((20, 32, 44))
    return np.hypot(np.hypot(at_y - y, at_x - x) - 7, z - 10) < 2.6


BALL = distance_from(10, 16, 22) < 8
SHAPES = {
    "ball": (BALL, 1),
    "two balls": (BALL | (distance_from(3, 3, 3) < 3), 2),
    "hollow ball": (BALL & (distance_from(10, 16, 22) > 4), 2),
    "torus": (torus(16, 22), 0),
    "two tori": (torus(16, 11) | torus(16, 32), 0),
    "torus of two holes": (torus(16, 15) | torus(16, 29), -1),
    "all": (np.ones((7, 8, 9), bool), 1),
    "nothing": (np.zeros((7, 8, 9), bool), 0),
    "disc": (BALL[10], 1),
    "two rings in an image": (torus(16, 11)[10] | torus(16, 32)[10], 0),
}


@pytest.mark.parametrize("faces_only", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_have_their_euler_number(shape: str, faces_only: bool) -> None:
    void, expected = SHAPES[shape]
    assert found(void, faces_only=faces_only) == expected


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("faces_only", [False, True])
def test_it_is_that_of_scikit_image_in_slabs_of_any_thickness(
    share: float, faces_only: bool
) -> None:
    void = np.random.default_rng(4).random((11, 13, 17)) < share
    expected = euler_number(void, 1 if faces_only else 3)
    assert {found(void, n, faces_only=faces_only) for n in (1, 4, 11)} == {expected}
    image = void[0]
    assert found(image, faces_only=faces_only) == euler_number(image, 1 if faces_only else 2)


def totals(void: np.ndarray, **settings: Any) -> dict[str, Any]:
    result = hushpore.segment_pores(Volume(void), device="cpu", exterior="keep", **settings)
    return result.provenance["result"]


def test_a_result_says_it_of_the_void_that_was_asked_for_as_its_labels_are_connected() -> None:
    noise = ndimage.gaussian_filter(np.random.default_rng(6).normal(size=(24, 26, 28)), 1.2)
    void = noise > 0.03
    assert totals(void)["euler_number"] == euler_number(void, 3)
    assert totals(void, connectivity="faces")["euler_number"] == euler_number(void, 1)
    parts, _ = ndimage.label(void)
    faces = [np.take(parts, end, axis) for axis in range(3) for end in (0, -1)]
    at_face = np.unique(np.concatenate([face.ravel() for face in faces]))
    is_open = void & np.isin(parts, at_face)
    assert is_open.sum() < void.sum()
    assert totals(void, pore_type="open")["euler_number"] == euler_number(is_open, 3)
