"""The widgets that segment pores, merge them again, and measure labels of another program."""

from __future__ import annotations

import dataclasses
import html
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from napari.layers import Labels
from qtpy.QtCore import Qt, QTimer, Signal
from qtpy.QtWidgets import (
    QDoubleSpinBox,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QSlider,
    QVBoxLayout,
    QWidget,
)
from superqt.utils import signals_blocked

from hushpore.viewer.forms.layout import (
    REDO_MERGE,
    UNDO_MERGE,
    bind,
    fill,
    plain_label,
    unbroken,
    with_key,
)
from hushpore.viewer.job_widget import JobWidget
from hushpore.viewer.layers.conversion import is_painted, is_result, name_of, scan_of, unwrapped
from hushpore.viewer.layers.visibility import SHOWN
from hushpore.viewer.results.pore_layer import (
    colour_numbers,
    map_layers,
    path_layers,
    pore_layer,
    result_of,
    thickness_layers,
    update_pore_layer,
    with_tables,
)
from hushpore.viewer.results.pore_view import MAX_COLOURS, PoreView
from hushpore.viewer.running.messages import RESULT_WIDGETS, headline_html
from hushpore.viewer.running.worker import LatestOnlyWorker, calling
from hushpore.viewer.segment.grey_panel import prepare_kernels
from hushpore.viewer.segment.threshold_panel import ThresholdPanel

if TYPE_CHECKING:
    from napari.layers import Layer

    from hushpore.base.volume import Volume
    from hushpore.pores.result import Pores
    from hushpore.runs.pipeline import Written
    from hushpore.viewer.layers.conversion import LayerData
    from hushpore.viewer.running.problem import Problem
    from hushpore.viewer.running.task import Outcome, Target
    from hushpore.viewer.running.worker import JobWorker


#: Milliseconds after the last change until pores are merged.
PAUSE = 60

#: Voxels of merge height in one step of the slider.
STEP = 0.05

#: Voxels at the end of the slider, and the maximum of the box beside it.
SLIDER_MAX, _BOX_MAX = 5.0, 1000.0

#: Shown instead of merging labels that were edited by hand.
_PAINTED = (
    "Edited by hand: the table is out of date, and merging would discard the edits. To merge by "
    "another height, run again; this layer is kept."
)


class MergeHeight(QWidget):
    """Merges the pores of a layer with another merge height; hidden until there is a result.

    Works on the last selected layer with a result. Merging runs in a thread, one height at a
    time, with only the last request kept, and replaces labels, tables and record of the layer.

    `layer`: the layer whose pores are merged, or None.
    """

    #: Emitted with the newly shown result.
    merged = Signal(object)
    #: Emitted with the final result after the slider is released, or after undo or redo.
    settled = Signal(object)

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self._viewer = viewer
        self.layer: Any = None
        self._result: Pores | None = None
        self._taken: Pores | None = None  # result of the layer when it was selected
        self._initial: Pores | None = None  # first result, if not merged by height
        self._history: list[str | float | None] = []  # heights; None: the first result
        self._colormap: Any = None  # colours of the labels of `_coloured`
        self._coloured: Any = None
        self._shown: Any = None  # colours of merged labels, made of these
        self._auto = 0.0  # height chosen by "auto"
        self._position = 0
        self._wanted: str | float | None = None
        self._scan = ""
        self._worker = LatestOnlyWorker("merging pores")
        self._worker.returned.connect(self._returned)
        self._worker.failed.connect(self._failed)
        self._timer = QTimer(self, singleShot=True, interval=PAUSE, timeout=self._merge)
        self._build()
        bind(self, UNDO_MERGE, self.undo)
        bind(self, REDO_MERGE, self.redo)
        self.hide()
        viewer.layers.selection.events.active.connect(self._take_result)
        viewer.layers.events.connect(self._follow)
        self._take_result()

    @property
    def is_busy(self) -> bool:
        """Whether a requested height is not shown yet."""
        return self._worker.is_busy or self._wanted is not None

    def follow_scan(self, scan: str) -> None:
        """Hide while another scan is chosen, until the layer is selected again.

        `scan`: see `scan_of`.
        """
        self._scan = scan
        self._take_result()

    def undo(self) -> None:
        """Go back to the previous height."""
        self._go_to(self._position - 1)

    def redo(self) -> None:
        """Go forward to the next height."""
        self._go_to(self._position + 1)

    def _build(self) -> None:
        tip = (
            "Merge neighbouring pores whose neck is shallower than this (merge height, in voxels "
            "of radius). Higher: fewer, larger pores. The result is updated at once, and the form "
            "keeps the height for the next run."
        )
        words = {"toolTip": tip, "accessibleName": "Merge height of the result"}
        self._slider = QSlider(
            Qt.Orientation.Horizontal, maximum=round(SLIDER_MAX / STEP), pageStep=4, **words,
            valueChanged=self._slider_moved, sliderReleased=self._record_height,
        )  # fmt: skip
        self._box = QDoubleSpinBox(
            maximum=_BOX_MAX, singleStep=STEP, decimals=2, suffix=" voxels", **words,
            valueChanged=self._request,
        )  # fmt: skip
        self._undo = QPushButton("Undo", clicked=self.undo)
        self._redo = QPushButton("Redo", clicked=self.redo)
        self._title, self._note = QLabel("Merge pores", toolTip=tip), plain_label()
        # room for the longest note, so that the remarks below keep their place
        self._note.setMinimumHeight(2 * self._note.fontMetrics().lineSpacing())
        self._note.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._box.setSizePolicy(QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        title = fill(QHBoxLayout(), self._title, None, self._undo, self._redo)
        line = fill(QHBoxLayout(), self._slider, self._box, wide=self._slider)
        fill(QVBoxLayout(self), title, line, self._note, spacing=2)

    # ---- which result

    def _follow(self, event: Any) -> None:
        if event.type == "removed" and unwrapped(event.value) is self.layer:
            self.layer = self._result = self._initial = None
            self._timer.stop()
            self.hide()
        elif event.type == "metadata" and (result := self._other_result()) is not None:
            if result.can_remerge:
                # the voxel size was changed, or corrections were undone
                self._take(self.layer, result)
            else:
                self.layer = self._result = self._initial = None
                self.hide()
        elif event.type in ("metadata", "name"):
            # a preview may have become a result
            self._take_result()

    def _take_result(self, event: Any = None) -> None:
        """Use the result of the active layer, if it has one, and update the name of the layer."""
        active = self._viewer.layers.selection.active
        result = None if active is None else result_of(active)
        if result is not None and not result.can_remerge:
            result = None
        if result is not None and result is not self._result:
            self._take(unwrapped(active), result)
        if self.layer is not None:
            is_of_scan = self._scan in ("", scan_of(self.layer))
            self.setVisible(is_of_scan or unwrapped(active) is self.layer)
            self._title.setToolTip(f"{self.layer.name}. {self._slider.toolTip()}")

    def _other_result(self) -> Pores | None:
        """Return the result of the layer if it was replaced elsewhere."""
        result = None if self.layer is None else result_of(self.layer)
        return None if result is self._result else result

    @property
    def _is_painted(self) -> bool:
        return self.layer is not None and is_painted(self.layer)

    def _take(self, layer: Any, result: Pores) -> None:
        self.layer, self._result, self._taken = layer, result, result
        self._shown = None
        h = _height_of(result)
        self._initial = result if h is None else None
        self._history, self._position = [h], 0
        self._auto = result.merge_height.merge_height
        # connected to the layer: the event of the list comes before the edit is marked
        layer.events.paint.connect(self._show_state)
        self._show_height(self._auto)
        self._show_state()

    # ---- merging

    def _slider_moved(self, position: int) -> None:
        self._box.setValue(position * STEP)

    def _request(self, h: float) -> None:
        self._show_height(h)
        self._wanted = h
        self._timer.start()

    def _show_height(self, h: float) -> None:
        for widget, value in ((self._slider, round(h / STEP)), (self._box, h)):
            with signals_blocked(widget):
                widget.setValue(value)

    def _merge(self) -> None:
        if self._wanted is None or self._result is None:
            return
        h, self._wanted = self._wanted, None
        if self._is_painted:
            return
        self._show_height(self._auto if isinstance(h, str) else h)
        work = partial(calling, lambda result: with_tables(result.remerge(h)), self._result)
        self._worker.submit(work, (self.layer, self._taken))

    def _returned(self, tag: tuple[Any, Pores], result: Pores) -> None:
        layer, taken = tag
        if layer is not self.layer or self._is_painted:
            return
        if taken is self._taken:
            self._show_result(result)
            self._record_height()
        elif self._wanted is None:
            # the voxel size of the layer was changed meanwhile: merge again
            self._wanted = _height_of(result)
            self._merge()

    def _failed(self, tag: object, problem: Problem) -> None:
        self._note.setText(problem.message)

    def _show_result(self, result: Pores) -> None:
        before, self._result = self._result, result
        update_pore_layer(self.layer, result)
        assert before is not None
        self._keep_colours(before, result)
        self._show_state()
        self.merged.emit(result)

    def _keep_colours(self, before: Pores, result: Pores) -> None:
        """Colour the labels so that pores that did not change keep their colour."""
        now = PoreView.base_colormap(self.layer)
        if now is not self._shown:
            # new to this slider, or chosen by the user since
            self._colormap, self._coloured = now, before
        if result.graph.count > MAX_COLOURS:
            return
        colours = self._colormap.map(colour_numbers(self._coloured, result))
        PoreView.set_base_colours(self.layer, colours)
        self._shown = PoreView.base_colormap(self.layer)

    # ---- undo

    def _record_height(self) -> None:
        """Add the height to the history, once the slider is released and nothing is pending."""
        if self._result is None or self._slider.isSliderDown() or self.is_busy:
            return
        h = _height_of(self._result)
        if h != self._history[self._position]:
            self._history[self._position + 1 :] = [h]
            self._position += 1
        self._show_state()
        self.settled.emit(self._result)

    def _go_to(self, at: int) -> None:
        if not 0 <= at < len(self._history) or self.is_busy or self._is_painted:
            return
        self._position = at
        h = self._history[at]
        if h is not None:
            self._wanted = h
            self._merge()
        elif self._initial is not None:
            self._show_result(self._initial)
            self.settled.emit(self._initial)

    def _show_state(self, event: Any = None) -> None:
        for button, at, word, key in (
            (self._undo, self._position - 1, "undo", UNDO_MERGE),
            (self._redo, self._position + 1, "redo", REDO_MERGE),
        ):
            is_possible = 0 <= at < len(self._history) and not self._is_painted
            button.setEnabled(is_possible)
            button.setToolTip(
                with_key(self._named(self._history[at]), key)
                if is_possible
                else f"Nothing to {word}."
            )
        word = "" if self._result is None else self._result.merge_height.reason
        if self._result is not self._initial and self._initial is not None:
            word = "Now merged by height. Undo restores the first result."
        elif self._initial is not None:
            word = f"{self._named(None)}. Moving the slider merges by height instead."
        if self._is_painted:
            word = _PAINTED
        for widget in (self._slider, self._box):
            widget.setEnabled(not self._is_painted)
        self._note.setText(unbroken(word))

    def _named(self, h: str | float | None) -> str:
        if isinstance(h, str):
            return f"Merge height {self._auto:.3g} voxels (auto)"
        if h is not None:
            return f"Merge height {h:g} voxels"
        assert self._initial is not None
        by = self._initial.provenance["result"]["merged_by"]
        return "Split at SNOW peaks" if "peaks" in by else "Split at markers"


def _height_of(result: Pores) -> str | float | None:
    """Return the merge height setting of a result; None if it was not merged by height."""
    height: str | float = result.provenance["settings"]["merge_height"]
    return height if "merge_height" in result.provenance["result"]["merged_by"] else None


#: Milliseconds after which kernels that are not ready are being compiled.
_COMPILING = 2000

#: Link in the line about labels, which opens the widget that measures them.
_MEASURE = "Measure these labels"

#: What values look like that are not grey values.
_KINDS = {
    "labels": "labels of another program",
    "mask": "a mask of two values",
    "probability": "a probability map",
}


class PoresWidget(JobWidget):
    """Segments the pores of an image; the result is a labels layer with a table.

    `result`: the displayed result, also after merging again or a change of the voxel size.
    """

    job = "pores"
    takes_labels = True
    in_one_image = "Pores are segmented"
    next_steps = RESULT_WIDGETS
    fact_links: ClassVar[dict[str, str]] = {_MEASURE: "measure", SHOWN: "shown image"}

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(napari_viewer)
        self.greys = ThresholdPanel(napari_viewer, self.layer, self.form)
        self.remerging = MergeHeight(napari_viewer)
        self.remerging.merged.connect(self._show_merged)
        self.remerging.settled.connect(self._take_over)
        # the job reports errors
        self._preparing = LatestOnlyWorker("preparing pores")
        self._said = plain_label("Preparing the segmentation, first time only …")
        self._said.setToolTip(
            "The code is compiled for this computer, once after installation. You can work "
            "meanwhile."
        )
        self._said.hide()
        self._preparing.returned.connect(self._said.hide)
        self._preparing.failed.connect(self._said.hide)
        self._preparing.setParent(self.native)  # ends with it
        self._preparing.submit(prepare_kernels)
        compiling = QTimer(self.native, singleShot=True, timeout=self._say_preparing)
        compiling.start(_COMPILING)
        upper, column = self._upper.column, self._lower.column
        upper.insertWidget(upper.indexOf(self.form.native), self.greys)
        self.greys.place_after(self.layer.native)
        self.greys.kind_found.connect(self._show_facts)
        column.insertWidget(column.indexOf(self._result) + 1, self.remerging)
        column.insertWidget(column.indexOf(self.timing), self._said)

    def _say_preparing(self) -> None:
        self._said.setVisible(self._preparing.is_busy)

    def run(self) -> JobWorker:
        """Start the job, and remove the void preview, which the pores replace."""
        worker = super().run()
        # after the start, when garbage collection is frozen and a layer is removed faster
        self.greys.remove_preview()
        return worker

    @classmethod
    def prepare(cls, target: Target) -> Volume:
        """Return the input volume, with labels converted to a mask of the void."""
        if target.kind == "labels":
            return target.volume.replace(np.asarray(target.volume.data) != 0)
        return target.volume

    @classmethod
    def result_layers(cls, result: Pores, target: Target) -> list[LayerData]:
        """Return the labels with their tables, the local thickness, and breakthrough paths."""
        return _layers(result, name_of(target.volume.name, "pores"), target)

    @classmethod
    def cluster_layers(cls, result: Written, target: Target) -> list[LayerData]:
        """Return the lazy labels with the tables of the result folder."""
        from hushpore.viewer.layers.result_folder import layer_of_result

        return [
            layer_of_result(result.folder, name_of(target.volume.name, "pores"), target.placement)
        ]

    def facts(self, volume: Volume) -> str:
        """Return the line about the layer, with an explanation of labels."""
        facts = super().facts(volume)
        if isinstance(self.layer.value, Labels):
            return f"{facts} · all labels count as void and are split again. {_MEASURE}"
        kind = self.greys.kind_of(volume) if hasattr(self, "greys") else ""
        if kind:
            return f"{facts} · looks like {_KINDS[kind]}, not grey values ⚠ {_MEASURE}"
        return facts

    def _follow(self, target: str) -> None:
        if target == "measure":
            self._open_job("measure", {})
        else:
            super()._follow(target)

    def _show_outcome(self, outcome: Outcome, made: list[Layer]) -> None:
        """Show the result, and shade the equally plausible thresholds."""
        assert self._now is not None
        volume = self._now.target.volume
        super()._show_outcome(outcome, made)
        self.greys.show_band(volume, outcome.result.provenance.get("result", {}))

    def _show_merged(self, result: Pores) -> None:
        layer = self.remerging.layer
        text = self._messages.of_result(result, self.next_steps)
        # so that the slider below the text keeps its place
        self._result.hold_height()
        if scan_of(layer) != self._messages.scan:
            text = f"{html.escape(layer.name)}: {text}"
        self._messages.say_here(text, scan_of(layer), result.remarks)
        self._made = [layer]
        if not self.is_running:
            self.result = result
        self._show_message()

    def _set_voxel_size(self, text: str) -> None:
        super()._set_voxel_size(text)
        made = [result_of(layer) for layer in self._made if layer in self._viewer.layers]
        result = next(filter(None, made), None)
        before, message = self.result, self._messages.message
        if message is not None and before and result and result is not before:
            text = message.text.replace(headline_html(before), headline_html(result))
            remarks = result.remarks if text != message.text else message.remarks
            self._messages.message = dataclasses.replace(message, text=text, remarks=remarks)
            self.result = result
            self._show_message()

    def _follow_layer(self) -> None:
        super()._follow_layer()
        if hasattr(self, "remerging"):
            self.remerging.follow_scan(self._messages.scan)

    def _take_over(self, result: Pores) -> None:
        """Use the merge settings of the shown result for the next run on this scan."""
        if scan_of(self.remerging.layer) != self._messages.scan:
            return
        used = result.provenance["settings"]
        self.form.update({name: used[name] for name in ("markers", "merging", "merge_height")})


class MeasureWidget(JobWidget):
    """Measures labels of another program; the result is a labels layer with a table."""

    job = "measure"
    takes_labels = True
    in_one_image = "Labels are measured"
    next_steps = RESULT_WIDGETS

    @classmethod
    def prefers(cls, layer: Any) -> bool:
        """Whether a layer is chosen automatically: labels that were not measured here."""
        is_ours = is_result(layer, "pores") or is_result(layer, "measure")
        return isinstance(layer, Labels) and not is_ours

    @classmethod
    def prepare(cls, target: Target) -> Volume:
        """Return the input volume; a labels layer is known to hold labels."""
        volume = target.volume
        if target.kind == "labels" and volume.dtype.kind in "iu":
            return volume.as_labels(volume.data, volume.name)
        return volume

    @classmethod
    def result_layers(cls, result: Pores, target: Target) -> list[LayerData]:
        """Return the labels with their tables, the local thickness, and breakthrough paths."""
        return _layers(result, name_of(target.volume.name, "measured"), target)


def _layers(result: Pores, name: str, target: Target) -> list[LayerData]:
    return [
        pore_layer(result, name, target.placement),
        *thickness_layers(result, target.placement),
        *map_layers(result.transport, result.provenance, target.placement),
        *path_layers(result, target.placement),
    ]
