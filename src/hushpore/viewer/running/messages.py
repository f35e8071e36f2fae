"""What is under Run: result or problem, hint, notes and timing, kept with their scan."""

from __future__ import annotations

import dataclasses
import html
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QPointF, QRectF, Qt, QUrl, Signal
from qtpy.QtGui import QColor, QDesktopServices, QPainter, QPen, QPolygonF
from qtpy.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from hushpore.base.events import StageTime, Timing, by_importance
from hushpore.base.formatting import readable_count
from hushpore.device.timing import (
    bottleneck,
    choices_line,
    memory_and_syncs,
    throughput,
    timing_record,
    timing_table,
)
from hushpore.viewer.forms.layout import (
    CROP,
    FLATTEN,
    Fold,
    Plot,
    RichLabel,
    advice_linked,
    fill,
    link,
    plain_label,
    sign,
    unbroken,
)
from hushpore.viewer.layers.conversion import identity, scan_of
from hushpore.viewer.results.record_panel import SAVE_RESULT, ask_and_save
from hushpore.viewer.running.problem import notify_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hushpore.base.events import Metric, Note
    from hushpore.device.timing import Trace
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.task import Target


#: Maximum number of points kept; more than the width of the widget in pixels.
MAX_POINTS = 1024

#: Text and hint of a curve over steps.
LOSS = "{name} {value:.3g} after {step:,.0f} steps"
FLAT = "Once the curve is flat, further training changes the result little."

#: Text and hint of a curve over time.
RATE = "{value:.3g} {name} after {step:,.0f} s"
SLOWER = "A drop means that other programs are using the computer."

_MARGIN = 6.0


class Curve(Plot):
    """A curve of one quantity over the steps of a job, in the colours of napari's theme.

    Neighbouring points of a long curve are averaged, so that its size is bounded. High values at
    the start are cut off, because later values matter more.

    `template`: text of the newest value, with ``name``, ``value`` and ``step``. `hint`: how to read
    the curve, for its tooltip.
    """

    def __init__(self, viewer: Any, template: str = LOSS, hint: str = FLAT) -> None:
        super().__init__(viewer, 100)
        self._template, self._hint = template, hint
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

    def _paint(self, painter: QPainter, text: QColor) -> None:
        """Draw the curve, its newest value and the steps."""
        painter.setPen(QPen(text, 1.5))
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
            painter.setBrush(text)
            painter.drawEllipse(corners[-1], 2.0, 2.0)

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


def _mean(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the last step and the mean value of points."""
    return points[-1][0], sum(value for _, value in points) / len(points)


_HEAD = "<tr><th>stage</th><th>total</th><th>rate</th><th>share</th></tr>"


class TimingPanel(Fold):
    """A folded table of stages and two curves; hidden while there is no timing."""

    def __init__(self, viewer: Any) -> None:
        super().__init__("Timing")
        self._timing = Timing()
        self._trace: Trace | None = None
        self.curve = Curve(viewer)
        self.rate = Curve(viewer, RATE, SLOWER)
        self._bottleneck = plain_label()
        # a narrow dock breaks the rates before their units
        self._table = QLabel(textFormat=Qt.TextFormat.RichText, wordWrap=True)
        self._used = plain_label()
        shown = self.curve, self.rate, self._table, self._bottleneck, self._used
        for part in (*shown, self._build_buttons()):
            self.add(part)
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
        rows = "".join(_row(name, stage, total) for name, stage in timing.stages.items())
        self._table.setText(f'<table cellspacing="2">{_HEAD}{rows}</table>')
        self._table.setToolTip("\n".join(_runs(*each) for each in timing.stages.items()))
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


def _row(name: str, stage: StageTime, total: float) -> str:
    """Return total, rate and share of a stage as HTML."""
    each = f"{readable_seconds(stage.p50)} each" if stage.count > 1 else ""
    share = f"{100 * stage.seconds / total:.0f} %"
    cells = readable_seconds(stage.seconds), throughput(stage) or each, share
    numbers = "".join(f'<td align="right">&nbsp;{unbroken(text)}</td>' for text in cells)
    return f"<tr><td>{html.escape(name)}</td>{numbers}</tr>"


def _runs(name: str, stage: StageTime) -> str:
    """Return the times of the runs of a stage in words."""
    if stage.count <= 1:
        return f"{name}: {readable_seconds(stage.seconds)}"
    return (
        f"{name}: {stage.count:,} runs, the first {readable_seconds(stage.first)}, then "
        f"{readable_seconds(stage.p50)} (median), {readable_seconds(stage.p95)} (95th percentile); "
        f"longest {readable_seconds(stage.worst)}"
    )


def readable_seconds(seconds: float) -> str:
    """Return a time in a suitable unit: 2.4 ms, 3.1 s, 12 min."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.3g} min"


#: Page that a link opens.
RECORD = "Record"

#: Pages that show the pores of a result, and the links that open them.
RESULT_WIDGETS = {"Table": "Open results table", "Plots": "Plots"}

#: Link that shows the last preview of a cancelled run.
SHOW = "show"


@dataclass(frozen=True)
class Message:
    """A message under Run and the scan that it is about."""

    text: str  # HTML
    scan: str  # see `scan_of`
    layer: str  # `identity` of its layer
    name: str = ""  # of the layer; shown if another layer of the scan is chosen
    is_of_run: bool = True  # whether remarks of the run and timing belong to it
    remarks: tuple[Note, ...] = ()  # on the result


class RunMessages:
    """The message about the last run and a hint about the chosen scan, shown for their scan only.

    `result`, `remarks`, `timing`: the widgets. `message`: the message about the last run, or None.
    `scan`: the scan of the chosen layer.
    """

    def __init__(self, viewer: Any) -> None:
        self.result, self.remarks = ResultMessage(viewer), RemarkList(viewer)
        self.timing = TimingPanel(viewer)
        self.message: Message | None = None
        self.scan = ""
        self._of_run: tuple[Note, ...] = ()
        self._hint: Message | None = None
        self._layer = ""

    def clear(self) -> None:
        """Clear all messages except the timing."""
        self.message = self._hint = None
        self.result.say("")
        self.remarks.show_remarks(())

    def choose(self, layer: Any) -> None:
        """Set the chosen layer and its scan; None leaves the scan unchanged."""
        self._layer = "" if layer is None else identity(layer)
        self.scan = self.scan if layer is None else scan_of(layer)

    def say(self, text: str, target: Target, remarks: tuple[Note, ...] = ()) -> None:
        """Keep the message about a run, as HTML, and the remarks on its result."""
        name = html.escape(target.volume.name)
        self.message = Message(text, target.scan, target.layer, name, remarks=remarks)
        # keep the notes shown during the run
        self._of_run = self.remarks.remarks

    def say_problem(self, problem: Problem, target: Target | None) -> None:
        """Show a problem; without a target it refers to the chosen layer."""
        self.result.show_problem(problem)
        if target is not None:
            self.say(self.result.html, target)
        elif self._layer:
            self.message = Message(self.result.html, self.scan, self._layer)

    def say_here(self, text: str, scan: str, remarks: tuple[Note, ...]) -> None:
        """Replace the message about a scan, or keep one for the chosen layer."""
        if self.message is not None and self.message.scan == scan == self.scan:
            self.message = replace(self.message, text=text, remarks=remarks)
        else:
            here = self.scan, self._layer
            self.message = Message(text, *here, is_of_run=False, remarks=remarks)

    def hint(self, text: str) -> None:
        """Show a hint about the chosen scan above the message; an empty text removes it."""
        self._hint = Message(text, self.scan, self._layer) if text else None

    def of_result(
        self, outcome: Any, next_steps: Mapping[str, str], more: Sequence[str] = ()
    ) -> str:
        """Return the headline of a result as HTML, with links to the next steps below it.

        `next_steps`: widgets, and the links that open them. `more`: further links.
        """
        opened = [link(name, words) for name, words in next_steps.items()]
        links = [*opened, link("record", RECORD), link("save", SAVE_RESULT), *more]
        return f"{headline_html(outcome)}<br>{' · '.join(links)}"

    def of_cancel(self, name: str, has_preview: bool, more: str) -> str:
        """Return the message about a cancelled job as HTML.

        `name`: of the layer. `has_preview`: whether its last preview is kept, as a hidden layer.
        `more`: further links.
        """
        links = [link(SHOW, "Show last preview")] if has_preview else []
        links += [more] if more else []
        return f"Cancelled; {html.escape(name)} is unchanged. {' · '.join(links)}".rstrip()

    def show(self) -> None:
        """Show the message about the chosen scan, with the layer's name if another is chosen."""
        message = self.message
        has_message = message is not None and message.scan == self.scan and bool(self._layer)
        text, is_of_run = "", False
        if message is not None and has_message:
            text, is_of_run = message.text, bool(message.text) and message.is_of_run
            if text and message.name and message.layer != self._layer:
                text = f"{message.name}: {text}"
        if self._hint is not None and self._hint.scan == self.scan:
            text = "<br>".join(filter(None, (self._hint.text, text)))
        self.result.say(text)
        of_result = message.remarks if message is not None and has_message else ()
        self.remarks.show_remarks([*of_result, *(self._of_run if is_of_run else ())])
        self.timing.setVisible(is_of_run and self.timing.has_content)


def headline_html(outcome: Any) -> str:
    """Return the headline of a result as HTML, in bold."""
    return f"<b>{html.escape(outcome.headline)}</b>"


#: Link that copies the details of a problem.
COPY = "copy"


#: Link that chooses a remedy; followed by the number of its remark.
_REMEDY = "remedy "


#: Addresses in notes, for example of dask's dashboard.
_ADDRESS = re.compile(r"https?://[^\s<]+")


class ResultMessage(RichLabel):
    """The message about a result or a problem; the details of a problem can be copied."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer)
        self._details = ""
        self.linkActivated.connect(self._copy_details)

    def say(self, text: str) -> None:
        """Show a text in HTML; an empty one also ends `hold_height`."""
        if not text:
            self.setMinimumHeight(0)
        super().say(text)

    def hold_height(self) -> None:
        """Do not become lower with the next texts, so that widgets below keep their place."""
        self.setMinimumHeight(self.height())

    def show_problem(self, problem: Problem) -> None:
        """Show a problem here and as a notification."""
        self._details = problem.details
        message = advice_linked(html.escape(problem.message))
        text = f"{sign(not problem.expected)} {message}"
        if not problem.expected:
            text += " " + link(COPY, "Copy details")
        self.say(text)
        notify_problem(problem)

    def _copy_details(self, target: str) -> None:
        if target == COPY:
            QApplication.clipboard().setText(self._details)


class RemarkList(QWidget):
    """The remarks of a job as a list: the most important one visible, the others folded.

    Links choose a remedy or open a web address. Hidden while there are no remarks. `reword`: turns
    names of settings in a text into those of the form.
    """

    #: Emitted with the `Remedy` whose link was clicked.
    remedy_chosen = Signal(object)

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self.remarks: tuple[Note, ...] = ()
        self.reword: Callable[[str], str] = str
        self._first, self._others = RichLabel(viewer), RichLabel(viewer)
        self._fold = Fold("")
        self._fold.add(self._others)
        for label in (self._first, self._others):
            label.linkActivated.connect(self._follow)
        fill(QVBoxLayout(self), self._first, self._fold, spacing=2)
        self.show_remarks(())

    def text(self) -> str:
        """Return all remarks as HTML, the most important one first."""
        return "<br>".join(filter(None, (self._first.text(), self._others.text())))

    def show_remarks(self, remarks: Iterable[Note]) -> None:
        """Show remarks, the most important first; warnings have a sign."""
        self.remarks = by_importance(remarks)
        lines = [self._line(number, remark) for number, remark in enumerate(self.remarks)]
        count = max(len(lines) - 1, 0)
        self._first.say("".join(lines[:1]))
        self._others.say("<br>".join(lines[1:]))
        self._fold.set_title(readable_count(count, "more remark"))
        self._fold.setVisible(bool(count))
        self.setVisible(bool(lines))

    def _line(self, number: int, remark: Note) -> str:
        text = advice_linked(html.escape(self.reword(remark.message)))
        text = _ADDRESS.sub(lambda found: link(found[0], found[0]), text)
        if remark.remedy is not None:
            text += f" {link(f'{_REMEDY}{number}', remark.remedy.label)}"
        return f"{sign(False) if remark.warning else '•'} {text}"

    def _follow(self, target: str) -> None:
        if target.startswith(_REMEDY):
            self.remedy_chosen.emit(self.remarks[int(target.removeprefix(_REMEDY))].remedy)
        elif target not in (CROP, FLATTEN):
            QDesktopServices.openUrl(QUrl(target))
