"""Names of layers in one line: what is too long loses its middle.

Layers of one scan begin alike, and end in what a job has made them: the end must be seen.
"""

from __future__ import annotations

from typing import Any

from qtpy.QtCore import Qt
from qtpy.QtWidgets import (
    QComboBox,
    QLabel,
    QSizePolicy,
    QStyle,
    QStyleOptionComboBox,
    QStylePainter,
)

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
        painter.drawComplexControl(QStyle.ComplexControl.CC_ComboBox, look)
        part = QStyle.ComplexControl.CC_ComboBox, look, QStyle.SubControl.SC_ComboBoxEditField
        room = self.style().subControlRect(*part, self).width() - 2 * _PADDING
        look.currentText = self.fontMetrics().elidedText(look.currentText, _MIDDLE, room)
        painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, look)


class NameLabel(QLabel):
    """A name in bold, as it is: no markup; it widens nothing, and its tip is the whole of it."""

    def __init__(self) -> None:
        super().__init__(textFormat=Qt.TextFormat.PlainText)
        self.setStyleSheet("font-weight: bold;")
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._name = ""

    def show_name(self, name: str) -> None:
        """Show a name, or nothing."""
        self._name = name
        self.setToolTip(name)
        self._shorten()

    def resizeEvent(self, event: Any) -> None:  # noqa: N802
        """Show as much of the name as there is room for."""
        super().resizeEvent(event)
        self._shorten()

    def _shorten(self) -> None:
        metrics = self.fontMetrics()
        # what Qt may indent the words by
        room = self.contentsRect().width() - metrics.horizontalAdvance("x")
        self.setText(metrics.elidedText(self._name, _MIDDLE, room))
