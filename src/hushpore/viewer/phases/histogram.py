"""The histogram with a line between each two phases, in their colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import QPointF
from qtpy.QtGui import QColor

from hushpore.base.readable import readable_grey
from hushpore.pores.phases.result import COLOURS
from hushpore.viewer.segment.grey_histogram import GreyHistogram

if TYPE_CHECKING:
    import numpy.typing as npt
    from qtpy.QtGui import QPainter


class PhaseHistogram(GreyHistogram):
    """Draws how often each grey value occurs, and the thresholds between phases as lines.

    Lines are called by the number of the phase below them.
    """

    TIP = (
        "How often each grey value occurs, in the colours of the phases. Drag a line, or click, to "
        "move the nearest threshold; or the arrow keys, with Shift in larger steps. Up and down "
        "take the next line"
    )

    def paintEvent(self, event: Any) -> None:  # noqa: N802
        """Draw all of it; numbers of lines where they have room."""
        self._written: list[tuple[float, float]] = []
        super().paintEvent(event)

    def _kinds(
        self, values: npt.NDArray[np.float64], pale: QColor
    ) -> tuple[list[QColor], npt.NDArray[np.integer[Any]]]:
        if not self.lines:
            return [pale], np.zeros(values.size, np.int64)
        return [QColor(each) for each in COLOURS], np.searchsorted([*self.lines.values()], values)

    def _paint_label(
        self, painter: QPainter, text: QColor, name: str, value: float, x: float
    ) -> None:
        label, metrics = readable_grey(value), painter.fontMetrics()
        width = metrics.horizontalAdvance(label)
        left = min(max(x - width / 2, 2.0), self.width() - width - 2.0)
        if any(left < end and start < left + width for start, end in self._written):
            # it is in the table, too
            return
        self._written.append((left - 4, left + width + 4))
        painter.setPen(text)
        painter.drawText(QPointF(left, metrics.ascent() + 1), label)

    def _word(self, name: str) -> str:
        return f"threshold above phase {name}"
