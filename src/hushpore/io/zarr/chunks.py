"""Reading of Zarr chunks in several threads.

zarr passes each chunk through one event loop and copies it three times, which reaches only a
quarter of the speed of the disk. Here each thread reads a chunk, decodes it and writes it into the
output array. This works for chunks in files or shards in C order; zarr reads all other arrays.
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

    from hushpore.base.arrays import Array

    #: Decodes the bytes of a chunk; raises the errors of its codec.
    Decode: TypeAlias = Callable[[bytes], Any]
    #: File, its byte range (offset and size), first voxel and shape. No file: nothing is stored for
    #: this part; no byte range: the whole file.
    Part: TypeAlias = tuple[Path | None, tuple[int, int] | None, tuple[int, ...], tuple[int, ...]]

#: Marks a missing chunk in the index of a shard.
_NONE = 2**64 - 1
#: Number of queued chunks per thread.
_AHEAD = 4
#: Size of a checksum, in bytes.
_CHECKSUM = 4


@dataclass(frozen=True)
class _Index:
    """Format of the shard index, which gives the byte ranges of the chunks."""

    at_end: bool
    has_checksum: bool


@dataclass(frozen=True)
class ChunkFiles:
    """Storage of the chunks of an array."""

    root: Path  # folder of the array
    array: Any  # zarr array
    dtype: np.dtype[Any]  # stored data type
    chunk: tuple[int, ...]  # shape of a chunk
    file: tuple[int, ...]  # shape of a file: a chunk or a shard
    decoders: tuple[Decode, ...]
    index: _Index | None  # None if a file is a chunk

    @classmethod
    def of(cls, array: Any) -> ChunkFiles | None:
        """Return the chunk storage of an array from `hushpore.io.zarr.codecs.bounded`.

        None if it is not supported here.
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

    def read(self, region: Sequence[slice], out: Array) -> None:
        """Fill an array with a region, given as a slice with start and stop for each axis.

        Raises InputError or ValueError if a chunk is damaged, and the errors of the codecs.
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
        """Yield the parts of a region: its chunks, and the areas without a file."""
        for number in itertools.product(*map(_touched, region, self.file)):
            corner = tuple(n * length for n, length in zip(number, self.file, strict=True))
            path = self.root / self.array.metadata.encode_chunk_key(number)
            if not path.exists():
                yield None, None, corner, self.file
                continue
            if not path.is_file():
                # reading a pipe might block forever
                raise InputError(
                    f"{path.name} in {self.root.name} is a pipe or a device, not a file. Copy the "
                    "image again."
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
        """Return the stored bytes of a chunk."""
        with path.open("rb", buffering=0) as file:
            return _read(file, *(place or (0, os.fstat(file.fileno()).st_size)))

    def decode(self, content: Any) -> Any:
        """Return the decoded bytes of a chunk."""
        for decode in self.decoders:
            content = decode(content)
        return content

    def _places(
        self, path: Path, form: _Index, corner: Sequence[int], inner: Sequence[slice]
    ) -> list[tuple[tuple[int, int] | None, tuple[int, ...]]]:
        """Return the byte range (None if missing) and the first voxel of chunks in a shard.

        `form`: format of the index. `corner`: first voxel of the shard. `inner`: requested region.
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
                # let the disk prefetch exactly the chunks that the threads will read
                for place, _ in found:
                    if place is not None and sum(place) <= size:
                        os.posix_fadvise(file.fileno(), *place, os.POSIX_FADV_WILLNEED)
        return found

    def _fill(self, part: Part, region: Sequence[slice], out: Array) -> None:
        """Read one part and write it into the output array."""
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
    """Return the indices of the pieces of a given length that overlap a part of an axis."""
    return range(part.start // length, -(-part.stop // length))


def _read(file: FileIO, offset: int, size: int) -> bytes:
    """Return a byte range of a file; raises ValueError if the file ends too early."""
    # check the range first, as the index may be damaged
    if offset < 0 or offset + size > os.fstat(file.fileno()).st_size:
        raise ValueError("A shard ends before its last chunk.")
    file.seek(offset)
    pieces = []
    while size:
        piece = file.read(size)
        if not piece:
            raise ValueError("A file was truncated while it was read.")
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
    """Return the decoders of a chunk in order of use; None if one codec is not supported."""
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
    """Return the content without its checksum; raises ValueError if the checksum is wrong."""
    # a dependency of zarr
    import google_crc32c

    rest, stated = content[:-_CHECKSUM], content[-_CHECKSUM:]
    if google_crc32c.value(rest) != int.from_bytes(stated, "little"):
        raise ValueError("A checksum is wrong.")
    return rest
