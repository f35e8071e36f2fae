"""What a file may ask for: the gate that every reader passes before it spends memory or time.

A few bytes can state, or expand to, more than any memory holds. What is stated is compared with the
bytes that are there. No scan is compressed further than `LARGEST_RATIO`; what is needs the consent
of the user, who knows where the file is from.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hushpore.base.errors import InputError, MemoryLimitError, NotTrustedError
from hushpore.base.readable import readable_bytes
from hushpore.device.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: How many times more bytes an image may take than the file that holds it, without consent.
LARGEST_RATIO = 1000
#: Bytes that are no danger, however few they are made of.
SMALL = 2**24
#: Frames, pages and the like of one file, without consent: each takes time and memory by itself.
#: Fewer, where each has fewer bytes in the file than an image has.
MOST_PARTS, MOST_SMALL_PARTS = 100_000, 10_000
_SMALL_PART = 1024

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


@contextmanager
def trusting(is_trusted: bool) -> Iterator[None]:
    """Say for what is opened meanwhile, in this thread, whether the user trusts it."""
    token = _is_trusted.set(is_trusted)
    try:
        yield
    finally:
        _is_trusted.reset(token)


@dataclass(frozen=True)
class Gate:
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


def gate_of(path: Path, stored: int | None = None) -> Gate:
    """Return the gate of a file, with the consent that holds now.

    `stored`: its bytes, where they are known or where a part of it is meant.
    """
    return Gate(path.name, path.stat().st_size if stored is None else stored, _is_trusted.get())


def free_memory() -> float:
    """Return how many bytes can be taken before the system swaps, or what is preferred."""
    return float(Backend().free_memory())
