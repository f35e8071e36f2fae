"""Custom Qt widgets, and magicgui widgets with a custom Qt widget behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magicgui.backends._qtpy.widgets import Container as QtContainer
from magicgui.backends._qtpy.widgets import QBaseWidget
from magicgui.widgets import Container
from magicgui.widgets.bases import BaseValueWidget
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QComboBox, QSizePolicy, QStyle, QStyleOptionComboBox, QStylePainter
from superqt import QElidingLabel

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtpy.QtWidgets import QWidget


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

    A subclass may create some widgets on demand: at access to one of them, or to all items.

    ``**given``: as for `magicgui.widgets.Container`.
    """

    def __init__(self, **given: Any) -> None:
        # the initializer of Container would stack the widgets
        super(Container, self).__init__(**{"labels": False, **given, "widget_type": _Placed})
        self.margins = (0, 0, 0, 0)

    def __repr__(self) -> str:
        """Return the parameters and values as a function call, as magicgui shows a function."""
        return f"<{type(self).__name__} {self.__signature__}>"

    # ---- items created on demand

    def complete(self) -> None:
        """Create the items that do not exist yet."""

    def _is_pending(self, name: str) -> bool:
        """Whether the item of this name has not been created yet."""
        return False

    def __len__(self) -> int:
        """Return the number of items."""
        self.complete()
        return int(super().__len__())

    def __getitem__(self, key: Any) -> Any:
        """Return an item by its position or name, or several."""
        if not isinstance(key, str):
            self.complete()
        return super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:
        """Return an item by its name."""
        if self._is_pending(name):
            self.complete()
        return super().__getattr__(name)

    def get_widget(self, name: str) -> Any:
        """Return an item by its name, or None."""
        if self._is_pending(name):
            self.complete()
        return super().get_widget(name)

    def update(self, mapping: Any = (), **values: Any) -> None:
        """Set the values of items by their names.

        Raises InputError if there is no item of a name; nothing is set then.
        """
        values = dict(mapping, **values)
        if any(map(self._is_pending, values)):
            self.complete()
        made = {item.name for item in self._list}
        for name in values:
            # the signature needs all fields, which take time to make
            if name not in made and name not in (known := self.__signature__.parameters):
                raise InputError(
                    f"There is no setting {name!r} here. Available: {', '.join(known)}."
                )
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
        """The items as parameters of a function, with their values as defaults."""
        self.complete()
        return super().__signature__


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
