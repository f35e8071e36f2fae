"""A magicgui container that runs a job in a worker, also for scripts."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Any

from psygnal import Signal
from qtpy.QtCore import QEventLoop, QThread, QTimer

from hushpore.base.errors import HushporeError
from hushpore.viewer.forms.form import PlacedContainer
from hushpore.viewer.running.problem import Problem
from hushpore.viewer.running.status import ask_before_close
from hushpore.viewer.running.worker import JobWorker, WorkerEnds, stop, stop_on_destroy

#: Seconds to wait for a job to stop when its widget is closed. A longer step ends later in the
#: background, without blocking the window.
PATIENCE = 0.5


def is_script() -> bool:
    """Whether a script or notebook calls, rather than a click in the window.

    A script starts widgets from their defaults and leaves the last used settings alone: it gives
    the same result whatever was done in the window before, and the reverse.
    """
    return bool(QThread.currentThread().loopLevel() == 0)


class WorkerContainer(PlacedContainer):
    """Runs one worker at a time, and stops it when the widget is closed.

    A subclass passes each started worker to `_follow_worker`. When a worker ends, the method
    `_returned`, `_failed` or `_cancelled` of the subclass is called; it clears the list of workers
    and emits `called` or `failed`.

    ``**given``: as for `magicgui.widgets.Container`.
    `result`: result of the last run; None until it ends.
    """

    #: Emitted with the result when the job has ended.
    called = Signal(object)
    #: Emitted with a `Problem` when the job has failed, or with None when it was cancelled.
    failed = Signal(object)

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.result: Any = None
        self._workers: list[JobWorker] = []
        self._ends = WorkerEnds(self.native)
        self._ends.returned.connect(self._returned)
        self._ends.failed.connect(self._failed)
        self._ends.cancelled.connect(self._cancelled)
        self.native_parent_changed.connect(self._stop_outside)
        stop_on_destroy(self.native, self._workers, PATIENCE)

    @property
    def worker(self) -> JobWorker | None:
        """The running worker, or None."""
        return next(iter(self._workers), None)

    @property
    def is_running(self) -> bool:
        """Whether a job of this widget is running."""
        return bool(self._workers)

    def wait(self, seconds: float | None = None) -> Any:
        """Wait for the end of the job while the window stays responsive; for scripts and notebooks.

        `seconds`: maximum time to wait; the job continues after it.
        Returns: the result.
        Raises HushporeError if input or settings are the cause of a failure; RuntimeError for other
        failures; TimeoutError if the job has not ended in time; CancelledError if it was cancelled.
        """
        loop, problems = QEventLoop(), list[Problem | None]()

        def end(_: Any) -> None:
            loop.quit()

        ends = (self.failed, problems.append), (self.failed, end), (self.called, end)
        for signal, slot in ends:
            signal.connect(slot)
        if seconds is not None:
            QTimer.singleShot(round(1000 * seconds), loop.quit)
        try:
            if self.is_running:
                loop.exec()
        finally:
            for signal, slot in ends:
                signal.disconnect(slot)
        if self.worker is not None:
            raise TimeoutError(f"{self.worker.name} has not ended in {seconds} s.")
        problem = next(iter(problems), None)
        if problems and problem is None:
            raise CancelledError("The job was cancelled, so there is no result.")
        if problem is not None:
            kind = HushporeError if problem.expected else RuntimeError
            raise kind(problem.message if problem.expected else problem.details)
        return self.result

    @property
    def _if_closed(self) -> str:
        """The consequence of closing napari's window for the running job, in words."""
        return "it stops, and its result is lost"

    def _follow_worker(self, worker: JobWorker) -> None:
        """Forward the end of a worker, and stop it with the widget."""
        ask_before_close(worker, self._if_closed)
        self.result = None
        self._workers.append(worker)
        self._ends.follow(worker)

    def _stop_outside(self, parent: Any) -> None:
        """Stop the job when napari removes the widget from its dock."""
        if parent is None:
            stop(self._workers, PATIENCE)
