"""How long the window stands still at each step of a session, by real drags, keys and drops.

A timer of the window ticks every 5 ms; a gap is the time from one tick to the next. In a window of
1366 x 768 pixels a folder of DICOM slices is dropped, the widgets are opened, the threshold is
dragged with the mouse, the slice on the screen changed while the void is shown, pores segmented,
merged anew by dragging the slider, looked at in table and plots, filtered and coloured, and patches
shown. Gaps are filed under the step; the first drag is a step of its own, for what is done for
the first time then. Beside each step stands what napari alone takes, in a process without our
widgets, for what of the step is its own: the same layers, other data in them, other slices, a dock
of fields (`benchmarks._window_alone`). Each of some sessions is a process of its own.

Needs no screen: xvfb-run is used where there is none.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._window import own_settings
from benchmarks.live import BEAT, in_window, until, wait

if TYPE_CHECKING:
    from collections.abc import Iterator

SESSIONS = 3

#: Slices, rows and columns of the scan.
SHAPE = (64, 256, 256)

#: Steps of a drag, and the seconds between two, as a hand moves a mouse.
MOVES, PAUSE = 60, 0.012

#: Seconds after a step in which what it began may still come.
AFTER = 1.2

#: Seconds in which a scan that was dropped, or a form, is looked at; in those of a form, which are
#: watched, what a first line on the canvas needs is made ready.
LOOK = 2.0

#: What is kept of the gaps of a step.
FIGURES = ("p50_ms", "p99_ms", "worst_ms", "worst_work_ms")

#: Seconds without a beat after which the window's own work is looked at, where asked for.
LONG = 0.06


def measure() -> dict[str, object]:
    """Gaps between beats by step, in ms: median, 99th percentile and the worst, each session's.

    Beside them the most that the window's own thread has worked between two beats, which other
    programs on the machine lengthen less.
    """
    alone: list[dict[str, object]] = []
    sessions: list[dict[str, object]] = []
    for _ in range(SESSIONS):
        # of the first, what it takes where nothing was dropped before
        for found, module in ((alone, "_window_alone"), (sessions, "window_steps")):
            found.append(in_window(module, "first") | in_window(module))
    names = list(sessions[0])
    return {
        "scan": list(SHAPE),
        "beat_ms": BEAT,
        "sessions": SESSIONS,
        "steps": {
            name: {
                figure: [session[name][figure] for session in sessions]  # type: ignore[index]
                for figure in FIGURES
            }
            | {
                f"napari_alone_{figure}": [session[name][figure] for session in alone]  # type: ignore[index]
                for figure in FIGURES
                if name in alone[0]
            }
            for name in names
        },
    }


class Beats:
    """Ticks in the window's thread, and files each gap under the step.

    `stacks`: by step, what the window did in gaps that were long, if ``HUSHPORE_STACKS`` is set.
    """

    def __init__(self) -> None:
        from qtpy.QtCore import Qt, QTimer

        self.step = ""
        self.gaps: defaultdict[str, list[float]] = defaultdict(list)
        self.work: defaultdict[str, list[float]] = defaultdict(list)
        self.last, self._work_before = time.perf_counter(), time.thread_time()
        self._timer = QTimer(interval=BEAT, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._beat)
        self._timer.start()
        if os.environ.get("HUSHPORE_STACKS"):
            main = threading.get_ident()
            threading.Thread(target=self._watch, args=(main,), daemon=True).start()

    def _beat(self) -> None:
        now, work = time.perf_counter(), time.thread_time()
        if self.step:
            self.gaps[self.step].append(1e3 * (now - self.last))
            self.work[self.step].append(1e3 * (work - self._work_before))
        self.last, self._work_before = now, work

    def _watch(self, main: int) -> None:
        while True:
            time.sleep(0.02)
            if self.step and time.perf_counter() - self.last > LONG:
                frames = traceback.extract_stack(sys._current_frames()[main])
                where = " < ".join(
                    f"{Path(frame.filename).stem}:{frame.lineno} {frame.name}"
                    for frame in reversed(frames[-14:])
                )
                late = time.perf_counter() - self.last
                print(f"{self.step} {1e3 * late:.0f} ms: {where}", file=sys.stderr)

    @contextmanager
    def during(self, step: str) -> Iterator[None]:
        """File gaps under a step, and under nothing afterwards."""
        self.step, self.last, self._work_before = step, time.perf_counter(), time.thread_time()
        yield
        wait(AFTER)
        self.step = ""
        wait(0.3)

    def figures(self) -> dict[str, dict[str, float]]:
        """The median, the 99th percentile and the worst, and the most work, by step."""
        return {
            name: {
                "p50_ms": round(float(np.median(gaps)), 1),
                "p99_ms": round(float(np.percentile(gaps, 99)), 1),
                "worst_ms": round(max(gaps), 1),
                "worst_work_ms": round(max(self.work[name]), 1),
            }
            for name, gaps in self.gaps.items()
        }


def first_widget() -> dict[str, dict[str, float]]:
    """Open a widget before anything else; return the gaps of that."""
    from hushpore.viewer.docks import open_page

    viewer = _open_window()
    beats = Beats()
    with beats.during("open Denoise first of all"):
        open_page(viewer, "Denoise")
        wait(LOOK)
    return beats.figures()


def session(folder: Path) -> dict[str, dict[str, float]]:  # noqa: PLR0915 - one step after another
    """Go through a session; return the gaps of its steps."""
    from hushpore.viewer.docks import open_page

    viewer = _open_window()
    beats = Beats()
    widgets = {}
    with beats.during("drop a series"):
        viewer.window._qt_viewer._qt_open([str(folder)], stack=False, plugin="hushpore")
        until(lambda: bool(viewer.layers), 60)
    scan = viewer.layers[0]
    # as long as it takes someone to look at the scan
    wait(LOOK)
    for name in ("Denoise", "Pores", "Patches"):
        with beats.during(f"open {name}"):
            widgets[name] = open_page(viewer, name)
            wait(LOOK)
    pores, patches = widgets["Pores"], widgets["Patches"]
    until(lambda: "looking" not in pores.device.native.line.text(), 120)
    until(lambda: not pores._preparing.is_busy, 300)
    until(lambda: pores.greys.greys is not None and not pores.greys.is_busy, 60)
    _raise(pores)
    wait(1)
    with beats.during("first drag of the threshold"):
        _drag_threshold(pores.greys, 0.45, 0.55)
    with beats.during("drag the threshold again"):
        _drag_threshold(pores.greys, 0.55, 0.5)
    with beats.during("slice to slice with the void"):
        for number in range(20):
            viewer.dims.set_point(0, float(scan.scale[0]) * (10 + number))
            wait(0.05)
        until(lambda: not pores.greys.is_busy, 20)
    pores.threshold.value = "otsu"
    with beats.during("segment pores"):
        pores._buttons.run.click()
        until(lambda: not pores.is_running, 200)
    with beats.during("first merge by the slider"):
        _drag_slider(pores.remerging)
    with beats.during("merge by the slider again"):
        _drag_slider(pores.remerging)
    with beats.during("open Results"):
        results = open_page(viewer, "Table")
    with beats.during("filter"):
        for end in range(1, len("num_voxels > 30") + 1):
            results._filter.setText("num_voxels > 30"[:end])
            wait(0.04)
    with beats.during("colour by a column"):
        results.colours.by.choose("equivalent_diameter")
    with beats.during("select a row"):
        results.pores.selectRow(3)
    with beats.during("open Plots"):
        open_page(viewer, "Plots")
    with beats.during("merge with table and plots open"):
        _drag_slider(pores.remerging)
    viewer.layers.selection.active = scan
    _raise(patches)
    patches.layer.value = scan
    with beats.during("show patches"):
        patches._buttons.run.click()
        until(lambda: not patches.is_running, 120)
    with beats.during("colour patches"):
        patches.panel.feature.setCurrentText("mean")
    return beats.figures()


def _open_window() -> Any:
    import napari

    viewer = napari.Viewer(title="hushpore")
    viewer.window._qt_window.resize(1366, 768)
    wait(1.5)
    return viewer


def _raise(widget: Any) -> None:
    from hushpore.viewer.docks import dock_of

    dock_of(widget.native).raise_()
    wait(0.3)


def _drag_threshold(panel: Any, start: float, end: float) -> None:
    """Drag the line of the histogram between two shares of its width."""
    from qtpy.QtCore import QPoint

    chart = panel.histogram
    places = np.linspace(start, end, MOVES) * chart.width()
    _drag(chart, [QPoint(round(x), chart.height() // 2) for x in places])
    until(lambda: not panel.is_busy, 60)


def _drag_slider(merging: Any) -> None:
    """Drag the handle of the merge height through a quarter of its range."""
    from qtpy.QtCore import QPoint
    from qtpy.QtWidgets import QStyle, QStyleOptionSlider

    slider = merging._slider
    option = QStyleOptionSlider()
    slider.initStyleOption(option)
    style, control = slider.style(), QStyle.ComplexControl.CC_Slider
    handle = style.subControlRect(control, option, QStyle.SubControl.SC_SliderHandle, slider)
    way = 1 if slider.value() < slider.maximum() // 2 else -1
    places = np.linspace(0, way * slider.width() / 4, MOVES)
    _drag(slider, [handle.center() + QPoint(round(x), 0) for x in places])
    until(lambda: not merging.is_busy, 60)


def _drag(widget: Any, places: list[Any]) -> None:
    """Press the left button at the first place, move through the others, and let go."""
    from qtpy.QtCore import Qt
    from qtpy.QtTest import QTest

    left = Qt.MouseButton.LeftButton
    QTest.mousePress(widget, left, pos=places[0])
    for place in places[1:]:
        _move(widget, place)
        wait(PAUSE)
    QTest.mouseRelease(widget, left, pos=places[-1])


def _move(widget: Any, place: Any) -> None:
    from qtpy.QtCore import QEvent, QPointF, Qt
    from qtpy.QtGui import QMouseEvent
    from qtpy.QtWidgets import QApplication

    # QTest moves without a button held
    at, whole = QPointF(place), QPointF(widget.mapToGlobal(place))
    left, none = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    kind = QEvent.Type.MouseMove
    QApplication.sendEvent(
        widget, QMouseEvent(kind, at, whole, Qt.MouseButton.NoButton, left, none)
    )


def _main() -> None:
    own_settings()
    from benchmarks.live import tiled_foam
    from hushpore.io.dicom import write_series

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "series"
        if sys.argv[1:] == ["first"]:
            figures = first_widget()
        else:
            write_series(tiled_foam(SHAPE), folder, seed=0)
            figures = session(folder)
        print(json.dumps(figures), flush=True)
        # napari is not taken down: nothing of it is measured
        os._exit(0)


if __name__ == "__main__":
    _main()
