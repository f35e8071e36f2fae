"""What each piece of the window's machinery is good for: jobs in a window with all, and without it.

Each run is a napari of its own, with its window in Xvfb where there is no screen, and a foam of
256 x 256 x 256 voxels: it is segmented, and 16 of its slices are denoised for some steps. Pieces
are left out by replacing functions in that process. Runs with all pieces stand between those
without one, and each of the latter is told beside the one with all that is nearest in time.

The figures of 2026-11-22 are of commit 1f46906, before pieces without a figure were dropped: how
often threads take turns, old objects left alone beyond the end of a job, and the place of the line
on the canvas. The machine was not quiet: up to six other processes ran on its two cores, at a lower
weight. Runs with all pieces tell how far figures differ by chance.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarks.live import (
    BEAT,
    SIDE,
    Heart,
    clear,
    dock,
    in_window,
    open_viewer,
    until,
    wait,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: How often each piece is left out.
ROUNDS = 3

#: Runs without a piece between two with all.
BETWEEN = 4

#: Slices that are denoised, and for how many steps: some five seconds.
SLICES, STEPS = 16, 6

#: Gaps from which the window is seen to stand still, in milliseconds.
SEEN = 16.0

#: Seconds after the first line on the canvas that count as its own.
FIRST_LINE = 0.8


def measure() -> Iterator[dict[str, object]]:
    """By piece: pairs of a run with all pieces and one without this one."""
    runs: list[dict[str, Any]] = []
    for number in range(ROUNDS):
        # the other way round every second time: what drifts falls on all alike
        order = list(PIECES)[:: 1 if number % 2 == 0 else -1]
        for place, piece in enumerate(order):
            if place % BETWEEN == 0:
                runs.append(_one_run(""))
            runs.append(_one_run(piece))
        yield figures_of(runs)


def figures_of(runs: list[dict[str, Any]]) -> dict[str, object]:
    """Pair runs, each with ``without``, the piece left out or nothing, and ``at``, in seconds."""
    whole = [run for run in runs if not run["without"]]
    pairs: dict[str, list[dict[str, object]]] = {}
    for run in runs:
        if run["without"]:
            nearest = min(whole, key=lambda other: abs(other["at"] - run["at"]))
            pairs.setdefault(run["without"], []).append(
                {"with": nearest["figures"], "without": run["figures"]}
            )
    return {
        "volume": [SIDE] * 3,
        "beat_ms": BEAT,
        "with all": [run["figures"] for run in whole],
        "pairs": pairs,
    }


def _one_run(piece: str) -> dict[str, Any]:
    at = time.time()
    return {"without": piece, "at": at, "figures": in_window("live_ablation", piece)}


# ---- in the window's process


def run_without(piece: str) -> dict[str, object]:
    """Segment and denoise in a window that lacks a piece, or none where it is empty."""
    if piece:
        PIECES[piece]()
    viewer = open_viewer((SIDE,) * 3)
    line = _FirstLine()
    found: dict[str, object] = {}
    pores = dock(viewer, "Segment pores", {})
    wait(2.5)
    found["pores"] = _run_job(viewer, pores, line)
    found["first line, worst gap in ms"] = round(max(line.gaps, default=0.0), 1)
    whole = viewer.layers[0]
    whole.visible = False
    part = viewer.add_image(whole.data[:SLICES], name="part", scale=whole.scale, units=whole.units)
    viewer.layers.move(viewer.layers.index(part), 0)
    denoise = dock(viewer, "Denoise", {"steps": STEPS})
    wait(1.5)
    found["denoise"] = _run_job(viewer, denoise, line)
    return found


class _FirstLine:
    """When the first line about a job came on the canvas, and the gaps soon after it."""

    def __init__(self) -> None:
        from hushpore.viewer.running.status import StatusLine

        self.gaps: list[float] = []
        self._at: float | None = None
        show = StatusLine.show

        def noting(line: StatusLine, text: str) -> None:
            if text.strip() and self._at is None:
                self._at = time.perf_counter()
            show(line, text)

        StatusLine.show = noting  # type: ignore[method-assign]

    def add(self, gap: float) -> None:
        """Take in a gap that ends now."""
        if self._at is not None and time.perf_counter() - self._at < FIRST_LINE:
            self.gaps.append(gap)


class _Heart(Heart):
    """Tells the gaps to the first line, too."""

    def __init__(self, widget: Any, line: _FirstLine) -> None:
        self._first_line = line
        super().__init__(widget)

    def _beat(self) -> None:
        self._first_line.add(1e3 * (time.perf_counter() - self.last))
        super()._beat()


def _run_job(viewer: Any, widget: Any, line: _FirstLine) -> dict[str, object]:
    """Run a job to its end; its time, the gaps meanwhile and how long threads stood still."""
    drawn, pauses, heart = [0], _Collections(), _Heart(widget, line)
    canvas = viewer.window._qt_viewer.canvas._scene_canvas

    def count(event: Any) -> None:
        drawn[0] += 1

    canvas.events.draw.connect(count)
    heart.phase = "start"
    start = time.perf_counter()
    widget._buttons.run.click()
    until(lambda: not widget.is_running, 200)
    took = time.perf_counter() - start
    wait(1.2)
    heart.stop()
    canvas.events.draw.disconnect(count)
    clear(widget)
    gaps = sorted(heart.gaps["run"])
    busy = [gap for gaps in heart.gaps.values() for gap in gaps]
    return {
        "seconds": round(took, 2),
        "run, gaps p99 in ms": round(gaps[int(0.99 * (len(gaps) - 1))], 1),
        "run, worst gap in ms": round(gaps[-1], 1),
        "standing still in ms": round(sum(gap for gap in busy if gap > SEEN)),
        "canvas drawn": drawn[0],
        "full collections in ms": pauses.end(),
    }


class _Collections:
    """How long each full search for garbage takes, in which all threads stand still."""

    def __init__(self) -> None:
        self._start = 0.0
        self._found: list[float] = []
        gc.callbacks.append(self._tell)

    def end(self) -> list[float]:
        """Return them, in milliseconds."""
        gc.callbacks.remove(self._tell)
        return self._found

    def _tell(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._start = time.perf_counter()
        elif info["generation"] == 2:
            self._found.append(round(1e3 * (time.perf_counter() - self._start), 1))


# ---- pieces


def _without_niceness() -> None:
    from hushpore.viewer.running import worker

    worker.NICE = 0


def _without_frequent_turns() -> None:
    from hushpore.viewer.running import worker

    worker.SWITCH = sys.getswitchinterval()


def _without_freezing() -> None:
    from hushpore.viewer.running import worker

    nothing = SimpleNamespace(freeze=lambda: None, unfreeze=lambda: None)
    worker.gc = nothing  # type: ignore[assignment]


def _without_coalescing() -> None:
    from qtpy.QtCore import QTimer

    from hushpore.viewer import job_widget
    from hushpore.viewer.running import progress_presenter

    def at_once(widget: Any, then: Callable[[], object] = lambda: None) -> None:
        QTimer.singleShot(0, then)

    for module in (job_widget, progress_presenter):
        module.coalesce_redraws = at_once


def _without_throttle() -> None:
    from hushpore.viewer.running.drawing import RedrawThrottle

    RedrawThrottle.is_due = lambda self: True  # type: ignore[method-assign]


def _without_suspension() -> None:
    from hushpore.viewer.running import progress_presenter

    progress_presenter.redraws_suspended = lambda widget: contextlib.nullcontext()


def _without_letters() -> None:
    from hushpore.viewer.running import status

    status._fonts = list


def _without_blank_line() -> None:
    from hushpore.viewer.running.status import FontWarmup

    FontWarmup._make_line = lambda self: iter(())  # type: ignore[method-assign]


def _without_font_warmup() -> None:
    _without_letters()
    _without_blank_line()


def _without_wheel_pausing() -> None:
    from hushpore.viewer.running import status

    status._wheels = list


#: What may be left out, and how: before the window is opened.
PIECES: dict[str, Callable[[], None]] = {
    "niceness of jobs": _without_niceness,
    "threads in short turns": _without_frequent_turns,
    "old objects frozen": _without_freezing,
    "redraws coalesced": _without_coalescing,
    "redraws throttled": _without_throttle,
    "redraws suspended": _without_suspension,
    "letters": _without_letters,
    "blank line": _without_blank_line,
    "letters and blank line": _without_font_warmup,
    "wheel paused": _without_wheel_pausing,
}


if __name__ == "__main__":
    print(json.dumps(run_without(sys.argv[1])), flush=True)
    # napari is not taken down: nothing of it is measured
    os._exit(0)
