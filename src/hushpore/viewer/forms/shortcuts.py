"""Keys that do what buttons do, wherever in the window the focus is.

They are the widget's that is seen: of tabs that share a side only the one in front has its keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtpy.QtGui import QKeySequence, QShortcut

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtpy.QtWidgets import QWidget

#: Keys, as Qt writes them; none is one of napari's. On macOS Ctrl is the Command key.
RUN, CANCEL = "Ctrl+Return", "Ctrl+."
PREVIOUS_SLICE, NEXT_SLICE = "Alt+PgUp", "Alt+PgDown"
UNDO_MERGE, REDO_MERGE = "Ctrl+Alt+Z", "Ctrl+Alt+Y"


def bind(widget: QWidget, key: str, act: Callable[[], object]) -> QShortcut:
    """Have a key act while a widget is seen, and return what does so."""
    # on the number pad, too
    keys = [QKeySequence(key), QKeySequence(key.replace("Return", "Enter"))]
    shortcut = QShortcut(widget)
    shortcut.setKeys(list(dict.fromkeys(keys)))
    shortcut.activated.connect(act)
    return shortcut


def with_key(tip: str, key: str) -> str:
    """Add a key to what a tooltip says, as the system writes it."""
    return f"{tip} ({QKeySequence(key).toString(QKeySequence.SequenceFormat.NativeText)})"


def step_slice(viewer: Any, by: int) -> None:
    """Go to another slice, where one is shown."""
    dims = viewer.dims
    if dims.ndisplay == 2 and dims.not_displayed:
        axis = dims.not_displayed[-1]
        dims.set_current_step(axis, dims.current_step[axis] + by)
