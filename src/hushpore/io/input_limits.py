"""What a file may ask for: the gate that every reader passes before it spends memory or time.

A few bytes can state, or expand to, more than any memory holds. What is stated is compared with the
bytes that are there; of compressed images (JPEG and its kin, PNG, WebP, LERC), what their headers
state. No scan is compressed further than `LARGEST_RATIO`; what is needs the consent of the user,
who knows where the file is from.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hushpore.base.errors import InputError, MemoryLimitError, NotTrustedError
from hushpore.base.formatting import readable_bytes
from hushpore.device.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


#: How many times more bytes an image may take than the file that holds it, without consent.
LARGEST_RATIO = 1000
#: Bytes that are no danger, however few they are made of.
SMALL = 2**24
#: Frames, pages and the like of one file, without consent: each takes time and memory by itself.
MOST_PARTS = 100_000
#: The same, where each has fewer bytes in the file than an image has.
MOST_SMALL_PARTS = 10_000
_SMALL_PART = 1024  # bytes that an image takes at least
#: What to do where something is not trusted.
CONSENT = (
    "If you know where it is from and want it read all the same, allow that: --trust on the "
    "command line, trust=True in Python, in napari the button beside this message, of a batch "
    "'Trust scans compressed over 1,000:1'."
)
#: What is said where a file goes on behind its image; with the name of the file and the bytes.
REST = (
    "{name} holds {rest:,} bytes more than the image that its header states: see whether its shape "
    "and its type are right."
)
_is_trusted: ContextVar[bool] = ContextVar("is_trusted", default=False)
_SIZE_2000 = b"\xff\x4f\xff\x51"  # start of a JPEG 2000 codestream, and of its size segment
#: Width over height, by the number that a JPEG XL image has for it.
_RATIOS = (None, (1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))


@contextmanager
def trusting(is_trusted: bool) -> Iterator[None]:
    """Say for what is opened meanwhile, in this thread, whether the user trusts it."""
    token = _is_trusted.set(is_trusted)
    try:
        yield
    finally:
        _is_trusted.reset(token)


@dataclass(frozen=True)
class InputLimits:
    """What one file, or a part of it, is held against.

    `name`: what messages call it. `stored`: its bytes on disk.
    `is_trusted`: whether the user trusts it; as it was when the file was opened, also where its
    values are read later and in other threads.
    """

    name: str
    stored: int
    is_trusted: bool

    def require_plausible(self, decoded: int, what: str = "") -> None:
        """Refuse what would take up far more memory than it takes on disk.

        `decoded`: bytes that it expands to, or states. `what`: it is, for the message.
        Raises NotTrustedError if they are too many.
        """
        if self.is_trusted or decoded <= LARGEST_RATIO * self.stored + SMALL:
            return
        raise NotTrustedError(
            f"{self.name} is damaged, or made to fill the memory: it states {what or 'an image'} "
            f"of {readable_bytes(decoded)}, which its {self.stored:,} bytes cannot hold unless "
            f"they are compressed more than {LARGEST_RATIO:,}:1, as no scan is. {CONSENT}"
        )

    def require_few(self, count: int, what: str) -> None:
        """Refuse more parts than files have, of which each takes time and memory.

        Raises InputError if there are more than the bytes of the file can hold; NotTrustedError if
        there are only very many.
        """
        if count > max(self.stored, 1):
            raise InputError(
                f"{self.name} is damaged: it states {count:,} {what}, which its {self.stored:,} "
                "bytes cannot hold."
            )
        if not self.is_trusted and count > self.most_parts:
            raise NotTrustedError(
                f"{self.name} has {count:,} {what} or more, where its {self.stored:,} bytes hold "
                f"{self.most_parts:,} at most as files are; reading them may take very long. "
                f"{CONSENT}"
            )

    def notes_of_rest(self, end: int) -> list[str]:
        """Say of an image whose last byte is known that the file goes on behind it."""
        rest = self.stored - end
        if rest <= 0:
            return []
        return [REST.format(name=self.name, rest=rest)]

    @property
    def most_parts(self) -> int:
        """How many frames or pages it may have without consent."""
        return min(MOST_PARTS, max(MOST_SMALL_PARTS, self.stored // _SMALL_PART))

    def require_room(self, nbytes: int, what: str = "its values") -> None:
        """Refuse what can only be read as a whole, and does not fit into the free memory.

        Raises MemoryLimitError if it does not.
        """
        free = free_memory()
        if nbytes > free:
            raise MemoryLimitError(
                f"{self.name}: {what} take {readable_bytes(nbytes)} at once, and "
                f"{readable_bytes(free)} of memory are free. Close other programs, or save it "
                "uncompressed or as OME-Zarr, of which parts can be read."
            )


def limits_for(path: Path, stored: int | None = None) -> InputLimits:
    """Return the gate of a file, with the consent that holds now.

    `stored`: its bytes, where they are known or where a part of it is meant.
    """
    return InputLimits(
        path.name, path.stat().st_size if stored is None else stored, _is_trusted.get()
    )


def free_memory() -> float:
    """Return how many bytes can be taken before the system swaps, or what is preferred."""
    return float(Backend().free_memory())


def stated_size(frame: bytes) -> tuple[int, int] | None:
    """Return the rows and columns that a compressed image states, or None where it does not.

    Decoders take memory for what it states, so that it must be compared with the header before.

    `frame`: its beginning at least, in JPEG, JPEG-LS or JPEG 2000.
    """
    if frame[:2] == b"\xff\xd8":
        return _jpeg_size(frame)
    start = frame.find(_SIZE_2000, 0, 4096)
    if start >= 0:
        right, bottom, left, top = (
            int.from_bytes(frame[at : at + 4], "big") for at in range(start + 8, start + 24, 4)
        )
        return bottom - top, right - left
    return None


def _jpeg_size(frame: bytes) -> tuple[int, int] | None:
    """Walk the segments of a JPEG or JPEG-LS frame up to the one that states the size."""
    at = 2
    while at + 9 <= len(frame) and frame[at] == 0xFF:
        marker = frame[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if (0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)) or marker == 0xF7:
            return (
                int.from_bytes(frame[at + 5 : at + 7], "big"),
                int.from_bytes(frame[at + 7 : at + 9], "big"),
            )
        at += 2 + int.from_bytes(frame[at + 2 : at + 4], "big")
    return None


def stated_bytes(frame: bytes) -> int | None:
    """Return the bytes that a decoder would take for a compressed image, or None if it says none.

    `frame`: its beginning at least, in any of the formats of images that TIFF and DICOM hold.
    """
    read = next((read for is_of, read in _FORMATS if is_of(frame)), _jpeg_bytes)
    try:
        return read(frame)
    except (struct.error, IndexError):
        return None


def _jpeg_bytes(frame: bytes) -> int | None:
    size = stated_size(frame)
    return None if size is None else size[0] * size[1] * _samples(frame) * 4


def _png_bytes(frame: bytes) -> int | None:
    columns, rows, bits = struct.unpack(">IIB", frame[16:25])
    return int(columns * rows * max(bits // 8, 1) * 4)


def _lerc_bytes(frame: bytes) -> int | None:
    if frame[:1] == b"C":  # of the first version
        rows, columns = struct.unpack("<II", frame[18:26])
        return int(rows * columns * 8)
    version = int.from_bytes(frame[6:10], "little")
    at = 14 if version >= 3 else 10  # a checksum came with version 3
    rows, columns, depth = struct.unpack("<III", frame[at : at + 12])
    return int(rows * columns * max(depth if version >= 4 else 1, 1) * 8)


def _jpeg_xl_bytes(frame: bytes) -> int | None:
    size = _jpeg_xl_size(frame)
    # the number of channels stands too deep in it; colour, alpha and 32 bits at most
    return None if size is None else size[0] * size[1] * 16


def _samples(frame: bytes) -> int:
    """Return the values of a pixel in a JPEG, JPEG-LS or JPEG 2000 image."""
    start = frame.find(_SIZE_2000, 0, 4096)
    if frame[:2] != b"\xff\xd8" and start >= 0:
        return int.from_bytes(frame[start + 40 : start + 42], "big")
    return 4


def _webp_bytes(frame: bytes) -> int | None:
    kind = frame[12:16]
    if kind == b"VP8X":
        columns = int.from_bytes(frame[24:27], "little") + 1
        rows = int.from_bytes(frame[27:30], "little") + 1
    elif kind == b"VP8L":
        bits = int.from_bytes(frame[21:25], "little")
        columns, rows = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        columns, rows = (each & 0x3FFF for each in struct.unpack("<HH", frame[26:30]))
    else:
        return None
    return columns * rows * 4


def _jpeg_xr_bytes(frame: bytes) -> int | None:
    """Read width and height out of the directory of a JPEG XR file, which is like a TIFF's."""
    at = int.from_bytes(frame[4:8], "little")
    found = {}
    for number in range(int.from_bytes(frame[at : at + 2], "little")):
        entry = frame[at + 2 + 12 * number : at + 14 + 12 * number]
        if len(entry) < 12:
            return None
        tag, kind = struct.unpack("<HH", entry[:4])
        found[tag] = int.from_bytes(entry[8 : 8 + {1: 1, 3: 2}.get(kind, 4)], "little")
    columns, rows = found.get(0xBC80), found.get(0xBC81)
    # colour with alpha, 32 bits each
    return None if columns is None or rows is None else columns * rows * 16


class _Bits:
    """Reads numbers of some bits, the lowest first."""

    def __init__(self, content: bytes) -> None:
        self._left = int.from_bytes(content, "little")

    def take(self, count: int) -> int:
        found = self._left & ((1 << count) - 1)
        self._left >>= count
        return found


def _jpeg_xl_size(frame: bytes) -> tuple[int, int] | None:
    """Return the rows and columns that the header of a JPEG XL codestream states."""
    start = 2
    if frame[4:8] == b"JXL ":
        # in a container the codestream stands in boxes of one of two names
        places = [frame.find(name, 0, 65536) for name in (b"jxlc", b"jxlp")]
        if places[0] >= 0:
            start = places[0] + 4
        elif places[1] >= 0:
            start = places[1] + 8
        else:
            return None
        if frame[start : start + 2] != b"\xff\x0a":
            return None
        start += 2
    bits = _Bits(frame[start : start + 16])
    is_small = bool(bits.take(1))

    def length() -> int:
        if is_small:
            return 8 * (bits.take(5) + 1)
        return bits.take((9, 13, 18, 30)[bits.take(2)]) + 1

    rows = length()
    ratio = _RATIOS[bits.take(3)]
    columns = length() if ratio is None else rows * ratio[0] // ratio[1]
    return rows, columns


#: What tells a format by its first bytes, and what reads its size.
_FORMATS: tuple[tuple[Callable[[bytes], bool], Callable[[bytes], int | None]], ...] = (
    (lambda f: f[:2] == b"\xff\x0a" or f[4:8] == b"JXL ", _jpeg_xl_bytes),
    (lambda f: f[:8] == b"\x89PNG\r\n\x1a\n", _png_bytes),
    (lambda f: f[:4] == b"RIFF" and f[8:12] == b"WEBP", _webp_bytes),
    (lambda f: f[:3] == b"II\xbc", _jpeg_xr_bytes),
    (lambda f: f[:6] == b"Lerc2 " or f[:10] == b"CntZImage ", _lerc_bytes),
)
