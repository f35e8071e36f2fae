"""Where the time went and what was learnt: stages as bars, the bottleneck in words, the loss."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import Qt
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
from hushpore.device.breakdown import (
    bottleneck,
    choices_line,
    memory_and_syncs,
    throughput,
    timing_record,
    timing_table,
)
from hushpore.viewer.forms.layout import Fold, fill
from hushpore.viewer.forms.rich_label import plain_label
from hushpore.viewer.results.saving import ask_and_save
from hushpore.viewer.running.curve import RATE, SLOWER, Curve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.device.trace import Trace


COLUMNS = ("stage", "total", "rate", "share")


class TimingPanel(Fold):
    """A folded table of stages and two curves; hidden until there is something to show."""

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
        shown = (self.curve, self.rate, self._table, self._bottleneck, self._used)
        for widget in (*shown, self._build_buttons()):
            self.add(widget)
        self.hide()

    @property
    def has_content(self) -> bool:
        """Whether there is a time to show."""
        return any(stage.seconds > 0 for stage in self._timing.stages.values())

    def begin(self, trace: Trace | None = None) -> None:
        """Forget the job before; `trace` collects the one that begins."""
        self._timing, self._trace = Timing(), trace
        self._save_trace.setEnabled(trace is not None)
        self.curve.clear()
        self.rate.clear()
        self.hide()

    def show_timing(self, timing: Timing) -> None:
        """Show where the time of a running job went so far."""
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
        # which optimisations were used, and why
        self._used.setToolTip(choices_line(timing).replace("; ", "\n"))
        longest = max(timing.stages, key=lambda name: timing.stages[name].seconds)
        share = round(100 * timing.stages[longest].seconds / total)
        self.set_title(f"Timing: {readable_seconds(total)}, {share} % in {longest}")

    def show_totals(self, seconds: Mapping[str, float]) -> None:
        """Show the seconds by stage of a finished job, beside what is known of its stages."""
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
        """Return what is shown as JSON values, the curves included."""
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
        # narrow docks have room for the bar too
        bar = QProgressBar(format="%p %", minimumWidth=36)
        cells = QLabel(name), QLabel(alignment=right), QLabel(alignment=right), bar
        row = self._grid.rowCount()
        for column, widget in enumerate(cells):
            self._grid.addWidget(widget, row, column)
        self._rows[name] = cells
        return cells

    def _build_buttons(self) -> QWidget:
        tip = "Save a time line that https://ui.perfetto.dev opens."
        self._save_trace = QPushButton(
            "Trace …", toolTip=tip, clicked=self._save_time_line, enabled=False
        )
        tip = "Save all times and the curve as JSON."
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

    def _save_time_line(self) -> None:
        if self._trace is not None:
            ask_and_save(self, "Save trace", "trace", self._trace.to_dict)


def readable_seconds(seconds: float) -> str:
    """Write a time so that it can be read at a glance: 2.4 ms, 3.1 s, 12 min."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.3g} min"
