"""What the C library does with freed memory while a network computes.

Linux' C library gives freed memory back to the system, arrays of more than 32 MB at once and others
when enough is free, and takes it anew page by page. The arrays of a tile are of the same sizes as
those of the one before: kept, they are there at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The C library's numbers for: free memory at the end that is given back, what is asked for beyond
#: what is needed, and arrays that are taken from the system each by itself.
_TRIM, _PAD, _ALONE = -1, -2, -3

#: Bytes of each while memory is kept. Arrays of whole volumes are larger, and go when they are
#: freed. The padding is a whole heap of a thread, which so is not given back when it is empty.
_KEPT = {_TRIM: 2**30, _PAD: 2**26, _ALONE: 2**28}

#: And else: the most that the library comes to by itself, and its default padding.
_USUAL = {_TRIM: 2**26, _PAD: 2**17, _ALONE: 2**25}

_lock = threading.Lock()
_users: list[object] = []


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory for the next arrays; what is left of it is given back at the end.

    It is of the whole process, and may be used by several threads at once. With another C library
    than GNU's nothing happens.
    """
    library, user = _library(), object()
    with _lock:
        _users.append(user)
        if len(_users) == 1:
            _choose(library, _KEPT)
    try:
        yield
    finally:
        with _lock:
            _users.remove(user)
            if not _users:
                _choose(library, _USUAL)
                if library is not None:
                    library.malloc_trim(0)


def _library() -> Any:
    try:
        library = ctypes.CDLL(None)
        _ = library.mallopt, library.malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    return library


def _choose(library: Any, sizes: dict[int, int]) -> None:
    if library is not None:
        for name, size in sizes.items():
            library.mallopt(name, size)
