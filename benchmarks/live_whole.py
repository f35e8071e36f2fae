"""What a window costs a whole job.

Both jobs run in one process with napari's window open (in Xvfb where there is no screen, which
draws in software on the same cores): as the command line does it, without a widget; by the
widget's button with all that it shows; and by the button with the canvas hidden, so that nothing
is drawn by OpenGL: these in turn. A ratio is the median over neighbours.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

from benchmarks.live import clear, dock, in_window, open_viewer, until, wait

WITHOUT, SHOWN, HIDDEN = "without", "in the window", "canvas hidden"

#: By widget: job, shape, settings of which the work is always the same, turns, what is compared.
JOBS: dict[str, tuple[str, tuple[int, int, int], dict[str, Any], int, tuple[str, ...]]] = {
    "Segment pores": ("pores", (256, 256, 256), {}, 4, (WITHOUT, SHOWN, HIDDEN)),
    "Denoise": (
        "denoise", (64, 256, 256), {"steps": 100, "time_budget": None}, 2, (WITHOUT, SHOWN)
    ),
}  # fmt: skip


def measure() -> dict[str, object]:
    """Seconds of whole jobs and their ratios."""
    return {name: in_window("live_whole", name) for name in JOBS}


def compare(name: str) -> dict[str, object]:
    """Run a job without a widget, by its widget, and by it with the canvas hidden, in turn."""
    from hushpore import jobs

    job, shape, settings, turns, ways = JOBS[name]
    viewer = open_viewer(shape[-1])
    viewer.layers[0].data = viewer.layers[0].data[: shape[0]]
    widget = dock(viewer, name, settings)
    canvas = viewer.window._qt_viewer.canvas.native
    wait(4.0)
    volume, chosen = _input_of(widget), widget.form.settings()
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(turns + 1):
        for way in ways:
            canvas.setVisible(way != HIDDEN)
            wait(0.5)
            start = time.perf_counter()
            if way == WITHOUT:
                jobs.run(job, volume, chosen, "cpu")
            else:
                widget._buttons.run.click()
                until(lambda: not widget.is_running, 200)
            if turn:  # the first of each loads what the others find
                spent[way].append(time.perf_counter() - start)
            # beyond the last drawing
            wait(1.0)
            clear(widget)
    figures: dict[str, object] = {"volume": list(shape), **settings}
    for way in ways:
        ratios = [a / b for a, b in zip(spent[way], spent[WITHOUT], strict=True)]
        figures[f"{way}, s"] = [round(each, 2) for each in spent[way]]
        if way != WITHOUT:
            figures[f"{way}, ratio"] = round(statistics.median(ratios), 3)
    return figures


def _input_of(widget: Any) -> Any:
    from hushpore.viewer.target import capture

    layer = widget.layers.layer
    return capture(layer, widget._facts.labels_of_axes(layer.ndim)).volume


if __name__ == "__main__":
    print(json.dumps(compare(sys.argv[1])), flush=True)
    # napari is not taken down: nothing of it is measured
    os._exit(0)
