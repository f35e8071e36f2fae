"""The writer plugin: saves layers with voxel size, unit and axes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import npe2
from napari.layers import Layer

from hushpore.viewer.layers.conversion import volume_of


def write_image_layer(path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Save an image layer as OME-TIFF or OME-Zarr, by the ending of the name."""
    return _write(path, Layer.create(data, attributes, "image"))


def write_labels_layer(path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Save a labels layer as OME-TIFF or OME-Zarr, by the ending of the name."""
    return _write(path, Layer.create(data, attributes, "labels"))


def write_image_with_labels(path: str, layers: list[tuple[Any, dict[str, Any], str]]) -> list[str]:
    """Save an image layer and its labels layers as one OME-Zarr image with labels."""
    from hushpore.io.zarr import write_zarr
    from hushpore.viewer.layers.layer_files import SavedLayer

    image, *labels = sorted(layers, key=lambda layer: layer[2] != "image")
    volume = volume_of(Layer.create(*image))
    over = [volume_of(Layer.create(*layer)) for layer in labels]
    for layer in layers:
        SavedLayer.of(Layer.create(*layer)).require_apart(Path(path))
    written = write_zarr(path, volume, labels={each.name: each for each in over}, overwrite=True)
    return [str(written)]


def prefer_our_writers() -> None:
    """Put hushpore's writers before napari's own, which lose the voxel size, in the save dialog.

    npe2 uses the first registered writer and has no other order.
    """
    with contextlib.suppress(AttributeError, TypeError):
        npe2.PluginManager.instance()._contrib._writers.sort(key=_is_not_ours)


def _is_not_ours(entry: Any) -> bool:
    return str(entry[-1].command).partition(".")[0] != "hushpore"


def _write(path: str, layer: Any) -> list[str]:
    # imported late: pandas and the pore engine take 0.3 s
    from hushpore.io.results import write_image
    from hushpore.viewer.layers.layer_files import SavedLayer

    saved = SavedLayer.of(layer)
    # napari has already asked whether to replace an existing file
    saved.require_apart(Path(path))
    record = saved.record("image") or None
    written = write_image(path, saved.volume, provenance=record, overwrite=True)
    return [str(written), *map(str, saved.write_beside(written))]
