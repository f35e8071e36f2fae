"""Qt widgets of our own, and how they stand behind magicgui widgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magicgui.backends._qtpy.widgets import Container as QtContainer
from magicgui.backends._qtpy.widgets import QBaseWidget
from magicgui.widgets import Container
from magicgui.widgets.bases import BaseValueWidget
from qtpy.QtCore import Qt
from qtpy.QtWidgets import (
    QComboBox,
    QSizePolicy,
    QStyle,
    QStyleOptionComboBox,
    QStylePainter,
)
from superqt import QElidingLabel

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtpy.QtWidgets import QWidget


class _Shown(QBaseWidget):
    """The side of Qt of a magicgui widget that is made of any Qt widget."""

    def __init__(self, make: Callable[[], QWidget], parent: QWidget | None = None) -> None:
        super().__init__(lambda parent: make(), parent=parent)

    def _mgui_set_tooltip(self, value: str | None) -> None:
        # where magicgui has nothing to say, the Qt widget goes on saying what it is
        if value:
            super()._mgui_set_tooltip(value)


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

    A subclass may make some of them later; whoever asks for one of them, or for all there are, has
    them made.

    ``**given``: as for `magicgui.widgets.Container`.
    """

    def __init__(self, **given: Any) -> None:
        # not that of Container, which would put one widget under the other
        super(Container, self).__init__(**{"labels": False, **given, "widget_type": _Placed})
        self.margins = (0, 0, 0, 0)

    def __repr__(self) -> str:
        """Show it as magicgui shows a function: what can be set, and its values."""
        return f"<{type(self).__name__} {self.__signature__}>"

    # ---- what is made later

    def complete(self) -> None:
        """Make the items that are not there yet."""

    def _is_to_come(self, name: str) -> bool:
        """Whether an item of this name is not there yet."""
        return False

    def __len__(self) -> int:
        """Return how many items there are."""
        self.complete()
        return int(super().__len__())

    def __getitem__(self, key: Any) -> Any:
        """Return an item by its place or name, or several."""
        if not isinstance(key, str):
            self.complete()
        return super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:
        """Return an item by its name."""
        if self._is_to_come(name):
            self.complete()
        return super().__getattr__(name)

    def get_widget(self, name: str) -> Any:
        """Return an item by its name, or None where there is none."""
        if self._is_to_come(name):
            self.complete()
        return super().get_widget(name)

    def update(self, mapping: Any = (), **values: Any) -> None:
        """Show values by the names of the items."""
        values = dict(mapping, **values)
        if any(map(self._is_to_come, values)):
            self.complete()
        super().update(values)

    def asdict(self) -> dict[str, Any]:
        """Return the values by the names of the items."""
        self.complete()
        return dict(super().asdict())

    def __dir__(self) -> list[str]:
        """Return the names of attributes and items."""
        self.complete()
        return list(super().__dir__())

    @property
    def __signature__(self) -> Any:
        """The items as the parameters of a function, with their values as its defaults."""
        self.complete()
        return super().__signature__


_MIDDLE = Qt.TextElideMode.ElideMiddle
#: Pixels that a style sheet leaves at either side of the word in a combo box.
_PADDING = 8


class NameBox(QComboBox):
    """A combo box of names."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.view().setTextElideMode(_MIDDLE)

    def paintEvent(self, event: Any) -> None:  # noqa: N802
        """Paint the name that is chosen, shortened to what there is room for."""
        painter, look = QStylePainter(self), QStyleOptionComboBox()
        self.initStyleOption(look)
        box, edit = QStyle.ComplexControl.CC_ComboBox, QStyle.SubControl.SC_ComboBoxEditField
        painter.drawComplexControl(box, look)
        room = self.style().subControlRect(box, look, edit, self).width() - 2 * _PADDING
        look.currentText = self.fontMetrics().elidedText(look.currentText, _MIDDLE, room)
        painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, look)


class NameLabel(QElidingLabel):
    """A name in bold, as it is: no markup; it widens nothing, and its tip is the whole of it."""

    def __init__(self) -> None:
        super().__init__(textFormat=Qt.TextFormat.PlainText)
        self.setElideMode(_MIDDLE)
        self.setStyleSheet("font-weight: bold;")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    def setText(self, name: str) -> None:  # noqa: N802
        """Show a name, or nothing."""
        super().setText(name)
        self.setToolTip(name)
