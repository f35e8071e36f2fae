"""Even spacing for a layer whose slices are unevenly spaced or missing, where the user asks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from napari import current_viewer
from napari.layers import Layer
from napari.utils.notifications import show_warning

from hushpore.base.errors import InputError
from hushpore.io.resample import is_uneven, resampling
from hushpore.viewer.layers.conversion import layer_data, volume_of
from hushpore.viewer.layers.loading import Loading

if TYPE_CHECKING:
    from hushpore.base.events import Job
    from hushpore.base.volume import Volume


def resample_selected() -> None:
    """Resample the selected layer; the command of the menu Layers > Data."""
    viewer = current_viewer()
    if viewer is None:
        return
    layer = viewer.layers.selection.active
    if layer is None:
        show_warning("Select the layer whose slices are to be resampled.")
    else:
        resample(viewer, layer)


def can_resample(layer: Any) -> bool:
    """Whether a layer knows that its slices are unevenly spaced or missing."""
    try:
        return is_uneven(volume_of(layer))
    except InputError:
        return False


def resample(viewer: Any, layer: Any) -> None:
    """Add a layer beside one of uneven slices that has an even spacing, made in a thread."""
    if not can_resample(layer):
        show_warning(
            f"{layer.name}: nothing to resample. Only stacks of DICOM files whose slices are "
            "unevenly spaced or missing know the places of their slices."
        )
        return
    limits = tuple(layer.contrast_limits)
    Loading(
        f"Resampling {layer.name}",
        partial(_resampled, volume_of(layer), limits),
        viewer.add_layer,
    ).start()


def _resampled(volume: Volume, limits: tuple[float, float]) -> Job:
    even = yield from resampling(volume)
    data, keywords, kind = layer_data(even, contrast_limits=limits)
    return Layer.create(data, {**keywords, "name": f"{volume.name} even"}, kind)
