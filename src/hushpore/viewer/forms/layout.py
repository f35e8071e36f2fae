"""Layouts: rows and columns, a scrolling column, and sections that fold."""

from __future__ import annotations

from typing import Any

from qtpy.QtCore import QSize, Qt, QTimer
from qtpy.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLayout,
    QScrollArea,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)


def fill(layout: Any, *parts: Any, spacing: int = -1, margin: int = 0, wide: Any = None) -> Any:
    """Put widgets and layouts into a layout one after another, and return it.

    `parts`: None is a stretch. `spacing`, `margin`: pixels between and around the parts; by default
    the spacing of the style and no margin. `wide`: the part that takes the remaining space.
    """
    layout.setContentsMargins(margin, margin, margin, margin)
    layout.setSpacing(spacing)
    for part in parts:
        if part is None:
            layout.addStretch(1)
            continue
        add = layout.addLayout if isinstance(part, QLayout) else layout.addWidget
        add(part, int(part is wide))
    return layout


class ScrolledColumn(QScrollArea):
    """A column as wide as its dock, which scrolls if it is higher.

    `parts`: widgets and layouts, from top to bottom. `margin`: pixels around them. `wide`: the part
    that takes the remaining space; by default none.
    """

    def __init__(
        self, *parts: QWidget | QLayout, margin: int = 6, wide: QWidget | None = None
    ) -> None:
        super().__init__(
            widgetResizable=True,
            frameShape=QFrame.Shape.NoFrame,
            horizontalScrollBarPolicy=Qt.ScrollBarPolicy.ScrollBarAlwaysOff,
            # the contents take the focus
            focusPolicy=Qt.FocusPolicy.NoFocus,
        )
        content = QWidget()
        self.column = fill(QVBoxLayout(content), *parts, spacing=6, margin=margin, wide=wide)
        self.column.addStretch(int(wide is None))
        self.setWidget(content)

    def bring_into_view(self, widget: QWidget) -> None:
        """Scroll to a widget once it is laid out."""
        self._wanted = widget
        QTimer.singleShot(0, self._scroll_to_wanted)

    def needed_height(self) -> int:
        """Return the height in pixels at which all contents are visible at the current width."""
        inside = self.maximumViewportSize()
        low = self.column.heightForWidth(inside.width()) if self.column.hasHeightForWidth() else -1
        inner: int = max(low, self.column.minimumSize().height())
        frame: int = self.height() - inside.height()
        return inner + frame

    def _scroll_to_wanted(self) -> None:
        self.ensureWidgetVisible(self._wanted, 0, 6)


#: Pixels in one step of the place of a `PinnedColumn`'s bar.
_STEP = 8


class PinnedColumn(QWidget):
    """A form above a bar of buttons that keeps its place, and the messages below the bar.

    The place of the bar follows from the height of the widget alone, so that no message, progress
    or unfolded section moves a button away from the pointer. Form and messages scroll.

    `upper`, `bar`, `lower`: form, buttons and messages. `share`, `lines`: share of the height for
    bar and messages, and their maximum in lines of text.
    """

    def __init__(
        self,
        upper: ScrolledColumn,
        bar: QWidget,
        lower: ScrolledColumn,
        share: float = 0.42,
        lines: int = 19,
    ) -> None:
        super().__init__()
        self.upper, self.bar, self.lower, self._rule = upper, bar, lower, rule()
        self._share, self._lines = share, lines
        # placed without a layout, which would request the full height and enlarge the window
        for part in (upper, self._rule, bar, lower):
            part.setParent(self)
        policy = QSizePolicy.Policy.Expanding
        self.setSizePolicy(policy, policy)

    def minimumSizeHint(self) -> QSize:  # noqa: N802
        """As wide as the columns, and a few lines high."""
        parts = self.upper, self.bar, self.lower
        width = max(part.minimumSizeHint().width() for part in parts)
        return QSize(width, 6 * self.fontMetrics().height())

    def sizeHint(self) -> QSize:  # noqa: N802
        """As high as the form and the most that bar and messages take."""
        high = self.upper.needed_height() + self._lines * self.fontMetrics().height()
        return QSize(self.minimumSizeHint().width(), high)

    def resizeEvent(self, event: Any) -> None:  # noqa: N802
        """Divide the height again."""
        super().resizeEvent(event)
        width, height = self.width(), self.height()
        most = self._lines * self.fontMetrics().height()
        high = max(self.bar.sizeHint().height(), self.bar.minimumHeight())
        top = height - max(min(round(self._share * height), most), min(high, height))
        # in steps, because the status bar of napari changes the height by a pixel or two
        top -= top % _STEP
        self.upper.setGeometry(0, 0, width, top - 1)
        self._rule.setGeometry(0, top - 1, width, 1)
        self.bar.setGeometry(0, top, width, high)
        self.lower.setGeometry(0, top + high, width, max(height - top - high, 0))


def rule() -> QFrame:
    """Return a thin line between two parts of a column."""
    # the object name that napari's style sheet uses for thin lines
    line = QFrame(objectName="QtCustomTitleBarLine")
    line.setFixedHeight(1)
    return line


class ArrowButton(QToolButton):
    """A button with an arrow that points down while its section is unfolded.

    ``**properties``: Qt properties of the button.
    """

    def __init__(self, **properties: Any) -> None:
        super().__init__(checkable=True, arrowType=Qt.ArrowType.RightArrow, **properties)
        self.toggled.connect(self._turn)

    def _turn(self, is_open: bool) -> None:
        self.setArrowType(Qt.ArrowType.DownArrow if is_open else Qt.ArrowType.RightArrow)


class Fold(QWidget):
    """A section that folds: a title with an arrow, hidden while the section is empty.

    `corner`: widget at the end of the title line. `button`: the title; checked while unfolded.
    """

    def __init__(self, title: str, corner: QWidget | None = None) -> None:
        super().__init__()
        self.button = ArrowButton(
            toolButtonStyle=Qt.ToolButtonStyle.ToolButtonTextBesideIcon,
            toolTip="Show / hide",
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
        """Add a widget to the section."""
        self._inner.addWidget(widget)
        self.button.show()

    def set_open(self, is_open: bool) -> None:
        """Unfold or fold the section."""
        self.button.setChecked(is_open)
