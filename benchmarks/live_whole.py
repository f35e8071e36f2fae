"""What a window costs a whole job.

In turn, each in a process of its own: the command on a file, with a stopwatch around its job, and
napari with the same volume (in Xvfb where there is no screen, which draws in software on the same
cores), in which the widget's button is pressed and its result waited for. The job of the command
has neither to read its file nor to write its result, and what the window takes has the result on
the screen.

And again in one process: the job without a widget, and by the widget's button. What came of it is
taken away after each.

Some seconds pass before each: memory that has lain free for two goes back to the host of a virtual
machine, and who wants it then has to take it anew, at 2 ms a MB. Whoever came earlier would have it
for nothing.

A ratio is the median over neighbours.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks._clock import seconds_of
from benchmarks.live import dock, in_window, open_viewer, tiled_foam, wait

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Seconds after which free memory has gone back to the host.
GONE = 5.0


class Whole(NamedTuple):
    """A job whose work is always the same."""

    widget: str
    job: str
    shape: tuple[int, int, int]
    settings: dict[str, Any]
    written: str
    turns: int

    @property
    def flags(self) -> list[str]:
        """The settings as the command takes them."""
        return [
            word
            for name, value in self.settings.items()
            for word in (f"--{name.replace('_', '-')}", "none" if value is None else str(value))
        ]


JOBS = {
    "Segment pores": Whole("Segment pores", "pores", (256, 256, 256), {}, "pores", 6),
    "Segment pores, larger": Whole("Segment pores", "pores", (512, 512, 256), {}, "pores", 6),
    "Denoise": Whole(
        "Denoise",
        "denoise",
        (64, 256, 256),
        {"steps": 200, "time_budget": None},
        "clean.tif",
        4,
    ),
}


def measure() -> Iterator[dict[str, object]]:
    """Seconds of whole jobs and their ratios."""
    figures: dict[str, object] = {}
    for name, whole in JOBS.items():
        figures[name] = {
            "volume": list(whole.shape),
            **whole.settings,
            **_beside_the_command(name),
            "in one process": in_window("live_whole", "again", name),
        }
        yield figures


def _beside_the_command(name: str) -> dict[str, object]:
    """Run the command and napari in turn, each from its start."""
    from hushpore.io.results import write_image

    whole = JOBS[name]
    jobs, commands, windows = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "volume.tif")
        write_image(path, tiled_foam(whole.shape))
        # one more, for what the disk and the caches hold afterwards
        for turn in range(whole.turns + 1):
            output = Path(folder, str(turn), whole.written)
            output.parent.mkdir()
            words = [whole.job, str(path), "-o", str(output), *whole.flags]
            time.sleep(GONE)
            start = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.live_whole", "command", *words],
                check=True,
                stdout=subprocess.PIPE,
            )
            command = time.perf_counter() - start
            window = in_window("live_whole", "window", name)
            if turn:
                jobs.append(json.loads(done.stdout.splitlines()[-1])["job"])
                commands.append(command)
                windows.append(window["seconds"])
    return {
        "job of the command, s": _rounded(jobs),
        "command from start to end, s": _rounded(commands),
        "in the window, s": _rounded(windows),
        "ratio": _ratio(windows, jobs),
        "ratio to the command": _ratio(windows, commands),
    }


def command(words: Sequence[str]) -> dict[str, float]:
    """Run a command of hushpore, and return what its job took."""
    from hushpore.cli import progress_bar
    from hushpore.cli.commands import hushpore

    seconds = {}
    drive = progress_bar.drive

    def timed(*positional: Any, **named: Any) -> Any:
        start = time.perf_counter()
        result = drive(*positional, **named)
        seconds["job"] = time.perf_counter() - start
        return result

    progress_bar.drive = timed
    hushpore(list(words), prog_name="hushpore", standalone_mode=False)
    return seconds


def window(name: str) -> dict[str, float]:
    """Press the button in a window that was just opened, and return what it took."""
    whole = JOBS[name]
    widget = dock(open_viewer(whole.shape), whole.widget, whole.settings)
    wait(GONE)
    return {"seconds": seconds_of(lambda: _press_run(widget))}


def again(name: str) -> dict[str, object]:
    """Run a job without a widget and by its widget, in turn."""
    from hushpore import jobs
    from hushpore.viewer.running.task import capture

    whole = JOBS[name]
    viewer = open_viewer(whole.shape)
    widget = dock(viewer, whole.widget, whole.settings)
    wait(GONE)
    layer = widget.layer.value
    volume = capture(layer, widget._facts.labels_of_axes(layer.ndim)).volume
    chosen = widget.form.value
    without: list[float] = []
    shown: list[float] = []
    for turn in range(whole.turns + 1):
        took = seconds_of(lambda: jobs.run(whole.job, volume, chosen, "cpu"))
        _clear(viewer)
        took_shown = seconds_of(lambda: _press_run(widget))
        # beyond the last drawing
        wait(2.0)
        _clear(viewer)
        if turn:  # the first of each loads what the others find
            without.append(took)
            shown.append(took_shown)
    return {
        "without, s": _rounded(without),
        "in the window, s": _rounded(shown),
        "ratio": _ratio(shown, without),
    }


def _clear(viewer: Any) -> None:
    del viewer.layers[1:]
    gc.collect()
    wait(GONE)


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


def _rounded(seconds: Sequence[float]) -> list[float]:
    return [round(each, 2) for each in seconds]


def _ratio(these: Sequence[float], those: Sequence[float]) -> Mapping[str, float]:
    ratios = [a / b for a, b in zip(these, those, strict=True)]
    figures = {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
    return {key: round(value, 3) for key, value in figures.items()}


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    found = command(rest) if role == "command" else {"window": window, "again": again}[role](*rest)
    print(json.dumps(found), flush=True)
    # napari is not taken down: nothing of it is measured
    os._exit(0)
