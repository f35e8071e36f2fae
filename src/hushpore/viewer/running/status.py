"""A job outside its widget: progress in napari's activity dock, and a line on the canvas."""

from __future__ import annotations

import string
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from napari import current_viewer
from napari.utils.progress import cancelable_progress
from napari.utils.task_status import Status
from qtpy.QtCore import QObject, QTimer
from qtpy.QtGui import QMovie
from qtpy.QtWidgets import QLabel

from hushpore.viewer.running.problem import notify_problem
from hushpore.viewer.running.progress import BAR_STEPS
from hushpore.viewer.running.redraw import run_in_steps
from hushpore.viewer.running.worker import JobWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtpy.QtWidgets import QWidget

    from hushpore.base.events import Job, Progress
    from hushpore.viewer.running.problem import Problem


def ask_before_close(worker: JobWorker, consequence: str) -> None:
    """Have napari ask before its window is closed while a worker runs.

    `worker`: just about to start. `consequence`: what becomes of its work when the window closes;
    the question says it.
    """
    window = getattr(current_viewer(), "window", None)
    if window is None:
        return
    # napari has no public name for this yet
    task = window._register_task_status(
        "hushpore", Status.BUSY, f"{worker.name}: {consequence}", worker.cancel
    )
    ends = {
        worker.returned: Status.COMPLETED,
        worker.failed: Status.FAILED,
        worker.cancelled: Status.CANCELLED,
    }
    for signal, status in ends.items():
        signal.connect(partial(_end_task, window, task, status))


def _end_task(window: Any, task: Any, status: Status, *_: object) -> None:
    window._update_task_status(task, status)


class Activity(cancelable_progress):
    """A line in napari's activity dock whose Cancel works.

    Make and use it in the GUI thread only. napari's wheel beside the bars moves with the bar: by
    itself it moves 33 times a second, and for each the window is put together anew: without a
    graphics card denoising of 5 s takes 6.5 to 8.8 s then (`benchmarks live_ablation`). napari
    itself calls the callback of a cancelled progress from inside its iteration, and a job is not
    iterated over in this thread.
    """

    monitor_interval = 0

    def __init__(self, title: str, cancel: Callable[[], None]) -> None:
        self._at = 0
        # of the format napari shows what follows the last bar
        text = "{l_bar}{bar}|{remaining} left"
        super().__init__(desc=title, total=BAR_STEPS, cancel_callback=cancel, bar_format=text)
        self._wheels = _wheels()
        for movie in self._wheels:
            movie.setPaused(True)

    def cancel(self) -> None:
        """Pass the user's wish on."""
        super().cancel()
        if self.cancel_callback is not None:
            self.cancel_callback()

    def show(self, progress: Progress) -> None:
        """Move the bar and the wheel; napari lets other events through meanwhile."""
        at = round(BAR_STEPS * progress.fraction)
        if self not in Activity._all_instances:
            return
        if at != self._at:
            moved, self._at = at - self._at, at
            self.update(moved)
        for movie in self._wheels:
            with suppress(RuntimeError):  # of a window that is gone by now
                movie.jumpToNextFrame()

    def close(self) -> None:
        """Take the line away."""
        super().close()
        if not any(isinstance(each, Activity) for each in Activity._all_instances):
            for movie in self._wheels:
                with suppress(RuntimeError):
                    if movie.state() == QMovie.MovieState.Paused:
                        movie.setPaused(False)


def _wheels() -> list[QMovie]:
    """Return what turns in the status bar of the window."""
    viewer = current_viewer()
    if viewer is None:
        return []
    labels = viewer.window._qt_window.statusBar().findChildren(QLabel)
    return [label.movie() for label in labels if label.movie() is not None]


#: What is written on the canvas: first what a scale bar is labelled with, then names of layers,
#: stages and units; and the letters by which the height of a line is measured.
LETTERS = string.digits + " .mµ" + string.ascii_letters + ":,%/_-[]()ÉÑÅŐ"

#: Milliseconds between two letters, each of which takes some ten.
PAUSE = 15


class StatusLine:
    """Borrows napari's text overlay while a job runs, and gives it back as it was.

    A text that is shown already, the user's or that of another job, stays; so does what the user
    changes meanwhile.
    """

    def __init__(self, viewer: Any) -> None:
        self._overlay = viewer.canvas.overlays.text
        self._before = ""
        self._written: str | None = None

    def show(self, text: str) -> None:
        """Write the line; the canvas is drawn anew where it is another."""
        if text == self._written or not self._is_free():
            return
        if self._written is None:
            self._before = self._overlay.text
        self._written = self._overlay.text = text
        self._overlay.visible = True

    def remove(self) -> None:
        """Give the overlay back."""
        if self._written is not None and self._is_free():
            self._overlay.visible = False
            self._overlay.text = self._before

    @contextmanager
    def without_box(self) -> Iterator[None]:
        """Show no box behind the line within the block, unless the user wants one meanwhile."""
        had_box, self._overlay.box = self._overlay.box, False
        try:
            yield
        finally:
            self._overlay.box = self._overlay.box or had_box

    def _is_free(self) -> bool:
        """Whether nobody else shows a text, nor has changed ours."""
        if self._written is None:
            return not self._overlay.visible
        return bool(self._overlay.visible) and self._overlay.text == self._written


class FontWarmup(QObject):
    """Has napari make the shapes of letters, and the line that they stand in.

    napari makes the shape of a letter when it is first drawn, and the graphics driver compiles what
    draws a line when there is a first one: the window would stand still for 390 to 470 ms then, and
    does for 76 to 93 (without the letters alone 198 to 365, without the blank line alone 149 to
    187; `benchmarks live_ablation`). Where a napari keeps its fonts elsewhere nothing is done for
    them. The line is a blank one, shown for a moment.

    While libraries are imported nothing is made: Python's lock goes to and fro a dozen times for a
    letter, which then takes 30 to 60 ms, not 8. Once a job begins all is made in any case.

    `viewer`: on whose canvas the line will be; None: letters alone, while there is no job to come.
    `is_ready`: whether all is done.
    """

    def __init__(self, parent: QWidget, viewer: Any = None) -> None:
        super().__init__(parent)
        self._parent = parent
        self.is_ready = False
        self._left = iter(LETTERS)
        self._is_urgent = False
        self._line = None if viewer is None else StatusLine(viewer)
        self._timer = QTimer(self)
        self._timer.setInterval(PAUSE)
        self._timer.timeout.connect(self._make_letter)
        self._timer.start()

    def give_way(self) -> None:
        """Show no line from here on: a job has one of its own. Letters are still made."""
        line, self._line = self._line, None
        self._is_urgent = True
        if line is not None:
            line.remove()

    def _make_letter(self) -> None:
        if JobWorker.running and not self._is_urgent:
            return
        letter = next(self._left, None)
        try:
            fonts = _fonts() if letter is not None else []
            for font in fonts:
                # a font makes what it is asked for
                font[letter]
        except (AttributeError, KeyError, RuntimeError, TypeError):
            fonts = []
        if not fonts:
            self._timer.stop()
            run_in_steps(self._parent, self._make_line())

    def _make_line(self) -> Iterator[None]:
        """Have the blank line drawn without the box behind it, then with that.

        Each takes a twentieth of a second to compile.
        """
        if (line := self._line) is not None:
            try:
                with line.without_box():
                    line.show(" ")
                    yield
                yield
            finally:
                # the widget may be gone before
                line.remove()
        self.is_ready = True


def _fonts() -> list[Any]:
    """Return the fonts of all canvases; there is no public way to them."""
    try:
        from napari._vispy.canvas import VispyCanvas
    except ImportError:
        return []
    found = [canvas.font_info() for canvas in VispyCanvas._instances]
    return [info.font_manager.get_font(info.face) for info in found]


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
