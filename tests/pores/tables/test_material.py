"""Indices of the structure, against plates, rods and balls whose values are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hushpore
from hushpore import Volume

if TYPE_CHECKING:
    from collections.abc import Callable


def totals(void: np.ndarray, **settings: Any) -> dict[str, Any]:
    volume = Volume(void, spacing=0.5, unit="mm")
    found = hushpore.segment_pores(volume, exterior="keep", **settings)
    result: dict[str, Any] = found.provenance["result"]
    return result


def test_plates_have_the_walls_and_the_surface_of_the_plate_model() -> None:
    # solid plates 8 voxels (4 mm) thick and 12 (6 mm) apart, which nothing cuts but the faces
    void = np.ones((80, 60, 60), bool)
    for first in range(6, 80, 20):
        void[first : first + 8] = False
    found = totals(void, local_thickness="both")
    # two walls in 10 mm, an eighth of that in 2 % of the surface at most
    assert found["plate_number"] == pytest.approx(1 / 10, rel=0.02)
    assert found["solid_specific_surface"] == pytest.approx(2 / 4, rel=0.02)
    # between flat walls up to a voxel more than fits is measured
    assert found["solid_thickness"] == pytest.approx(4, abs=0.5)
    assert found["wall_number"] == pytest.approx(
        1 / (found["solid_thickness"] + found["void_thickness"])
    )
    assert found["solid_shape_index"] == pytest.approx(2, rel=0.15)


def test_rods_and_balls_have_their_plate_rod_index(balls: Callable[..., np.ndarray]) -> None:
    y, x = np.indices((120, 120))
    rods = ((y % 40 - 20) ** 2 + (x % 40 - 20) ** 2) > 12**2
    # 4 of rods, 6 of balls: the surface is right within 2 %, thickness within a voxel in 24
    found = totals(np.broadcast_to(rods, (60, 120, 120)).copy(), local_thickness="solid")
    assert found["solid_shape_index"] == pytest.approx(4, rel=0.07)
    centres = [(z, y, x) for z in (20, 60) for y in (20, 60) for x in (20, 60)]
    found = totals(balls((80, 80, 80), centres, 12), local_thickness="void")
    assert found["void_shape_index"] == pytest.approx(6, rel=0.07)
    assert found["solid_shape_index"] is None
    assert found["pore_density"] == pytest.approx(8 / 40**3)


def test_parallel_needles_have_one_direction() -> None:
    direction = np.array([2.0, 3.0, 6.0]) / 7
    places = np.moveaxis(np.indices((90, 90, 90)), 0, -1).astype(float)
    void = np.zeros((90, 90, 90), bool)
    for centre in ((25, 25, 45), (60, 25, 45), (25, 65, 45), (65, 65, 45)):
        apart = places - centre
        along = apart @ direction
        void |= (along / 25) ** 2 + ((apart**2).sum(axis=-1) - along**2) / 25 <= 1
    found = totals(void, merge_height=5)
    assert found["count"] == 4
    assert found["orientation_1"] == pytest.approx(1, abs=1e-3)
    vector = [found[f"orientation_1_{axis}"] for axis in "zyx"]
    assert abs(np.dot(vector, direction)) == pytest.approx(1, abs=1e-4)
    assert sum(found[f"orientation_{n}"] for n in (1, 2, 3)) == pytest.approx(1)


def test_an_image_has_two_eigenvalues_and_no_density() -> None:
    void = np.zeros((40, 40), bool)
    void[10:14, 5:30] = True
    found = totals(void)
    assert found["pore_density"] is None
    assert found["orientation_1_x"] == pytest.approx(1)
    assert "orientation_3" not in found


def test_a_volume_without_pores_has_no_index_of_them() -> None:
    found = totals(np.zeros((10, 10, 10), bool))
    assert found["pore_density"] == 0
    assert found["plate_number"] == 0
    assert found["orientation_1"] is None
    assert found["void_shape_index"] is None
