"""Keys that do what buttons do, wherever in the window the focus is.

They are the widget's that is seen: of tabs that share a side only the one in front has its keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtpy.QtGui import QKeySequence, QShortcut
from qtpy.QtWidgets import QApplication

from hushpore.viewer.forms.docking import dock_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtpy.QtWidgets import QWidget

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
