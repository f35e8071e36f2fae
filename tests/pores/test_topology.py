"""Connectivity of the solid, against scikit-image and lattices whose loops can be counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage
from skimage.graph import MCP_Geometric
from skimage.measure import euler_number

import hushpore
from hushpore import Volume
from hushpore.base.errors import MemoryLimitError
from hushpore.base.events import result_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slabs import Slabs, Stack
from hushpore.pores.topology import (
    find_euler_number,
    find_path_lengths,
    find_tortuosity,
    solid_euler,
)
from hushpore.pores.work import plan_slabs


@pytest.mark.parametrize("faces_only", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_it_is_that_of_scikit_image(seed: int, faces_only: bool) -> None:
    noise = np.random.default_rng(seed).normal(size=(12, 15, 11))
    void = ndimage.gaussian_filter(noise, seed / 4) > 0
    own, other = (1, 3) if faces_only else (3, 1)
    of_void = euler_number(void, connectivity=own)
    expected = euler_number(~void, connectivity=other)
    assert solid_euler(void, of_void, faces_only=faces_only).whole == expected


@pytest.mark.parametrize("faces_only", [False, True])
def test_a_lattice_of_struts_has_two_loops_in_each_of_its_cells(faces_only: bool) -> None:
    # struts 3 wide through the middle of cells of 9: a node and three struts each
    middle = np.abs(np.arange(36) % 9 - 4) <= 1
    z, y, x = np.meshgrid(middle, middle, middle, indexing="ij")
    void = ~((z & y) | (y & x) | (z & x))
    of_void = euler_number(void, connectivity=1 if faces_only else 3)
    found = solid_euler(void, of_void, faces_only=faces_only)
    assert found.added == 4**3 * (1 - 3)
    assert found.connectivity == 1 + 2 * 4**3


def test_what_parts_of_a_volume_add_is_what_the_volume_adds() -> None:
    noise = np.random.default_rng(3).normal(size=(20, 14, 16))
    void = ndimage.gaussian_filter(noise, 1) > 0

    def added(part: np.ndarray) -> float:
        return solid_euler(part, euler_number(part, connectivity=3), faces_only=False).added

    # parts share a slice, in which what is added counts half each; the outer faces stay as they are
    assert added(void[:11]) + added(void[10:]) == pytest.approx(added(void))


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


def totals_of_void(void: np.ndarray, **settings: Any) -> dict[str, Any]:
    result = hushpore.segment_pores(Volume(void), device="cpu", exterior="keep", **settings)
    return result.provenance["result"]


def test_a_result_says_it_of_the_void_that_was_asked_for_as_its_labels_are_connected() -> None:
    noise = ndimage.gaussian_filter(np.random.default_rng(6).normal(size=(24, 26, 28)), 1.2)
    void = noise > 0.03
    assert totals_of_void(void)["euler_number"] == euler_number(void, 3)
    assert totals_of_void(void, connectivity="faces")["euler_number"] == euler_number(void, 1)
    parts, _ = ndimage.label(void)
    faces = [np.take(parts, end, axis) for axis in range(3) for end in (0, -1)]
    at_face = np.unique(np.concatenate([face.ravel() for face in faces]))
    is_open = void & np.isin(parts, at_face)
    assert is_open.sum() < void.sum()
    assert totals_of_void(void, pore_type="open")["euler_number"] == euler_number(is_open, 3)


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


def along_z(void: np.ndarray, spacing: tuple[float, ...] = (1, 1, 1), **how: Any) -> float | None:
    how = {"faces_only": False, **how}
    return result_of(find_tortuosity(void, spacing, 3, **how))["tortuosity_z"]


@pytest.mark.parametrize("faces_only", [False, True])
def test_a_straight_tube_has_one_whatever_the_voxels(faces_only: bool) -> None:
    void = np.zeros((40, 20, 20), bool)
    void[:, 5:9, 5:9] = True
    for spacing in ((1, 1, 1), (2, 1, 0.5)):
        assert along_z(void, spacing, faces_only=faces_only) == pytest.approx(1)
    assert along_z(np.ones((6, 5, 4), bool)) == pytest.approx(1)


@pytest.mark.parametrize(("step_z", "step_y"), [(1, 1), (2, 1), (1, 3)])
def test_a_thin_diagonal_is_as_long_as_its_steps(step_z: float, step_y: float) -> None:
    void = np.zeros((30, 30, 3), bool)
    void[np.arange(30), np.arange(30), 1] = True
    expected = np.hypot(step_z, step_y) / step_z
    assert along_z(void, (step_z, step_y, 1)) == pytest.approx(expected)
    assert along_z(void, (step_z, step_y, 1), faces_only=True) is None


@pytest.mark.parametrize("slope", [0.25, 0.5, 0.7, 1.0])
def test_an_inclined_channel_is_within_3_per_cent(slope: float) -> None:
    z, y, _ = np.indices((60, 90, 3))
    half = 5
    void = np.abs(y - 10 - slope * z) < half
    # to each voxel of the last slice a straight way, which bends round no wall
    slack = np.linspace(0, 2 * half, 1001) / 59
    expected = np.hypot(1, np.maximum(slope - slack, 0)).mean()
    assert along_z(void) == pytest.approx(expected, rel=0.03)
    assert along_z(void, (2, 2, 2)) == pytest.approx(expected, rel=0.03)


def test_a_zigzag_is_as_long_as_a_string_in_it() -> None:
    # of one voxel: 60 steps at 45 degrees
    z, y, _ = np.indices((61, 14, 3))
    void = np.abs(z % 20 - 10) + 2 == y
    assert along_z(void) == pytest.approx(np.sqrt(2))


def test_ways_are_no_longer_than_those_of_steps_alone_and_no_shorter_than_straight() -> None:
    noise = ndimage.gaussian_filter(np.random.default_rng(2).normal(size=(24, 26, 28)), 1.5)
    void = noise > 0
    found = result_of(find_path_lengths(void, (1, 1.5, 0.7), faces_only=False)).astype(float)
    steps = MCP_Geometric(np.where(void, 1.0, -1.0), sampling=(1, 1.5, 0.7))
    expected, _ = steps.find_costs([tuple(at) for at in np.argwhere(void) if at[0] == 0])
    expected[~void] = np.inf
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    is_met = np.isfinite(found)
    assert (found[is_met] <= expected[is_met] * (1 + 1e-5)).all()
    assert (found >= np.arange(24)[:, None, None] * (1 - 1e-5)).all()
    assert found[is_met].mean() < 0.99 * expected[is_met].mean()


def test_a_result_tells_it_where_it_is_asked_for() -> None:
    void = np.zeros((16, 18, 20), bool)
    void[:, 4:7, 4:7] = True
    found = hushpore.segment_pores(Volume(void), device="cpu", exterior="keep", tortuosity=True)
    totals = found.provenance["result"]
    assert totals["tortuosity_z"] == pytest.approx(1)
    assert totals["tortuosity_y"] is None
    assert found.remerge(2).provenance["result"]["tortuosity_z"] == pytest.approx(1)
    without = hushpore.segment_pores(Volume(void), device="cpu", exterior="keep")
    assert "tortuosity_z" not in without.provenance["result"]
    image = hushpore.segment_pores(Volume(void[0]), device="cpu", exterior="keep", tortuosity=True)
    assert "tortuosity_z" not in image.provenance["result"]


def test_what_does_not_fit_into_memory_is_refused_in_words() -> None:
    volume = Volume(np.zeros((60, 60, 60), np.uint8))
    assert plan_slabs(volume, PoreSettings(memory_budget=0.003)).on_disk
    with pytest.raises(MemoryLimitError, match="tortuosity"):
        plan_slabs(volume, PoreSettings(memory_budget=0.003, tortuosity=True))
