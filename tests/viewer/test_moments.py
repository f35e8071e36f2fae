"""Whatever the user does while a job runs, no error ends in the window."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from hushpore.viewer.docks import DOCKS, open_page

#: Seconds after the start of the job.
MOMENTS = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)


def close(viewer):
    viewer.window.close()


def delete_layers(viewer):
    viewer.layers.clear()


def switch_theme(viewer):
    viewer.theme = "light" if viewer.theme == "dark" else "dark"


def switch_dimensions(viewer):
    viewer.dims.ndisplay = 5 - viewer.dims.ndisplay


def go_through_pages(viewer):
    for page in itertools.chain.from_iterable(DOCKS.values()):
        open_page(viewer, page)


ACTIONS = close, delete_layers, switch_theme, switch_dimensions, go_through_pages


@pytest.mark.long
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
@pytest.mark.parametrize("page", ["Denoise", "Pores"])
def test_a_job_survives_or_ends_quietly(
    make_napari_viewer, qtbot, small_network, page, action, moment
):
    viewer = make_napari_viewer()
    scan = np.full((12, 64, 64), 200, np.uint8)
    scan[2:10, 8:24, 8:24] = scan[2:10, 32:50, 30:50] = 20
    noise = np.random.default_rng(0).integers(0, 40, scan.shape, np.uint8)
    viewer.add_image(scan + noise, name="scan")
    widget = open_page(viewer, page)
    if page == "Denoise":
        widget.form.update({"steps": 60, "patch_size": 16, "batch_size": 2})
    else:
        widget.form.update({"local_thickness": "both", "intervals": True})
    worker = widget.run()
    end = time.monotonic() + moment
    qtbot.waitUntil(lambda: time.monotonic() >= end)
    # twice: back again, or what is gone already
    action(viewer)
    if action is not close:
        qtbot.wait(30)
        action(viewer)
    qtbot.waitUntil(lambda: not worker.is_running)
    qtbot.wait(50)
