"""A small plot of a number that a job tells while it runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from napari.utils.theme import get_theme
from qtpy.QtCore import QPointF, QRectF, Qt
from qtpy.QtGui import QColor, QPainter, QPen, QPolygonF
from qtpy.QtWidgets import QWidget

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hushpore.base.events import Metric

#: Points kept: more than a narrow widget has pixels.
MAX_POINTS = 1024

#: Words of a curve over steps, and what is to be seen in it.
LOSS = "{name} {value:.3g} after {step:,.0f} steps"
FLAT = "Once the curve is flat, going on changes the result little."

#: Words of a curve over time.
RATE = "{value:.3g} {name} after {step:,.0f} s"
SLOWER = "Where it falls, something else needs the computer too."

_MARGIN = 6.0


class Curve(QWidget):
    """Draws one number over the steps of a job, in the colours of napari's theme.

    Of a long curve neighbouring points are joined to their mean, so that it keeps its size. A
    curve that starts far above the rest is cut off there, for what happens later matters more.

    `template`: how the newest value is put into words, of ``name``, ``value`` and ``step``. `hint`:
    what the curve tells, for its tooltip.
    """

    def __init__(self, viewer: Any, template: str = LOSS, hint: str = FLAT) -> None:
        super().__init__()
        self._viewer, self._template, self._hint = viewer, template, hint
        self.setFixedHeight(84)
        viewer.events.theme.connect(self._repaint)
        self.clear()

    def clear(self) -> None:
        """Forget everything, and hide."""
        self._name, self._every = "", 1
        self.points: list[tuple[float, float]] = []
        self._waiting: list[tuple[float, float]] = []
        self.hide()

    def add(self, metrics: Iterable[Metric]) -> None:
        """Draw on; what has another name than the first metric is not of this curve."""
        for metric in metrics:
            self.add_point(metric.name, metric.step, metric.value)

    def add_point(self, name: str, step: float, value: float) -> None:
        """Draw on by one point, unless it is of another curve or no number."""
        self._name = self._name or name
        if name != self._name or not math.isfinite(value):
            return
        self._waiting.append((step, value))
        if len(self._waiting) < self._every:
            return
        self.points.append(_mean(self._waiting))
        self._waiting = []
        if len(self.points) >= MAX_POINTS:
            self.points = [_mean(self.points[at : at + 2]) for at in range(0, MAX_POINTS, 2)]
            self._every *= 2
        self.setAccessibleName(self.text())
        self.setToolTip(f"{self.text()}. {self._hint}")
        self.show()
        self.update()

    def text(self) -> str:
        """Return the newest value: 'loss 0.412 after 300 steps'."""
        if not self.points:
            return ""
        step, value = self.points[-1]
        return self._template.format(name=self._name, value=value, step=step)

    def limits(self) -> tuple[float, float]:
        """Return the lowest and the highest value that is drawn."""
        values = [value for _, value in self.points]
        low, high = min(values), max(values[len(values) // 10 :])
        return (low, high) if high > low else (low - 0.5, low + 0.5)

    def paintEvent(self, event: Any) -> None:  # noqa: N802
        """Draw the curve, its newest value and the steps."""
        theme = get_theme(self._viewer.theme)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(self.rect(), QColor(theme.foreground.as_hex()))
        painter.setPen(QPen(QColor(theme.text.as_hex()), 1.5))
        line = painter.fontMetrics().height()
        area = QRectF(self.rect()).adjusted(_MARGIN, _MARGIN + line, -_MARGIN, -_MARGIN)
        if self.points:
            top = self.rect().adjusted(6, 2, -6, 0)
            painter.drawText(top, Qt.AlignmentFlag.AlignRight, self.text())
            corners = self._polyline(area)
            painter.save()
            painter.setClipRect(area)
            painter.drawPolyline(QPolygonF(corners))
            painter.restore()
            # where the job is now; also all that there is of a curve that has just begun
            painter.setBrush(QColor(theme.text.as_hex()))
            painter.drawEllipse(corners[-1], 2.0, 2.0)
        painter.end()

    def _polyline(self, area: QRectF) -> list[QPointF]:
        low, high = self.limits()
        first, last = self.points[0][0], self.points[-1][0]
        across = area.width() / max(last - first, 1)
        down = area.height() / (high - low)
        return [
            QPointF(area.left() + (step - first) * across, area.bottom() - (value - low) * down)
            for step, value in self.points
        ]

    def _repaint(self, event: Any = None) -> None:
        self.update()


def _mean(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Join neighbours: the last step, and the mean value."""
    return points[-1][0], sum(value for _, value in points) / len(points)
