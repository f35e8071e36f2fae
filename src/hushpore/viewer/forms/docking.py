"""Docking of widgets as tabs, their keyboard shortcuts, and Qt widgets of our own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from app_model.backends.qt import QKeyBindingSequence, qkeysequence2modelkeybinding
from app_model.types import KeyBinding
from magicgui.backends._qtpy.widgets import Container as QtContainer
from magicgui.backends._qtpy.widgets import QBaseWidget
from magicgui.widgets import Container
from magicgui.widgets.bases import BaseValueWidget
from napari.components import ViewerModel
from napari.utils.action_manager import action_manager
from qtpy.QtCore import QEvent, QObject, Qt, QTimer
from qtpy.QtGui import QKeySequence, QShortcut
from qtpy.QtWidgets import (
    QApplication,
    QComboBox,
    QDockWidget,
    QMainWindow,
    QSizePolicy,
    QStyle,
    QStyleOptionComboBox,
    QStylePainter,
    QTabBar,
    QWidget,
)
from superqt import QElidingLabel

from hushpore.base.errors import InputError
from hushpore.viewer.running.redraw import coalesce_redraws

if TYPE_CHECKING:
    from collections.abc import Callable


def dock_of(widget: QWidget | None) -> QDockWidget | None:
    """Return the dock that contains a widget, or None."""
    while widget is not None and not isinstance(widget, QDockWidget):
        widget = widget.parent()
    return widget


def open_beside(widget: QWidget, viewer: Any, name: str) -> Any:
    """Open and return another widget of hushpore, as a tab if it is docked at the same side."""
    dock, opened = viewer.window.add_plugin_dock_widget("hushpore", name, tabify=True)
    dock.show()
    dock.raise_()
    QTimer.singleShot(0, partial(stay_in_front, widget, dock))
    return opened


def stay_in_front(widget: QWidget, opened: QDockWidget) -> None:
    """Keep a widget in front if the widget that it opened is docked elsewhere."""
    own = dock_of(widget)
    if own is not None and opened not in opened.parent().tabifiedDockWidgets(own):
        own.raise_()


class SharesSide(QObject):
    """Makes a widget a tab beside other widgets of hushpore when it is first shown.

    napari's menu opens each widget below the previous one, where two hardly have space.

    `tab`: title of the tab; empty for the name of napari's dock, which includes that of the plugin
    and is too long for three tabs side by side. The dock keeps its own name.
    """

    def __init__(self, widget: QWidget, tab: str = "") -> None:
        super().__init__(widget)
        self._widget, self._tab = widget, tab
        # otherwise the window would grow to fit it below the others, and keep that size
        widget.setMinimumHeight(1)
        widget.installEventFilter(self)

    def eventFilter(self, watched: Any, event: Any) -> bool:  # noqa: N802
        """Wait until the widget is shown and its dock is placed."""
        if event.type() == QEvent.Type.Show:
            watched.removeEventFilter(self)
            # creation and drawing take 50 ms each: split over two turns of the event loop
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
            # restore the entry in the window's menu, which follows the title
            dock.toggleViewAction().setText(getattr(dock, "name", self._tab))
        window = dock and dock.parent()
        if not isinstance(window, QMainWindow) or window.tabifiedDockWidgets(dock):
            return
        area = window.dockWidgetArea(dock)
        for other in window.findChildren(QDockWidget):
            is_docked = other is not dock and other.isVisible() and not other.isFloating()
            shares = is_docked and other.findChild(SharesSide) is not None
            if shares and window.dockWidgetArea(other) == area:
                window.tabifyDockWidget(other, dock)
                dock.raise_()
                _scroll_tabs(window)
                return


def _scroll_tabs(window: QMainWindow) -> None:
    """Let too many tabs scroll instead of shortening their titles to 'De…'."""
    for bar in window.findChildren(QTabBar, options=Qt.FindChildOption.FindDirectChildrenOnly):
        bar.setElideMode(Qt.TextElideMode.ElideNone)
        bar.setUsesScrollButtons(True)


#: Keyboard shortcuts that napari does not use. On macOS Ctrl is the Command key.
RUN, CANCEL = "Ctrl+Return", "Ctrl+."
PREVIOUS_SLICE, NEXT_SLICE = "Alt+PgUp", "Alt+PgDown"
UNDO_MERGE, REDO_MERGE = "Ctrl+Alt+Z", "Ctrl+Alt+Y"
MERGE_PORES, DELETE_PORES = "Ctrl+Alt+M", "Ctrl+Alt+D"

#: Actions under Preferences > Shortcuts of napari, where their keys can be changed; those for
#: slices are not, because that page does not know the page keys.
ACTIONS = {
    RUN: ("hushpore:run", "Run the job of the hushpore widget in front"),
    CANCEL: ("hushpore:cancel", "Cancel the job of the hushpore widget in front"),
    UNDO_MERGE: ("hushpore:undo_merge", "Undo the last change of the merge height"),
    MERGE_PORES: ("hushpore:merge_pores", "Merge the selected pores"),
    DELETE_PORES: ("hushpore:delete_pores", "Delete the selected pores"),
    REDO_MERGE: ("hushpore:redo_merge", "Redo the last change of the merge height"),
}


class _Key(QShortcut):
    """A keyboard shortcut that acts while its widget is in front.

    Qt treats tabs behind another as visible, so a shortcut of several tabs is ambiguous; this class
    finds the one in front.
    """

    def __init__(self, widget: QWidget, key: str, act: Callable[[], object]) -> None:
        super().__init__(widget)
        self.default = key
        self._act = act
        self._take_keys()
        self.activated.connect(self._pressed)
        self.activatedAmbiguously.connect(self._pressed)
        action_manager.events.shortcut_changed.connect(self._take_keys)

    def _take_keys(self, event: Any = None) -> None:
        """Take over the keys that the user chose in napari's preferences."""
        keys = [self.default]
        if self.default in ACTIONS:
            chosen = action_manager._shortcuts.get(ACTIONS[self.default][0], [])
            keys = [QKeyBindingSequence(KeyBinding.validate(each)).toString() for each in chosen]
        # Enter is on the number pad, too
        keys = [key.replace("Enter", "Return") for key in keys] + keys
        self.setKeys([QKeySequence(key) for key in dict.fromkeys(keys)])

    def is_in_front(self) -> bool:
        """Whether its widget, or the dock of the widget, is visible."""
        widget = self.parent()
        shown = dock_of(widget) or widget
        return bool(widget.isVisible() and not shown.visibleRegion().isEmpty())

    def has_focus(self) -> bool:
        """Whether the focus is in its widget."""
        focus = QApplication.focusWidget()
        return focus is not None and bool(self.parent().isAncestorOf(focus))

    def _pressed(self) -> None:
        press(self.default, self.parent().window())


def press(key: str, window: QWidget | None = None) -> None:
    """Do what a key does, in the widget in front; if several are side by side, in that with focus.

    `key`: the key by default. `window`: by default the active window.
    """
    window = window or QApplication.activeWindow()
    keys = [] if window is None else window.findChildren(_Key)
    same = [each for each in keys if each.default == key and each.is_in_front()]
    for each in sorted(same, key=_Key.has_focus)[-1:]:
        each._act()


#: Keys as commands of napari's palette; they act in the widget in front.
run_in_front, cancel_in_front = partial(press, RUN), partial(press, CANCEL)
merge_in_front, delete_in_front = partial(press, MERGE_PORES), partial(press, DELETE_PORES)
undo_in_front, redo_in_front = partial(press, UNDO_MERGE), partial(press, REDO_MERGE)


def bind(widget: QWidget, key: str, act: Callable[[], object]) -> QShortcut:
    """Add a keyboard shortcut that acts while a widget is in front, and return it.

    Those of `ACTIONS` are listed under Preferences > Shortcuts of napari, and follow changes made
    there.
    """
    name, description = ACTIONS.get(key, ("", ""))
    if name and name not in action_manager._actions:
        # napari takes a function, not a partial one
        def pressed(viewer: Any) -> None:
            press(key)

        action_manager.register_action(name, pressed, description, ViewerModel)
        # a key from an earlier session is bound before the action exists
        if name not in action_manager._shortcuts:
            action_manager.bind_shortcut(name, qkeysequence2modelkeybinding(QKeySequence(key)))
    return _Key(widget, key, act)


def with_key(tip: str, key: str) -> str:
    """Add a keyboard shortcut to a tooltip, as the system writes it."""
    return f"{tip} ({QKeySequence(key).toString(QKeySequence.SequenceFormat.NativeText)})"


def step_slice(viewer: Any, by: int) -> None:
    """Go to another slice in the 2D view."""
    dims = viewer.dims
    if dims.ndisplay == 2 and dims.not_displayed:
        axis = dims.not_displayed[-1]
        dims.set_current_step(axis, dims.current_step[axis] + by)


class _Shown(QBaseWidget):
    """Qt backend of a magicgui widget for any Qt widget."""

    def __init__(self, make: Callable[[], QWidget], parent: QWidget | None = None) -> None:
        super().__init__(lambda parent: make(), parent=parent)

    def _mgui_set_tooltip(self, value: str | None) -> None:
        # magicgui's empty tooltip must not replace the tooltip of the Qt widget
        if value:
            super()._mgui_set_tooltip(value)


class _Placed(QtContainer):
    """Qt backend of a container whose widgets have been laid out already."""

    def _mgui_insert_widget(self, position: int, widget: Any) -> None:
        # a widget that a script adds is not laid out yet
        if widget.native.parent() is None:
            self._layout.addWidget(widget.native)


def shown_by(make: Callable[[], QWidget]) -> dict[str, Any]:
    """Return the keywords of a magicgui widget for the Qt widget returned by `make`."""
    return {"widget_type": _Shown, "backend_kwargs": {"make": make}}


class ValueOf(BaseValueWidget):
    """A magicgui widget with the value of a custom Qt widget.

    `make`: returns the Qt widget, which has ``value()``, ``set(value)`` and a signal ``changed``.
    `name`: its name in a container.
    """

    def __init__(self, make: Callable[[], QWidget], name: str, annotation: Any = str) -> None:
        super().__init__(name=name, annotation=annotation, **shown_by(make))

    def _post_init(self) -> None:
        self.native.changed.connect(self._emit_changed)

    def _emit_changed(self, *_: object) -> None:
        self.changed.emit(self.value)

    def get_value(self) -> Any:
        """Return the value of the Qt widget."""
        return self.native.value()

    def set_value(self, value: Any) -> None:
        """Show a value."""
        self.native.set(value)


class PlacedContainer(Container):
    """A magicgui container with a layout made by the caller.

    The widgets are items and attributes as in any container; the caller lays them out in the
    column of its ``native`` widget.

    ``**given``: as for `magicgui.widgets.Container`.
    """

    def __init__(self, **given: Any) -> None:
        # the initializer of Container would stack the widgets
        super(Container, self).__init__(**{"labels": False, **given, "widget_type": _Placed})
        self.margins = (0, 0, 0, 0)

    def __repr__(self) -> str:
        """Return the parameters and values as a function call, as magicgui shows a function."""
        return f"<{type(self).__name__} {self.__signature__}>"

    def update(self, mapping: Any = (), **values: Any) -> None:
        """Set the values of items by their names.

        Raises InputError if there is no item of a name; nothing is set then.
        """
        values = dict(mapping, **values)
        names = [item.name for item in self]
        for name in values:
            if name not in names:
                raise InputError(
                    f"There is no setting {name!r} here. Available: {', '.join(names)}."
                )
        super().update(values)


_MIDDLE = Qt.TextElideMode.ElideMiddle
#: Pixels of padding to either side of the text in a combo box.
_PADDING = 8


class NameBox(QComboBox):
    """A combo box of names."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.view().setTextElideMode(_MIDDLE)

    def paintEvent(self, event: Any) -> None:  # noqa: N802
        """Paint the chosen name, shortened in the middle if it is too long."""
        painter, look = QStylePainter(self), QStyleOptionComboBox()
        self.initStyleOption(look)
        box, edit = QStyle.ComplexControl.CC_ComboBox, QStyle.SubControl.SC_ComboBoxEditField
        painter.drawComplexControl(box, look)
        room = self.style().subControlRect(box, look, edit, self).width() - 2 * _PADDING
        look.currentText = self.fontMetrics().elidedText(look.currentText, _MIDDLE, room)
        painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, look)


class NameLabel(QElidingLabel):
    """A name in bold, without markup, shortened if it is too long; the tooltip is the full name."""

    def __init__(self) -> None:
        super().__init__(textFormat=Qt.TextFormat.PlainText)
        self.setElideMode(_MIDDLE)
        self.setStyleSheet("font-weight: bold;")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    def setText(self, name: str) -> None:  # noqa: N802
        """Show a name."""
        super().setText(name)
        self.setToolTip(name)
