"""How the CPU kernels run: compiled once, kept on disk, called from plain threads.

Kernels release the GIL and take a range of work, ``first`` to ``last``; the threads are Python's
own. numba's parallel loops are not used: they take several times as long to
compile and to load, and on its fallback threading layer two jobs at once would abort the process.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba

from hushpore.device.backend import cpu_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

F = TypeVar("F", bound="Callable[..., Any]")


_kernels: list[Any] = []


def kernel(function: F) -> F:
    """Compile a function with numba on its first call, without the GIL, and keep it on disk."""
    try:
        compiled = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        # nowhere to keep it: neither beside the source nor in the user's cache
        compiled = numba.njit(nogil=True)(function)
    _kernels.append(compiled)
    return cast("F", compiled)


def kernels_compiled() -> int:
    """Return how many kernels this process has begun to compile, not finding them on the disk."""
    return sum(sum(each.stats.cache_misses.values()) for each in _kernels)


def ranges(count: int, parts: int) -> Iterator[tuple[int, int]]:
    """Cut ``range(count)`` into at most `parts` ranges of nearly equal length.

    Examples
    --------
    >>> list(ranges(7, 3))
    [(0, 2), (2, 4), (4, 7)]
    """
    parts = min(parts, count)
    for part in range(parts):
        yield count * part // parts, count * (part + 1) // parts


class KernelThreads:
    """A few threads that run a kernel on ranges of its work.

    Parameters
    ----------
    count : int, optional
        How many; by default one for each core that this process may use.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = count or cpu_threads()
        self._pool = ThreadPoolExecutor(self.count, "hushpore-pores")

    def __enter__(self) -> KernelThreads:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown()

    def over(
        self, count: int, function: Callable[..., Any], *arguments: Any, smallest: int = 1
    ) -> list[Any]:
        """Call ``function(*arguments, first, last)`` for ranges that cover ``range(count)``.

        Parameters
        ----------
        count : int
            Length of the range that is cut up.
        function : callable
            Safe to run at the same time on ranges that do not overlap.
        smallest : int
            Least length of a range that is worth a call of its own.

        Returns
        -------
        list
            What the calls returned, in the order of the ranges.
        """
        parts = 1 if self.count == 1 else 4 * self.count
        parts = max(1, min(parts, count // smallest))
        calls = [
            self._pool.submit(function, *arguments, first, last)
            for first, last in ranges(count, parts)
        ]
        return [call.result() for call in calls]
