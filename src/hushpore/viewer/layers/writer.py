"""napari's way to hushpore's writer: a layer keeps its voxel size, unit and axes in the file."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import npe2
from napari.layers import Layer

from hushpore.viewer.layers.conversion import volume_of


def write_image_layer(path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Write an image layer as OME-TIFF or OME-Zarr, by the end of the name."""
    return _write(path, Layer.create(data, attributes, "image"))


def write_labels_layer(path: str, data: Any, attributes: dict[str, Any]) -> list[str]:
    """Write a labels layer as OME-TIFF or OME-Zarr, by the end of the name."""
    return _write(path, Layer.create(data, attributes, "labels"))


def write_image_with_labels(path: str, layers: list[tuple[Any, dict[str, Any], str]]) -> list[str]:
    """Write an image layer and labels layers over it as one OME-Zarr image with labels."""
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
    """List hushpore's writers before napari's own, which lose voxel size, in its dialog to save.

    Of writers that suit alike npe2 takes the first that was registered, and knows no other order.
    """
    with contextlib.suppress(AttributeError, TypeError):
        npe2.PluginManager.instance()._contrib._writers.sort(key=_is_not_ours)


def _is_not_ours(entry: Any) -> bool:
    return str(entry[-1].command).partition(".")[0] != "hushpore"


def _write(path: str, layer: Any) -> list[str]:
    # widgets open without them: pandas and all of the pore engine take 0.3 s
    from hushpore.io.results import write_image
    from hushpore.viewer.layers.layer_files import SavedLayer

    saved = SavedLayer.of(layer)
    # napari has asked by now whether an existing file may be replaced
    saved.require_apart(Path(path))
    record = saved.record("image") or None
    written = write_image(path, saved.volume, provenance=record, overwrite=True)
    return [str(written), *map(str, saved.write_beside(written))]
