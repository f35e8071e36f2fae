"""CPU kernels: compiled once, cached on disk and called from plain threads.

Kernels release the GIL and take a range of work, ``first`` to ``last``; the threads are Python's
own. numba's parallel loops are not used: they take several times as long to compile and to load,
and on its fallback threading layer two jobs at once would abort the process.

A fresh installation takes some seconds to compile the kernels once, by several processes
(`hushpore.pores.compiling`), and a new process a fraction of a second to load them. Each kernel and
each function that it calls adds to that time, so arrays are allocated outside the kernels, short
functions are `inlined`, and each kernel is always called with arguments of the same types. A
warm-up compiles or loads the kernels: it runs the job on a tiny volume, which calls exactly the
kernels that the job needs. It runs in a thread of its own, so that the job can report progress and
be cancelled meanwhile, and so that the window can start the warm-up before the first job.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numba

from hushpore.device.backend import cpu_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterator
    from types import TracebackType

F = TypeVar("F", bound="Callable[..., Any]")

#: Kind of job, which decides what kernels it needs.
K = TypeVar("K", bound="Hashable")

#: Seconds between two checks whether the warm-up is done.
_LOOK = 0.05

_kernels: list[Any] = []


def kernel(function: F) -> F:
    """Make a numba kernel: compiled on its first call, cached on disk, run without the GIL."""
    try:
        compiled = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        # neither the folder of the source nor the user's cache is writable
        compiled = numba.njit(nogil=True)(function)
    _kernels.append(compiled)
    return cast("F", compiled)


def inlined(function: F) -> F:
    """Inline a function into each kernel that calls it.

    Compiled separately, even the shortest function takes 0.1 s.
    """
    return cast("F", numba.njit(nogil=True, inline="always")(function))


def is_on_disk(function: Callable[..., Any]) -> bool:
    """Whether a kernel is in the disk cache; also True if it cannot be cached."""
    compiled: Any = function
    folder, name = compiled.stats.cache_path, compiled.py_func.__name__
    module = compiled.py_func.__module__.rpartition(".")[-1]
    return folder is None or any(Path(folder).glob(f"{module}.{name}-*.nbi"))


def kernels_compiled() -> int:
    """Return the number of kernels that this process compiles because the disk cache lacks them."""
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
    """Threads that run a kernel on ranges of its work.

    `count`: number of threads; by default one for each core that this process may use.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = count or cpu_threads()
        # a future for each call would cost the caller several times as much as this queue
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> KernelThreads:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for _ in self._threads:
            self._calls.put(None)
        while self._threads:
            self._threads.pop().join()

    def over(
        self,
        count: int,
        function: Callable[..., Any],
        *arguments: Any,
        smallest: int = 1,
        largest: int | None = None,
    ) -> list[Any]:
        """Call ``function(*arguments, first, last)`` for ranges that cover ``range(count)``.

        `count`: length of the range to divide. `function`: safe to run at the same time on
        ranges that do not overlap. `smallest`: least length of a range that is worth a call of its
        own. `largest`: greatest length, also on one thread, which limits the memory of a call.
        Returns: the results of the calls, in the order of the ranges.
        """
        parts = 1 if self.count == 1 else 4 * self.count
        if largest is not None:
            parts = max(parts, -(-count // largest))
        parts = max(1, min(parts, count // smallest))
        todo = deque(enumerate(ranges(count, parts)))
        found: list[Any] = [None] * len(todo)
        ended: SimpleQueue[BaseException | None] = SimpleQueue()

        def work() -> None:
            # threads take the ranges themselves, because queueing each costs the caller more
            try:
                while True:
                    try:
                        index, (first, last) = todo.popleft()
                    except IndexError:
                        break
                    found[index] = function(*arguments, first, last)
            except BaseException as error:  # raised again by the caller
                todo.clear()
                ended.put(error)
            else:
                ended.put(None)

        calls = min(self.count, len(todo))
        while len(self._threads) < calls:
            thread = threading.Thread(target=self._run, name="hushpore-pores", daemon=True)
            self._threads.append(thread)
            thread.start()
        for _ in range(calls):
            self._calls.put(work)
        for error in [ended.get() for _ in range(calls)]:
            if error is not None:
                raise error
        return found

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            # release the arrays of the call while the thread waits for the next
            del call


class WarmUp(Generic[K]):
    """Runs each warm-up once per process, one at a time.

    `warm_up`: takes the kind of the next job and returns a generator that runs a tiny one; it can
    be stopped wherever it yields.
    """

    def __init__(self, warm_up: Callable[[K], Generator[object, None, object]]) -> None:
        self._warm_up = warm_up
        self._lock = threading.Lock()
        self._done: set[K] = set()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def wait(self, kind: K) -> Generator[bool, None, None]:
        """Wait for the warm-up of a kind of job; yields whether kernels are being compiled.

        Any number of threads may wait. Closing this generator early stops the warm-up soon; another
        thread that waits for it starts it again.
        """
        if kind in self._done:
            # return before the kernels are counted, which takes longer
            return
        before = kernels_compiled()
        try:
            while (thread := self._begin(kind)) is not None:
                thread.join(_LOOK)
                yield kernels_compiled() > before
        except GeneratorExit:
            self._stop.set()
            raise

    def _begin(self, kind: K) -> threading.Thread | None:
        """Return the thread to wait for, or None if the kind is done; raises the thread's error."""
        with self._lock:
            if kind in self._done:
                return None
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._thread is None or not self._thread.is_alive():
                self._stop = threading.Event()
                work = (kind, self._stop)
                self._thread = threading.Thread(target=self._run, args=work, name="preparing")
                self._thread.start()
            return self._thread

    def _run(self, kind: K, stop: threading.Event) -> None:
        try:
            with closing(self._warm_up(kind)) as work:
                for _ in work:
                    if stop.is_set():
                        return
            self._done.add(kind)
        except BaseException as error:  # raised again in a waiting thread
            self._error = error
