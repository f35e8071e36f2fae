"""What a flood of events costs the window: gaps between its beats, and memory.

A stand-in for a job yields 10,000 events a second behind the widget's button, in napari's window
(in Xvfb where there is no screen, which draws in software on the same cores).
"""

from __future__ import annotations

import gc
import json
import os
import time
from typing import TYPE_CHECKING

from benchmarks.live import SIDE, Heart, dock, in_window, open_viewer, wait

if TYPE_CHECKING:
    from hushpore.base.events import Job

#: Events a second, and seconds that they come.
RATE, SECONDS = 10_000, 12.0


def measure() -> dict[str, object]:
    """Gaps between beats and memory."""
    return in_window("live_flood")


def flood() -> dict[str, object]:
    """Beats and memory of a window whose job yields 10,000 events a second."""
    import psutil

    from hushpore.viewer.running.worker import JobWorker

    viewer = open_viewer((SIDE,) * 3)
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
    from hushpore.viewer.running.task import Outcome

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
    return Outcome("Flooded", [], {}, None)


if __name__ == "__main__":
    print(json.dumps(flood()), flush=True)
    # napari is not taken down: nothing of it is measured
    os._exit(0)
