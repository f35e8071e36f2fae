from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushpore import InputError
from hushpore.patches.places import grid_corners
from hushpore.patches.reading import read_patches, reassemble


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32, np.complex64])
@pytest.mark.parametrize("weights", ["pyramid", "even"])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("shape", "size", "overlap"), [((37, 53), (16, 12), 7), ((2, 11, 20, 19), (4, 8, 8), 3)]
)
def test_patches_of_a_grid_give_the_image_back_exactly(
    dtype, weights, kind, shape, size, overlap, rng
):
    image = (rng.normal(0, 90, shape) + 100).astype(dtype)
    if np.dtype(dtype).kind == "c":
        image += 1j * rng.normal(0, 90, shape)
    corners = grid_corners(shape[-len(size) :], size, overlap).numpy()
    given = torch.from_numpy(image) if kind == "torch" else image
    patches = read_patches(given, corners, size)
    back = reassemble(patches, corners, shape[-len(size) :], weights=weights)
    np.testing.assert_array_equal(np.asarray(back), image)
    assert back.dtype == given.dtype


@given(st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_patches_anywhere_give_back_what_they_cover(seed):
    rng = np.random.default_rng(seed)
    image = rng.normal(size=(20, 24)).astype(np.float32)
    size = tuple(rng.integers(1, 9, 2))
    positions = rng.integers(-10, 28, (25, 2))
    patches = read_patches(image, positions, size, border="constant", fill=99)
    back = reassemble(patches, positions, image.shape, fill=-7)
    covered = np.zeros((60, 60), bool)
    for y, x in positions:
        covered[y + 15 : y + 15 + size[0], x + 15 : x + 15 + size[1]] = True
    np.testing.assert_array_equal(back, np.where(covered[15:35, 15:39], image, -7))


def test_double_precision_comes_back_to_rounding(rng):
    image = rng.normal(size=(30, 30))
    corners = grid_corners((30, 30), (8, 8), 5).numpy()
    back = reassemble(read_patches(image, corners, (8, 8)), corners, (30, 30))
    np.testing.assert_allclose(back, image, rtol=1e-14)


def test_patches_between_voxels_give_back_a_ramp(rng):
    # linear interpolation, there and back, leaves a straight line as it is
    y, x = np.mgrid[:40, :40]
    image = (2.0 * y - 3.0 * x).astype(np.float32)
    positions = rng.uniform(0, 24, (300, 2))
    back = reassemble(read_patches(image, positions, (16, 16)), positions, image.shape)
    assert np.abs((back - image)[8:32, 8:32]).max() < 0.5
    assert np.abs((back - image)[8:32, 8:32]).mean() < 0.1


def test_weights_fall_off_towards_the_border_of_a_patch():
    patches = np.array([np.zeros(8), np.ones(8)], np.float32)
    back = reassemble(patches, [[0], [4]], (12,))
    assert (np.diff(back[3:9]) > 0).all()
    assert reassemble(patches, [[0], [4]], (12,), weights="even")[4:8].tolist() == [0.5] * 4


@pytest.mark.parametrize(
    ("positions", "more", "message"),
    [
        ([[0, 0]], {}, r"positions must have the shape \(2, 2\)"),
        ([[0, 0], [0, np.inf]], {}, "positions must be finite"),
        ([[0, 0], [0, 1]], {"weights": "hann"}, "'pyramid' or 'even'"),
    ],
)
def test_what_does_not_fit_is_refused(positions, more, message):
    with pytest.raises(InputError, match=message):
        reassemble(np.zeros((2, 4, 4)), positions, (9, 9), **more)
