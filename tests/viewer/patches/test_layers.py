import numpy as np
import pytest

from hushpore.viewer.patches.layers import boxes


def test_boxes_surround_the_voxels_of_their_patches():
    lines = boxes(np.array([[3, 10, 20]]), (4, 6))
    ends = np.concatenate([lines[:, 0], lines[:, 0] + lines[:, 1]])
    np.testing.assert_array_equal(ends[:, 0], 3)
    np.testing.assert_array_equal(ends[:, 1:].min(axis=0), (9.5, 19.5))
    np.testing.assert_array_equal(ends[:, 1:].max(axis=0), (13.5, 25.5))
    # one closed line
    np.testing.assert_array_equal(lines[:, 0] + lines[:, 1], np.roll(lines[:, 0], -1, axis=0))


@pytest.mark.parametrize("corner", [(5, 6), (2, 5, 6), (1, 2, 5, 6)])
def test_boxes_have_the_axes_of_the_volume(corner):
    assert boxes(np.array([corner]), (4, 4)).shape == (4, 2, len(corner))


def test_a_deep_patch_has_edges_in_every_slice_that_it_goes_through():
    lines = boxes(np.array([[3, 10, 20], [0, 0, 0]]), (5, 4, 4))
    assert lines.shape == (2 * (5 * 4 + 4), 2, 3)
    flat = lines[:24][lines[:24, 1, 0] == 0]
    assert sorted(set(flat[:, 0, 0])) == [3, 4, 5, 6, 7]
    assert set(lines[20:24, 1, 0]) == {4}


def test_five_thousand_boxes_are_few_arrays():
    lines = boxes(np.zeros((5000, 3), int), (64, 64))
    assert lines.shape == (20_000, 2, 3)
    assert lines.nbytes < 1e6
