"""The panel of results with 20,000 pores in a real window: opening, filter, click, colours, memory.

Needs a screen: xvfb-run -a -s "-screen 0 1600x1000x24" python -m benchmarks results_panel. Each
time ends when the window has drawn what it has to; of the repeated ones the median is kept and the
longest.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import psutil

from benchmarks._missing import require_screen
from benchmarks._window import own_settings

if TYPE_CHECKING:
    from collections.abc import Callable

PORES = 20_000
ROUNDS = 7


def measure() -> dict[str, object]:
    """Milliseconds of each action, on a slice, and the memory that the panel takes."""
    require_screen()
    own_settings()
    import napari
    from qtpy.QtWidgets import QApplication

    from hushpore.viewer.running.messages import RESULTS

    viewer = napari.Viewer()
    layer = viewer.add_layer(_layer())
    app = QApplication.instance()

    def timed(action: Callable[[], Any]) -> float:
        app.processEvents()
        start = time.perf_counter()
        action()
        app.processEvents()
        return 1000 * (time.perf_counter() - start)

    app.processEvents()
    before = psutil.Process().memory_info().rss
    docks: list[Any] = []

    def open_panel() -> None:
        docks.append(viewer.window.add_plugin_dock_widget("hushpore", RESULTS)[1])

    figures: dict[str, object] = {"pores": PORES, "open ms": round(timed(open_panel))}
    panel = docks[0]
    figures["memory MB"] = round((psutil.Process().memory_info().rss - before) / 1e6)
    viewer.window.add_plugin_dock_widget("hushpore", "Plots")
    rng = np.random.default_rng(0)

    def filter_rows() -> None:
        panel._filter.setText(f"equivalent_diameter > {rng.uniform(2, 8):.3f} and not is_open")
        panel.apply_filter()

    actions: dict[str, Callable[[], Any]] = {
        "filter": filter_rows,
        "slider": lambda: panel._range.setValue(tuple(sorted(rng.uniform(0, 10, 2)))),
        "click a pore": lambda: panel.view.select_labels([rng.integers(1, PORES)], "canvas"),
        "select a row": lambda: panel.pores.selectRow(int(rng.integers(0, 100))),
        "brush half": lambda: panel.view.select(rng.random(PORES) > 0.5),
        "colour": lambda: panel.view.colour_by(rng.choice(["volume", "sphericity"])),
        "sort": lambda: panel.pores.sortByColumn(int(rng.integers(0, 8)), _order(rng)),
    }
    for name, action in actions.items():
        times = [timed(action) for _ in range(ROUNDS)]
        figures[f"{name} ms"] = {
            "median": round(statistics.median(times), 1),
            "longest": round(max(times), 1),
        }
        panel._reset()
    assert layer in viewer.layers
    viewer.close()
    return figures


def _order(rng: np.random.Generator) -> Any:
    from qtpy.QtCore import Qt

    return Qt.SortOrder.AscendingOrder if rng.random() > 0.5 else Qt.SortOrder.DescendingOrder


def _layer() -> Any:
    """Labels of 20,000 blocks, with a table as long and as wide as that of a segmentation."""
    from napari.layers import Labels

    from hushpore.pores.tables.measures import PORES as MEASURES
    from hushpore.viewer.results.pore_layer import features_of

    rng = np.random.default_rng(0)
    side = 28
    blocks = np.arange(side**3).reshape(side, side, side) + 1
    blocks[blocks > PORES] = 0
    labels = blocks.repeat(8, 0).repeat(8, 1).repeat(8, 2).astype(np.int32)
    names = [measure.name for measure in MEASURES]
    table = pd.DataFrame({name: rng.gamma(3, 2, PORES) for name in names})
    table["label"] = np.arange(1, PORES + 1, dtype=np.int32)
    table["num_voxels"] = 512
    for name in ("is_open", "touches_border"):
        table[name] = rng.random(PORES) > 0.5
    z = np.unravel_index(np.arange(PORES), (side,) * 3)[0]
    table["bbox_z_start"], table["bbox_z_stop"] = 8 * z, 8 * z + 8
    throats = pd.DataFrame({"pore_1": rng.integers(1, PORES, 60_000), "pore_2": 1, "area": 1.0})
    metadata = {"hushpore": {"throats": throats, "porosity_profile": np.ones(side * 8)}}
    return Labels(labels, features=features_of(table), metadata=metadata)
