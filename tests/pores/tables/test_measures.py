from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from scipy import ndimage
from scipy import ndimage as ndi
from scipy.spatial import SphericalVoronoi
from skimage.measure import regionprops

import hushpore
from hushpore import Volume
from hushpore.base.events import Remedy
from hushpore.pores.geometry.sums import DIRECTIONS, area_per_crossing
from hushpore.pores.tables import measures
from hushpore.pores.tables.measures import PORES, THROATS

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
    assert table.columns.tolist() == [measure.name for measure in PORES]
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


@pytest.mark.parametrize("at_once", [1, 7, 64])
def test_tables_are_the_same_however_many_rows_are_measured_at_once(
    scattered: np.ndarray, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    whole = hushpore.segment_pores(scattered, minimum_shape_voxels=30)
    assert len(whole.pores) > 7
    assert len(whole.throats) > 7
    monkeypatch.setattr(measures, "_AT_ONCE", at_once)
    parts = hushpore.segment_pores(scattered, minimum_shape_voxels=30)
    # products with weights are rounded by where a row lies
    pd.testing.assert_frame_equal(parts.pores, whole.pores, rtol=1e-13)
    pd.testing.assert_frame_equal(parts.throats, whole.throats, rtol=1e-13)


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


@pytest.mark.parametrize("radius", [10, 15, 20, 27.5, 40])
def test_a_digitised_ball_has_the_surface_of_the_ball(
    radius: float, balls: Callable[..., np.ndarray]
) -> None:
    side = int(2 * radius) + 6
    void = balls((side,) * 3, (side / 2,) * 3, radius)
    (pore,) = hushpore.segment_pores(void).pores.itertuples()
    assert pore.surface_area == pytest.approx(4 * np.pi * radius**2, rel=0.03)
    assert pore.sphericity > 0.97


def test_surface_and_axes_are_right_in_voxels_of_any_shape() -> None:
    spacing = (2.0, 0.7, 0.5)
    z, y, x = (np.indices((40, 80, 100)).T - (19.5, 39.5, 49.5)).T * np.reshape(
        spacing, (3, 1, 1, 1)
    )
    ball = Volume(z**2 + y**2 + x**2 <= 20**2, spacing=spacing)
    (pore,) = hushpore.segment_pores(ball).pores.itertuples()
    assert pore.surface_area == pytest.approx(1600 * np.pi, rel=0.01)
    ellipsoid = Volume((z / 30) ** 2 + (y / 20) ** 2 + (x / 10) ** 2 <= 1, spacing=spacing)
    (pore,) = hushpore.segment_pores(ellipsoid, merge_height=5).pores.itertuples()
    lengths = (pore.axis_length_major, pore.axis_length_intermediate, pore.axis_length_minor)
    assert lengths == pytest.approx((60, 40, 20), rel=0.01)
    assert (pore.axis_direction_z, pore.axis_direction_y, pore.axis_direction_x) == pytest.approx(
        (1, 0, 0), abs=1e-6
    )
    assert pore.elongation_ratio == pytest.approx(2 / 3, abs=0.01)
    assert pore.flatness_ratio == pytest.approx(1 / 2, abs=0.01)
    # surface of an ellipsoid after Knud Thomsen, good to 1.1 %; few of the directions between
    # voxels of this shape come near to its normals
    mean = (((30 * 20) ** 1.6075 + (30 * 10) ** 1.6075 + (20 * 10) ** 1.6075) / 3) ** (1 / 1.6075)
    assert pore.surface_area == pytest.approx(4 * np.pi * mean, rel=0.1)


@pytest.mark.parametrize("angle", [0, 30, 45, 70, 135])
def test_an_ellipse_has_its_perimeter_axes_and_direction(angle: float) -> None:
    y, x = np.indices((160, 160)) - 79.5
    turn = np.radians(angle)
    along, across = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    void = (along / 60) ** 2 + (across / 30) ** 2 <= 1
    (pore,) = hushpore.segment_pores(void, merge_height=5).pores.itertuples()
    # Ramanujan's approximation
    perimeter = np.pi * (3 * 90 - np.sqrt((3 * 60 + 30) * (60 + 3 * 30)))
    assert pore.surface_area == pytest.approx(perimeter, rel=0.03)
    lengths = (pore.axis_length_major, pore.axis_length_intermediate, pore.axis_length_minor)
    assert lengths == pytest.approx((120, 60, 60), rel=0.01)
    assert abs(
        pore.axis_direction_y * np.sin(turn) + pore.axis_direction_x * np.cos(turn)
    ) == pytest.approx(1, abs=1e-3)


def test_axes_agree_with_scikit_image(scattered: np.ndarray) -> None:
    result = hushpore.segment_pores(Volume(scattered, spacing=SPACING))
    large = result.pores[result.pores["num_voxels"] > 100]
    regions = {region.label: region for region in regionprops(result.labels, spacing=SPACING)}
    for row in large.itertuples():
        # which takes voxels for points
        assert row.axis_length_major == pytest.approx(
            regions[row.label].axis_major_length, rel=0.03
        )


def test_a_pore_of_a_few_voxels_has_a_size_and_no_shape() -> None:
    void = np.zeros((12, 12, 30), bool)
    void[2:4, 2:4, 2:4] = True  # 8 voxels
    void[2:4, 2:4, 10:12] = True
    void[2, 2, 10] = False  # 7
    void[6, 6, 20] = True  # 1
    result = hushpore.segment_pores(Volume(void, spacing=0.5, unit="mm"))
    shapes = [each.name for each in PORES if each.is_shape]
    # of a mask no grey values are known
    grey = ["mean_grey", "grey_deviation"]
    table = result.pores.set_index("num_voxels").drop(columns=grey)
    assert table.loc[[7, 1], shapes].isna().all(axis=None)
    assert table.drop(columns=shapes).notna().all(axis=None)
    assert table.loc[8].notna().all()
    assert table.loc[8, "inscribed_diameter"] == 1.0
    # the largest ball that fits into a pore is not larger than the ball of its volume
    assert "inscribed_diameter" in shapes
    assert {"volume", "equivalent_diameter", "centroid_z", "is_open"}.isdisjoint(shapes)
    every = hushpore.segment_pores(Volume(void, spacing=0.5, unit="mm"), minimum_shape_voxels=1)
    assert every.pores.drop(columns=grey).notna().all(axis=None)
    assert every.remerge(0.2).pores.drop(columns=grey).notna().all(axis=None)
    assert result.remerge(0.2).pores["sphericity"].count() == 1


def test_a_neck_between_two_balls_is_their_throat(balls: Callable[..., np.ndarray]) -> None:
    void = balls((40, 40, 70), [(20, 20, 20), (20, 20, 44)], 15)
    scan = Volume(void, spacing=0.5, unit="um", origin=(1, 2, 3))
    result = hushpore.segment_pores(scan)
    assert result.throats.columns.tolist() == [measure.name for measure in THROATS]
    (throat,) = result.throats.itertuples()
    assert (throat.pore_1, throat.pore_2) == (1, 2)
    place = (throat.position_z, throat.position_y, throat.position_x)
    assert place == pytest.approx((11, 12, 3 + 16), abs=0.5)
    # two balls of radius 15 at 24 meet in a disc of radius 9
    assert throat.inscribed_diameter == pytest.approx(9, abs=0.6)
    assert throat.area == pytest.approx(np.pi * 4.5**2, rel=0.1)
    assert throat.num_faces == pytest.approx(np.pi * 81, rel=0.05)
    assert result.pores["coordination_number"].tolist() == [1, 1]


def test_surfaces_of_pores_are_those_of_the_void_and_twice_the_throats() -> None:
    # wide enough that none of them is flat, of which more is made than lines say
    noise = ndi.gaussian_filter(np.random.default_rng(0).normal(size=(40, 41, 42)), 2)
    void = np.pad(noise > 0, 1)
    scan = Volume(void)
    for h in (0.0, 0.5, 9.0):
        result = hushpore.segment_pores(scan, merge_height=h, minimum_shape_voxels=1)
        total = result.provenance["result"]["specific_surface"] * void.size * scan.voxel_size
        parts = result.pores["surface_area"].sum() - 2 * result.throats["area"].sum()
        assert parts == pytest.approx(total, rel=0.005)
        # and throats are counted at both of their pores
        assert result.pores["coordination_number"].sum() == 2 * len(result.throats)


def test_faces_of_the_volume_are_not_surface_of_the_void() -> None:
    void = np.ones((10, 80, 90), bool)
    void[:5] = False
    result = hushpore.segment_pores(void, exterior="keep").provenance["result"]
    # one plane of 80 x 90
    assert result["specific_surface"] * void.size == pytest.approx(80 * 90)


def test_pores_of_open_void_are_open_though_they_may_not_touch_a_face(
    balls: Callable[..., np.ndarray],
) -> None:
    centres = [(15, 15, 8), (15, 15, 24), (15, 15, 60)]
    result = hushpore.segment_pores(balls((31, 31, 80), centres, 10))
    assert result.pores["is_open"].tolist() == [True, True, False]
    assert result.pores["touches_border"].tolist() == [True, False, False]


@pytest.mark.parametrize("spacing", [(1, 1, 1), (5, 0.49, 0.49), (2, 1, 0.3), (1, 1, 1.0001)])
def test_shares_of_the_sphere_are_those_of_its_voronoi_cells(
    spacing: tuple[float, float, float],
) -> None:
    steps = DIRECTIONS * np.asarray(spacing)
    units = steps / np.linalg.norm(steps, axis=1)[:, None]
    cells = SphericalVoronoi(np.concatenate([units, -units])).calculate_areas()[:13]
    # 2 senses of a direction, a mean |cos| of 1/2
    expected = 2 * cells / (4 * np.pi) * np.prod(spacing) / np.linalg.norm(steps, axis=1) / 0.5
    np.testing.assert_allclose(area_per_crossing(spacing), expected, rtol=1e-9)


def test_a_pore_of_open_and_closed_void_says_how_much_of_it_is_closed() -> None:
    void = np.zeros((9, 9, 9), bool)
    void[:4, 4, 4] = True
    # further on over an edge of voxels, which joins pores but opens none
    void[4:7, 5, 4] = True
    result = hushpore.segment_pores(void)
    assert result.pores["num_voxels"].tolist() == [7]
    assert result.pores["is_open"].tolist() == [True]
    assert result.pores["closed_voxels"].tolist() == [3]
    assert result.provenance["result"]["closed_porosity"] * void.size == pytest.approx(3)


@pytest.mark.parametrize("how", [{}, {"connectivity": "faces"}, {"memory_budget": 0.001}])
def test_closed_voxels_of_all_pores_make_the_closed_porosity(
    berea: np.ndarray, how: dict[str, object]
) -> None:
    # much of it is connected over edges of voxels alone
    void = berea[::3, ::3, ::3]
    result = hushpore.segment_pores(void, **how)
    closed, inner = ndi.label(void)[0], np.zeros(void.shape, bool)
    inner[1:-1, 1:-1, 1:-1] = True
    closed = void & ~np.isin(closed, np.unique(closed[~inner]))
    table = result.pores
    expected = np.bincount(result.labels[closed], minlength=len(table) + 1)[1:]
    np.testing.assert_array_equal(table["closed_voxels"], expected)
    np.testing.assert_array_equal(table["is_open"], expected < table["num_voxels"])
    share = result.provenance["result"]["closed_porosity"]
    assert table["closed_voxels"].sum() == pytest.approx(share * void.size)
    assert (table["closed_voxels"].between(1, table["num_voxels"] - 1)).any() != bool(
        how.get("connectivity")
    )


@pytest.mark.parametrize("how", [{}, {"memory_budget": 0.001}])
def test_throats_over_faces_are_a_function_of_the_labels(
    berea: np.ndarray, how: dict[str, object]
) -> None:
    void = berea[::3, ::3, ::3]
    result = hushpore.segment_pores(void, connectivity="faces", merge_height=0.0, **how)
    labels, throats, area = result.labels, result.throats, {}
    for k, (step, weight) in enumerate(zip(DIRECTIONS, area_per_crossing((1.0,) * 3), strict=True)):
        ends = [
            tuple(
                slice(max(0, s * d), n + min(0, s * d))
                for d, n in zip(step, void.shape, strict=True)
            )
            for s in (1, -1)
        ]
        one, other = (labels[end] for end in ends)
        touch = (one != other) & (one > 0) & (other > 0)
        for pair in np.sort(np.stack([one[touch], other[touch]], axis=1), axis=1).tolist():
            faces, total = area.get(tuple(pair), (0, 0.0))
            area[tuple(pair)] = faces + (k < 3), total + weight
    expected = {pair: total for pair, (faces, total) in sorted(area.items()) if faces}
    assert len(expected) < len(area)
    pairs = list(zip(throats["pore_1"], throats["pore_2"], strict=True))
    assert pairs == list(expected)
    np.testing.assert_allclose(throats["area"], list(expected.values()))
    assert result.pores["coordination_number"].sum() == 2 * len(throats)


SPACING_OF_THREE = (2.0, 0.5, 1.0)


@pytest.fixture(scope="module")
def three() -> hushpore.pores.result.Pores:
    """Three cubes of 3 voxels edge, whose centres are at (5, 10, 10), (5, 10, 20), (15, 40, 20)."""
    void = np.zeros((24, 61, 41), bool)
    for z, y, x in ((5, 10, 10), (5, 10, 20), (15, 40, 20)):
        void[z - 1 : z + 2, y - 1 : y + 2, x - 1 : x + 2] = True
    return hushpore.segment_pores(
        Volume(void, spacing=SPACING_OF_THREE, unit="mm", origin=(7, 8, 9))
    )


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


@pytest.fixture(scope="module")
def blurred_void() -> np.ndarray:
    smooth = ndimage.gaussian_filter(np.random.default_rng(0).random((30, 40, 50)), 2)
    return smooth < np.quantile(smooth, 0.15)


def inverted(sizes: np.ndarray, weights: np.ndarray, share: float) -> float:
    """Smallest size up to which a share of the weights lies, by NumPy."""
    return float(np.quantile(np.repeat(sizes, weights), share, method="inverted_cdf"))


@pytest.mark.parametrize("edge_pores", ["keep", "sizes", "remove"])
def test_percentiles_are_those_of_numpy_with_and_without_cut_pores(
    blurred_void: np.ndarray, edge_pores: str
) -> None:
    result = hushpore.segment_pores(blurred_void, edge_pores=edge_pores)
    totals, table = result.provenance["result"], result.pores
    every = hushpore.segment_pores(blurred_void)
    cut = int(every.pores["touches_border"].sum())
    assert 0 < cut < len(every.pores)
    assert totals["cut_pores"] == (0 if edge_pores == "remove" else cut)
    if edge_pores == "sizes":
        # only the sizes differ
        np.testing.assert_array_equal(result.labels, every.labels)
        assert totals["count"] == len(every.pores)
        assert totals["porosity"] == every.porosity
    counted = table[~table["touches_border"]] if edge_pores == "sizes" else table
    sizes, voxels = counted["equivalent_diameter"].to_numpy(), counted["num_voxels"].to_numpy()
    for number in (10, 90):
        by_number = inverted(sizes, np.ones(len(sizes), int), number / 100)
        assert totals[f"diameter_{number}"] == by_number
        assert totals[f"diameter_{number}_by_volume"] == inverted(sizes, voxels, number / 100)
    assert totals["median_diameter"] == np.median(sizes)
    assert totals["median_diameter_large"] == np.median(sizes[voxels >= 8])
    words = "/".join(f"{totals[name]:.3g}" for name in ("diameter_10", "median_diameter"))
    assert f"D10/D50/D90 {words}/" in result.headline


def test_cut_pores_are_said_with_a_link_that_excludes_them_and_one_that_counts_them(
    blurred_void: np.ndarray,
) -> None:
    every = hushpore.segment_pores(blurred_void)
    cut = int(every.pores["touches_border"].sum())
    (said,) = (each for each in every.remarks if "cut by the faces" in each.message)
    assert said.message.startswith(f"{cut} of {len(every.pores)} pores are cut")
    assert said.remedy == Remedy("Exclude from sizes", {"edge_pores": "sizes"})
    without = hushpore.segment_pores(blurred_void, **said.remedy.settings)
    (said,) = (each for each in without.remarks if "cut by the faces" in each.message)
    assert said.remedy == Remedy("Count all sizes", {"edge_pores": "keep"})


def test_no_sizes_are_left_if_all_pores_are_cut() -> None:
    half = np.zeros((9, 9, 9), bool)
    half[:4, 2:7, 2:7] = True
    result = hushpore.segment_pores(half, edge_pores="sizes")
    assert len(result.pores) == 1
    assert result.provenance["result"]["diameter_10"] is None
    assert "D10" not in result.headline


def balls(diameter: float, count: int = 25) -> np.ndarray:
    """Labels of balls at random positions on the grid of voxels."""
    rng, edge = np.random.default_rng(0), int(diameter) + 6
    labels = np.zeros((edge, edge, count * edge), np.int32)
    for number in range(count):
        own = np.indices((edge, edge, edge)).T[..., ::-1] - edge / 2 - rng.uniform(-0.5, 0.5, 3)
        inside = (diameter / 2) ** 2 >= (own**2).sum(axis=-1).T
        labels[:, :, number * edge : (number + 1) * edge][inside] = number + 1
    return labels


@pytest.mark.parametrize("diameter", [3, 4, 5, 6, 8, 10, 12, 16, 20])
def test_digital_balls_have_a_sphericity_of_1(diameter: int) -> None:
    pores = hushpore.measure_labels(balls(diameter), values="labels", minimum_shape_voxels=1).pores
    assert pores["sphericity"].mean() == pytest.approx(1, abs=0.01)
    assert pores["sphericity"].std() < 0.012
    # not limited: some are above 1, and few are equal
    assert pores["sphericity"].max() > 0.998
    assert (pores["sphericity"] == 1).sum() == 0
    assert (pores["inscribed_diameter"] <= pores["equivalent_diameter"] * (1 + 1e-12)).all()


def test_a_cube_and_a_rod_are_less_spherical() -> None:
    labels = np.zeros((40, 40, 60), np.int32)
    labels[5:25, 5:25, 5:25] = 1
    labels[30:34, 30:34, 5:45] = 2
    cube, rod = hushpore.measure_labels(labels, values="labels").pores["sphericity"]
    assert cube == pytest.approx((np.pi / 6) ** (1 / 3), rel=0.12)
    assert rod < 0.65


def test_only_a_cut_pore_has_an_inscribed_diameter_above_the_equivalent_diameter(
    blurred_void: np.ndarray,
) -> None:
    pores = hushpore.segment_pores(blurred_void, minimum_shape_voxels=1).pores
    larger = pores["inscribed_diameter"] > pores["equivalent_diameter"] * (1 + 1e-9)
    is_cut = pores["touches_border"] | (pores["coordination_number"] > 0)
    assert larger.any()
    assert is_cut[larger].all()
