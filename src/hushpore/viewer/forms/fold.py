"""A part of a form that is folded away until it is wanted."""

from __future__ import annotations

from typing import Any

from qtpy.QtCore import Qt
from qtpy.QtWidgets import QHBoxLayout, QToolButton, QVBoxLayout, QWidget

from hushpore.viewer.forms.layout import fill


class ArrowButton(QToolButton):
    """A button with an arrow, which points down while what it unfolds is shown.

    ``**properties``: of the button.
    """

    def __init__(self, **properties: Any) -> None:
        super().__init__(checkable=True, arrowType=Qt.ArrowType.RightArrow, **properties)
        self.toggled.connect(self._turn)

    def _turn(self, is_open: bool) -> None:
        self.setArrowType(Qt.ArrowType.DownArrow if is_open else Qt.ArrowType.RightArrow)


class Fold(QWidget):
    """A title with an arrow, once there is something under it; a click shows or hides that.

    `corner`: shown at the end of the title's line.
    `button`: has the title, and is checked while what is under it is shown.
    """

    def __init__(self, title: str, corner: QWidget | None = None) -> None:
        super().__init__()
        self.button = ArrowButton(
            toolButtonStyle=Qt.ToolButtonStyle.ToolButtonTextBesideIcon,
            toolTip="Show what is under this, or fold it away.",
            visible=False,
        )
        self.set_title(title)
        self._content = QWidget(visible=False)
        self.button.toggled.connect(self._content.setVisible)
        self._inner = QVBoxLayout(self._content)
        self._inner.setContentsMargins(8, 2, 0, 2)
        line = QHBoxLayout()
        line.addWidget(self.button)
        line.addStretch(1)
        if corner is not None:
            line.addWidget(corner)
        fill(QVBoxLayout(self), line, self._content, spacing=2)

    def set_title(self, title: str) -> None:
        """Change the title."""
        self.button.setText(f" {title}")

    def add(self, widget: QWidget) -> None:
        """Put a widget under the title."""
        self._inner.addWidget(widget)
        self.button.show()

    def set_open(self, is_open: bool) -> None:
        """Show or hide what is under the title."""
        self.button.setChecked(is_open)
