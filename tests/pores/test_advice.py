"""Remarks on the threshold: the first one says why a porosity can be wrong and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore.base.events import Remedy
from hushpore.base.formatting import percent_digits, readable_percent
from hushpore.base.volume import Volume
from hushpore.io.results import write_image

if TYPE_CHECKING:
    from pathlib import Path


SWAP = Remedy("Swap pores and solid", {"pores_are": "bright"})


def scan(
    pores: np.ndarray, contrast: float, pore: float = 8000.0, solid: float = 20_000.0
) -> np.ndarray:
    """Blurred scan with noise, uint16; `contrast`: in standard deviations of the noise."""
    grey = ndimage.gaussian_filter(np.where(pores, pore, solid), 0.7)
    noise = np.random.default_rng(0).normal(0, abs(solid - pore) / contrast, pores.shape)
    return np.asarray((grey + noise).clip(0, 65535), np.uint16)


@pytest.fixture(scope="module")
def few_pores() -> np.ndarray:
    """Balls of radius 4, 10 voxels apart in a block, in 1.5 % of the volume."""
    z, y, x = np.indices((48, 64, 64))
    pores = (z % 24 - 12) ** 2 + (y % 32 - 16) ** 2 + (x % 32 - 16) ** 2 <= 16
    assert 0.005 < pores.mean() < 0.02
    return pores


def test_few_pores_are_found_beside_the_noise_of_the_solid(few_pores: np.ndarray) -> None:
    values = scan(few_pores, 6)
    assert hushpore.segment_pores(values, threshold="otsu", minimum_voxels=1).porosity > 0.3
    result = hushpore.segment_pores(values, minimum_voxels=1)
    assert result.porosity == pytest.approx(few_pores.mean(), rel=0.1)
    assert np.count_nonzero(result.pores["num_voxels"] > 50) == 8
    # without the specks of noise, all of which lie in the solid
    automatic = hushpore.segment_pores(values)
    assert len(automatic.pores) == 8 < len(result.pores) - 50
    left_out = (result.labels > 0) & (automatic.labels == 0)
    assert np.count_nonzero(left_out & few_pores) == 0
    (first,) = (each for each in result.remarks if "would divide the noise" in each.message)
    assert first.remedy == Remedy("Use Otsu's threshold", {"threshold": "otsu"})
    groups = result.provenance["result"]["threshold_groups"]
    otsu = hushpore.segment_pores(values, threshold="otsu", minimum_voxels=1).porosity
    assert groups["otsu_void"] == pytest.approx(otsu, abs=1e-9)
    assert f"Otsu's threshold would give {100 * otsu:.1f} % void, this one" in first.message


def test_two_groups_are_stated_with_the_range_of_the_porosity() -> None:
    rng = np.random.default_rng(0)
    smooth = ndimage.gaussian_filter(rng.normal(size=(40, 60, 60)), 4)
    pores = smooth < np.quantile(smooth, 0.3)
    result = hushpore.segment_pores(scan(pores, 15))
    first = result.remarks[0]
    assert first.message.startswith("Threshold ")
    assert "are two groups of grey values. Thresholds from" in first.message
    low, high = result.provenance["result"]["plausible_porosities"]
    assert low < pores.mean() < high < 1.2 * pores.mean()
    assert low < result.porosity < high


def test_noise_is_measured_and_says_denoise_first(few_pores: np.ndarray) -> None:
    result = hushpore.segment_pores(scan(few_pores, 3.0))
    first = result.remarks[0]
    assert first.warning
    assert first.remedy == Remedy("Denoise first", {}, "denoise")
    assert first.with_flags.endswith(" Denoise first: hushpore denoise")
    assert "of the contrast between pores and solid: most small pores will be" in first.message
    assert result.provenance["result"]["noise_deviation"] == pytest.approx(4000, rel=0.05)


def test_noise_beside_a_given_threshold_is_stated_too(few_pores: np.ndarray) -> None:
    result = hushpore.segment_pores(scan(few_pores, 4.0), threshold=14_000)
    assert result.provenance["result"]["noise_share"] == pytest.approx(1 / 4, rel=0.2)
    assert result.remarks[0].message.startswith("The noise SD is 2")


@pytest.mark.parametrize("contrast", [3.0, 4.0])
def test_noise_is_never_stated_of_a_denoised_scan(
    few_pores: np.ndarray, contrast: float, tmp_path: Path
) -> None:
    volume = Volume(np.zeros(few_pores.shape)).as_denoised(scan(few_pores, contrast))
    read = hushpore.read(write_image(tmp_path / "denoised.tif", volume))
    for each in (volume, read):
        result = hushpore.segment_pores(each)
        assert "noise_deviation" not in result.provenance["result"]
        assert not any("noise SD" in remark.message for remark in result.remarks)
        assert not any(remark.remedy and remark.remedy.job for remark in result.remarks)


def test_little_noise_is_not_measured(few_pores: np.ndarray) -> None:
    assert "noise_share" not in hushpore.segment_pores(scan(few_pores, 20)).provenance["result"]


def test_one_group_says_so() -> None:
    values = scan(np.zeros((40, 60, 60), np.bool_), 10)
    result = hushpore.segment_pores(values)
    assert result.porosity < 1e-4
    assert result.remarks[0].warning
    assert "form only one group" in result.remarks[0].message


@pytest.mark.parametrize("contrast", [8, 20])
def test_swapped_pores_and_solid_are_suspected(few_pores: np.ndarray, contrast: float) -> None:
    first = hushpore.segment_pores(scan(~few_pores, contrast)).remarks[0]
    assert first.warning
    assert first.remedy == SWAP


def test_separate_pieces_of_solid_are_suspected() -> None:
    z, y, x = np.indices((48, 64, 64))
    pores = (z % 16 - 8) ** 2 + (y % 16 - 8) ** 2 + (x % 16 - 8) ** 2 <= 36
    result = hushpore.segment_pores(scan(~pores, 10), exterior="keep")
    assert "The solid is not in one piece" in result.remarks[0].message
    right = hushpore.segment_pores(scan(~pores, 10), exterior="keep", pores_are="bright")
    assert not any("in one piece" in remark.message for remark in right.remarks)
    assert right.porosity == pytest.approx(pores.mean(), rel=0.1)


def test_a_range_that_is_one_number_is_said_otherwise() -> None:
    pores = np.zeros((20, 40, 40), np.bool_)
    pores[5:15, 10:30, 10:30] = True
    values = np.where(pores, 8000, 20_000)
    values = (values + np.random.default_rng(0).normal(0, 200, pores.shape)).astype(np.uint16)
    said = [remark.message for remark in hushpore.segment_pores(values).remarks]
    (first,) = (text for text in said if text.startswith("Threshold "))
    assert " gives this porosity (12.5 %)." in first
    assert "12.5 to 12.5" not in first


@pytest.mark.parametrize(("spread", "share"), [(0.0, 0.25), (0.8, 0.22)])
def test_the_size_that_few_specks_of_noise_reach_is_found(spread: float, share: float) -> None:
    rng = np.random.default_rng(3)
    noise = ndimage.gaussian_filter(rng.normal(size=(64, 96, 96)), spread, mode="wrap")
    pores = np.zeros(noise.shape, np.bool_)
    pores[20:44, 20:60, 20:76] = True
    grey = np.where(pores, 8000, 20_000) + 12_000 * share * noise / noise.std()
    values = grey.astype(np.float32)
    result = hushpore.segment_pores(values, threshold=14_000, minimum_voxels=1)
    least = result.provenance["result"]["smallest_pore"]
    assert 8 < least < 64
    # without the pieces of the pore itself
    is_speck = ~np.isin(result.pores["label"], np.unique(result.labels[pores]))
    sizes = result.pores["num_voxels"][is_speck]
    reach = np.count_nonzero(sizes >= least)
    assert reach <= 0.002 * len(sizes)
    # half the size is not that rare
    assert np.count_nonzero(sizes >= least // 2) > 10 * (reach + 1)
    (said,) = (each for each in result.remarks if "probably noise" in each.message)
    assert f"are smaller than {least} voxels, probably noise." in said.message
    assert said.remedy == Remedy("Exclude them", {"minimum_voxels": least})
    # automatic: left out from the start, with the way back
    automatic = hushpore.segment_pores(values, threshold=14_000)
    small = np.count_nonzero(result.pores["num_voxels"] < least)
    lost = result.pores["num_voxels"][result.pores["num_voxels"] < least].sum()
    assert len(automatic.pores) == len(result.pores) - small
    (note,) = (each for each in automatic.remarks if "left out" in each.message)
    share = lost / result.pores["num_voxels"].sum()
    assert note.message == (
        f"{small:,} pores smaller than {least} voxels are left out ({readable_percent(share)} of "
        "the void): probably noise."
    )
    assert note.remedy == Remedy("Count them", {"minimum_voxels": 1})
    assert automatic.porosity == pytest.approx(result.porosity * (1 - share))
    assert automatic.headline.startswith(f"Porosity {percent_digits(automatic.porosity)} % (all ")
    again = automatic.remerge(0.7)
    other = hushpore.segment_pores(values, threshold=14_000, merge_height=0.7)
    assert again.provenance["result"] == other.provenance["result"]
    np.testing.assert_array_equal(again.labels, other.labels)


def test_all_pores_of_a_mask_count_automatically() -> None:
    void = np.random.default_rng(0).random((20, 30, 30)) < 0.02
    for mask in (void, void.astype(np.uint8) * 255):
        result = hushpore.segment_pores(mask)
        assert result.porosity == void.mean()
        assert result.pores["num_voxels"].min() == 1
        assert not any("left out" in remark.message for remark in result.remarks)


def test_a_denoised_scan_leaves_out_pores_below_8_voxels(few_pores: np.ndarray) -> None:
    pores = few_pores.copy()
    pores[1::24, 1::32, 1::32] = True
    values = np.where(pores, 8000, 20_000).astype(np.float32)
    values += np.random.default_rng(0).normal(0, 100, values.shape).astype(np.float32)
    how = {"merge_height": 2.0, "threshold": 14_000}
    result = hushpore.segment_pores(Volume(values).as_denoised(values), **how)
    assert len(result.pores) == 8
    (note,) = (each for each in result.remarks if "left out" in each.message)
    assert note.message.startswith("8 pores smaller than 8 voxels are left out (")
    assert note.message.endswith("of the void): too small for shape measures.")
    assert not note.warning
    assert note.remedy is not None
    everything = hushpore.segment_pores(values, **how, **note.remedy.settings)
    assert len(everything.pores) == 16
    assert everything.porosity == pores.mean()
