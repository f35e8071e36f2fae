"""The widgets that segment pores, and that measure labels of another program."""

from __future__ import annotations

import dataclasses
import html
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from napari.layers import Labels
from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import QLabel

from hushpore.viewer.job_widget import JobWidget
from hushpore.viewer.layers.conversion import is_result, scan_of
from hushpore.viewer.layers.visibility import SHOWN
from hushpore.viewer.results.pore_layer import path_layers, pore_layer, result_of, thickness_layers
from hushpore.viewer.running.messages import RESULT_WIDGETS, headline_html
from hushpore.viewer.running.worker import JobWorker, start_once_drawn, stop_on_destroy
from hushpore.viewer.segment.grey_panel import prepare_kernels
from hushpore.viewer.segment.merge_height import MergeHeight
from hushpore.viewer.segment.threshold_panel import ThresholdPanel

if TYPE_CHECKING:
    from napari.layers import Layer

    from hushpore.base.volume import Volume
    from hushpore.pores.result import Pores
    from hushpore.runs.pipeline import Written
    from hushpore.viewer.layers.conversion import LayerData
    from hushpore.viewer.running.task import Outcome, Target


#: Milliseconds between two polls of the compilation.
POLL_INTERVAL = 250

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
        self._kernel_warmup = KernelWarmup()
        upper, column = self._upper.column, self._lower.column
        upper.insertWidget(upper.indexOf(self.form.native), self.greys)
        self.greys.place_after(self.layer.native)
        self.greys.kind_found.connect(self._show_facts)
        column.insertWidget(column.indexOf(self._result) + 1, self.remerging)
        column.insertWidget(column.indexOf(self.timing), self._kernel_warmup)

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
        return _layers(result, f"{target.volume.name} pores", target)

    @classmethod
    def cluster_layers(cls, result: Written, target: Target) -> list[LayerData]:
        """Return the lazy labels with the tables of the result folder."""
        from hushpore.viewer.layers.result_folder import layer_of_result

        return [layer_of_result(result.folder, f"{target.volume.name} pores", target.placement)]

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
        """Show the message about a result that was merged again."""
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


class KernelWarmup(QLabel):
    """A line shown while kernels are compiled, once after installation; otherwise hidden.

    Compilation starts in a thread once the widget is drawn. It stops when the window closes, and a
    job that is started meanwhile waits for it.
    """

    def __init__(self) -> None:
        super().__init__(
            "Preparing the segmentation, first time only …",
            textFormat=Qt.TextFormat.PlainText, wordWrap=True,
            toolTip="The code is compiled for this computer, once after installation. You can work "
            "meanwhile.", visible=False,
        )  # fmt: skip
        self._worker = worker = JobWorker(prepare_kernels, "preparing pores")
        self._timer = QTimer(self, interval=POLL_INTERVAL, timeout=self._look)
        for end in (worker.returned, worker.failed, worker.cancelled):
            end.connect(self._end)
        stop_on_destroy(self, [worker], 0.0)
        start_once_drawn(self, worker)
        self._timer.start()

    def _look(self) -> None:
        progress = self._worker.take().progress
        if progress is not None:
            self.setVisible(progress.stage != "preparing")

    def _end(self, *_: object) -> None:
        # the job reports errors
        self._timer.stop()
        self.hide()


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
        return _layers(result, f"{target.volume.name} measured", target)


def _layers(result: Pores, name: str, target: Target) -> list[LayerData]:
    return [
        pore_layer(result, name, target.placement),
        *thickness_layers(result, target.placement),
        *path_layers(result, target.placement),
    ]
