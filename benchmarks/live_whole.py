"""What a window costs a whole job.

Both jobs run in one process with napari's window open (in Xvfb where there is no screen, which
draws in software on the same cores): as the command line does it, without a widget, and by the
widget's button with all that it shows, in turn. What came of the job is taken away after each. A
ratio is the median over neighbours.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

from benchmarks.live import dock, in_window, open_viewer, wait

WITHOUT, SHOWN = "without", "in the window"

#: What is measured: widget, job, shape, settings of which the work is always the same, turns.
JOBS: dict[str, tuple[str, str, tuple[int, int, int], dict[str, Any], int]] = {
    "Segment pores": ("Segment pores", "pores", (256, 256, 256), {}, 6),
    "Segment pores, larger": ("Segment pores", "pores", (512, 512, 256), {}, 4),
    "Denoise": (
        "Denoise", "denoise", (64, 256, 256), {"steps": 200, "time_budget": None}, 3
    ),
}  # fmt: skip


def measure() -> dict[str, object]:
    """Seconds of whole jobs and their ratios."""
    return {name: in_window("live_whole", name) for name in JOBS}


def compare(name: str) -> dict[str, object]:
    """Run a job without a widget and by its widget, in turn."""
    from hushpore import jobs

    widget_name, job, shape, settings, turns = JOBS[name]
    viewer = open_viewer(shape)
    widget = dock(viewer, widget_name, settings)
    wait(4.0)
    volume, chosen = _input_of(widget), widget.form.settings()
    spent: dict[str, list[float]] = {WITHOUT: [], SHOWN: []}
    for turn in range(turns + 1):
        for way, seconds in spent.items():
            start = time.perf_counter()
            if way == WITHOUT:
                jobs.run(job, volume, chosen, "cpu")
            else:
                _press_run(widget)
            if turn:  # the first of each loads what the others find
                seconds.append(time.perf_counter() - start)
            # beyond the last drawing
            wait(2.0)
            del viewer.layers[1:]
            wait(0.5)
    ratios = [a / b for a, b in zip(spent[SHOWN], spent[WITHOUT], strict=True)]
    return {
        "volume": list(shape),
        **settings,
        **{f"{way}, s": [round(each, 2) for each in seconds] for way, seconds in spent.items()},
        "ratio": round(statistics.median(ratios), 3),
        "smallest and largest": [round(min(ratios), 3), round(max(ratios), 3)],
    }


def _press_run(widget: Any) -> None:
    """Run the job by its button, and return when the widget has its result.

    Nothing looks whether it has: that would be work in the window's thread, too.
    """
    from qtpy.QtCore import QEventLoop

    loop = QEventLoop()
    widget._buttons.run.click()
    # after the widget, which has connected before
    widget._now.worker.returned.connect(loop.quit)
    loop.exec()
    assert not widget.is_running


def _input_of(widget: Any) -> Any:
    from hushpore.viewer.target import capture

    layer = widget.layers.layer
    return capture(layer, widget._facts.labels_of_axes(layer.ndim)).volume


if __name__ == "__main__":
    print(json.dumps(compare(sys.argv[1])), flush=True)
    # napari is not taken down: nothing of it is measured
    os._exit(0)
