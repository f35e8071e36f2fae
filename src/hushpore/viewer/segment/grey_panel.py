"""Base of the panels with a grey value histogram and a preview on the slice."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from napari.layers import Image
from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import QCheckBox, QWidget

from hushpore.base.errors import HushporeError
from hushpore.base.events import Progress, mapped
from hushpore.figures.drawing import round_step
from hushpore.viewer.forms.rich_label import plain_label
from hushpore.viewer.running.previews import SlicePreview
from hushpore.viewer.running.task import capture
from hushpore.viewer.running.worker import LatestOnlyWorker, load_torch_libraries
from hushpore.viewer.segment.grey_histogram import VOID_COLOUR, WEAK_COLOUR

if TYPE_CHECKING:
    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.pores.preview import GreySurvey, SliceVoid
    from hushpore.pores.settings import PoreSettings
    from hushpore.viewer.forms.form import SettingsForm
    from hushpore.viewer.forms.layer_choice import LayerChoice
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.task import Target
    from hushpore.viewer.segment.grey_histogram import GreyHistogram


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
    from hushpore.pores.settings import PoreSettings

    # other threads may be loading libraries now, and kernels need Numba
    load_torch_libraries()
    from hushpore.pores.job import prepare, warm_up_kind

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
