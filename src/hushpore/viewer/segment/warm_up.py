"""Compiling the pore kernels behind an open widget, before Run is pressed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import QApplication, QLabel

from hushpore.viewer.running.worker import JobWorker

if TYPE_CHECKING:
    from hushpore.base.events import Job

#: Milliseconds between two looks.
POLL_INTERVAL = 250


class KernelWarmup(QLabel):
    """Says so while kernels are compiled, which happens once after installing; else hidden.

    The work begins when this is made, in a thread that nobody waits for: where the window closes it
    stops by itself, and a job that is started meanwhile waits for it and says so.
    """

    def __init__(self) -> None:
        super().__init__("Preparing the segmentation, first time only …")
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setWordWrap(True)
        self.setToolTip(
            "Its code is compiled for this computer, once after installing. Meanwhile all works."
        )
        self.hide()
        self._worker = worker = JobWorker(_prepare, "preparing pores")
        self._timer = QTimer(self)
        self._timer.setInterval(POLL_INTERVAL)
        self._timer.timeout.connect(self._look)
        for end in (worker.returned, worker.failed, worker.cancelled):
            end.connect(self._end)
        cancel = partial(_cancel, worker)
        self.destroyed.connect(cancel)
        QApplication.instance().aboutToQuit.connect(cancel)
        worker.start()
        self._timer.start()

    def _look(self) -> None:
        progress = self._worker.take().progress
        if progress is not None:
            self.setVisible(progress.stage != "preparing")

    def _end(self, *_: object) -> None:
        # what went wrong is said where it matters: by the job
        self._timer.stop()
        self.hide()


def _cancel(worker: JobWorker, *_: object) -> None:
    worker.cancel()


def _prepare() -> Job:
    from hushpore.pores.job import prepare, warm_up_kind
    from hushpore.pores.settings import PoreSettings

    yield from prepare(warm_up_kind(PoreSettings()))
