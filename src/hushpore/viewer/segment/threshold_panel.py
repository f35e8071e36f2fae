"""The histogram above the form of pores, its lines in step with the form, and the void it makes."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from napari.layers import Image
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QCheckBox, QHBoxLayout, QVBoxLayout, QWidget
from superqt.utils import signals_blocked

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.events import Progress
from hushpore.base.volume import readable_percent
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.forms.rich_label import plain_label
from hushpore.viewer.running.latest_only import LatestOnlyWorker
from hushpore.viewer.running.target import capture
from hushpore.viewer.running.worker import calling
from hushpore.viewer.segment.grey_histogram import STRICT, THRESHOLD, GreyHistogram
from hushpore.viewer.segment.void_preview import VoidPreview, prepare_kernels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.pores.preview import GreySurvey
    from hushpore.pores.settings import PoreSettings
    from hushpore.viewer.forms.form import SettingsForm
    from hushpore.viewer.forms.layer_choice import LayerChoice
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.target import Target

#: How far apart the two lines are at first, as a share of the range of grey values.
_APART = 0.1

#: What stands in place of the lines, of a local threshold.
_LOCAL = "No line to drag: each voxel has its own threshold"


class ThresholdPanel(QWidget):
    """Shows the grey values of the chosen layer; moving a line sets the threshold in the form.

    Values are counted and the void is found in threads. What is in the form counts: a line is
    where the form says, whoever put it there.

    `form`: of `PoreSettings`. `greys`: what is known of the grey values of the chosen layer.
    """

    def __init__(self, viewer: Any, layers: LayerChoice, form: SettingsForm) -> None:
        super().__init__()
        self._viewer, self._layers, self._form = viewer, layers, form
        self._target: Target | None = None
        self.greys: GreySurvey | None = None
        self._threshold: Any = form[THRESHOLD]
        self._strict: Any = form[STRICT]
        self._method = "otsu"
        # of the newest result with intervals: the values, the threshold, those as good as it
        self._band: tuple[Any, float, tuple[float, float]] | None = None
        # by layer: the values that were counted, and what was found
        self._surveys: WeakKeyDictionary[Any, tuple[Any, GreySurvey]] = WeakKeyDictionary()
        self.preview = VoidPreview(viewer)
        self._counting = LatestOnlyWorker("grey values")
        self._finding = LatestOnlyWorker("threshold")
        self._build()
        self._counting.returned.connect(self._counted)
        self._counting.failed.connect(self._failed)
        self._finding.returned.connect(self._found)
        self.preview.dismissed.connect(partial(self.show_void, False))
        self.preview.message_changed.connect(self._say)
        layers.changed.connect(self.follow)
        form.changed.connect(self._show)
        self.follow()

    @property
    def is_busy(self) -> bool:
        """Whether something is being counted, found or painted."""
        return self._counting.is_busy or self._finding.is_busy or self.preview.is_busy

    def follow(self) -> None:
        """Count the grey values of the layer that is chosen now."""
        layer = self._layers.value
        is_grey = isinstance(layer, Image) and layer.dtype != np.bool_
        self.setVisible(is_grey)
        self._form.know(is_void=layer is not None and not is_grey)
        labels = tuple(self._viewer.dims.axis_labels[-layer.ndim :]) if is_grey else ()
        try:
            target = capture(layer, labels) if is_grey else None
        except HushporeError:
            # said in the line of facts
            target = None
        if target is not None and self._shows(target.volume):
            # its name or place has changed
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
        low, high = layer.contrast_limits
        self._threshold.suggest((low + high) / 2)
        self._counting.submit(partial(count_greys, target.volume), (layer, target.volume))

    def show_void(self, is_shown: bool) -> None:
        """Show the void on the slice on the screen, or none."""
        self._void.setChecked(is_shown)

    def show_band(self, volume: Volume, totals: Mapping[str, Any]) -> None:
        """Shade the thresholds that a result says cannot be told from its own, while that is set.

        `volume`: that the result is of. `totals`: of its record; without intervals none is shaded.
        """
        self._band = None
        if "threshold_low" in totals:
            ends = totals["threshold_low"], totals["threshold_high"]
            self._band = volume.data, totals["threshold"], ends
        self._show()

    def place_after(self, before: QWidget) -> None:
        """Have the tab key come here from another widget of the window."""
        for widget in (self.histogram, self._void, self._hysteresis, self._log):
            QWidget.setTabOrder(before, widget)
            before = widget

    def _shows(self, volume: Volume) -> bool:
        return self._target is not None and self._target.volume.data is volume.data

    # ---- what comes from the threads

    def _counted(self, tag: tuple[Any, Volume], greys: GreySurvey) -> None:
        layer, volume = tag
        self._surveys[layer] = (volume.data, greys)
        if self._shows(volume):
            self._set_survey(greys)

    def _failed(self, tag: tuple[Any, Volume], problem: Problem) -> None:
        if self._shows(tag[1]):
            self.histogram.show_lines({}, reason="No histogram")
            self._say(problem.message)

    def _found(self, tag: object, found: object) -> None:
        self._form.know(greys=self.greys)
        self._show()

    def _set_survey(self, greys: GreySurvey | None) -> None:
        """Show the grey values of a volume, once they are known."""
        self.greys = greys
        self.histogram.show_greys(greys)
        self._say("")
        if greys is not None:
            low, high = float(greys.range.low), float(greys.range.high)
            whole = np.asarray(greys.range.low).dtype.kind in "iu"
            step = 1.0 if whole else round_step((high - low) / 500)
            self.histogram.step = step
            self._threshold.suit(step, greys.unit)
            self._strict.suit(step, greys.unit, (low, high))
        self._form.know(greys=greys)
        self._show()

    # ---- in step with the form

    def _show(self) -> None:
        """Let lines, check boxes and void be as the form says."""
        settings = self._settings()
        if self.greys is None or settings is None:
            return
        found = self.greys.known(settings)
        if isinstance(settings.threshold, str):
            self._method = settings.threshold
        if not self.greys.is_known(settings):
            self._finding.submit(partial(calling, self.greys.find, settings))
            return
        self._show_lines(settings, found)
        with_line = isinstance(found, float)
        if isinstance(settings.threshold, str) and isinstance(found, float):
            # a number of one's own begins at what the method found
            self._threshold.suggest(found)
        with signals_blocked(self._hysteresis):
            self._hysteresis.setChecked(settings.hysteresis is not None)
        self._hysteresis.setEnabled(with_line)
        self._hysteresis.setToolTip(_HYSTERESIS if with_line else f"{_LOCAL}.")
        if self._void.isChecked() and self._target is not None:
            self.preview.show(self._target, settings, self.greys)

    def _show_lines(self, settings: PoreSettings, found: float | InputError | None) -> None:
        assert self.greys is not None
        bright = settings.pores_are == "bright"
        if not isinstance(found, float):
            reason = _LOCAL if found is None else f"{self._named()} finds no threshold"
            self.histogram.show_lines({}, bright=bright, reason=reason)
            return
        lines = {THRESHOLD: found}
        if settings.hysteresis is not None:
            lines[STRICT] = settings.hysteresis
        try:
            # what the method that was chosen last finds, as far as it is known
            method = type(settings).of({**settings.to_dict(), "threshold": self._method})
            automatic = self.greys.known(method)
        except InputError:
            automatic = None
        mark = (self._named(), automatic) if isinstance(automatic, float) else None
        self.histogram.show_lines(lines, bright=bright, mark=mark, band=self._band_at(found))

    def _band_at(self, threshold: float) -> tuple[float, float] | None:
        """Return what is shaded: nothing where the threshold is another than that of the result."""
        if self._band is None or self._target is None:
            return None
        values, own, ends = self._band
        is_own = values is self._target.volume.data and math.isclose(own, threshold, rel_tol=1e-3)
        return ends if is_own else None

    def _named(self) -> str:
        """Return the method that was chosen last, as the form calls it."""
        return str(self._threshold.option.in_words(self._method))

    def _moved(self, name: str, value: float) -> None:
        self._void.setChecked(True)
        self._form[name].value = self.histogram.rounded(value)

    def _choose_two(self, are_two: bool) -> None:
        """Begin with a stricter threshold, or drop it."""
        lines, settings = self.histogram.lines, self._settings()
        if self.greys is None or settings is None or THRESHOLD not in lines:
            return
        low, high = self.histogram.limits
        way = 1 if settings.pores_are == "bright" else -1
        strict = min(max(lines[THRESHOLD] + way * _APART * (high - low), low), high)
        self._form[STRICT].value = self.histogram.rounded(strict) if are_two else None

    def _settings(self) -> PoreSettings | None:
        try:
            return cast("PoreSettings", self._form.value)
        except InputError:
            return None

    # ---- how it looks

    def _build(self) -> None:
        self.histogram = GreyHistogram(self._viewer)
        self.histogram.moved.connect(self._moved)
        self._void = QCheckBox(
            "Show void", toggled=self._void_toggled,
            toolTip="Paint the void on the slice on the screen as this threshold makes it, without "
            "air around the sample where that is left out; before open void is told from closed. "
            "Moving a line switches it on, Run switches it off.",
        )  # fmt: skip
        self._hysteresis = QCheckBox("Hysteresis", toolTip=_HYSTERESIS, toggled=self._choose_two)
        self._log = QCheckBox(
            "Log", toggled=self.histogram.set_log,
            toolTip="A logarithmic scale of counts: small peaks are seen beside large ones.",
        )  # fmt: skip
        boxes = (self._void, self._hysteresis, self._log)
        for box in boxes:
            box.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._line = plain_label()
        self._line.hide()
        row = fill(QHBoxLayout(), *boxes, None)
        fill(QVBoxLayout(self), self.histogram, row, self._line, spacing=4)

    def _void_toggled(self, is_shown: bool) -> None:
        if is_shown:
            self._show()
        else:
            self.preview.hide()
            self._say("")

    def _say(self, text: str) -> None:
        """Say what there is to be said of preview and histogram, or that it is of a sample."""
        if not text and self.greys is not None and self.greys.share < 1:
            text = (
                f"Counted here: {readable_percent(self.greys.share)} of the voxels, in slices from "
                "all over the scan; Run looks at all of them."
            )
        self._line.setText(text)
        self._line.setVisible(bool(text))

    def hideEvent(self, event: Any) -> None:  # noqa: N802
        """Take the void away with the panel."""
        super().hideEvent(event)
        self.preview.hide()

    def showEvent(self, event: Any) -> None:  # noqa: N802
        """Bring it back."""
        super().showEvent(event)
        self._show()


#: What the second line is for.
_HYSTERESIS = (
    "A second line for a second, stricter threshold (Hysteresis threshold, under More): void is "
    "kept only where a connected part of it passes this one too, which leaves out specks of noise."
)


def count_greys(volume: Volume) -> Job:
    """Count the grey values of a volume; returns a `GreySurvey`."""
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.preview import survey_greys

    yield from prepare_kernels()
    with KernelThreads() as threads:
        survey = survey_greys(volume, threads)
        while True:
            try:
                share = next(survey)
            except StopIteration as end:
                return end.value
            yield Progress("grey values", 0, 0, "", share)


def round_step(size: float) -> float:
    """Return the largest of 1, 2 or 5 times a power of ten that is not above a size."""
    power = 10.0 ** math.floor(math.log10(size)) if size > 0 else 1.0
    return max(step * power for step in (1, 2, 5) if step * power <= size * (1 + 1e-9) or step == 1)
