from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial.distance import cdist
from skimage.morphology import local_maxima

import hushpore
from hushpore import Volume


def blobs(shape: tuple[int, ...], sigma: float, porosity: float, seed: int) -> np.ndarray:
    noise = ndimage.gaussian_filter(np.random.default_rng(seed).random(shape), sigma)
    return noise < np.quantile(noise, porosity)


def snow_peaks(void: np.ndarray) -> int:
    """Count the peaks by the steps of the paper, each over all voxels (Gostick, 2017)."""
    distance = ndimage.distance_transform_edt(void).astype(np.float32)
    smooth = ndimage.gaussian_filter(distance, 0.4) * void
    ball = (np.indices((9,) * void.ndim) - 4).astype(float)
    ball = (ball**2).sum(axis=0) < 16
    snow_peaks = void & (smooth == ndimage.maximum_filter(smooth + 2 * ~void, footprint=ball))
    # not on a slope or saddle: part of a plateau that nothing beside it exceeds
    snow_peaks &= local_maxima(distance, connectivity=void.ndim, allow_borders=True)
    parts, count = ndimage.label(snow_peaks, np.ones((3,) * void.ndim))
    places = np.array(ndimage.center_of_mass(snow_peaks, parts, range(1, count + 1))).astype(int)
    radius = distance[tuple(places.T)]
    away = cdist(places, places)
    np.fill_diagonal(away, np.inf)
    dropped = set()
    for i, j in enumerate(away.argmin(axis=1)):
        if away[i, j] <= radius[i]:
            dropped.add(i if (radius[i], i) < (radius[j], j) else int(j))
    return count - len(dropped)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("shape", "sigma"), [((60, 60, 60), 2), ((48, 64, 40), 3), ((150, 200), 3), ((200, 150), 5)]
)
def test_there_is_one_pore_for_each_peak_of_the_paper(
    shape: tuple[int, ...], sigma: float, seed: int
) -> None:
    void = blobs(shape, sigma, 0.6, seed)
    result = hushpore.segment_pores(void, merging="snow")
    # a count is off by one where two voxels of a ridge are equally high within a basin
    assert len(result.pores) == pytest.approx(snow_peaks(void), abs=1)
    assert result.provenance["result"]["merged_by"] == {"peaks": len(result.pores)}
    assert result.porosity > 0.98 * void.mean()


def test_berea_has_as_many_pores_as_porespy_finds_regions(berea: np.ndarray) -> None:
    result = hushpore.segment_pores(berea, merging="snow")
    assert len(result.pores) == 1240  # of porespy.filters.snow_partitioning, version 3.2.0


def test_peaks_do_not_depend_on_how_the_volume_is_turned() -> None:
    void = blobs((50, 60, 40), 2, 0.6, 9)
    count = len(hushpore.segment_pores(void, merging="snow").pores)
    for turned in (void[::-1], void[:, ::-1, ::-1], void.transpose(2, 0, 1)):
        turned_count = len(hushpore.segment_pores(turned, merging="snow").pores)
        assert turned_count == pytest.approx(count, abs=2)


def test_a_volume_without_room_for_a_peak_has_no_pores() -> None:
    void = np.zeros((20, 20, 20), bool)
    void[5:7, 5:7, :] = True
    result = hushpore.segment_pores(void, merging="snow")
    assert len(result.pores) == 0
    assert result.porosity == 0
    assert result.provenance["result"]["open_porosity"] == void.mean()
    json.dumps(result.provenance, allow_nan=False)


@pytest.mark.parametrize("fill", [False, True])
def test_a_single_phase_is_no_pore_or_one(fill: bool) -> None:
    result = hushpore.segment_pores(np.full((6, 7, 8), fill), merging="snow")
    assert len(result.pores) == fill


def test_a_height_can_be_chosen_afterwards() -> None:
    void = blobs((40, 40, 40), 2, 0.6, 1)
    by_peaks = hushpore.segment_pores(Volume(void, spacing=(2, 1, 1)), merging="snow")
    by_height = by_peaks.remerge(0.7)
    expected = hushpore.segment_pores(Volume(void, spacing=(2, 1, 1)), merge_height=0.7)
    np.testing.assert_array_equal(by_height.labels, expected.labels)
    assert by_height.provenance["settings"] == expected.provenance["settings"]
    assert by_height.provenance["result"]["merged_by"] == {"merge_height": 0.7}
