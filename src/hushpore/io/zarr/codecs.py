"""Codecs of Zarr chunks: an allow-list, with a size limit for every decoded chunk.

The file names its codecs, and some installed codecs can run code or expand a few bytes without
limit. Each chunk is therefore checked before it is decoded.
"""

from __future__ import annotations

import bz2
import dataclasses
import lzma
import math
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numcodecs import get_codec
from numcodecs.abc import Codec
from zarr import Array, AsyncArray
from zarr.abc.codec import BytesBytesCodec
from zarr.storage import LocalStore

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.io.input_limits import InputLimits

#: Zarr 2 codecs that do not change the size, or only compute a checksum.
_FILTERS = (
    "shuffle", "delta", "fixedscaleoffset", "quantize", "bitround", "astype", "packbits", "crc32",
    "crc32c", "adler32", "fletcher32", "jenkins_lookup3",
)  # fmt: skip
#: Zarr 3 codecs of this kind.
_ARRAY_CODECS = ("bytes", "transpose", "crc32c", "sharding_indexed", "endian")
#: Codecs allowed for the index of a shard, which must have a known size.
_INDEX_CODECS = ("bytes", "crc32c", "endian")
_BLOCK = 1 << 17  # largest size of a Zstandard block, in bytes
_SLACK = 1 << 16
_LZMA_MEMORY = 1 << 28


class PlainFiles(LocalStore):
    """Folder store that reads only regular files; a pipe might block forever."""

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        """Return the content stored under a key."""
        place = self.root / key
        if place.exists() and not (place.is_file() or place.is_dir()):
            raise InputError(
                f"{key} in {self.root.name} is a pipe or a device, not a file. Copy the image "
                "again."
            )
        return await super().get(key, *args, **options)


def bounded(array: Any, limits: InputLimits) -> Any:
    """Return an array that checks its chunks before decoding them.

    `array`: a zarr array, version 2 or 3. `limits`: input limits of its image.
    Raises InputError if it uses an unknown codec or does not contain numbers; NotTrustedError or
    MemoryLimitError if a chunk is too large.
    """
    dtype = np.dtype(array.dtype)
    if dtype.kind not in "buif":
        raise InputError(f"{limits.name} contains {dtype} values; real numbers are needed.")
    if 0 in array.chunks or 0 in array.shape:
        raise InputError(
            f"{limits.name} is damaged: its shape is {array.shape}, in chunks of {array.chunks}. "
            "Copy or export it again."
        )
    metadata = array.metadata
    size = math.prod(array.chunks) * dtype.itemsize
    limits.require_room(size, "the values of a chunk")
    if metadata.zarr_format == 2:
        filters = tuple(metadata.filters or ())
        known = [codec_name(each) for each in (metadata.compressor, *filters) if each is not None]
        _require_known(known, (*_SIZES, *_FILTERS), limits)
        # filters may widen the values
        most = size * (16 if filters else 1) + _SLACK
        inner = [
            None if each is None else _Bounded2(each, limits, most)
            for each in (metadata.compressor, *filters)
        ]
        changed = dataclasses.replace(
            metadata, compressor=inner[0], filters=tuple(inner[1:]) or None
        )
    else:
        codecs = _bounded_codecs(metadata.codecs, size + _SLACK, dtype, limits)
        changed = dataclasses.replace(metadata, codecs=codecs)
    return Array(AsyncArray(metadata=changed, store_path=array.store_path))


def _bounded_codecs(
    codecs: tuple[Any, ...], most: int, dtype: np.dtype[Any], limits: InputLimits
) -> tuple[Any, ...]:
    found: list[Any] = []
    for codec in codecs:
        name = codec_name(codec)
        _require_known([name], (*_SIZES, *_ARRAY_CODECS), limits)
        if name == "sharding_indexed":
            for each in codec.index_codecs:
                _require_known([codec_name(each)], _INDEX_CODECS, limits)
            within = math.prod(codec.chunk_shape) * dtype.itemsize + _SLACK
            found.append(
                type(codec)(
                    chunk_shape=codec.chunk_shape,
                    codecs=_bounded_codecs(codec.codecs, within, dtype, limits),
                    index_codecs=codec.index_codecs,
                    index_location=codec.index_location,
                )
            )
        else:
            found.append(Bounded3(codec, limits, most) if name in _SIZES else codec)
    return tuple(found)


def codec_name(codec: Any) -> str:
    """Return the name of a codec of either version."""
    name = getattr(codec, "codec_id", None) or codec.to_dict().get("name", "")
    return str(name)


def _require_known(names: list[str], known: tuple[str, ...], limits: InputLimits) -> None:
    for name in names:
        if name not in known:
            raise InputError(
                f"{limits.name} uses the codec {name[:100]!r}, which is not supported, because a "
                "codec could run code or fill the memory. Supported codecs: "
                f"{', '.join(sorted(known))}. Convert the image with the program that wrote it."
            )


def _require_size(name: str, content: bytes, most: int, limits: InputLimits) -> None:
    """Raise InputError if a chunk expands beyond its size.

    Raises NotTrustedError if its compression ratio is implausible.
    """
    size = _SIZES[name](content, most)
    if size > most:
        raise InputError(
            f"{limits.name} is damaged, or crafted to fill the memory: a chunk of at most {most:,} "
            "bytes expands to more. Copy or export it again."
        )
    dataclasses.replace(limits, stored=len(content)).require_plausible(size, "a chunk")


class _Bounded2(Codec):  # type: ignore[misc]
    """Zarr 2 codec that checks a chunk before decoding it."""

    codec_id: str = "bounded"  # each instance has the id of its codec

    def __init__(self, codec: Any, limits: InputLimits, most: int) -> None:
        self.codec_id = codec.codec_id
        self._codec, self._limits, self._most = codec, limits, most

    def encode(self, buf: Any) -> Any:
        """Compress with the codec."""
        return self._codec.encode(buf)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Check the size, then decompress."""
        if self.codec_id in _SIZES:
            content = buf if isinstance(buf, bytes) else memoryview(buf).cast("B").tobytes()
            _require_size(self.codec_id, content, self._most, self._limits)
        return self._codec.decode(buf, out)

    def get_config(self) -> Any:
        """Return the stored configuration of the codec."""
        return self._codec.get_config()


@dataclasses.dataclass(frozen=True)
class Bounded3(BytesBytesCodec):
    """Zarr 3 codec that checks a chunk before decoding it."""

    codec: Any
    limits: InputLimits
    most: int
    is_fixed_size = False

    def decoded(self, content: bytes) -> Any:
        """Check the size of a chunk, then decompress it."""
        name = codec_name(self.codec)
        _require_size(name, content, self.most, self.limits)
        return get_codec({"id": name}).decode(content)

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        _require_size(codec_name(self.codec), chunk_bytes.to_bytes(), self.most, self.limits)
        return await self.codec._decode_single(chunk_bytes, chunk_spec)

    async def _encode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return await self.codec._encode_single(chunk_bytes, chunk_spec)

    def evolve_from_array_spec(self, array_spec: Any) -> Any:
        """Adapt the codec to the array."""
        codec = self.codec.evolve_from_array_spec(array_spec)
        return dataclasses.replace(self, codec=codec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
        """Return the compressed size, if the codec can tell."""
        return int(self.codec.compute_encoded_size(input_byte_length, chunk_spec))

    def to_dict(self) -> Any:
        """Return the stored configuration of the codec."""
        return self.codec.to_dict()


# ---- decoded size of a chunk: declared in its header, or counted


def _counted(stream: Callable[[], Any]) -> Callable[[bytes, int], int]:
    """Return a function that decompresses only to count bytes, and stops above a limit."""

    def size(content: bytes, most: int) -> int:
        total, left = 0, content
        while left and total <= most:
            part, before = stream(), total
            piece = left
            while not part.eof and total <= most:
                found = len(part.decompress(piece, _BLOCK))
                piece = getattr(part, "unconsumed_tail", b"")
                total += found
                if not found and not piece:
                    break
            # one stream may follow another
            left = part.unused_data if part.eof else b""
            if total == before and left == content:
                break
        return total

    return size


def _blosc_size(content: bytes, most: int) -> int:
    return int.from_bytes(content[4:8], "little")


def _lz4_size(content: bytes, most: int) -> int:
    return int.from_bytes(content[:4], "little")


def _zstd_size(content: bytes, most: int) -> int:
    """Return an upper bound for the decoded size of Zstandard frames, from their headers."""
    at = total = 0
    while at + 4 <= len(content) and total <= most:
        magic = int.from_bytes(content[at : at + 4], "little")
        if magic & 0xFFFFFFF0 == 0x184D2A50:  # skippable frame
            at += 8 + int.from_bytes(content[at + 4 : at + 8], "little")
            continue
        if magic != 0xFD2FB528:
            break
        flags = content[at + 4 : at + 5]
        if not flags:
            break
        single, has_checksum = flags[0] >> 5 & 1, flags[0] >> 2 & 1
        dictionary = (0, 1, 2, 4)[flags[0] & 3]
        stated_in = (single, 2, 4, 8)[flags[0] >> 6]
        start = at + 5 + (1 - single) + dictionary
        stated = int.from_bytes(content[start : start + stated_in], "little")
        at, frame, is_last = start + stated_in, 0, False
        while not is_last and at + 3 <= len(content):
            block = int.from_bytes(content[at : at + 3], "little")
            is_last, kind, length = bool(block & 1), block >> 1 & 3, block >> 3
            frame += length if kind < 2 else _BLOCK
            at += 3 + (1 if kind == 1 else length)
        at += 4 * has_checksum
        # without a declared size, the last block may have been counted as a full one
        total += (stated + (256 if stated_in == 2 else 0)) if stated_in else max(frame - _BLOCK, 0)
    return total


_SIZES: dict[str, Callable[[bytes, int], int]] = {
    "blosc": _blosc_size,
    "zstd": _zstd_size,
    "lz4": _lz4_size,
    "gzip": _counted(lambda: zlib.decompressobj(31)),
    "zlib": _counted(zlib.decompressobj),
    "bz2": _counted(bz2.BZ2Decompressor),
    "lzma": _counted(lambda: lzma.LZMADecompressor(memlimit=_LZMA_MEMORY)),
}
