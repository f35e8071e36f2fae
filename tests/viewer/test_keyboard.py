"""From an opened scan to the table of its pores as CSV, by keys alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tifffile
from qtpy.QtCore import Qt, QTimer
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication, QFileDialog, QLineEdit

from hushpore.viewer.docks import open_page
from hushpore.viewer.launch import arrange

CTRL, SHIFT, ALT = (
    getattr(Qt.KeyboardModifier, f"{name}Modifier") for name in ("Control", "Shift", "Alt")
)


def press(
    qtbot: Any, window: Any, key: Any, modifier: Any = Qt.KeyboardModifier.NoModifier
) -> None:
    def active() -> bool:
        # docks that are being placed take the focus away
        window.activateWindow()
        return window.isActiveWindow()

    if QApplication.focusWidget() is None:
        qtbot.waitUntil(active)
    QTest.keyClick(QApplication.focusWidget() or window, key, modifier)


def choose_command(qtbot: Any, window: Any, title: str) -> None:
    """Type the title of a command into napari's palette."""
    press(qtbot, window, Qt.Key.Key_P, CTRL | SHIFT)
    # napari's class has no public name
    qtbot.waitUntil(lambda: type(QApplication.focusWidget()).__name__ == "QCommandLineEdit")
    QTest.keyClicks(QApplication.focusWidget(), title)
    qtbot.wait(50)
    press(qtbot, window, Qt.Key.Key_Return)


def name_file(path: str) -> None:
    """Type a path into the dialog for files, and press Return until it is closed."""
    dialog = QApplication.activeModalWidget()
    if isinstance(dialog, QFileDialog):
        line = dialog.findChild(QLineEdit, "fileNameEdit")
        if line.text() != path:
            line.selectAll()
            QTest.keyClicks(line, path)
        # the first Return may only close the list of completions
        QTest.keyClick(line, Qt.Key.Key_Return)
    if dialog is not None or not Path(path).exists():
        QTimer.singleShot(100, lambda: name_file(path))


def test_a_scan_becomes_a_table_without_the_mouse(
    make_napari_viewer: Any, qtbot: Any, tmp_path: Any
) -> None:
    grey = np.full((16, 48, 48), 200, np.uint8)
    grey[4:10, 6:18, 6:18] = grey[5:12, 28:38, 26:36] = 10
    tifffile.imwrite(tmp_path / "bread.tif", grey)
    viewer = make_napari_viewer(show=True)
    arrange(viewer)
    viewer.open(str(tmp_path / "bread.tif"), plugin="hushpore")
    window = viewer.window.main_menu.window()

    choose_command(qtbot, window, "Segment pores")
    pores = open_page(viewer, "Pores")
    qtbot.waitUntil(pores._buttons.run.isEnabled)
    press(qtbot, window, Qt.Key.Key_Return, CTRL)
    qtbot.waitUntil(lambda: "bread · pores" in viewer.layers, timeout=60_000)
    qtbot.waitUntil(lambda: not pores.is_running)

    choose_command(qtbot, window, "Table of pores")
    qtbot.waitUntil(open_page(viewer, "Table").isVisible)
    file = tmp_path / "pores.csv"
    QTimer.singleShot(20, lambda: name_file(str(file)))
    press(qtbot, window, Qt.Key.Key_E, ALT)
    qtbot.waitUntil(file.exists)
    assert pd.read_csv(file)["num_voxels"].tolist() == [864, 700]
