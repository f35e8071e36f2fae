"""5,000 boxes with features in napari: adding them, colouring them anew, and answering a click.

Each is timed until the window has been drawn again. Needs napari, and a screen or Xvfb.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks._missing import require_screen
from benchmarks._window import own_settings

if TYPE_CHECKING:
    from collections.abc import Callable

N_PATCHES, ROUNDS = 5000, 7


def measure() -> dict[str, object]:
    """Median and worst seconds of each."""
    require_screen()
    own_settings()
    import napari
    from napari.layers import Layer

    import hushpore
    from hushpore.viewer.patches.layers import patch_layers
    from hushpore.viewer.patches.panel import PatchesPanel
    from hushpore.viewer.running.task import capture

    scan = np.random.default_rng(0).normal(size=(28, 512, 512)).astype(np.float32)
    result = hushpore.sample_patches(scan, n_patches=N_PATCHES, device="cpu")
    viewer = napari.Viewer()
    image = viewer.add_image(scan, name="scan")
    panel = PatchesPanel(viewer)
    viewer.window.add_dock_widget(panel)
    layers = [Layer.create(*data) for data in patch_layers(result, capture(image))]
    boxes, others = layers[0], layers[1:]
    _drawn(lambda: None)
    added = []
    for _ in range(ROUNDS):
        added.append(_drawn(lambda: viewer.add_layer(boxes)))
        viewer.layers.remove(boxes)
    viewer.add_layer(boxes)
    for layer in others:
        viewer.add_layer(layer)
    names = ["mean", "sd", "gradient", "order"]
    coloured = [_drawn(lambda name=name: panel.feature.setCurrentText(name)) for name in names * 2]
    clicks = []
    for patch in range(0, 40, 4):
        world = np.array(boxes.data_to_world(result.centres[patch]))
        viewer.dims.set_point(0, world[0])
        _drawn(lambda: None)
        clicks.append(_drawn(lambda world=world: panel.click(world)))
    panel.forget()
    viewer.close()
    return {
        "n_patches": N_PATCHES,
        **_figures("add", added),
        **_figures("change_colour", coloured),
        **_figures("click", clicks),
    }


def _figures(name: str, seconds: list[float]) -> dict[str, float]:
    return {
        f"{name}_seconds": round(statistics.median(seconds), 4),
        f"{name}_worst_seconds": round(max(seconds), 4),
    }


def _drawn(work: Callable[[], object]) -> float:
    """Seconds until something is done and drawn."""
    from qtpy.QtWidgets import QApplication

    start = time.perf_counter()
    work()
    QApplication.processEvents()
    return time.perf_counter() - start
