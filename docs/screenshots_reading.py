"""Make the pictures of how files are opened: napari's own dialogs, and the list of series.

    xvfb-run -a -s "-screen 0 1600x1000x24" python docs/screenshots_reading.py [FOLDER]

Opens a folder of three DICOM series as a drop does, one of them with a slice missing, and writes
``reader-choice.png`` (napari asks which reader to use), ``series.png`` (the list of series),
``series-notes.png`` (what was opened, with its notes) and ``reader-preferences.png`` (where the
choice can be changed) into FOLDER, by default ``docs/images``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from screenshots import SIZE, own_settings, save, settle, wait


def main(folder: Path) -> None:
    own_settings()
    import napari
    from qtpy.QtWidgets import QApplication

    from hushpore.viewer.layers import reader

    folder.mkdir(parents=True, exist_ok=True)
    scan = scanner_folder(Path(tempfile.mkdtemp(prefix="")) / "scan_2024-05-17")
    viewer = napari.Viewer(title="hushpore")
    viewer.window._qt_window.resize(*SIZE)
    viewer.canvas.overlays.scale_bar.visible = True
    # open it as a large one, whatever its size
    reader.LARGE = 0
    answer_soon(folder / "reader-choice.png")
    viewer.window._qt_viewer._qt_open([str(scan)], stack=False)
    wait(lambda: bool(viewer.window.dock_widgets), 300)
    (chooser,) = viewer.window.dock_widgets.values()
    wait(lambda: not chooser._timer.isActive(), 300)
    save(viewer, folder / "series.png")
    chooser._open.click()
    wait(lambda: len(viewer.layers) == 3, 300)
    show_only(viewer, "foam, fine")
    wait(lambda: viewer.window._qt_window.findChildren(notification()), 10)
    # unfolded while it fades in, it stays low
    settle()
    for note in viewer.window._qt_window.findChildren(notification()):
        note.toggle_expansion()
    save(viewer, folder / "series-notes.png")
    preferences(viewer, folder / "reader-preferences.png")
    viewer.close()
    QApplication.processEvents()


def scanner_folder(folder: Path) -> Path:
    """Write a folder as a scanner does: three series and other files."""
    import pydicom

    from hushpore.base.volume import Volume
    from hushpore.io.dicom import write_series
    from hushpore.sample_data import foam_phantom

    folder.mkdir()
    fine = foam_phantom((40, 200, 200), seed=1, noise=0.3).volume
    coarse = foam_phantom((24, 96, 96), seed=2, voxel=0.1, noise=0.2).volume
    sagittal = Volume(fine.array().transpose(2, 0, 1)[::4], spacing=(0.2, 0.05, 0.05), unit="mm")
    for number, (name, volume) in enumerate(
        {"foam, fine": fine, "foam, coarse": coarse, "side view": sagittal}.items(), start=1
    ):
        write_series(volume, folder / f"S{number:03}", seed=number, description=name)
        for path in (folder / f"S{number:03}").iterdir():
            dataset = pydicom.dcmread(path)
            dataset.SeriesNumber = number
            dataset.save_as(path)
    sorted((folder / "S001").iterdir())[17].unlink()
    (folder / "README.txt").write_text("Scanned at 90 kV.")
    return folder


def answer_soon(path: Path) -> None:
    """Picture napari's question, choose hushpore, and remember the choice."""
    from qtpy.QtCore import QTimer
    from qtpy.QtWidgets import QApplication, QCheckBox, QRadioButton

    def answer() -> None:
        dialog = QApplication.activeModalWidget()
        if dialog is None:
            QTimer.singleShot(200, answer)
            return
        for button in dialog.findChildren(QRadioButton):
            button.setChecked(button.text() == "hushpore")
        for box in dialog.findChildren(QCheckBox):
            box.setChecked(True)
        dialog.grab().save(str(path))
        dialog.accept()

    QTimer.singleShot(500, answer)


def show_only(viewer: Any, name: str) -> None:
    """Show the middle slice of one layer."""
    for layer in viewer.layers:
        layer.visible = layer.name.startswith(name)
        if layer.visible:
            viewer.layers.selection.active = layer
            low, high = layer.extent.world[:, 0]
    viewer.reset_view()
    viewer.dims.set_point(0, (low + high) / 2)


def notification() -> Any:
    from napari._qt.dialogs.qt_notification import NapariQtNotification

    return NapariQtNotification


def preferences(viewer: Any, path: Path) -> None:
    """Picture the page of napari's preferences that lists readers."""
    from hushpore.viewer.layers.reader import prefer_hushpore

    prefer_hushpore()
    from qtpy.QtWidgets import QApplication

    dialog = viewer.window._open_preferences_dialog()
    for row in range(dialog._list.count()):
        if dialog._list.item(row).text() == "Plugins":
            dialog._list.setCurrentRow(row)
    QApplication.processEvents()
    dialog.resize(900, 560)
    settle()
    dialog.grab().save(str(path))
    dialog.close()


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images"
    main(where)
