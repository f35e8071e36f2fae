"""Chunks of a Zarr array, read and decoded by several threads, and put where they are wanted.

zarr itself hands each chunk through one event loop, in which it is copied three times: a quarter of
what the disk gives. Here a thread reads a chunk, decodes it and writes it into its place. That is
for arrays whose chunks lie in files or shards in C order; how others are stored zarr knows.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hushpore.base.errors import InputError
from hushpore.io.lazy_arrays import THREADS
from hushpore.io.zarr.codecs import Bounded3, codec_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from io import FileIO

    import numpy.typing as npt

    #: From the bytes of a chunk to fewer or more; raises what a codec raises.
    Decode: TypeAlias = Callable[[bytes], Any]
    #: File, offset and size there, first voxel and shape: without a file nothing is stored of it,
    #: and without a place it is the whole file.
    Part: TypeAlias = tuple[Path | None, tuple[int, int] | None, tuple[int, ...], tuple[int, ...]]

#: What the index of a shard says of a chunk that is not there.
_NONE = 2**64 - 1
#: Chunks that are waited for at once, for each thread.
_AHEAD = 4
#: Bytes of a checksum.
_CHECKSUM = 4


@dataclass(frozen=True)
class _Index:
    """The index of each shard: where its chunks lie."""

    at_end: bool
    has_checksum: bool


@dataclass(frozen=True)
class ChunkFiles:
    """How the chunks of an array are stored."""

    root: Path  # folder of the array
    array: Any  # of zarr
    dtype: np.dtype[Any]  # as it is stored
    chunk: tuple[int, ...]  # what is decoded at once
    file: tuple[int, ...]  # what lies in a file: a chunk, or some of them
    decoders: tuple[Decode, ...]
    index: _Index | None  # None where a file is a chunk

    @classmethod
    def of(cls, array: Any) -> ChunkFiles | None:
        """Return how an array is stored that `hushpore.io.zarr.codecs.bounded` gave.

        None where it is stored in another way than is known here.
        """
        metadata, root = array.metadata, getattr(array.store, "root", None)
        if root is None:
            return None
        place = Path(root, array.path)
        chunk = tuple(int(each) for each in array.chunks)
        if metadata.zarr_format == 2:
            if metadata.order != "C" or metadata.filters:
                return None
            compressor = metadata.compressor
            decoders = () if compressor is None else (compressor.decode,)
            return cls(place, array, np.dtype(array.dtype), chunk, chunk, decoders, None)
        codecs, index, file = metadata.codecs, None, chunk
        if codec_name(codecs[0]) == "sharding_indexed":
            (shards,) = codecs
            index = _index_of(shards)
            codecs, file = shards.codecs, tuple(int(each) for each in array.shards)
            if index is None:
                return None
        found = _decoders(codecs)
        if found is None:
            return None
        dtype = np.dtype(array.dtype).newbyteorder(_byte_order(codecs[0]))
        return cls(place, array, dtype, chunk, file, found, index)

    def read(self, region: Sequence[slice], out: npt.NDArray[Any]) -> None:
        """Fill an array with a region, of a slice with both ends for each axis.

        Raises what codecs raise; InputError, ValueError where a chunk is damaged.
        """
        parts = self.parts(region)
        first = [*itertools.islice(parts, 2)]
        if len(first) == 1:
            self._fill(first[0], region, out)
            return
        with ThreadPoolExecutor(THREADS, "hushpore reads") as pool:
            waiting: deque[Any] = deque()
            try:
                for part in itertools.chain(first, parts):
                    waiting.append(pool.submit(self._fill, part, region, out))
                    if len(waiting) > _AHEAD * THREADS:
                        waiting.popleft().result()
                for each in waiting:
                    each.result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def parts(self, region: Sequence[slice]) -> Iterator[Part]:
        """Yield what a region is read in: its chunks, and what of it is in no file."""
        for number in itertools.product(*map(_touched, region, self.file)):
            corner = tuple(n * length for n, length in zip(number, self.file, strict=True))
            path = self.root / self.array.metadata.encode_chunk_key(number)
            if not path.exists():
                yield None, None, corner, self.file
                continue
            if not path.is_file():
                # one that waits for a writer would never end
                raise InputError(
                    f"{path.name} in {self.root.name} is a pipe or a device, and no file."
                )
            if self.index is None:
                yield path, None, corner, self.chunk
                continue
            inner = [
                slice(max(each.start, start), min(each.stop, start + length))
                for each, start, length in zip(region, corner, self.file, strict=True)
            ]
            for place, start in self._places(path, self.index, corner, inner):
                yield None if place is None else path, place, start, self.chunk

    def stored(self, path: Path, place: tuple[int, int] | None) -> bytes:
        """Return the bytes of a chunk as they are stored."""
        with path.open("rb", buffering=0) as file:
            return _read(file, *(place or (0, os.fstat(file.fileno()).st_size)))

    def decode(self, content: Any) -> Any:
        """Return the bytes of the values of a chunk, of those that are stored."""
        for decode in self.decoders:
            content = decode(content)
        return content

    def _places(
        self, path: Path, form: _Index, corner: Sequence[int], inner: Sequence[slice]
    ) -> list[tuple[tuple[int, int] | None, tuple[int, ...]]]:
        """Return where chunks lie in a shard, offset and size or None, and their first voxels.

        `form`: of its index. `corner`: its first voxel. `inner`: the part that is wanted.
        """
        counts = [n // length for n, length in zip(self.file, self.chunk, strict=True)]
        whole = 16 * math.prod(counts) + _CHECKSUM * form.has_checksum
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            content = _read(file, size - whole if form.at_end else 0, whole)
            index = np.frombuffer(_checked(content) if form.has_checksum else content, "<u8")
            index = index.reshape(*counts, 2)
            found = []
            for own in itertools.product(*map(_touched, inner, self.chunk)):
                start = tuple(n * length for n, length in zip(own, self.chunk, strict=True))
                within = (np.array(start) - corner) // self.chunk
                at, n = (int(each) for each in index[tuple(within)])
                found.append((None if at == n == _NONE else (at, n), start))
            if hasattr(os, "posix_fadvise") and len(found) > 1:
                # several threads will read them; the disk can begin, and with no others
                for place, _ in found:
                    if place is not None and sum(place) <= size:
                        os.posix_fadvise(file.fileno(), *place, os.POSIX_FADV_WILLNEED)
        return found

    def _fill(self, part: Part, region: Sequence[slice], out: npt.NDArray[Any]) -> None:
        """Put a part into its place."""
        path, place, start, size = part
        ends = [
            (max(each.start, at), min(each.stop, at + length))
            for each, at, length in zip(region, start, size, strict=True)
        ]
        target = tuple(
            slice(a - each.start, b - each.start) for each, (a, b) in zip(region, ends, strict=True)
        )
        if path is None:
            fill = self.array.metadata.fill_value
            out[target] = 0 if fill is None else fill
            return
        content = self.decode(self.stored(path, place))
        values = np.frombuffer(content, self.dtype).reshape(self.chunk)
        own = tuple(slice(a - at, b - at) for at, (a, b) in zip(start, ends, strict=True))
        out[target] = values[own]


def _touched(part: slice, length: int) -> range:
    """Return the numbers of pieces of a length that a part of an axis touches."""
    return range(part.start // length, -(-part.stop // length))


def _read(file: FileIO, offset: int, size: int) -> bytes:
    """Return bytes of a file.

    Raises ValueError if it ends before.
    """
    # no more than there is is asked for, whatever an index says
    if offset < 0 or offset + size > os.fstat(file.fileno()).st_size:
        raise ValueError("A shard ends before its chunks do.")
    file.seek(offset)
    pieces = []
    while size:
        piece = file.read(size)
        if not piece:
            raise ValueError("A file was shortened while it was read.")
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _index_of(shards: Any) -> _Index | None:
    names = [codec_name(each) for each in shards.index_codecs]
    known = names in (["bytes"], ["bytes", "crc32c"])
    if not known or _byte_order(shards.index_codecs[0]) == ">":
        return None
    location = getattr(shards.index_location, "value", shards.index_location)
    return _Index(str(location) == "end", names[-1] == "crc32c")


def _byte_order(codec: Any) -> str:
    endian = getattr(codec.endian, "value", codec.endian)
    return ">" if endian == "big" else "<"


def _decoders(codecs: Sequence[Any]) -> tuple[Decode, ...] | None:
    """Return what decodes a chunk, the last first; None where one of the codecs is not known."""
    first, *others = codecs
    found: list[Decode] = []
    for each in reversed(others):
        if isinstance(each, Bounded3):
            found.append(each.decoded)
        elif codec_name(each) == "crc32c":
            found.append(_checked)
        else:
            return None
    return tuple(found) if codec_name(first) == "bytes" else None


def _checked(content: bytes) -> bytes:
    """Return what comes before a checksum.

    Raises ValueError if that is of other bytes.
    """
    # zarr itself needs it
    import google_crc32c

    rest, stated = content[:-_CHECKSUM], content[-_CHECKSUM:]
    if google_crc32c.value(rest) != int.from_bytes(stated, "little"):
        raise ValueError("A checksum is that of other bytes.")
    return rest
