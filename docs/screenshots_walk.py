"""Walk through the window as a newcomer: drops, clicks and keys alone, no setting changed.

    xvfb-run -a -s "-screen 0 2000x1200x24" python docs/screenshots_walk.py [FOLDER [WIDTHxHEIGHT]]

Drops a core of concrete as a TIFF without a voxel size, a scan of snow and a DICOM series (both
where ``../shared/data`` has them; else snow is left out, and a series made), a folder of slices
and a file with nothing in it; segments each, looks at table, plots and 3D, gives the voxel size,
and denoises. Stops where a result is not the known truth.
Writes a picture of each step into FOLDER, dark and light, of windows of 1366 x 768 and 1920 x 1080
pixels, or of the one that is named (with ``QT_SCALE_FACTOR=2`` at 200 %, on a screen as large);
without a FOLDER those that docs/walkthrough.md shows into ``docs/images``.
"""

from __future__ import annotations

import re
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from screenshots import own_settings, save, settle, wait

SIZES = ("1366x768", "1920x1080")
IMAGES = Path(__file__).parent / "images"
#: Steps that docs/walkthrough.md shows.
SHOWN = (
    "core-dropped", "core-void-preview", "core-pores", "core-voxel-size", "core-table", "core-3d",
    "snow-denoised", "series-dropped", "empty-problem",
)  # fmt: skip
#: Seconds after which a step has failed: a busy computer compiles kernels for minutes.
PATIENCE = 600
SHARED = Path(__file__).parents[2] / "shared" / "data"


class Walk:
    """A window that is driven by mouse and drop; each step is pictured in both themes."""

    def __init__(self, viewer: Any, folder: Path, size: str) -> None:
        self.viewer, self._folder, self._size = viewer, folder, size
        self.window = viewer.window._qt_window
        self._count = 0

    def picture(self, name: str) -> None:
        """Save a picture of the window, dark and light."""
        self._count += 1
        if self._folder == IMAGES:
            if name in SHOWN:
                # one of them in the light theme
                self.viewer.theme = "light" if name.startswith("series") else "dark"
                save(self.viewer, IMAGES / f"walk-{name}.png")
            return
        for theme in ("light", "dark"):
            self.viewer.theme = theme
            save(self.viewer, self._folder / f"{self._size}-{self._count:02}-{name}-{theme}.png")

    def drop(self, path: Path, layers: int = 1) -> Any:
        """Drop a file or folder on the canvas; return the new top layer."""
        from qtpy.QtCore import QMimeData, Qt, QTimer, QUrl
        from qtpy.QtGui import QDragEnterEvent, QDropEvent
        from qtpy.QtWidgets import QApplication

        before, data = len(self.viewer.layers), QMimeData()
        data.setUrls([QUrl.fromLocalFile(str(path))])
        place = self.viewer.window._qt_viewer
        how = Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier(0)
        at = place.rect().center()
        asked = QTimer(self.window, interval=200)
        asked.timeout.connect(choose_hushpore)
        asked.start()
        QApplication.sendEvent(place, QDragEnterEvent(at, *how))
        QApplication.sendEvent(place, QDropEvent(at.toPointF(), *how))
        wait(lambda: len(self.viewer.layers) >= before + layers, PATIENCE)
        asked.stop()
        settle()
        return self.viewer.layers[-1]

    def tab(self, name: str) -> None:
        """Click on the tab of a widget."""
        click(*self.find_tab(name))
        settle(0.3)

    def find_tab(self, name: str) -> tuple[Any, Any]:
        """Return the bar and the place of the tab of a widget."""
        from qtpy.QtWidgets import QTabBar

        for bar in self.window.findChildren(QTabBar):
            for number in range(bar.count()):
                if bar.tabText(number).startswith(name) and bar.isVisible():
                    return bar, bar.tabRect(number).center()
        sys.exit(f"there is no tab {name}")

    def widget(self, name: str) -> Any:
        """Return an open widget of hushpore."""
        from hushpore.viewer.docks import open_page

        return open_page(self.viewer, name)

    def run(self, job: Any) -> str:
        """Click on Run, wait for the end, and return the headline."""
        wait(lambda: "looking" not in job.device.native.line.text(), PATIENCE)
        wait(job._buttons.run.isEnabled, PATIENCE)
        click(job._buttons.run)
        wait(lambda: job.is_running or bool(job._result.text()), PATIENCE)
        wait(lambda: not job.is_running, PATIENCE)
        settle()
        text = re.sub(r"<[^>]*>", "", job._result.text())
        print(f"  {text}")
        return text


def choose_hushpore() -> None:
    """Choose hushpore if napari asks for the reader of a drop."""
    from qtpy.QtWidgets import QApplication, QDialogButtonBox, QRadioButton

    dialog = QApplication.activeModalWidget()
    if dialog is None:
        return
    for button in dialog.findChildren(QRadioButton):
        if button.text() == "hushpore":
            button.click()
    box = dialog.findChild(QDialogButtonBox)
    click(box.button(QDialogButtonBox.StandardButton.Ok))


def click(widget: Any, place: Any = None) -> None:
    """Click on a widget, by default in its middle."""
    from qtpy.QtCore import Qt
    from qtpy.QtTest import QTest

    place = widget.rect().center() if place is None else place
    QTest.mouseClick(widget, Qt.MouseButton.LeftButton, pos=place)


def click_link(label: Any, words: str) -> None:
    """Click on the link in a label that begins with some words."""
    click(label, find_link(label, words))
    settle(0.5)


def find_link(label: Any, words: str) -> Any:
    """Return the place of the link in a label that begins with some words."""
    from qtpy.QtCore import QEvent, QPoint, QPointF, Qt
    from qtpy.QtGui import QMouseEvent
    from qtpy.QtWidgets import QApplication, QLabel

    said = QLabel.text(label).replace("\xa0", " ")
    links = re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', said)
    wanted = next((target for target, text in links if text.startswith(words)), None)
    if wanted is None:
        sys.exit(f"no link {words!r} in {said!r}")
    hovered: list[str] = [""]
    label.linkHovered.connect(hovered.append)
    none = Qt.MouseButton.NoButton
    for y in range(3, label.height(), 5):
        for x in range(3, label.width(), 6):
            at = QPoint(x, y)
            move = QMouseEvent(
                QEvent.Type.MouseMove, QPointF(at), QPointF(label.mapToGlobal(at)), none, none,
                Qt.KeyboardModifier.NoModifier,
            )  # fmt: skip
            QApplication.sendEvent(label, move)
            if hovered[-1] == wanted:
                return at
    sys.exit(f"the link {words!r} cannot be seen")


def check(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"WRONG: {what}")
    print(f"  right: {what}")


def near(found: float, truth: float, share: float) -> bool:
    return abs(found - truth) <= share * truth


def go(folder: Path, size: str) -> None:
    """Run the steps of one window."""
    import napari

    from hushpore.viewer.launch import arrange

    viewer = napari.Viewer(title="hushpore")
    width, height = map(int, size.split("x"))
    viewer.window._qt_window.resize(width, height)
    arrange(viewer)
    walk = Walk(viewer, folder, size)
    settle()
    walk.picture("begin")
    data = Path(tempfile.mkdtemp())
    core(walk, data)
    core_results(walk)
    snow(walk, SHARED / "ct" / "snow.tif")
    series(walk, data)
    slices(walk, data)
    empty(walk, data)
    viewer.close()


def core(walk: Walk, data: Path) -> None:
    """Open a core of concrete in air, with little noise and no voxel size."""
    import tifffile
    from qtpy.QtCore import Qt
    from qtpy.QtTest import QTest

    from hushpore.sample_data import core_phantom

    print("a core of concrete")
    phantom = core_phantom()
    path = data / "concrete core.tif"
    tifffile.imwrite(path, phantom.volume.array(), imagej=True, metadata={"axes": "ZYX"})
    walk.drop(path)
    denoise = walk.widget("Denoise")
    wait(lambda: "noise" in denoise._facts.text(), PATIENCE)
    walk.picture("core-dropped")
    walk.tab("Pores")
    pores = walk.widget("Pores")
    wait(lambda: not pores.greys.is_busy and pores.greys.greys is not None, PATIENCE)
    click(pores.greys.shown)
    wait(lambda: not pores.greys.is_busy, PATIENCE)
    walk.picture("core-void-preview")
    walk.run(pores)
    walk.picture("core-pores")
    said = [remark.message for remark in pores.result.remarks]
    check(any(each.startswith("Surrounding air") for each in said), "a remark is on the air")
    truth = phantom.void.sum() / phantom.sample.sum()
    check(near(pores.result.porosity, truth, 0.1), f"porosity of the sample is {truth:.2%}")
    check(near(len(pores.result.pores), phantom.n_pores, 0.1), f"{phantom.n_pores} voids are found")
    click_link(pores._facts, "voxel size unknown")
    QTest.keyClicks(pores._voxel_size._across, "20")
    walk.picture("core-voxel-size")
    QTest.keyClick(pores._voxel_size._across, Qt.Key.Key_Return)
    settle()
    check("20 x 20 x 20 µm" in pores._facts.text().replace("\xa0", " "), "the voxel size is known")


def core_results(walk: Walk) -> None:
    """Open the core's table, plots and 3D view."""
    from hushpore.viewer.docks import open_page

    pores = walk.widget("Pores")
    click_link(pores._result, "Open results table")
    results = walk.widget("Table")
    settle()
    table = results.pores
    click(table.viewport(), table.visualRect(table.model().index(4, 0)).center())
    walk.picture("core-table")
    diameter = results.view.tables.pores["equivalent_diameter"]
    check(diameter.between(20, 2000).all(), "diameters are lengths now")
    open_page(walk.viewer, "Plots")
    settle()
    walk.picture("core-plots")
    click(results._in_3d)
    settle(2)
    walk.picture("core-3d")
    click(results._in_3d)
    settle()


def snow(walk: Walk, path: Path) -> None:
    """Denoise a real scan of snow, finish early, and segment its pores."""
    if not path.is_file():
        print(f"no {path.name}: left out")
        return
    import numpy as np
    from skimage.filters import threshold_otsu

    print("snow")
    layer = walk.drop(path)
    walk.tab("Denoise")
    denoise = walk.widget("Denoise")
    check(denoise.layer.value is layer, "the new scan is chosen")
    wait(lambda: "noise" in denoise._facts.text(), PATIENCE)
    pores = walk.widget("Pores")
    check("Porosity" not in pores._result.text(), "the result of the previous scan is hidden")
    walk.picture("snow-dropped")
    walk.tab("Denoise")
    click(denoise._buttons.run)
    shown = denoise._progress
    wait(lambda: "preview" in shown.stage.text() and shown.bar.value() > 20, PATIENCE)
    walk.picture("snow-denoising")
    click(denoise._buttons.finish)
    wait(lambda: not denoise.is_running, PATIENCE)
    settle()
    walk.picture("snow-denoised")
    check("train longer" not in denoise._result.text().lower(), "no advice to train longer")
    click_link(denoise._result, "Segment pores")
    check("denoised" in pores.layer.value.name, "the denoised layer is chosen")
    walk.run(pores)
    values = np.asarray(pores.layer.value.data)
    share = float((values <= threshold_otsu(values)).mean())
    walk.picture("snow-pores")
    check(near(pores.result.porosity, share, 0.03), f"its porosity is that of Otsu: {share:.1%}")


def series(walk: Walk, data: Path) -> None:
    """Open a DICOM series of a hollow head in air; without the file, of a core."""
    import numpy as np
    from scipy import ndimage

    archive = SHARED / "dicom_philips_S2010.tar.xz"
    print("a DICOM series")
    if archive.is_file():
        with tarfile.open(archive) as packed:
            packed.extractall(data / "philips", filter="data")
        folder = data / "philips"
    else:
        from hushpore.base.volume import Volume
        from hushpore.io.dicom import write_series
        from hushpore.sample_data import core_phantom

        values = core_phantom((24, 128, 128)).volume.array().astype("i2")
        folder = write_series(
            Volume(values, spacing=(2, 0.5, 0.5), unit="mm"), data / "series", seed=0
        )
    layer = walk.drop(folder)
    walk.tab("Pores")
    pores = walk.widget("Pores")
    check(pores.layer.value is layer, "the series is chosen")
    check("mm" in pores._facts.text(), "its voxel size is known")
    wait(lambda: not pores.greys.is_busy, PATIENCE)
    walk.picture("series-dropped")
    walk.run(pores)
    walk.picture("series-pores")
    remarks = [each.message for each in pores.result.remarks]
    check(any("urrounding air" in each for each in remarks), "a remark is on the air")
    middle = pores.result.labels[len(pores.result.labels) // 2]
    parts, _ = ndimage.label(layer.data[len(layer.data) // 2] <= pores.result.threshold)
    around = parts == parts[0, 0]
    check(np.mean(middle[around] > 0) < 1e-3, "the air around is not a pore")
    inside = middle[(parts > 0) & ~around]
    check(np.mean(inside > 0) > 0.9, "the void inside is, as SciPy finds it in the middle slice")


def slices(walk: Walk, data: Path) -> None:
    """Open a folder of TIFF slices of a foam with void at all faces."""
    import tifffile

    from hushpore.sample_data import foam_phantom

    print("a folder of slices")
    phantom = foam_phantom((40, 160, 160), noise=0.1, rings=0.0)
    folder = data / "foam slices"
    folder.mkdir()
    for number, plane in enumerate(phantom.volume.array()):
        tifffile.imwrite(folder / f"foam_{number:04}.tif", plane)
    layer = walk.drop(folder)
    pores = walk.widget("Pores")
    check(layer.data.shape == (40, 160, 160), "one volume of 40 slices")
    wait(lambda: not pores.greys.is_busy, PATIENCE)
    text = walk.run(pores)
    walk.picture("slices-pores")
    check("urrounding air" not in text, "the void of a foam is not surrounding air")
    check(near(pores.result.porosity, phantom.porosity, 0.05), f"porosity {phantom.porosity:.1%}")


def empty(walk: Walk, data: Path) -> None:
    """Open a file of one grey value; the reason for the error is below Run."""
    import numpy as np
    import tifffile

    print("a file with nothing in it")
    path = data / "empty.tif"
    tifffile.imwrite(path, np.full((16, 64, 64), 7, np.uint16))
    walk.drop(path)
    text = walk.run(walk.widget("Pores"))
    walk.picture("empty-problem")
    check("every value is 7" in text, "the reason for no pores is given")


if __name__ == "__main__":
    own_settings()
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    where.mkdir(parents=True, exist_ok=True)
    for each in sys.argv[2:] or (SIZES[:1] if where == IMAGES else SIZES):
        go(where, each)
    print("All was right.")
