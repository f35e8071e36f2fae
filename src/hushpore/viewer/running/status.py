"""Progress of a job outside its widget: napari's activity dock and a line on the canvas."""

from __future__ import annotations

import string
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from napari import current_viewer
from napari.utils.progress import cancelable_progress
from napari.utils.task_status import Status
from psygnal import EmitLoopError
from qtpy.QtCore import QObject, QTimer
from qtpy.QtGui import QMovie
from qtpy.QtWidgets import QLabel

from hushpore.viewer.running.problem import notify_problem
from hushpore.viewer.running.redraw import run_in_steps
from hushpore.viewer.running.worker import JobWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtpy.QtWidgets import QWidget

    from hushpore.base.events import Job, Progress
    from hushpore.viewer.running.problem import Problem

#: Steps of a progress bar.
BAR_STEPS = 1000


def ask_before_close(worker: JobWorker, consequence: str) -> None:
    """Have napari ask before its window is closed while a worker runs.

    `worker`: the worker, before its start. `consequence`: effect of closing the window on its work,
    shown in the question.
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
    """A progress bar in napari's activity dock with a working Cancel.

    For the GUI thread only. napari's spinner is paused and advanced with the bar, because its
    animation redraws the window 33 times a second: without a graphics card, a denoising of 5 s
    would take 6.5 to 8.8 s (`decided/live_ablation.json`). napari calls the cancel callback from
    inside an iteration, which does not exist here, so `cancel` calls it.
    """

    monitor_interval = 0

    def __init__(self, title: str, cancel: Callable[[], None]) -> None:
        self._at = 0
        # napari shows the part of the format after the last bar
        text = "{l_bar}{bar}|{remaining} left"
        super().__init__(desc=title, total=BAR_STEPS, cancel_callback=cancel, bar_format=text)
        self._wheels = _wheels()
        for movie in self._wheels:
            movie.setPaused(True)

    def cancel(self) -> None:
        """Call the cancel callback."""
        super().cancel()
        if self.cancel_callback is not None:
            self.cancel_callback()

    def show(self, progress: Progress) -> None:
        """Advance the bar and the spinner; napari processes events meanwhile."""
        at = round(BAR_STEPS * progress.fraction)
        if self not in Activity._all_instances:
            return
        if at != self._at:
            moved, self._at = at - self._at, at
            self.update(moved)
        for movie in self._wheels:
            with suppress(RuntimeError):  # the window was closed
                movie.jumpToNextFrame()

    def close(self) -> None:
        """Remove the bar."""
        super().close()
        if not any(isinstance(each, Activity) for each in Activity._all_instances):
            for movie in self._wheels:
                with suppress(RuntimeError):
                    if movie.state() == QMovie.MovieState.Paused:
                        movie.setPaused(False)


def _wheels() -> list[QMovie]:
    """Return the spinners in the status bar of the window."""
    viewer = current_viewer()
    if viewer is None:
        return []
    labels = viewer.window._qt_window.statusBar().findChildren(QLabel)
    return [label.movie() for label in labels if label.movie() is not None]


#: Letters used on the canvas: those of scale bars first, then those of names of layers, stages and
#: units, and those that determine the height of a line.
LETTERS = string.digits + " .mµ" + string.ascii_letters + ":,%/_-[]()ÉÑÅŐ"

#: Milliseconds between two letters; each takes about 10 ms to prepare.
PAUSE = 15


class StatusLine:
    """Uses napari's text overlay while a job runs, and restores it afterwards.

    A text already shown by the user or another job is kept, and so are changes by the user.
    """

    def __init__(self, viewer: Any) -> None:
        self._overlay = viewer.canvas.overlays.text
        self._before = ""
        self._written: str | None = None

    def show(self, text: str) -> None:
        """Show a text, if it has changed."""
        if text == self._written or not self._is_free():
            return
        if self._written is None:
            self._before = self._overlay.text
        self._written = text
        self._write(text=text, visible=True)

    def remove(self) -> None:
        """Restore the overlay."""
        if self._written is not None and self._is_free():
            self._write(visible=False, text=self._before)

    def _write(self, **values: Any) -> None:
        """Set attributes of the overlay in their order."""
        try:
            for name, value in values.items():
                setattr(self._overlay, name, value)
        except EmitLoopError as error:
            # Qt has deleted the canvas of a window that was closed
            if not isinstance(error.__cause__, RuntimeError):
                raise

    @contextmanager
    def without_box(self) -> Iterator[None]:
        """Hide the box behind the text inside the block."""
        had_box, self._overlay.box = self._overlay.box, False
        try:
            yield
        finally:
            self._overlay.box = self._overlay.box or had_box

    def _is_free(self) -> bool:
        """Whether the overlay shows no text except that of this object, unchanged."""
        if self._written is None:
            return not self._overlay.visible
        return bool(self._overlay.visible) and self._overlay.text == self._written


class FontWarmup(QObject):
    """Prepares the glyphs and the shader of text on the canvas.

    napari creates a glyph when a letter is first drawn, and the graphics driver compiles a shader
    for the first line of text, which would block the window for 390 to 470 ms; with this it is
    blocked for 76 to 93 ms (198 to 365 without the glyphs, 149 to 187 without the blank line;
    `decided/live_ablation.json`). The line is blank and shown for a moment. Versions of napari
    that keep their fonts elsewhere are not prepared.

    It waits while libraries are imported, because competition for Python's lock makes a letter take
    30 to 60 ms instead of 8. Once a job starts it does not wait.

    `viewer`: the viewer whose canvas shows the line; None: glyphs only. `is_ready`: whether glyphs
    and shaders are prepared.
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
        """Remove the blank line, because a job shows its own; glyphs are still prepared."""
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
                # indexing creates the glyph
                font[letter]
        except (AttributeError, KeyError, RuntimeError, TypeError):
            fonts = []
        if not fonts:
            self._timer.stop()
            run_in_steps(self._parent, self._make_line())

    def _make_line(self) -> Iterator[None]:
        """Draw the blank line without the box behind it, then with the box.

        Each shader takes 50 ms to compile.
        """
        if (line := self._line) is not None:
            try:
                with line.without_box():
                    line.show(" ")
                    yield
                yield
            finally:
                # also if the widget is deleted earlier
                line.remove()
        self.is_ready = True


def _fonts() -> list[Any]:
    """Return the fonts of all canvases, from private attributes of napari."""
    try:
        from napari._vispy.canvas import VispyCanvas
    except ImportError:
        return []
    found = [canvas.font_info() for canvas in VispyCanvas._instances]
    return [info.font_manager.get_font(info.face) for info in found]


#: Milliseconds between two polls of a task.
POLL_INTERVAL = 125


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
