"""Local thickness is that of the largest ball that covers a voxel, whatever the cuts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

import hushpore
from hushpore import Volume
from hushpore.pores.distance import squared_distance
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.slabs import Slabs, Stack
from hushpore.pores.thickness import find_thickness


def thickness(
    phase: np.ndarray, spacing: tuple[float, ...] = (1, 1, 1), slab: int = 0
) -> np.ndarray:
    """Local thickness of a phase, in slabs of some slices."""
    with KernelThreads(2) as threads:
        distance = squared_distance(phase, spacing, (False,) * 3, threads)
        found = Stack(distance.shape, np.float32, None)
        slabs = Slabs(len(distance), slab or len(distance))
        for _ in find_thickness(Stack.of(distance), slabs, found, spacing, threads):
            pass
    return found.array()


def by_definition(phase: np.ndarray, spacing: tuple[float, ...]) -> np.ndarray:
    """Look at every ball for every voxel, with the distances of SciPy."""
    radius = ndimage.distance_transform_edt(phase, spacing)[phase]
    place = np.argwhere(phase) * np.asarray(spacing)
    away = ((place[:, None] - place[None]) ** 2).sum(axis=-1)
    # the nearest voxel of the other phase is not in a ball, nor is what is just as far
    covered = away < (radius**2)[None] * (1 - 1e-6)
    found = np.zeros(phase.shape)
    found[phase] = 2 * np.where(covered, radius[None], 0).max(axis=1, initial=0)
    return found


def places(size: int) -> np.ndarray:
    """Voxels of a cube, (z, y, x, 3), counted from the middle one."""
    return np.stack(np.indices((size,) * 3), axis=-1) - (size - 1) / 2


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.tuples(*[st.integers(1, 11)] * 3),
    st.sampled_from([(1, 1, 1), (1.7, 1, 0.9), (3, 1, 1), (0.3, 0.7, 0.55)]),
    st.integers(1, 4),
)
def test_each_voxel_has_the_largest_ball_that_covers_it(
    seed: int, shape: tuple[int, ...], spacing: tuple[float, ...], slab: int
) -> None:
    rng = np.random.default_rng(seed)
    phase = rng.random(shape) > rng.choice([0.02, 0.2, 0.6])
    phase.flat[rng.integers(phase.size)] = False
    found = thickness(phase, spacing, slab)
    np.testing.assert_allclose(found, by_definition(phase, spacing), rtol=1e-6)


def test_a_ball_and_a_cylinder_are_as_thick_as_they_are() -> None:
    at = places(31)
    for radius in (6, 9, 12.5):
        ball = (at**2).sum(axis=-1) < radius**2
        cylinder = (at[..., 1:] ** 2).sum(axis=-1) < radius**2
        for shape in (ball, cylinder):
            values = thickness(shape)[shape]
            assert np.median(values) == pytest.approx(2 * radius, abs=0.5)
            assert values.mean() == pytest.approx(2 * radius, rel=0.02)


def test_plates_are_as_thick_as_they_are_up_to_one_voxel() -> None:
    for count in (8, 11, 20, 25):
        plate = np.zeros((30, 24, 70), bool)
        plate[2 : 2 + count] = True
        values = thickness(plate)[plate]
        # an odd number of slices has a middle one, an even number none
        assert (values == count + count % 2).all()


def test_struts_and_cells_of_a_lattice_keep_their_widths() -> None:
    # square bars, 10 wide, that cross every 40 voxels
    bar = (np.arange(80) + 5) % 40 < 10
    z, y, x = np.meshgrid(bar, bar, bar, indexing="ij")
    lattice = (z & y) | (z & x) | (y & x)
    values = thickness(lattice)
    along = values[0, 0, 15:25]
    assert np.median(along) == pytest.approx(10, abs=0.5)


def test_voxels_that_are_no_cubes_give_the_same_ball() -> None:
    spacing = (2.0, 1.0, 0.5)
    at = np.stack(np.indices((15, 29, 57)), axis=-1) - (7, 14, 28)
    ball = ((at * spacing) ** 2).sum(axis=-1) < 12**2
    values = thickness(ball, spacing)[ball]
    assert values.max() == pytest.approx(24, abs=0.5)
    assert values.mean() == pytest.approx(24, rel=0.02)


@pytest.fixture(scope="module")
def foam() -> Volume:
    noise = ndimage.gaussian_filter(np.random.default_rng(4).normal(size=(34, 40, 66)), 2.5)
    return Volume(noise > 0, spacing=(1.5, 1, 1.2), unit="um", name="foam")


@pytest.fixture(scope="module")
def measured(foam: Volume) -> hushpore.pores.result.Pores:
    return hushpore.segment_pores(foam, local_thickness="both", device="cpu")


def test_slabs_on_disk_give_the_same_bits(foam, measured) -> None:
    in_slabs = hushpore.segment_pores(
        foam, local_thickness="both", device="cpu", memory_budget=0.0012
    )
    assert any("slabs" in note for note in in_slabs.notes)
    for phase in ("void", "solid"):
        a, b = measured.thickness[phase], in_slabs.thickness[phase]
        np.testing.assert_array_equal(a.diameter, b.diameter)
        np.testing.assert_array_equal(a.counts, b.counts)
    assert measured.provenance["result"] == in_slabs.provenance["result"]


def test_the_totals_are_those_of_the_layers(foam, measured) -> None:
    totals = measured.provenance["result"]
    for phase, mask in (("void", foam.data), ("solid", ~foam.data)):
        diameter = measured.thickness[phase].diameter
        np.testing.assert_array_equal(diameter > 0, mask)
        values = diameter[mask].astype(np.float64)
        assert totals[f"{phase}_thickness"] == pytest.approx(values.mean())
        assert totals[f"{phase}_thickness_deviation"] == pytest.approx(values.std())
        table = measured.thickness_distribution
        table = table[table["phase"] == phase]
        assert table["volume_share"].sum() == pytest.approx(1)
        assert table["volume"].sum() == pytest.approx(mask.sum() * 1.8)


def test_each_phase_is_measured_where_it_is_asked_for(foam, measured) -> None:
    none = hushpore.segment_pores(foam, device="cpu")
    assert none.thickness == {}
    assert "void_thickness" not in none.provenance["result"]
    solid = hushpore.segment_pores(foam, local_thickness="solid", device="cpu")
    assert set(solid.thickness) == {"solid"}
    np.testing.assert_array_equal(
        solid.thickness["solid"].diameter, measured.thickness["solid"].diameter
    )
    np.testing.assert_array_equal(solid.labels, none.labels)


def test_merging_again_and_another_voxel_size_keep_what_was_measured(measured) -> None:
    again = measured.remerge(2.0)
    assert again.thickness is measured.thickness
    assert "void_thickness" in again.provenance["result"]
    twice = measured.resized((3, 2, 2.4), "um")
    before, after = (each.provenance["result"] for each in (measured, twice))
    for name in ("void_thickness", "solid_thickness_deviation"):
        assert after[name] == pytest.approx(2 * before[name])
    assert twice.thickness["void"].mean == pytest.approx(2 * measured.thickness["void"].mean)
    np.testing.assert_allclose(
        twice.thickness["void"].diameter, 2 * measured.thickness["void"].diameter
    )


@pytest.mark.parametrize("value", [False, True])
def test_a_phase_that_nothing_ends_has_no_thickness(value: bool) -> None:
    found = hushpore.segment_pores(np.full((4, 5, 6), value), local_thickness="both", device="cpu")
    whole, absent = ("void", "solid") if value else ("solid", "void")
    assert np.isinf(found.thickness[whole].diameter).all()
    assert not found.thickness[absent].diameter.any()
    assert found.provenance["result"]["void_thickness"] is None
    assert found.thickness_distribution.empty


def test_an_image_has_the_largest_disc() -> None:
    y, x = np.indices((41, 41)) - 20
    found = hushpore.segment_pores(np.hypot(y, x) < 12, local_thickness="void", device="cpu")
    assert found.thickness["void"].diameter.shape == (41, 41)
    assert found.thickness["void"].mean == pytest.approx(24, rel=0.02)


def test_a_result_folder_holds_images_distribution_and_totals(measured, tmp_path) -> None:
    from hushpore.runs.result_folder import write_result

    folder = write_result(tmp_path / "result", [measured], measured.volume)
    image = hushpore.read(folder / "solid_thickness.tif")
    np.testing.assert_array_equal(image.array(), measured.thickness["solid"].diameter)
    assert (image.spacing, image.unit) == (measured.volume.spacing, "um")
    head = (folder / "thickness.csv").read_text(encoding="utf-8").splitlines()[0]
    assert head == "phase,thickness_from,thickness_to,volume,volume_share"
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert result["jobs"][0]["result"]["solid_thickness"] == measured.thickness["solid"].mean
    assert "Mean local thickness of the pores" in (folder / "report.html").read_text("utf-8")
