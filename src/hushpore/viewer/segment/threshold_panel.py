"""The histogram above the form of pores, its lines in step with the form, and the void it makes."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from napari.layers import Image
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QCheckBox, QHBoxLayout, QVBoxLayout, QWidget
from superqt.utils import signals_blocked

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_percent
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.running.worker import LatestOnlyWorker, calling
from hushpore.viewer.segment.grey_histogram import STRICT, THRESHOLD, GreyHistogram
from hushpore.viewer.segment.grey_panel import GreyPanel, VoidPreview

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings
    from hushpore.viewer.forms.form import SettingsForm
    from hushpore.viewer.forms.layer_choice import LayerChoice

#: How far apart the two lines are at first, as a share of the range of grey values.
_APART = 0.1

#: What stands in place of the lines, of a local threshold.
_LOCAL = "No line to drag: each voxel has its own threshold"


class ThresholdPanel(GreyPanel):
    """Shows the grey values of the chosen layer; moving a line sets the threshold in the form.

    The void is found in a thread too.

    `form`: of `PoreSettings`.
    """

    def __init__(self, viewer: Any, layers: LayerChoice, form: SettingsForm) -> None:
        shown = QCheckBox(
            "Show void",
            toolTip="Paint the void on the slice on the screen as this threshold makes it, without "
            "air around the sample where that is left out; before open void is told from closed. "
            "Moving a line switches it on, Run switches it off.",
        )  # fmt: skip
        super().__init__(viewer, layers, form, GreyHistogram(viewer), VoidPreview(viewer), shown)
        self._threshold: Any = form[THRESHOLD]
        self._method = "otsu"
        # of the newest result with intervals: the values, the threshold, those as good as it
        self._band: tuple[Any, float, tuple[float, float]] | None = None
        self._finding = LatestOnlyWorker("threshold")
        self._finding.returned.connect(self._found)
        self._hysteresis = QCheckBox("Hysteresis", toolTip=_HYSTERESIS, toggled=self._choose_two)
        self._hysteresis.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        row = fill(QHBoxLayout(), self.shown, self._hysteresis, self._log, None)
        fill(QVBoxLayout(self), self.histogram, row, self._line, spacing=4)
        self.follow()

    @property
    def is_busy(self) -> bool:
        """Whether something is being counted, found or painted."""
        return super().is_busy or self._finding.is_busy

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
        for widget in (self.histogram, self.shown, self._hysteresis, self._log):
            QWidget.setTabOrder(before, widget)
            before = widget

    # ---- what is known of the layer

    def _tell_form(self, layer: Any) -> None:
        is_grey = isinstance(layer, Image) and layer.dtype != np.bool_
        self._form.know(is_void=layer is not None and not is_grey)
        if is_grey and layer not in self._surveys:
            # until its values are counted
            self._threshold.suggest(sum(layer.contrast_limits) / 2)

    def _found(self, tag: object, found: object) -> None:
        self._form.know(greys=self.greys)
        self._show()

    def _tell_greys(self) -> None:
        if self.greys is not None:
            ends = float(self.greys.range.low), float(self.greys.range.high)
            self._threshold.suit(self.histogram.step, self.greys.unit)
            self._form[STRICT].suit(self.histogram.step, self.greys.unit, ends)
        self._form.know(greys=self.greys)

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
        if self.shown.isChecked() and self._target is not None:
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
        self.shown.setChecked(True)
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

    def _say(self, text: str) -> None:
        """Say what there is to be said of preview and histogram, or that it is of a sample."""
        if not text and self.greys is not None and self.greys.share < 1:
            text = (
                f"Counted here: {readable_percent(self.greys.share)} of the voxels, in slices from "
                "all over the scan; Run looks at all of them."
            )
        super()._say(text)


#: What the second line is for.
_HYSTERESIS = (
    "A second line for a second, stricter threshold (Hysteresis threshold, under More): void is "
    "kept only where a connected part of it passes this one too, which leaves out specks of noise."
)
