"""Boxes out of a volume are the same wherever it lies; of chunks only a few are decoded."""

from __future__ import annotations

import numpy as np
import pytest
from dask.array.core import normalize_chunks

from hushpore.base.rescaled import Scaled
from hushpore.denoising.rings import RingFree
from hushpore.scan.flat_blocks import cut_boxes, move_into_chunks, read_boxes


class Chunked:
    """An array in chunks, which counts what is read."""

    def __init__(self, values: np.ndarray, chunks: tuple[int | tuple[int, ...], ...]) -> None:
        self.values, self.chunks = values, chunks
        self.shape, self.dtype = values.shape, values.dtype
        self.reads = 0

    def __getitem__(self, key: object) -> np.ndarray:
        self.reads += 1
        return self.values[key]


@pytest.mark.parametrize(
    ("shape", "chunks", "size"),
    [
        ((50, 90, 70), (16, 16, 16), (2, 8, 8)),
        ((3, 50, 90, 70), (1, 16, 16, 16), (1, 2, 8, 8)),
        ((5, 90, 70), (2, 64, 64), (2, 16, 16)),
        ((90, 70), (64, 64), (8, 8)),
        ((4, 9, 9), (1, 4, 4), (2, 8, 8)),
    ],
)
@pytest.mark.parametrize("are_of_dask", [False, True])
def test_boxes_of_chunks_are_those_of_the_array(rng, shape, chunks, size, are_of_dask) -> None:
    values = rng.normal(size=shape)
    data = Chunked(values, normalize_chunks(chunks, shape) if are_of_dask else chunks)
    room = [n - m + 1 for n, m in zip(shape, size, strict=True)]
    corners = move_into_chunks(rng.integers(0, room, (2000, len(shape))), size, data)
    assert (corners >= 0).all()
    assert (corners < room).all()
    np.testing.assert_array_equal(
        read_boxes(data, corners, size), read_boxes(values, corners, size)
    )
    assert data.reads <= 100


@pytest.mark.parametrize("shape", [(20, 30, 26), (3, 12, 30, 26), (30, 26)])
@pytest.mark.parametrize("slope", [0.5, "by slice"])
def test_boxes_of_what_is_worked_out_are_cut_at_once_and_the_same(rng, shape, slope) -> None:
    slopes = rng.uniform(0.3, 3.0, shape[0]) if slope == "by slice" else slope
    scaled = Scaled(rng.integers(0, 4000, shape).astype(np.uint16), slopes, -1024.5)
    profiles = rng.normal(size=(*shape[:-2], 3, 25)).astype(np.float32)
    size = (2, 8, 7)[-len(shape) :] if len(shape) < 4 else (1, 2, 8, 7)
    corners = rng.integers(0, np.array(shape) - np.array(size) + 1, (40, len(shape)))
    for data in (scaled, RingFree(scaled, profiles, (13.2, 12.9))):
        assert cut_boxes(data, corners, size) is not None
        each = [
            data[tuple(slice(c, c + n) for c, n in zip(at, size, strict=True))] for at in corners
        ]
        np.testing.assert_array_equal(read_boxes(data, corners, size), np.stack(each))


def test_they_lie_all_over_the_volume(rng) -> None:
    data = Chunked(np.zeros((400, 400, 400), np.uint8), (32, 32, 32))
    corners = move_into_chunks(rng.integers(0, 390, (8000, 3)), (2, 8, 8), data)
    share, _ = np.histogramdd(corners, bins=2, range=[(0, 400)] * 3)
    assert (share > 8000 / 8 / 4).all()


def test_where_nothing_is_decoded_they_stay_where_they_are(rng) -> None:
    corners = rng.integers(0, 90, (100, 3))
    assert move_into_chunks(corners, (2, 8, 8), np.zeros((100, 100, 100))) is corners
