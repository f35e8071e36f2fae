"""napari's way to hushpore's writer: a layer keeps its voxel size, unit and axes in the file."""

from __future__ import annotations

from typing import Any

from napari.layers import Layer

from hushpore.io.results import write_image
from hushpore.io.zarr import write_zarr
from hushpore.viewer.layers.conversion import known_of, volume_of


def write_image_layer(path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Write an image layer as OME-TIFF or OME-Zarr, by the end of the name."""
    return _write(path, Layer.create(data, attributes, "image"))


def write_labels_layer(path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Write a labels layer as OME-TIFF or OME-Zarr, by the end of the name."""
    return _write(path, Layer.create(data, attributes, "labels"))


def write_image_with_labels(path: str, layers: list[tuple[Any, dict[str, Any], str]]) -> list[str]:
    """Write an image layer and labels layers over it as one OME-Zarr image with labels."""
    image, *labels = sorted(layers, key=lambda layer: layer[2] != "image")
    volume = volume_of(Layer.create(*image))
    over = [volume_of(Layer.create(*layer)) for layer in labels]
    written = write_zarr(path, volume, labels={each.name: each for each in over}, overwrite=True)
    return [str(written)]


def _write(path: str, layer: Any) -> list[str]:
    provenance = known_of(layer).get("provenance")
    # napari has asked by now whether an existing file may be replaced
    written = write_image(path, volume_of(layer), provenance=provenance, overwrite=True)
    return [str(written)]
