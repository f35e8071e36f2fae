"""How the parts of a widget lie: in rows, in columns, and in a column that scrolls."""

from __future__ import annotations

from typing import Any

from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import QFrame, QLayout, QScrollArea, QVBoxLayout, QWidget


def fill(layout: Any, *parts: Any, spacing: int = -1, wide: Any = None) -> Any:
    """Put widgets and layouts into a layout one after another, without margins; return it.

    `parts`: None is room that stretches. `spacing`: pixels between them; by default those of the
    style. `wide`: the part that takes what room is left.
    """
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(spacing)
    for part in parts:
        if part is None:
            layout.addStretch(1)
            continue
        add = layout.addLayout if isinstance(part, QLayout) else layout.addWidget
        add(part, int(part is wide))
    return layout


class ScrolledColumn(QScrollArea):
    """A column as wide as its dock, which scrolls where it is higher.

    `parts`: widgets and layouts, from top to bottom. `margin`: pixels around them.
    """

    def __init__(self, *parts: QWidget | QLayout, margin: int = 6) -> None:
        super().__init__(
            widgetResizable=True,
            frameShape=QFrame.Shape.NoFrame,
            horizontalScrollBarPolicy=Qt.ScrollBarPolicy.ScrollBarAlwaysOff,
        )
        content = QWidget()
        self.column = fill(QVBoxLayout(content), *parts, spacing=6)
        self.column.setContentsMargins(margin, margin, margin, margin)
        self.column.addStretch(1)
        self.setWidget(content)

    def bring_into_view(self, widget: QWidget) -> None:
        """Scroll to a widget once it has its place."""
        self._wanted = widget
        QTimer.singleShot(0, self._scroll_to_wanted)

    def _scroll_to_wanted(self) -> None:
        self.ensureWidgetVisible(self._wanted, 0, 6)


def rule() -> QFrame:
    """Return a thin line between two parts of a column."""
    # the name by which napari's style knows its own thin lines
    line = QFrame(objectName="QtCustomTitleBarLine")
    line.setFixedHeight(1)
    return line
