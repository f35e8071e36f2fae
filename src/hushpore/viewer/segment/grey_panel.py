"""The histogram of grey values with thresholds as lines, and the panels with it and a preview."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from napari.layers import Image
from napari.utils.theme import get_theme
from qtpy.QtCore import QPointF, QRectF, Qt, QTimer, Signal
from qtpy.QtGui import QColor, QPainter, QPen, QPolygonF
from qtpy.QtWidgets import QCheckBox, QWidget

from hushpore.base.errors import HushporeError
from hushpore.base.events import Progress, mapped
from hushpore.base.formatting import readable_grey
from hushpore.figures.drawing import SCREEN, round_step
from hushpore.viewer.forms.layout import Plot, plain_label
from hushpore.viewer.running.previews import SlicePreview
from hushpore.viewer.running.task import capture
from hushpore.viewer.running.worker import LatestOnlyWorker

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.arrays import Float64s, Mask
    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.pores.preview import GreySurvey, SliceVoid
    from hushpore.pores.settings import PoreSettings
    from hushpore.scan.histogram import Histogram
    from hushpore.viewer.forms.choices import LayerChoice
    from hushpore.viewer.forms.form import SettingsForm
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.task import Target


#: Names of the lines, which are those of the settings.
THRESHOLD, STRICT = "threshold", "hysteresis"

#: Colours of void by the threshold only, and by the stricter threshold; also in the preview.
WEAK_COLOUR, VOID_COLOUR = SCREEN[:2]

#: Height of the widget in pixels.
HEIGHT = 96

#: Pixels around the bars.
MARGIN = 8.0

#: Minimum width of a bar in pixels.
_BAR = 2

#: Number of steps per arrow key with Shift or Ctrl.
_LEAP = 10


class GreyHistogram(Plot):
    """A histogram of grey values, with thresholds as lines.

    Lines are moved by dragging, by clicking at the new position, or with the arrow keys.

    A subclass may change the colours of the bars and the names of the lines.

    `lines`: grey values by the names of the lines. `limits`: the grey values at both ends. `step`:
    the step of an arrow key.
    """

    #: Emitted with the name of a moved line and its new grey value.
    moved = Signal(str, float)

    TIP = (
        "Histogram of the grey values; void is coloured. Drag a line or click to set the "
        "threshold, or use the left and right keys (Shift: larger steps). Up and down select the "
        "other line"
    )

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer, HEIGHT)
        self.step, self._is_log = 1.0, False
        self._grabbed: str | None = None
        self._active = THRESHOLD
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.show_lines({})
        self.show_greys(None)

    # ---- contents

    def show_greys(self, greys: GreySurvey | None) -> None:
        """Show the grey values of another volume; None clears the histogram."""
        self._greys = greys
        self._counted = None if greys is None else greys.histogram
        self.limits = (0.0, 1.0) if greys is None else greys.limits
        self._refresh()

    def show_sample(self, histogram: Histogram | None) -> None:
        """Draw the bars of the sample alone, between the same limits; None: of all voxels."""
        if self._greys is not None:
            self._counted = self._greys.histogram if histogram is None else histogram
            self.update()

    def show_lines(
        self,
        lines: dict[str, float],
        *,
        bright: bool = False,
        mark: tuple[str, float] | None = None,
        band: tuple[float, float] | None = None,
        reason: str = "",
    ) -> None:
        """Set the lines and marks.

        `lines`: grey values by the names of the lines; `STRICT` only together with `THRESHOLD`.
        `bright`: whether void is bright. `mark`: label and grey value of the automatic threshold,
        for comparison. `band`: range of plausible thresholds. `reason`: why no lines are
        shown.
        """
        self.lines, self._bright, self._mark, self._reason = lines, bright, mark, reason
        self._band = band
        if self._active not in lines:
            self._active = next(iter(lines), THRESHOLD)
        self._refresh()

    def rounded(self, value: float) -> float:
        """Return a grey value rounded to whole steps."""
        return round(round(value / self.step) * self.step, 9)

    def set_log(self, is_log: bool) -> None:
        """Set whether the counts are drawn on a logarithmic scale."""
        self._is_log = is_log
        self.update()

    def _named(self, word: str, value: float) -> str:
        unit = "" if self._greys is None else self._greys.unit
        return f"{word} {readable_grey(value)} {unit}".strip()

    # ---- input

    def mousePressEvent(self, event: Any) -> None:  # noqa: N802
        """Grab the nearest line and move it to the pointer."""
        if event.button() == Qt.MouseButton.LeftButton and self.lines:
            x = event.position().x()
            self._grabbed = min(self.lines, key=lambda name: abs(self._x(self.lines[name]) - x))
            self._active = self._grabbed
            self._move(self._grabbed, self._value_at(x))

    def mouseMoveEvent(self, event: Any) -> None:  # noqa: N802
        """Move the grabbed line."""
        if self._grabbed is not None:
            self._move(self._grabbed, self._value_at(event.position().x()))

    def mouseReleaseEvent(self, event: Any) -> None:  # noqa: N802
        """Release the line."""
        self._grabbed = None

    def keyPressEvent(self, event: Any) -> None:  # noqa: N802
        """Move the active line with left and right; activate another line with up and down."""
        way = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(event.key())
        if way is not None and self._active in self.lines:
            leap = event.modifiers() & (
                Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.ControlModifier
            )
            by = way * self.step * (_LEAP if leap else 1)
            self._move(self._active, self.lines[self._active] + by)
        elif event.key() in (Qt.Key.Key_Up, Qt.Key.Key_Down) and len(self.lines) > 1:
            names, on = list(self.lines), 1 if event.key() == Qt.Key.Key_Up else -1
            self._active = names[(names.index(self._active) + on) % len(names)]
            self._refresh()
        else:
            super().keyPressEvent(event)

    def _move(self, name: str, value: float) -> None:
        low, high = self.limits
        self.moved.emit(name, min(max(value, low), high))

    # ---- drawing

    def _paint(self, painter: QPainter, text: QColor) -> None:
        """Draw bars, lines and numbers."""
        if self._greys is not None:
            self._paint_bars(painter, text)
            if self._band is not None:
                self._paint_band(painter, text, *self._band)
            self._paint_numbers(painter, text)
            if self._mark is not None and self.lines.get(THRESHOLD) != self._mark[1]:
                self._paint_mark(painter, text, *self._mark)
            for name, value in self.lines.items():
                self._paint_line(painter, text, name, value)
        if self._reason:
            painter.setPen(text)
            over = QRectF(self.rect()).adjusted(2, 2, -2, -2)
            centre = Qt.AlignmentFlag.AlignHCenter
            up = Qt.AlignmentFlag.AlignVCenter if self._greys is None else Qt.AlignmentFlag.AlignTop
            painter.drawText(over, centre | up, self._reason)

    def _paint_bars(self, painter: QPainter, text: QColor) -> None:
        assert self._counted is not None
        area = self._area()
        counts, edges = self._counted.bars(max(1, int(area.width()) // _BAR), self.limits)
        heights = np.log1p(counts) if self._is_log else counts
        heights = heights * (area.height() / max(float(heights.max()), 1e-9))
        # bars of at least one pixel, so that every level that occurs is visible
        heights = np.where(counts > 0, np.maximum(heights, 1.0), 0.0)
        pale = QColor(text)
        pale.setAlphaF(0.45)
        colours, kinds = self._kinds((edges[:-1] + edges[1:]) / 2, pale)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        ends = self._x(edges)
        for number, height in enumerate(heights):
            left, right = float(ends[number]), float(ends[number + 1])
            bar = QRectF(left, area.bottom() - height, max(right - left, 1.0), height)
            painter.fillRect(bar.intersected(area), colours[kinds[number]])
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, True)

    def _kinds(
        self, values: Float64s, pale: QColor
    ) -> tuple[list[QColor], npt.NDArray[np.integer[Any]]]:
        """Return the colours of bars, and the index of the colour of each grey value."""
        is_void = self._beyond(values, THRESHOLD)
        is_strict = self._beyond(values, STRICT) if STRICT in self.lines else is_void
        colours = [pale, QColor(WEAK_COLOUR), QColor(VOID_COLOUR)]
        return colours, np.where(is_strict, 2, is_void)

    def _beyond(self, values: Float64s, name: str) -> Mask:
        limit = self.lines.get(name, math.nan)
        return values > limit if self._bright else values <= limit

    def _paint_numbers(self, painter: QPainter, text: QColor) -> None:
        assert self._greys is not None
        area, line = self._area(), painter.fontMetrics().height()
        below = QRectF(area.left(), area.bottom() + 1, area.width(), line + 2)
        left, right = (readable_grey(round(end) if self.step >= 1 else end) for end in self.limits)
        painter.setPen(text)
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft, left)
        painter.drawText(below, Qt.AlignmentFlag.AlignRight, right)
        unit = self._greys.unit or "a.u."
        painter.drawText(below, Qt.AlignmentFlag.AlignHCenter, f"grey value ({unit})")

    def _paint_line(self, painter: QPainter, text: QColor, name: str, value: float) -> None:
        """Draw a line with its value above, inside the widget."""
        area, x = self._area(), float(self._x(value))
        is_inside = self.limits[0] <= value <= self.limits[1]
        x = min(max(x, area.left()), area.right())
        pen = QPen(text, 2.5 if name == self._active and self.hasFocus() else 1.5)
        pen.setStyle(Qt.PenStyle.SolidLine if is_inside else Qt.PenStyle.DashLine)
        painter.setPen(pen)
        painter.drawLine(QPointF(x, area.top() - 3), QPointF(x, area.bottom()))
        self._paint_label(painter, text, name, value, x)

    def _paint_label(
        self, painter: QPainter, text: QColor, name: str, value: float, x: float
    ) -> None:
        """Write the value of a line above it; the values of two lines side by side."""
        is_marked = name == THRESHOLD and self._mark is not None and self._mark[1] == value
        label = self._named(self._mark[0] if self._mark is not None and is_marked else "", value)
        metrics = painter.fontMetrics()
        width = metrics.horizontalAdvance(label)
        left = x - width / 2
        if STRICT in self.lines:
            # the label of each line on its own side
            left = x - width - 2 if (name == THRESHOLD) == self._bright else x + 2
        left = min(max(left, 2.0), self.width() - width - 2.0)
        painter.setPen(text)
        painter.drawText(QPointF(left, metrics.ascent() + 1), label)

    def _paint_band(self, painter: QPainter, text: QColor, low: float, high: float) -> None:
        """Shade the range of plausible thresholds."""
        area = self._area()
        left, right = (min(max(float(self._x(x)), area.left()), area.right()) for x in (low, high))
        shade = QColor(text)
        shade.setAlphaF(0.25)
        painter.fillRect(QRectF(left, area.top(), max(right - left, 1.0), area.height()), shade)

    def _paint_mark(self, painter: QPainter, text: QColor, word: str, value: float) -> None:
        """Mark the automatic threshold by a triangle with its name."""
        area, x = self._area(), float(self._x(value))
        if not area.left() <= x <= area.right():
            return
        tip = area.bottom() - 7
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(text)
        ends = [QPointF(x, tip), QPointF(x - 4, area.bottom()), QPointF(x + 4, area.bottom())]
        painter.drawPolygon(QPolygonF(ends))
        painter.setPen(text)
        metrics = painter.fontMetrics()
        label = self._named(word, value)
        width = metrics.horizontalAdvance(label)
        left = x + 6 if x + 6 + width < area.right() else x - 6 - width
        back = QColor(get_theme(self._viewer.theme).foreground.as_hex())
        back.setAlphaF(0.7)
        background = QRectF(left - 2, area.bottom() - metrics.height(), width + 4, metrics.height())
        painter.fillRect(background, back)
        painter.drawText(background, Qt.AlignmentFlag.AlignCenter, label)

    def _word(self, name: str) -> str:
        return {THRESHOLD: "threshold", STRICT: "hysteresis threshold"}[name]

    def _area(self) -> QRectF:
        line = float(self.fontMetrics().height()) + 4
        return QRectF(self.rect()).adjusted(MARGIN, line, -MARGIN, -line)

    def _x(self, value: Any) -> Any:
        low, high = self.limits
        area = self._area()
        return area.left() + area.width() * (value - low) / (high - low)

    def _value_at(self, x: float) -> float:
        low, high = self.limits
        area = self._area()
        share = (x - float(area.left())) / float(area.width())
        return low + (high - low) * min(max(share, 0.0), 1.0)

    def _refresh(self, event: Any = None) -> None:
        """Redraw, and update the tooltip and the text for screen readers."""
        self.update()
        values = [self._named(self._word(name), at) for name, at in self.lines.items()]
        self.setAccessibleName("Histogram of grey values: " + (", ".join(values) or self._reason))
        tip = self.TIP
        if len(values) > 1:
            tip += f" (now: {self._word(self._active)})"
        tip += "."
        if self._band is not None:
            low, high = (readable_grey(end) for end in self._band)
            tip += f" Shaded: {low} to {high}, plausible thresholds."
        self.setToolTip(tip if self.lines else self._reason or "Counting the grey values …")


class VoidPreview(SlicePreview):
    """A preview of the void in the slice on the screen."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer, "void", "void", (VOID_COLOUR, WEAK_COLOUR))

    def show(self, target: Target, settings: PoreSettings, greys: GreySurvey) -> None:
        """Start to show the void of a volume in the slice on the screen."""
        from hushpore.pores.preview import SliceVoid

        if not self.is_of(target):
            self.hide()
            self._void = SliceVoid(target.volume)
        self._follow(target, partial(_find, self._void, target, settings, greys))


def _find(
    void: SliceVoid,
    target: Target,
    settings: PoreSettings,
    greys: GreySurvey,
    index: tuple[int, ...],
) -> Job:
    yield from prepare_kernels(settings)
    phase = void.void_state(index, settings, greys)
    # a missing threshold is reported by the panel
    return np.zeros(target.volume.shape[-2:], np.uint8) if phase is None else phase


def prepare_kernels(settings: PoreSettings | None = None) -> Job:
    """Compile or load the kernels for settings, by default those of a newly opened form."""
    from hushpore.pores.job import prepare, warm_up_kind
    from hushpore.pores.settings import PoreSettings

    yield from prepare(warm_up_kind(settings or PoreSettings()))


class GreyPanel(QWidget):
    """A grey value histogram of the input layer, computed in a thread once per layer.

    `form`: the form that determines lines and preview. `preview`: preview of the settings in the
    slice on the screen, shown and hidden with the panel. `shown`: the check box for the preview.
    `greys`: the survey of the grey values, or None.
    """

    def __init__(
        self,
        viewer: Any,
        layers: LayerChoice,
        form: SettingsForm,
        histogram: GreyHistogram,
        preview: Any,
        shown: QCheckBox,
    ) -> None:
        super().__init__()
        self._viewer, self._layers, self._form = viewer, layers, form
        self.histogram, self.preview, self.shown = histogram, preview, shown
        self.greys: GreySurvey | None = None
        self._target: Target | None = None
        # counted values and their survey, by layer
        self._surveys: WeakKeyDictionary[Any, tuple[Any, GreySurvey]] = WeakKeyDictionary()
        self._log = QCheckBox(
            "Log", toggled=histogram.set_log,
            toolTip="Logarithmic counts, so that small peaks are visible beside large ones.",
        )  # fmt: skip
        for box in (shown, self._log):
            box.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._line = plain_label()
        self._line.hide()
        self._counting = LatestOnlyWorker("grey values")
        self._counting.returned.connect(self._counted)
        self._counting.failed.connect(self._failed)
        histogram.moved.connect(self._moved)
        shown.toggled.connect(self._shown_toggled)
        # an interval of 0 would end in the current turn
        self._removal_timer = QTimer(self, singleShot=True, interval=1)
        self._removal_timer.timeout.connect(partial(shown.setChecked, False))
        preview.dismissed.connect(partial(shown.setChecked, False))
        preview.message_changed.connect(self._say)
        layers.changed.connect(self.follow)
        form.changed.connect(self._show)

    @property
    def is_busy(self) -> bool:
        """Whether the histogram or the preview is being computed."""
        return bool(self._counting.is_busy or self.preview.is_busy)

    def follow(self) -> None:
        """Show the chosen layer; its grey values are counted in a thread if needed."""
        layer = self._layers.value
        is_grey = isinstance(layer, Image) and layer.dtype != np.bool_
        if not is_grey or self.parent() is not None:
            # shown before layout, the panel would open as a separate window
            self.setVisible(is_grey)
        self._tell_form(layer)
        labels = tuple(self._viewer.dims.axis_labels[-layer.ndim :]) if is_grey else ()
        try:
            target = capture(layer, labels) if is_grey else None
        except HushporeError:
            # the error is reported in the line of facts
            target = None
        if target is not None and self._shows(target.volume):
            # only its name or position has changed
            self._target = target
            self._show()
            return
        self._counting.cancel()
        self.preview.hide()
        self._target = target
        counted, greys = self._surveys.get(layer, (None, None)) if is_grey else (None, None)
        if target is None or counted is target.volume.data:
            self._set_survey(None if target is None else greys)
            return
        self._set_survey(None)
        self.histogram.show_lines({}, reason="Counting the grey values …")
        self._counting.submit(partial(count_greys, target.volume), (layer, target.volume))

    def remove_preview(self) -> None:
        """Switch the preview off in the next turn of the event loop, because it takes time."""
        self._removal_timer.start()

    def _shows(self, volume: Volume) -> bool:
        return self._target is not None and self._target.volume.data is volume.data

    # ---- results of the thread

    def _counted(self, tag: tuple[Any, Volume], greys: GreySurvey) -> None:
        layer, volume = tag
        self._surveys[layer] = (volume.data, greys)
        if self._shows(volume):
            self._set_survey(greys)

    def _failed(self, tag: tuple[Any, Volume], problem: Problem) -> None:
        if self._shows(tag[1]):
            self.histogram.show_lines({}, reason="No histogram")
            self._say(problem.message)

    def _set_survey(self, greys: GreySurvey | None) -> None:
        """Show the survey of a volume; None until it is computed."""
        self.greys = greys
        self.histogram.show_greys(greys)
        self._say("")
        if greys is not None:
            low, high = float(greys.range.low), float(greys.range.high)
            whole = np.asarray(greys.range.low).dtype.kind in "iu"
            self.histogram.step = 1.0 if whole else round_step((high - low) / 500)
        self._tell_greys()
        self._show()

    # ---- for subclasses

    def _tell_form(self, layer: Any) -> None:
        """Pass the kind of the chosen layer to the form."""
        raise NotImplementedError

    def _tell_greys(self) -> None:
        """Pass the survey of the grey values to the form."""

    def _show(self) -> None:
        """Update lines and preview from the form."""
        raise NotImplementedError

    def _moved(self, name: str, value: float) -> None:
        """Set the value of a moved line in the form."""
        raise NotImplementedError

    # ---- appearance

    def _shown_toggled(self, is_shown: bool) -> None:
        if is_shown:
            self._show()
        else:
            self.preview.hide()
            self._say("")

    def _say(self, text: str) -> None:
        self._line.setText(text)
        self._line.setVisible(bool(text))

    def hideEvent(self, event: Any) -> None:  # noqa: N802
        """Hide the preview with the panel."""
        super().hideEvent(event)
        self.preview.hide()

    def showEvent(self, event: Any) -> None:  # noqa: N802
        """Show the preview again."""
        super().showEvent(event)
        self._show()


def count_greys(volume: Volume) -> Job:
    """Count the grey values of a volume; returns a `GreySurvey`."""
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.preview import survey_greys

    yield from prepare_kernels()
    with KernelThreads() as threads:
        survey = survey_greys(volume, threads)
        return (yield from mapped(survey, lambda share: Progress("grey values", 0, 0, "", share)))
