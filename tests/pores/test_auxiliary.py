"""What lies beside a volume and guides its segmentation: a mask of the sample, and markers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore import InputError, Volume

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="module")
def foam() -> np.ndarray:
    noise = np.random.default_rng(7).normal(size=(40, 44, 48))
    return ndimage.gaussian_filter(noise, 3) > 0


@pytest.fixture(scope="module")
def cylinder() -> np.ndarray:
    y, x = np.ogrid[-22:22, -24:24]
    return np.broadcast_to(y**2 + x**2 < 400, (40, 44, 48))


# the sample


def test_void_outside_the_mask_is_no_pore(foam: np.ndarray, cylinder: np.ndarray) -> None:
    result = hushpore.segment_pores(foam, sample_mask=cylinder)
    np.testing.assert_array_equal(result.labels > 0, foam & cylinder)
    assert result.porosity == pytest.approx((foam & cylinder).sum() / cylinder.sum())
    totals = result.provenance["result"]
    assert totals["sample_voxels"] == cylinder.sum()
    expected = (foam & cylinder).sum(axis=(1, 2)) / cylinder.sum(axis=(1, 2))
    np.testing.assert_allclose(result.porosity_profile, expected)
    assert result.provenance["auxiliary"]["sample_mask"]["shape"] == list(foam.shape)


@pytest.mark.parametrize("how", [{}, {"memory_budget": 0.001}])
def test_what_is_no_number_in_a_mask_is_outside_the_sample(
    foam: np.ndarray, cylinder: np.ndarray, how: dict[str, float]
) -> None:
    mask = np.where(cylinder, np.float32(1), np.float32(np.nan))
    masked = hushpore.segment_pores(foam, sample_mask=mask, **how)
    assert masked.provenance["result"]["sample_voxels"] == cylinder.sum()
    np.testing.assert_array_equal(masked.labels > 0, foam & cylinder)


def test_void_that_the_mask_cuts_is_open(balls: Callable[..., np.ndarray]) -> None:
    void = balls((30, 30, 60), [(15, 15, 15), (15, 15, 42)], 8)
    mask = np.zeros(void.shape, np.uint8)
    mask[2:28, 2:28, 2:42] = 3
    result = hushpore.segment_pores(void, sample_mask=mask)
    assert result.pores["is_open"].tolist() == [False, True]
    # the cut is no wall: half a ball of radius 8 would be 8 wide, were it one
    assert result.pores["inscribed_diameter"].min() > 12
    closed = hushpore.segment_pores(void, sample_mask=mask, pore_type="closed")
    assert closed.pores["num_voxels"].tolist() == [result.pores["num_voxels"][0]]


def test_a_mask_of_everything_changes_nothing(foam: np.ndarray) -> None:
    plain = hushpore.segment_pores(foam)
    masked = hushpore.segment_pores(foam, sample_mask=np.ones(foam.shape, bool))
    np.testing.assert_array_equal(masked.labels, plain.labels)
    assert masked.pores.equals(plain.pores)
    assert not masked.notes


def test_a_mask_takes_the_place_of_looking_for_air(foam: np.ndarray, cylinder: np.ndarray) -> None:
    masked = hushpore.segment_pores(foam, sample_mask=cylinder)
    both = hushpore.segment_pores(foam, sample_mask=cylinder, exterior="remove")
    np.testing.assert_array_equal(both.labels, masked.labels)


def test_slabs_change_nothing_of_a_masked_result(foam: np.ndarray, cylinder: np.ndarray) -> None:
    coarse = np.kron(foam[:20, :22, :24], np.ones((2, 2, 2), bool))
    whole = hushpore.segment_pores(coarse, sample_mask=cylinder)
    slabs = hushpore.segment_pores(coarse, sample_mask=cylinder, memory_budget=0.001)
    assert any("slabs" in note for note in slabs.notes)
    np.testing.assert_array_equal(slabs.labels, whole.labels)
    assert slabs.pores.equals(whole.pores)
    assert slabs.provenance["result"] == whole.provenance["result"]


def test_an_image_has_a_mask_of_its_own_shape(foam: np.ndarray, cylinder: np.ndarray) -> None:
    result = hushpore.segment_pores(foam[5], sample_mask=cylinder[5])
    np.testing.assert_array_equal(result.labels > 0, foam[5] & cylinder[5])
    assert result.porosity == pytest.approx((foam[5] & cylinder[5]).sum() / cylinder[5].sum())


def test_a_mask_that_is_empty_or_of_another_kind_is_refused(foam: np.ndarray) -> None:
    with pytest.raises(InputError, match="is empty"):
        hushpore.segment_pores(foam, sample_mask=np.zeros(foam.shape, bool))
    with pytest.raises(InputError, match="mask of shape"):
        hushpore.segment_pores(foam, sample_mask=np.zeros((4, 3)))
    with pytest.raises(InputError, match="does not match"):
        hushpore.segment_pores(foam, sample_mask=np.ones((4, 5, 6), bool))


# markers


def peaks_of(result: Any) -> np.ndarray:
    distance = ndimage.distance_transform_edt(result.labels > 0)
    places = ndimage.maximum_position(distance, result.labels, result.pores["label"])
    return np.array(places)


def test_markers_in_the_settings_are_those_of_merging_anew(foam: np.ndarray) -> None:
    plain = hushpore.segment_pores(foam)
    points = peaks_of(plain)[::2]
    expected = plain.remerge_to_markers(points)
    labels = np.zeros(foam.shape, np.uint16)
    labels[tuple(points.T)] = np.arange(1, len(points) + 1)
    # points of a layer lie anywhere in their voxels
    for markers in (points + 0.3, labels):
        found = hushpore.segment_pores(foam, markers=markers)
        np.testing.assert_array_equal(found.labels, expected.labels)
        assert found.pores.equals(expected.pores)
        assert found.provenance["result"]["merged_by"] == {"markers": len(points)}
        # the record is that of merging anew to the same markers, which are all whole numbers there
        whole = np.rint(markers).astype(np.int64) if markers is not labels else labels
        merged = plain.remerge_to_markers(whole).provenance
        assert found.provenance["settings"] == merged["settings"]
        assert found.provenance["settings"]["markers"] == "markers"
        used = hushpore.segment_pores(foam, markers=whole).provenance
        assert merged["auxiliary"] == used["auxiliary"] != {}


def test_markers_in_the_settings_can_be_left_for_a_height(foam: np.ndarray) -> None:
    plain = hushpore.segment_pores(foam)
    marked = hushpore.segment_pores(foam, markers=peaks_of(plain)[:2])
    assert len(marked.pores) == 2
    back = marked.remerge("auto")
    np.testing.assert_array_equal(back.labels, plain.labels)
    assert back.provenance["settings"] == plain.provenance["settings"]
    assert back.provenance["auxiliary"] == {}


def test_markers_by_name_lie_beside_the_volume(foam: np.ndarray) -> None:
    points = peaks_of(hushpore.segment_pores(foam))
    volume = Volume(foam, auxiliary={"seeds": points})
    result = hushpore.segment_pores(volume, markers="seeds")
    assert len(result.pores) == len(points)
    assert result.provenance["settings"]["markers"] == "seeds"


def test_markers_outside_the_void_are_refused(foam: np.ndarray) -> None:
    with pytest.raises(InputError, match="outside the void"):
        hushpore.segment_pores(foam, markers=np.argwhere(~foam)[:2])


def test_each_part_of_a_boolean_mask_is_a_marker(foam: np.ndarray) -> None:
    plain = hushpore.segment_pores(foam)
    mask = np.isin(plain.labels, plain.pores["label"].to_numpy()[::2])
    mask &= ndimage.distance_transform_edt(foam) > 2
    parts = ndimage.label(mask, np.ones((3, 3, 3)))[0]
    assert parts.max() > 1
    found = hushpore.segment_pores(foam, markers=mask)
    expected = hushpore.segment_pores(foam, markers=parts)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.provenance["result"]["merged_by"] == {"markers": parts.max()}
    np.testing.assert_array_equal(plain.remerge_to_markers(mask).labels, expected.labels)
