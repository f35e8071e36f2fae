"""Padding around a scan keeps its fill value, so that it can still be recognised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore import Volume
from hushpore.denoising.fill_value import MARGIN, fill_value_of, find_fill_value

pytestmark = pytest.mark.usefixtures("small_network")

QUICK: dict[str, Any] = {
    "steps": 3, "patch_size": 16, "batch_size": 2, "device": "cpu",
    "test_time_augmentation": False,
}  # fmt: skip

y, x = np.indices((64, 64)) - 31.5
OUTSIDE = np.hypot(y, x) > 30


def core(dtype: Any = np.int16, padding: float = -2000, depth: int = 6) -> np.ndarray:
    """A noisy scan of a foam in a round field of view."""
    rng = np.random.default_rng(2)
    void = ndimage.gaussian_filter(rng.normal(size=(depth, 64, 64)), 2) > 0.06
    grey = ndimage.gaussian_filter(np.where(void, 60.0, 180.0), 0.6) + rng.normal(0, 10, void.shape)
    if np.dtype(dtype).itemsize > 1:
        grey = grey * 10 - 900
    grey = grey.clip(*((0, 255) if dtype is np.uint8 else (-1000, 3000)))
    return np.where(OUTSIDE, padding, grey).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "padding"),
    [(np.int16, -2000), (np.int16, -1024), (np.float32, 0.5), (np.uint8, 0), (np.uint8, 255)],
)
def test_pores_of_a_denoised_scan_know_what_is_filled_in(dtype: Any, padding: float) -> None:
    scan = core(dtype, padding)
    assert find_fill_value(Volume(scan)) == padding
    result = hushpore.denoise(scan, **QUICK)
    np.testing.assert_array_equal(result.volume.data[:, OUTSIDE], padding)
    assert result.provenance["padding_value"] == padding
    assert f"Padding around the scan (value {padding:g}) was left unchanged." in result.notes
    pores = hushpore.segment_pores(result.volume)
    assert pores.provenance["result"]["padding_value"] == padding
    assert not (pores.labels > 0)[:, OUTSIDE].any()
    # after so few steps some of the sample may look like air, and which differs between processors
    assert pores.provenance["result"]["sample_voxels"] <= 6 * (~OUTSIDE).sum()


def test_rings_are_taken_out_of_a_scan_and_not_put_around_it() -> None:
    scan = core() + np.where(OUTSIDE, 0, 60 * (np.hypot(y, x).round() % 7 == 0)).astype(np.int16)
    result = hushpore.denoise(scan, correct_rings=True, **QUICK)
    np.testing.assert_array_equal(result.volume.data[:, OUTSIDE], -2000)


@pytest.mark.parametrize("axes", ["yx", "tzyx", "cyx"])
def test_images_and_series_keep_what_is_filled_in_too(axes: str) -> None:
    scan = core(depth=2)
    values = {"yx": scan[0], "tzyx": np.stack([scan, scan]), "cyx": scan}[axes]
    result = hushpore.denoise(Volume(values, axes=axes), context=0, **QUICK)
    np.testing.assert_array_equal(result.volume.data[..., OUTSIDE], -2000)


def test_a_scan_that_is_not_filled_in_has_nothing_put_back() -> None:
    rng = np.random.default_rng(0)
    whole = core()[:, 10:-10, 10:-10]
    air = np.where(OUTSIDE, rng.normal(-1000, 20, OUTSIDE.shape), 500).round().astype(np.int16)
    cut_off = ndimage.gaussian_filter(np.where(OUTSIDE, -50.0, 150.0), 1)
    cut_off = (cut_off + rng.normal(0, 10, OUTSIDE.shape)).clip(0, 255).astype(np.uint8)
    counts = rng.poisson(np.where(OUTSIDE, 0.05, 3.0)).astype(np.uint8)
    for scan in (whole, air, cut_off, counts, rng.normal(0, 1, (4, 40, 40))):
        assert find_fill_value(Volume(scan)) is None
    result = hushpore.denoise(whole, **QUICK)
    assert "padding_value" not in result.provenance


def test_the_margin_is_as_much_as_a_piece_needs() -> None:
    plane = np.where(np.random.default_rng(1).random((40, 50)) < 0.9, 7, 3)
    whole = fill_value_of(plane, 7)
    assert 0.1 < whole.mean() < 0.9
    piece = fill_value_of(plane[10 - MARGIN : 20 + MARGIN, 15 - MARGIN : 31 + MARGIN], 7)
    np.testing.assert_array_equal(piece[MARGIN:-MARGIN, MARGIN:-MARGIN], whole[10:20, 15:31])
