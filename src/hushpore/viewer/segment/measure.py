"""The widget that measures labels made by another program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from napari.layers import Image, Labels

from hushpore.base.errors import InputError
from hushpore.viewer.job_widget import JobWidget
from hushpore.viewer.layers.conversion import is_result
from hushpore.viewer.layers.shown_image import SHOWN
from hushpore.viewer.results.pore_layer import path_layers, pore_layer, thickness_layers
from hushpore.viewer.running.messages import RESULT_WIDGETS

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.pores.result import Pores
    from hushpore.viewer.layers.conversion import LayerData
    from hushpore.viewer.running.task import Target


class MeasureWidget(JobWidget):
    """Measures labels of another program; the result is a labels layer with a table."""

    job = "measure"
    next_steps = RESULT_WIDGETS

    @classmethod
    def accepts(cls, layer: Any) -> bool:
        """Whether a layer can be the input: labels, or an image that may hold a mask."""
        return isinstance(layer, Labels) or (isinstance(layer, Image) and not layer.rgb)

    @classmethod
    def prefers(cls, layer: Any) -> bool:
        """Labels that were not measured here."""
        is_ours = is_result(layer, "pores") or not super().prefers(layer)
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
        labels = pore_layer(result, f"{target.volume.name} measured", target.placement)
        return [
            labels,
            *thickness_layers(result, target.placement),
            *path_layers(result, target.placement),
        ]

    def facts(self, volume: Volume) -> str:
        """Return the line about the layer; refuses a series."""
        if volume.leading_shape:
            raise InputError(
                f"{volume.facts} · Labels are measured in one image at a time. {SHOWN}, or split "
                "the layer (right-click: Split Stack)."
            )
        return super().facts(volume)
