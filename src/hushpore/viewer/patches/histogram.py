"""A histogram of one number, in which a range can be chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from napari.utils.theme import get_theme
from qtpy.QtCore import QRectF, Qt, Signal
from qtpy.QtGui import QColor, QPainter, QPen
from qtpy.QtWidgets import QWidget

from hushpore.base.readable import readable_number

if TYPE_CHECKING:
    import numpy.typing as npt

_BINS = 60
_MARGIN = 6.0

#: Pixels that the pointer must move to choose a range; less is a click, which clears it.
_DRAG = 3.0


class Histogram(QWidget):
    """Draws how often a number takes which value; dragging over it chooses a range.

    `range`: the range that is chosen, or None.
    """

    #: Emitted while a range is dragged: (low, high), or None where it was cleared.
    chosen = Signal(object)

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self._viewer = viewer
        self._counts = np.zeros(_BINS)
        self._limits = (0.0, 1.0)
        self.range: tuple[float, float] | None = None
        self._start: float | None = None
        self.setFixedHeight(90)
        self.setToolTip(
            "Drag to choose patches by this number; click to choose all again. With the keyboard: "
            "left and right move the upper end, with Shift the lower one; Escape chooses all."
        )
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Histogram")
        viewer.events.theme.connect(self._repaint)

    def show_values(self, name: str, values: npt.NDArray[Any]) -> None:
        """Draw other values, and forget the range."""
        finite = values[np.isfinite(values)]
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
        self._limits = (float(low), float(high) if high > low else float(low) + 1.0)
        self._counts = np.histogram(finite, _BINS, self._limits)[0]
        self.range = None
        ends = " to ".join(readable_number(end, 4) for end in (low, high))
        self.setAccessibleName(f"Histogram of {name}, {ends}")
        self.update()

    def choose(self, low: float, high: float) -> None:
        """Choose a range, as dragging does."""
        self.range = (min(low, high), max(low, high))
        self.update()
        self.chosen.emit(self.range)

    def clear(self) -> None:
        """Choose nothing, which is all."""
        self.range = None
        self.update()
        self.chosen.emit(None)

    def mousePressEvent(self, event: Any) -> None:  # noqa: N802
        """Begin a range."""
        if event.button() == Qt.MouseButton.LeftButton:
            self._start = event.position().x()

    def mouseMoveEvent(self, event: Any) -> None:  # noqa: N802
        """Draw the range out."""
        if self._start is not None and abs(event.position().x() - self._start) > _DRAG:
            self.choose(self._value_at(self._start), self._value_at(event.position().x()))

    def mouseReleaseEvent(self, event: Any) -> None:  # noqa: N802
        """End the range; a click clears it."""
        if self._start is not None and abs(event.position().x() - self._start) <= _DRAG:
            self.clear()
        self._start = None

    def keyPressEvent(self, event: Any) -> None:  # noqa: N802
        """Move an end of the range by a bar, or choose all."""
        way = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(event.key())
        if event.key() == Qt.Key.Key_Escape and self.range is not None:
            self.clear()
        elif way is not None:
            first, last = self._limits
            low, high = self.range or self._limits
            by = way * (last - first) / _BINS
            if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
                low = min(max(low + by, first), high)
            else:
                high = max(min(high + by, last), low)
            self.choose(low, high)
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: Any) -> None:  # noqa: N802
        """Draw the bars, those in the range in full, and the limits in numbers."""
        theme = get_theme(self._viewer.theme)
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(theme.foreground.as_hex()))
        text = QColor(theme.text.as_hex())
        pale = QColor(text)
        pale.setAlphaF(0.35)
        line = painter.fontMetrics().height()
        area = QRectF(self.rect()).adjusted(_MARGIN, _MARGIN, -_MARGIN, -_MARGIN - line)
        width, most = area.width() / _BINS, max(1.0, float(np.sqrt(self._counts.max())))
        edges = np.linspace(*self._limits, _BINS + 1)
        low, high = self.range or self._limits
        for number, count in enumerate(self._counts):
            # square roots: single patches stay visible beside hundreds
            height = area.height() * float(np.sqrt(count)) / most
            within = edges[number + 1] >= low and edges[number] <= high
            left = area.left() + number * width
            bar = QRectF(left, area.bottom() - height, max(width - 1, 1), height)
            painter.fillRect(bar, text if within else pale)
        painter.setPen(text)
        below = QRectF(area.left(), area.bottom(), area.width(), line + 2)
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft, readable_number(low, 4))
        painter.drawText(below, Qt.AlignmentFlag.AlignRight, readable_number(high, 4))
        if self.hasFocus():
            painter.setPen(QPen(QColor(theme.current.as_hex()), 2))
            painter.drawRect(self.rect().adjusted(1, 1, -1, -1))
        painter.end()

    def _value_at(self, x: float) -> float:
        share = (x - _MARGIN) / max(float(self.width()) - 2 * _MARGIN, 1.0)
        low, high = self._limits
        return low + (high - low) * min(max(share, 0.0), 1.0)

    def _repaint(self, event: Any = None) -> None:
        self.update()
