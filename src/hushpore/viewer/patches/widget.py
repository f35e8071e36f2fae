"""The widget that inspects training patches: positions, masked pixels, loss."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from napari.layers import Labels
from napari.utils.notifications import show_warning

from hushpore.viewer.forms.layer_choice import ModelField
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

#: Maximum number of voxels of a mask of excluded regions.
_MOST_VOXELS = 1 << 30


class PatchesWidget(JobWidget):
    """Samples patches and shows them: boxes, masked pixels, contact sheet, table."""

    job = "patches"
    fields: ClassVar = {"model": ModelField}
    room_for_result: ClassVar = (0.55, 60)

    def __init__(self, napari_viewer: Any) -> None:
        # kept during a run, because the file of a model is deleted with the model
        self._model_in_use: Any = None
        super().__init__(napari_viewer)
        self.panel = PatchesPanel(napari_viewer)
        self.panel.train_requested.connect(self._open_denoiser)
        column = self._lower.column
        self.live = LivePatches(napari_viewer)
        column.insertWidget(column.indexOf(self.timing), self.panel)
        column.insertWidget(column.indexOf(self.panel), self.live)
        self.form.changed.connect(self._follow_model)
        self.form.changed.connect(self._follow_weights)
        self.native.destroyed.connect(self.panel.forget)

    @classmethod
    def prefers(cls, layer: Any) -> bool:
        """Images to train a denoiser on, not its results or contact sheets."""
        return super().prefers(layer) and not is_result(layer, "denoise")

    @classmethod
    def result_layers(cls, result: Patches, target: Target) -> list[LayerData]:
        """Return boxes, masked pixels, groups and the contact sheet."""
        return patch_layers(result, target)

    def settings(self) -> Settings:
        """Return the settings for a run; weights of a labels layer are labels."""
        settings = super().settings()
        if self._weights_hold_labels:
            return dataclasses.replace(settings, weights_are_labels=True)  # type: ignore[call-arg]
        return settings

    def run(self) -> JobWorker:
        """Start the job, and keep the model, because its layer may be removed meanwhile."""
        model = self.form.model.model
        worker = super().run()
        if self._model_in_use is None:
            self._model_in_use = model
        return worker

    def _finish(self) -> None:
        super()._finish()
        self._model_in_use = None

    def _show_outcome(self, outcome: Outcome, made: list[Layer]) -> None:
        super()._show_outcome(outcome, made)
        self.panel.bring_sheet_into_view()

    @property
    def _weights_hold_labels(self) -> bool:
        return isinstance(self.form.weights.layer, Labels)

    def _follow_weights(self) -> None:
        """Disable 'Weights are labels' if the layer decides it."""
        self.form.know(weights_hold_labels=self._weights_hold_labels)

    def _follow_model(self) -> None:
        """Use the dimensions of the chosen model."""
        model = self.form.model.model
        if model is not None and self.form.dimensions.value != model.network.dimensions:
            self.form.dimensions.value = model.network.dimensions

    def _open_denoiser(self, only_these: bool) -> None:
        """Open Denoise with points to train at, or with a mask of regions to exclude."""
        result, boxes = self.panel.result, self.panel.boxes
        if result is None:
            return
        if only_these:
            layer = self._training_points(result, boxes)
        elif np.prod(result.volume.shape) <= _MOST_VOXELS:
            layer = self._excluded_mask(result, boxes)
        else:
            show_warning(
                "The volume is too large for a mask of excluded regions. Train on selected patches "
                "instead."
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
            name=f"{result.volume.name} training points",
            size=result.patch_shape[-1] / 8,
            symbol="cross",
            face_color="yellow",
            **_place_of(boxes),
        )

    def _excluded_mask(self, result: Patches, boxes: Any) -> Any:
        mask = np.zeros(result.volume.spatial_shape, np.uint8)
        n_spatial = result.volume.n_spatial
        size = (1,) * (n_spatial - len(result.patch_shape)) + result.patch_shape
        for corner in result.corners[self.panel.chosen()][:, -n_spatial:]:
            mask[tuple(slice(c, c + edge) for c, edge in zip(corner, size, strict=True))] = 1
        place = {name: value[-n_spatial:] for name, value in _place_of(boxes).items()}
        name = f"{result.volume.name} excluded from training"
        return self._viewer.add_labels(mask, name=name, opacity=0.4, **place)


def _place_of(layer: Any) -> dict[str, Any]:
    return {
        "scale": layer.scale,
        "translate": layer.translate,
        "units": layer.units,
        "axis_labels": layer.axis_labels,
    }
