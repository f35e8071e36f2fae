"""The detection limit, on scans with pores of known diameters."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore import Volume
from hushpore.base.events import result_of
from hushpore.pores.detection import (
    Look,
    Tried,
    blurred_ball,
    find_limit,
    found_diameter,
    limit_of,
    logistic_fit,
    look_of,
    places,
    with_balls,
)
from hushpore.pores.forms.limits import judged

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.pores.result import Pores

#: Grey values of pores and solid.
VOID, SOLID = 60.0, 200.0


@cache
def scan(
    balls: tuple[tuple[tuple[float, ...], float], ...],
    edge: int = 64,
    blur: float = 1.0,
    noise: float = 14.0,
    seed: int = 0,
) -> np.ndarray:
    """Balls (centre, radius) with the blur and the noise of a scan, in 16 bits times 100."""
    fine = 4
    share = np.zeros((edge,) * 3)
    for centre, radius in balls:
        first = [int(at - radius - 1) for at in centre]
        size = int(2 * radius + 4)
        points = (np.arange(size * fine) + 0.5) / fine - 0.5
        lines = [points + a - at for a, at in zip(first, centre, strict=True)]
        away = sum(line**2 for line in np.ix_(*lines))
        part = (away < radius**2).reshape((size, fine) * 3).mean(axis=(1, 3, 5))
        share[tuple(slice(a, a + size) for a in first)] += part
    grey = SOLID + (VOID - SOLID) * ndimage.gaussian_filter(share, blur)
    grey += np.random.default_rng(seed).normal(0, noise, grey.shape)
    return np.rint(100 * grey).astype(np.uint16)


LARGE = (((16.0, 16.0, 16.0), 7.0), ((46.0, 44.0, 20.0), 6.0), ((20.0, 48.0, 45.0), 5.0))


@pytest.mark.parametrize("n_axes", [2, 3])
@pytest.mark.parametrize(("radius", "blur"), [(4.1, 1.0), (1.23, 0.8)])
def test_a_blurred_ball_is_one_that_a_gaussian_filter_blurs(
    n_axes: int, radius: float, blur: float
) -> None:
    fine, reach = 6, int(radius + 4 * blur + 1)
    line = (np.arange(-reach * fine, reach * fine + 1)) / fine
    away = np.sqrt(sum(part**2 for part in np.ix_(*[line] * n_axes)))
    ball = ndimage.gaussian_filter((away < radius).astype(float), blur * fine, truncate=6)
    middle = (slice(None), *[len(line) // 2] * (n_axes - 1))
    expected = blurred_ball(away[middle], radius, blur, n_axes)
    np.testing.assert_allclose(ball[middle], expected, atol=0.02)


@pytest.mark.parametrize(
    ("blur", "noise", "error"), [(0.7, 3, 0.1), (1.0, 14, 0.1), (2.0, 14, 0.1), (1.0, 35, 0.25)]
)
def test_grey_values_and_blur_are_those_that_the_scan_was_made_with(
    blur: float, noise: float, error: float
) -> None:
    values = scan(LARGE, blur=blur, noise=noise) / 100
    large = ndimage.gaussian_filter(values, 1.5) < 130
    look = look_of(values, large, np.zeros(large.shape, bool))
    assert look.void == pytest.approx(VOID, abs=8)
    assert look.solid == pytest.approx(SOLID, abs=1)
    # a third of a voxel is added by its own extent
    assert look.blur == pytest.approx(np.hypot(blur, 0.29), rel=error)


def test_balls_keep_away_from_pores_faces_and_each_other_and_add_their_volume() -> None:
    solid = np.ones((60, 60, 60), bool)
    solid[:20] = False
    room = ndimage.distance_transform_edt(np.pad(solid, 1))[1:-1, 1:-1, 1:-1]
    wanted = np.full(40, 5.0)
    centres, diameters = places(room, wanted, 0.5, np.random.default_rng(0))
    assert 10 < len(centres) <= 40
    assert (diameters == 5).all()
    assert centres.min() > 2.5
    assert centres[:, 0].min() > 22
    apart = np.linalg.norm(centres[:, None] - centres, axis=2)[~np.eye(len(centres), dtype=bool)]
    assert apart.min() > 5 + 3 * 0.5
    values = np.full(solid.shape, 200.0, np.float32)
    filled = with_balls(values, centres, diameters, Look(60, 200, 0.8))
    added = (values - filled).sum() / 140
    assert added == pytest.approx(len(centres) * np.pi / 6 * 5**3, rel=0.01)


def test_a_pore_is_the_ball_only_at_its_place_and_of_its_size() -> None:
    away = np.sqrt(sum((line - 12) ** 2 for line in np.ogrid[:25, :25, :25]))
    centre = np.full(3, 12.0)
    ball = (away < 4).astype(np.int32)
    assert found_diameter(ball, centre, 8.0) == pytest.approx(8, rel=0.03)
    assert not found_diameter(np.roll(ball, 9, axis=2), centre, 8.0)
    # a speck in it, and a large pore that swallows it
    assert not found_diameter((away < 1.5).astype(np.int32), centre, 8.0)
    assert not found_diameter((away < 9).astype(np.int32), centre, 8.0)


def test_the_fit_finds_the_curve_that_hits_were_drawn_from() -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 3, 20_000)
    is_found = rng.random(x.size) < 1 / (1 + np.exp(-4 * (x - 1.5)))
    middle, slope, covariance = logistic_fit(x, is_found)
    assert middle == pytest.approx(1.5, abs=0.02)
    assert slope == pytest.approx(4, abs=0.15)
    # of the slope, from its spread over fits to other draws of 2000
    spread = [logistic_fit(x[n::10], is_found[n::10])[1] for n in range(10)]
    assert np.sqrt(covariance[1, 1] * 10) == pytest.approx(np.std(spread), rel=0.7)


def test_the_limit_lies_between_hits_and_misses_that_do_not_overlap() -> None:
    diameter = np.arange(1.0, 9.0, 0.1)
    limit = limit_of(Tried(diameter, np.where(diameter > 4, 0.9 * diameter, 0)))
    assert 4 < limit.a90 < 4.3
    assert limit.a90 < limit.high < 4.6
    assert limit.size_error == pytest.approx(-0.1)
    assert "none was found" in str(limit_of(Tried(diameter, np.zeros(80))))
    rare = np.where(np.arange(80) % 2, diameter, 0)
    assert "less than 90 % of cases" in str(limit_of(Tried(diameter, rare)))


@cache
def casting(minimum: int) -> Pores:
    volume = Volume(scan(LARGE), spacing=0.01, unit="mm", name="casting")
    how: dict[str, Any] = {"threshold": 13_000, "minimum_voxels": minimum}
    return hushpore.segment_pores(
        volume, exterior="keep", detection_limit=True, report_form="casting", **how
    )


@pytest.mark.parametrize(("minimum", "lowest", "highest"), [(8, 2.9, 4.0), (64, 5.0, 6.2)])
def test_the_limit_of_a_scan_follows_its_settings(
    minimum: int, lowest: float, highest: float
) -> None:
    # a ball of 64 voxels is 5 voxels wide, and blur makes it smaller
    found = casting(minimum)
    result = found.provenance["result"]
    assert lowest < result["detection_limit"] / 0.01 < highest
    assert 1 < result["detection_limit_high"] / result["detection_limit"] < 1.1
    assert -0.25 < result["detection_size_error"] < 0.02
    assert 0 < result["detection_size_deviation"] < 0.15
    form = found.form("casting").set_index("symbol")
    assert form.loc["a_90", "value"] == pytest.approx(result["detection_limit"])
    (remark,) = (note.message for note in found.remarks if "a90" in note.message)
    assert remark.startswith("Pores with a diameter of 0.0")
    assert "detection_limit" not in found.remerge(0.2).provenance["result"]


def test_known_pores_of_a_scan_are_found_from_the_limit_on() -> None:
    # 64 pores in a grid, off the voxel centres, a quarter of them above the limit
    rng = np.random.default_rng(2)
    diameters = np.repeat([2.6, 3.0, 3.4, 4.2], 16)
    centres = 8 + 16 * np.stack(np.unravel_index(rng.permutation(64), (4, 4, 4)), axis=1)
    centres = centres + rng.uniform(-0.5, 0.5, centres.shape)
    known = scan(tuple((tuple(c), d / 2) for c, d in zip(centres, diameters, strict=True)))
    known_labels = hushpore.segment_pores(Volume(known), exterior="keep", threshold=13_000).labels
    hits = [found_diameter(known_labels, c, d) > 0 for c, d in zip(centres, diameters, strict=True)]
    truth = limit_of(Tried(diameters, np.where(hits, diameters, 0)))
    found = casting(8).provenance["result"]["detection_limit"] / 0.01
    assert found == pytest.approx(truth.a90, rel=0.15)


@pytest.mark.parametrize(
    ("make", "settings", "why"),
    [
        (lambda: scan(LARGE) < 13_000, {}, "a mask has no grey values"),
        (lambda: scan(LARGE), {"pore_type": "open"}, "only open pores were segmented"),
        (lambda: scan(()), {"threshold": 13_000}, "no pore of the scan is large enough"),
    ],
)
def test_there_is_a_reason_if_there_is_no_limit(
    make: Callable[[], np.ndarray], settings: dict[str, Any], why: str
) -> None:
    found = hushpore.segment_pores(
        Volume(make()), exterior="keep", detection_limit=True, **settings
    )
    assert "detection_limit" not in found.provenance["result"]
    (note,) = (note for note in found.notes if "no detection limit" in note)
    assert why in note


def test_a_solid_of_thin_walls_has_no_room() -> None:
    values = np.full((24, 24, 24), 200, np.uint8)
    values[:, :, ::4] = 60
    values[:, :, 1::4] = 60

    def segment(volume: Volume) -> Any:
        yield from ()
        return ndimage.label(volume.array() < 130)[0].astype(np.int32)

    limit = result_of(find_limit(Volume(values), np.zeros(values.shape, bool), segment))
    assert limit == "the solid is too thin for balls to be put into it."


def test_a_limit_on_pores_below_the_detection_limit_is_not_decided() -> None:
    lines = [{"symbol": symbol, "min": None, "max": 9} for symbol in ("N(d>=0.1)", "d_max")]
    acceptance = {"form": "casting", "lines": lines}
    # of the smallest that are counted, 0.1 mm are 10 voxels; then 2
    assert judged(acceptance, casting(8)._findings)["limits"] == "passed"
    coarse = casting(8).resized((0.05,) * 3, "mm")
    first, second = judged(acceptance, coarse._findings)["acceptance"]["lines"]
    assert (first["verdict"], second["verdict"]) == ("not decided", "passed")
    assert "(a90) may have been missed" in first["reason"]
