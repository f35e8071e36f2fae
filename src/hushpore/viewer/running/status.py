"""Progress of a job outside its widget, in napari's activity dock, and reading in a thread."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from napari import current_viewer
from napari.utils.progress import cancelable_progress
from qtpy.QtCore import QEvent, QObject, Qt, QTimer
from qtpy.QtWidgets import QLabel, QMessageBox, QWidget

from hushpore.viewer.running.problem import notify_problem
from hushpore.viewer.running.worker import JobWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtpy.QtGui import QMovie

    from hushpore.base.events import Job, Progress
    from hushpore.viewer.running.problem import Problem

#: Steps of a progress bar.
BAR_STEPS = 1000


def ask_before_close(worker: JobWorker, consequence: str) -> None:
    """Ask before the window is closed by its button while a worker runs.

    `worker`: the worker, before its start. `consequence`: effect of closing the window on its work,
    shown in the question.
    """
    window = getattr(current_viewer(), "window", None)
    if window is not None:
        _CloseQuestion(window.main_menu.window(), worker, f"{worker.name}: {consequence}.")


class _CloseQuestion(QObject):
    """The question of a worker before the window is closed; deleted when the worker ends."""

    def __init__(self, window: QWidget, worker: JobWorker, text: str) -> None:
        super().__init__(window)
        self._text = text
        window.installEventFilter(self)
        for ended in (worker.returned, worker.failed, worker.cancelled):
            ended.connect(self._end)

    def _end(self, *_: object) -> None:
        # at once, because Qt deletes it in a later turn of the event loop
        self.parent().removeEventFilter(self)
        self.deleteLater()

    def eventFilter(self, watched: Any, event: Any) -> bool:  # noqa: N802 - Qt's name
        """Keep the window open if the user says so."""
        if event.type() != QEvent.Type.Close or not event.spontaneous():
            return False
        close, stay = QMessageBox.StandardButton.Close, QMessageBox.StandardButton.Cancel
        kind, title = QMessageBox.Icon.Question, "Close the window?"
        box = QMessageBox(kind, title, self._text, close | stay, watched)
        # names of scans are no HTML
        box.setTextFormat(Qt.TextFormat.PlainText)
        if box.exec() == close:
            return False
        event.ignore()
        return True


class Activity(cancelable_progress):
    """A progress bar in napari's activity dock with a working Cancel.

    For the GUI thread only. napari calls the cancel callback from inside an iteration, which does
    not exist here, so `cancel` calls it. The wheel in the status bar rests meanwhile: it draws the
    window 33 times a second, which without a graphics card takes a third of a job.
    """

    monitor_interval = 0

    #: Those that are not closed.
    _shown: ClassVar[weakref.WeakSet[Activity]] = weakref.WeakSet()

    def __init__(self, title: str, cancel: Callable[[], None]) -> None:
        self._at = 0
        # napari shows the part of the format after the last bar
        text = "{l_bar}{bar}|{remaining} left"
        super().__init__(desc=title, total=BAR_STEPS, cancel_callback=cancel, bar_format=text)
        Activity._shown.add(self)
        self._wheels = _wheels()
        for wheel in self._wheels:
            wheel.setPaused(True)

    def cancel(self) -> None:
        """Call the cancel callback."""
        super().cancel()
        if self.cancel_callback is not None:
            self.cancel_callback()

    def show(self, progress: Progress) -> None:
        """Advance the bar; napari processes events meanwhile."""
        at = round(BAR_STEPS * progress.fraction)
        # disabled once it is closed
        if at != self._at and not self.disable:
            moved, self._at = at - self._at, at
            self.update(moved)

    def close(self) -> None:
        """Remove the bar; the wheel turns again after the last one."""
        super().close()
        Activity._shown.discard(self)
        for wheel in [] if Activity._shown else self._wheels:
            with suppress(RuntimeError):  # the window was closed
                wheel.setPaused(False)


def _wheels() -> list[QMovie]:
    """Return the wheels in the status bar of the window."""
    viewer = current_viewer()
    if viewer is None:
        return []
    labels = viewer.window.main_menu.window().statusBar().findChildren(QLabel)
    return [label.movie() for label in labels if label.movie() is not None]


#: Milliseconds between two polls of a job.
POLL_INTERVAL = 250


class LoadingTask:
    """A task in a thread, with its progress in the activity dock; starts at once.

    `title`: for the activity dock, ``"Reading scan"``. `make_job`: returns the generator, as for
    `JobWorker`. `then`: called in the GUI thread with the result. `failed`: called there with the
    `Problem`; by default a notification. Neither is called after a cancel.
    """

    #: Keeps the tasks alive while they run: a connection to a bound method does not.
    running: ClassVar[set[LoadingTask]] = set()

    def __init__(
        self,
        title: str,
        make_job: Callable[[], Job],
        then: Callable[[Any], None],
        failed: Callable[[Problem], None] = notify_problem,
    ) -> None:
        self._then, self._on_failure = then, failed
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
        then = self._then
        self._close()
        then(result)

    def _failed(self, problem: Problem) -> None:
        then = self._on_failure
        self._close()
        then(problem)

    def _close(self) -> None:
        LoadingTask.running.discard(self)
        self._timer.stop()
        self._activity.close()
        # PySide6 keeps this object, whose methods are connected; it must not keep the viewer
        self._then = self._on_failure = lambda _: None
