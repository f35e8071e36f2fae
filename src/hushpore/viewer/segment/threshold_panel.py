"""The histogram above the form of pores, its preview of the void, and the search for the sample."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from napari.layers import Image
from qtpy.QtCore import QObject, Qt, QTimer, Signal
from qtpy.QtWidgets import QCheckBox, QHBoxLayout, QVBoxLayout, QWidget
from superqt.utils import signals_blocked

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.events import Progress, mapped
from hushpore.base.formatting import percent_digits, readable_percent
from hushpore.viewer.forms.layout import RichLabel, fill, link
from hushpore.viewer.running.task import capture
from hushpore.viewer.running.worker import LatestOnlyWorker, calling
from hushpore.viewer.segment.grey_panel import (
    STRICT,
    THRESHOLD,
    GreyHistogram,
    GreyPanel,
    VoidPreview,
    prepare_kernels,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.pores.preview import GreySurvey, SampleFinder, SampleGreys
    from hushpore.pores.settings import PoreSettings
    from hushpore.scan.sample import Kind
    from hushpore.viewer.forms.choices import LayerChoice
    from hushpore.viewer.forms.form import SettingsForm


#: Milliseconds for which settings must be left alone before the sample is searched again, so that
#: the search does not slow down a drag of the threshold.
PAUSE = 300

_NBSP = "\u00a0"

#: Settings that do not change the sample much: while it is searched again, the last one is shown.
_GRADUAL = ("threshold", "hysteresis", "otsu_classes")


class SampleSearch(QObject):
    """Finds the sample in a thread.

    `sample`: grey values of the sample; None if all voxels count, or until it is found.
    """

    #: Emitted when `sample` has changed.
    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.sample: SampleGreys | None = None
        self._finder: SampleFinder | None = None
        # plausible thresholds, and the shares of void at these
        self._range: tuple[tuple[float, float], list[float]] | None = None
        self._wanted: tuple[Volume, PoreSettings, GreySurvey] | None = None
        self._pause = QTimer(self, singleShot=True, interval=PAUSE, timeout=self._start)
        self._worker = LatestOnlyWorker("sample")
        self._worker.returned.connect(self._found)
        self._worker.failed.connect(self._failed)

    @property
    def is_busy(self) -> bool:
        """Whether the sample of the newest settings is not known yet."""
        return bool(self._pause.isActive() or self._worker.is_busy)

    def follow(self, volume: Volume | None, settings: PoreSettings, greys: GreySurvey) -> None:
        """Search the sample for settings, unless that is done already.

        `volume`: 2D or 3D, with its masks; None: there is nothing to search.
        """
        from hushpore.pores.preview import sample_settings

        used = None if volume is None else sample_settings(settings, greys)
        if volume is None or used is None:
            self.clear()
            return
        before = self._wanted
        is_same = before is not None and before[2] is greys and _masks(before[0]) == _masks(volume)
        if is_same and before is not None and before[1] == used:
            return
        self._worker.cancel()
        if not is_same:
            self._finder = None
        self._wanted = volume, used, greys
        if is_same and before is not None and _steady(before[1]) == _steady(used):
            self._pause.start()
            return
        self._show(None)
        self._start()

    def clear(self) -> None:
        """Forget the sample."""
        self._wanted = self._finder = None
        self._pause.stop()
        self._worker.cancel()
        self._show(None)

    def describe(
        self, settings: PoreSettings, greys: GreySurvey, ends: tuple[float, float] | None
    ) -> str:
        """Return two lines: what the histogram covers, and void at plausible thresholds.

        `ends`: range of these; None: there is none.
        """
        sample = self.sample
        where = "Whole scan"
        if greys.share < 1:
            where = f"{readable_percent(greys.share)} of the scan, in slices"
        if sample is not None and sample.excluded:
            where = f"Sample, in {sample.slices} slices" if sample.slices else "Sample"
            covered = f"{where}; {readable_percent(sample.excluded)} of the scan is exterior."
        elif sample is not None:
            covered = f"{where}; no exterior air found."
        elif (self._wanted and self.is_busy) or not greys.is_known(settings):
            covered = f"{where}; looking for exterior air …"
        elif settings.keeps_all:
            covered = f"{where}; exterior air counts as pore."
        else:
            covered = f"{where}."
        # a second line in any case, so that nothing below moves
        return f"{covered}\n{self._void_between(ends, settings, greys) if ends else _NBSP}"

    def _void_between(
        self, ends: tuple[float, float], settings: PoreSettings, greys: GreySurvey
    ) -> str:
        """Return the void at plausible thresholds; it stays as it is while a number is dragged."""
        if self._range is None or self._range[0] != ends or isinstance(settings.threshold, str):
            histogram = (self.sample or greys.of(settings)).histogram
            bright = settings.pores_are == "bright"
            self._range = ends, sorted(histogram.share_beyond(end, bright) for end in ends)
        least, most = (percent_digits(share) for share in self._range[1])
        return f"Plausible: void {least} to {most} %."

    def _start(self) -> None:
        if self._wanted is None:
            return
        volume, used, greys = self._wanted
        if self._finder is None:
            from hushpore.pores.preview import SampleFinder

            self._finder = SampleFinder(volume)
        self._worker.submit(partial(_find, self._finder, used, greys), self._wanted)

    def _found(self, tag: object, sample: SampleGreys) -> None:
        if tag is self._wanted:
            self._show(sample)

    def _failed(self, tag: object, problem: object) -> None:
        # Run reports it; until then shares are those of the whole scan
        if tag is self._wanted:
            self._show(None)

    def _show(self, sample: SampleGreys | None) -> None:
        if self.sample is None or sample is None:
            self._range = None
        self.sample = sample
        self.changed.emit()


def _steady(settings: PoreSettings) -> dict[str, Any]:
    return {key: value for key, value in settings.to_dict().items() if key not in _GRADUAL}


def _masks(volume: Volume) -> list[int]:
    return [id(volume.data), *map(id, volume.auxiliary.values())]


def _find(finder: SampleFinder, settings: PoreSettings, greys: GreySurvey) -> Job:
    from hushpore.pores.parallel import KernelThreads

    yield from prepare_kernels(settings)
    with KernelThreads() as threads:
        search = finder.find(settings, greys, threads)
        return (yield from mapped(search, lambda share: Progress("sample", 0, 0, "", share)))


#: Initial distance of the two lines, as a share of the shown range.
_APART = 0.1

#: Setting of the measured porosity, and target of the link that clears it.
MEASURED, _CLEAR = "measured_porosity", "clear"

#: Shown instead of lines for a local threshold.
_LOCAL = "Local threshold: no line to drag"


class ThresholdPanel(GreyPanel):
    """The histogram of the input layer; moving a line sets the threshold in the form.

    Thresholds are computed in a thread.

    `form`: the form of `PoreSettings`.
    """

    #: Emitted when the values of the layer turn out not to look like grey values.
    kind_found = Signal()

    _message = ""  # shown in place of what the histogram covers

    def __init__(self, viewer: Any, layers: LayerChoice, form: SettingsForm) -> None:
        shown = QCheckBox(
            "Show void",
            toolTip="Overlay the void at this threshold on the slice.",
        )  # fmt: skip
        super().__init__(viewer, layers, form, GreyHistogram(viewer), VoidPreview(viewer), shown)
        self._threshold: Any = form[THRESHOLD]
        self._method = "auto"
        # of the newest result with intervals: values, threshold, range of plausible thresholds
        self._band: tuple[Any, float, tuple[float, float]] | None = None
        self._finding = LatestOnlyWorker("threshold")
        self._finding.returned.connect(self._found)
        self._search = SampleSearch()
        self._search.changed.connect(self._show_sample)
        self._hysteresis = QCheckBox("Hysteresis", toolTip=_HYSTERESIS, toggled=self._choose_two)
        self._hysteresis.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        row = fill(QHBoxLayout(), self.shown, self._hysteresis, self._log, None, spacing=2)
        self._match = RichLabel(viewer)
        self._match.linkActivated.connect(self._follow_match)
        self._line.setToolTip(_COVERED)
        fill(QVBoxLayout(self), self.histogram, self._line, row, self._match, spacing=4)
        self._line.show()
        self.follow()

    @property
    def is_busy(self) -> bool:
        """Whether the histogram, a threshold, the sample or the preview is being computed."""
        return super().is_busy or self._finding.is_busy or self._search.is_busy

    def show_band(self, volume: Volume, totals: Mapping[str, Any]) -> None:
        """Shade the equally plausible thresholds of a result, while its threshold is set.

        `volume`: volume of the result. `totals`: totals of its record; without uncertainty
        intervals nothing is shaded.
        """
        self._band = None
        if "threshold_low" in totals:
            ends = totals["threshold_low"], totals["threshold_high"]
            self._band = volume.data, totals["threshold"], ends
        self._show()

    def kind_of(self, volume: Volume) -> Kind:
        """Return what values look like if not like grey values; "" also until they are counted."""
        return self.greys.kind if self.greys is not None and self._shows(volume) else ""

    def place_after(self, before: QWidget) -> None:
        """Insert the panel into the order of the Tab key, after another widget."""
        for widget in (self.histogram, self.shown, self._hysteresis, self._log):
            QWidget.setTabOrder(before, widget)
            before = widget

    # ---- the layer

    def _tell_form(self, layer: Any) -> None:
        is_grey = isinstance(layer, Image) and layer.dtype != np.bool_
        self._form.know(is_void=layer is not None and not is_grey)
        if is_grey and layer not in self._surveys:
            # initial value until the histogram is computed
            self._threshold.suggest(sum(layer.contrast_limits) / 2)

    def _found(self, tag: object, found: object) -> None:
        self._form.know(greys=self.greys)
        self._show()

    def _tell_greys(self) -> None:
        if self.greys is not None:
            ends = float(self.greys.range.low), float(self.greys.range.high)
            self._threshold.suit(self.histogram.step, self.greys.unit)
            self._form[STRICT].suit(self.histogram.step, self.greys.unit, ends)
        self._search.clear()
        self._form.know(greys=self.greys)
        if self.greys is not None and self.greys.kind:
            self.kind_found.emit()

    # ---- synchronized with the form

    def _show(self) -> None:
        """Update lines, check boxes and preview from the form."""
        settings = self._settings()
        if self.greys is None or settings is None:
            return
        self._show_match(settings)
        if self.greys.is_known(settings):
            self._search.follow(self._scan_with_masks(settings), settings, self.greys)
        self._say(self._message)
        if settings.measured_porosity is not None:
            self.histogram.show_lines({}, reason="Threshold chosen during the run")
            self.preview.hide()
            return
        threshold = self.greys.known(settings)
        if isinstance(settings.threshold, str):
            self._method = settings.threshold
        if not self.greys.is_known(settings):
            self._finding.submit(partial(calling, self.greys.find, settings))
            return
        self._show_lines(settings, threshold)
        with_line = isinstance(threshold, float)
        if isinstance(settings.threshold, str) and isinstance(threshold, float):
            # a manual threshold starts at that of the method
            self._threshold.suggest(threshold)
        with signals_blocked(self._hysteresis):
            self._hysteresis.setChecked(settings.hysteresis is not None)
        self._hysteresis.setEnabled(with_line)
        self._hysteresis.setToolTip(_HYSTERESIS if with_line else f"{_LOCAL}.")
        if self.shown.isChecked() and self._target is not None:
            self.preview.show(self._target, settings, self.greys)

    def _show_match(self, settings: PoreSettings) -> None:
        """Show the measured porosity, if given, with a link that clears it."""
        measured = settings.measured_porosity
        text = ""
        if measured is not None:
            text = f"Threshold for a porosity of {measured:g} %. {link(_CLEAR, 'Clear')}"
        self._match.say(text)

    def _follow_match(self, _target: str) -> None:
        self._form[MEASURED].value = None

    def _show_lines(self, settings: PoreSettings, threshold: float | InputError | None) -> None:
        assert self.greys is not None
        bright = settings.pores_are == "bright"
        if not isinstance(threshold, float):
            reason = _LOCAL if threshold is None else f"{self._named()} found no threshold"
            self.histogram.show_lines({}, bright=bright, reason=reason)
            return
        lines = {THRESHOLD: threshold}
        if settings.hysteresis is not None:
            lines[STRICT] = settings.hysteresis
        try:
            # the threshold of the last chosen method, if known
            method = type(settings).of({**settings.to_dict(), "threshold": self._method})
            automatic = self.greys.known(method)
        except InputError:
            automatic = None
        mark = (self._named(), automatic) if isinstance(automatic, float) else None
        band = self._plausible(settings)
        self.histogram.show_lines(lines, bright=bright, mark=mark, band=band)

    def _plausible(self, settings: PoreSettings) -> tuple[float, float] | None:
        """Return the range of plausible thresholds: of intervals, if their threshold is set."""
        assert self.greys is not None
        threshold = self.greys.known(settings)
        if self._band is not None and self._target is not None and isinstance(threshold, float):
            values, of_result, ends = self._band
            if values is self._target.volume.data and math.isclose(
                of_result, threshold, rel_tol=1e-3
            ):
                return ends
        return self.greys.plausible(settings)

    def _scan_with_masks(self, settings: PoreSettings) -> Volume | None:
        """Return the input volume with the chosen masks; None if it has no single sample."""
        if self._target is None or self._target.volume.leading_shape:
            return None
        layer = self._layers.value
        if not settings.sample_mask or layer is None:
            return self._target.volume
        labels = tuple(self._viewer.dims.axis_labels[-layer.ndim :])
        try:
            return capture(layer, labels, self._form.layers(scans=False)).volume
        except HushporeError:
            # Run reports it
            return None

    def _show_sample(self) -> None:
        """Show the grey values of the sample, or of the whole scan until they are known."""
        sample = self._search.sample
        counted = sample.histogram if sample is not None and sample.excluded else None
        self.histogram.show_sample(counted)
        self._form.know(sample=counted)
        self._say(self._message)

    def _named(self) -> str:
        return str(self._threshold.option.in_words(self._method))

    def _moved(self, name: str, value: float) -> None:
        self.shown.setChecked(True)
        self._form[name].value = self.histogram.rounded(value)

    def _choose_two(self, are_two: bool) -> None:
        lines, settings = self.histogram.lines, self._settings()
        if self.greys is None or settings is None or THRESHOLD not in lines:
            return
        low, high = self.histogram.limits
        way = 1 if settings.pores_are == "bright" else -1
        strict = min(max(lines[THRESHOLD] + way * _APART * (high - low), low), high)
        self._form[STRICT].value = self.histogram.rounded(strict) if are_two else None

    def _settings(self) -> PoreSettings | None:
        try:
            settings = cast("PoreSettings", self._form.value)
        except InputError:
            return None
        return settings if self.greys is None else self.greys.decided(settings)

    def _say(self, text: str) -> None:
        """Show a message; if empty, what the histogram covers."""
        self._message = text
        settings = self._settings()
        if not text and self.greys is not None and settings is not None:
            text = self._search.describe(settings, self.greys, self._plausible(settings))
        # at least two lines, so that nothing below moves when the sample is found
        self._line.setText(text if "\n" in text else f"{text}\n\u00a0")


_COVERED = (
    "What the histogram and the share of void cover: the sample alone, if exterior air or padding "
    "is excluded. A scan of more than 8 million voxels is looked at in slices; Run uses all "
    "voxels.\nPlausible thresholds: from 40 to 60 % of the way between pores and solid."
)

_HYSTERESIS = (
    "Add a second, stricter threshold (Hysteresis threshold, under More): a connected component of "
    "void is kept only if part of it also passes this one. Removes specks of noise."
)
