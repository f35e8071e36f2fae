"""The widget that denoises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from napari.layers import Image

from hushpore.viewer.job_widget import JobWidget, LayerData
from hushpore.viewer.layers import is_result, layer_data

if TYPE_CHECKING:
    from hushpore.n2v2.job import Denoised
    from hushpore.viewer.target import Target


class DenoiseWidget(JobWidget):
    """Denoises an image layer with N2V2; the result is an image layer."""

    job = "denoise"
    purpose = "Removes noise. Learns from the noisy image alone; no clean image is needed."
    ends_early_in = "training"
    next_step = ("Segment pores", "Segment its pores")

    @classmethod
    def accepts(cls, layer: Any) -> bool:
        """Any greyscale image."""
        return isinstance(layer, Image) and not layer.rgb and layer.dtype != bool

    @classmethod
    def prefers(cls, layer: Any) -> bool:
        """Not what is already denoised."""
        return cls.accepts(layer) and not is_result(layer, cls.job)

    @classmethod
    def result_layers(cls, result: Denoised, target: Target) -> list[LayerData]:
        """Return one image, in the grey scale of the noisy one, so that the two compare."""
        name = f"{target.volume.name} denoised"
        return [
            layer_data(
                result.volume,
                placement=target.placement,
                record=result.provenance,
                **{**target.look, "name": name},
            )
        ]
