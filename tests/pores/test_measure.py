from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from skimage.measure import regionprops

import hushpore
from hushpore import Volume
from hushpore.pores.measure import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable

SPACING = (2.0, 0.7, 0.5)
ORIGIN = (10.0, -3.0, 0.25)


@pytest.fixture(scope="module")
def scattered() -> np.ndarray:
    rng = np.random.default_rng(3)
    grid = np.indices((20, 40, 50))
    void = np.zeros(grid.shape[1:], bool)
    for centre in rng.uniform(0, grid.shape[1:], (25, 3)):
        void |= sum((g - c) ** 2 for g, c in zip(grid, centre, strict=True)) < 30
    return void


def test_figures_are_those_of_scikit_image(scattered: np.ndarray) -> None:
    scan = Volume(scattered, spacing=SPACING, unit="mm", origin=ORIGIN)
    result = hushpore.segment_pores(scan)
    table = result.pores
    assert tuple(table.columns) == COLUMNS
    regions = regionprops(result.labels, spacing=SPACING)
    assert table["label"].tolist() == [region.label for region in regions]
    assert table["label"].tolist() == list(range(1, len(table) + 1))
    for row, region in zip(table.itertuples(), regions, strict=True):
        assert row.num_voxels == region.num_pixels
        assert row.volume == pytest.approx(region.area)
        assert row.equivalent_diameter == pytest.approx(region.equivalent_diameter_area)
        centroid = (row.centroid_z, row.centroid_y, row.centroid_x)
        assert centroid == pytest.approx(np.add(region.centroid, ORIGIN))
        start = (row.bbox_z_start, row.bbox_y_start, row.bbox_x_start)
        stop = (row.bbox_z_stop, row.bbox_y_stop, row.bbox_x_stop)
        assert (*start, *stop) == region.bbox


def test_a_pore_touches_the_border_where_one_of_its_voxels_is_on_a_face(
    scattered: np.ndarray,
) -> None:
    result = hushpore.segment_pores(scattered)
    inner = result.labels[1:-1, 1:-1, 1:-1]
    inside = np.bincount(inner.ravel(), minlength=len(result.pores) + 1)[1:]
    expected = inside < result.pores["num_voxels"]
    np.testing.assert_array_equal(result.pores["touches_border"], expected)


def test_a_smaller_voxel_scales_lengths_and_volumes(scattered: np.ndarray) -> None:
    one = hushpore.segment_pores(Volume(scattered, unit="um")).pores
    half = hushpore.segment_pores(Volume(scattered, spacing=0.5, unit="um")).pores
    np.testing.assert_allclose(half["volume"] * 8, one["volume"])
    for length in ("equivalent_diameter", "inscribed_diameter", "centroid_x"):
        np.testing.assert_allclose(half[length] * 2, one[length])


@pytest.mark.parametrize("radius", [6.0, 10.3, 17.8])
@pytest.mark.parametrize("spacing", [1.0, 0.25])
def test_a_ball_has_its_diameter(
    radius: float, spacing: float, balls: Callable[..., np.ndarray]
) -> None:
    void = balls((40, 41, 42), (19.2, 20.1, 20.7), radius)
    (pore,) = hushpore.segment_pores(Volume(void, spacing=spacing)).pores.itertuples()
    assert pore.equivalent_diameter == pytest.approx(2 * radius * spacing, rel=0.01)
    # between voxel centres, of which one may be half a diagonal from the ball's
    assert abs(pore.inscribed_diameter / spacing - 2 * radius) <= np.sqrt(3)


def test_an_ellipsoid_in_flat_voxels_is_a_ball_in_space() -> None:
    z, y, x = np.indices((21, 61, 61))
    void = ((z - 10) * 3.0) ** 2 + (y - 30.0) ** 2 + (x - 30.0) ** 2 <= 24.5**2
    (pore,) = hushpore.segment_pores(Volume(void, spacing=(3, 1, 1))).pores.itertuples()
    assert pore.equivalent_diameter == pytest.approx(49, rel=0.01)
    assert pore.inscribed_diameter == pytest.approx(49, abs=3.5)


def test_a_disc_in_an_image_has_its_area_and_diameter() -> None:
    y, x = np.indices((60, 70))
    void = (y - 30) ** 2 + (x - 40) ** 2 <= 400
    (pore,) = hushpore.segment_pores(Volume(void, spacing=(0.5, 0.5), unit="mm")).pores.itertuples()
    assert pore.volume == void.sum() * 0.25
    assert pore.equivalent_diameter == pytest.approx(20, rel=0.01)
    assert (pore.centroid_z, pore.centroid_y, pore.centroid_x) == (0, 15, 20)
    assert not pore.touches_border
