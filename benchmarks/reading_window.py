"""How long napari's window stands still while a scan is dropped: 500 slices, and 10,000 of them.

A timer of the window ticks every 5 ms; a gap is the time from one tick to the next. Each drop
happens in a process of its own, in a new window (``xvfb-run`` where there is no screen), through
napari's own way to open a folder, or as many files as the folder holds: those napari looks at one
by one in the GUI thread. Beside it a window in which a tiny image is added, for what napari itself
takes, and the time that ``hushpore info`` takes for the same folders.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._missing import require_screen
from benchmarks._window import own_settings
from hushpore.base.volume import Volume
from hushpore.io.dicom import write_series

TICK = 5  # ms
DROPS = {"500 slices of 512 x 512": (500, 512), "10,000 slices of 16 x 16": (10_000, 16)}


def measure() -> dict[str, Any]:
    """Gaps (ms) from the drop until a second after the layer has come, for each folder."""
    require_screen(virtual=True)
    figures: dict[str, Any] = {"a tiny image, by napari": _apart("")}
    with tempfile.TemporaryDirectory() as scratch:
        for number, (name, (count, edge)) in enumerate(DROPS.items()):
            folder = Path(scratch) / str(number)
            values = np.random.default_rng(0).normal(0, 60, (count, edge, edge)).astype(np.int16)
            write_series(Volume(values, spacing=(0.5, 0.25, 0.25), unit="mm"), folder, seed=0)
            del values
            figures[name] = {**_apart(str(folder)), **_info(str(folder))}
            figures[f"{name}, as single files"] = _apart(str(folder), "singly")
    return figures


def _apart(folder: str, how: str = "whole") -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.reading_window", folder, how]
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        command = ["xvfb-run", "-a", "-s", "-screen 0 1600x1000x24", *command]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _info(folder: str) -> dict[str, float]:
    """Time the command, with the start of Python, and the reading of headers alone."""
    from hushpore.io import describe

    program = "from hushpore.cli import main; main()"
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program, "info", folder], check=True, capture_output=True)
    command = time.perf_counter() - start
    start = time.perf_counter()
    describe(folder)
    return {
        "info_command_seconds": round(command, 2),
        "headers_seconds": round(time.perf_counter() - start, 2),
    }


def _main(folder: str, how: str) -> None:
    own_settings()
    import napari
    from qtpy.QtCore import QTimer
    from qtpy.QtWidgets import QApplication

    import hushpore.viewer.layers.reader  # noqa: F401 - napari imports a reader once

    def live(seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            QApplication.processEvents()
            time.sleep(0.0005)

    viewer = napari.Viewer()
    live(1.0)
    ticks: list[float] = []
    timer = QTimer()
    timer.setInterval(TICK)
    timer.timeout.connect(lambda: ticks.append(time.perf_counter()))
    timer.start()
    live(0.2)
    files = sorted(map(str, Path(folder).iterdir())) if how == "singly" else []
    start = time.perf_counter()
    if folder:
        viewer.open(files or folder, plugin="hushpore")
        while not viewer.layers:
            live(0.01)
    else:
        viewer.add_image(np.zeros((4, 16, 16)), contrast_limits=(0, 1))
    seconds = time.perf_counter() - start
    assert len(viewer.layers) == 1
    live(1.0)
    gaps = 1000 * np.diff(ticks)
    figures = {
        "seconds_until_the_layer": round(seconds, 2),
        "gap_p99_ms": round(float(np.percentile(gaps, 99)), 1),
        "gap_longest_ms": round(float(gaps.max()), 1),
    }
    print(json.dumps(figures))
    viewer.close()


if __name__ == "__main__":
    _main(*sys.argv[1:])
