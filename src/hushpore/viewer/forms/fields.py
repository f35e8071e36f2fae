"""The fields of a form: each shows one setting, and lets the user change it."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, cast

from qtpy.QtCore import QEvent, QLocale, QObject, Qt, Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QLineEdit,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

if TYPE_CHECKING:
    from hushpore.base.settings import Option

#: Limits of a spin box where a setting has none.
_FAR = 1e9
_INT_FAR = 2**31 - 1

#: What the entry of a combo box that opens a number's spin box is called.
VALUE = "value"


class Field(QWidget):
    """One setting: shows a value and lets the user change it.

    Parameters
    ----------
    opt : Option
        The setting.
    """

    changed = Signal()

    def __init__(self, opt: Option) -> None:
        super().__init__()
        self.opt = opt
        self.setToolTip(opt.help)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        self._build(column)
        self.set(opt.default)

    def _build(self, column: QVBoxLayout) -> None:
        raise NotImplementedError

    def value(self) -> Any:
        """Return what is shown, as the setting's type."""
        raise NotImplementedError

    def set(self, value: Any) -> None:
        """Show a value."""
        raise NotImplementedError

    @property
    def is_default(self) -> bool:
        """Whether the default is shown."""
        return bool(self.value() == self.opt.default)


class CheckField(Field):
    """Yes or no."""

    def _build(self, column: QVBoxLayout) -> None:
        self._box = QCheckBox()
        self._box.setAccessibleName(self.opt.label)
        self._box.toggled.connect(self.changed)
        column.addWidget(self._box)

    def value(self) -> bool:
        """Whether it is ticked."""
        return bool(self._box.isChecked())

    def set(self, value: bool) -> None:
        """Tick it or not."""
        self._box.setChecked(value)


class ChoiceField(Field):
    """One of a few words or small whole numbers."""

    def _build(self, column: QVBoxLayout) -> None:
        self._box = combo_box(self.opt)
        self._box.addItems([str(choice) for choice in _choices(self.opt)])
        self._box.currentIndexChanged.connect(self.changed)
        column.addWidget(self._box)

    def value(self) -> Any:
        """Return what is chosen."""
        return self.opt.parse(self._box.currentText())

    def set(self, value: Any) -> None:
        """Choose."""
        self._box.setCurrentText(str(value))


class NumberField(Field):
    """A number; where None is accepted it is shown in words below the smallest number."""

    def _build(self, column: QVBoxLayout) -> None:
        self._spin = _spin_box(self.opt)
        self._spin.valueChanged.connect(self.changed)
        column.addWidget(self._spin)

    def suit(self, step: float, unit: str, limits: tuple[float, float]) -> None:
        """Let the number go in other steps, between other limits and with another unit.

        Of a setting that is a grey value these are the layer's; limits that the setting has itself
        stay, and so does the value, even beyond them.
        """
        value, (low, high) = self.value(), limits
        blocked = self._spin.blockSignals(True)
        _suit(self._spin, self.opt, step, unit)
        if self.opt.optional and self.opt.minimum is None:
            if value is not None:
                low, high = min(low, value), max(high, value)
            # what is below the lowest stands for None
            self._spin.setRange(low - step, high)
            self.set(value)
        self._spin.blockSignals(blocked)

    def value(self) -> float | int | None:
        """Return the number, or None."""
        number = self._spin.value()
        if self.opt.optional and number == self._spin.minimum():
            return None
        return cast("float | int", number)

    def set(self, value: float | int | None) -> None:
        """Show a number, or None."""
        self._spin.setValue(self._spin.minimum() if value is None else value)


class WordOrNumberField(Field):
    """A method's name, or a number of one's own."""

    def _build(self, column: QVBoxLayout) -> None:
        self._box = combo_box(self.opt)
        self._box.addItems([*self.opt.choices, VALUE])
        self._spin = _spin_box(self.opt)
        self._box.currentIndexChanged.connect(self._show_spin)
        self._spin.valueChanged.connect(self.changed)
        column.addWidget(self._box)
        column.addWidget(self._spin)
        self._spin.hide()

    def value(self) -> str | float:
        """Return the method's name, or the number."""
        word = str(self._box.currentText())
        return cast("float", self._spin.value()) if word == VALUE else word

    def set(self, value: str | float) -> None:
        """Show a method's name, or a number."""
        if isinstance(value, str):
            self._box.setCurrentText(value)
            return
        # told once, when both are as they shall be
        before = self._spin.blockSignals(True)
        self._spin.setValue(value)
        self._spin.blockSignals(before)
        if self._box.currentText() == VALUE:
            self.changed.emit()
        else:
            self._box.setCurrentText(VALUE)

    def suggest(self, number: float) -> None:
        """Set the number to begin with, where the user has not opened it yet."""
        if self._box.currentText() != VALUE:
            self._spin.setValue(number)

    def suit(self, step: float, unit: str) -> None:
        """Let the number go in other steps and have another unit."""
        _suit(self._spin, self.opt, step, unit)

    def _show_spin(self) -> None:
        self._spin.setVisible(self._box.currentText() == VALUE)
        self.changed.emit()


class TextField(Field):
    """Free text."""

    def _build(self, column: QVBoxLayout) -> None:
        self._line = QLineEdit()
        self._line.textChanged.connect(self.changed)
        column.addWidget(self._line)

    def value(self) -> str:
        """Return the text."""
        return str(self._line.text())

    def set(self, value: str) -> None:
        """Show a text."""
        self._line.setText(value)


def make_field(opt: Option) -> Field:
    """Return the field that suits a setting."""
    if bool in opt.types:
        return CheckField(opt)
    if str in opt.types and float in opt.types:
        return WordOrNumberField(opt)
    if _choices(opt):
        return ChoiceField(opt)
    if int in opt.types or float in opt.types:
        return NumberField(opt)
    return TextField(opt)


class ShortDoubleSpinBox(QDoubleSpinBox):
    """A spin box that shows 0.002 rather than 0.002000, and never 4e-4 as 0."""

    def textFromValue(self, value: float) -> str:  # noqa: N802
        """Write a number without the zeros at its end."""
        text = f"{value:.{self.decimals()}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text


class _WheelLeaver(QObject):
    """Lets the wheel scroll the form rather than change a value that has not been clicked."""

    def eventFilter(self, watched: Any, event: Any) -> bool:  # noqa: N802
        if event.type() == QEvent.Type.Wheel and not watched.hasFocus():
            event.ignore()
            return True
        return False


def _leave_the_wheel(widget: QWidget) -> None:
    widget.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    widget.installEventFilter(_WheelLeaver(widget))


def _choices(opt: Option) -> tuple[Any, ...]:
    if opt.choices and float not in opt.types:
        return opt.choices
    low, high = opt.minimum, opt.maximum
    whole = int in opt.types and not opt.optional
    if whole and low is not None and high is not None and high - low < 4:
        return tuple(range(int(low), int(high) + 1))
    return ()


def combo_box(opt: Option) -> QComboBox:
    """Return an empty combo box for a setting."""
    box = QComboBox()
    box.setAccessibleName(opt.label)
    # a long word must not make the whole dock wider
    box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    box.setMinimumContentsLength(6)
    _leave_the_wheel(box)
    return box


def _spin_box(opt: Option) -> Any:
    spin: Any = ShortDoubleSpinBox() if float in opt.types else QSpinBox()
    far = _FAR if float in opt.types else _INT_FAR
    low = -far if opt.minimum is None else opt.minimum
    high = far if opt.maximum is None else opt.maximum
    step = opt.step or 1
    if float in opt.types:
        spin.setDecimals(_decimals(opt, step))
        spin.setRange(low - step if opt.optional else low, high)
        spin.setSingleStep(step)
    else:
        spin.setRange(int(low) - 1 if opt.optional else int(low), int(high))
        spin.setSingleStep(int(step))
    if opt.optional:
        spin.setSpecialValueText(_none_in_words(opt))
    if opt.unit:
        spin.setSuffix(f" {opt.unit}")
    # numbers look the same here, on the command line and in the record
    spin.setLocale(QLocale.c())
    spin.setAccessibleName(opt.label)
    spin.setKeyboardTracking(False)
    _leave_the_wheel(spin)
    return spin


def _suit(spin: Any, opt: Option, step: float, unit: str) -> None:
    spin.setDecimals(_decimals(opt, step))
    spin.setSingleStep(step)
    spin.setSuffix(f" {unit}" if unit else "")


def _decimals(opt: Option, step: float) -> int:
    """Enough for the default, the limits and one digit more than the step."""
    needed = [_places(step) + 1]
    for number in (opt.default, opt.minimum):
        if isinstance(number, float | int) and number:
            needed.append(_places(number))
    return max(needed)


def _places(number: float) -> int:
    """Decimal places of a number: 3 for 0.002."""
    text = f"{number:.9f}".rstrip("0")
    return max(len(text.partition(".")[2]), -math.floor(math.log10(abs(number))))


def _none_in_words(opt: Option) -> str:
    """What None means, as the setting's own help says it: 'no limit'."""
    found = re.search(r"None: ([^.;]+)", opt.help)
    return found.group(1) if found else "none"


def default_in_words(opt: Option) -> str:
    """Return the default of a setting as its field shows it."""
    if opt.default is None:
        return _none_in_words(opt)
    return f"{opt.default:g}" if isinstance(opt.default, float) else str(opt.default)
