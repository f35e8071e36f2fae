from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hushpore import Volume
from hushpore.scan.flat_blocks import block_sizes, even_ones, flat_ones, largest_lags, read_flattest
from hushpore.scan.noise_strength import detrended_blocks

if TYPE_CHECKING:
    import numpy.typing as npt

NOISE = 10.0


@pytest.fixture
def half_textured() -> npt.NDArray[np.float32]:
    """Return a stack whose left half is flat but for noise, and whose right half has spots."""
    rng = np.random.default_rng(0)
    stack = rng.normal(100, NOISE, (16, 64, 128)).astype(np.float32)
    spots = rng.random((4, 16, 16)).repeat(4, 0).repeat(4, 1).repeat(4, 2)
    stack[..., 64:] += 200 * spots
    return stack


def test_blocks_that_are_used_lie_where_the_image_is_flat(
    half_textured: npt.NDArray[np.float32],
) -> None:
    volume = Volume(half_textured)
    size = block_sizes(volume, slicewise=False)[-1]
    kind = detrended_blocks(size, largest_lags(size))
    blocks, *_ = read_flattest(volume, kind, np.random.default_rng(0))
    used, flatness = flat_ones(kind, blocks)
    assert flatness < 1
    assert len(used) >= 10
    assert (used.corners[:, 2] + size[2] <= 64 + 1).all()
    even = even_ones(kind, blocks, used)
    assert (even.corners[:, 2] + size[2] <= 64 + 1).mean() > 0.9


def test_no_block_lies_where_the_outside_was_filled_in(
    half_textured: npt.NDArray[np.float32],
) -> None:
    half_textured[..., :32] = 0
    volume = Volume(half_textured)
    size = block_sizes(volume, slicewise=False)[-1]
    kind = detrended_blocks(size, largest_lags(size))
    blocks, *_ = read_flattest(volume, kind, np.random.default_rng(0))
    used, _ = flat_ones(kind, blocks)
    assert (used.corners[:, 2] >= 32 - 1).all()


def test_the_flattest_come_first_and_no_two_in_one_place(
    half_textured: npt.NDArray[np.float32],
) -> None:
    volume = Volume(half_textured)
    size = block_sizes(volume, slicewise=False)[0]
    kind = detrended_blocks(size, largest_lags(size))
    blocks, *_ = read_flattest(volume, kind, np.random.default_rng(0))
    assert (np.diff(blocks.coarse) >= 0).all()
    places = blocks.corners // np.array(size)
    assert len(np.unique(places, axis=0)) == len(places)


@pytest.mark.parametrize(
    ("shape", "slicewise", "first", "last"),
    [
        ((40, 64, 64), False, (6, 12, 12), (4, 6, 6)),
        ((40, 64, 64), True, (1, 16, 16), (1, 8, 8)),
        ((64, 64), False, (16, 16), (8, 8)),
        ((3, 10, 64), False, (3, 10, 12), (3, 6, 6)),
    ],
)
def test_sizes_fit_the_scan(
    shape: tuple[int, ...], slicewise: bool, first: tuple[int, ...], last: tuple[int, ...]
) -> None:
    sizes = block_sizes(Volume(np.zeros(shape)), slicewise)
    assert (sizes[0], sizes[-1]) == (first, last)
    for size in sizes:
        assert all(2 * lag <= n for lag, n in zip(largest_lags(size), size, strict=True))
