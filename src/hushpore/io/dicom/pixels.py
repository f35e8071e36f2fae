"""Pixel data of DICOM files: read directly or decoded, plane by plane."""

from __future__ import annotations

import math
import struct
import threading
import zlib
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError, MissingPackageError
from hushpore.io.guards import SMALL, captured_warnings, explained_damage, stated_bytes, stated_size
from hushpore.io.lazy_arrays import read_uncompressed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from hushpore.base.arrays import Array
    from hushpore.io.dicom.geometry import Slice
    from hushpore.io.guards import InputLimits

_DECODERS = "pip install python-gdcm (or, for JPEG 2000, pylibjpeg pylibjpeg-openjpeg)"
#: Transfer syntax of files in which header and pixel data are deflated.
DEFLATED = "1.2.840.10008.1.2.1.99"
#: Largest size of a header, in bytes.
HEADER = SMALL
_EXPLICIT = "1.2.840.10008.1.2.1"
_PIXEL_DATA = 0x7FE00010
_PIECE = 1 << 20  # bytes inflated at once
_PREAMBLE = 144  # bytes up to the end of the length of the file's meta information
_MOST_TIMES = 32  # largest ratio of decoder memory to image size
_RLE = "1.2.840.10008.1.2.5"
_JPEG = "1.2.840.10008.1.2.4."
# transfer syntax: names of decoders in imagecodecs; the first available one is used
_NAMES = {
    f"{_JPEG}50": ("jpeg8",),
    f"{_JPEG}51": ("jpeg8",),
    f"{_JPEG}57": ("ljpeg", "jpegsof3"),
    f"{_JPEG}70": ("ljpeg", "jpegsof3"),
    f"{_JPEG}80": ("jpegls",),
    f"{_JPEG}81": ("jpegls",),
    f"{_JPEG}90": ("jpeg2k",),
    f"{_JPEG}91": ("jpeg2k",),
    f"{_JPEG}201": ("jpeg2k",),
    f"{_JPEG}202": ("jpeg2k",),
    f"{_JPEG}203": ("jpeg2k",),
    _RLE: ("dicomrle",),
}
_END_OF_IMAGE = b"\xff\xd9"  # in JPEG, JPEG-LS and JPEG 2000


@dataclass(frozen=True)
class Encoding:
    """Storage of the pixel data of one file."""

    path: Path  # the file
    size: int  # of the file, in bytes
    syntax: str  # UID of the transfer syntax; empty if not stated
    n_frames: int  # number of frames
    shape: tuple[int, int]  # rows and columns
    dtype: np.dtype[Any]  # stored data type, in the byte order of the file
    # bits of a stored value that are used
    bits_stored: int
    high_bit: int
    offset: int  # of the pixel data in the file; -1 if they are left to pydicom
    length: int | None  # of the pixel data, in bytes; None if encapsulated (compressed)
    limits: InputLimits  # input limits of the file

    @property
    def bounds(self) -> tuple[int, int]:
        """Lowest and highest stored value possible."""
        if self.dtype.kind == "i":
            return -(2 ** (self.bits_stored - 1)), 2 ** (self.bits_stored - 1) - 1
        return 0, 2**self.bits_stored - 1

    @property
    def frame_bytes(self) -> int:
        """Size of one decoded frame, in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def rest(self) -> int:
        """Bytes of pixel data beyond the image described in the header; 0 if unknown."""
        return max((self.length or 0) - self.frame_bytes * self.n_frames, 0)

    @property
    def is_complete(self) -> bool:
        """Whether the file is large enough for the image described in its header."""
        try:
            self.require_complete()
        except InputError:
            return False
        return True

    def require_complete(self) -> None:
        """Check, from the header alone, that the file is large enough for its image.

        Raises InputError if it ends too early; NotTrustedError if the image would need far more
        memory than the size of the file.
        """
        self.limits.require_few(self.n_frames, "frames")
        needed = self.frame_bytes * self.n_frames
        if self.offset >= self.size or self.length == 0:
            raise InputError(
                f"{self.path.name} contains no pixels: after the header there is no image. Copy or "
                "export it again."
            )
        stated = " x ".join(str(n) for n in (self.n_frames, *self.shape)) + " pixels"
        if self.offset < 0 or self.length is None:
            self.limits.require_plausible(needed, stated)
            return
        if self.length < needed:
            raise InputError(
                f"{self.path.name} contains {self.length:,} bytes of pixel data, but its header "
                f"describes {stated} ({needed:,} bytes). Copy or export it again."
            )
        if self.offset + needed > self.size:
            raise InputError(
                f"The image in {self.path.name} is damaged or incomplete: the file ends before "
                "its image does. Copy or export it again."
            )


class SeriesReader:
    """Reader of the stored values of one series; safe to use from several threads.

    Uncalibrated MONOCHROME1 images are inverted.

    `slices`: in order; each with its encoding.
    Raises InputError if a file is too small for its image; the check decodes no pixel data.
    """

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._slices = slices
        self._lock = threading.Lock()
        self._decoded: tuple[Path, Array] | None = None
        for encoding in {item.path: item.encoding for item in slices}.values():
            encoding.require_complete()
        first = slices[0].facts
        self.inverted = first["inverted"] and not first["calibrated"]
        stored = [item.encoding.dtype.newbyteorder("=") for item in slices]
        self.dtype = np.result_type(*set(stored))

    def __call__(self, number: int, out: Array) -> None:
        """Fill `out` with one plane.

        Raises InputError if the image is damaged; MissingPackageError if its compression needs a
        decoder that is not installed.
        """
        item = self._slices[number]
        stored = self._stored(item, out)
        if stored is not out:
            out[...] = stored
        if self.inverted:
            np.subtract(_inversion_sum(item), out, out=out, casting="unsafe", dtype=np.float64)

    def shown(self, item: Slice, values: Sequence[float]) -> list[float]:
        """Return grey values in the header of a slice as the reader returns them, ascending."""
        if not self.inverted:
            return list(values)
        # for values after slope and intercept
        total = _inversion_sum(item) * item.slope + 2 * item.intercept
        return sorted(total - value for value in values)

    def _stored(self, item: Slice, out: Array) -> Array:
        from pydicom.encaps import get_frame

        encoding = item.encoding
        with explained_damage(
            lambda error: InputError(
                f"The image in {encoding.path.name} is damaged or incomplete and cannot be "
                f"decoded ({type(error).__name__}). Copy or export it again."
            )
        ):
            if encoding.offset >= 0 and encoding.length is not None:
                return _native(encoding, item.frame, out)
            decode = decoder_of(encoding.syntax) if encoding.offset >= 0 else None
            if decode is None:
                return self._by_pydicom(item)
            with encoding.path.open("rb") as file:
                file.seek(encoding.offset)
                frame = bytes(get_frame(file, item.frame, number_of_frames=encoding.n_frames))
            rows, columns = stated_size(frame) or encoding.shape
            if (rows, columns) != encoding.shape:
                raise InputError(
                    f"{encoding.path.name} is damaged: its compressed image has "
                    f"{rows} x {columns} pixels, but its header gives {encoding.shape[0]} x "
                    f"{encoding.shape[1]}. Copy or export it again."
                )
            if (stated_bytes(frame) or 0) > _MOST_TIMES * encoding.frame_bytes + SMALL:
                raise InputError(
                    f"{encoding.path.name} is damaged: its compressed image has more samples per "
                    "pixel than its header gives. Copy or export it again."
                )
            return _as_stated(_decoded(decode, frame, encoding), encoding)

    def _by_pydicom(self, item: Slice) -> Array:
        """Decode a file with the decoders of pydicom, all frames at once."""
        with self._lock, captured_warnings("pydicom"):
            if self._decoded is None or self._decoded[0] != item.path:
                self._decoded = None
                self._decoded = (item.path, _pixel_array(item.encoding))
            plane: Array = self._decoded[1][item.frame]
            return plane


def _inversion_sum(item: Slice) -> float:
    """Return the sum of a stored value and its inverse: lowest plus highest stored value."""
    return float(sum(item.encoding.bounds))


def _native(encoding: Encoding, frame: int, out: Array) -> Array:
    """Read a plane into `out`, or into a new array if `out` has another type."""
    dtype = encoding.dtype.newbyteorder("=")
    values = out if out.dtype == dtype else np.empty(encoding.shape, dtype)
    offset = encoding.offset + frame * encoding.frame_bytes
    read_uncompressed(encoding.path, offset, encoding.dtype, values)
    return _without_unused_bits(values, encoding)


def _without_unused_bits(values: Array, encoding: Encoding) -> Array:
    """Clear the unused bits in place, in which old scanners stored overlays."""
    allocated = 8 * values.dtype.itemsize
    if values.dtype.kind == "f" or encoding.bits_stored == allocated:
        return values
    # shift the value up to the sign bit and back, with sign extension
    np.left_shift(values, allocated - 1 - encoding.high_bit, out=values)
    np.right_shift(values, allocated - encoding.bits_stored, out=values)
    return values


def _as_stated(decoded: Array, encoding: Encoding) -> Array:
    """Convert decoded values to the data type in the header."""
    dtype = encoding.dtype.newbyteorder("=")
    values: Array = decoded.reshape(encoding.shape)
    if values.dtype == dtype:
        return values
    sign_is_missing = values.dtype.kind == "u" and dtype.kind == "i"
    values = values.astype(dtype)
    if sign_is_missing:
        shift = 8 * dtype.itemsize - encoding.bits_stored
        np.left_shift(values, shift, out=values)
        np.right_shift(values, shift, out=values)
    return values


def _pixel_array(encoding: Encoding) -> Array:
    import pydicom
    from pydicom import uid

    path = encoding.path
    with path.open("rb") as file:
        content = inflated(file, HEADER + 2 * encoding.n_frames * encoding.frame_bytes)
        dataset = (
            pydicom.dcmread(path, force=True)
            if content is None
            # the elements after the pixel data may be cut off
            else pydicom.filereader.read_partial(content, lambda tag, *_: tag > _PIXEL_DATA)
        )
    if not encoding.syntax:
        implicit, little = dataset.original_encoding
        syntax = uid.ImplicitVRLittleEndian if implicit else uid.ExplicitVRLittleEndian
        dataset.file_meta.TransferSyntaxUID = syntax if little else uid.ExplicitVRBigEndian
    _require_decoder(dataset, path)
    try:
        stored = np.asarray(dataset.pixel_array)
    except RuntimeError as error:
        name = dataset.file_meta.TransferSyntaxUID.name
        raise InputError(
            f"The image in {path.name} ({name}) cannot be decoded: it is damaged, or its decoder "
            f"is not installed: {_DECODERS}"
        ) from error
    return stored.reshape(encoding.n_frames, *encoding.shape)


def inflated(file: BinaryIO, most: int) -> BytesIO | None:
    """Return the beginning of a deflated file, inflated; None for any other file.

    The result reads like an uncompressed file. `file`: positioned at its beginning, also
    afterwards. `most`: number of bytes to inflate at most.
    """
    start = file.read(2048)
    file.seek(0)
    if start[128:132] != b"DICM" or DEFLATED.encode() not in start:
        return None
    # the group length, the first element, gives the beginning of the data set
    begins = _PREAMBLE + int.from_bytes(start[_PREAMBLE - 4 : _PREAMBLE], "little")
    meta = start[:begins].replace(DEFLATED.encode(), _EXPLICIT.encode().ljust(len(DEFLATED), b"\0"))
    if start[132:138] != b"\2\0\0\0UL" or begins > len(start) or len(meta) != begins:
        raise EOFError("the meta information has no group length")
    file.seek(begins)
    stream, content, piece = zlib.decompressobj(-zlib.MAX_WBITS), BytesIO(meta), b""
    content.seek(begins)
    while content.tell() < begins + most and not stream.eof:
        piece = piece or file.read(_PIECE)
        found = stream.decompress(piece, _PIECE)
        if not found and not piece:
            break
        content.write(found)
        piece = stream.unconsumed_tail
    file.seek(0)
    content.seek(0)
    return content


def _require_decoder(dataset: Any, path: Path) -> None:
    from pydicom.pixels.decoders.base import get_decoder

    syntax = dataset.file_meta.TransferSyntaxUID
    if not syntax.is_transfer_syntax:
        raise InputError(
            f"{path.name} uses a compression that is not supported ({syntax}). Export it "
            "uncompressed."
        )
    if not syntax.is_compressed or syntax.is_deflated:
        return
    try:
        available = get_decoder(syntax).is_available
    except NotImplementedError:
        available = False
    if not available:
        raise MissingPackageError(
            f"{path.name} is compressed ({syntax.name}), and no decoder for this is installed: "
            f"{_DECODERS}"
        )


def decoder_of(syntax: str) -> Callable[..., Any] | None:
    """Return the decoder of imagecodecs for a transfer syntax, or None if it has none."""
    try:
        import imagecodecs
    except ImportError:
        return None
    names = _NAMES.get(syntax, ())
    found = (name for name in names if getattr(imagecodecs, name.upper()).available)
    return next((getattr(imagecodecs, f"{name}_decode") for name in found), None)


def _without_fill_bytes(frame: bytes, count: int) -> bytes:
    """Return an RLE frame whose segments end with their last run (DICOM PS3.5 G.3.1).

    `count`: bytes that each segment expands to.
    Raises EOFError if a segment ends before.
    """
    n_segments, *starts = struct.unpack_from("<16I", frame)
    ends = [*starts[1:n_segments], len(frame)]
    segments: list[bytes] = []
    for start, end in zip(starts[:n_segments], ends, strict=True):
        at, left = start, count
        while left > 0:
            if at >= min(end, len(frame)):
                raise EOFError("the runs end before the frame does")
            length = frame[at]
            # as a signed byte: 0 and above copies, below repeats, -128 does nothing
            literal = length < 128
            size = length + 1 if literal else 257 - length if length > 128 else 0
            at += 1 + (size if literal else bool(size))
            left -= size
        segments.append(frame[start:at] + b"\0" * ((at - start) % 2))
    offsets = [64 + sum(map(len, segments[:number])) for number in range(n_segments)]
    header = struct.pack("<16I", n_segments, *offsets, *[0] * (15 - n_segments))
    return header + b"".join(segments)


def _decoded(decode: Callable[..., Any], frame: bytes, encoding: Encoding) -> Array:
    """Return the decoded values of a frame."""
    if encoding.syntax == _RLE:
        values = np.empty(encoding.shape, encoding.dtype.newbyteorder("="))
        out = values.reshape(-1).view(np.uint8)
        try:
            filled = decode(frame, values.dtype, out=out)
        except Exception:
            # the decoder takes fill bytes at the end of a segment for runs
            cut = _without_fill_bytes(frame, math.prod(encoding.shape))
            filled = decode(cut, values.dtype, out=out)
        if len(filled) != values.nbytes:
            raise EOFError("the runs end before the frame does")
        return values
    # CharLS takes seconds for a truncated frame without an end-of-image marker
    ended = frame[-16:].rstrip(b"\0").endswith(_END_OF_IMAGE)
    decoded: Array = decode(frame if ended else frame + _END_OF_IMAGE)
    return decoded
