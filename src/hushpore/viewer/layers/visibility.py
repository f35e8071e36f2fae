"""What of the layers is on the screen when a scan comes, and what the mouse points to."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from napari.layers import Image, Labels
from qtpy.QtCore import QTimer

from hushpore.viewer.layers.conversion import is_length, unwrapped
from hushpore.viewer.layers.lineage import scan_of, watch_painting

if TYPE_CHECKING:
    from collections.abc import Sequence


def show_scale_bar(viewer: Any, units: Sequence[Any] = ()) -> None:
    """Show a scale bar in a viewer whose layers have a unit of length.

    There is none while others of its layers have none: napari would write a number without a unit
    beside it, whichever of them is seen.

    `units`: of layers that it does not have yet.
    """
    of_all = [*units, *(layer.units[-1] for layer in viewer.layers)]
    known = [is_length(unit) for unit in of_all]
    if any(known):
        viewer.canvas.overlays.scale_bar.visible = all(known)


def present_next(viewer: Any) -> None:
    """Bring to the screen what napari adds in this turn of the event loop."""
    before = list(viewer.layers)
    QTimer.singleShot(0, partial(_present_new, viewer, before))


def _present_new(viewer: Any, before: Sequence[Any]) -> None:
    present(viewer, [layer for layer in viewer.layers if layer not in before])


def present(viewer: Any, new: Sequence[Any]) -> None:
    """Bring scans that were opened to the screen, and hide those before them.

    Two scans that are no copies of each other rarely have their voxels in the same places: the
    slice on the screen may be none of the new one's, and its size another.
    """
    new = [layer for layer in new if layer in viewer.layers]
    for labels in (layer for layer in new if isinstance(layer, Labels)):
        # a scan that is dropped waits for the tables of pores no longer than it has to
        from hushpore.viewer.results.pore_layer import name_in_words

        name_in_words(labels)
        watch_painting(labels)
    scans = {scan_of(layer) for layer in new}
    others = [layer for layer in viewer.layers if scan_of(layer) not in scans]
    if not any(isinstance(layer, Image) for layer in new) or not others:
        return
    for layer in others:
        layer.visible = False
    go_to_slice(viewer, new[0], [(length - 1) // 2 for length in _shape(new[0])])
    # napari fits only layers that have all axes that the viewer has
    fits = any(layer.ndim == viewer.dims.ndim for layer in new)
    viewer.reset_view(layers=new if fits else None)


def slice_of(viewer: Any, layer: Any) -> list[float]:
    """Return the place in a layer that is on the screen, in voxels."""
    return [float(at) for at in layer.world_to_data(viewer.dims.point[-layer.ndim :])]


def go_to_slice(viewer: Any, layer: Any, place: Sequence[float]) -> None:
    """Bring a place in a layer, in voxels, to the screen."""
    first = viewer.dims.ndim - layer.ndim
    world = layer.data_to_world(place)
    for axis in range(layer.ndim):
        viewer.dims.set_point(first + axis, float(world[axis]))


def _shape(layer: Any) -> tuple[int, ...]:
    data = layer.data[0] if layer.multiscale else layer.data
    return tuple(data.shape)


def keep_aimed(viewer: Any) -> None:
    """Have napari know which way the mouse points before it moves for the first time in 3D.

    Until then napari 0.9 knows no direction, and what it says of the labels under the mouse, where
    they have features as pores do, ends in a TypeError: the layer that is just being added to the
    3D view, by a job that has ended or by a drop, would be half added.
    """
    dims = viewer.dims.events
    # a first volume beside pictures of two dimensions turns the view as the button does
    for changed in (dims.ndisplay, dims.ndim, dims.order):
        changed.connect(partial(_aim, viewer))


def _aim(viewer: Any, _event: object = None) -> None:
    dims, camera = viewer.dims, viewer.scene.camera
    # what napari gives to plugins warns of a name that is not public
    cursor = unwrapped(viewer.cursor)
    cursor._view_direction = camera.calculate_nd_view_direction(dims.ndim, dims.displayed)
