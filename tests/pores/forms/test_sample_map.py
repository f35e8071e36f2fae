"""Depths below the surface and profiles, against cylinders and gradients that are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import hushpore
from hushpore import Volume
from hushpore.pores.forms.sample_map import BINS, SampleMap


def cylinder(size: int, radius: float, step: int) -> tuple[np.ndarray, np.ndarray]:
    """A cylinder in air, off the middle, with a hole every `step` voxels in its outer half."""
    z, y, x = np.indices((30, size, size))
    apart = np.hypot(y - size / 2 - 4, x - size / 2 + 3)
    sample = apart < radius
    hole = (z % step < 3) & (y % step < 3) & (x % step < 3)
    hole &= (apart > radius / 2) & (apart < radius - 4)
    return sample, hole


@pytest.mark.parametrize(("size", "radius"), [(60, 22.0), (300, 110.0)])
def test_a_porous_shell_is_found_by_depth_and_radius(size: int, radius: float) -> None:
    sample, hole = cylinder(size, radius, 9)
    grey = np.where(sample & ~hole, 200, 10).astype(np.uint8)
    volume = Volume(grey, spacing=0.5, unit="mm")
    found = hushpore.segment_pores(volume, exterior="remove-slicewise", ball_radius=5)
    assert found.provenance["result"]["exterior_share"] == pytest.approx(
        1 - sample.mean(), abs=0.01
    )
    made = SampleMap.of(found.basins, volume, in_air=True, threshold=found.threshold)
    coarse = -(-size // 128)
    np.testing.assert_allclose(made.sample.mean(), sample.mean(), rtol=0.02)
    # the axis of the cylinder has the greatest depth, its radius
    assert made.depth.max() == pytest.approx(0.5 * radius, abs=0.5 * (coarse + 0.5))
    profiles = made.profiles()
    depth, by_radius = profiles["profile_depth"], profiles["profile_radius"]
    assert len(depth["porosity"]) == BINS
    np.testing.assert_allclose(np.sum(depth["sample_share"]), 1)
    # all of it is in the outer half
    inner = depth["depth_from"] > 0.5 * (radius / 2 + coarse)
    assert np.nansum(depth["porosity"][inner]) == 0
    assert np.nanmax(depth["porosity"][~inner]) > 0.02
    outside = by_radius["radius_to"] < 0.5 * (radius / 2 - coarse)
    assert np.nansum(by_radius["porosity"][outside]) == 0


def test_faces_are_the_surface_of_a_volume_that_is_all_sample() -> None:
    void = np.zeros((20, 30, 40), bool)
    void[8:10, 14:16, 3:5] = True
    volume = Volume(void, spacing=(1.0, 0.5, 2.0), unit="mm")
    made = SampleMap.of(void, volume, in_air=False)
    z, y, x = np.indices(void.shape)
    expected = np.minimum.reduce(
        [(np.minimum(each, n - 1 - each) + 0.5) * step
         for each, n, step in zip((z, y, x), void.shape, volume.spacing, strict=True)]
    )  # fmt: skip
    np.testing.assert_allclose(made.depth, expected)
    at = made.depth_at(np.array([[9.0, 15.0, 4.0]]), np.array(volume.spacing))
    assert at.tolist() == [expected[9, 15, 4]]


def test_a_gradient_by_depth_has_its_porosity_in_each_bin() -> None:
    rng = np.random.default_rng(0)
    z, y, x = np.indices((80, 80, 80))
    depth = np.minimum.reduce([np.minimum(each, 79 - each) + 0.5 for each in (z, y, x)])
    void = rng.random(depth.shape) < depth / 100
    table = SampleMap.of(void, Volume(void), in_air=False).profiles()["profile_depth"]
    middle = (table["depth_from"] + table["depth_to"]) / 2
    points = table["sample_share"] * depth.size
    # four standard errors of counting
    limit = 4 * np.sqrt(0.25 / points)
    assert (np.abs(table["porosity"] - middle / 100) < limit).all()


def test_pores_of_a_casting_have_their_depth_as_a_column() -> None:
    z, y, x = np.indices((60, 80, 80))
    grey = np.where(np.hypot(y - 40, x - 40) < 34, 200, 20).astype(np.uint8)
    centres = [(20, 40, 40), (30, 40, 60), (40, 18, 40)]
    for cz, cy, cx in centres:
        grey[(z - cz) ** 2 + (y - cy) ** 2 + (x - cx) ** 2 < 4.5**2] = 20
    volume = Volume(grey, spacing=0.5, unit="mm")
    how = {"exterior": "remove", "threshold": 110.0}
    found = hushpore.segment_pores(volume, report_form="casting", **how)
    pores = found.files().tables["pores"]
    assert "surface_distance" not in found.pores
    place = np.stack([pores[f"centroid_{axis}"] for axis in "zyx"], axis=-1) / 0.5
    # the ends of the cylinder are cut by faces, which are no surface in air
    depth = 34 - np.hypot(place[:, 1] - 40, place[:, 2] - 40)
    radius = pores["equivalent_diameter"] / 2 / 0.5
    assert len(pores) == 3
    np.testing.assert_allclose(pores["surface_distance"] / 0.5, depth - radius, atol=1.5)
    # without air the faces are the surface
    kept = hushpore.segment_pores(volume, report_form="bread", exterior="keep", threshold=110.0)
    table = kept.files().tables["pores"]
    np.testing.assert_array_equal(table["surface_distance"], table["face_distance"])


def test_a_casting_in_air_has_depths_below_its_skin() -> None:
    sample = np.zeros((60, 60, 60), bool)
    sample[8:52, 10:50, 12:48] = True
    hole = np.zeros_like(sample)
    hole[28:34, 18:24, 28:34] = True
    grey = np.where(sample & ~hole, 200, 10).astype(np.uint8)
    volume = Volume(grey, spacing=0.1, unit="mm")
    found = hushpore.segment_pores(volume, exterior="remove", report_form="casting")
    form = found.form("casting").set_index("symbol")["value"]
    # its centre lies 11 voxels below the skin at y = 10, its edge 8
    assert form["a_max"] == pytest.approx(0.8, abs=0.1)
    assert form["a_min"] == pytest.approx(0.8, abs=0.1)
    tables = found.files().tables
    assert {"profile_depth", "profile_radius"} <= set(tables)
    assert isinstance(tables["profile_depth"], pd.DataFrame)
    # the same of a mask that says what the sample is
    masked = Volume(grey, spacing=0.1, unit="mm", auxiliary={"mask": sample})
    of_mask = hushpore.segment_pores(masked, sample_mask="mask").form("casting")
    depth = of_mask.set_index("symbol")["value"]["a_max"]
    assert depth == pytest.approx(form["a_max"], abs=1e-9)
