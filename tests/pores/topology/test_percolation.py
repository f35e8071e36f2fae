"""What is connected from face to face, of voids of which it is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore import Volume


def totals(void: np.ndarray, **settings: Any) -> dict[str, Any]:
    settings = {"exterior": "keep", **settings}
    found = hushpore.segment_pores(Volume(void), device="cpu", **settings)
    return found.provenance["result"]


def test_a_tube_percolates_along_its_axis_and_a_blind_hole_does_not() -> None:
    void = np.zeros((20, 21, 22), bool)
    void[:, 3:6, 4:8] = True
    void[:12, 12:15, 4:8] = True
    found = totals(void)
    assert found["percolating_fraction_z"] == pytest.approx(20 / 32)
    assert (found["percolating_fraction_y"], found["percolating_fraction_x"]) == (0, 0)


@pytest.mark.parametrize(("connectivity", "structure"), [("all", 3), ("faces", 1)])
def test_it_is_what_scipy_labels_from_face_to_face(connectivity: str, structure: int) -> None:
    noise = ndimage.gaussian_filter(np.random.default_rng(1).normal(size=(30, 28, 26)), (1.5, 1, 1))
    void = noise > 0.1
    found = totals(void, connectivity=connectivity)
    parts, _ = ndimage.label(void, ndimage.generate_binary_structure(3, structure))
    shares = []
    for axis, name in enumerate("zyx"):
        faces = np.moveaxis(parts, axis, 0)[[0, -1]]
        through = np.setdiff1d(np.intersect1d(*faces), 0)
        shares.append(float(np.isin(parts, through).sum() / void.sum()))
        assert found[f"percolating_fraction_{name}"] == pytest.approx(shares[-1])
    assert 0 < max(shares) < 1


def test_neighbouring_corners_connect_where_labels_are_connected_over_them() -> None:
    image = np.eye(12, dtype=bool)
    assert totals(image)["percolating_fraction_y"] == 1
    assert totals(image, connectivity="faces")["percolating_fraction_y"] == 0
    assert "percolating_fraction_z" not in totals(image)


def test_a_core_in_air_has_faces_at_its_ends_alone() -> None:
    _, y, x = np.indices((16, 40, 40))
    core = np.where(np.hypot(y - 19.5, x - 19.5) < 14, 200, 20).astype(np.uint8)
    core[:, 18:21, 18:21] = 20
    found = totals(core, exterior="remove-slicewise", ball_radius=6)
    assert found["percolating_fraction_z"] == 1
    assert found["percolating_fraction_x"] is None
