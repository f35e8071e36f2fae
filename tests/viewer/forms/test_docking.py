from pathlib import Path

import pytest
from app_model.types import Action
from napari._app_model import get_app_model
from napari.utils.action_manager import action_manager
from npe2 import PluginManifest
from qtpy.QtCore import QSize, Qt
from qtpy.QtWidgets import QApplication, QDockWidget, QMainWindow, QTabBar, QWidget

import hushpore
from hushpore.viewer.forms import docking
from hushpore.viewer.forms.docking import ACTIONS, RUN, SharesSide, bind, dock_of, press

LEFT, RIGHT = Qt.DockWidgetArea.LeftDockWidgetArea, Qt.DockWidgetArea.RightDockWidgetArea


@pytest.fixture
def window(qtbot):
    window = QMainWindow()
    qtbot.addWidget(window)
    window.show()
    return window


class High(QWidget):
    """A widget that can do with no less than some height."""

    def __init__(self, height):
        super().__init__()
        self._height = height

    def minimumSizeHint(self):  # noqa: N802
        return QSize(50, self._height)


def open_in(window, area=RIGHT, ours=True, height=50, tab=""):
    dock, widget = QDockWidget("A long name (plugin)", window), High(height)
    if ours:
        SharesSide(widget, tab)
    dock.setWidget(widget)
    window.addDockWidget(area, dock)
    return dock


def settle():
    for _ in range(5):
        QApplication.processEvents()


def test_what_is_opened_below_another_becomes_a_tab_beside_it(qtbot, window):
    first = open_in(window)
    settle()
    second, third = open_in(window), open_in(window)
    beside = {second, third}
    qtbot.waitUntil(lambda: set(window.tabifiedDockWidgets(first)) == beside, timeout=5000)


def test_its_tab_has_a_short_name(qtbot, window):
    first = open_in(window, tab="Pores")
    settle()
    second = open_in(window)
    qtbot.waitUntil(lambda: second in window.tabifiedDockWidgets(first), timeout=5000)
    (bar,) = window.findChildren(QTabBar)
    assert {bar.tabText(number) for number in range(2)} == {"Pores", "A long name (plugin)"}


def test_tabs_that_are_too_many_keep_their_words(qtbot, window):
    docks = []
    for name in ("Denoise", "Pores", "Patches", "Phases", "Compare", "Preferences"):
        docks.append(open_in(window, tab=name))
        settle()
    (bar,) = window.findChildren(QTabBar)
    window.resizeDocks([docks[0]], [120], Qt.Orientation.Horizontal)
    settle()
    words = [bar.fontMetrics().horizontalAdvance(bar.tabText(number)) for number in range(6)]
    assert bar.width() < sum(words)
    assert all(bar.tabRect(number).width() > words[number] for number in range(6))


def test_the_window_does_not_grow_to_make_room_for_it(window):
    window.resize(600, 400)
    for _ in range(3):
        dock = open_in(window, height=250)
        settle()
    assert window.height() == 400
    assert dock.widget().minimumSizeHint().height() == 250


def test_it_leaves_the_widgets_of_others_and_other_sides_alone(window):
    open_in(window, ours=False)
    open_in(window, area=LEFT)
    settle()
    own = open_in(window)
    settle()
    assert window.tabifiedDockWidgets(own) == []


def test_where_the_user_moves_it_later_it_stays(window):
    first, second = open_in(window), open_in(window)
    settle()
    window.addDockWidget(LEFT, second)
    second.hide()
    second.show()
    settle()
    assert window.tabifiedDockWidgets(first) == []
    assert dock_of(second.widget()) is second
    assert dock_of(QWidget()) is None


@pytest.fixture
def fresh_actions():
    """napari's actions and keys, put back afterwards."""
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


@pytest.mark.parametrize("key", [*ACTIONS])
def test_every_key_is_a_command_of_the_palette_and_acts_in_the_active_window(
    make_napari_viewer, qtbot, fresh_actions, monkeypatch, key
):
    viewer = make_napari_viewer()
    widget, pressed = QWidget(), []
    viewer.window.add_dock_widget(widget)
    bind(widget, key, lambda: pressed.append(key))
    monkeypatch.setattr(docking._Key, "is_in_front", lambda key: True)
    monkeypatch.setattr(QApplication, "activeWindow", lambda: viewer.window._qt_window)
    manifest = PluginManifest.from_file(Path(hushpore.__file__).parent / "napari.yaml")
    name = ACTIONS[key][0].replace(":", ".")
    (command,) = (each for each in manifest.contributions.commands if each.id == name)
    app = get_app_model()
    app.register_action(Action(id="test", title="Test", callback=command.python_name))
    app.commands.execute_command("test").result()
    assert pressed == [key]
