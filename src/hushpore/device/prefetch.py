"""Reading ahead: the next piece is read while the current one is processed."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import nullcontext
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from hushpore.device.switches import Choices

K = TypeVar("K")
T = TypeVar("T")


class ReadAhead(Generic[T]):
    """Iterates over pieces that a background thread reads in order.

    At most one piece waits, and the next is read only after that has been taken: memory holds two
    pieces. Closed at the end of a ``with`` block, or by `close`, which waits for the piece that is
    being read and drops it.

    `read`: reads the piece of a key; runs in another thread. `keys`: the pieces to read; iterated
    in that thread.

    >>> with ReadAhead(lambda z: z * z, range(4)) as squares:
    ...     list(squares)
    [0, 1, 4, 9]
    """

    def __init__(self, read: Callable[[K], T], keys: Iterable[K]) -> None:
        self._waiting: deque[T] = deque()
        self._changed = threading.Condition()
        self._ended = self._closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._fill, args=(read, keys), name="hushpore reads ahead", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        """Return the next piece, or raise the error of reading it.

        Raises StopIteration after the last piece, and after `close`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended or self._closed)
            if self._closed:
                raise StopIteration
            if self._waiting:
                piece = self._waiting.popleft()
                self._changed.notify_all()
                return piece
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading and drop the waiting piece; returns when the thread has ended."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._thread.join()

    def _fill(self, read: Callable[[K], T], keys: Iterable[K]) -> None:
        try:
            for key in keys:
                if not self._has_room():
                    return
                piece = read(key)
                with self._changed:
                    if self._closed:
                        return
                    self._waiting.append(piece)
                    self._changed.notify_all()
                # otherwise it would stay in memory while the next is read
                del piece
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _has_room(self) -> bool:
        """Wait until there is room for another piece; return False after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._waiting)
            return not self._closed


def read_ahead(
    read: Callable[[K], T], keys: Iterable[K], choices: Choices
) -> AbstractContextManager[Iterator[T]]:
    """Return an iterator over pieces, read ahead unless the user has switched that off.

    `read`, `keys`: as for `ReadAhead`. `choices`: the switches of the user; the decision is
    recorded in it.
    """
    asked = choices.asked("read_ahead")
    reason = "by default" if asked is None else "as requested"
    if choices.record("read_ahead", asked is not False, reason):
        return ReadAhead(read, keys)
    return nullcontext(map(read, keys))
