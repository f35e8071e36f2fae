"""Guards of all readers: limits for declared sizes, and errors of other libraries."""

from __future__ import annotations

import logging
import struct
import threading
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hushpore.base.errors import HushporeError, InputError, MemoryLimitError, NotTrustedError
from hushpore.base.formatting import readable_bytes
from hushpore.device.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


#: Largest ratio of image size to file size without consent.
LARGEST_RATIO = 1000
#: Image size in bytes that is harmless at any compression ratio.
SMALL = 2**24
#: Largest number of frames or pages in one file without consent: each takes time and memory.
MOST_PARTS = 100_000
#: The same for parts with fewer bytes in the file than any image has.
MOST_SMALL_PARTS = 10_000
_SMALL_PART = 1024  # smallest size of an image, in bytes
#: Remedy in the messages of `NotTrustedError`; front ends offer it as a flag or a button.
CONSENT = "If you trust the source of the file, read it with trust=True."
#: Note on a file with more data than its header describes.
REST = (
    "{name} contains {rest:,} more bytes than the image that its header describes; check its shape "
    "and data type."
)
_is_trusted: ContextVar[bool] = ContextVar("is_trusted", default=False)
_SIZE_2000 = b"\xff\x4f\xff\x51"  # start of a JPEG 2000 codestream and of its size segment


@contextmanager
def trusting(is_trusted: bool) -> Iterator[None]:
    """Set whether the user trusts the files that this thread opens inside the block."""
    token = _is_trusted.set(is_trusted)
    try:
        yield
    finally:
        _is_trusted.reset(token)


@dataclass(frozen=True)
class InputLimits:
    """Limits for one file, or for a part of it.

    `name`: its name in messages. `stored`: its size on disk, in bytes. `is_trusted`: whether the
    user trusts it; fixed when the file is opened, and valid for later reading in other threads.
    """

    name: str
    stored: int
    is_trusted: bool

    def require_plausible(self, decoded: int, what: str = "") -> None:
        """Raise NotTrustedError if data would expand to far more memory than its size on disk.

        `decoded`: expanded or declared size, in bytes. `what`: noun for the message.
        """
        if self.is_trusted or decoded <= LARGEST_RATIO * self.stored + SMALL:
            return
        raise NotTrustedError(
            f"{self.name} is damaged, or crafted to fill the memory: it declares "
            f"{what or 'an image'} of {readable_bytes(decoded)} in {self.stored:,} bytes, which is "
            f"a compression of more than {LARGEST_RATIO:,}:1, as in no real scan. {CONSENT}"
        )

    def require_few(self, count: int, what: str) -> None:
        """Check the number of frames or pages, each of which takes time and memory.

        Raises InputError if there are more than the file has bytes; NotTrustedError if there are
        implausibly many.
        """
        if count > max(self.stored, 1):
            raise InputError(
                f"{self.name} is damaged: it declares {count:,} {what}, more than its "
                f"{self.stored:,} bytes can hold. Copy or export it again."
            )
        if not self.is_trusted and count > self.most_parts:
            raise NotTrustedError(
                f"{self.name} has {count:,} {what} or more in {self.stored:,} bytes; files of this "
                f"size have at most {self.most_parts:,}. Reading it may take very long. {CONSENT}"
            )

    def notes_of_rest(self, end: int) -> list[str]:
        """Return a note if the file continues after the last byte of its image."""
        rest = self.stored - end
        if rest <= 0:
            return []
        return [REST.format(name=self.name, rest=rest)]

    @property
    def most_parts(self) -> int:
        """Largest number of frames or pages without consent."""
        return min(MOST_PARTS, max(MOST_SMALL_PARTS, self.stored // _SMALL_PART))

    def require_room(self, nbytes: int, what: str = "its values") -> None:
        """Raise MemoryLimitError if data that must be read as a whole does not fit into memory."""
        free = free_memory()
        if nbytes > free:
            raise MemoryLimitError(
                f"{self.name}: {what} need {readable_bytes(nbytes)} of memory at once, but only "
                f"{readable_bytes(free)} are free. Close other programs, or save the file "
                "uncompressed or as OME-Zarr, which can be read in parts."
            )


def limits_for(path: Path, stored: int | None = None) -> InputLimits:
    """Return the limits of a file, with the consent that is set now.

    `stored`: its size in bytes, if it is known already or if only a part of the file counts.
    """
    return InputLimits(
        path.name, path.stat().st_size if stored is None else stored, _is_trusted.get()
    )


def free_memory() -> float:
    """Return the free memory in bytes, or the limit in the preferences."""
    return float(Backend().free_memory())


def stated_size(frame: bytes) -> tuple[int, int] | None:
    """Return the rows and columns declared by a compressed image, or None if it declares none.

    Decoders allocate memory for this size, so it is compared with the header of the file first.

    `frame`: at least the beginning of the image, in JPEG, JPEG-LS or JPEG 2000.
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
    """Return the size in the frame header of a JPEG or JPEG-LS image."""
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
    """Return the decoded size of a compressed image in bytes, or None if it declares none.

    `frame`: at least the beginning of the image, in JPEG, JPEG-LS, JPEG 2000 or PNG.
    """
    try:
        return _png_bytes(frame) if frame[:8] == b"\x89PNG\r\n\x1a\n" else _jpeg_bytes(frame)
    except (struct.error, IndexError):
        return None


def _jpeg_bytes(frame: bytes) -> int | None:
    size = stated_size(frame)
    return None if size is None else size[0] * size[1] * _samples(frame) * 4


def _png_bytes(frame: bytes) -> int | None:
    columns, rows, bits = struct.unpack(">IIB", frame[16:25])
    return int(columns * rows * max(bits // 8, 1) * 4)


def _samples(frame: bytes) -> int:
    """Return the number of samples per pixel in a JPEG, JPEG-LS or JPEG 2000 image."""
    start = frame.find(_SIZE_2000, 0, 4096)
    if frame[:2] != b"\xff\xd8" and start >= 0:
        return int.from_bytes(frame[start + 40 : start + 42], "big")
    return 4


class _Collector(logging.Filter):
    """Collects the records of this thread; those of other threads pass."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []
        self._thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread or record.levelno < logging.WARNING:
            return True
        self.messages.append(record.getMessage())
        return False


@contextmanager
def captured_log(logger: str) -> Iterator[list[str]]:
    """Collect what this thread logs at level WARNING or above inside the block, without output.

    Yields: the list of messages.
    """
    collector = _Collector()
    target = logging.getLogger(logger)
    target.addFilter(collector)
    try:
        yield collector.messages
    finally:
        target.removeFilter(collector)


@contextmanager
def captured_warnings(logger: str) -> Iterator[list[str]]:
    """Collect the warnings issued and logged inside the block, as `captured_log`.

    Warnings of the `warnings` module are added at the end of the block. Its filters are global, so
    only one thread may use this at a time.
    """
    with warnings.catch_warnings(record=True) as caught, captured_log(logger) as messages:
        warnings.simplefilter("always")
        yield messages
    messages.extend(str(warning.message) for warning in caught)


@contextmanager
def explained_damage(
    explain: Callable[[Exception], Exception], *others: type[Exception]
) -> Iterator[None]:
    """Convert errors of any type, which libraries raise for damaged files, with `explain`.

    Errors of hushpore, OSError, MemoryError and `others` pass unchanged.
    """
    try:
        yield
    except (HushporeError, OSError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, others):
            raise
        raise explain(error) from error


def damaged(path: Path, kind: str, error: Exception) -> InputError:
    """Return the error for a file that a library cannot read as the format it seems to have."""
    why = f"({type(error).__name__}: {error}). Copy or export it again."
    return InputError(f"{path.name} is damaged or incomplete and cannot be read as {kind} {why}")
