"""A column of widgets that scrolls where it is higher than its dock."""

from __future__ import annotations

from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget


class ScrolledColumn(QScrollArea):
    """A column as wide as its dock."""

    def __init__(self) -> None:
        super().__init__()
        content = QWidget()
        self.column = QVBoxLayout(content)
        self.column.setContentsMargins(6, 6, 6, 6)
        self.column.setSpacing(6)
        self.setWidget(content)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    def bring_into_view(self, widget: QWidget) -> None:
        """Scroll to a widget once it has its place."""
        self._wanted = widget
        QTimer.singleShot(0, self._scroll_to_wanted)

    def _scroll_to_wanted(self) -> None:
        self.ensureWidgetVisible(self._wanted, 0, 6)


def rule() -> QFrame:
    """Return a thin line between two parts of a column."""
    line = QFrame()
    # the name by which napari's style knows its own thin lines
    line.setObjectName("QtCustomTitleBarLine")
    line.setFixedHeight(1)
    return line
