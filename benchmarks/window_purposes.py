"""What five purposes take in the window, by drops, clicks and keys alone.

A newcomer comes with a loaf of bread, a casting, a cathode, three scans of bone and a scan to train
on. Each purpose begins in a new window, and ends with its figures on the screen; settings are left
as they are, but for those that the purpose is about. Noted are clicks (a drop is none, a text typed
counts once), seconds, the share of the window that is left to the image in each state, and where
*Run* is: whether it is in sight, and how far it moved from the first state to the last. Figures are
checked against the phantoms.

With a folder, ``python -m benchmarks.window_purposes 1366x768 FOLDER`` also pictures each state.
Needs no screen: xvfb-run is used where there is none.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._window import own_settings
from benchmarks.live import in_window, until, wait

if TYPE_CHECKING:
    from hushpore.base.volume import Volume

#: Windows in pixels: a small laptop, a desktop, a large screen.
SIZES = ("1366x768", "1600x1000", "1920x1080")

#: Seconds after which a step has failed: a busy computer compiles kernels for minutes.
PATIENCE = 300


def measure() -> dict[str, object]:
    """Clicks, seconds, shares of the image and places of Run, by size of the window and purpose."""
    return {size: in_window("window_purposes", size) for size in SIZES}


class Person:
    """Drops, clicks and types in a window, and notes what it takes."""

    def __init__(self, viewer: Any, folder: Path | None, purpose: str) -> None:
        self.viewer, self._folder, self._purpose = viewer, folder, purpose
        self.window = viewer.window.main_menu.window()
        self.clicks, self._begun = 0, time.perf_counter()
        self._states: dict[str, dict[str, object]] = {}

    def page(self, name: str) -> Any:
        """Click on the tab of a dock, and of the page in it; return the widget of the page."""
        from hushpore.viewer.docks import DOCKS, open_page

        dock = next(each for each, pages in DOCKS.items() if name in pages)
        for title in dict.fromkeys((dock, name)):
            self._tab(title)
        return open_page(self.viewer, name)

    def _tab(self, title: str) -> None:
        from qtpy.QtWidgets import QTabBar

        for bar in self.window.findChildren(QTabBar):
            titles = [bar.tabText(number) for number in range(bar.count())]
            if bar.isVisible() and title in titles:
                number = titles.index(title)
                if bar.currentIndex() != number:
                    self.click(bar, bar.tabRect(number).center())
                return

    def click(self, widget: Any, place: Any = None) -> None:
        """Click on a widget, by default in its middle."""
        from qtpy.QtCore import Qt
        from qtpy.QtTest import QTest

        place = widget.rect().center() if place is None else place
        QTest.mouseClick(widget, Qt.MouseButton.LeftButton, pos=place)
        self.clicks += 1
        wait(0.3)

    def choose(self, box: Any, text: str) -> None:
        """Open a list by a click, and choose an entry by another."""
        self.click(box)
        # Qt takes a second click within this time for a double click
        wait(0.6)
        shown = box.view()
        row = box.findText(text)
        if row < 0:
            raise LookupError(f"{text} is not in the list")
        index = box.model().index(row, 0)
        shown.scrollTo(index)
        self.click(shown.viewport(), shown.visualRect(index).center())

    def follow(self, label: Any, words: str) -> None:
        """Click on the link in a label that begins with some words."""
        said = label.html if hasattr(label, "html") else label.text()
        links = re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', said.replace("\xa0", " "))
        # the place of a link in a text is only known to Qt
        label.linkActivated.emit(next(target for target, text in links if text.startswith(words)))
        self.clicks += 1
        wait(0.5)

    def type_text(self, field: Any, text: str) -> None:
        """Type a text into a field, and end it with Return."""
        from qtpy.QtCore import Qt
        from qtpy.QtTest import QTest

        field.selectAll()
        QTest.keyClicks(field, text)
        QTest.keyClick(field, Qt.Key.Key_Return)
        self.clicks += 1
        wait(0.3)

    def drop(self, path: Path) -> Any:
        """Drop a file on the image; return its layer."""
        before = len(self.viewer.layers)
        self.viewer.open(str(path), plugin="hushpore")
        until(lambda: len(self.viewer.layers) > before, PATIENCE)
        wait(1)
        return self.viewer.layers[-1]

    def drop_on(self, widget: Any, paths: list[Path]) -> None:
        """Drop files on a widget."""
        from qtpy.QtCore import QMimeData, Qt, QUrl
        from qtpy.QtGui import QDragEnterEvent, QDropEvent
        from qtpy.QtWidgets import QApplication

        data = QMimeData()
        data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
        how = Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier(0)
        at = widget.rect().center()
        QApplication.sendEvent(widget, QDragEnterEvent(at, *how))
        QApplication.sendEvent(widget, QDropEvent(at.toPointF(), *how))
        wait(0.5)

    def run(self, job: Any) -> None:
        """Click on Run, and wait for the result."""
        until(lambda: "ooking" not in job.device.native.line.text(), PATIENCE)
        until(job._buttons.run.isEnabled, PATIENCE)
        self.click(job._buttons.run)
        until(lambda: not job.is_running, PATIENCE)
        wait(0.8)
        if job.result is None:
            raise RuntimeError(job._result.text())

    def look(self, state: str, job: Any = None) -> None:
        """Note the image's share of the window, and the place of Run."""
        wait(0.5)
        image, window = self.window.centralWidget(), self.window
        noted: dict[str, object] = {
            "image_width": round(image.width() / window.width(), 3),
            "image_height": round(image.height() / window.height(), 3),
            "image_pixels": [image.width(), image.height()],
        }
        button = None if job is None else job._buttons.run
        if button is not None:
            corner = button.mapTo(window, button.rect().topLeft())
            noted["run_at"] = [corner.x(), corner.y()]
            noted["run_in_sight"] = button.visibleRegion().boundingRect() == button.rect()
        self._states[state] = noted
        if self._folder is not None:
            name = f"{self._purpose}-{len(self._states)}-{state}-{window.width()}.png"
            path = self._folder / name.replace(" ", "-")
            self.viewer.screenshot(str(path), canvas_only=False, flash=False)

    def figures(self) -> dict[str, object]:
        """Return what was noted."""
        seconds = round(time.perf_counter() - self._begun, 1)
        return {"clicks": self.clicks, "seconds": seconds, "states": self._states}


def bread(person: Person, data: Path) -> None:
    """Porosity of a crumb, in the form of bakers."""
    from hushpore.sample_data import foam_phantom

    phantom = foam_phantom((48, 128, 128), noise=0.08, rings=0.0)
    person.drop(_saved(phantom.volume, data / "bread.tif"))
    pores = person.page("Pores")
    until(lambda: pores.greys.greys is not None and not pores.greys.is_busy, PATIENCE)
    person.look("opened", pores)
    person.run(pores)
    person.look("pores", pores)
    _near(pores.result.porosity, phantom.porosity, 0.05)
    person.follow(pores._result, "Open results table")
    person.look("table")
    table = person.page("Table")
    person.click(table._tabs.tabBar(), table._tabs.tabBar().tabRect(2).center())
    person.choose(table.form.choice, "Bread")
    until(lambda: table.form.table is not None, PATIENCE)
    person.look("form")
    person.page("Plots")
    person.look("plots")


def casting(person: Person, data: Path) -> None:
    """Few pores in a metal in air, with a voxel size that is typed."""
    from hushpore.sample_data import core_phantom

    phantom = core_phantom((48, 128, 128))
    person.drop(_saved(phantom.volume, data / "casting.tif"))
    pores = person.page("Pores")
    until(lambda: pores.greys.greys is not None and not pores.greys.is_busy, PATIENCE)
    if "unknown" in pores._facts.text():
        person.follow(pores._facts, "voxel size")
        person.type_text(pores._voxel_size._across, "20")
    person.look("opened", pores)
    person.run(pores)
    person.look("pores", pores)
    _near(pores.result.porosity, phantom.void.sum() / phantom.sample.sum(), 0.1)
    person.follow(pores._result, "Open results table")
    table = person.page("Table")
    person.click(table.pores.viewport(), table.pores.visualRect(
        table.pores.model().index(1, 0)).center())  # fmt: skip
    person.look("table")


def cathode(person: Person, data: Path) -> None:
    """Shares of three phases."""
    from scipy import ndimage

    random = np.random.default_rng(0)
    field = ndimage.gaussian_filter(random.normal(size=(32, 96, 96)), 3)
    truth = np.digitize(field, np.quantile(field, (0.3, 0.75)))
    values = np.array([40, 120, 210])[truth] + random.normal(0, 6, truth.shape)
    person.drop(_saved(_volume(values), data / "cathode.tif"))
    phases = person.page("Phases")
    until(lambda: not phases.panel.is_busy, PATIENCE)
    person.look("opened", phases)
    person.run(phases)
    person.look("phases", phases)
    found = phases.result.phases["share"].to_numpy()
    np.testing.assert_allclose(found, (0.3, 0.45, 0.25), atol=0.02)


def bone(person: Person, data: Path) -> None:
    """Three scans with the same settings."""
    from hushpore.sample_data import foam_phantom

    phantoms = [foam_phantom((32, 96, 96), number, noise=0.06, rings=0.0) for number in range(3)]
    scans = [
        _saved(phantom.volume, data / f"bone {number}.tif")
        for number, phantom in enumerate(phantoms)
    ]
    batch = person.page("Batch")
    person.drop_on(batch.native, scans)
    person.type_text(batch.form.output.native.findChild(_line_edit()), str(data / "results"))
    # the box itself, at the left end of its widget
    person.click(batch.denoise.native, _left(batch.denoise.native))
    if batch.denoise.value:
        raise RuntimeError("Denoise first is still ticked")
    person.look("listed", batch)
    person.click(batch._buttons.run)
    until(lambda: not batch.is_running and batch.result is not None, PATIENCE)
    person.look("done", batch)
    for found, phantom in zip(batch.result.table["porosity"], phantoms, strict=True):
        _near(found, phantom.porosity, 0.05)


def training(person: Person, data: Path) -> None:
    """Denoise a scan, finish early, and look at the patches that the network saw."""
    from hushpore.sample_data import foam_phantom

    person.drop(_saved(foam_phantom((32, 128, 128)).volume, data / "noisy.tif"))
    denoise = person.page("Denoise")
    until(lambda: "noise" in denoise._facts.text(), PATIENCE)
    until(lambda: "ooking" not in denoise.device.native.line.text(), PATIENCE)
    person.look("opened", denoise)
    person.click(denoise._buttons.run)
    shown = denoise._progress
    until(lambda: "preview" in shown.stage.text() and shown.bar.value() > 60, PATIENCE)
    person.look("training", denoise)
    person.click(denoise._buttons.finish)
    until(lambda: not denoise.is_running, PATIENCE)
    person.look("denoised", denoise)
    patches = person.page("Patches")
    person.run(patches)
    person.look("patches", patches)
    if "loss" not in patches.result.features:
        raise RuntimeError("The trained model was not chosen.")


PURPOSES = {each.__name__: each for each in (bread, casting, cathode, bone, training)}


def _left(widget: Any) -> Any:
    from qtpy.QtCore import QPoint

    return QPoint(8, widget.height() // 2)


def _line_edit() -> Any:
    from qtpy.QtWidgets import QLineEdit

    return QLineEdit


def _volume(values: Any) -> Volume:
    from hushpore.base.volume import Volume

    return Volume(np.clip(values, 0, 255).astype(np.uint8), spacing=(0.5,) * 3, unit="um")


def _saved(volume: Volume, path: Path) -> Path:
    from hushpore.io.results import write_image

    write_image(path, volume)
    return path


def _near(found: float, truth: float, share: float) -> None:
    if abs(found - truth) > share * truth:
        raise ValueError(f"{found:.3f} instead of {truth:.3f}")


def _main() -> None:
    own_settings()
    import napari

    from hushpore.viewer.launch import arrange

    width, height = map(int, sys.argv[1].split("x"))
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    found = {}
    for name, purpose in PURPOSES.items():
        viewer = napari.Viewer(title="hushpore")
        viewer.window.main_menu.window().resize(width, height)
        arrange(viewer)
        wait(1)
        person = Person(viewer, folder, name)
        with tempfile.TemporaryDirectory() as data:
            purpose(person, Path(data))
            found[name] = person.figures()
        viewer.close()
        wait(0.5)
    print(json.dumps(found), flush=True)
    # the window is not taken down: nothing of it is measured
    os._exit(0)


if __name__ == "__main__":
    _main()
