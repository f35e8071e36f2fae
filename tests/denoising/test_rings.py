"""Rings about the middle of the slices are taken out, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore import Volume
from hushpore.base.events import Note, result_of
from hushpore.base.provenance import fingerprint
from hushpore.denoising.rings import RingFree, find_centre, find_profile, rings_of, without_rings

if TYPE_CHECKING:
    from pathlib import Path

MIDDLE = (47.5, 47.5)


def rings_about(centre: tuple[float, float], count: int = 12, seed: int = 1) -> np.ndarray:
    """Return an offset of deviation 100 to every circle, another in every slice."""
    offsets = np.random.default_rng(seed).normal(0, 100, (count, 80))
    radius = np.hypot(*(np.mgrid[:96, :96] - np.reshape(centre, (2, 1, 1))))
    return np.stack([np.interp(radius, np.arange(80), each) for each in offsets])


@pytest.fixture(scope="module")
def clean() -> np.ndarray:
    rng = np.random.default_rng(0)
    return 1000.0 * (ndimage.gaussian_filter(rng.normal(size=(12, 96, 96)), 4, mode="wrap") > 0)


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    return np.random.default_rng(2).normal(0, 100, (12, 96, 96))


def share(error: np.ndarray, rings: np.ndarray) -> float:
    return float((error * rings).mean() / (rings**2).mean())


def test_most_of_the_rings_goes_and_the_image_stays(clean: np.ndarray, noise: np.ndarray) -> None:
    rings = rings_about(MIDDLE)
    scan = Volume((clean + noise + rings).astype(np.float32))
    found = result_of(without_rings(scan))
    assert found.data.centre == MIDDLE
    error = np.asarray(found.data) - clean
    assert abs(share(error, rings)) < 0.2
    assert error.std() < 1.1 * noise.std()
    assert found.data.deviation == pytest.approx(rings.std(), rel=0.15)
    # as many edges as before: nothing was resampled
    assert np.abs(np.corrcoef((error - noise).ravel(), clean.ravel())[0, 1]) < 0.05
    assert np.asarray(found.data).mean() == pytest.approx(scan.data.mean(), abs=2)


def test_where_there_are_no_rings_nothing_is_touched(clean: np.ndarray, noise: np.ndarray) -> None:
    for values in (clean + noise, clean, np.full((3, 40, 40), 7), noise[0]):
        scan = Volume(values)
        assert result_of(without_rings(scan)) is scan


@pytest.mark.parametrize("axis", [0, 1])
def test_half_rings_of_scans_over_half_a_turn_go_too(
    clean: np.ndarray, noise: np.ndarray, axis: int
) -> None:
    # a detector's pixel sees one side of the middle, and its counterpart the other
    one_side = np.indices((96, 96))[axis] < 48
    rings = np.where(one_side, rings_about(MIDDLE), rings_about(MIDDLE, seed=7))
    scan = Volume((clean + 0.3 * noise + rings).astype(np.float32))
    found = result_of(without_rings(scan))
    assert share(np.asarray(found.data) - clean, rings) < 0.25
    assert (np.asarray(found.data) - clean).std() < 0.7 * (scan.data - clean).std()


def test_the_middle_of_the_rings_is_found_near_that_of_the_slices(
    clean: np.ndarray, noise: np.ndarray
) -> None:
    slices = list((clean + noise + rings_about((48.0, 46.5)))[::4])
    assert find_centre(slices) == (48.0, 46.5)


def test_what_is_filled_in_or_not_a_number_does_not_count(
    clean: np.ndarray, noise: np.ndarray
) -> None:
    rings = rings_about(MIDDLE)[0]
    values = clean[0] + noise[0] + rings
    whole, _ = find_profile(values, MIDDLE)
    filled = values.copy()
    filled[:, :30] = -3024
    filled[60:64, 70:80] = np.nan
    profile, _ = find_profile(filled, MIDDLE)
    profile, whole, near = profile[0], whole[0], slice(10, 40)
    assert np.corrcoef(profile[near], whole[near])[0, 1] > 0.9
    assert (profile[near] @ whole[near]) / (whole[near] @ whole[near]) > 0.7


def test_a_part_is_what_it_is_in_the_whole() -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(0, 100, (2, 3, 8, 9)).astype(np.int16)
    array = RingFree(data, rng.normal(size=(2, 3, 3, 9)).astype(np.float32), (3.5, 4.0))
    whole = np.asarray(array)
    assert whole.dtype == array.dtype == np.float32
    assert (array.shape, array.ndim) == ((2, 3, 8, 9), 4)
    for key in (
        1, (0, 2), (0, 1, slice(2, 5)), (..., slice(3, 7)), (1, slice(0, 2), 4, slice(1, 3)),
        (0, 0, 3, 5), (slice(1, 2), 1, slice(None), 8),
    ):  # fmt: skip
        np.testing.assert_array_equal(array[key], whole[key])
    ring = rings_of(array.profiles[1, 2], (3.5, 4.0), np.arange(8), np.arange(9))
    np.testing.assert_allclose(whole[1, 2] + ring, data[1, 2], atol=1e-4)


@pytest.mark.usefixtures("small_network")
def test_a_denoising_works_on_what_is_left_also_in_slabs(
    clean: np.ndarray, noise: np.ndarray, tmp_path: Path
) -> None:
    rings = rings_about(MIDDLE)
    scan = Volume((clean + noise + rings).round().astype(np.int16), name="scan")
    once = {"precision": "float32", "test_time_augmentation": False}
    how: dict[str, Any] = {"patch_size": 32, "batch_size": 8, **once}
    events: list[Any] = []
    result = hushpore.run(
        "denoise", scan, {"correct_rings": True, "steps": 12, **how}, "cpu", events.append
    )
    assert abs(share(result.volume.data - clean, rings)) < 0.1
    made = result.provenance
    assert made["input"]["blake2b"] == fingerprint(scan.data)
    assert made["rings"] == [
        {"deviation": pytest.approx(rings.std(), rel=0.15), "centre": list(MIDDLE)}
    ]
    assert any("were removed from scan" in e.message for e in events if isinstance(e, Note))
    # what goes all around is told no more
    assert not made["noise"]["rings"]
    file = str(result.model.save(tmp_path / "model.safetensors"))
    applied = {"correct_rings": True, "model": file, "device": "cpu", **once}
    in_slabs = hushpore.denoise(scan, denoise_memory=0.001, **applied).volume
    np.testing.assert_allclose(in_slabs.data, result.volume.data, rtol=1e-4, atol=0.05)
