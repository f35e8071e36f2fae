"""Strokes on phases: a layer to paint on, and the phases of the slice on the screen."""

from __future__ import annotations

import html
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image, Labels
from napari.utils.colormaps import CyclicLabelColormap
from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import QCheckBox, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from hushpore.base.errors import HushporeError
from hushpore.device.memory import folder_of
from hushpore.pores.phases.classifier import CLASSIFIER
from hushpore.pores.phases.result import COLOURS, doubt_of
from hushpore.viewer.forms.layout import RichLabel, advice_linked, fill
from hushpore.viewer.layers.conversion import METADATA_KEY, known_of, name_of
from hushpore.viewer.running.previews import SlicePreview
from hushpore.viewer.running.task import capture
from hushpore.viewer.segment.grey_panel import prepare_kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Job
    from hushpore.pores.phases.classifier import Classifier, LiveClassifier
    from hushpore.viewer.forms.choices import LayerChoice
    from hushpore.viewer.forms.form import SettingsForm
    from hushpore.viewer.running.task import Target

#: Milliseconds from the end of a stroke to its preview, and the size of the brush in voxels.
_PAUSE, _BRUSH = 150, 2


class StrokePreview(SlicePreview):
    """The phases of the slice on the screen as strokes separate them, or the doubt about them.

    `with_doubt`: whether the doubt is shown.
    """

    def __init__(self, viewer: Any, *, with_doubt: bool) -> None:
        title = "doubt" if with_doubt else "phases by strokes"
        super().__init__(viewer, title, title, () if with_doubt else COLOURS)

    def show(self, target: Target, live: LiveClassifier, strokes: Labels) -> None:
        """Show the slice on the screen below the layer of strokes, and follow it."""
        self._strokes = strokes
        self._follow(target, partial(_find, live, strokes.data, bool(self._colours)))

    def _returned(self, tag: tuple[Target, tuple[int, ...]], found: Any) -> None:
        is_new = self.layer is None
        super()._returned(tag, found)
        layers = self._viewer.layers
        if is_new and self.layer is not None and self._strokes in layers:
            # strokes stay visible
            layers.move(layers.index(self.layer), layers.index(self._strokes))

    def _layer_of(self, target: Target, index: tuple[int, ...], image: Any) -> Any:
        layer = super()._layer_of(target, index, image)
        if isinstance(layer, Image):
            layer.colormap, layer.opacity = "inferno", 0.6
            layer.contrast_limits = (0, 100)
        return layer


def _find(live: LiveClassifier, strokes: Any, is_phases: bool, index: tuple[int, ...]) -> Job:
    """Return the labels of a slice, or its doubt in percent; uint8, (y, x)."""
    from hushpore.pores.parallel import KernelThreads

    yield from prepare_kernels()
    with KernelThreads() as threads:
        known, likely = live.classify(np.asarray(strokes), index[-1] if index else 0, threads)
    if is_phases:
        return known.astype(np.uint8)[likely.argmax(axis=0)]
    return doubt_of(np.rint(100 * likely).astype(np.uint8))


class StrokePanel(QWidget):
    """*Paint*, and two boxes that show phases and doubt of the slice on the screen.

    `layers`: choice of the scan. `form`: form of the phase settings, whose strokes are followed.
    `advice`: returns what to say before anything is painted. `run`: starts the job.
    """

    def __init__(
        self,
        viewer: Any,
        layers: LayerChoice,
        form: SettingsForm,
        advice: Callable[[], str],
        run: Callable[[], None],
    ) -> None:
        super().__init__()
        self._viewer, self._layers, self._form = viewer, layers, form
        self._advice, self._run = advice, run
        self._strokes: Any = None  # the followed layer
        self._live: tuple[Any, LiveClassifier] | None = None  # with the values it is of
        self.paint = QPushButton(
            "Paint", clicked=self._paint,
            toolTip="Paint short strokes on each phase where no threshold separates them: label 1 "
            "for the first phase, 2 for the second, ... (keys - and + change the label).",
        )  # fmt: skip
        self.reuse = QPushButton(
            "Reuse", clicked=self._reuse,
            toolTip="Find the phases of this scan with the classifier of the last result that was "
            "found from strokes. The scans need the same grey values and voxel size.",
        )  # fmt: skip
        self.shown = QCheckBox(
            "Phases", toolTip="Show the phases of the slice after each stroke. Features are found "
            "slice by slice here, and in 3D in the run.",
        )  # fmt: skip
        self.doubt = QCheckBox(
            "Doubt", toolTip="Show where phases are doubtful: bright places need another stroke.",
        )  # fmt: skip
        self.previews = {
            box: StrokePreview(viewer, with_doubt=box is self.doubt)
            for box in (self.shown, self.doubt)
        }
        self._line = RichLabel(viewer)
        row = fill(QHBoxLayout(), self.paint, self.reuse, self.shown, self.doubt, None)
        fill(QVBoxLayout(self), row, self._line, spacing=4)
        self._pause = QTimer(self, singleShot=True, interval=_PAUSE)
        self._pause.timeout.connect(self.show_slice)
        for box, preview in self.previews.items():
            box.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            box.toggled.connect(self.show_slice)
            preview.dismissed.connect(partial(box.setChecked, False))
            preview.message_changed.connect(self._say)
        layers.changed.connect(self.follow)
        form.changed.connect(self.follow)
        self.follow()

    @property
    def is_busy(self) -> bool:
        """Whether a slice is still to be shown."""
        busy = any(preview.is_busy for preview in self.previews.values())
        return self._pause.isActive() or busy

    def follow(self) -> None:
        """Follow the strokes that are chosen in the form."""
        scan = self._layers.value
        is_grey = isinstance(scan, Image)
        self.setVisible(is_grey and self.parent() is not None)
        chosen = self._form["strokes"].layer if is_grey else None
        is_painted = isinstance(chosen, Labels) and chosen.data.shape == scan.data.shape
        strokes = chosen if is_painted else None
        if strokes is not self._strokes:
            if self._strokes is not None:
                self._strokes.events.labels_update.disconnect(self._changed)
            if strokes is not None:
                strokes.events.labels_update.connect(self._changed)
            self._strokes = strokes
        for box in self.previews:
            box.setEnabled(strokes is not None)
        self.reuse.setVisible(self._last is not None)
        self.show_slice()

    def show_slice(self) -> None:
        """Show phases and doubt of the slice on the screen, each if its box is checked."""
        scan = self._layers.value
        shown = [box for box in self.previews if box.isChecked() and self._strokes is not None]
        for box, preview in self.previews.items():
            if box not in shown:
                preview.hide()
        if not shown or not self._strokes.data.any():
            self._say("")
            return
        from hushpore.pores.phases.classifier import LiveClassifier

        try:
            target = capture(scan, tuple(self._viewer.dims.axis_labels[-scan.ndim :]))
        except HushporeError as error:
            self._say(str(error))
            return
        if self._live is None or self._live[0] is not target.volume.data:
            self._live = (target.volume.data, LiveClassifier(target.volume))
        for box in shown:
            self.previews[box].show(target, self._live[1], self._strokes)

    def stop(self) -> None:
        """Uncheck both boxes, as the result replaces the previews."""
        for box in self.previews:
            box.setChecked(False)

    def _changed(self, event: Any = None) -> None:
        self._pause.start()

    def _paint(self) -> None:
        """Make a layer for strokes, or return to the chosen one, with the brush ready."""
        scan = self._layers.value
        if self._strokes is None:
            advice = self._advice()
            layer = Labels(
                np.zeros(scan.data.shape, np.uint8),
                name=name_of(scan.name, "strokes"),
                opacity=1,
                colormap=CyclicLabelColormap(colors=["transparent", *COLOURS]),
                metadata={METADATA_KEY: {"strokes": True}},
                **{name: getattr(scan, name) for name in ("scale", "translate", "units")},
            )
            self._viewer.add_layer(layer)
            self._form["strokes"].value = layer.name
            self.shown.setChecked(True)
            self._say(advice)
        layer = self._form["strokes"].layer
        self._viewer.layers.selection.active = layer
        layer.brush_size, layer.mode = _BRUSH, "paint"
        layer.selected_label = max(layer.selected_label, 1)

    @property
    def _last(self) -> Classifier | None:
        """The classifier of the last result of another scan; None if there is none."""
        scan = self._layers.value
        found = (known_of(layer).get("phases") for layer in reversed(self._viewer.layers))
        results = (each for each in found if each is not None and each.classifier is not None)
        return next((each.classifier for each in results if each.volume.name != scan.name), None)

    def _reuse(self) -> None:
        """Run with the last classifier, from a file that is kept as long as this panel."""
        assert self._last is not None  # else the button is hidden
        file = folder_of(self) / f"{CLASSIFIER}.npz"
        np.savez(file, **self._last.arrays)
        self._form["strokes"].value, self._form[CLASSIFIER].value = "", str(file)
        self._run()

    def _say(self, text: str) -> None:
        self._line.say(advice_linked(html.escape(text)))

    def hideEvent(self, event: Any) -> None:  # noqa: N802
        """Hide the previews with the panel."""
        super().hideEvent(event)
        for preview in self.previews.values():
            preview.hide()
