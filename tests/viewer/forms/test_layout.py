from __future__ import annotations

import html
from functools import partial
from pathlib import Path

import pytest
from app_model.types import Action
from napari._app_model import get_app_model
from napari.utils.action_manager import action_manager
from npe2 import PluginManifest
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QApplication, QLabel, QWidget

import hushpore
from hushpore.base.events import Note, Remedy
from hushpore.pores.settings import PoreSettings
from hushpore.viewer.forms import layout
from hushpore.viewer.forms.layout import (
    ACTIONS,
    RUN,
    PinnedColumn,
    ScrolledColumn,
    bind,
    link,
    press,
    unbroken,
)
from hushpore.viewer.running.messages import RemarkList


class Block(QWidget):
    """A widget of one height."""

    def __init__(self, height):
        super().__init__()
        self.setFixedHeight(height)


@pytest.fixture
def pinned(qtbot):
    def make(upper, lower, height):
        parts = ScrolledColumn(Block(upper)), Block(40), ScrolledColumn(Block(lower))
        column = PinnedColumn(*parts)
        qtbot.addWidget(column)
        column.resize(300, height)
        column.show()
        settle()
        return column

    return make


def settle():
    for _ in range(5):
        QApplication.processEvents()


def test_the_bar_keeps_its_place_whatever_is_above_and_below(pinned):
    places = {
        column.bar.geometry().getRect()
        for upper in (80, 2000)
        for lower in (0, 150, 2000)
        if (column := pinned(upper, lower, 500))
    }
    assert places == {(0, 327, 300, 40)}


def test_the_bar_keeps_its_place_when_messages_come_and_go(qtbot, pinned):
    column = pinned(300, 20, 400)
    before = column.bar.geometry()
    label = QLabel("many words that do not fit into a line " * 6, wordWrap=True)
    column.lower.column.insertWidget(0, label)
    settle()
    assert label.height() >= label.heightForWidth(label.width()) > 2 * label.fontMetrics().height()
    assert column.bar.geometry() == before
    label.setText("few")
    settle()
    assert column.bar.geometry() == before


def test_all_of_the_height_is_used(pinned):
    column = pinned(2000, 2000, 500)
    assert column.upper.geometry().bottom() + 2 == column.bar.y()
    assert column.bar.geometry().bottom() + 1 == column.lower.y()
    assert column.lower.geometry().bottom() == column.rect().bottom()
    # a high window gives the form what is left
    high = pinned(2000, 2000, 1200)
    assert high.lower.height() == 16 * high.fontMetrics().height()


def test_it_never_makes_a_window_grow(pinned):
    column = pinned(900, 900, 300)
    assert column.minimumSizeHint().height() < 150
    assert column.height() == 300


@pytest.fixture
def fresh_actions(monkeypatch):
    """napari's actions and keys, put back afterwards."""
    monkeypatch.setattr("hushpore.viewer.forms.layout._chosen", {})
    actions, keys = dict(action_manager._actions), dict(action_manager._shortcuts)
    yield
    for name, _ in ACTIONS.values():
        if name in action_manager._actions:
            action_manager.unbind_shortcut(name)
    action_manager._actions = actions
    for name, bound in keys.items():
        action_manager._shortcuts[name] = bound


def of(shortcut):
    keys = shortcut.keys()
    return {key.toString() for key in keys}


def test_keys_are_listed_under_the_shortcuts_of_napari(qtbot, fresh_actions):
    widget = QWidget()
    qtbot.addWidget(widget)
    bind(widget, RUN, lambda: None)
    name, description = ACTIONS[RUN]
    assert action_manager._actions[name].description == description
    assert [str(key) for key in action_manager._shortcuts[name]] == ["Ctrl+Enter"]


def test_a_key_changed_in_the_preferences_of_napari_replaces_the_one_of_the_widget(
    qtbot, fresh_actions
):
    pressed = []
    widget = QWidget()
    qtbot.addWidget(widget)
    key = bind(widget, RUN, lambda: pressed.append("run"))
    widget.show()
    qtbot.waitExposed(widget)
    assert of(key) == {"Ctrl+Enter", "Ctrl+Return"}
    name, _ = ACTIONS[RUN]
    action_manager.unbind_shortcut(name)
    action_manager.bind_shortcut(name, "Ctrl+J")
    assert of(key) == {"Ctrl+J"}
    press(RUN, widget)
    assert pressed == ["run"]


def test_keys_pressed_in_the_viewer_still_reach_napari(make_napari_viewer, qtbot, fresh_actions):
    viewer = make_napari_viewer()
    widget = QWidget()
    qtbot.addWidget(widget)
    bind(widget, RUN, lambda: None)
    qtbot.keyClick(viewer.window._qt_viewer, Qt.Key.Key_Y, Qt.KeyboardModifier.ControlModifier)
    assert viewer.dims.ndisplay == 3


def test_every_key_is_a_command_of_the_palette_and_acts_in_the_active_window(
    make_napari_viewer, qtbot, fresh_actions, monkeypatch
):
    viewer = make_napari_viewer()
    widget, pressed = QWidget(), []
    viewer.window.add_dock_widget(widget)
    for key in ACTIONS:
        bind(widget, key, partial(pressed.append, key))
    monkeypatch.setattr(layout._Key, "is_in_front", lambda key: True)
    monkeypatch.setattr(QApplication, "activeWindow", lambda: viewer.window._qt_window)
    manifest = PluginManifest.from_file(Path(hushpore.__file__).parent / "napari.yaml")
    commands = {command.id: command.python_name for command in manifest.contributions.commands}
    app = get_app_model()
    for number, (name, _) in enumerate(ACTIONS.values()):
        callback = commands[name.replace(":", ".")]
        app.register_action(Action(id=f"test {number}", title="Test", callback=callback))
        app.commands.execute_command(f"test {number}").result()
    assert pressed == [*ACTIONS]


@pytest.fixture
def notes(qtbot, viewer):
    notes = RemarkList(viewer)
    qtbot.addWidget(notes)
    return notes


def test_one_note_is_in_sight_and_nothing_is_folded(notes):
    notes.show_remarks([Note("slice 6 is missing")])
    assert "slice 6" in notes._first.text()
    assert notes._fold.isHidden()


def test_of_several_notes_a_warning_is_in_sight_and_the_others_fold(notes):
    notes.show_remarks([Note("one"), Note("two"), Note("grey values shift", warning=True)])
    assert "grey values shift" in notes._first.text()
    assert not notes._fold.isHidden()
    assert notes._fold.button.text().strip() == "2 more remarks"
    assert not notes._fold.button.isChecked()
    assert all(word in notes.text() for word in ("one", "two", "shift"))


def test_a_link_chooses_the_remedy_of_its_remark(qtbot, notes):
    notes.reword = PoreSettings.as_in_a_form
    remedy = Remedy("Exclude them", {"minimum_voxels": 8})
    small = Note("5 pores are small (minimum_voxels=1).", True, "result", remedy)
    notes.show_remarks([Note("one"), small])
    assert "'Minimum pore size' = 1" in html.unescape(notes._first.text())
    assert "⚠" in notes._first.text()
    with qtbot.waitSignal(notes.remedy_chosen) as chosen:
        notes._first.linkActivated.emit("remedy 0")
    assert chosen.args == [remedy]


def test_without_notes_it_takes_no_room(notes):
    assert notes.isHidden()
    notes.show_remarks([Note("one"), Note("two")])
    notes.show_remarks(())
    assert notes.isHidden()
    assert not notes.text()


def test_what_belongs_to_the_word_before_stays_on_its_line():
    assert unbroken("0.067 % of 5 mm") == "0.067\u00a0% of 5\u00a0mm"
    assert "Save result\u00a0…" in link("save", "Save result …")
