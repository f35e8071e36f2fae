"""Positions and shape classes of pores, against places that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import hushpore
from hushpore import Volume

if TYPE_CHECKING:
    from collections.abc import Callable

SPACING = (2.0, 0.5, 1.0)


@pytest.fixture(scope="module")
def three() -> hushpore.pores.result.Pores:
    """Three cubes of 3 voxels edge, whose centres are at (5, 10, 10), (5, 10, 20), (15, 40, 20)."""
    void = np.zeros((24, 61, 41), bool)
    for z, y, x in ((5, 10, 10), (5, 10, 20), (15, 40, 20)):
        void[z - 1 : z + 2, y - 1 : y + 2, x - 1 : x + 2] = True
    return hushpore.segment_pores(Volume(void, spacing=SPACING, unit="mm", origin=(7, 8, 9)))


def test_the_nearest_pore_is_as_far_as_its_centre(three: hushpore.pores.result.Pores) -> None:
    far = np.sqrt((10 * 2.0) ** 2 + (30 * 0.5) ** 2)
    np.testing.assert_allclose(three.pores["nearest_distance"], [10, 10, far])


def test_a_pore_that_is_alone_has_no_nearest_one() -> None:
    void = np.zeros((9, 9, 9), bool)
    void[3:6, 3:6, 3:6] = True
    assert np.isnan(hushpore.segment_pores(void).pores["nearest_distance"]).tolist() == [True]


def test_the_face_is_as_far_as_the_solid_between(three: hushpore.pores.result.Pores) -> None:
    # along y: 9 voxels of 0.5 before the first two, 19 behind the third; along z 4 of 2
    np.testing.assert_allclose(three.pores["face_distance"], [4.5, 4.5, 9.5])


def test_the_axis_runs_through_the_middle_of_the_slices(three: hushpore.pores.result.Pores) -> None:
    np.testing.assert_allclose(
        three.pores["radial_position"], [np.hypot(10, 10), 10, np.hypot(5, 0)]
    )
    np.testing.assert_allclose(three.pores["axial_position"], [5.5 / 24, 5.5 / 24, 15.5 / 24])


@pytest.mark.parametrize(
    ("axes", "expected"), [((4, 12, 12), 1), ((10, 10, 10), 2), ((3, 7, 14), 3), ((5, 5, 15), 4)]
)
def test_ellipsoids_have_zinggs_classes(axes: tuple[int, int, int], expected: int) -> None:
    places = np.indices((41, 41, 41)) - 20
    void = sum((place / axis) ** 2 for place, axis in zip(places, axes, strict=True)) <= 1
    found = hushpore.segment_pores(void, merge_height=5).pores
    assert found["zingg_class"].tolist() == [expected]


def test_small_pores_have_no_class() -> None:
    void = np.zeros((9, 9, 9), bool)
    void[4, 4, 3:6] = True
    assert np.isnan(hushpore.segment_pores(void).pores["zingg_class"]).tolist() == [True]


def test_neighbours_are_those_of_all_distances(balls: Callable[..., np.ndarray]) -> None:
    centres = np.random.default_rng(2).uniform(5, 75, (40, 3))
    pores = hushpore.segment_pores(balls((80, 80, 80), centres.round(), 4)).pores
    places = pores[["centroid_z", "centroid_y", "centroid_x"]].to_numpy()
    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    np.fill_diagonal(apart, np.inf)
    np.testing.assert_allclose(pores["nearest_distance"], apart.min(axis=1))
