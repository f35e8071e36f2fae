"""Qt widgets of our own behind magicgui widgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magicgui.backends._qtpy.widgets import Container as QtContainer
from magicgui.backends._qtpy.widgets import QBaseWidget
from magicgui.widgets import Container
from magicgui.widgets.bases import BaseValueWidget

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtpy.QtWidgets import QWidget


class _Shown(QBaseWidget):
    """The side of Qt of a magicgui widget that is made of any Qt widget."""

    def __init__(self, make: Callable[[], QWidget], parent: QWidget | None = None) -> None:
        super().__init__(lambda parent: make(), parent=parent)


class _Placed(QtContainer):
    """The side of Qt of a container whose widgets lie where its layout has them."""

    def _mgui_insert_widget(self, position: int, widget: Any) -> None:
        # one that a script adds has no place yet
        if widget.native.parent() is None:
            self._layout.addWidget(widget.native)


def shown_by(make: Callable[[], QWidget]) -> dict[str, Any]:
    """Return the keywords that put a Qt widget, which is made by a call, behind a magicgui one."""
    return {"widget_type": _Shown, "backend_kwargs": {"make": make}}


class ValueOf(BaseValueWidget):
    """A magicgui widget with the value that a Qt widget of our own shows.

    `make`: makes the Qt widget, which has ``value()``, ``set(value)`` and a signal ``changed``.
    `name`: what it is called in a container.
    """

    def __init__(self, make: Callable[[], QWidget], name: str, annotation: Any = str) -> None:
        super().__init__(name=name, annotation=annotation, **shown_by(make))

    def _post_init(self) -> None:
        self.native.changed.connect(self._tell)

    def _tell(self, *_: object) -> None:
        self.changed.emit(self.value)

    def get_value(self) -> Any:
        """Return the value that is shown."""
        return self.native.value()

    def set_value(self, value: Any) -> None:
        """Show a value."""
        self.native.set(value)


class PlacedContainer(Container):
    """A magicgui container that lays its widgets out itself.

    They are its items and attributes as in any container; where they lie is up to whoever makes it,
    in the column of its ``native`` widget.

    ``**given``: as for `magicgui.widgets.Container`.
    """

    def __init__(self, **given: Any) -> None:
        # not that of Container, which would put one widget under the other
        super(Container, self).__init__(**{"labels": False, **given, "widget_type": _Placed})
        self.margins = (0, 0, 0, 0)

    def __repr__(self) -> str:
        """Show it as magicgui shows a function: what can be set, and its values."""
        return f"<{type(self).__name__} {self.__signature__}>"
