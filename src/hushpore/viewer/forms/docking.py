"""How widgets share the side of the window as tabs, and the keys of the one in front."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QEvent, QObject, Qt, QTimer
from qtpy.QtGui import QKeySequence, QShortcut
from qtpy.QtWidgets import QApplication, QDockWidget, QMainWindow, QTabBar, QWidget

from hushpore.viewer.running.redraw import coalesce_redraws

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtpy.QtWidgets import QWidget


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


#: Keys, as Qt writes them; none is one of napari's. On macOS Ctrl is the Command key.
RUN, CANCEL = "Ctrl+Return", "Ctrl+."
PREVIOUS_SLICE, NEXT_SLICE = "Alt+PgUp", "Alt+PgDown"
UNDO_MERGE, REDO_MERGE = "Ctrl+Alt+Z", "Ctrl+Alt+Y"


class _Key(QShortcut):
    """Does something when a key is pressed while its widget is in front.

    Qt takes tabs that lie behind another for visible and cannot tell whose a key is, so that is
    found out here.
    """

    def __init__(self, widget: QWidget, key: str, act: Callable[[], object]) -> None:
        super().__init__(widget)
        self._act = act
        # on the number pad, too
        keys = [QKeySequence(key), QKeySequence(key.replace("Return", "Enter"))]
        self.setKeys(list(dict.fromkeys(keys)))
        self.activated.connect(self._pressed)
        self.activatedAmbiguously.connect(self._pressed)

    def is_in_front(self) -> bool:
        """Whether its widget, or the dock that it is in, can be seen."""
        widget = self.parent()
        shown = dock_of(widget) or widget
        return bool(widget.isVisible() and not shown.visibleRegion().isEmpty())

    def has_focus(self) -> bool:
        """Whether the focus is in its widget."""
        focus = QApplication.focusWidget()
        return focus is not None and bool(self.parent().isAncestorOf(focus))

    def _pressed(self) -> None:
        """Do it for the widget in front; of several side by side for that with the focus."""
        keys = self.parent().window().findChildren(_Key)
        same = [each for each in keys if each.key() == self.key() and each.is_in_front()]
        for each in sorted(same, key=_Key.has_focus)[-1:]:
            each._act()


def bind(widget: QWidget, key: str, act: Callable[[], object]) -> QShortcut:
    """Have a key act while a widget is in front, and return what does so."""
    return _Key(widget, key, act)


def with_key(tip: str, key: str) -> str:
    """Add a key to what a tooltip says, as the system writes it."""
    return f"{tip} ({QKeySequence(key).toString(QKeySequence.SequenceFormat.NativeText)})"


def step_slice(viewer: Any, by: int) -> None:
    """Go to another slice, where one is shown."""
    dims = viewer.dims
    if dims.ndisplay == 2 and dims.not_displayed:
        axis = dims.not_displayed[-1]
        dims.set_current_step(axis, dims.current_step[axis] + by)
