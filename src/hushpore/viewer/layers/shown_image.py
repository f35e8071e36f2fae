"""The image of a series that is on the screen, as a layer of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from napari.layers import Image, Layer

from hushpore.viewer.layers.conversion import (
    METADATA_KEY,
    appearance_of,
    known_of,
    layer_data,
    placement_of,
    volume_of,
)
from hushpore.viewer.layers.lineage import OF_FILE, READ, VOXEL_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Link that chooses the image on the screen; part of the line about a series.
SHOWN = "Use the image shown"


def shown_image(viewer: Any, layer: Any, axis_labels: Sequence[str]) -> Layer:
    """Return the time or channel of a series that is on the screen.

    `layer`, `axis_labels`: as for `volume_of`. The layer has the place, the colours and the voxel
    size of the series, and its name ends with the position: ``"series t=2"``.
    """
    volume = volume_of(layer, axis_labels)
    leading = volume.axes[: -volume.n_spatial]
    index = placement_of(layer).voxel_at(viewer.dims.point[-layer.ndim :])
    at = {
        axis: min(max(place, 0), length - 1)
        for axis, place, length in zip(leading, index, volume.shape, strict=False)
    }
    position = " ".join(f"{axis}={place}" for axis, place in at.items())
    kind, words = ("image", appearance_of(layer)) if isinstance(layer, Image) else ("labels", {})
    found = layer_data(volume.at(**at), kind, name=f"{layer.name} {position}", **words)
    known = known_of(layer)
    found[1]["metadata"][METADATA_KEY] |= {
        key: known[key] for key in (READ, VOXEL_SIZE, OF_FILE) if key in known
    }
    return Layer.create(*found)
