"""Closing napari's window while a job runs: napari asks, and says what becomes of the work."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest
from napari._qt.dialogs.confirm_close_dialog import ConfirmCloseDialog
from qtpy.QtCore import QTimer
from qtpy.QtGui import QCloseEvent
from qtpy.QtWidgets import QApplication, QLabel

from hushpore.viewer.batch import BatchWidget
from hushpore.viewer.denoise.widget import DenoiseWidget
from hushpore.viewer.running.status import ask_before_close
from hushpore.viewer.running.worker import JobWorker, calling
from hushpore.viewer.segment.widget import PoresWidget


@pytest.fixture
def window(make_napari_viewer):
    viewer = make_napari_viewer()
    scan = np.full((4, 32, 32), 200, np.uint8)
    scan[1:3, 8:16, 8:16] = 10
    viewer.add_image(scan, name="scan")
    return viewer.window


def questions(window):
    return window._task_status_manager.get_status()


def test_a_job_is_a_task_of_napari_until_it_ends(window):
    widget = PoresWidget(window._qt_viewer.viewer)
    worker = widget.run()
    assert questions(window) == [f"hushpore: {worker.name}: it stops, and its result is lost"]
    assert widget.wait(60) is not None
    assert questions(window) == []


def test_closing_cancels_the_job(qtbot, window):
    worker = JobWorker(partial(calling, threading.Event().wait, 0.2), "Denoise scan")
    ask_before_close(worker, "it stops")
    with qtbot.waitSignal(worker.cancelled):
        worker.start()
        window._task_status_manager.cancel_all()
    assert questions(window) == []


@pytest.mark.parametrize(
    ("kind", "consequence"),
    [
        (BatchWidget, "finished scans are kept, and a new run continues with the others"),
        (DenoiseWidget, "its training is lost (a Checkpoint file, under More, keeps it)"),
    ],
)
def test_the_question_says_what_is_kept(viewer, kind, consequence):
    assert kind(viewer)._if_closed.endswith(consequence)


def test_a_checkpoint_is_named_by_the_question(viewer, tmp_path):
    widget = DenoiseWidget(viewer)
    file = str(tmp_path / "training.safetensors")
    widget.form.update({"checkpoint": file})
    assert widget._if_closed == f"it stops; training continues from {file} when you run it again"


class FromOutside(QCloseEvent):
    """The close button of the window, for which alone napari asks."""

    def spontaneous(self):
        return True


def close(window, button):
    """Press the close button and answer the question; return what it says, and the event."""
    said = []

    def answer():
        for dialog in QApplication.topLevelWidgets():
            if isinstance(dialog, ConfirmCloseDialog) and dialog.isVisible():
                said.append("".join(label.text() for label in dialog.findChildren(QLabel)))
                getattr(dialog, button).click()

    event = FromOutside()
    timer = QTimer(interval=20, timeout=answer)
    timer.start()
    window._qt_window.closeEvent(event)
    timer.stop()
    return said[0], event.isAccepted()


@pytest.fixture
def training(small_network, window, tmp_path):
    """The widget with a training that has a checkpoint."""
    viewer = window._qt_viewer.viewer
    viewer.layers["scan"].data = np.random.default_rng(0).normal(0, 9, (4, 64, 64)).astype("f4")
    widget = DenoiseWidget(viewer)
    window.add_dock_widget(widget, name="Denoise")
    widget.form.update({"steps": 4000, "checkpoint": str(tmp_path / "training.safetensors")})
    return widget


def test_the_window_closes_and_the_checkpoint_has_the_training(qtbot, window, training, tmp_path):
    worker = training.run()
    qtbot.waitUntil(lambda: "Training: " in training._progress.stage.text(), timeout=60_000)
    said, is_accepted = close(window, "close_btn")
    assert "Denoise scan: it stops; training continues from" in said
    assert is_accepted
    assert worker.wait(60)
    assert (tmp_path / "training.safetensors").exists()


def test_the_window_stays_and_the_training_goes_on(qtbot, window, training):
    training.form.update({"steps": 10})
    training.run()
    said, is_accepted = close(window, "cancel_btn")
    assert "Denoise scan" in said
    assert not is_accepted
    assert training.is_running
    assert training.wait(100) is not None
    assert "scan denoised" in window._qt_viewer.viewer.layers
