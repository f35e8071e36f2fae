"""The buttons that start a job, cancel it, and end it early."""

from __future__ import annotations

from qtpy.QtWidgets import QHBoxLayout, QPushButton, QWidget


class RunButtons(QWidget):
    """Run, which is Cancel while a job runs, and Finish now; each says why it cannot be pressed.

    `title`: what the job does: "Denoise". `ends_early_in`: stage that can be cut short with a
    result; empty for a job that has none before its end.
    """

    def __init__(self, title: str, ends_early_in: str) -> None:
        super().__init__()
        self._title, self._ends_early_in = title, ends_early_in
        self.run, self.finish = QPushButton("Run"), QPushButton("Finish now")
        self.run.setStyleSheet("font-weight: bold; padding: 6px;")
        self.finish.setStyleSheet("padding: 6px;")
        self.finish.hide()
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.addWidget(self.run, 1)
        line.addWidget(self.finish, 1)

    def show_idle(self, why_not: str) -> None:
        """Offer Run, unless there is a reason against it."""
        self.finish.hide()
        self.run.setText("Run")
        self.run.setEnabled(not why_not)
        self.run.setToolTip(why_not or f"{self._title} on this layer.")

    def show_running(self) -> None:
        """Offer Cancel, and Finish now for a job that has something before its end."""
        self.run.setText("Cancel")
        self.run.setToolTip("Stop; only what the preview shows is kept.")
        self.finish.setText("Finish now")
        self.finish.setVisible(bool(self._ends_early_in))
        self._allow_finish(False, "Nothing has been learnt yet.")

    def show_stage(self, stage: str) -> None:
        """Offer Finish now in the stage that can be cut short."""
        if stage == self._ends_early_in:
            self._allow_finish(True, "End now and keep the result so far.")
        else:
            self._allow_finish(False, f"While {stage} there is nothing to cut short.")

    def show_cancelling(self) -> None:
        """Say that the job has been asked to stop."""
        self.run.setText("Cancelling …")
        self.run.setEnabled(False)
        self.run.setToolTip("The job stops after the step that it is in.")
        self._allow_finish(False, "The job is being cancelled.")

    def show_finishing(self) -> None:
        """Say that the job has been asked to end with what it has."""
        self.finish.setText("Finishing …")
        self._allow_finish(False, "The result is made of what was learnt so far.")

    def _allow_finish(self, is_allowed: bool, why: str) -> None:
        self.finish.setEnabled(is_allowed)
        self.finish.setToolTip(why)
