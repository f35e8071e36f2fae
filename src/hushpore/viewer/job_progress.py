"""How far a running job is: a bar, and a line under it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from qtpy.QtWidgets import QProgressBar, QVBoxLayout, QWidget

from hushpore.viewer.progress import PARTS, bar_text, stage_in_words
from hushpore.viewer.sentence import Sentence, link

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
        self.stage = Sentence(viewer)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(self.bar)
        column.addWidget(self.stage)
        self.hide()

    def begin(self) -> None:
        """Show that a job has begun, of which nothing is known yet."""
        self.bar.setRange(0, 0)
        self.bar.setFormat("")
        self.stage.say("preparing")
        self.show()

    def wait_for(self, name: str) -> None:
        """Say which job must end before this one begins."""
        self.stage.say(html.escape(f"waits for {name} to end"))

    def show_progress(self, progress: Progress, left: float | None, previewed: int | None) -> None:
        """Show how far the job is.

        Parameters
        ----------
        progress : Progress
            The newest.
        left : float or None
            Seconds left, where they are known.
        previewed : int or None
            The slice that is previewed.
        """
        self.bar.setRange(0, PARTS if progress.fraction > 0 else 0)
        self.bar.setValue(round(PARTS * progress.fraction))
        self.bar.setFormat(bar_text(progress, left))
        text = html.escape(stage_in_words(progress))
        if previewed is not None:
            text += " · " + link("preview", f"preview in slice {previewed}")
        self.stage.say(text)
