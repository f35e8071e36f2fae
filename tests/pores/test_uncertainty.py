from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore.base.events import Event, Note, Progress
from hushpore.base.volume import Volume
from hushpore.pores.flow import Network
from hushpore.pores.tables.totals import INTERVALS
from hushpore.pores.uncertainty import (
    Sample,
    bootstrap,
    combined,
    curve,
    flow_intervals,
    settled_at,
)


@pytest.fixture(scope="module")
def grey() -> np.ndarray:
    """Dark balls in a brighter solid, with noise."""
    rng = np.random.default_rng(3)
    centres = np.stack(np.meshgrid(*[np.arange(8, 48, 11)] * 3, indexing="ij"), -1).reshape(-1, 3)
    centres = centres + rng.uniform(-1, 1, centres.shape)
    away = np.min([np.linalg.norm(np.indices((48,) * 3).T - c, axis=-1) for c in centres], axis=0)
    solid = np.clip(away.T - 3.5, 0, 1)
    return (100 + 100 * solid + rng.normal(0, 6, solid.shape)).astype(np.float32)


@pytest.fixture(scope="module")
def result(grey: np.ndarray) -> hushpore.Pores:
    return hushpore.segment_pores(Volume(grey, spacing=2.0, unit="um"), intervals=True)


def test_parts_add_up_as_squares_on_each_side() -> None:
    found = combined(10.0, np.nan, 0, {"threshold": [7.0, 10.5], "merge height": [6.0, 10.0]})
    assert found.low == pytest.approx(10 - 0.9 * 5)
    assert found.high == pytest.approx(10 + 0.9 * 0.5)
    assert found.parts["threshold"] == pytest.approx((0.27, 0.045))
    # Student's t of 8 degrees of freedom, from a printed table
    alone = combined(10.0, 1.0, 9, {})
    assert (alone.low, alone.high) == (
        pytest.approx(8.140, abs=1e-3),
        pytest.approx(11.860, abs=1e-3),
    )


def test_a_figure_is_no_more_than_it_can_be() -> None:
    assert combined(0.9, 0.1, 9, {"threshold": [0.8, 0.95]}, 1.0).high == 1.0


def test_two_parts_of_a_scan_make_no_interval() -> None:
    # cells of a grid with open faces, and half of it with less void
    foam = np.ones((24, 24, 64), bool)
    for axis in range(3):
        np.moveaxis(foam, axis, 0)[::12] = False
    foam[:, 4:8, :] = foam[:, :, 4:8] = True
    foam[6:9, ::3, 32:] = False
    found = hushpore.segment_pores(foam, intervals=True)
    totals = found.provenance["result"]
    assert totals["bootstrap_parts"] == 2
    assert "sampling" not in totals["interval_parts"]["porosity"]
    assert totals["porosity_high"] <= 1
    assert any("too small for parts" in note for note in found.notes)


def test_figures_lie_in_their_intervals_and_stay_what_they_are(
    grey: np.ndarray, result: hushpore.Pores
) -> None:
    plain = hushpore.segment_pores(Volume(grey, spacing=2.0, unit="um"))
    totals, before = result.provenance["result"], plain.provenance["result"]
    assert {name: totals[name] for name in before} == before
    np.testing.assert_array_equal(result.labels, plain.labels)
    for name in INTERVALS:
        low, high = totals[f"{name}_low"], totals[f"{name}_high"]
        assert 0 < low <= totals[name] <= high < 2 * totals[name]
        assert set(totals["interval_parts"][name]) >= {"sampling", "threshold"}
    assert totals["threshold_low"] < totals["threshold"] < totals["threshold_high"]
    assert any("90 % intervals: porosity" in each.message for each in result.remarks)
    assert list(result.files().tables["rev"]["edge"]) == list(result.curve["edge"])


def test_what_is_outside_a_mask_has_no_part_in_intervals(grey: np.ndarray) -> None:
    # beside a bright block that is none of the sample, and of another noise
    rng = np.random.default_rng(5)
    block = rng.normal(400, 40, grey.shape).astype(np.float32)
    both = np.concatenate([grey, block], axis=2)
    mask = np.zeros(both.shape, bool)
    mask[..., : grey.shape[2]] = True
    how = {"threshold": 150.0, "intervals": True}
    alone = hushpore.segment_pores(grey, **how).provenance["result"]
    masked = hushpore.segment_pores(both, sample_mask=mask, **how).provenance["result"]
    assert masked["porosity"] == pytest.approx(alone["porosity"])
    for end in ("low", "high"):
        name = f"threshold_{end}"
        assert masked[name] == pytest.approx(alone[name], rel=0.02)
        assert masked[f"porosity_{end}"] == pytest.approx(alone[f"porosity_{end}"], rel=0.1)


def test_merged_anew_there_are_none_of_what_was_before(result: hushpore.Pores) -> None:
    again = result.remerge(3.0)
    assert "count_low" not in again.provenance["result"]
    assert again.provenance["settings"]["intervals"] is False
    assert not any("intervals" in each.message for each in again.remarks)
    assert "porosity" in again.curve
    assert "density" not in again.curve


def test_voxels_of_another_size_have_other_lengths(result: hushpore.Pores) -> None:
    totals = result.provenance["result"]
    larger = result.resized((4.0,) * 3, "um")
    assert larger.provenance["result"]["median_diameter_low"] == 2 * totals["median_diameter_low"]
    assert larger.provenance["result"]["porosity_low"] == totals["porosity_low"]
    assert larger.curve["edge"] == pytest.approx(2 * result.curve["edge"])
    assert larger.curve["density"] == pytest.approx(result.curve["density"] / 8)


def test_the_void_itself_has_no_threshold_that_could_be_another(grey: np.ndarray) -> None:
    totals = hushpore.segment_pores(grey < 150, intervals=True).provenance["result"]
    assert "threshold_low" not in totals
    assert "threshold" not in totals["interval_parts"]["porosity"]
    assert totals["porosity_low"] < totals["porosity"]


@pytest.mark.parametrize("ends", [(0.0, 300.0), (130.0, 170.0), (149.5, 150.5)])
def test_grey_values_that_were_cut_off_make_intervals_too_narrow_which_is_told(
    grey: np.ndarray, ends: tuple[float, float]
) -> None:
    low, high = ends
    in_bytes = ((grey.clip(*ends) - low) / (high - low) * 255).round().astype(np.uint8)
    notes = hushpore.segment_pores(in_bytes, intervals=True).notes
    assert any("clipped" in note for note in notes) == (high - low < 100)


def test_an_image_has_intervals_too(grey: np.ndarray) -> None:
    found = hushpore.segment_pores(grey[8], intervals=True)
    totals = found.provenance["result"]
    assert totals["count_low"] < totals["count"] == len(found.pores) < totals["count_high"]


def test_small_and_large_scans_are_told_what_there_is_not(grey: np.ndarray) -> None:
    small = hushpore.segment_pores(grey[:12, :12, :12], intervals=True)
    assert any("too small for parts" in note for note in small.notes)
    events: list[Event] = []
    how = {"intervals": True, "memory_budget": 0.001}
    large = hushpore.run("pores", grey, how, on_event=events.append)
    assert sum("There are no intervals" in note for note in large.notes) == 1
    # before any work
    texts = [each.message if isinstance(each, Note) else "" for each in events]
    said = ["There are no intervals" in text for text in texts].index(True)
    assert not any(isinstance(each, Progress) and each.done for each in events[:said])
    assert "count_low" not in large.provenance["result"]
    without = hushpore.segment_pores(np.zeros((8, 8, 8), bool), intervals=True)
    assert "count_low" not in without.provenance["result"]


def test_markers_that_another_threshold_takes_for_solid_are_passed_over(
    grey: np.ndarray, result: hushpore.Pores
) -> None:
    totals = result.provenance["result"]
    # whole pores, with rims that are solid by a lower threshold
    marked = hushpore.segment_pores(
        Volume(grey, spacing=2.0, unit="um"), markers=result.labels, intervals=True
    ).provenance["result"]
    for name in ("porosity", "median_diameter"):
        for end in ("low", "high"):
            assert marked[f"{name}_{end}"] == pytest.approx(totals[f"{name}_{end}"], rel=0.05)
    # in the rim alone there is none left by the lower threshold, and so no pore
    values = grey[result.labels == 1]
    rim = np.where((result.labels == 1) & (grey == values.max()), 1, 0)
    alone = hushpore.segment_pores(grey, markers=rim, intervals=True).provenance["result"]
    assert alone["count_low"] < alone["count"] == 1
    assert alone["interval_parts"]["count"]["threshold"] == pytest.approx((0.9, 0))


def tubes(radius: float, noise: float, seed: int) -> tuple[Volume, float, float]:
    """Nine tubes along z with blurred walls, and their permeability and formation factor."""
    rng = np.random.default_rng(seed)
    pitch, fine = int(2 * radius + 8), 5
    edge = 3 * pitch
    y, x = (np.mgrid[: edge * fine, : edge * fine] + 0.5) / fine
    void = np.zeros(y.shape, bool)
    for place in np.ndindex(3, 3):
        middle = (np.array(place) + 0.5) * pitch + rng.uniform(-0.5, 0.5, 2)
        void |= (y - middle[0]) ** 2 + (x - middle[1]) ** 2 < radius**2
    share = void.reshape(edge, fine, edge, fine).mean(axis=(1, 3))
    plane = ndimage.gaussian_filter(200 - 150 * share, 0.8)
    grey = plane + rng.normal(0, 150 * noise, (40, edge, edge))
    section = 9 * np.pi * radius**2 / edge**2
    return Volume(grey.astype(np.float32)), section * radius**2 / 8, 1 / section


@pytest.mark.parametrize(("radius", "noise"), [(3.3, 0.08), (5.2, 0.05), (8.1, 0.03)])
def test_intervals_of_flow_hold_that_of_tubes(radius: float, noise: float) -> None:
    volume, permeability, formation_factor = tubes(radius, noise, 2)
    how = {"exterior": "keep", "intervals": True}
    found = hushpore.segment_pores(volume, report_form="rock", **how)
    totals = found.provenance["result"]
    truth = {
        "permeability_z": permeability,
        "formation_factor_z": formation_factor,
        "breakthrough_diameter_z": 2 * radius,
    }
    for name, value in truth.items():
        low, high = totals[f"{name}_low"], totals[f"{name}_high"]
        assert low < value < high
        assert low < totals[name] < high < 7 * low
        assert set(totals["interval_parts"][name]) == {"threshold", "merge height", "voxel size"}
    # nothing flows across
    assert "permeability_x" not in totals
    assert "permeability_x_low" not in totals
    form = found.form("rock").set_index("symbol")
    assert form.loc["F_net,z", "low"] == totals["formation_factor_z_low"]
    assert form.loc["F_net,z", "value"] == pytest.approx(totals["formation_factor_z"])
    electrode = found.form("electrode").set_index("symbol")
    assert electrode.loc["N_net,z", "high"] == totals["formation_factor_z_high"]
    # only with a form of flow, and not of other pores
    other = hushpore.segment_pores(volume, **how).provenance["result"]
    assert "permeability_z_low" not in other
    assert other == {name: each for name, each in totals.items() if name in other} | {
        "interval_parts": other["interval_parts"]
    }
    assert "permeability_z" not in found.remerge(3.0).provenance["result"]
    larger = found.resized((2.0,) * 3, "um").provenance["result"]
    assert larger["permeability_z_high"] == pytest.approx(4 * totals["permeability_z_high"])


def test_air_around_a_sample_leaves_flow_without_intervals(grey: np.ndarray) -> None:
    in_air = np.pad(grey, 8, constant_values=100)
    found = hushpore.segment_pores(in_air, report_form="rock", intervals=True)
    assert found.provenance["result"]["exterior_share"] > 0
    assert "porosity_low" in found.provenance["result"]
    assert "permeability_z_low" not in found.provenance["result"]


def network(width: float) -> Network:
    """Two pores in a row along z, with a throat of a width."""
    faces = np.zeros((3, 2, 2), bool)
    faces[0, 0, 0] = faces[0, 1, 1] = True
    return Network(
        np.full(2, 6.0),
        np.full(2, 100.0),
        np.array([[0, 1]]),
        np.array([width]),
        np.full((1, 2), 4.0),
        faces,
        np.full((3, 2, 2), 4.0),
        np.full(3, 16.0),
    )


def test_ways_that_close_have_permeability_down_to_nothing_and_no_formation_factor() -> None:
    volume = Volume(np.zeros((16,) * 3, bool))
    figures, intervals = flow_intervals(network(0.8), {}, volume)
    assert set(figures) == {"permeability_z", "formation_factor_z", "breakthrough_diameter_z"}
    assert set(intervals) == {"permeability_z", "breakthrough_diameter_z"}
    assert intervals["permeability_z"].low == pytest.approx(0.1 * figures["permeability_z"])
    assert intervals["breakthrough_diameter_z"].high == pytest.approx(0.8 + 0.9)
    others = {"threshold": [network(3.0), network(2.0)]}
    wide = flow_intervals(network(2.5), others, volume)[1]["breakthrough_diameter_z"]
    assert wide.low == pytest.approx(2.5 - 0.9 * np.hypot(0.5, 1))
    assert wide.parts["threshold"] == pytest.approx((0.18, 0.18))


def sample_of(void: np.ndarray, places: np.ndarray, spacing: float = 1.0) -> Sample:
    diameter = np.linspace(1, 2, len(places))
    whole = np.ones(void.shape, bool)
    return Sample(void, whole, places, diameter, (spacing,) * void.ndim)


def scattered(share: float = 0.3, size: int = 48, pores: int = 500) -> Sample:
    """Void voxels and pores that are each at random, which theory knows all of."""
    rng = np.random.default_rng(1)
    return sample_of(rng.random((size,) * 3) < share, rng.integers(0, size, (pores, 3)))


def test_the_error_of_what_is_at_random_is_that_of_counting() -> None:
    (porosity, count, median), parts = bootstrap(scattered(), 4.0)
    assert parts == 6**3
    assert porosity == pytest.approx(np.sqrt(0.3 * 0.7 / 48**3), rel=0.25)
    assert count == pytest.approx(np.sqrt(500), rel=0.25)
    # of diameters that are uniform from 1 to 2
    assert median == pytest.approx(0.5 / np.sqrt(500), rel=0.25)


def test_of_few_thick_slices_no_part_is_taken_twice() -> None:
    rng = np.random.default_rng(0)
    places = np.stack([rng.integers(0, n, 300) for n in (3, 60, 60)], axis=1)
    void, sample = rng.random((3, 60, 60)) < 0.3, np.ones((3, 60, 60), bool)
    given = Sample(void, sample, places, rng.uniform(1, 2, 300), (60.0, 1.0, 1.0))
    assert bootstrap(given, 5.0)[1] == 3 * 6 * 6


def test_a_scan_of_one_part_tells_nothing_of_others() -> None:
    errors, parts = bootstrap(scattered(), 40.0)
    assert parts == 1
    assert np.isnan(errors).all()


def test_what_is_outside_the_sample_is_no_part_of_it() -> None:
    given = scattered()
    given.sample[:24] = given.void[:24] = False
    within = given.places[:, 0] >= 24
    given = Sample(given.void, given.sample, given.places[within], given.diameter[within], (1,) * 3)
    assert bootstrap(given, 4.0)[1] == 6**3 // 2
    assert curve(given)["porosity"] == pytest.approx(0.3, abs=0.01)


def test_cubes_have_the_porosity_of_what_lies_in_them() -> None:
    given = scattered(size=32, pores=100)
    found = curve(given)
    assert found["edge"].tolist() == list(range(2, 33, 2))
    assert found["cubes"].tolist() == [n**3 for n in range(16, 0, -1)]
    corners = np.lib.stride_tricks.sliding_window_view(given.void, (10, 10, 10))[::2, ::2, ::2]
    shares = corners.mean(axis=(3, 4, 5)).ravel()
    at = found["edge"].tolist().index(10)
    assert found["porosity"][at] == pytest.approx(shares.mean())
    assert found["porosity_low"][at] == pytest.approx(np.quantile(shares, 0.05))
    assert found["porosity"][-1] == pytest.approx(given.void.mean())
    assert found["density"][-1] == pytest.approx(100 / 32**3)


def test_a_porosity_settles_where_cubes_no_longer_differ() -> None:
    # stripes of 4 voxels: squares of 20 hold 8 or 12 rows of them, of 28 12 or 16, of 32 always 16
    void = np.zeros((64, 64), bool)
    void[np.arange(64) % 8 < 4] = True
    found = curve(sample_of(void, np.zeros((1, 2), np.int64)))
    assert settled_at(found, 64.0) == 32
    void[:32] = False
    assert settled_at(curve(sample_of(void, np.zeros((1, 2), np.int64))), 64.0) is None
