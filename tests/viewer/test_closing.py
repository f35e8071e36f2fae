"""Closing napari's window while a job runs: it asks, and says what becomes of the work."""

from __future__ import annotations

import numpy as np
import pytest
from napari._qt.dialogs.confirm_close_dialog import ConfirmCloseDialog
from qtpy.QtCore import QTimer
from qtpy.QtGui import QCloseEvent
from qtpy.QtWidgets import QApplication, QMessageBox

from hushpore.viewer.batch import BatchWidget
from hushpore.viewer.denoise.widget import DenoiseWidget
from hushpore.viewer.running.status import ask_before_close
from hushpore.viewer.running.worker import JobWorker
from hushpore.viewer.segment.widget import PoresWidget


@pytest.fixture
def window(make_napari_viewer):
    viewer = make_napari_viewer()
    scan = np.full((4, 32, 32), 200, np.uint8)
    scan[1:3, 8:16, 8:16] = 10
    viewer.add_image(scan, name="scan")
    return viewer.window


def test_the_window_asks_until_the_job_ends(window):
    widget = PoresWidget(window._qt_viewer.viewer)
    worker = widget.run()
    said, is_accepted = close(window, is_sure=False)
    assert said[0] == f"{worker.name}: it stops, and its result is lost."
    assert not is_accepted
    assert widget.wait(60) is not None
    said, _ = close(window, is_sure=False)
    assert not any("its result is lost" in each for each in said)


@pytest.mark.parametrize("end", ["returned", "failed", "cancelled"])
def test_the_window_does_not_ask_for_a_job_that_ended_in_this_turn_of_the_event_loop(window, end):
    worker = JobWorker(list, "A job")
    ask_before_close(worker, "it stops")
    getattr(worker, end).emit(*([] if end == "cancelled" else [None]))
    said, _ = close(window, is_sure=False)
    assert "A job: it stops." not in said


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


def close(window, *, is_sure):
    """Press the close button and answer; return all questions, and whether the window closes."""
    said = []

    def answer():
        for dialog in QApplication.topLevelWidgets():
            if not dialog.isVisible():
                continue
            if isinstance(dialog, QMessageBox):
                said.append(dialog.text())
                buttons = QMessageBox.StandardButton
                dialog.button(buttons.Close if is_sure else buttons.Cancel).click()
            elif isinstance(dialog, ConfirmCloseDialog):
                said.append("napari")
                (dialog.close_btn if is_sure else dialog.cancel_btn).click()

    event = FromOutside()
    timer = QTimer(interval=20, timeout=answer)
    timer.start()
    QApplication.sendEvent(window._qt_window, event)
    timer.stop()
    if event.isAccepted():
        # Qt itself deletes the window then
        window.close()
    return said, event.isAccepted()


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
    said, is_accepted = close(window, is_sure=True)
    assert said[0].startswith("Denoise scan: it stops; training continues from")
    assert is_accepted
    assert worker.wait(60)
    assert (tmp_path / "training.safetensors").exists()


def test_the_window_stays_and_the_training_goes_on(qtbot, window, training):
    training.form.update({"steps": 10})
    training.run()
    said, is_accepted = close(window, is_sure=False)
    assert "Denoise scan" in said[0]
    assert not is_accepted
    assert training.is_running
    assert training.wait(100) is not None
    assert "scan · denoised" in window._qt_viewer.viewer.layers
