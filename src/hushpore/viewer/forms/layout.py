"""How the parts of a widget lie: in rows and columns, one that scrolls, and folded away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QEvent, QSize, Qt, QTimer
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

if TYPE_CHECKING:
    from collections.abc import Callable


def fill(layout: Any, *parts: Any, spacing: int = -1, margin: int = 0, wide: Any = None) -> Any:
    """Put widgets and layouts into a layout one after another, and return it.

    `parts`: None is room that stretches. `spacing`, `margin`: pixels between and around them; by
    default those of the style, and none. `wide`: the part that takes what room is left.
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
    """A column as wide as its dock, which scrolls where it is higher.

    `parts`: widgets and layouts, from top to bottom. `margin`: pixels around them. `wide`: the part
    that takes what room is left; by default none does.
    """

    def __init__(
        self, *parts: QWidget | QLayout, margin: int = 6, wide: QWidget | None = None
    ) -> None:
        super().__init__(
            widgetResizable=True,
            frameShape=QFrame.Shape.NoFrame,
            horizontalScrollBarPolicy=Qt.ScrollBarPolicy.ScrollBarAlwaysOff,
            # it follows the focus of what is in it, and needs none itself
            focusPolicy=Qt.FocusPolicy.NoFocus,
        )
        content = QWidget()
        self.column = fill(QVBoxLayout(content), *parts, spacing=6, margin=margin, wide=wide)
        self.column.addStretch(int(wide is None))
        self.setWidget(content)

    def bring_into_view(self, widget: QWidget) -> None:
        """Scroll to a widget once it has its place."""
        self._wanted = widget
        QTimer.singleShot(0, self._scroll_to_wanted)

    def needed_height(self) -> int:
        """Return the pixels in which all of it is seen at the width that it has now."""
        inside = self.maximumViewportSize()
        low = self.column.heightForWidth(inside.width()) if self.column.hasHeightForWidth() else -1
        inner: int = max(low, self.column.minimumSize().height())
        around: int = self.height() - inside.height()
        return inner + around

    def _scroll_to_wanted(self) -> None:
        self.ensureWidgetVisible(self._wanted, 0, 6)


class PinnedColumn(QWidget):
    """A column that scrolls, above another that stays in sight.

    The lower one is as high as it needs to be, up to `MOST` of the whole; beyond that it scrolls,
    too, unless the upper one leaves it more.

    `upper`, `lower`: both columns.
    """

    #: Share of the height that the lower column may take from the upper one.
    MOST = 0.6

    def __init__(self, upper: ScrolledColumn, lower: ScrolledColumn) -> None:
        super().__init__()
        self.upper, self.lower, self._rule = upper, lower, rule()
        # placed by hand: what a layout holds asks for its height, and makes the window grow
        for part in (upper, self._rule, lower):
            part.setParent(self)
        policy = QSizePolicy.Policy.Expanding
        self.setSizePolicy(policy, policy)
        for column in (upper, lower):
            column.widget().installEventFilter(self)

    def minimumSizeHint(self) -> QSize:  # noqa: N802
        """As wide as the columns, and a few lines high."""
        width = max(part.minimumSizeHint().width() for part in (self.upper, self.lower))
        return QSize(width, 6 * self.fontMetrics().height())

    def sizeHint(self) -> QSize:  # noqa: N802
        """As high as both columns."""
        high = self.upper.needed_height() + self.lower.needed_height() + 1
        return QSize(self.minimumSizeHint().width(), high)

    def eventFilter(self, watched: Any, event: Any) -> bool:  # noqa: N802
        """Share the height anew when what is in the columns has changed."""
        if event.type() == QEvent.Type.LayoutRequest:
            self._share()
        return False

    def resizeEvent(self, event: Any) -> None:  # noqa: N802
        """Share the height anew."""
        super().resizeEvent(event)
        self._share()

    def _share(self) -> None:
        width, whole = self.width(), self.height() - 1
        spare = whole - self.upper.needed_height()
        low = min(self.lower.needed_height(), max(round(self.MOST * whole), spare), whole)
        self.upper.setGeometry(0, 0, width, whole - low)
        self._rule.setGeometry(0, whole - low, width, 1)
        self.lower.setGeometry(0, whole - low + 1, width, low)


def rule() -> QFrame:
    """Return a thin line between two parts of a column."""
    # the name by which napari's style knows its own thin lines
    line = QFrame(objectName="QtCustomTitleBarLine")
    line.setFixedHeight(1)
    return line


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
        self.button.toggled.connect(self.add_now)
        self.button.toggled.connect(self._content.setVisible)
        self._inner = QVBoxLayout(self._content)
        self._inner.setContentsMargins(8, 2, 0, 2)
        line = QHBoxLayout()
        line.addWidget(self.button)
        line.addStretch(1)
        if corner is not None:
            line.addWidget(corner)
        fill(QVBoxLayout(self), line, self._content, spacing=2)
        self._corner = corner
        self._later: list[Callable[[], QWidget]] = []

    def set_title(self, title: str) -> None:
        """Change the title."""
        self.button.setText(f" {title}")

    def add(self, widget: QWidget) -> None:
        """Put a widget under the title."""
        self._inner.addWidget(widget)
        self.button.show()

    def add_later(self, make: Callable[[], QWidget]) -> None:
        """Make a widget, and put it under the title, once that is unfolded or `add_now` is called.

        Fields that are folded away take as long to make as all the others of a form.
        """
        self._later.append(make)
        self.button.show()

    def add_now(self) -> None:
        """Make what was to be made later, and put it under the title."""
        later, self._later = self._later, []
        for widget in [make() for make in later]:
            self.add(widget)
            # what joins a window late would be the last that the Tab key comes to
            before: QWidget = self.button if self._corner is None else self._corner
            for each in widget.findChildren(QWidget):
                takes_tab = bool(each.focusPolicy() & Qt.FocusPolicy.TabFocus)
                # the list of a combo box is a window of its own
                if takes_tab and each.focusProxy() is None and each.window() is self.window():
                    QWidget.setTabOrder(before, each)
                    before = each

    def set_open(self, is_open: bool) -> None:
        """Show or hide what is under the title."""
        self.button.setChecked(is_open)
