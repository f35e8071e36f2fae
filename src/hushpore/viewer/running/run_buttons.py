"""The buttons that start a job, cancel it, and end it early."""

from __future__ import annotations

from qtpy.QtWidgets import QHBoxLayout, QPushButton, QWidget

from hushpore.viewer.forms.layout import fill
from hushpore.viewer.forms.shortcuts import CANCEL, RUN, with_key


class RunButtons(QWidget):
    """Run, which is Cancel while a job runs, and Finish now; each says why it cannot be pressed.

    `title`: what the job does: "Denoise". `ends_early_in`: stage that can be cut short with a
    result; empty for a job that has none before its end.
    """

    def __init__(self, title: str, ends_early_in: str) -> None:
        super().__init__()
        self._title, self._ends_early_in = title, ends_early_in
        self.run = QPushButton("Run", styleSheet="font-weight: bold; padding: 6px;")
        self.finish = QPushButton("Finish now", styleSheet="padding: 6px;", visible=False)
        line = fill(QHBoxLayout(self), self.run, self.finish)
        line.setStretch(0, 1)
        line.setStretch(1, 1)

    def show_idle(self, why_not: str) -> None:
        """Offer Run, unless there is a reason against it."""
        self.finish.hide()
        tip = why_not or with_key(f"{self._title} on this layer.", RUN)
        offer(self.run, "Run", tip, not why_not)

    def show_running(self) -> None:
        """Offer Cancel, and Finish now for a job that has something before its end."""
        tip = with_key("Stop; only what the preview shows is kept.", CANCEL)
        offer(self.run, "Cancel", tip)
        self.finish.setVisible(bool(self._ends_early_in))
        offer(self.finish, "Finish now", "Nothing has been learnt yet.", False)

    def show_stage(self, stage: str) -> None:
        """Offer Finish now in the stage that can be cut short."""
        is_it = stage == self._ends_early_in
        why_not = f"While {stage} there is nothing to cut short."
        tip = "End now and keep the result so far." if is_it else why_not
        offer(self.finish, "Finish now", tip, is_it)

    def show_cancelling(self) -> None:
        """Say that the job has been asked to stop."""
        offer(self.run, "Cancelling …", "The job stops after the step that it is in.", False)
        offer(self.finish, "Finish now", "The job is being cancelled.", False)

    def show_finishing(self) -> None:
        """Say that the job has been asked to end with what it has."""
        tip = "The result is made of what was learnt so far."
        offer(self.finish, "Finishing …", tip, False)


def offer(button: QPushButton, text: str, tip: str, is_allowed: bool = True) -> None:
    """Say what a button does, or why it cannot be pressed."""
    button.setText(text)
    button.setToolTip(tip)
    button.setEnabled(is_allowed)
