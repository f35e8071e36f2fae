"""The void while a threshold is dragged, in a real window: from a move of the line to the picture.

Needs a screen: xvfb-run -a -s "-screen 0 1600x1000x24" python -m benchmarks void_preview. `void ms`
ends when the layer has the new void, `drawn ms` when the window has drawn it; `window ms` is what
the window's own thread was kept by the move itself. Medians and the longest of some moves. `counted
ms` is how long the histogram takes, in a thread.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._missing import require_screen
from benchmarks._window import own_settings

if TYPE_CHECKING:
    from collections.abc import Callable

MOVES = 25

#: Name, shape, type, and whether the volume is read from a file slice by slice.
CASES = (
    ("512 x 512, int16", (64, 512, 512), np.int16, False),
    ("1024 x 1024, float32", (32, 1024, 1024), np.float32, False),
    ("2048 x 2048, uint16", (32, 2048, 2048), np.uint16, False),
    ("1024 x 1024, uint16, on disk", (64, 1024, 1024), np.uint16, True),
)


def measure() -> dict[str, object]:
    """Milliseconds of a move, for volumes of some sizes."""
    require_screen()
    own_settings()
    import napari
    from qtpy.QtWidgets import QApplication

    viewer = napari.Viewer()
    viewer.window._qt_window.resize(1366, 768)
    _, widget = viewer.window.add_plugin_dock_widget("hushpore", "Segment pores")
    app = QApplication.instance()

    def wait(done: Callable[[], bool]) -> None:
        # lets go of the interpreter as the window's own loop does while nothing happens
        while not done():
            app.processEvents()
            time.sleep(0.0005)

    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, shape, dtype, on_disk in CASES:
            values = _foam(shape, dtype)
            if on_disk:
                file = np.memmap(Path(folder) / "volume", dtype, "w+", shape=shape)
                file[...] = values
                values = file
            start = time.perf_counter()
            layer = viewer.add_image(values, name=name)
            widget.layer.value = layer
            wait(lambda: not widget.greys.is_busy)
            counted = 1000 * (time.perf_counter() - start)
            viewer.reset_view()
            figures[name] = {"counted ms": round(counted), **_drag(widget.greys, wait, app)}
            viewer.layers.clear()
    viewer.close()
    return figures


def _drag(panel: Any, wait: Callable[[Callable[[], bool]], None], app: Any) -> dict[str, object]:
    """Move the line a little, again and again."""
    low, high = panel.histogram.limits
    times: dict[str, list[float]] = {"window ms": [], "void ms": [], "drawn ms": []}
    for number in range(MOVES + 3):
        value = low + (high - low) * (0.4 + 0.2 * number / MOVES)
        start = time.perf_counter()
        panel.histogram.moved.emit("threshold", value)
        moved = time.perf_counter()
        wait(lambda: not panel.is_busy)
        shown = time.perf_counter()
        app.processEvents()
        ends = (moved, shown, time.perf_counter())
        # the first ones make the layer
        if number >= 3:
            for each, end in zip(times.values(), ends, strict=True):
                each.append(1000 * (end - start))
    return {
        name: {"median": round(statistics.median(each), 1), "longest": round(max(each), 1)}
        for name, each in times.items()
    }


def _foam(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return noise about two grey values, in blobs of some pixels."""
    rng = np.random.default_rng(0)
    coarse = rng.random((shape[0], shape[1] // 16, shape[2] // 16)) < 0.4
    void = np.repeat(np.repeat(coarse, 16, axis=1), 16, axis=2)
    noise = rng.normal(0, 300, shape[1:]).astype(np.float32)
    return np.where(void, 1000 + noise, 3000 + noise).clip(0).astype(dtype)
