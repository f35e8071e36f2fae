"""D10, D50 and D90, pores cut by faces, and measures of small balls."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore.base.events import Remedy


@pytest.fixture(scope="module")
def void() -> np.ndarray:
    smooth = ndimage.gaussian_filter(np.random.default_rng(0).random((30, 40, 50)), 2)
    return smooth < np.quantile(smooth, 0.15)


def inverted(sizes: np.ndarray, weights: np.ndarray, share: float) -> float:
    """Smallest size up to which a share of the weights lies, by NumPy."""
    return float(np.quantile(np.repeat(sizes, weights), share, method="inverted_cdf"))


@pytest.mark.parametrize("edge_pores", ["keep", "sizes", "remove"])
def test_percentiles_are_those_of_numpy_with_and_without_cut_pores(
    void: np.ndarray, edge_pores: str
) -> None:
    result = hushpore.segment_pores(void, edge_pores=edge_pores)
    totals, table = result.provenance["result"], result.pores
    every = hushpore.segment_pores(void)
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
    void: np.ndarray,
) -> None:
    every = hushpore.segment_pores(void)
    cut = int(every.pores["touches_border"].sum())
    (said,) = (each for each in every.remarks if "cut by the faces" in each.message)
    assert said.message.startswith(f"{cut} of {len(every.pores)} pores are cut")
    assert said.remedy == Remedy("Exclude from sizes", {"edge_pores": "sizes"})
    without = hushpore.segment_pores(void, **said.remedy.settings)
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
    void: np.ndarray,
) -> None:
    pores = hushpore.segment_pores(void, minimum_shape_voxels=1).pores
    larger = pores["inscribed_diameter"] > pores["equivalent_diameter"] * (1 + 1e-9)
    is_cut = pores["touches_border"] | (pores["coordination_number"] > 0)
    assert larger.any()
    assert is_cut[larger].all()
