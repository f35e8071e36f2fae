"""What a window costs a whole job, and what a flood of events costs the window.

Both jobs run in one process with napari's window open (in Xvfb where there is no screen, which
draws in software on the same cores): by the widget's button with all that it shows, and as the
command line does it, without a widget, in turn. A ratio is the median over pairs of neighbours.

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

SIDE = 256
PAIRS = 3

#: Widgets, their jobs, and settings of which the work is always the same.
JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "Segment pores": ("pores", {}),
    "Denoise": ("denoise", {"steps": 20, "time_budget": None}),
}

#: Events a second, and seconds that they come.
RATE, SECONDS = 10_000, 12.0


def measure() -> dict[str, object]:
    """Seconds of whole jobs and their ratios; gaps between beats and memory in a flood."""
    figures: dict[str, object] = {"volume": [SIDE // 2, SIDE, SIDE]}
    for name in (*JOBS, "flood"):
        command = [sys.executable, "-m", "benchmarks.live_whole", name]
        if sys.platform == "linux" and not os.environ.get("DISPLAY"):
            command = ["xvfb-run", "-a", "-s", "-screen 0 1600x1000x24", *command]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        figures[name] = json.loads(done.stdout.splitlines()[-1])
    return figures


def compare(name: str) -> dict[str, object]:
    """Run a job by its widget and without one, in turn."""
    from hushpore import jobs

    job, settings = JOBS[name]
    viewer = open_viewer(SIDE)
    viewer.layers[0].data = viewer.layers[0].data[: SIDE // 2]
    widget = dock(viewer, name, settings)
    wait(4.0)
    volume, chosen = _input_of(widget), widget.form.settings()
    shown, bare = [], []
    for pair in range(PAIRS + 1):
        start = time.perf_counter()
        jobs.run(job, volume, chosen, "cpu")
        without = time.perf_counter() - start
        start = time.perf_counter()
        widget._buttons.run.click()
        until(lambda: not widget.is_running, 200)
        if pair:  # the first of each loads what the others find
            bare.append(without)
            shown.append(time.perf_counter() - start)
        wait(0.5)
        clear(widget)
    ratios = [a / b for a, b in zip(shown, bare, strict=True)]
    return {
        "in the window, s": [round(each, 2) for each in shown],
        "without, s": [round(each, 2) for each in bare],
        "ratio": round(statistics.median(ratios), 3),
    }


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
