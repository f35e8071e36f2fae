"""Chunks that are read by threads are those that zarr itself reads, however they are stored."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hushpore import InputError
from hushpore.io.zarr.reader import open_zarr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

zarr = pytest.importorskip("zarr")
codecs = pytest.importorskip("zarr.codecs")

SHAPE = (21, 30, 34)

V2, V3 = {"zarr_format": 2}, {"zarr_format": 3}
SHARDED = {**V3, "chunks": (4, 8, 8), "shards": (8, 16, 32)}

#: Ways to store an array, and whether threads read it.
STORED: dict[str, tuple[dict[str, Any], bool]] = {
    "shards": (SHARDED, True),
    "shards of Zstandard within Blosc": (
        {**SHARDED, "compressors": (codecs.BloscCodec(cname="zstd"),)},
        True,
    ),
    "shards with the index at their beginning": (
        {
            **V3,
            "chunks": (8, 16, 32),
            "serializer": codecs.ShardingCodec(
                chunk_shape=(4, 8, 8),
                codecs=[codecs.BytesCodec(), codecs.GzipCodec()],
                index_codecs=[codecs.BytesCodec()],
                index_location="start",
            ),
            "compressors": None,
        },
        True,
    ),
    "chunks": ({**V3, "chunks": (5, 7, 9), "compressors": (codecs.ZstdCodec(),)}, True),
    "plain values": ({**V3, "chunks": (5, 7, 9), "compressors": None}, True),
    "checksums": (
        {**V3, "chunks": (5, 7, 9), "compressors": (codecs.GzipCodec(), codecs.Crc32cCodec())},
        True,
    ),
    "big endian": (
        {**V3, "chunks": (5, 7, 9), "serializer": codecs.BytesCodec(endian="big")},
        True,
    ),
    "version 2": ({**V2, "chunks": (5, 7, 9)}, True),
    "version 2, big endian": ({**V2, "chunks": (5, 7, 9), "dtype": ">i2"}, True),
    "version 2, plain values": ({**V2, "chunks": (5, 7, 9), "compressors": None}, True),
    "version 2, of another order": ({**V2, "chunks": (5, 7, 9), "order": "F"}, False),
    "transposed": (
        {**V3, "chunks": (5, 7, 9), "filters": (codecs.TransposeCodec(order=(2, 1, 0)),)},
        False,
    ),
}


def stored(folder: Path, how: dict[str, Any]) -> Any:
    """Write an array in some way, of which the chunks in the middle are missing."""
    values = np.arange(np.prod(SHAPE), dtype=np.int16).reshape(SHAPE)
    options = {"shape": SHAPE, "dtype": "i2", "fill_value": 7, **how}
    array = zarr.create_array(str(folder / "scan.zarr"), **options)
    array[:8] = values[:8]
    array[16:, 16:] = values[16:, 16:]
    return array


REGIONS: list[Any] = [
    np.s_[...],
    np.s_[3:19, 5:28, 2:],
    np.s_[9:11],
    np.s_[20, :, 33],
    np.s_[-3:, 4, 8:17],
    np.s_[::3, 1:20:2],
    np.s_[4:4],
]


@pytest.mark.parametrize("name", STORED)
def test_threads_read_what_zarr_reads(tmp_path: Path, name: str) -> None:
    how, by_threads = STORED[name]
    expected = np.asarray(stored(tmp_path, how)[...])
    stack = open_zarr(tmp_path / "scan.zarr")[0].data
    assert (stack.files is not None) == by_threads
    for region in REGIONS:
        np.testing.assert_array_equal(stack[region], expected[region])
    room = np.empty(SHAPE, np.int16)
    assert list(stack.read_into(room))[-1] == SHAPE[0]
    np.testing.assert_array_equal(room, expected)
    # as a worker of a cluster gets it
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(stack))[3:9], expected[3:9])
    with pytest.raises(IndexError):
        stack[99]


def test_axes_of_one_are_left_out_where_threads_read(tmp_path: Path) -> None:
    values = np.arange(2 * 5 * 6 * 7, dtype=np.uint8).reshape(1, 2, 5, 6, 7)
    group = zarr.open_group(str(tmp_path / "scan.zarr"), mode="w", zarr_format=2)
    group.create_array("0", data=values, chunks=(1, 1, 2, 4, 4))
    group.attrs["multiscales"] = [{"version": "0.4", "datasets": [{"path": "0"}]}]
    stack = open_zarr(tmp_path / "scan.zarr")[0].data
    assert stack.shape == (2, 5, 6, 7)
    np.testing.assert_array_equal(stack[...], values[0])
    np.testing.assert_array_equal(stack[1, 2:4, :, 3], values[0, 1, 2:4, :, 3])
    room = np.empty(stack.shape, np.uint8)
    list(stack.read_into(room))
    np.testing.assert_array_equal(room, values[0])


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def with_another_index(content: bytes) -> bytes:
    return content[:-20] + bytes([content[-20] ^ 1]) + content[-19:]


def without_anything(content: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [cut, with_another_index, without_anything])
def test_damaged_shards_are_told(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    stored(tmp_path, SHARDED)
    file = tmp_path / "scan.zarr" / "c" / "0" / "0" / "0"
    file.write_bytes(damage(file.read_bytes()))
    stack = open_zarr(tmp_path / "scan.zarr")[0].data
    with pytest.raises(InputError, match="is damaged"):
        stack[...]
