"""The layer that a job works on, as it was when Run was pressed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from napari.layers import Image
from napari.utils.colormaps import AVAILABLE_COLORMAPS

from hushpore.viewer.layers import Placement, placement_of, volume_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.volume import Volume


@dataclass(frozen=True)
class Target:
    """A layer at one moment: what happens to it later changes nothing here.

    Attributes
    ----------
    volume : Volume
        Its values and geometry.
    placement : Placement
        Where it lies.
    kind : str
        ``"image"`` or ``"labels"``.
    look : dict
        Contrast limits, gamma and colour map of an image, for results shown beside it.
    """

    volume: Volume
    placement: Placement
    kind: str
    look: dict[str, Any]


def capture(layer: Any, axis_labels: Sequence[str] = ()) -> Target:
    """Remember a layer; its values are not copied. Parameters and errors as for `volume_of`."""
    volume, placement = volume_of(layer, axis_labels), placement_of(layer)
    if not isinstance(layer, Image):
        return Target(volume, placement, "labels", {})
    look = {"contrast_limits": tuple(layer.contrast_limits), "gamma": layer.gamma}
    if layer.colormap.name in AVAILABLE_COLORMAPS:
        look["colormap"] = layer.colormap.name
    return Target(volume, placement, "image", look)
