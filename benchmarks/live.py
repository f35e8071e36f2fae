"""How evenly the window lives while a job runs in it, and how soon a cancelled job is gone.

A real napari with its window (in Xvfb where there is no screen, which draws in software on the
same cores), a volume of 256 x 256 x 256 voxels, and a timer that beats every 5 ms in the window's
thread. The gaps between beats are told apart by what goes on: a job starts, runs, ends, or is
cancelled. All of it is done by pressing the widget's own button.
"""

from __future__ import annotations

import compileall
import gc
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hushpore
from benchmarks._missing import require_screen
from benchmarks._window import own_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.volume import Volume

SIDE = 256
BEAT = 5  # milliseconds

#: Milliseconds between two looks whether something has come to pass.
LOOK = 10

#: Widgets, and the settings that let a job take some seconds.
JOBS: dict[str, dict[str, Any]] = {"Denoise": {"time_budget": 5.0}, "Pores": {}}

#: Seconds after Run at which jobs are cancelled.
CANCEL_AFTER = (0.2, 0.5, 0.8, 1.1, 1.4, 1.7, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)


def measure() -> dict[str, object]:
    """Gaps between beats by job and phase, and seconds from Cancel to idle."""
    figures: dict[str, object] = {"volume": [SIDE] * 3, "beat_ms": BEAT}
    return {**figures, **{name: in_window("live", name) for name in JOBS}}


def in_window(benchmark: str, *words: str) -> dict[str, object]:
    """Run a module of this package where there is a screen, in a process of its own."""
    require_screen(virtual=True)
    # as it is once installed: without byte code a first widget takes 0.1 s more to compile
    compileall.compile_dir(Path(hushpore.__file__).parent, quiet=1)
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", *words]
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        command = ["xvfb-run", "-a", "-s", "-screen 0 1600x1000x24", *command]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    figures: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure_job(name: str) -> dict[str, object]:
    """Run and cancel one job several times in a window of its own."""
    viewer = open_viewer((SIDE,) * 3)
    widget = dock(viewer, name, JOBS[name])
    wait(4.0)
    heart = Heart(widget)
    run(widget, heart)
    tried = [cancel(widget, heart, seconds) for seconds in CANCEL_AFTER]
    cancels = [took for took in tried if took is not None]
    heart.stop()
    return {
        "gaps_ms": heart.summary(),
        "cancel_to_idle_s": {
            "times": len(cancels),
            "median": round(statistics.median(cancels), 3),
            "worst": round(max(cancels), 3),
        },
        "memory_mb_after_each_cancel": memory_after_cancels(widget),
        "threads_left": threads_left(),
    }


class Heart:
    """Beats in the window's thread, and files each gap under what the widget was doing."""

    def __init__(self, widget: Any) -> None:
        from qtpy.QtCore import Qt, QTimer

        self.widget = widget
        self.phase = "idle"
        self.gaps: defaultdict[str, list[float]] = defaultdict(list)
        self.last = time.perf_counter()
        self._timer = QTimer()
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(BEAT)
        self._timer.timeout.connect(self._beat)
        self._timer.start()

    def stop(self) -> None:
        """Beat no more."""
        self._timer.stop()

    def summary(self) -> dict[str, object]:
        """By phase, and of all phases in which there is a job, together."""
        busy = [gap for phase, gaps in self.gaps.items() if phase != "idle" for gap in gaps]
        return {name: _figures(gaps) for name, gaps in {**self.gaps, "all": busy}.items()}

    def _beat(self) -> None:
        now = time.perf_counter()
        stage = self.widget._progress.stage.text()
        if self.phase == "start" and not stage.startswith("preparing"):
            self.phase = "run"
        if self.phase in ("start", "run") and not self.widget.is_running:
            self.phase = "end"
        self.gaps[self.phase].append(1e3 * (now - self.last))
        self.last = now


def tiled_foam(shape: tuple[int, int, int]) -> Volume:
    """Return a foam of this many voxels along the axes."""
    import numpy as np

    from hushpore.sample_data import foam_phantom

    block = foam_phantom((64, 128, 128)).volume
    times = [n // m for n, m in zip(shape, block.data.shape, strict=True)]
    return block.replace(np.tile(block.data, times))


def open_viewer(shape: tuple[int, int, int]) -> Any:
    """Open napari with a foam of this many voxels along the axes."""
    own_settings()
    import napari

    from hushpore.viewer.layers.conversion import layer_data

    data, keywords, _ = layer_data(tiled_foam(shape))
    viewer = napari.Viewer(title="hushpore")
    viewer.window._qt_window.resize(1366, 768)
    viewer.add_image(data, **keywords)
    return viewer


def dock(viewer: Any, name: str, settings: dict[str, Any]) -> Any:
    """Open a widget, choose the volume and set its settings."""
    from hushpore.viewer.docks import open_page

    widget = open_page(viewer, name)
    viewer.layers.selection.active = viewer.layers[0]
    for option, value in settings.items():
        widget.form[option].value = value
    until(lambda: "looking" not in widget.device.native.line.text(), 60)
    return widget


def run(widget: Any, heart: Heart) -> None:
    """Run the job to its end, and take its result away again."""
    heart.phase = "start"
    widget._buttons.run.click()
    until(lambda: not widget.is_running, 200)
    wait(1.5)
    heart.phase = "idle"
    clear(widget)


def cancel(widget: Any, heart: Heart, seconds: float) -> float | None:
    """Start the job, cancel it after some seconds, and return how long it took to be gone.

    None where it was over before.
    """
    heart.phase = "start"
    widget._buttons.run.click()
    wait(seconds)
    if not widget.is_running:
        heart.phase = "idle"
        clear(widget)
        return None
    heart.phase = "cancel"
    asked = time.perf_counter()
    widget._buttons.cancel.click()
    until(lambda: not widget.is_running, 60)
    took = time.perf_counter() - asked
    wait(1.0)
    heart.phase = "idle"
    clear(widget)
    return took


def memory_after_cancels(widget: Any, times: int = 3) -> list[float]:
    """Memory of the process in MB, after each of some cancelled jobs."""
    import psutil

    found = []
    for _ in range(times):
        widget._buttons.run.click()
        # before any of the jobs is over
        wait(0.5)
        assert widget.is_running
        widget._buttons.cancel.click()
        until(lambda: not widget.is_running, 60)
        clear(widget)
        gc.collect()
        found.append(round(psutil.Process().memory_info().rss / 1e6, 1))
    return found


def threads_left() -> list[str]:
    """Names of threads that a job has left behind."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("Denoise", "Segment", "hushpore"))]


def clear(widget: Any) -> None:
    """Hide what the job has made, and let the volume be chosen."""
    viewer = widget._viewer
    for layer in list(viewer.layers)[1:]:
        layer.visible = False
    viewer.layers.selection.active = viewer.layers[0]
    wait(0.5)


def wait(seconds: float) -> None:
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() >= end, seconds + 60)


def until(done: Callable[[], bool], seconds: float) -> None:
    """Let the window live until something holds.

    In an event loop that sleeps, as napari's own does: one that asks for events over and over takes
    a whole processor from the job.
    """
    from qtpy.QtCore import QEventLoop, QTimer

    end = time.monotonic() + seconds
    loop, timer = QEventLoop(), QTimer()
    timer.timeout.connect(lambda: loop.quit() if done() or time.monotonic() > end else None)
    timer.start(LOOK)
    if not done():
        loop.exec()
    if not done():
        raise TimeoutError


def _figures(gaps: list[float]) -> dict[str, float]:
    ordered = sorted(gaps)
    return {
        "beats": len(ordered),
        "p50": round(statistics.median(ordered), 1),
        "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 1),
        "worst": round(ordered[-1], 1),
    }


if __name__ == "__main__":
    print(json.dumps(measure_job(sys.argv[1])), flush=True)
    # napari is not taken down: nothing of it is measured
    os._exit(0)
