"""How the CPU kernels run: compiled once, kept on disk, called from plain threads.

Kernels release the GIL and take a range of work, ``first`` to ``last``; the threads are Python's
own. numba's parallel loops are not used: they take several times as long to
compile and to load, and on its fallback threading layer two jobs at once would abort the process.

A fresh installation takes some seconds to compile them once, by several processes
(`hushpore.pores.compiling`), and a new process a part of a second to load them. What takes time is
each kernel and what it calls: arrays are made outside them, short functions are `inlined`, and each
is called with arguments of the same types. Both are done by a warm-up, the job itself on a tiny
volume, which comes to every kernel that the job to come will call and to no other. It runs in a
thread of its own, so that the job can say what it waits for and be cancelled meanwhile, and so that
a window can begin before there is anything to do.
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

#: What tells one kind of job from another.
K = TypeVar("K", bound="Hashable")

#: Seconds between two looks of those who wait.
_LOOK = 0.05

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


def inlined(function: F) -> F:
    """Make a function part of each kernel that calls it, which so is compiled in one go.

    A function of its own would be compiled by itself, which takes 0.1 s, however short it is.
    """
    return cast("F", numba.njit(nogil=True, inline="always")(function))


def is_on_disk(function: Callable[..., Any]) -> bool:
    """Whether the disk holds a kernel from an earlier process; also where it can hold none."""
    compiled: Any = function
    folder, name = compiled.stats.cache_path, compiled.py_func.__name__
    module = compiled.py_func.__module__.rpartition(".")[-1]
    return folder is None or any(Path(folder).glob(f"{module}.{name}-*.nbi"))


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

    `count`: how many; by default one for each core that this process may use.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = count or cpu_threads()
        # a future for each call of a thread would cost the caller several times as much
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

        `count`: length of the range that is cut up. `function`: safe to run at the same time on
        ranges that do not overlap. `smallest`: least length of a range that is worth a call of its
        own. `largest`: greatest length, also on one thread: what a range needs stays small.
        Returns: what the calls returned, in the order of the ranges.
        """
        parts = 1 if self.count == 1 else 4 * self.count
        if largest is not None:
            parts = max(parts, -(-count // largest))
        parts = max(1, min(parts, count // smallest))
        todo = deque(enumerate(ranges(count, parts)))
        found: list[Any] = [None] * len(todo)
        ended: SimpleQueue[BaseException | None] = SimpleQueue()

        def work() -> None:
            # one range after another: to hand out each would cost the caller more
            try:
                while True:
                    try:
                        index, (first, last) = todo.popleft()
                    except IndexError:
                        break
                    found[index] = function(*arguments, first, last)
            except BaseException as error:  # for the caller
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
            # what it was about is not held on to until there is another
            del call


class WarmUp(Generic[K]):
    """Runs warm-ups, each once a process and one at a time.

    `warm_up`: takes what kind of job is to come and returns a generator that does one; between what
    it yields it can be stopped.
    """

    def __init__(self, warm_up: Callable[[K], Generator[object, None, object]]) -> None:
        self._warm_up = warm_up
        self._lock = threading.Lock()
        self._done: set[K] = set()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def wait(self, kind: K) -> Generator[bool, None, None]:
        """Warm up for a kind of job; yields, while it is to be waited for, whether kernels compile.

        Any number of threads may wait. Where this is closed before its end the warm-up stops
        soon, and whoever else waits for it has it go on from there.
        """
        if kind in self._done:
            # to count kernels takes longer
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
        """Return the thread to wait for, or None where the kind is done; raises what it raised."""
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
        except BaseException as error:  # for whoever waits
            self._error = error
