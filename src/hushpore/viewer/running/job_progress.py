"""How far a running job is: a bar, and a line under it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from qtpy.QtWidgets import QProgressBar, QVBoxLayout, QWidget

from hushpore.viewer.forms.rich_label import Sentence, link
from hushpore.viewer.running.progress import PARTS, bar_text, duration, stage_in_words

if TYPE_CHECKING:
    from hushpore.base.events import Progress


class JobProgress(QWidget):
    """A bar with percent and time left, and the stage in words; hidden while no job runs.

    Parameters
    ----------
    viewer : napari.components.ViewerModel
        Whose theme to follow.

    Attributes
    ----------
    bar : QProgressBar
        Its parts are `PARTS`.
    stage : Sentence
        Its link leads to the preview.
    """

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self.bar = QProgressBar()
        # never a bar that only moves to and fro: it draws the window anew all the time
        self.bar.setRange(0, PARTS)
        self.stage = Sentence(viewer)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(self.bar)
        column.addWidget(self.stage)
        self.hide()

    def begin(self) -> None:
        """Show that a job has begun, of which nothing is known yet."""
        self.bar.setValue(0)
        self.bar.setFormat("")
        self.stage.say("preparing")
        self.show()

    def wait_for(self, name: str) -> None:
        """Say which job must end before this one begins."""
        self.stage.say(html.escape(f"waits for {name} to end"))

    def show_progress(
        self, progress: Progress, left: float | None, elapsed: float, previewed: int | None
    ) -> None:
        """Show how far the job is; while that is not known, how long it has taken so far.

        Parameters
        ----------
        progress : Progress
            The newest.
        left : float or None
            Seconds left, where they are known.
        elapsed : float
            Seconds since the job began.
        previewed : int or None
            The slice that is previewed.
        """
        is_known = progress.fraction > 0
        self.bar.setValue(round(PARTS * progress.fraction))
        self.bar.setFormat(bar_text(progress, left) if is_known else f"{duration(elapsed)} so far")
        text = html.escape(stage_in_words(progress))
        if previewed is not None:
            text += " · " + link("preview", f"preview in slice {previewed}")
        self.stage.say(text)
