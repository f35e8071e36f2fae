"""Closing napari's window while a job runs: napari asks, and says what becomes of the work."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest

from hushpore.viewer.batch.widget import BatchWidget
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
