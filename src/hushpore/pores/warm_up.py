"""Making the kernels ready before they are needed, apart from the stages of a job.

Kernels are compiled when they are first called, and kept on disk: a fresh installation takes some
seconds for it once, and a new process a part of a second to load them. Both are done by a
warm-up, the job itself on a tiny volume, which comes to every kernel that the job to come will
call and to no other. It runs in a thread of its own, so that the job can say what it waits for and
be cancelled meanwhile, and so that a window can begin before there is anything to do.
"""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Generic, TypeVar

from hushpore.pores.parallel import kernels_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable

#: What tells one kind of job from another.
K = TypeVar("K", bound="Hashable")

#: Seconds between two looks of those who wait.
_LOOK = 0.05


class WarmUp(Generic[K]):
    """Runs warm-ups, each once a process and one at a time.

    Parameters
    ----------
    warm_up : callable
        Takes what kind of job is to come and returns a generator that does one; between what it
        yields it can be stopped.
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
