"""Work that ends in layers: in a thread, with progress and Cancel in napari's activity dock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from qtpy.QtCore import QTimer

from hushpore.viewer.running.activity import Activity
from hushpore.viewer.running.problem import notify_problem
from hushpore.viewer.running.worker import JobWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Job
    from hushpore.viewer.running.problem import Problem

#: Milliseconds between two looks at work that runs.
POLL_INTERVAL = 125


class LoadingTask:
    """One piece of work in a thread, which begins at once.

    `title`: what is done, for the activity dock: ``"Reading scan"``. `make_job`: returns the
    generator, as for `JobWorker`. `then`: called in the GUI thread with what the generator
    returned. `failed`: called there with what went wrong; by default that is said in a
    notification. After a cancel nothing is called.
    """

    #: Keeps them alive while they work: a connection to a bound method does not.
    running: ClassVar[set[LoadingTask]] = set()

    def __init__(
        self,
        title: str,
        make_job: Callable[[], Job],
        then: Callable[[Any], None],
        failed: Callable[[Problem], None] = notify_problem,
    ) -> None:
        self._then, self._told = then, failed
        self._worker = JobWorker(make_job, f"hushpore: {title}")
        self._worker.returned.connect(self._returned)
        self._worker.failed.connect(self._failed)
        self._worker.cancelled.connect(self._close)
        self._activity = Activity(title, self._worker.cancel)
        self._timer = QTimer(interval=POLL_INTERVAL, timeout=self._look)
        LoadingTask.running.add(self)
        self._worker.start()
        self._timer.start()

    def _look(self) -> None:
        progress = self._worker.take().progress
        if progress is not None:
            self._activity.show(progress)

    def _returned(self, result: Any) -> None:
        self._close()
        self._then(result)

    def _failed(self, problem: Problem) -> None:
        self._close()
        self._told(problem)

    def _close(self) -> None:
        LoadingTask.running.discard(self)
        self._timer.stop()
        self._activity.close()
