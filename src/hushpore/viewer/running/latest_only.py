"""The newest of many requests, done in a thread: for what follows a slider or a line."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QApplication

from hushpore.viewer.running.worker import JobWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Job
    from hushpore.viewer.running.problem import Problem


class LatestOnlyWorker(QObject):
    """Does one thing at a time, and of what is asked for meanwhile only the last.

    `name`: what it does, for its threads.
    """

    #: What it was about, and what came of it.
    returned = Signal(object, object)
    #: What it was about, and the `Problem`.
    failed = Signal(object, object)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._running: list[JobWorker] = []
        self._wanted: tuple[Callable[[], Job], object] | None = None
        # whichever way its owner goes: nothing of this can be asked by then, but the list
        stop = partial(_cancel, self._running)
        self.destroyed.connect(stop)
        QApplication.instance().aboutToQuit.connect(stop)

    @property
    def is_busy(self) -> bool:
        """Whether something that was asked for has not been done yet."""
        return bool(self._running) or self._wanted is not None

    def submit(self, make_job: Callable[[], Job], tag: object = None) -> None:
        """Have something done, in place of what was asked for before and has not begun.

        `make_job`: returns the generator; called in the thread.
        """
        self._wanted = make_job, tag
        self._begin()

    def cancel(self) -> None:
        """Do nothing of what was asked for; what runs stops at its next event, and is not told."""
        self._wanted = None
        _cancel(self._running)

    def _begin(self) -> None:
        if self._running or self._wanted is None:
            return
        (make_job, tag), self._wanted = self._wanted, None
        worker = JobWorker(make_job, self._name)
        self._running.append(worker)
        worker.returned.connect(partial(self._returned, tag))
        worker.failed.connect(partial(self._failed, tag))
        worker.cancelled.connect(self._cancelled)
        worker.start()

    def _returned(self, tag: object, result: object) -> None:
        self._running.clear()
        self.returned.emit(tag, result)
        self._begin()

    def _failed(self, tag: object, problem: Problem) -> None:
        self._running.clear()
        self.failed.emit(tag, problem)
        self._begin()

    def _cancelled(self) -> None:
        self._running.clear()
        self._begin()


def _cancel(running: list[JobWorker], *_: object) -> None:
    for worker in running:
        worker.cancel()
