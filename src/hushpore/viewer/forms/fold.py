"""A part of a form that is folded away until it is wanted."""

from __future__ import annotations

from qtpy.QtCore import Qt
from qtpy.QtWidgets import QHBoxLayout, QToolButton, QVBoxLayout, QWidget


class Fold(QWidget):
    """A title with an arrow; a click shows or hides what is under it.

    `corner`: shown at the end of the title's line.
    """

    def __init__(self, title: str, corner: QWidget | None = None) -> None:
        super().__init__()
        self._button = QToolButton()
        self._button.setCheckable(True)
        self._button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self._button.setArrowType(Qt.ArrowType.RightArrow)
        self._button.toggled.connect(self.set_open)
        self._button.setToolTip("Show what is under this, or fold it away.")
        self.set_title(title)
        self._content = QWidget()
        self._inner = QVBoxLayout(self._content)
        self._inner.setContentsMargins(8, 2, 0, 2)
        self._content.hide()
        line = QHBoxLayout()
        line.addWidget(self._button)
        line.addStretch(1)
        if corner is not None:
            line.addWidget(corner)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addLayout(line)
        column.addWidget(self._content)

    def set_title(self, title: str) -> None:
        """Change the title."""
        self._button.setText(f" {title}")

    def set_empty(self, is_empty: bool) -> None:
        """Hide the title where there is nothing under it; the corner stays."""
        self._button.setVisible(not is_empty)

    def title(self) -> str:
        """Return the title."""
        return str(self._button.text()).strip()

    def add(self, widget: QWidget) -> None:
        """Put a widget under the title."""
        self._inner.addWidget(widget)

    def set_open(self, is_open: bool) -> None:
        """Show or hide what is under the title."""
        self._button.setChecked(is_open)
        arrow = Qt.ArrowType.DownArrow if is_open else Qt.ArrowType.RightArrow
        self._button.setArrowType(arrow)
        self._content.setVisible(is_open)

    @property
    def is_open(self) -> bool:
        """Whether what is under the title is shown."""
        return bool(self._button.isChecked())
