"""Arrays are read as zarr itself reads them, however their chunks are stored."""

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

#: Ways to store an array.
STORED: dict[str, dict[str, Any]] = {
    "shards": SHARDED,
    "shards of Zstandard within Blosc": {
        **SHARDED,
        "compressors": (codecs.BloscCodec(cname="zstd"),),
    },
    "shards with the index at their beginning": {
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
    "plain values": {**V3, "chunks": (5, 7, 9), "compressors": None},
    "checksums": {
        **V3,
        "chunks": (5, 7, 9),
        "compressors": (codecs.GzipCodec(), codecs.Crc32cCodec()),
    },
    "big endian": {**V3, "chunks": (5, 7, 9), "serializer": codecs.BytesCodec(endian="big")},
    "version 2, big endian": {**V2, "chunks": (5, 7, 9), "dtype": ">i2"},
    "version 2, of another order": {**V2, "chunks": (5, 7, 9), "order": "F"},
    "transposed": {**V3, "chunks": (5, 7, 9), "filters": (codecs.TransposeCodec(order=(2, 1, 0)),)},
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
def test_any_region_is_read_as_zarr_reads_it(tmp_path: Path, name: str) -> None:
    expected = np.asarray(stored(tmp_path, STORED[name])[...])
    stack = open_zarr(tmp_path / "scan.zarr")[0].data
    for region in REGIONS:
        np.testing.assert_array_equal(stack[region], expected[region])
    room = np.empty(SHAPE, np.int16)
    assert list(stack.read_into(room))[-1] == SHAPE[0]
    np.testing.assert_array_equal(room, expected)
    # as a worker of a cluster gets it
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(stack))[3:9], expected[3:9])
    with pytest.raises(IndexError):
        stack[99]


def test_axes_of_length_one_are_left_out(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("damage", [cut, with_another_index])
def test_damaged_shards_are_told(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    stored(tmp_path, SHARDED)
    file = tmp_path / "scan.zarr" / "c" / "0" / "0" / "0"
    file.write_bytes(damage(file.read_bytes()))
    stack = open_zarr(tmp_path / "scan.zarr")[0].data
    with pytest.raises(InputError, match="is damaged"):
        stack[...]


def test_an_emptied_shard_counts_as_not_stored(tmp_path: Path) -> None:
    stored(tmp_path, SHARDED)
    before = open_zarr(tmp_path / "scan.zarr")[0].notes
    (tmp_path / "scan.zarr" / "c" / "0" / "0" / "0").write_bytes(b"")
    after = open_zarr(tmp_path / "scan.zarr")[0].notes
    assert [note.split()[0] for note in (before[-1], after[-1])] == ["6", "7"]
