from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore import Volume
from hushpore.pores.geometry.sums import DIRECTIONS, area_per_crossing, surface_area

DOCS = Path(__file__).parents[3] / "docs"
SPACINGS = [(1.0, 1.0, 1.0), (2.0, 1.0, 1.0), (10.0, 1.0, 1.0), (1.0, 5.0, 5.0), (1.0, 2.0, 4.0)]


def crossings_of(solid: np.ndarray) -> np.ndarray:
    """Count neighbours of which one is solid and one is not, by direction."""
    counts = []
    for step in DIRECTIONS:
        one, other = (
            tuple(
                slice(max(0, -sign * d), n - max(0, sign * d))
                for d, n in zip(step, solid.shape, strict=True)
            )
            for sign in (1, -1)
        )
        counts.append(np.count_nonzero(solid[one] != solid[other]))
    return np.array(counts)


def places(shape: tuple[int, ...], spacing: tuple[float, ...]) -> list[np.ndarray]:
    """Return where voxels lie, counted from the middle."""
    axes = [(np.arange(n) - (n - 1) / 2) * step for n, step in zip(shape, spacing, strict=True)]
    return list(np.meshgrid(*axes, indexing="ij", sparse=True))


def estimated_plane(normal: np.ndarray, spacing: tuple[float, ...]) -> np.ndarray:
    """Return the estimate for a plane of area 1: of lines so dense, so many go through it."""
    return surface_area(lines_through_plane(normal, spacing), spacing)


def lines_through_plane(normal: np.ndarray, spacing: tuple[float, ...]) -> np.ndarray:
    return np.abs(normal @ (DIRECTIONS * np.asarray(spacing)).T) / np.prod(spacing)


def sphere(count: int) -> np.ndarray:
    """Return normals evenly all over the sphere."""
    place = np.arange(count) + 0.5
    z, turn = 1 - 2 * place / count, np.pi * (1 + 5**0.5) * place
    across = np.sqrt(1 - z**2)
    return np.stack([z, across * np.sin(turn), across * np.cos(turn)], axis=1)


@pytest.mark.parametrize("spacing", SPACINGS)
def test_over_all_orientations_the_area_of_planes_is_right(spacing: tuple[float, ...]) -> None:
    estimates = lines_through_plane(sphere(20_000), spacing) @ area_per_crossing(spacing)
    assert estimates.mean() == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("spacing", SPACINGS)
def test_no_plane_is_small_and_those_along_the_axes_are_exact(spacing: tuple[float, ...]) -> None:
    np.testing.assert_allclose(estimated_plane(np.eye(3), spacing), 1)
    turned = estimated_plane(sphere(20_000), spacing)
    assert turned.min() > 1 - 1e-9
    assert turned.max() < (1.03 if spacing == (1, 1, 1) else 1.13)


@pytest.mark.parametrize("spacing", SPACINGS)
def test_a_ball_is_right_whatever_the_shape_of_voxels(spacing: tuple[float, ...]) -> None:
    radius = 6 * max(spacing)
    shape = tuple(int(2 * radius / step) + 4 for step in spacing)
    inside = sum(place**2 for place in places(shape, spacing)) <= radius**2
    area = surface_area(crossings_of(inside), spacing)
    assert area == pytest.approx(4 * np.pi * radius**2, rel=0.02)


@pytest.mark.parametrize("normal", [(1, 0, 0), (0, 0, 1), (3, 1, 2), (1, -2, 0)])
def test_planes_of_voxels_are_estimated_as_the_formula_says(normal: tuple[int, ...]) -> None:
    spacing = (3.0, 1.0, 1.0)
    shape = (24, 60, 60)
    unit = np.array(normal) / np.linalg.norm(normal)
    height = sum(u * place for u, place in zip(unit, places(shape, spacing), strict=True))
    # a wall, of which both sides lie within a prism that is cut from it, away from the faces
    middle = sum(place**2 for place in places(shape, spacing)) <= 24**2
    solid = height > 0.25
    counts = []
    for step in DIRECTIONS:
        there = np.roll(solid, tuple(-step), axis=(0, 1, 2))
        counts.append(np.count_nonzero((solid != there) & middle))
    area = surface_area(np.array(counts), spacing)
    expected = float(estimated_plane(unit, spacing)) * np.pi * 24**2
    assert area == pytest.approx(expected, rel=0.03)


def test_the_page_states_how_far_planes_are_off() -> None:
    rows = re.findall(
        r"^\| (\d+) : (\d+) : (\d+) \|(.*)\|$", (DOCS / "shape.md").read_text("utf-8"), re.M
    )
    assert len(rows) == 8
    for *ratio, figures in rows:
        spacing = tuple(float(each) for each in ratio)
        normals = np.concatenate([np.eye(3), sphere(20_000)])
        lines = 100 * (lines_through_plane(normals, spacing) @ area_per_crossing(spacing) - 1)
        errors = 100 * (estimated_plane(normals, spacing) - 1)
        root = np.sqrt(np.mean(errors**2))
        found = [lines[0], lines[2], lines.min(), errors.min(), errors.max(), root]
        stated = [float(figure) for figure in figures.split("|")]
        np.testing.assert_allclose(found, stated, atol=0.06, err_msg=str(spacing))


@pytest.mark.parametrize(
    ("crack", "slices", "pixels"), [("in one slice", 1, 150), ("of three slices", 3, 40)]
)
def test_the_page_on_thick_slices_states_how_far_cracks_are_off(
    crack: str, slices: int, pixels: int
) -> None:
    page = (DOCS / "howto" / "anisotropic.md").read_text("utf-8")
    row = re.search(rf"^\| crack {crack}, {pixels} x {pixels} pixels \|(.*)\|$", page, re.M)
    assert row is not None
    void = np.pad(np.ones((slices, pixels, pixels), bool), 1)
    for figure, thick in zip(row[1].split("|"), (1, 2, 5, 10), strict=True):
        area = 2 * pixels**2 + 4 * pixels * slices * thick
        found = surface_area(crossings_of(void), (float(thick), 1.0, 1.0)) / area
        assert 100 * (found - 1) == pytest.approx(float(figure.strip(" %")), abs=0.06)


def totals(void: np.ndarray, **volume: Any) -> dict[str, Any]:
    found = hushpore.segment_pores(Volume(void, **volume), device="cpu", exterior="keep")
    return found.provenance["result"]


def chords(void: np.ndarray, axis: int) -> float:
    """Mean length of the chords of a void that goes on at the other side of its volume."""
    begins = void & ~np.roll(void, 1, axis)
    return float(void.sum() / begins.sum())


def test_plates_have_their_chords_across_and_differ_most() -> None:
    void = np.zeros((60, 20, 22), bool)
    void.reshape(6, 10, 20, 22)[:, 3:7] = True
    found = totals(void, spacing=(2, 1, 0.5), unit="um")
    # 4 of 10 slices of 2 µm
    assert found["void_chord_length_z"] == pytest.approx(8, rel=0.02)
    assert found["solid_chord_length_z"] == pytest.approx(12, rel=0.02)
    # there is no wall along y and x
    assert found["void_chord_length_y"] is None
    assert found["anisotropy"] == pytest.approx(1)


def test_chords_are_those_that_are_counted() -> None:
    noise = np.random.default_rng(2).normal(size=(90, 91, 92))
    void = ndimage.gaussian_filter(noise, (5, 2.5, 2.5), mode="wrap") > 0
    found = totals(void)
    for axis, name in enumerate("zyx"):
        assert found[f"void_chord_length_{name}"] == pytest.approx(chords(void, axis), rel=0.02)
        assert found[f"solid_chord_length_{name}"] == pytest.approx(chords(~void, axis), rel=0.02)
    # the axes of the noise are 2 : 1
    assert found["anisotropy"] == pytest.approx(0.5, abs=0.06)


def test_what_is_alike_in_all_directions_has_no_anisotropy_whatever_the_voxels() -> None:
    noise = np.random.default_rng(3).normal(size=(70, 100, 140))
    void = ndimage.gaussian_filter(noise, (2.5, 4, 5)) > 0
    found = totals(void, spacing=(2, 1.25, 1), unit="um")
    assert found["anisotropy"] < 0.08


def test_an_image_has_chords_in_its_plane() -> None:
    noise = np.random.default_rng(5).normal(size=(300, 300))
    found = totals(ndimage.gaussian_filter(noise, (8, 4)) > 0)
    assert "void_chord_length_z" not in found
    assert found["void_chord_length_y"] / found["void_chord_length_x"] == pytest.approx(2, rel=0.15)
    assert found["anisotropy"] == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("value", [False, True])
def test_without_a_wall_there_is_neither(value: bool) -> None:
    found = totals(np.full((4, 5, 6), value))
    assert found["void_chord_length_z"] is None
    assert found["anisotropy"] is None
