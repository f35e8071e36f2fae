"""Whether Run and Cancel keep their place through a session, and how much of the histogram is seen.

In windows of 1366 x 768 and 1600 x 1000 pixels a scan is denoised, cancelled, denoised again to its
end, and its pores are segmented and merged by the slider with Results open. Every 20 ms the places
of both buttons of the widget in front are written down; each button should have one.

Needs no screen: xvfb-run is used where there is none. With ``HUSHPORE_PICTURES`` set to a folder,
pictures of the window are saved there, in both themes.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks._window import own_settings
from benchmarks.live import in_window, tiled_foam, until, wait

#: Width and height of the windows.
SIZES = (1366, 768), (1600, 1000)

#: Slices, rows and columns of the scan.
SHAPE = (64, 128, 128)

#: Milliseconds between two looks.
LOOK = 20


def measure() -> dict[str, object]:
    """Places of the buttons by window and widget, and visible pixels of the histogram."""
    found = {}
    for width, height in SIZES:
        for theme in ("dark", "light"):
            words = str(width), str(height), theme
            found[f"{width} x {height}, {theme}"] = in_window("positions", *words)
    return {"scan": list(SHAPE), "windows": found}


class Places:
    """Writes down where the buttons of widgets are, as x and y in the window."""

    def __init__(self, window: Any) -> None:
        from qtpy.QtCore import QTimer

        self._window = window
        self.widget: Any = None
        self.found: defaultdict[str, dict[tuple[int, int], int]] = defaultdict(dict)
        self._timer = QTimer(interval=LOOK, timeout=self._look)
        self._timer.start()

    def _look(self) -> None:
        from qtpy.QtCore import QPoint

        if self.widget is None:
            return
        for name in ("run", "cancel"):
            button = getattr(self.widget._buttons, name)
            at = button.mapTo(self._window, QPoint(0, 0))
            places = self.found[f"{self.widget.job}, {name}"]
            places[at.x(), at.y()] = places.get((at.x(), at.y()), 0) + 1

    def figures(self) -> dict[str, list[list[int]]]:
        """The places of each button, with the number of looks at each."""
        return {
            name: [[*place, looks] for place, looks in places.items()]
            for name, places in self.found.items()
        }


def session(width: int, height: int, theme: str) -> dict[str, object]:
    """Go through a session; return the places of the buttons and the height of the histogram."""
    import napari

    from hushpore.viewer.docks import open_page

    viewer = napari.Viewer(title="hushpore")
    window = viewer.window._qt_window
    window.resize(width, height)
    viewer.theme = theme
    viewer.add_image(tiled_foam(SHAPE).data, name="foam", scale=(0.02,) * 3, units=("mm",) * 3)
    wait(1.0)
    denoise = open_page(viewer, "Denoise")
    denoise.form.update({"steps": 60, "patch_size": 32, "batch_size": 4})
    until(lambda: "looking" not in denoise.device.native.line.text(), 60)
    wait(2.0)
    places = Places(window)
    places.widget = denoise
    save(window, f"{width}-{theme}-1-denoise")
    for name in ("cancel", "end"):
        _click(denoise._buttons.run)
        until(denoise._buttons.finish.isEnabled, 120)
        wait(0.5)
        save(window, f"{width}-{theme}-2-{name}")
        if name == "cancel":
            _click(denoise._buttons.cancel)
        until(lambda: not denoise.is_running, 300)
        wait(0.5)
        save(window, f"{width}-{theme}-3-{name}")
    places.widget = None
    pores = open_page(viewer, "Pores")
    open_page(viewer, "Table")
    wait(2.0)
    until(lambda: pores.greys.greys is not None and not pores.greys.is_busy, 300)
    until(lambda: not pores._preparing.is_busy, 300)
    places.widget = pores
    _click(pores._buttons.run)
    until(lambda: not pores.is_running, 300)
    wait(1.0)
    save(window, f"{width}-{theme}-4-pores")
    slider = pores.remerging._slider.mapTo(window, pores.remerging._slider.rect().topLeft())
    moved = set()
    for step in range(0, 80, 4):
        pores.remerging._slider.setValue(step)
        until(lambda: not pores.remerging.is_busy, 60)
        wait(0.05)
        at = pores.remerging._slider.mapTo(window, pores.remerging._slider.rect().topLeft())
        moved.add((at - slider).y())
    save(window, f"{width}-{theme}-5-merged")
    seen = pores.greys.histogram.visibleRegion().boundingRect().height()
    figures = places.figures()
    return {
        "places_x_y_looks": figures,
        "buttons_that_moved": sum(len(each) > 1 for each in figures.values()),
        "slider_moved_by_px": sorted(moved),
        "histogram_px": seen,
    }


def save(window: Any, name: str) -> None:
    """Save a picture of the window, where a folder is set."""
    if folder := os.environ.get("HUSHPORE_PICTURES"):
        wait(0.3)
        window.screen().grabWindow(window.winId()).save(str(Path(folder) / f"{name}.png"))


def _click(button: Any) -> None:
    from qtpy.QtCore import Qt
    from qtpy.QtTest import QTest

    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    wait(0.05)


def _main() -> None:
    own_settings()
    width, height, theme = sys.argv[1:]
    print(json.dumps(session(int(width), int(height), theme)), flush=True)
    # napari is not taken down: nothing of it is measured
    os._exit(0)


if __name__ == "__main__":
    _main()
