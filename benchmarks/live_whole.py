"""What a window costs a whole job, and what a flood of events costs the window.

Both jobs run in one process with napari's window open (in Xvfb where there is no screen, which
draws in software on the same cores): as the command line does it, without a widget; by the
widget's button with all that it shows; and by the button with the canvas hidden, so that nothing
is drawn by OpenGL: the three in turn. A ratio is the median over neighbours.

The flood is a stand-in for a job that yields 10,000 events a second.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.live import Heart, clear, dock, open_viewer, until, wait

if TYPE_CHECKING:
    from hushpore.base.events import Job

#: Side of the volume in the flood.
SIDE = 256

TURNS = 3

#: What is run: the widget, its job, the shape, and settings of which the work is always the same.
JOBS: dict[str, tuple[str, str, tuple[int, int, int], dict[str, Any]]] = {
    "pores": ("Segment pores", "pores", (256, 256, 256), {}),
    "pores, larger": ("Segment pores", "pores", (384, 384, 384), {}),
    "denoise": ("Denoise", "denoise", (128, 256, 256), {"steps": 100, "time_budget": None}),
}

#: Events a second, and seconds that they come.
RATE, SECONDS = 10_000, 12.0


def measure() -> dict[str, object]:
    """Seconds of whole jobs and their ratios; gaps between beats and memory in a flood."""
    figures: dict[str, object] = {}
    for name in (*JOBS, "flood"):
        command = [sys.executable, "-m", "benchmarks.live_whole", name]
        if sys.platform == "linux" and not os.environ.get("DISPLAY"):
            command = ["xvfb-run", "-a", "-s", "-screen 0 1600x1000x24", *command]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        figures[name] = json.loads(done.stdout.splitlines()[-1])
    return figures


def compare(name: str) -> dict[str, object]:
    """Run a job without a widget, by its widget, and by it with the canvas hidden, in turn."""
    from hushpore import jobs

    title, job, shape, settings = JOBS[name]
    viewer = open_viewer(shape[-1])
    viewer.layers[0].data = viewer.layers[0].data[: shape[0]]
    widget = dock(viewer, title, settings)
    canvas = viewer.window._qt_viewer.canvas.native
    wait(4.0)
    volume, chosen = _input_of(widget), widget.form.settings()
    ways = {
        "without": lambda: jobs.run(job, volume, chosen, "cpu"),
        "in the window": lambda: _press_and_wait(widget),
        "canvas hidden": lambda: _press_and_wait(widget),
    }
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(TURNS + 1):
        for way, do in ways.items():
            canvas.setVisible(way != "canvas hidden")
            wait(0.5)
            start = time.perf_counter()
            do()
            if turn:  # the first of each loads what the others find
                spent[way].append(time.perf_counter() - start)
            # beyond the last drawing, and what Python looks through afterwards
            wait(2.5)
            clear(widget)
    figures: dict[str, object] = {"volume": list(shape), "settings": settings}
    figures |= {f"{way}, s": [round(each, 2) for each in spent[way]] for way in ways}
    for way in list(ways)[1:]:
        ratios = [a / b for a, b in zip(spent[way], spent["without"], strict=True)]
        figures[f"{way}, ratio"] = round(statistics.median(ratios), 3)
    return figures


def _press_and_wait(widget: Any) -> None:
    widget._buttons.run.click()
    until(lambda: not widget.is_running, 200)


def flood() -> dict[str, object]:
    """Beats and memory of a window whose job yields 10,000 events a second."""
    import psutil

    from hushpore.viewer.worker import JobWorker

    viewer = open_viewer(SIDE)
    widget = dock(viewer, "Denoise", {})
    wait(4.0)
    told = [0]
    type(widget).work = classmethod(lambda cls, *_: _flood(told))
    widget._buttons.run.click()
    wait(2.0)
    heart, memory = Heart(widget), []
    heart.phase = "run"
    while widget.is_running:
        gc.collect()
        memory.append(round(psutil.Process().memory_info().rss / 1e6, 1))
        wait(2.0)
    heart.stop()
    assert not JobWorker.running
    gaps = heart.summary()["run"]
    return {"events_a_second": round(told[0] / SECONDS), "memory_mb": memory, "gaps_ms": gaps}


def _flood(told: list[int]) -> Job:
    """Yield events of every kind, as many a second as are asked for."""
    import numpy as np

    from hushpore.base.events import Metric, Note, Preview, Progress, StageTime, Timing
    from hushpore.viewer.work import Outcome

    image = np.random.default_rng(0).normal(size=(SIDE, SIDE)).astype(np.float32)
    start = time.perf_counter()
    yield Note("A flood.")
    while (spent := time.perf_counter() - start) < SECONDS:
        if told[0] > RATE * spent:
            time.sleep(0.001)
            continue
        for _ in range(RATE // 1000):
            told[0] += 4
            share = min(spent / SECONDS, 1.0)
            yield Metric("loss", told[0], 1 / (1 + told[0]))
            yield Progress("training", told[0], int(RATE * SECONDS), "steps", share)
            yield Preview("denoised", 300 * image, (SIDE // 2,))
            yield Timing({"training": StageTime(told[0], spent, 1e-4)}, spent)
    return Outcome("Flooded", [], {})


def _input_of(widget: Any) -> Any:
    from hushpore.viewer.target import capture

    layer = widget.layers.layer
    return capture(layer, widget._facts.labels_of_axes(layer.ndim)).volume


if __name__ == "__main__":
    wanted = sys.argv[1]
    print(json.dumps(flood() if wanted == "flood" else compare(wanted)), flush=True)
    # napari is not taken down: nothing of it is measured
    os._exit(0)
