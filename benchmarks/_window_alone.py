"""What napari takes by itself at the steps of `benchmarks.window_steps`, without a widget of ours.

The same window, scan, slices, labels, colours and boxes; data change at the pace of the same hand.
For widgets that are opened it gets a dock of fields that magicgui makes, as many as theirs.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._window import own_settings
from benchmarks.live import tiled_foam, wait
from benchmarks.window_steps import AFTER, LOOK, MOVES, PAUSE, SHAPE, Beats

if TYPE_CHECKING:
    import numpy.typing as npt

#: Fields of a form of ours, about, and heights between which a slider goes.
FIELDS, HEIGHTS = 30, np.linspace(0.5, 4, 8)

#: Seconds in which a layer is drawn, before the next one comes.
DRAWN = 0.1

#: Seconds between two results of merging, as they come.
MERGES = 0.08


def first_dock() -> dict[str, dict[str, float]]:
    """Open a dock of fields before anything else; return the gaps of that."""
    import napari

    viewer = napari.Viewer(title="napari alone")
    viewer.window._qt_window.resize(1366, 768)
    wait(1.5)
    beats = Beats()
    with beats.during("open Denoise first of all"):
        viewer.window.add_dock_widget(_fields(), name="Denoise", tabify=True)
        wait(LOOK)
    return beats.figures()


def session(
    scan: npt.NDArray[Any], void: npt.NDArray[np.uint8], merged: list[npt.NDArray[np.int32]]
) -> dict[str, dict[str, float]]:
    """Go through what is napari's of a session; return the gaps of its steps."""
    import napari
    import pandas as pd
    from napari.utils.colormaps import CyclicLabelColormap

    viewer = napari.Viewer(title="napari alone")
    viewer.window._qt_window.resize(1366, 768)
    wait(1.5)
    beats = Beats()
    with beats.during("drop a series"):
        viewer.canvas.overlays.scale_bar.visible = True
        limits = tuple(np.percentile(scan[:: len(scan) // 8], (1, 99)).tolist())
        image = viewer.add_image(scan, contrast_limits=limits, scale=(2, 1, 1))
    for name in ("Denoise", "Segment pores", "Show patches"):
        with beats.during(f"open {name}"):
            viewer.window.add_dock_widget(_fields(), name=name, tabify=True)
            wait(LOOK)
    colours = CyclicLabelColormap(colors=["transparent", "red", "orange"])
    with beats.during("first drag of the threshold"):
        layer = viewer.add_labels(void[:1].copy(), colormap=colours, opacity=0.6)
        viewer.layers.selection = {image}
        _paint(layer, void)
    with beats.during("drag the threshold again"):
        _paint(layer, void)
    with beats.during("slice to slice with the void"):
        for number in range(20):
            viewer.dims.set_point(0, 2.0 * (10 + number))
            np.copyto(layer.data, void[[number]])
            layer.refresh(extent=False, highlight=False)
            layer.translate = (2.0 * (10 + number), 0, 0)
            wait(0.05)
    viewer.layers.remove(layer)
    wait(AFTER)
    table = pd.DataFrame({"index": np.arange(1 + int(merged[0].max()))})
    with beats.during("segment pores"):
        pores = viewer.add_labels(merged[0], scale=(2, 1, 1), features=table)
    for name in ("first merge by the slider", "merge by the slider again"):
        with beats.during(name):
            for labels in merged:
                pores.data = labels
                wait(MERGES)
    for name in ("open Results", "open Plots"):
        with beats.during(name):
            viewer.window.add_dock_widget(_label(), name=name)
    boxes = np.zeros((4096, 2, 3))
    boxes[:, 1] = 8
    with beats.during("show patches"):
        looks = {"features": {"loss": np.arange(4096.0)}, "edge_color": "loss"}
        lines = viewer.add_vectors(boxes, vector_style="line", **looks)
        wait(DRAWN)
        looks = {"features": {"change": np.linspace(-1, 1, 4096)}, "face_color": "change"}
        viewer.add_points(boxes[:, 0], size=1, symbol="square", visible=False, **looks)
        wait(DRAWN)
        viewer.add_image(np.zeros((256, 384), np.float32), contrast_limits=(0, 1))
    with beats.during("colour patches"):
        lines.edge_colormap = "viridis"
    return beats.figures()


def _paint(layer: Any, void: npt.NDArray[np.uint8]) -> None:
    """Show another void on the slice, as often as a drag moves."""
    for number in range(MOVES):
        np.copyto(layer.data, void[[number % len(void)]])
        layer.refresh(extent=False, highlight=False)
        wait(PAUSE)


def _fields() -> Any:
    from magicgui.widgets import Container, create_widget

    kinds = (0, 0.5, "word", True)
    return Container(
        widgets=[create_widget(kinds[n % 4], name=f"field_{n}") for n in range(FIELDS)]
    )


def _label() -> Any:
    from qtpy.QtWidgets import QLabel

    return QLabel("empty")


def _main() -> None:
    own_settings()
    if sys.argv[1:] == ["first"]:
        figures = first_dock()
    else:
        from hushpore import segment_pores

        scan = tiled_foam(SHAPE)
        found = segment_pores(scan)
        merged = [found.remerge(float(h)).labels for h in HEIGHTS]
        void = (found.labels > 0).astype(np.uint8)
        figures = session(scan.array(), void, merged)
    print(json.dumps(figures), flush=True)
    # napari is not taken down: nothing of it is measured
    os._exit(0)


if __name__ == "__main__":
    _main()
