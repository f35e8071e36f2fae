"""The docks of hushpore: their pages, their place in the window, and the room for the image."""

import numpy as np
import pytest
from qtpy.QtCore import QSize, Qt
from qtpy.QtWidgets import QApplication, QDockWidget, QMainWindow, QTabBar, QWidget

from hushpore.base.errors import MissingPackageError
from hushpore.viewer import docks
from hushpore.viewer.docks import DOCKS, SharesSide, dock_of, open_page


def settle():
    for _ in range(5):
        QApplication.processEvents()


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


def test_what_is_opened_below_another_becomes_a_tab_beside_it(qtbot, window):
    first = open_in(window)
    settle()
    second, third = open_in(window), open_in(window)
    beside = {second, third}
    qtbot.waitUntil(lambda: set(window.tabifiedDockWidgets(first)) == beside, timeout=5000)


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


def test_every_dock_opens_from_the_plugins_menu_and_makes_its_pages_when_shown(
    make_napari_viewer, qtbot
):
    viewer = make_napari_viewer()
    for name in DOCKS:
        _, pages = viewer.window.add_plugin_dock_widget("hushpore", name, tabify=True)
        assert [pages.tabs.tabText(place) for place in range(pages.tabs.count())] == list(
            DOCKS[name]
        )
    pores = open_page(viewer, "Pores")
    assert pores._buttons.run.text() == "Run"
    assert open_page(viewer, "Phases").job == "phases"
    # the same page again, with what was entered
    assert open_page(viewer, "Pores") is pores


def test_commands_open_pages_and_preferences(make_napari_viewer, monkeypatch):
    viewer = make_napari_viewer()
    monkeypatch.setattr(docks, "current_viewer", lambda: viewer)
    docks.open_compare()
    docks.open_preferences()
    docks.open_preferences()
    names = list(viewer.window.dock_widgets)
    assert names == ["Results (hushpore)", "hushpore preferences"]


def test_a_removed_dock_ends_the_work_of_its_pages(make_napari_viewer, qtbot, fake_job):
    viewer = make_napari_viewer()
    viewer.add_image(np.zeros((4, 16, 16), np.float32), name="scan")
    worker = open_page(viewer, "Denoise").run()
    viewer.window.remove_dock_widget(viewer.window.dock_widgets["Denoise (hushpore)"])
    assert worker.is_cancelling
    assert worker.wait(60)
    assert fake_job.closed.is_set()


def test_an_old_napari_is_named_with_the_command_that_updates_it():
    with pytest.raises(MissingPackageError, match=r"napari 0.9 or newer.*pip install"):
        docks.require_canvas(object())
