"""What is shown: layers of an opened scan, the image on the screen, files that no reader takes."""

from __future__ import annotations

import os
import pkgutil
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from napari.errors import NoAvailableReaderError, ReaderPluginError
from napari.layers import Image, Labels, Layer
from napari.utils.notifications import notification_manager
from napari.viewer import current_viewer
from qtpy.QtCore import QTimer

from hushpore.viewer.layers.conversion import (
    METADATA_KEY,
    OF_FILE,
    READ,
    VOXEL_SIZE,
    appearance_of,
    is_length,
    known_of,
    layer_data,
    point_at,
    scan_of,
    units_in_world,
    volume_of,
    voxel_at,
    watch_painting,
)
from hushpore.viewer.running.problem import notices_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def show_scale_bar(viewer: Any, units: Sequence[Any] = ()) -> None:
    """Show a scale bar if all layers have a unit of length.

    With layers without a unit, napari would show a number without a unit.

    `units`: units of layers that are added next.
    """
    of_all = [*units, *(layer.units[-1] for layer in viewer.layers)]
    known = [is_length(unit) for unit in of_all]
    if any(known):
        viewer.canvas.overlays.scale_bar.visible = all(known)


def show_colour_bar(layer: Any) -> None:
    """Show napari's colour bar for an image of lengths or of transport."""
    from hushpore.viewer.results.pore_layer import LENGTHS, TRANSPORT

    if isinstance(layer, Image) and not {LENGTHS, TRANSPORT}.isdisjoint(known_of(layer)):
        layer.colorbar.visible = True


def show_new_scans_later(viewer: Any) -> None:
    """Show the scans that napari adds in this turn of the event loop."""
    before = list(viewer.layers)
    QTimer.singleShot(0, partial(_show_added, viewer, before))


def _show_added(viewer: Any, before: Sequence[Any]) -> None:
    show_new_scans(viewer, [layer for layer in viewer.layers if layer not in before])


def show_new_scans(viewer: Any, new: Sequence[Any]) -> None:
    """Show newly opened scans, and hide those opened before.

    Two scans rarely share a coordinate system: the current slice may be outside the new one, and
    its size different.
    """
    new = [layer for layer in new if layer in viewer.layers]
    for layer in new:
        show_colour_bar(layer)
    for labels in (layer for layer in new if isinstance(layer, Labels)):
        # imported late, because scans do not need the tables of pores
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
    # napari fits only layers with all axes of the viewer
    if any(layer.ndim == viewer.dims.ndim for layer in new):
        fit_view(viewer, new)
    else:
        viewer.reset_view()


def fit_view(viewer: Any, layers: Sequence[Any]) -> None:
    """Fit the view to layers of one scan, which napari does in the unit of the scan alone."""
    viewer.reset_view(layers=layers)
    camera, unit = viewer.scene.camera, units_in_world(viewer, layers[0].units)[-1]
    if unit != 1:
        camera.center = tuple(unit * float(place) for place in camera.center)
        camera.zoom /= unit


def slice_of(viewer: Any, layer: Any) -> list[float]:
    """Return the viewer's position in a layer, in voxels."""
    return [float(at) for at in voxel_at(viewer, layer, viewer.dims.point)]


def go_to_slice(viewer: Any, layer: Any, place: Sequence[float]) -> None:
    """Move the viewer to a position in a layer, in voxels."""
    first = viewer.dims.ndim - layer.ndim
    world = point_at(viewer, layer, place)
    for axis in range(layer.ndim):
        viewer.dims.set_point(first + axis, float(world[axis]))


def _shape(layer: Any) -> tuple[int, ...]:
    data = layer.data[0] if layer.multiscale else layer.data
    return tuple(data.shape)


def keep_status_empty(viewer: Any) -> None:
    """Empty napari's status line after a change of the 3D view, until the mouse moves.

    Without a view direction, which comes with the mouse, it raises a TypeError in napari 0.9 for
    labels with features, and a layer that is being added to the 3D view is added only partly.
    """
    dims = viewer.dims.events
    # a first volume beside 2D images also changes the view
    for changed in (dims.ndisplay, dims.ndim, dims.order):
        changed.connect(partial(_empty_status, viewer))
    if _fill_status not in viewer.mouse_move_callbacks:
        viewer.mouse_move_callbacks.append(_fill_status)


def _empty_status(viewer: Any, _event: object = None) -> None:
    if viewer.dims.ndisplay == 3:
        viewer.mouse_over_canvas = False


def _fill_status(viewer: Any, _event: object) -> None:
    viewer.mouse_over_canvas = True


#: Link that chooses the image on the screen; part of the line about a series.
SHOWN = "Use the image shown"


def shown_image(viewer: Any, layer: Any, axis_labels: Sequence[str]) -> Layer:
    """Return the time or channel of a series that is on the screen.

    `layer`, `axis_labels`: as for `volume_of`. The layer has the place, the colours and the voxel
    size of the series, and its name ends with the position: ``"series t=2"``.
    """
    volume = volume_of(layer, axis_labels)
    leading = volume.axes[: -volume.n_spatial]
    index = [round(at) for at in slice_of(viewer, layer)]
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


#: Name of the readers that come with napari.
_BUILTIN = "napari"
#: By name, since it imports the file formats, and widgets open before them.
_READ = "hushpore.viewer.layers.reader:read_in_thread"


def explain_unopened() -> None:
    """Have hushpore read files that napari has no reader for, instead of napari's error.

    The manifest cannot do that: a pattern such as ``*.csv`` would make napari ask for the reader
    of every table of points. Errors of other plugins are shown as they are.
    """
    notification_manager.notification_ready.connect(_try_to_read)


def _try_to_read(notification: Any) -> None:
    """Read the file that an error of napari is about."""
    error = getattr(notification, "exception", None)
    if not isinstance(error, NoAvailableReaderError | ReaderPluginError):
        return
    if isinstance(error, ReaderPluginError) and error.reader_plugin != _BUILTIN:
        return
    paths, viewer = [os.fspath(path) for path in error.paths], current_viewer()
    in_main = threading.current_thread() is threading.main_thread()
    if viewer is None or len(paths) != 1 or not os.path.exists(paths[0]) or not in_main:
        return
    # later, because napari cannot show a notification within another
    QTimer.singleShot(0, partial(_read, viewer, paths[0], notification.message))


def _read(viewer: Any, path: str, message: str) -> None:
    """Close napari's notification, and read the file."""
    for box in notices_of(viewer, message):
        box.close()
    pkgutil.resolve_name(_READ)(viewer, path)
