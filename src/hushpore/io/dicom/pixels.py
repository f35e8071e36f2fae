"""Pixels of DICOM files: read where they lie, or decoded, plane by plane."""

from __future__ import annotations

import math
import threading
import zlib
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError, MissingPackageError
from hushpore.io.input_limits import SMALL, stated_bytes, stated_size
from hushpore.io.lazy_arrays import read_uncompressed
from hushpore.io.libraries import captured_warnings, explained_damage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import BinaryIO

    import numpy.typing as npt

    from hushpore.io.dicom.geometry import Slice
    from hushpore.io.input_limits import InputLimits

_DECODERS = "pip install python-gdcm (or, for JPEG 2000, pylibjpeg pylibjpeg-openjpeg)"
#: Transfer syntax of what is compressed as a whole, header and pixels.
DEFLATED = "1.2.840.10008.1.2.1.99"
#: Bytes of a header, at most.
HEADER = SMALL
_EXPLICIT = "1.2.840.10008.1.2.1"
_PIXEL_DATA = 0x7FE00010
_PIECE = 1 << 20  # bytes that are inflated at once
_PREAMBLE = 144  # bytes up to the end of the length of the file's meta information
_MOST_TIMES = 32  # bytes that a decoder may take for each of a value
_RLE = "1.2.840.10008.1.2.5"
_JPEG = "1.2.840.10008.1.2.4."
# transfer syntax: names of the decoders in imagecodecs, the first that is there is taken
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
_END_OF_IMAGE = b"\xff\xd9"  # of JPEG, JPEG-LS and JPEG 2000 alike


@dataclass(frozen=True)
class Encoding:
    """How the pixels of one file are stored."""

    path: Path  # the file
    size: int  # its bytes
    syntax: str  # UID of its transfer syntax; empty where it states none
    n_frames: int  # number of frames
    shape: tuple[int, int]  # rows and columns
    dtype: np.dtype[Any]  # of a stored value, in the byte order of the file
    # which bits of it count
    bits_stored: int
    high_bit: int
    offset: int  # where the values begin in the file; -1 where only pydicom can tell
    length: int | None  # their bytes; None where they are encapsulated, as compressed ones are
    gate: InputLimits  # what the file may take

    @property
    def bounds(self) -> tuple[int, int]:
        """Lowest and highest value that can be stored."""
        if self.dtype.kind == "i":
            return -(2 ** (self.bits_stored - 1)), 2 ** (self.bits_stored - 1) - 1
        return 0, 2**self.bits_stored - 1

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame, decoded."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def rest(self) -> int:
        """Bytes of pixels beyond those of the image that the header states; 0 where unknown."""
        return max((self.length or 0) - self.frame_bytes * self.n_frames, 0)

    @property
    def is_complete(self) -> bool:
        """Whether the file can hold the image that its header states."""
        try:
            self.require_complete()
        except InputError:
            return False
        return True

    def require_complete(self) -> None:
        """Refuse, from the header alone, a file that cannot hold the image that it states.

        Raises InputError if it ends too early; NotTrustedError if it would take far more memory
        than its bytes.
        """
        self.gate.require_few(self.n_frames, "frames")
        needed = self.frame_bytes * self.n_frames
        if self.offset >= self.size or self.length == 0:
            raise InputError(
                f"{self.path.name} holds no pixels: the header is there, the image is not."
            )
        stated = " x ".join(str(n) for n in (self.n_frames, *self.shape)) + " pixels"
        if self.offset < 0 or self.length is None:
            self.gate.require_plausible(needed, stated)
            return
        if self.length < needed:
            raise InputError(
                f"{self.path.name} holds {self.length} bytes of pixels, but its header states "
                f"{stated}, {needed} bytes. Copy or export it again."
            )
        if self.offset + needed > self.size:
            raise InputError(
                f"The image in {self.path.name} is damaged or incomplete: the file ends before "
                "its image does. Copy or export it again."
            )


class SeriesReader:
    """Reads the planes of one series as they are stored; may be shared by threads.

    Those of an inverted image without calibration are turned over.

    `slices`: in order; each with its encoding.
    Raises InputError if a file cannot hold the image that its header states; nothing is decoded for
    that.
    """

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._slices = slices
        self._lock = threading.Lock()
        self._decoded: tuple[Path, npt.NDArray[Any]] | None = None
        for encoding in {item.path: item.encoding for item in slices}.values():
            encoding.require_complete()
        first = slices[0].facts
        self.inverted = first["inverted"] and not first["calibrated"]
        stored = [item.encoding.dtype.newbyteorder("=") for item in slices]
        self.dtype = np.result_type(*set(stored))

    def __call__(self, number: int, out: npt.NDArray[Any]) -> None:
        """Fill `out` with one plane.

        Raises InputError if the image is damaged; MissingPackageError if its compression needs a
        decoder that is not installed.
        """
        item = self._slices[number]
        stored = self._stored(item, out)
        if stored is not out:
            out[...] = stored
        if self.inverted:
            np.subtract(_both(item), out, out=out, casting="unsafe", dtype=np.float64)

    def shown(self, item: Slice, values: Sequence[float]) -> list[float]:
        """Return values of a slice that a header states, rising, as they come out of it."""
        if not self.inverted:
            return list(values)
        # of values after slope and intercept
        both = _both(item) * item.slope + 2 * item.intercept
        return sorted(both - value for value in values)

    def _stored(self, item: Slice, out: npt.NDArray[Any]) -> npt.NDArray[Any]:
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
                    f"{encoding.path.name} is damaged: its compressed image states "
                    f"{rows} x {columns} pixels, its header {encoding.shape[0]} x "
                    f"{encoding.shape[1]}."
                )
            if (stated_bytes(frame) or 0) > _MOST_TIMES * encoding.frame_bytes + SMALL:
                raise InputError(
                    f"{encoding.path.name} is damaged: its compressed image states more values a "
                    "pixel than its header."
                )
            return _as_stated(_decoded(decode, frame, encoding), encoding)

    def _by_pydicom(self, item: Slice) -> npt.NDArray[Any]:
        """Decode a file with pydicom's own decoders, all frames at once."""
        with self._lock, captured_warnings("pydicom"):
            if self._decoded is None or self._decoded[0] != item.path:
                self._decoded = None
                self._decoded = (item.path, _pixel_array(item.encoding))
            plane: npt.NDArray[Any] = self._decoded[1][item.frame]
            return plane


def _both(item: Slice) -> float:
    """Return the sum of the ends of what a slice stores, about whose half it is turned over."""
    return float(sum(item.encoding.bounds))


def _native(encoding: Encoding, frame: int, out: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Read a plane into `out`, or into a new array where `out` is of another type."""
    dtype = encoding.dtype.newbyteorder("=")
    values = out if out.dtype == dtype else np.empty(encoding.shape, dtype)
    offset = encoding.offset + frame * encoding.frame_bytes
    read_uncompressed(encoding.path, offset, encoding.dtype, values)
    return _without_unused_bits(values, encoding)


def _without_unused_bits(values: npt.NDArray[Any], encoding: Encoding) -> npt.NDArray[Any]:
    """Drop the bits that hold no part of the value, in place: old scanners kept overlays there."""
    allocated = 8 * values.dtype.itemsize
    if values.dtype.kind == "f" or encoding.bits_stored == allocated:
        return values
    # up to the sign bit, and back with the sign carried along
    np.left_shift(values, allocated - 1 - encoding.high_bit, out=values)
    np.right_shift(values, allocated - encoding.bits_stored, out=values)
    return values


def _as_stated(decoded: npt.NDArray[Any], encoding: Encoding) -> npt.NDArray[Any]:
    """Give decoded values the sign that the header states."""
    dtype = encoding.dtype.newbyteorder("=")
    values: npt.NDArray[Any] = decoded.reshape(encoding.shape)
    if values.dtype == dtype:
        return values
    has_no_sign = values.dtype.kind == "u" and dtype.kind == "i"
    values = values.astype(dtype)
    if has_no_sign:
        shift = 8 * dtype.itemsize - encoding.bits_stored
        np.left_shift(values, shift, out=values)
        np.right_shift(values, shift, out=values)
    return values


def _pixel_array(encoding: Encoding) -> npt.NDArray[Any]:
    import pydicom
    from pydicom import uid

    path = encoding.path
    with path.open("rb") as file:
        content = inflated(file, HEADER + 2 * encoding.n_frames * encoding.frame_bytes)
        dataset = (
            pydicom.dcmread(path, force=True)
            if content is None
            # what lies behind the pixels may be cut off
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
            f"The image in {path.name} ({name}) cannot be decoded: it is damaged, or it "
            f"needs a decoder that is not installed: {_DECODERS}"
        ) from error
    return stored.reshape(encoding.n_frames, *encoding.shape)


def inflated(file: BinaryIO, most: int) -> BytesIO | None:
    """Return the beginning of what a deflated file expands to, or None where a file is no such.

    It stands as if the file had not been compressed. `file`: at its beginning, where it is left.
    `most`: bytes that are wanted; whatever the file expands to, no more are made.
    """
    start = file.read(2048)
    file.seek(0)
    if start[128:132] != b"DICM" or DEFLATED.encode() not in start:
        return None
    # group, element, representation and length of the number that says where the data set begins
    begins = _PREAMBLE + int.from_bytes(start[_PREAMBLE - 4 : _PREAMBLE], "little")
    meta = start[:begins].replace(DEFLATED.encode(), _EXPLICIT.encode().ljust(len(DEFLATED), b"\0"))
    if start[132:138] != b"\2\0\0\0UL" or begins > len(start) or len(meta) != begins:
        raise EOFError("the meta information does not say how long it is")
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
        raise InputError(f"{path.name} names a compression that does not exist ({syntax}).")
    if not syntax.is_compressed or syntax.is_deflated:
        return
    try:
        available = get_decoder(syntax).is_available
    except NotImplementedError:
        available = False
    if not available:
        raise MissingPackageError(
            f"{path.name} is compressed ({syntax.name}), and no decoder for that is installed: "
            f"{_DECODERS}"
        )


def decoder_of(syntax: str) -> Callable[..., Any] | None:
    """Return the decoder of imagecodecs for a transfer syntax, or None where it has none."""
    try:
        import imagecodecs
    except ImportError:
        return None
    names = _NAMES.get(syntax, ())
    found = (name for name in names if getattr(imagecodecs, name.upper()).available)
    return next((getattr(imagecodecs, f"{name}_decode") for name in found), None)


def _decoded(decode: Callable[..., Any], frame: bytes, encoding: Encoding) -> npt.NDArray[Any]:
    """Return the values of a frame, in the type that it states itself where it does."""
    if encoding.syntax == _RLE:
        values = np.empty(encoding.shape, encoding.dtype.newbyteorder("="))
        filled = decode(frame, values.dtype, out=values.reshape(-1).view(np.uint8))
        if len(filled) != values.nbytes:
            raise EOFError("the runs end before the frame does")
        return values
    # without the mark at its end a frame that was cut keeps CharLS busy for seconds
    ended = frame[-16:].rstrip(b"\0").endswith(_END_OF_IMAGE)
    decoded: npt.NDArray[Any] = decode(frame if ended else frame + _END_OF_IMAGE)
    return decoded
