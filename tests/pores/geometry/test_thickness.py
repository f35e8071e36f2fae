"""Local thickness is that of the largest ball that covers a voxel, whatever the cuts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

import hushpore
from hushpore import Volume
from hushpore.pores.geometry import thickness as thickness_module
from hushpore.pores.geometry.thickness import Balls, find_thickness
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.slabs import Slabs, Stack
from hushpore.pores.watershed.distance import squared_distance


def thickness(
    phase: np.ndarray,
    spacing: tuple[float, ...] = (1, 1, 1),
    slab: int = 0,
    solid_outside: tuple[bool, ...] = (False,) * 3,
) -> np.ndarray:
    """Local thickness of a phase, in slabs of some slices."""
    with KernelThreads(2) as threads:
        distance = squared_distance(phase, spacing, solid_outside, threads)
        found = Stack(distance.shape, np.float32, None)
        slabs = Slabs(len(distance), slab or len(distance))
        how = Stack.of(distance), slabs, found, spacing, solid_outside, threads
        for _ in find_thickness(*how):
            pass
    return found.array()


def distance_around(
    phase: np.ndarray, spacing: tuple[float, ...], solid_outside: tuple[bool, ...]
) -> np.ndarray:
    """Distances of SciPy, with three voxels more on each side."""
    is_solid = np.array([[int(solid)] * 2 for solid in solid_outside])
    distance = ndimage.distance_transform_edt(np.pad(phase, is_solid), spacing)
    return np.pad(distance, 3 - is_solid, mode="edge")


def widths_of(around: np.ndarray, spacing: tuple[float, ...], has_sides: list[bool]) -> np.ndarray:
    """Return widths from distances around voxels, (balls, 7, 7, 7), as in docs/thickness.md."""
    own = around[:, 3, 3, 3]
    ways = np.array([way for way in np.ndindex(3, 3, 3) if way > (1, 1, 1)]) - 1
    ways = ways[((ways == 0) | has_sides).all(axis=1)]
    lengths = np.linalg.norm(ways * spacing, axis=1)

    def beside(steps: int) -> np.ndarray:
        sides = [around[(slice(None), *(3 + sign * steps * ways.T))] for sign in (1, -1)]
        return sides[0] + sides[1]

    widths = beside(1) + 2 * lengths
    near = np.maximum(own[:, None] - beside(1) / 2, 0) / lengths
    is_across = (near >= 0.2) | (near < 0.2).all(axis=1)[:, None]
    falls = near
    for steps in (2, 3):
        is_in = steps * lengths <= own[:, None] * (1 + 1e-6)
        far = np.maximum(own[:, None] - beside(steps) / 2, 0) / (steps * lengths)
        falls = np.where(is_in, far, falls)
    normals = (ways * spacing / lengths[:, None]) ** 2
    along = np.maximum(np.linalg.lstsq(normals, falls.T**2, rcond=None)[0], 0)
    total, curved = along.sum(axis=0), (along.T / np.square(spacing)).sum(axis=1)
    pairs = total / np.maximum(falls.max(axis=1), 0.4) ** 2
    nearer = np.interp(pairs, (1.5, 1.75, 3), (1, 0.1, -0.15))
    none = np.full(total.shape, float(min(spacing)) ** 2)
    step = np.sqrt(np.divide(total, curved, where=total > 1e-9, out=none))
    return np.where(is_across, widths, np.inf).min(axis=1) - np.minimum(nearer * step, own)


def by_definition(
    phase: np.ndarray, spacing: tuple[float, ...], solid_outside: tuple[bool, ...]
) -> np.ndarray:
    """Look at every ball for every voxel."""
    if not phase.any():
        return np.zeros(phase.shape)
    around = distance_around(phase, spacing, solid_outside)
    has_sides = [n > 1 or solid for n, solid in zip(phase.shape, solid_outside, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(around, (7, 7, 7))[phase]
    width = widths_of(windows, spacing, has_sides)
    place = np.argwhere(phase) * np.asarray(spacing)
    away = ((place[:, None] - place[None]) ** 2).sum(axis=-1)
    # the nearest voxel of the other phase is not in a ball, nor is what is just as far
    covered = away < (windows[:, 3, 3, 3] ** 2)[None] * (1 - 1e-6)
    found = np.zeros(phase.shape)
    found[phase] = np.where(covered, width[None], 0).max(axis=1, initial=0)
    return found


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.tuples(*[st.integers(1, 9)] * 3),
    st.sampled_from([(1, 1, 1), (1.7, 1, 0.9), (3, 1, 1), (0.3, 0.7, 0.55)]),
    st.tuples(*[st.booleans()] * 3),
    st.integers(1, 4),
)
def test_each_voxel_has_the_widest_ball_that_covers_it(
    seed: int,
    shape: tuple[int, ...],
    spacing: tuple[float, ...],
    solid_outside: tuple[bool, ...],
    slab: int,
) -> None:
    rng = np.random.default_rng(seed)
    phase = rng.random(shape) > rng.choice([0.02, 0.2, 0.6])
    phase.flat[rng.integers(phase.size)] = False
    found = thickness(phase, spacing, slab, solid_outside)
    np.testing.assert_array_equal(found > 0, phase)
    np.testing.assert_allclose(found, by_definition(phase, spacing, solid_outside), rtol=1e-5)


def places(size: int, middle: np.ndarray) -> np.ndarray:
    """Voxels of a cube, (z, y, x, 3), counted from somewhere near the middle one."""
    return np.stack(np.indices((size,) * 3), axis=-1) - (size // 2 + middle)


def shapes() -> dict[str, tuple[np.ndarray, np.ndarray, float]]:
    """Shapes wherever they may lie; of each the phase, where it is looked at, and its thickness."""
    rng = np.random.default_rng(8)
    found = {}
    for radius in (3.2, 4.7, 6.1, 8.4, 11.3):
        at = places(31, rng.uniform(-0.5, 0.5, 3))
        phase = (at**2).sum(axis=-1) < radius**2
        found[f"ball of {radius}"] = phase, phase, 2 * radius
    for radius in (3.4, 4.3, 5.2, 6.1, 7.3, 8.2):
        at, axis = places(45, rng.uniform(-0.5, 0.5, 3)), rng.normal(size=3)
        along = at @ (axis / np.linalg.norm(axis))
        phase = (at**2).sum(axis=-1) - along**2 < radius**2
        found[f"tilted cylinder of {radius}"] = phase, phase, 2 * radius
        phase = (at[..., 1:] ** 2).sum(axis=-1) < radius**2
        found[f"cylinder of {radius}"] = phase, phase, 2 * radius
    for width in (5.3, 7.6, 11.2, 15.5):
        at, axis = places(45, rng.uniform(-0.5, 0.5, 3)), rng.normal(size=3)
        phase = abs(at @ (axis / np.linalg.norm(axis))) < width / 2
        found[f"tilted plate of {width}"] = phase, phase, width
    for width in (5, 6, 7, 9, 10, 11):
        # bars that cross every 26 voxels; half way between two crossings
        at = abs((np.stack(np.indices((52,) * 3), axis=-1) + 5.5 - width % 2 / 2) % 26 - 13)
        phase = (at < width / 2).sum(axis=-1) >= 2
        near = np.sort(at, axis=-1)
        is_between = (np.hypot(near[..., 0], near[..., 1]) < 0.4 * width) & (near[..., 2] > 11)
        found[f"lattice of {width}"] = phase, phase & is_between, width
    return found


def test_shapes_are_as_thick_as_they_are() -> None:
    errors: dict[str, list[float]] = {}
    for name, (phase, place, width) in shapes().items():
        inner = np.zeros_like(phase)
        # a plate or cylinder that a face cuts aslant has no other wall there
        inner[(slice(12, -12),) * 3] = True
        looked_at = place & inner if "tilted" in name else place
        error = thickness(phase)[looked_at].mean(dtype=np.float64) - width
        assert abs(error) <= 0.5, (name, error)
        errors.setdefault(name.split(" of ")[0], []).append(error / width)
    means = {kind: float(np.mean(own)) for kind, own in errors.items()}
    assert all(abs(mean) < 0.02 for mean in means.values()), means


@pytest.mark.parametrize("spacing", [(1, 1, 1), (3, 1, 1), (1, 1, 10), (1.7, 1, 0.9)])
def test_plates_along_the_faces_are_as_thick_as_their_voxels(spacing: tuple[float, ...]) -> None:
    for axis in range(3):
        for count in (1, 2, 3, 8, 11):
            plate = np.zeros((15, 15, 15), bool)
            np.moveaxis(plate, axis, 0)[2 : 2 + count] = True
            np.testing.assert_allclose(
                thickness(plate, spacing)[plate], count * spacing[axis], rtol=1e-5
            )


def test_voxels_that_are_no_cubes_give_the_same_ball() -> None:
    for spacing in ((2.0, 1.0, 0.5), (3.0, 1.0, 1.0), (0.9, 1.7, 1.0)):
        shape = [int(30 / step) for step in spacing]
        at = (np.stack(np.indices(shape), axis=-1) - np.array(shape) / 2 + 0.2) * spacing
        ball = (at**2).sum(axis=-1) < 12**2
        found = thickness(ball, spacing)[ball].mean(dtype=np.float64)
        assert found == pytest.approx(24, abs=max(spacing) / 2)


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


def test_solid_goes_on_where_a_scan_is_filled_in() -> None:
    # layers of 5 voxels between closed void of 15, cut by what is filled in around a cylinder
    z, y, x = np.indices((60, 64, 64))
    layers, measured = z % 20 < 5, np.hypot(y - 31.5, x - 31.5) < 30
    grey = 1000 * layers + np.random.default_rng(0).normal(0, 20, z.shape)
    scan = np.where(measured, grey, -2000).astype(np.int16)
    found = hushpore.segment_pores(scan, local_thickness="solid", device="cpu")
    assert found.provenance["result"]["padding_value"] == -2000
    whole = layers & measured & (z >= 20) & (z < 40)
    diameter = found.thickness["solid"].diameter
    np.testing.assert_allclose(diameter[whole], 5, rtol=1e-5)
    assert not diameter[~measured].any()


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


class Far:
    """Distances of more voxels than 32 bits count, of which one is a ball."""

    shape = (9000, 1024, 1024)
    ball, radius = (5000, 7, 9), 4200.0

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, first: int, last: int) -> np.ndarray:
        found = np.zeros((last - first, *self.shape[1:]), np.float32)
        if first <= self.ball[0] < last:
            found[self.ball[0] - first, *self.ball[1:]] = self.radius**2
        return found


def test_a_ball_more_voxels_away_than_32_bits_count_keeps_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    within = thickness_module._BallSearch._within

    def only_near_the_ball(self: Any, start: int, stop: int, *how: Any) -> Any:
        if start <= Far.ball[0] < stop:
            return within(self, start, stop, *how)
        return tuple(np.empty(0, kind) for kind in (np.float32, np.float32, how[-1]))

    monkeypatch.setattr(thickness_module._BallSearch, "_within", only_near_the_ball)
    distance: Any = Far()
    known = Balls(Far.radius**2, distance.shape, (1.0, 1.0, 1.0), (False,) * 3)
    with KernelThreads(1) as threads:
        reaching = thickness_module._BallSearch(distance, known, Far.radius**2, 1.0, threads)
        radii, _, centres = reaching.balls(900, 901)
    assert radii.tolist() == [Far.radius**2]
    assert centres.tolist() == [[4100, 7, 9]]
