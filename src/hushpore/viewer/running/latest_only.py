"""The newest of many requests, done in a thread: for what follows a slider or a line."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject, QTimer, Signal

from hushpore.viewer.running.preloading import UNTIL_DRAWN
from hushpore.viewer.running.worker import JobWorker, stop_on_destroy

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Job


class LatestOnlyWorker(QObject):
    """Does one thing at a time, and of what is asked for meanwhile only the last.

    The first waits until the widget that it is made with is drawn, see `start_once_drawn`.

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
        stop_on_destroy(self, self._running, 0.0)
        self._until_drawn = QTimer(self, singleShot=True, timeout=self._begin)
        self._until_drawn.start(UNTIL_DRAWN)

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
        for worker in self._running:
            worker.cancel()

    def _begin(self) -> None:
        if self._running or self._wanted is None or self._until_drawn.isActive():
            return
        (make_job, tag), self._wanted = self._wanted, None
        worker = JobWorker(make_job, self._name)
        self._running.append(worker)
        worker.returned.connect(partial(self._ended, self.returned, tag))
        worker.failed.connect(partial(self._ended, self.failed, tag))
        worker.cancelled.connect(self._ended)
        worker.start()

    def _ended(self, told: Any = None, *what: object) -> None:
        self._running.clear()
        if told is not None:
            told.emit(*what)
        self._begin()
