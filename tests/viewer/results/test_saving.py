import errno
import json

import pytest
from napari.utils.notifications import notification_manager
from qtpy.QtWidgets import QFileDialog, QWidget

from hushpore.viewer.results import record_panel

SOON = 10_000


@pytest.fixture(autouse=True)
def nothing_said():
    notification_manager.records.clear()


def said():
    return [note.message for note in notification_manager.records]


def save(path, make):
    record_panel.save_with(path, lambda part: part.write_text(record_panel.to_json(make())))


def test_values_are_written_and_the_place_is_said(qtbot, tmp_path):
    path = tmp_path / "record.json"
    save(path, lambda: {"noise": 1.5, "unit": "µm"})
    qtbot.waitUntil(lambda: bool(said()), timeout=SOON)
    assert json.loads(path.read_text(encoding="utf-8")) == {"noise": 1.5, "unit": "µm"}
    assert said() == [f"Saved: {path}"]


def test_a_full_disk_is_said_and_leaves_the_file_before_as_it_was(qtbot, tmp_path):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "record.json"
    path.write_text("before")
    save(path, full)
    qtbot.waitUntil(lambda: bool(said()), timeout=SOON)
    assert "the disk is full" in said()[0]
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_written_where_the_dialog_is_cancelled(qtbot, monkeypatch):
    proposed = []

    def cancel(parent, title, name, kinds):
        proposed.append(name)
        return "", ""

    monkeypatch.setattr(QFileDialog, "getSaveFileName", cancel)
    parent = QWidget()
    qtbot.addWidget(parent)
    record_panel.ask_and_save(parent, "Save", "scan 1/2: pores", lambda: 1 / 0)
    assert proposed == ["scan 1_2_ pores.json"]
    assert said() == []
