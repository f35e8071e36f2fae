"""How widgets share the side of the window: as tabs, since one above the other they are crushed."""

from __future__ import annotations

from functools import partial
from typing import Any

from qtpy.QtCore import QEvent, QObject, Qt, QTimer
from qtpy.QtWidgets import QDockWidget, QMainWindow, QTabBar, QWidget

from hushpore.viewer.running.drawing import coalesce_redraws


def dock_of(widget: QWidget | None) -> QDockWidget | None:
    """Return the dock that a widget is in, or None."""
    while widget is not None and not isinstance(widget, QDockWidget):
        widget = widget.parent()
    return widget


def open_beside(widget: QWidget, viewer: Any, name: str) -> None:
    """Open another of our widgets and show it, as a tab where it shares the side of the window."""
    dock, _ = viewer.window.add_plugin_dock_widget("hushpore", name, tabify=True)
    dock.show()
    dock.raise_()
    QTimer.singleShot(0, partial(stay_in_front, widget, dock))


def stay_in_front(widget: QWidget, opened: QDockWidget) -> None:
    """Leave a widget in front of its neighbours where what it opened went elsewhere."""
    own = dock_of(widget)
    if own is not None and opened not in opened.parent().tabifiedDockWidgets(own):
        own.raise_()


class SharesSide(QObject):
    """Lets a widget become a tab beside another that does, when it is shown first.

    napari's menu opens each below the one before, where two leave hardly a line to either.

    `tab`: what stands on its tab; empty for the name that napari gives the dock, which with that of
    the plugin is too long for three tabs side by side. The dock keeps its name, and shows it.
    """

    def __init__(self, widget: QWidget, tab: str = "") -> None:
        super().__init__(widget)
        self._widget, self._tab = widget, tab
        # to make room for it below the others, the window would grow, for good
        widget.setMinimumHeight(1)
        widget.installEventFilter(self)

    def eventFilter(self, watched: Any, event: Any) -> bool:  # noqa: N802
        """Wait until it is shown, and its dock has a place."""
        if event.type() == QEvent.Type.Show:
            watched.removeEventFilter(self)
            # to be made and to be drawn takes a twentieth of a second each: in turns of their own
            coalesce_redraws(watched)
            QTimer.singleShot(0, self._settle)
        return False

    def _settle(self) -> None:
        self._join()
        self._widget.setMinimumHeight(0)

    def _join(self) -> None:
        dock: Any = dock_of(self._widget)
        if dock is not None and self._tab:
            dock.setWindowTitle(self._tab)
            # the entry of the window's menu, which follows the title
            dock.toggleViewAction().setText(getattr(dock, "name", self._tab))
        window = dock and dock.parent()
        if not isinstance(window, QMainWindow) or window.tabifiedDockWidgets(dock):
            return
        area = window.dockWidgetArea(dock)
        for other in window.findChildren(QDockWidget):
            is_there = other is not dock and other.isVisible() and not other.isFloating()
            shares = is_there and other.findChild(SharesSide) is not None
            if shares and window.dockWidgetArea(other) == area:
                window.tabifyDockWidget(other, dock)
                dock.raise_()
                _keep_words(window)
                return


def _keep_words(window: QMainWindow) -> None:
    """Have tabs that are too many for the side scroll, and not shortened to 'De…'."""
    for bar in window.findChildren(QTabBar, options=Qt.FindChildOption.FindDirectChildrenOnly):
        bar.setElideMode(Qt.TextElideMode.ElideNone)
        bar.setUsesScrollButtons(True)
