"""The widget that shows patches: where they lie, what of them is hidden, which are hard."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from napari.layers import Labels
from napari.utils.notifications import show_warning

from hushpore.viewer.forms.layer_field import ModelField
from hushpore.viewer.job_widget import JobWidget
from hushpore.viewer.layers.conversion import LayerData, is_result
from hushpore.viewer.patches.layers import LivePatches, patch_layers
from hushpore.viewer.patches.panel import PatchesPanel

if TYPE_CHECKING:
    from napari.layers import Layer

    from hushpore.base.settings import Settings
    from hushpore.patches.result import Patches
    from hushpore.viewer.running.task import Outcome, Target
    from hushpore.viewer.running.worker import JobWorker

#: Most voxels of a mask that is made for the regions to leave out.
_MOST_VOXELS = 1 << 30


class PatchesWidget(JobWidget):
    """Samples patches and shows them: boxes, hidden pixels, a contact sheet, their numbers."""

    job = "patches"
    fields: ClassVar = {"model": ModelField}

    def __init__(self, napari_viewer: Any) -> None:
        # the model of a run, whose file is there for as long as the model is
        self._reads: Any = None
        super().__init__(napari_viewer)
        self.panel = PatchesPanel(napari_viewer)
        self.panel.train_requested.connect(self._feed_denoiser)
        column = self._lower.column
        self.live = LivePatches(napari_viewer)
        column.insertWidget(column.indexOf(self.timing), self.panel)
        column.insertWidget(column.indexOf(self.panel), self.live)
        self.form.changed.connect(self._follow_model)
        self.form.changed.connect(self._follow_weights)
        self.native.destroyed.connect(self.panel.forget)

    @classmethod
    def prefers(cls, layer: Any) -> bool:
        """What a denoiser is trained on: not its result, nor a contact sheet."""
        return super().prefers(layer) and not is_result(layer, "denoise")

    @classmethod
    def result_layers(cls, result: Patches, target: Target) -> list[LayerData]:
        """Return boxes, hidden pixels, groups and the contact sheet."""
        return patch_layers(result, target)

    def settings(self) -> Settings:
        """Return the settings for a run: a labels layer holds labels."""
        settings = super().settings()
        if self._weights_hold_labels:
            return dataclasses.replace(settings, weights_are_labels=True)  # type: ignore[call-arg]
        return settings

    def run(self) -> JobWorker:
        """Start, and hold the model that is read: its layer may be removed meanwhile."""
        model = self.form.model.model
        worker = super().run()
        if self._reads is None:
            self._reads = model
        return worker

    def _finish(self) -> None:
        super()._finish()
        self._reads = None

    def _show_outcome(self, outcome: Outcome, made: list[Layer]) -> None:
        super()._show_outcome(outcome, made)
        self.panel.bring_sheet_into_view()

    @property
    def _weights_hold_labels(self) -> bool:
        return isinstance(self.form.weights.layer, Labels)

    def _follow_weights(self) -> None:
        """Do not ask whether weights are labels where that is known."""
        if not self._is_to_come("weights"):
            self.form.know(weights_hold_labels=self._weights_hold_labels)

    def _follow_model(self) -> None:
        """Take patches of as many axes as the model sees."""
        model = self.form.model.model
        if model is not None and self.form.dimensions.value != model.network.dimensions:
            self.form.dimensions.value = model.network.dimensions

    def _feed_denoiser(self, only_these: bool) -> None:
        """Lay points or a mask where the denoiser is to train, or not, and open it with them."""
        result, boxes = self.panel.result, self.panel.boxes
        if result is None:
            return
        if only_these:
            layer = self._training_points(result, boxes)
        elif np.prod(result.volume.shape) <= _MOST_VOXELS:
            layer = self._left_out(result, boxes)
        else:
            show_warning(
                "The volume is too large for a mask of the regions to leave out: train on chosen "
                "patches instead."
            )
            return
        self._viewer.layers.selection.active = boxes
        if hasattr(self._viewer, "window"):
            dock, widget = self._viewer.window.add_plugin_dock_widget("hushpore", "Denoise")
            dock.show()
            dock.raise_()
            name = "train_at" if only_these else "leave_out"
            widget[name].value = layer
            widget.form.more.set_open(True)

    def _training_points(self, result: Patches, boxes: Any) -> Any:
        return self._viewer.add_points(
            result.centres[self.panel.chosen()],
            name=f"{result.volume.name} train here",
            size=result.patch_shape[-1] / 8,
            symbol="cross",
            face_color="yellow",
            **_place_of(boxes),
        )

    def _left_out(self, result: Patches, boxes: Any) -> Any:
        mask = np.zeros(result.volume.spatial_shape, np.uint8)
        n_spatial = result.volume.n_spatial
        size = (1,) * (n_spatial - len(result.patch_shape)) + result.patch_shape
        for corner in result.corners[self.panel.chosen()][:, -n_spatial:]:
            mask[tuple(slice(c, c + edge) for c, edge in zip(corner, size, strict=True))] = 1
        place = {name: value[-n_spatial:] for name, value in _place_of(boxes).items()}
        name = f"{result.volume.name} leave out"
        return self._viewer.add_labels(mask, name=name, opacity=0.4, **place)


def _place_of(layer: Any) -> dict[str, Any]:
    return {
        "scale": layer.scale,
        "translate": layer.translate,
        "units": layer.units,
        "axis_labels": layer.axis_labels,
    }
