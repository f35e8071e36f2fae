"""Progress in napari's activity dock."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from napari import current_viewer
from napari.utils.progress import cancelable_progress
from qtpy.QtGui import QMovie
from qtpy.QtWidgets import QLabel

from hushpore.viewer.running.progress import BAR_STEPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Progress


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
