from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from hushpore import InputError
from hushpore.patches.reading import iterate_patches, read_patches

DTYPES = (np.uint8, np.int16, np.float32, np.float64, np.complex64)


def values(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    found = rng.normal(0, 60, shape) + (
        1j * rng.normal(0, 60, shape) if np.dtype(dtype).kind == "c" else 0
    )
    return np.abs(found).astype(dtype) if dtype == np.uint8 else found.astype(dtype)


def one_by_one(image, positions, size, border, fill):
    """A plainly written loop: each patch from the whole image, padded by NumPy, moved by SciPy."""
    mode = {"reflect": "reflect", "constant": "constant"}.get(border, "reflect")
    around = 16
    keywords = {"constant_values": fill} if mode == "constant" else {}
    n_spatial = len(size)
    n_channels = image.ndim - n_spatial
    padded = np.pad(image, [(0, 0)] * n_channels + [(around, around)] * n_spatial, mode, **keywords)
    patches = []
    for position in np.asarray(positions, float):
        shift = [0.0] * n_channels + [-(at + around) for at in position]
        kind = np.result_type(image.dtype, np.float64)
        moved = ndimage.shift(padded.astype(kind), shift, order=1, mode="nearest")
        patches.append(moved[(..., *(slice(0, edge) for edge in size))])
    return np.array(patches)


@pytest.mark.parametrize("border", ["reflect", "constant"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "size"), [((23, 31), (6, 5)), ((2, 20, 26), (4, 8)), ((9, 14, 12), (3, 4, 5))]
)
def test_patches_between_voxels_equal_a_loop_over_whole_images(shape, size, dtype, border):
    image = values(shape, dtype)
    spatial = np.array(shape[-len(size) :])
    positions = np.random.default_rng(1).uniform(-10, spatial + 4, (8, len(size)))
    found = read_patches(image, positions, size, border=border, fill=7)
    expected = one_by_one(image, positions, size, border, 7)
    assert found.shape == expected.shape
    assert found.dtype == np.result_type(dtype, np.float32)
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(image).max() * 8)


@given(st.integers(0, 2**31), st.sampled_from(["reflect", "constant", "refuse"]))
@settings(max_examples=60, deadline=None)
def test_whole_positions_read_the_very_values(seed, border):
    rng = np.random.default_rng(seed)
    n_spatial = int(rng.integers(1, 4))
    shape = tuple(rng.integers(1, 12, n_spatial + rng.integers(0, 2)))
    spatial = np.array(shape[-n_spatial:])
    size = tuple(rng.integers(1, 9, n_spatial)) if border != "refuse" else None
    if size is None:
        size = tuple(int(rng.integers(1, n + 1)) for n in spatial)
        positions = np.stack(
            [rng.integers(0, n - e + 1, 9) for n, e in zip(spatial, size, strict=True)], 1
        )
    else:
        positions = rng.integers(-9, 14, (9, n_spatial))
    image = values(shape, rng.choice([np.int16, np.complex64]), seed)
    found = read_patches(image, positions, size, border=border, fill=-3)
    assert found.dtype == image.dtype
    mode = "constant" if border == "constant" else "reflect"
    more = {"constant_values": -3} if border == "constant" else {}
    around = [(0, 0)] * (image.ndim - n_spatial) + [(30, 30)] * n_spatial
    padded = np.pad(image, around, mode, **more)
    for patch, position in zip(found, positions, strict=True):
        where = tuple(slice(p + 30, p + 30 + e) for p, e in zip(position, size, strict=True))
        np.testing.assert_array_equal(patch, padded[(..., *where)])


@pytest.mark.parametrize("kind", ["torch", "memmap", "dask", "zarr", "big-endian", "list"])
@pytest.mark.parametrize("border", ["refuse", "reflect", "constant"])
@pytest.mark.parametrize("fractional", [False, True])
def test_every_kind_of_array_gives_the_same_patches(kind, border, fractional, tmp_path):
    image = values((2, 7, 30, 34), np.int16)
    size = (2, 8, 8)
    room = np.array((7, 30, 34)) - size
    low, high = (0, room) if border == "refuse" else (-6, room + 6)
    positions = np.random.default_rng(2).uniform(low, high, (60, 3))
    positions = positions if fractional else positions.round()
    expected = read_patches(image, positions, size, border=border, fill=5)
    if kind == "torch":
        given = torch.from_numpy(image)
    elif kind == "memmap":
        given = np.memmap(tmp_path / "image", np.int16, "w+", shape=image.shape)
        given[:] = image
        given.flush()
        given = np.memmap(tmp_path / "image", np.int16, "r", shape=image.shape)
    elif kind == "dask":
        given = pytest.importorskip("dask.array").from_array(image, chunks=(1, 3, 16, 16))
    elif kind == "zarr":
        zarr = pytest.importorskip("zarr")
        given = zarr.create_array(
            tmp_path / "z", shape=image.shape, chunks=(2, 2, 9, 9), dtype="i2"
        )
        given[:] = image
    else:
        given = image.astype(">i2") if kind == "big-endian" else image.tolist()
        if kind == "list" and fractional:
            # a list holds int64, which float32 does not
            expected = read_patches(image.astype(np.int64), positions, size, border=border, fill=5)
    found = read_patches(given, positions, size, border=border, fill=5)
    assert isinstance(found, torch.Tensor if kind == "torch" else np.ndarray)
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_a_lazy_array_is_read_block_by_block_and_never_whole():
    class Spy:
        def __init__(self, array, chunks):
            self.array, self.chunks, self.read = array, chunks, []
            self.shape, self.dtype = array.shape, array.dtype

        def __getitem__(self, key):
            found = self.array[key]
            self.read.append(found.nbytes)
            return found

    image = values((400, 400), np.float32)
    spy = Spy(image, (50, 50))
    positions = np.random.default_rng(0).integers(0, 390, (500, 2))
    found = read_patches(spy, positions, (10, 10))
    np.testing.assert_array_equal(found, read_patches(image, positions, (10, 10)))
    assert len(spy.read) <= 64
    assert max(spy.read) <= 59 * 59 * 4
    spy.read.clear()
    read_patches(spy, positions, (10, 10), budget=8000)
    assert max(spy.read) <= 4000


@pytest.mark.parametrize("budget", [20_000, 100_000, 10_000_000])
def test_chunks_keep_to_the_budget_and_hold_every_patch_once(budget):
    image = values((80, 80), np.float32)
    positions = np.random.default_rng(3).uniform(0, 64, (90, 2))
    whole = read_patches(image, positions, (16, 16))
    seen = []
    for numbers, patches in iterate_patches(image, positions, (16, 16), budget=budget):
        assert patches.nbytes <= budget
        np.testing.assert_array_equal(patches, whole[numbers])
        seen += numbers.tolist()
    assert seen == list(range(90))


def test_patches_can_be_written_to_a_file_as_they_are_read(tmp_path):
    image = values((60, 60), np.complex64)
    positions = np.random.default_rng(3).uniform(0, 40, (30, 2))
    out = np.memmap(tmp_path / "out", np.complex64, "w+", shape=(30, 20, 20))
    assert read_patches(image, positions, (20, 20), out=out) is out
    np.testing.assert_array_equal(out, read_patches(image, positions, (20, 20)))


def test_a_patch_that_ends_with_the_image_is_inside():
    image = values((10, 10), np.float32)
    found = read_patches(image, [(2, 2), (0.5, 2)], (8, 8))
    np.testing.assert_array_equal(found[0], image[2:, 2:])


def test_what_is_not_a_number_stays_where_it_is():
    image = values((12, 12), np.float32)
    image[5, 5] = np.nan
    found = read_patches(image, [(4, 4), (0.5, 0.5)], (4, 4))
    assert np.isnan(found[0]).sum() == 1


@pytest.mark.parametrize(
    ("positions", "size", "more", "message"),
    [
        ([(0, 0), (5, 3)], (6, 6), {}, r"1 of 2 patches .* the first at \[5.0, 3.0\]"),
        ([(-0.5, 0)], (6, 6), {}, "reach outside"),
        ([(0, 0, 0)], (6, 6), {}, r"must have the shape \(n_patches, 2\)"),
        ([(np.nan, 0)], (6, 6), {}, "positions must be finite"),
        ([(0, 0)], (0, 6), {}, "at least one voxel"),
        ([(0, 0)], (6, 6), {"border": "wrap"}, "refuse, reflect, constant; got 'wrap'"),
        ([(0, 0)], (6, 6), {"budget": 100}, "only 100 are left in the budget"),
    ],
)
def test_what_cannot_be_read_is_refused(positions, size, more, message):
    with pytest.raises(InputError, match=message):
        read_patches(np.zeros((10, 10)), positions, size, **more)


def test_no_patches_are_none():
    assert read_patches(np.zeros((10, 10)), np.empty((0, 2)), (4, 4)).shape == (0, 4, 4)
