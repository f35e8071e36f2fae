"""Files that no reader of napari takes."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import npe2
import numpy as np
import pytest
import tifffile
from napari.components import ViewerModel
from napari.errors import NoAvailableReaderError, ReaderPluginError
from napari.utils.notifications import Notification, notification_manager
from qtpy.QtWidgets import QDialog, QLabel, QWidget

import hushpore
from hushpore.viewer.layers import visibility
from hushpore.viewer.layers.visibility import explain_unopened

MANIFEST = Path(hushpore.__file__).with_name("napari.yaml")
TABLE = "t.csv is a table, but an image is needed."


@pytest.fixture
def viewer(monkeypatch):
    viewer = ViewerModel()
    monkeypatch.setattr(visibility, "current_viewer", lambda: viewer)
    notification_manager.records.clear()
    # twice, as by several widgets
    explain_unopened()
    explain_unopened()
    return viewer


def box_of(viewer, error, qtbot):
    """Show an error in a box in the window as napari does for exceptions."""
    window, box = QWidget(), QDialog()
    qtbot.addWidget(window)
    box.setParent(window)
    box.toggle_expansion = lambda: None
    box.message = QLabel(str(error), box)
    object.__setattr__(
        viewer, "window", SimpleNamespace(main_menu=SimpleNamespace(window=lambda: window))
    )
    box.show()
    window.show()
    notification_manager.dispatch(Notification.from_exception(error))
    return box


@pytest.mark.parametrize(("name", "words"), [("t.csv", TABLE), ("n.docx", "cannot be read. Suppo")])
def test_the_sentence_of_the_command_line_replaces_the_error(viewer, qtbot, tmp_path, name, words):
    path = tmp_path / name
    path.write_text("a,b\n1,2\n")
    # that it is napari itself that cannot read it
    with pytest.raises((NoAvailableReaderError, ReaderPluginError)) as caught:
        viewer._open_or_raise_error([str(path)])
    box = box_of(viewer, caught.value, qtbot)
    found = notification_manager.records
    qtbot.waitUntil(lambda: len(found) == 2)
    assert not box.isVisible()
    assert words in found[-1].message
    assert found[-1].severity == "warning"


def test_a_scan_whose_name_has_an_unknown_ending_is_opened(viewer, qtbot, tmp_path):
    values = np.arange(4 * 8 * 8, dtype="u2").reshape(4, 8, 8)
    tifffile.imwrite(tmp_path / "scan.foo", values, photometric="minisblack")
    with pytest.raises(NoAvailableReaderError) as caught:
        viewer._open_or_raise_error([str(tmp_path / "scan.foo")])
    notification_manager.dispatch(Notification.from_exception(caught.value))
    qtbot.waitUntil(lambda: len(viewer.layers) == 1)
    np.testing.assert_array_equal(viewer.layers[0].data, values)


def test_errors_of_other_plugins_are_shown_as_they_are(viewer, qtbot, monkeypatch, tmp_path):
    (tmp_path / "a.czi").touch()
    read = []
    monkeypatch.setattr(visibility, "_read", lambda *given: read.append(given))
    for error in (
        ReaderPluginError("No.", "other-plugin", [str(tmp_path / "a.czi")]),
        NoAvailableReaderError("Gone.", [str(tmp_path / "gone.docx")]),
        ValueError("else"),
    ):
        notification_manager.dispatch(Notification.from_exception(error))
    qtbot.wait(10)
    assert not read


@pytest.mark.parametrize("name", ["p.csv", "n.docx", "a.czi"])
def test_files_of_other_plugins_are_not_claimed(name):
    manifest = npe2.PluginManifest.from_file(str(MANIFEST))
    patterns = [
        each for reader in manifest.contributions.readers for each in reader.filename_patterns
    ]
    assert "*.tif" in patterns
    assert not any(fnmatch(name, pattern) for pattern in patterns)
