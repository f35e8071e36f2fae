"""The widget that shows where patches are sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from napari.layers import Image

from hushpore.viewer.job_widget import JobWidget, LayerData
from hushpore.viewer.layers import KEY, is_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.patches.job import Patches
    from hushpore.viewer.target import Target


class PatchesWidget(JobWidget):
    """Draws patches at random and shows them as boxes on the image."""

    job = "patches"
    purpose = "Shows which patches a denoiser is trained on, as boxes on the image."

    @classmethod
    def accepts(cls, layer: Any) -> bool:
        """Any greyscale image."""
        return isinstance(layer, Image) and not layer.rgb

    @classmethod
    def prefers(cls, layer: Any) -> bool:
        """What a denoiser is trained on: not its result."""
        return cls.accepts(layer) and not is_result(layer, "denoise")

    @classmethod
    def result_layers(cls, result: Patches, target: Target) -> list[LayerData]:
        """Return the boxes, coloured by the order in which they were drawn."""
        values = result.patches.reshape(len(result.patches), -1)
        features = pd.DataFrame(
            {
                # whole numbers would be taken for classes
                "order": np.arange(1.0, len(values) + 1),
                "mean": values.mean(axis=1),
                "sd": values.std(axis=1),
            }
        )
        keywords = {
            **target.placement.kwargs(),
            "name": f"{target.volume.name} patches",
            "shape_type": "rectangle",
            "features": features,
            "edge_color": "order",
            "edge_colormap": "cool",
            "face_color": "transparent",
            "edge_width": max(1.0, result.patch_shape[-1] / 40),
            "metadata": {
                KEY: {
                    "source": target.volume.source,
                    "notes": list(target.volume.notes),
                    "provenance": result.provenance,
                }
            },
        }
        return [(boxes(result.corners, result.patch_shape), keywords, "shapes")]


def boxes(
    corners: npt.NDArray[np.integer[Any]], patch_shape: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Return the outlines of patches in their slices.

    Parameters
    ----------
    corners : numpy.ndarray
        Shape (n, ndim): first voxel of each patch.
    patch_shape : sequence of int
        Edges of a patch; the last two are y and x. A deeper patch is drawn in its first slice.

    Returns
    -------
    numpy.ndarray
        Shape (n, 4, ndim): around the voxels, whose centres have whole coordinates.
    """
    height, width = patch_shape[-2:]
    turns = np.array([(0, 0), (0, width), (height, width), (height, 0)], float) - 0.5
    outlines = np.repeat(corners[:, None, :].astype(float), 4, axis=1)
    outlines[..., -2:] += turns
    return outlines
