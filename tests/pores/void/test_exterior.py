"""What is found around a sample, in scans that are made of its solid, its void and air around."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore import Volume, sample_data
from hushpore.base.events import Remedy
from hushpore.pores.settings import PoreSettings
from hushpore.scan.exterior import Exterior, find_exterior

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = (48, 128, 128)


def grid(shape: tuple[int, ...] = SHAPE) -> list[np.ndarray]:
    """Coordinates from the middle."""
    return np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in shape), indexing="ij", sparse=True)


@functools.cache
def texture(size: float, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> np.ndarray:
    """A random field with grains of some size, of variance one."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    field = ndimage.gaussian_filter(noise, size, mode="wrap")
    field /= field.std()
    # every test gets the same
    field.flags.writeable = False
    return field


def holes(share: float, size: float, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    """Void of a share and a size, anywhere."""
    field = texture(size, shape)
    return field < np.quantile(field, share)


def scan(
    solid: np.ndarray,
    *,
    air: float = 100,
    wall: float = 2000,
    noise: float = 40,
    dtype: Any = np.uint16,
) -> np.ndarray:
    """What a scanner makes of solid: blurred, noisy, and cut off at the ends of the type."""
    image = air + (wall - air) * ndimage.gaussian_filter(solid.astype(np.float32), 0.6)
    image += np.random.default_rng(1).normal(0, noise, image.shape)
    info = np.iinfo(dtype)
    return image.clip(info.min, info.max).astype(dtype)


def found(values: np.ndarray, spacing: object = 1.0, **settings: Any) -> Exterior:
    return find_exterior(Volume(values, spacing=spacing, unit="mm"), PoreSettings(**settings))


z, y, x = grid()
EVERYWHERE = np.ones(SHAPE, bool)
SMALL = holes(0.03, 1.6)


def core(radius: float, at: tuple[float, float] = (0, 0)) -> np.ndarray:
    return (np.hypot(y - at[0], x - at[1]) < radius) & EVERYWHERE


def ellipsoid(axes: tuple[float, float, float], at: tuple[float, float, float]) -> np.ndarray:
    terms = ((g - c) / a for g, a, c in zip((z, y, x), axes, at, strict=True))
    return np.asarray(sum(term**2 for term in terms) < 1)


CUT: dict[str, np.ndarray] = {
    "a core": core(56),
    "a core that touches the faces": core(64),
    "a core wider than the scan": core(76),
    "a core at the side": core(40, (18, -15)),
    "a tilted core": (np.hypot(y + 0.35 * z, x) < 44) & EVERYWHERE,
    "two cores": core(20, (-34, 0)) | core(20, (34, 0)),
    "a core that is split": core(56) & (np.abs(y) > 8),
    "a plate with a face up": (z > -8) & EVERYWHERE,
    "a plate with a face aside": (x > -30) & EVERYWHERE,
}
TUBE = core(50) & ~core(38)
WHOLE: dict[str, np.ndarray] = {
    "a potato": (z / 20) ** 2 + (y / 48) ** 2 + (x / 40) ** 2 + 0.1 * texture(10) < 1,
    "two pieces": ellipsoid((15, 24, 28), (0, -28, -24)) | ellipsoid((19, 20, 32), (0, 32, 16)),
}


@pytest.mark.parametrize("noise", [0, 40, 400])
@pytest.mark.parametrize("name", CUT)
def test_air_around_what_is_cut_is_left_out_slice_by_slice(name: str, noise: float) -> None:
    assert found(scan(CUT[name] & ~SMALL, noise=noise))[:2] == ("remove-slicewise", 10)


@pytest.mark.parametrize("name", WHOLE)
def test_air_around_what_is_whole_is_left_out(name: str) -> None:
    assert found(scan(WHOLE[name] & ~SMALL))[:2] == ("remove", 10)


@pytest.mark.parametrize("name", [*CUT, *WHOLE])
def test_the_share_of_the_air_is_known_about(name: str) -> None:
    sample = {**CUT, **WHOLE}[name]
    assert found(scan(sample & ~SMALL)).share == pytest.approx(1 - sample.mean(), abs=0.1)


def test_a_tube_is_a_sample_whose_middle_is_a_pore() -> None:
    result = hushpore.segment_pores(scan(TUBE))
    assert result.porosity == pytest.approx(38**2 / 50**2, abs=0.02)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_a_block_without_air_is_kept_as_it_is(share: float) -> None:
    assert found(scan(~holes(share, 2))) == Exterior("keep", 10)


@pytest.mark.parametrize("size", [2, 4, 6])
@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_an_open_foam_is_kept_though_its_void_reaches_every_face(share: float, size: float) -> None:
    void = holes(share, size)
    assert all(face.mean() > 0.3 for axis in range(3) for face in (void.take(0, axis),))
    assert found(scan(~void)) == Exterior("keep", 10)
    assert found(void).treatment == "keep"
    # and so are one slice of it, and a few
    assert found(scan(~void)[20]).treatment == "keep"
    assert found(scan(~void)[20:25]).treatment == "keep"


def test_a_vug_at_a_face_or_a_corner_is_no_air_around() -> None:
    for at in ((0, 64, 10), (24, 64, 64)):
        assert found(scan(~SMALL & ~ellipsoid((18, 18, 18), at))).treatment == "keep"


def test_an_empty_vug_at_a_corner_is_not_filled_in_where_edges_are_sharp() -> None:
    # the lowest value is at the rim alone; other pores hold resin
    vug, pores = np.hypot(y + 64, x + 64) < 16, holes(0.05, 4)
    image = np.where(pores, 70, 150) * ~vug
    result = hushpore.segment_pores(image.astype(np.uint8), threshold=110, minimum_voxels=1)
    assert result.provenance["result"]["padding_value"] is None
    assert result.porosity == pytest.approx((pores | vug).mean(), abs=1e-6)


def test_the_foam_and_the_rock_of_others_are_kept(berea: np.ndarray) -> None:
    assert found(sample_data.foam_phantom().volume.data).treatment == "keep"
    assert found(berea).treatment == "keep"
    assert found(scan(~berea)).treatment == "keep"


def test_a_ball_that_would_get_into_a_foam_in_air_is_made_larger() -> None:
    foam = core(56) & ~holes(0.7, 5)
    # with the ball that is asked for much of it is gone
    taken = hushpore.segment_pores(scan(foam), exterior="remove-slicewise")
    assert taken.provenance["result"]["exterior_share"] > 0.5
    result = hushpore.segment_pores(scan(foam))
    assert result.provenance["result"]["ball_radius"] > 10
    assert result.provenance["settings"]["ball_radius"] == 10
    assert result.porosity == pytest.approx(1 - foam.sum() / core(56).sum(), abs=0.12)
    assert any("ball_radius) was raised from 10 to" in note for note in result.notes)


FIELD_OF_VIEW = (np.hypot(y, x) < 63) & EVERYWHERE


def filled_in(values: np.ndarray, value: int) -> np.ndarray:
    return np.where(FIELD_OF_VIEW, values, values.dtype.type(value))


HU: dict[str, Any] = {"air": -1000, "wall": 1500, "noise": 60, "dtype": np.int16}


@pytest.mark.parametrize("value", [-3024, -1024, 0, 3000])
@pytest.mark.parametrize("share", [0.03, 0.5, 0.8])
def test_what_is_filled_in_is_never_void(share: float, value: int) -> None:
    void = holes(share, 3)
    image = filled_in(scan(~void, **HU), value)
    around = found(image)
    assert (around.treatment, around.padding) == ("keep", value)
    result = hushpore.segment_pores(image)
    assert not (result.labels > 0)[~FIELD_OF_VIEW].any()
    assert result.porosity == pytest.approx(void[FIELD_OF_VIEW].mean(), abs=0.03)
    assert result.provenance["result"]["sample_voxels"] == pytest.approx(
        FIELD_OF_VIEW.sum(), rel=1e-3
    )
    said = f"Padding around the scan (value {value}, 24 % of the volume) was excluded."
    assert said in [remark.message for remark in result.remarks]


def in_bytes(solid: np.ndarray) -> np.ndarray:
    """What a scan in bytes is after sharpening: pores are 0, and solid is brightest beside them."""
    image = 200.0 * solid - 30
    image += 1.5 * (image - ndimage.gaussian_filter(image, 1))
    image += np.random.default_rng(1).normal(0, 8, image.shape)
    return image.clip(0, 255).round().astype(np.uint8)


@pytest.mark.parametrize("radius", [22, 40])
def test_an_empty_vug_at_one_corner_is_not_filled_in_after_sharpening(radius: float) -> None:
    vug = (np.hypot(y + 64, x + 64) < radius) & EVERYWHERE
    result = hushpore.segment_pores(in_bytes(~vug))
    assert result.provenance["result"]["padding_value"] is None
    # half of the solid was void, where the vug was left out
    assert result.porosity == pytest.approx(0, abs=0.002)


TILTED: dict[str, tuple[float, tuple[int, int]]] = {
    "a tilted box": (12, (0, 1)), "a turned box": (30, (1, 2)), "a box on an edge": (45, (0, 2))
}  # fmt: skip


@pytest.mark.parametrize("reshape", [False, True])
@pytest.mark.parametrize("name", TILTED)
def test_what_a_rotation_fills_in_with_zero_is_known(name: str, reshape: bool) -> None:
    angle, axes = TILTED[name]
    solid = scan(EVERYWHERE, wall=170, noise=8, dtype=np.uint8)
    turned = ndimage.rotate(solid, angle, axes, order=0, reshape=reshape)
    assert found(turned).padding == 0


@pytest.mark.parametrize("value", [0, 255])
def test_a_field_of_view_in_bytes_is_known_and_a_corner_of_it_where_it_is_stated(
    value: int,
) -> None:
    image = filled_in(scan(EVERYWHERE, wall=170, noise=8, dtype=np.uint8), value)
    assert found(image).padding == value
    corner = Volume(image[:, 64:, 64:], metadata={"padding_value": value})
    assert find_exterior(corner, PoreSettings()).padding == value


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("outside", ["keep", "remove-slicewise"])
def test_what_is_filled_in_is_left_out_where_it_is_said_what_the_sample_is(
    outside: str, masked: bool
) -> None:
    sample = core(40)
    image = filled_in(scan(sample & ~SMALL, **HU), -3024)
    settings = {"sample_mask": sample} if masked else {}
    result = hushpore.segment_pores(image, exterior=outside, **settings)
    if outside == "keep" and not masked:
        # every voxel counts
        assert (result.labels > 0)[~FIELD_OF_VIEW].all()
        said = [remark.message for remark in result.remarks]
        assert any(each.endswith(" of the volume) was counted as pore.") for each in said)
        return
    assert result.threshold == hushpore.segment_pores(image).threshold
    assert result.porosity == pytest.approx(SMALL[sample].mean(), abs=0.01)
    if masked:
        said = "Padding around the scan (value -3024) was excluded."
        assert said in [remark.message for remark in result.remarks]


@pytest.mark.parametrize("radius", [40, 58])
def test_air_within_what_is_filled_in_is_left_out_too(radius: float) -> None:
    sample = core(radius)
    image = filled_in(scan(sample & ~SMALL, **HU), -3024)
    around = found(image)
    assert (around.treatment, around.padding) == ("remove-slicewise", -3024)
    result = hushpore.segment_pores(image)
    assert result.porosity == pytest.approx(SMALL[sample].mean(), abs=0.01)
    said = "Surrounding air and padding (value -3024), "
    assert any(remark.message.startswith(said) for remark in result.remarks)


@pytest.mark.parametrize("noise", [0, 40])
def test_air_that_was_cut_off_at_zero_is_air_and_not_filled_in(noise: float) -> None:
    # pores hold the same value
    dark: dict[str, Any] = {"air": -200, "noise": noise}
    foam = holes(0.8, 4)
    assert found(scan(~foam, **dark)) == Exterior("keep", 10)
    assert hushpore.segment_pores(scan(~foam, **dark)).porosity == pytest.approx(0.8, abs=0.02)
    sample = core(50)
    around = found(scan(sample & ~SMALL, **dark))
    assert (around.treatment, around.padding) == ("remove-slicewise", None)


def test_a_head_and_its_rest_lie_in_air() -> None:
    # slices ten times as thick as pixels are wide; the head goes on below the last slice
    shape = (20, 200, 200)
    hz, hy, hx = grid(shape)
    head = (hy / 74) ** 2 + (hx / 58) ** 2 + ((hz - 9) / 22) ** 2 < 1
    rest = (np.abs(np.hypot(hy + 16, hx) - 95) < 3) & (hy > 46) & np.ones(shape, bool)
    sinus = (((hy + 30) / 9) ** 2 + (hx / 8) ** 2 + ((hz - 4) / 5) ** 2 < 1) & head
    image = scan((head & ~sinus) | rest, **{**HU, "wall": 40, "noise": 20})
    assert found(image, (5, 0.5, 0.5))[:2] == ("remove-slicewise", 10)
    result = hushpore.segment_pores(Volume(image, spacing=(5, 0.5, 0.5), unit="mm"))
    # but for what lies between the head and the rest
    assert (result.labels > 0)[sinus].mean() > 0.85
    assert (result.labels > 0)[~head & ~rest].mean() < 0.04


def test_air_is_as_dark_as_pores_are() -> None:
    image = 4000 - scan(core(50) & ~SMALL)
    assert found(image, pores_are="bright").treatment == "remove-slicewise"
    assert found(image, pores_are="dark").treatment == "keep"


@pytest.mark.parametrize("method", ["li", "triangle", "sauvola", 1000.0])
def test_whatever_finds_the_threshold_the_air_is_found(method: str | float) -> None:
    assert found(scan(core(50) & ~SMALL), threshold=method).treatment == "remove-slicewise"


def test_the_dark_side_of_an_uneven_ground_is_no_air() -> None:
    ramp = np.linspace(200, 2000, 128) * np.ones(SHAPE)
    image = (ramp * (1 - 0.5 * SMALL)).astype(np.uint16)
    assert found(image, threshold="sauvola").treatment == "keep"


@pytest.mark.parametrize("bowl", [0, 0.3, -0.3])
def test_a_solid_whose_grey_drifts_is_told(bowl: float) -> None:
    # as the rays that come through the middle of a core have lost their soft part
    wall = 2000 * (1 + bowl * (x**2 + y**2) / 60**2)
    image = scan(core(60) & ~holes(0.15, 3), wall=wall, noise=200)
    assert found(image).drift == (pytest.approx(abs(bowl), abs=0.08) if bowl else 0)
    remarks = hushpore.segment_pores(image).remarks
    remedies = [note.remedy for note in remarks if "solid drifts across" in note.message]
    expected = Remedy("Use a local threshold", {"threshold": "sauvola"})
    assert remedies == ([expected] if bowl else [])
    local = hushpore.segment_pores(image, threshold="sauvola")
    assert not any("solid drifts across the sample" in note for note in local.notes)


@pytest.mark.parametrize("grains", [4, 12])
def test_coarse_grains_of_two_minerals_are_no_drift(grains: float) -> None:
    wall = 2000 - 600 * (texture(grains, seed=2) > 0)
    assert found(scan(~holes(0.15, 3), wall=wall)).drift == 0


@pytest.mark.parametrize(("size", "is_told"), [(1, False), (6, True)])
def test_void_at_the_surface_that_the_ball_takes_is_told_where_it_is_much(
    size: float, is_told: bool
) -> None:
    void, sample = holes(0.4, size), core(50)
    result = hushpore.segment_pores(scan(sample & ~void))
    assert (result.porosity < 0.93 * void[sample].mean()) == is_told
    assert any("open to the surface" in note for note in result.notes) == is_told


@pytest.mark.parametrize("name", ["a core", "a core wider than the scan", "a potato"])
def test_one_slice_is_enough(name: str) -> None:
    sample = {**CUT, **WHOLE}[name]
    assert found(scan(sample & ~SMALL)[24]).treatment == "remove"


@pytest.mark.parametrize("shape", [(5, 6, 7), (9, 10), (40, 5, 8)])
def test_what_is_too_small_to_tell_is_kept(shape: tuple[int, ...]) -> None:
    void = np.zeros(shape, bool)
    void[..., :4] = True
    assert found(void) == Exterior("keep", 10, pores_are="bright", only_values=(0, 1))


def test_a_mask_says_what_the_sample_is() -> None:
    image = scan(core(50) & ~SMALL)
    result = hushpore.segment_pores(image, sample_mask=core(60).astype(np.uint8))
    assert result.provenance["result"]["sample_voxels"] == core(60).sum()


def test_of_large_slices_every_nth_pixel_is_looked_at() -> None:
    rows, columns = grid((2300, 2300))
    image = scan(np.hypot(rows, columns) < 1000)
    assert found(np.stack([image, image])).treatment == "remove-slicewise"


@pytest.mark.parametrize("name", [name for name in CUT if "split" not in name])
def test_the_porosity_of_a_sample_in_air_is_that_of_the_sample(name: str) -> None:
    sample = CUT[name]
    result = hushpore.segment_pores(scan(sample & ~SMALL))
    assert result.porosity == pytest.approx(SMALL[sample].mean(), abs=0.012)
    totals = result.provenance["result"]
    assert (totals["exterior"], totals["padding_value"]) == ("remove-slicewise", None)
    assert totals["exterior_share"] == pytest.approx(1 - sample.mean(), abs=0.05)
    assert result.provenance["settings"]["exterior"] == "auto"
    share = f"{100 * totals['exterior_share']:.{0 if totals['exterior_share'] >= 0.1 else 1}f}"
    said = f"Surrounding air ({share} % of the volume) was excluded."
    assert said in [remark.message for remark in result.remarks]


def test_what_was_decided_is_what_asking_for_it_gives(
    assert_same_pores: Callable[[Any, Any], None],
) -> None:
    image = scan(core(50) & ~SMALL)
    asked = hushpore.segment_pores(image, exterior="remove-slicewise")
    assert_same_pores(hushpore.segment_pores(image), asked)
    slabs = hushpore.segment_pores(image, memory_budget=0.01)
    assert any("slabs" in note for note in slabs.notes)
    assert_same_pores(slabs, asked)


def test_what_is_filled_in_is_the_same_in_slabs_and_of_any_type(
    assert_same_pores: Callable[[Any, Any], None],
) -> None:
    image = filled_in(scan(core(40) & ~SMALL, **HU), -3024)
    whole = hushpore.segment_pores(image)
    slabs = hushpore.segment_pores(image, memory_budget=0.01)
    assert any("slabs" in note for note in slabs.notes)
    assert_same_pores(slabs, whole)
    threshold = whole.threshold
    # of floats the histogram has bins of its own
    floats = hushpore.segment_pores(image.astype(np.float32))
    assert floats.threshold == pytest.approx(threshold, abs=10)
    exact = hushpore.segment_pores(image.astype(np.float32), threshold=threshold)
    np.testing.assert_array_equal(exact.labels, whole.labels)
    # as if what is filled in were not there at all
    inner = np.sort(image[FIELD_OF_VIEW]).reshape(1, -1)
    assert threshold == hushpore.segment_pores(inner, exterior="keep").threshold


def test_noise_that_is_taken_for_solid_is_said() -> None:
    result = hushpore.segment_pores(scan(core(50), noise=700))
    assert any("Denoise the scan first" in note for note in result.notes)


def test_the_first_number_of_a_core_of_concrete_is_right_without_a_setting_changed() -> None:
    core = sample_data.core_phantom()
    result = hushpore.segment_pores(core.volume)
    said = "Surrounding air (47 % of the volume) was excluded."
    assert said in [remark.message for remark in result.remarks]
    assert result.porosity == pytest.approx(core.porosity, abs=0.004)
    # and was wrong by more than ten times
    assert hushpore.segment_pores(core.volume, exterior="keep").porosity > 0.45


@pytest.mark.parametrize("noise", [20, 300])
@pytest.mark.parametrize("size", [1, 3])
def test_air_and_pores_of_few_voxels_are_no_two_materials(size: float, noise: float) -> None:
    # blurred pores are brighter than air, as voxels are that are in part of solid
    image = scan(core(60) & ~holes(0.1, size), noise=noise)
    around = found(image)
    assert around.treatment != "keep"
    assert around.groups is None
