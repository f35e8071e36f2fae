"""The fields of a form: magicgui widgets for one setting each."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Union
from weakref import WeakKeyDictionary

import napari
from magicgui.types import Undefined
from magicgui.widgets import CheckBox, ComboBox, FileEdit, LineEdit
from magicgui.widgets.bases import BaseValueWidget
from napari.layers import Image, Labels, Layer, Points
from qtpy.QtCore import QEvent, QLocale, QObject, QSignalBlocker, Qt
from qtpy.QtWidgets import (
    QComboBox,
    QDoubleSpinBox,
    QFileDialog,
    QSizePolicy,
    QStyle,
    QStyleOptionComboBox,
    QStylePainter,
    QVBoxLayout,
    QWidget,
)
from superqt import QElidingLabel

from hushpore.device.memory import folder_of
from hushpore.viewer.forms.layout import fill, shown_by
from hushpore.viewer.layers.conversion import known_of

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from hushpore.base.settings import Option


#: Limit of a spin box for a setting without limits.
_FAR = 2**31 - 1

#: Pixels that a line of text takes at least.
_TEXT_WIDTH = 110

#: magicgui's dialog modes by `Option.path`.
_DIALOGS = {"file": "r", "new file": "w", "folder": "d"}

#: Combo box entry that shows the spin box for a number.
VALUE = "Manual"

#: Labels of the values of an optional bool.
_YES_OR_NO = {None: "Automatic", True: "Yes", False: "No"}

#: Units with a singular.
COUNTED = ("voxels", "slices")


class Field(BaseValueWidget):
    """A magicgui widget whose value is a setting.

    `value`: initial value; by default that of the setting. ``**given``: as for any magicgui widget;
    name, label and tooltip come from the setting.
    """

    #: Whether the field lists layers and needs the argument ``viewer``.
    lists_layers: ClassVar[bool] = False

    def __init__(self, option: Option, value: Any = Undefined, **given: Any) -> None:
        self.option = option
        described = {"name": option.name, "label": option.label, "tooltip": option.help}
        given = described | {key: word for key, word in given.items() if word not in (None, "")}
        given = {"nullable": option.optional} | given | {"annotation": type_of(option)}
        super().__init__(value=option.default if value is Undefined else value, **given)

    def _post_init(self) -> None:
        super()._post_init()
        self.native.setAccessibleName(self.option.label)

    def set_value(self, value: Any) -> None:
        """Set the value.

        Raises InputError if the setting does not accept it.
        """
        super().set_value(self.option.check(value))

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return bool(self.value == self.option.default)

    def start_clean(self) -> None:
        """Reset a value that does not carry over to another scan."""
        if not self.is_default:
            self.value = self.option.default

    def _emit_changed(self, *_: object) -> None:
        self.changed.emit(self.value)


class CheckField(Field, CheckBox):
    """A check box for a bool."""


class ChoiceField(Field, ComboBox):
    """A combo box for a few words, small integers or an optional bool."""

    def __init__(self, option: Option, **given: Any) -> None:
        choices = choices_of(option)
        if bool in option.types:
            choices = tuple((_YES_OR_NO[choice], choice) for choice in choices)
        elif option.choice_labels:
            choices = tuple((option.in_words(choice), choice) for choice in choices)
        # None has its own label instead of magicgui's line of dashes
        super().__init__(option, **{"choices": choices, "nullable": False, **given})

    def _post_init(self) -> None:
        super()._post_init()
        keep_narrow(self.native, self.option.label)


class TextField(Field, LineEdit):
    """A line of free text."""

    def _post_init(self) -> None:
        super()._post_init()
        # beside a long title a text would be cut after some letters: the title moves above it
        self.native.setMinimumWidth(_TEXT_WIDTH)


class FileField(Field):
    """The path of a file or folder, with a button that opens a dialog.

    `edit`: the magicgui widget behind it.
    """

    def __init__(self, option: Option, **given: Any) -> None:
        self.edit = FileEdit(mode=_DIALOGS[option.path], nullable=True)
        super().__init__(option, **given, **shown_by(lambda: self.edit.native))

    def _post_init(self) -> None:
        compact_file_edit(self.edit, self.option.label)
        self.edit.changed.connect(self._emit_changed)

    def get_value(self) -> str:
        """Return the path."""
        return str(self.edit.line_edit.value)

    def set_value(self, value: str | Path) -> None:
        """Set the path."""
        self.edit.line_edit.value = self.option.check(str(value))


class NumberField(Field):
    """A spin box for a number; None, if accepted, is shown as a word below the minimum."""

    def __init__(self, option: Option, **given: Any) -> None:
        super().__init__(option, **given, **shown_by(partial(_NumberBox, option)))

    def _post_init(self) -> None:
        self.native.valueChanged.connect(self._emit_changed)

    def get_value(self) -> float | int | None:
        """Return the number, or None."""
        number: float = self.native.value()
        if self.option.optional and number == self.native.minimum():
            return None
        return number if float in self.option.types else int(number)

    def set_value(self, value: float | int | None) -> None:
        """Set the number, or None."""
        value = self.option.check(value)
        self.native.setValue(self.native.minimum() if value is None else value)

    def suit(self, step: float, unit: str, limits: tuple[float, float]) -> None:
        """Set the step, unit and limits of a grey value.

        Limits of the setting itself take precedence. The current value is kept, even beyond the
        limits.
        """
        value, (low, high) = self.value, limits
        with QSignalBlocker(self.native):
            self.native.suit(step, unit)
            if self.option.optional and self.option.minimum is None:
                if value is not None:
                    low, high = min(low, value), max(high, value)
                # one step below the minimum stands for None
                self.native.setRange(low - step, high)
                self.set_value(value)


class WordOrNumberField(Field):
    """A combo box of methods, with a spin box for a number."""

    def __init__(self, option: Option, **given: Any) -> None:
        super().__init__(option, **given, **shown_by(QWidget))

    def _post_init(self) -> None:
        self._box, self._spin = QComboBox(), _NumberBox(self.option)
        keep_narrow(self._box, self.option.label)
        for choice in self.option.choices:
            self._box.addItem(self.option.in_words(choice), choice)
        self._box.addItem(VALUE, VALUE)
        self._box.currentIndexChanged.connect(self._show_spin)
        self._spin.valueChanged.connect(self._emit_changed)
        fill(QVBoxLayout(self.native), self._box, self._spin, spacing=4)
        self._spin.hide()
        self._word = str(self.option.default)

    def get_value(self) -> str | float:
        """Return the method or the number."""
        word = str(self._box.currentData())
        number: float = self._spin.value()
        return number if word == VALUE else word

    def set_value(self, value: str | float) -> None:
        """Set the method or the number."""
        value = self.option.check(value)
        if isinstance(value, str):
            self._choose(value)
            return
        # emit one change when both widgets are set
        with QSignalBlocker(self._spin):
            self._spin.setValue(value)
        if self._box.currentData() == VALUE:
            self._emit_changed()
        else:
            self._choose(VALUE)

    def start_clean(self) -> None:
        """Return to the last chosen method, because a number is valid for one scan only."""
        if self._box.currentData() == VALUE:
            self._choose(self._word)

    def suggest(self, number: float) -> None:
        """Set the initial number, unless the user has already chosen Manual."""
        if self._box.currentData() != VALUE:
            self._spin.setValue(number)

    def suit(self, step: float, unit: str) -> None:
        """Set the step and the unit of the number."""
        self._spin.suit(step, unit)

    def _choose(self, word: str) -> None:
        self._box.setCurrentIndex(self._box.findData(word))

    def _show_spin(self) -> None:
        word = str(self._box.currentData())
        self._spin.setVisible(word == VALUE)
        self._word = self._word if word == VALUE else word
        self._emit_changed()


def type_of(option: Option) -> Any:
    """Return the plain type hint of a setting: ``float | None``."""
    kinds = [*option.types, *([type(None)] if option.optional else [])]
    return Union[tuple(kinds)]  # noqa: UP007 - their number is not known


class _NumberBox(QDoubleSpinBox):
    """A spin box that shows 0.002 without trailing zeros and does not round 4e-4 to 0."""

    def __init__(self, option: Option) -> None:
        # the same format as on the command line and in records
        super().__init__(locale=QLocale.c(), accessibleName=option.label, keyboardTracking=False)
        self._unit = option.unit
        self._is_whole = float not in option.types
        # trailing zeros are not shown
        self.setDecimals(0 if self._is_whole else 9)
        self.setSingleStep(option.step or 1)
        low = -_FAR if option.minimum is None else option.minimum
        # Qt's doubles hold integers only up to this value
        high = _FAR if option.maximum is None else min(option.maximum, 2**53)
        if option.optional:
            self.setSpecialValueText(option.none)
            low -= self.singleStep()
        self.setRange(low, high)
        self._show_unit()
        self.valueChanged.connect(self._show_unit)
        # show the beginning of a text that is too long
        self.valueChanged.connect(lambda: self.lineEdit().home(False))
        self.lineEdit().home(False)
        _WheelLeaver(self)

    def suit(self, step: float, unit: str) -> None:
        """Set the step and the unit."""
        if not self._is_whole:
            self.setDecimals(max(0, 1 - math.floor(math.log10(step))))
        self.setSingleStep(step)
        self._unit = unit
        self._show_unit()

    def _show_unit(self) -> None:
        """Write the unit after the number: 1 voxel, 2 voxels."""
        unit = self._unit
        if self.value() == 1 and unit in COUNTED:
            unit = unit.removesuffix("s")
        self.setSuffix(f" {unit}" if unit else "")

    def textFromValue(self, value: float) -> str:  # noqa: N802
        """Return a number as text without trailing zeros."""
        text = f"{value:.{self.decimals()}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text


class _WheelLeaver(QObject):
    """Makes the mouse wheel scroll the form unless the field has the focus."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        widget.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        widget.installEventFilter(self)

    def eventFilter(self, watched: Any, event: Any) -> bool:  # noqa: N802
        if event.type() == QEvent.Type.Wheel and not watched.hasFocus():
            event.ignore()
            return True
        return False


def choices_of(option: Option) -> tuple[Any, ...]:
    """Return the values of a setting if they are few: words, integers or an optional bool."""
    if bool in option.types and option.optional:
        return None, True, False
    if option.choices and float not in option.types:
        return option.choices
    low, high = option.minimum, option.maximum
    whole = int in option.types and not option.optional
    if whole and low is not None and high is not None and high - low < 4:
        return tuple(range(int(low), int(high) + 1))
    return ()


def keep_narrow(box: QComboBox, name: str) -> None:
    """Keep a combo box narrow despite long entries, and let the mouse wheel scroll past it.

    `name`: its name for screen readers.
    """
    box.setAccessibleName(name)
    box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    box.setMinimumContentsLength(4)
    _WheelLeaver(box)


def compact_file_edit(edit: FileEdit, name: str, hint: str = "") -> None:
    """Name the path field for screen readers and shrink its button.

    `hint`: the placeholder of the field.
    """
    line, kind = edit.line_edit.native, "folder" if edit.mode.value == "d" else "file"
    line.setAccessibleName(name)
    line.setPlaceholderText(hint)
    edit.choose_btn.text = "…"
    edit.choose_btn.tooltip = f"Choose the {kind}."


def default_in_words(option: Option) -> str:
    """Return the default of a setting as shown in its field."""
    if option.default is None:
        return option.none
    if isinstance(option.default, float):
        return f"{option.default:g}"
    return option.in_words(str(option.default))


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


#: Events of a list of layers after which a box lists other layers or names.
LISTED = ("inserted", "removed", "reordered", "name")

KINDS = {"labels": Labels, "image": Image, "points": Points, "scan": Image}


#: Entries that are not layers.
NOTHING, FILE = "none", "file …"


class LayerField(Field):
    """A box with the valid layers for a setting, kept up to date with the viewer.

    Its value is the name of the layer; it can also be set to the layer itself.

    `viewer`: by default the current viewer. ``**given``: as for `Field`.
    """

    lists_layers = True

    def __init__(self, option: Option, viewer: Any = None, **given: Any) -> None:
        viewer = napari.current_viewer() if viewer is None else viewer
        self._layers = [] if viewer is None else viewer.layers
        self._chosen: Any = None
        self._listed: list[Any] = []
        self._shown: list[str] = []
        super().__init__(option, **given, **shown_by(NameBox))
        if viewer is not None:
            viewer.layers.events.connect(self._follow)

    @property
    def layer(self) -> Any:
        """The chosen layer, or None."""
        return self._chosen

    def get_value(self) -> str:
        """Return the name of the chosen layer, or an empty string."""
        return "" if self._chosen is None else str(self._chosen.name)

    def set_value(self, value: str | Layer) -> None:
        """Choose the layer of this name, or none if there is no such layer."""
        self._refresh()
        name = getattr(value, "name", value)
        self._chosen = next((layer for layer in self._listed if layer.name == name), None)
        self._refresh()
        self._emit_changed()

    def _post_init(self) -> None:
        keep_narrow(self.native, self.option.label)
        self.native.activated.connect(self._choose)

    def _choose(self, position: int) -> None:
        self._chosen = self._listed[position - 1] if position else None
        self._emit_changed()

    def _suits(self, layer: Any) -> bool:
        suits = isinstance(layer, tuple(KINDS[kind] for kind in self.option.auxiliary))
        return suits and not known_of(layer).get("preview")

    def _kept(self, new: list[Any]) -> Any:
        """Return the layer to choose after the list has changed; `new`: layers added to it."""
        return self._chosen if self._chosen in self._listed else None

    def _entries(self) -> list[str]:
        """Return the entries below 'none'."""
        return [layer.name for layer in self._listed]

    def _position(self) -> int:
        return 0 if self._chosen is None else 1 + self._listed.index(self._chosen)

    def _follow(self, event: Any) -> None:
        if event.type in LISTED:
            self._refresh()

    def _refresh(self) -> None:
        before, chosen = self._listed, self._chosen
        self._listed = [layer for layer in reversed(self._layers) if self._suits(layer)]
        self._chosen = self._kept([layer for layer in self._listed if layer not in before])
        entries = [NOTHING, *self._entries()]
        if entries != self._shown:
            self._shown = entries
            self.native.clear()
            self.native.addItems(entries)
        self.native.setCurrentIndex(self._position())
        if self._chosen is not chosen:
            self._emit_changed()


class ModelField(LayerField):
    """A box with the trained models of denoised layers, and an entry to open a file.

    It follows the newest model until the user chooses one. Its value is the path of a file.
    """

    #: Files of models, written when a setting needs a path. A file is deleted with its model, so
    #: code that reads the file must keep a reference to the model.
    _written: ClassVar[MutableMapping[Any, Path]] = WeakKeyDictionary()

    def __init__(self, option: Option, viewer: Any = None, **given: Any) -> None:
        self._path = ""
        self._touched = False
        super().__init__(option, viewer, **given)

    @property
    def model(self) -> Any:
        """The model of the chosen layer, or None."""
        return None if self._chosen is None else known_of(self._chosen)["model"]

    def get_value(self) -> str:
        """Return the path of the model's file, or an empty string."""
        return self._path if self._chosen is None else str(self._file_of(self.model))

    def set_value(self, value: str) -> None:
        """Choose a file; empty for none."""
        self._chosen, self._path = None, self.option.check(str(value))
        self._refresh()
        self._emit_changed()

    @property
    def is_default(self) -> bool:
        """Whether no model is chosen."""
        return self._chosen is None and not self._path

    def _choose(self, position: int) -> None:
        self._touched = True
        if position <= len(self._listed):
            self._chosen = self._listed[position - 1] if position else None
            self._path = ""
        elif self.native.itemText(position) == FILE:
            path, _ = QFileDialog.getOpenFileName(
                self.native, "Trained model", "", "Models (*.safetensors)"
            )
            if path:
                self._chosen, self._path = None, path
        self._refresh()
        self._emit_changed()

    def _suits(self, layer: Any) -> bool:
        return known_of(layer).get("model") is not None

    def _kept(self, new: list[Any]) -> Any:
        return new[0] if new and not self._touched and not self._path else super()._kept(new)

    def _entries(self) -> list[str]:
        own = [Path(self._path).name] if self._path else []
        return [*(f"of {layer.name}" for layer in self._listed), *own, FILE]

    def _position(self) -> int:
        return 1 + len(self._listed) if self._path else super()._position()

    @classmethod
    def _file_of(cls, model: Any) -> Path:
        if model not in cls._written:
            cls._written[model] = model.save(folder_of(model) / "model.safetensors")
        return cls._written[model]
