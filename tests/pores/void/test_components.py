from __future__ import annotations

import math
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage

import hushpore
from hushpore import InputError, Volume
from hushpore.base.errors import MemoryLimitError
from hushpore.device.backend import Backend
from hushpore.pores.engine import Engine
from hushpore.pores.geometry.sums import DIRECTIONS
from hushpore.pores.slab_steps import mark_outside
from hushpore.pores.slabs import Scratch, Slabs, Stack
from hushpore.pores.void.components import (
    AIR,
    count_crossings,
    face_neighbours,
    find_components,
    outside_bytes,
)
from hushpore.pores.void.threshold import make_void

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.pores.parallel import KernelThreads

    Balls = Callable[..., np.ndarray]


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


voids_with_air = hnp.arrays(np.bool_, hnp.array_shapes(min_dims=3, max_dims=3, max_side=7))


def rolled(void: np.ndarray, spacing: tuple[float, ...], radius: float) -> np.ndarray:
    """The definition, plainly: where the ball fits, as far as it gets, and what it covers."""
    margin = [math.floor(radius / step) + 1 for step in spacing]
    around = np.pad(void, [(m, m) for m in margin], constant_values=True)
    if around.all():
        return void.copy()
    fits = ndimage.distance_transform_edt(around, sampling=spacing) > radius + 1e-9
    parts, _ = ndimage.label(fits)
    reached = parts == parts.flat[0]
    covered = ndimage.distance_transform_edt(~reached, sampling=spacing) <= radius + 1e-9
    inner = tuple(slice(m, m + n) for m, n in zip(margin, void.shape, strict=True))
    return covered[inner] & void


def find_outside(
    void: np.ndarray,
    spacing: tuple[float, ...],
    radius: float,
    slicewise: bool,
    threads: KernelThreads,
) -> np.ndarray:
    phase, whole = Stack.of(void.astype(np.uint8)), Slabs(len(void), len(void))
    how = (spacing, radius, slicewise, Engine(threads))
    assert list(mark_outside(phase, whole, Scratch(on_disk=False), *how))[-1] == 1
    return phase.array() == AIR


@settings(max_examples=100, deadline=None)
@given(
    voids_with_air,
    st.sampled_from([1, 1.5, 2, 3.7]),
    st.sampled_from([(1, 1, 1), (2, 1, 1), (1, 3, 1)]),
)
def test_the_air_outside_is_where_a_ball_rolls_by_scipy(
    threads: KernelThreads, void: np.ndarray, radius: float, spacing: tuple[float, ...]
) -> None:
    found = find_outside(void, spacing, radius, False, threads)
    np.testing.assert_array_equal(found, rolled(void, spacing, radius))


@settings(max_examples=60, deadline=None)
@given(voids_with_air, st.sampled_from([1, 1.5, 2, 3.7]))
def test_slice_by_slice_every_slice_is_an_image(
    threads: KernelThreads, void: np.ndarray, radius: float
) -> None:
    found = find_outside(void, (1, 1, 1), radius, True, threads)
    for plane, image in zip(found, void, strict=True):
        np.testing.assert_array_equal(plane, rolled(image, (1, 1), radius))


def flooded(void: np.ndarray, radius: float) -> np.ndarray:
    """Once more without distances: a flood from beyond the faces, as wide as the ball."""
    reach = math.floor(radius)
    offsets = np.indices((2 * reach + 1,) * void.ndim) - reach
    ball = (offsets**2).sum(axis=0) <= radius**2
    around = np.pad(void, reach + 1, constant_values=True)
    fits = ndimage.binary_erosion(around, ball, border_value=1)
    begin = np.pad(np.zeros(void.shape, bool), reach + 1, constant_values=True) & fits
    reached = ndimage.binary_propagation(begin, mask=fits)
    covered = ndimage.binary_dilation(reached, ball)
    inner = (slice(reach + 1, -reach - 1),) * void.ndim
    return np.asarray(covered[inner] & void)


@st.composite
def blobs(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st.tuples(*[st.integers(3, 24)] * 3))
    noise = np.random.default_rng(draw(st.integers(0, 10**6))).standard_normal(shape)
    field = ndimage.gaussian_filter(noise, draw(st.sampled_from([0, 1, 2, 3])))
    return np.asarray(field < np.quantile(field, draw(st.sampled_from([0.2, 0.5, 0.8, 0.95]))))


@settings(max_examples=60, deadline=None)
@given(blobs(), st.sampled_from([1, 1.5, 2, 3, 4.5]), st.integers(1, 24))
def test_the_air_outside_is_what_a_flood_from_the_faces_fills(
    threads: KernelThreads, void: np.ndarray, radius: float, thickness: int
) -> None:
    expected = flooded(void, radius)
    for slabs in (Slabs(len(void), len(void)), Slabs(len(void), min(thickness, len(void)), True)):
        with closing(Scratch(slabs.on_disk)) as scratch:
            phase = scratch.stack("phase", void.shape, np.uint8)
            phase.write(0, void.astype(np.uint8))
            for _ in mark_outside(phase, slabs, scratch, (1, 1, 1), radius, False, Engine(threads)):
                pass
            np.testing.assert_array_equal(phase.read(0, len(void)) == AIR, expected)
    # slice by slice the same of each image
    for plane, image in zip(
        find_outside(void, (1, 1, 1), radius, True, threads), void, strict=True
    ):
        np.testing.assert_array_equal(plane, flooded(image, radius))


def ball_with_holes(balls: Balls) -> tuple[np.ndarray, np.ndarray]:
    """A solid ball of radius 36 in air, and the holes in it: 8 balls of radius 8."""
    shape, centre = (80, 84, 88), np.array([40, 42, 44])
    corners = np.array(np.meshgrid(*[[-13, 13]] * 3)).reshape(3, -1).T
    holes = balls(shape, centre + corners, 8)
    return ~balls(shape, centre, 36) | holes, holes


@pytest.mark.parametrize("outside", ["remove", "remove-slicewise"])
def test_porosity_of_a_ball_in_air_is_the_share_of_its_holes(balls: Balls, outside: str) -> None:
    void, holes = ball_with_holes(balls)
    result = hushpore.segment_pores(Volume(void, spacing=0.5, unit="mm"), exterior=outside)
    np.testing.assert_array_equal(result.labels > 0, holes)
    assert len(result.pores) == 8
    assert not result.pores["is_open"].any()
    # by the formula, of balls and not of voxels
    assert result.porosity == pytest.approx(8 * 8**3 / 36**3, rel=0.02)
    provenance = result.provenance["result"]
    assert provenance["sample_voxels"] == pytest.approx(4 / 3 * math.pi * 36**3, rel=0.01)
    assert (provenance["open_porosity"], provenance["closed_porosity"]) == (0, result.porosity)


def test_porosity_of_a_cylinder_that_is_cut_above_and_below(balls: Balls) -> None:
    # its axis is z, and pores are cut by the first and the last slice
    shape = (40, 90, 90)
    disc = balls(shape[1:], (45, 45), 40)
    centres = [(0, 45, 45), (20, 30, 45), (20, 60, 45), (39, 45, 60)]
    holes = balls(shape, centres, 9)
    void = ~disc[None] | holes
    kept = hushpore.segment_pores(void, exterior="remove-slicewise", ball_radius=12)
    np.testing.assert_array_equal(kept.labels > 0, holes)
    assert len(kept.pores) == 4
    assert kept.pores["is_open"].sum() == 2
    whole, half = 4 / 3 * math.pi * 9**3, 2 / 3 * math.pi * 9**3
    expected = (2 * whole + 2 * half) / (math.pi * 40**2 * 40)
    assert kept.porosity == pytest.approx(expected, rel=0.05)
    np.testing.assert_allclose(
        kept.porosity_profile, holes.sum(axis=(1, 2)) / disc.sum(), rtol=0, atol=0
    )


def test_a_sample_that_touches_the_field_keeps_no_slivers_of_air(balls: Balls) -> None:
    disc = balls((81, 81), (40, 40), 40)
    result = hushpore.segment_pores(~disc, exterior="remove", ball_radius=10)
    assert len(result.pores) == 0
    assert result.provenance["result"]["sample_voxels"] == disc.sum()


def test_an_open_pore_is_kept_as_far_as_its_mouth(balls: Balls) -> None:
    # a hole of radius 10 inside, with a channel 5 wide to the surface
    shape = (60, 60, 60)
    solid = np.zeros(shape, bool)
    solid[10:50, 10:50, 10:50] = True
    hole = balls(shape, (30, 30, 30), 10)
    channel = np.zeros(shape, bool)
    channel[28:33, 28:33, 30:50] = True
    void = ~solid | hole | channel
    found = hushpore.segment_pores(void, exterior="remove", ball_radius=6)
    wanted = hole | channel
    assert (found.labels > 0)[wanted].mean() > 0.99
    assert not (found.labels > 0)[~solid].any()
    assert found.pores["is_open"].all()
    assert found.provenance["result"]["closed_porosity"] == 0
    assert found.porosity == pytest.approx(wanted.sum() / 40**3, rel=0.01)
    # the mouth is no wall: the hole is as wide as where the air is kept
    kept = hushpore.segment_pores(void)
    place = tuple(found.pores[["centroid_z", "centroid_y", "centroid_x"]].iloc[0].astype(int))
    assert found.labels[place] == 1
    assert found.pores["inscribed_diameter"].max() == pytest.approx(20, abs=1)
    assert kept.labels[30, 30, 30] > 0
    # a ball that fits through the channel finds that all of it is outside
    assert hushpore.segment_pores(void, exterior="remove", ball_radius=2).porosity < 0.01


def test_closed_pores_alone_leave_the_open_ones_out(balls: Balls) -> None:
    void, _ = ball_with_holes(balls)
    channel = np.zeros_like(void)
    channel[27:30, 29:32, :31] = True
    for mode, count in (("all", 8), ("open", 1), ("closed", 7)):
        result = hushpore.segment_pores(void | channel, exterior="remove", pore_type=mode)
        assert ndimage.label(result.labels > 0)[1] == count
        assert result.porosity == pytest.approx(
            sum(result.provenance["result"][f"{kind}_porosity"] for kind in ("open", "closed"))
            if mode == "all"
            else result.provenance["result"][f"{mode}_porosity"]
        )


def test_the_surface_of_pores_has_no_part_where_they_open_into_the_air() -> None:
    # straight channels through a plate: walls count, mouths, a sixth as large, do not; that the
    # ball dents the void in its middle leaves a little more wall to the volume
    solid = np.ones((12, 40, 40), bool)
    for y in range(5, 40, 10):
        for x in range(5, 40, 10):
            solid[:, y : y + 4, x : x + 4] = False
    in_air = np.pad(~solid, 8, constant_values=True)
    surface_to_volume = []
    for void, outside in ((~solid, "keep"), (in_air, "remove")):
        result = hushpore.segment_pores(void, exterior=outside, ball_radius=7)
        totals = result.provenance["result"]
        assert totals["open_porosity"] == result.porosity > 0
        surface_to_volume.append(totals["specific_surface"] / result.porosity)
    assert surface_to_volume[1] == pytest.approx(surface_to_volume[0], rel=0.06)


def test_remerging_keeps_to_the_sample(balls: Balls) -> None:
    void, _ = ball_with_holes(balls)
    result = hushpore.segment_pores(void, exterior="remove")
    again = result.remerge(2.0)
    assert again.porosity == result.porosity
    np.testing.assert_array_equal(again.porosity_profile, result.porosity_profile)
    # no slice of the first four holds any of the sample
    assert np.isnan(result.porosity_profile[:4]).all()


def test_no_air_outside_is_said() -> None:
    void = np.zeros((20, 20, 20), bool)
    void[8:12, 8:12, 8:12] = True
    kept = hushpore.segment_pores(void)
    result = hushpore.segment_pores(void, exterior="remove")
    np.testing.assert_array_equal(result.labels, kept.labels)
    assert result.porosity == kept.porosity
    assert "No air was found around the sample" in result.notes[0]


def test_nothing_but_air_is_refused() -> None:
    with pytest.raises(InputError, match=r"no solid in .*Choose another threshold"):
        hushpore.segment_pores(np.ones((5, 6, 7), bool), exterior="remove")


def test_memory_is_asked_for_with_the_room_of_the_ball(monkeypatch: pytest.MonkeyPatch) -> None:
    void = np.eye(30)[None].repeat(30, 0) > 0
    monkeypatch.setattr(Backend, "free_memory", lambda self: 20 * void.size)
    hushpore.segment_pores(void)
    hushpore.segment_pores(void, exterior="remove", ball_radius=2)
    with pytest.raises(MemoryLimitError, match="needs at least"):
        hushpore.segment_pores(void, exterior="remove", ball_radius=20)
    assert outside_bytes((10, 10, 10), (1, 1, 1), 4, False) == 3 * 1000 + 5 * 20**3
    assert outside_bytes((10, 10, 10), (1, 1, 1), 4, True) == 3 * 1000 + 5 * 10 * 21 * 20


@settings(max_examples=60, deadline=None)
@given(voids_with_air, st.randoms(use_true_random=False))
def test_neighbours_of_air_are_counted_as_a_loop_counts_them(
    void: np.ndarray, random: object
) -> None:
    air = ~void & (np.indices(void.shape).sum(axis=0) % random.choice([2, 3, 5]) == 0)  # type: ignore[attr-defined]
    expected = np.zeros(13, int)
    for k, step in enumerate(DIRECTIONS):
        for place in np.argwhere(void):
            for other in (place + step, place - step):
                inside = (other >= 0).all() and (other < void.shape).all()
                expected[k] += inside and air[tuple(other)]
    np.testing.assert_array_equal(count_crossings(void, air), expected)
    cross = ndimage.generate_binary_structure(3, 1)
    cross[1, 1, 1] = False
    np.testing.assert_array_equal(face_neighbours(air), ndimage.binary_dilation(air, cross))
