"""The timing panel: time by stage, the bottleneck in words, curves of loss and rate."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from napari.utils.theme import get_theme
from qtpy.QtCore import QPointF, QRectF, Qt
from qtpy.QtGui import QColor, QPainter, QPen, QPolygonF
from qtpy.QtWidgets import (
    QApplication,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QSizePolicy,
    QWidget,
)

from hushpore.base.events import StageTime, Timing
from hushpore.device.timing import (
    bottleneck,
    choices_line,
    memory_and_syncs,
    throughput,
    timing_record,
    timing_table,
)
from hushpore.viewer.forms.layout import Fold, fill, plain_label
from hushpore.viewer.results.record_panel import ask_and_save

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hushpore.base.events import Metric
    from hushpore.device.timing import Trace


#: Maximum number of points kept; more than the width of the widget in pixels.
MAX_POINTS = 1024

#: Text and hint of a curve over steps.
LOSS = "{name} {value:.3g} after {step:,.0f} steps"
FLAT = "Once the curve is flat, further training changes the result little."

#: Text and hint of a curve over time.
RATE = "{value:.3g} {name} after {step:,.0f} s"
SLOWER = "A drop means that other programs are using the computer."

_MARGIN = 6.0


class Curve(QWidget):
    """A curve of one quantity over the steps of a job, in the colours of napari's theme.

    Neighbouring points of a long curve are averaged, so that its size is bounded. High values at
    the start are cut off, because later values matter more.

    `template`: text of the newest value, with ``name``, ``value`` and ``step``. `hint`: how to read
    the curve, for its tooltip.
    """

    def __init__(self, viewer: Any, template: str = LOSS, hint: str = FLAT) -> None:
        super().__init__()
        self._viewer, self._template, self._hint = viewer, template, hint
        self.setFixedHeight(100)
        viewer.events.theme.connect(self._repaint)
        self.clear()

    def clear(self) -> None:
        """Remove all points, and hide."""
        self._name, self._every = "", 1
        self.points: list[tuple[float, float]] = []
        self._waiting: list[tuple[float, float]] = []
        self.hide()

    def add(self, metrics: Iterable[Metric]) -> None:
        """Add metrics with the name of the first one."""
        for metric in metrics:
            self.add_point(metric.name, metric.step, metric.value)

    def add_point(self, name: str, step: float, value: float) -> None:
        """Add a point, unless its name differs or its value is not finite."""
        self._name = self._name or name
        if name != self._name or not math.isfinite(value):
            return
        if self.points and step <= self.points[-1][0]:
            # a resumed training repeats the steps after its checkpoint
            self.points = [point for point in self.points if point[0] < step]
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
        """Return the lowest and the highest value drawn."""
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
        area = QRectF(self.rect()).adjusted(_MARGIN, _MARGIN + line, -_MARGIN, -_MARGIN - line)
        if self.points:
            top = self.rect().adjusted(6, 2, -6, 0)
            painter.drawText(top, Qt.AlignmentFlag.AlignRight, self.text())
            area.setLeft(area.left() + self._paint_axes(painter, area))
            corners = self._polyline(area)
            painter.save()
            painter.setClipRect(area)
            painter.drawPolyline(QPolygonF(corners))
            painter.restore()
            # the newest point, which may be the only one
            painter.setBrush(QColor(theme.text.as_hex()))
            painter.drawEllipse(corners[-1], 2.0, 2.0)
        painter.end()

    def _paint_axes(self, painter: QPainter, area: QRectF) -> float:
        """Write the limits of both axes, and return the width of the numbers on the left."""
        metrics, align = painter.fontMetrics(), Qt.AlignmentFlag
        low, high = (f"{value:.3g}" for value in self.limits())
        wide = max(map(metrics.horizontalAdvance, (low, high))) + _MARGIN
        left = QRectF(area.left(), area.top(), wide - _MARGIN, area.height())
        painter.drawText(left, int(align.AlignRight | align.AlignTop), high)
        painter.drawText(left, int(align.AlignRight | align.AlignBottom), low)
        below = QRectF(area.left() + wide, area.bottom(), area.width() - wide, metrics.height())
        first, last = (f"{self.points[place][0]:,.0f}" for place in (0, -1))
        painter.drawText(below, int(align.AlignLeft), first)
        painter.drawText(below, int(align.AlignRight), last)
        painter.drawLine(QPointF(area.left() + wide, area.top()), below.topLeft())
        painter.drawLine(below.topLeft(), below.topRight())
        return float(wide)

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
    """Return the last step and the mean value of points."""
    return points[-1][0], sum(value for _, value in points) / len(points)


COLUMNS = ("stage", "total", "rate", "share")


class TimingPanel(Fold):
    """A folded table of stages and two curves; hidden while there is no timing."""

    def __init__(self, viewer: Any) -> None:
        super().__init__("Timing")
        self._timing = Timing()
        self._trace: Trace | None = None
        self.curve = Curve(viewer)
        self.rate = Curve(viewer, RATE, SLOWER)
        self._bottleneck = plain_label()
        self._table = QWidget()
        self._grid = QGridLayout(self._table)
        self._grid.setVerticalSpacing(2)
        self._grid.setHorizontalSpacing(6)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setColumnStretch(len(COLUMNS) - 1, 1)
        for column, text in enumerate(COLUMNS):
            self._grid.addWidget(QLabel(text), 0, column)
        self._rows: dict[str, tuple[QWidget, ...]] = {}
        self._used = plain_label()
        self.add(self.curve)
        self.add(self.rate)
        self.add(self._table)
        self.add(self._bottleneck)
        self.add(self._used)
        self.add(self._build_buttons())
        self.hide()

    @property
    def has_content(self) -> bool:
        """Whether there is timing to show."""
        return any(stage.seconds > 0 for stage in self._timing.stages.values())

    def begin(self, trace: Trace | None = None, resumes: bool = False) -> None:
        """Clear the panel for a new job.

        `trace`: the trace of the job. `resumes`: whether it goes on with the last one, so that its
        curve continues.
        """
        self._timing, self._trace = Timing(), trace
        self._save_trace.setEnabled(trace is not None)
        if not resumes:
            self.curve.clear()
        self.rate.clear()
        self.hide()

    def show_timing(self, timing: Timing) -> None:
        """Show the time by stage of a running job."""
        self._timing = timing
        total = sum(stage.seconds for stage in timing.stages.values())
        self.setVisible(total > 0)
        if total <= 0:
            return
        for name in [name for name in self._rows if name not in timing.stages]:
            for widget in self._rows.pop(name):
                widget.deleteLater()
        for name, stage in timing.stages.items():
            self._show_stage(name, stage, stage.seconds / total)
        self._bottleneck.setText(bottleneck(timing))
        used = memory_and_syncs(timing)
        self._used.setText(f"{used[:1].upper()}{used[1:]}." if used else "")
        self._used.setVisible(bool(used))
        # the chosen optimisations, with reasons
        self._used.setToolTip(choices_line(timing).replace("; ", "\n"))
        longest = max(timing.stages, key=lambda name: timing.stages[name].seconds)
        share = round(100 * timing.stages[longest].seconds / total)
        self.set_title(f"Timing: {readable_seconds(total)} ({longest} {share} %)")

    def show_totals(self, seconds: Mapping[str, float]) -> None:
        """Show the seconds by stage of a finished job."""
        known = self._timing.stages
        stages = {
            name: dataclasses.replace(known[name], seconds=total)
            if name in known
            else StageTime(1, total, total, total, total, total, total, total)
            for name, total in seconds.items()
        }
        elapsed = max(self._timing.elapsed, sum(seconds.values()))
        self.show_timing(dataclasses.replace(self._timing, stages=stages, elapsed=elapsed))

    def record(self) -> dict[str, Any]:
        """Return timing and curves as JSON values."""
        curves = {"curve": self.curve, "pace": self.rate}
        points = {name: [list(p) for p in curve.points] for name, curve in curves.items()}
        return {**timing_record(self._timing), **points}

    def _show_stage(self, name: str, stage: StageTime, share: float) -> None:
        _, total, rate, bar = self._rows.get(name) or self._add(name)
        total.setText(readable_seconds(stage.seconds))
        each = f"{readable_seconds(stage.p50)} each" if stage.count > 1 else ""
        rate.setText(throughput(stage) or each)
        bar.setValue(round(100 * share))
        text = f"{name}: {readable_seconds(stage.seconds)}"
        if stage.count > 1:
            text = (
                f"{name}: {stage.count:,} runs, the first {readable_seconds(stage.first)}, then "
                f"{readable_seconds(stage.p50)} (median), "
                f"{readable_seconds(stage.p95)} (95th percentile); "
                f"longest {readable_seconds(stage.worst)}"
            )
        for widget in (total, rate, bar):
            widget.setToolTip(text)

    def _add(self, name: str) -> tuple[QWidget, ...]:
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        # narrow enough for a narrow dock
        bar = QProgressBar(format="%p %", minimumWidth=36)
        cells = QLabel(name), QLabel(alignment=right), QLabel(alignment=right), bar
        row = self._grid.rowCount()
        for column, widget in enumerate(cells):
            self._grid.addWidget(widget, row, column)
        self._rows[name] = cells
        return cells

    def _build_buttons(self) -> QWidget:
        tip = "Save a trace for https://ui.perfetto.dev."
        self._save_trace = QPushButton(
            "Trace …", toolTip=tip, clicked=self._save_trace_file, enabled=False
        )
        tip = "Save timing and curves as JSON."
        buttons = (
            QPushButton("Copy", toolTip="Copy the table.", clicked=self._copy),
            QPushButton("Save …", toolTip=tip, clicked=self._save),
            self._save_trace,
        )
        for button in buttons:
            button.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        row = QWidget()
        fill(QHBoxLayout(row), *buttons)
        return row

    def _copy(self) -> None:
        QApplication.clipboard().setText(timing_table(self._timing))

    def _save(self) -> None:
        ask_and_save(self, "Save timings", "timings", self.record)

    def _save_trace_file(self) -> None:
        if self._trace is not None:
            ask_and_save(self, "Save trace", "trace", self._trace.to_dict)


def readable_seconds(seconds: float) -> str:
    """Return a time in a suitable unit: 2.4 ms, 3.1 s, 12 min."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.3g} min"
