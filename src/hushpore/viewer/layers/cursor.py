"""Where the mouse points to when the view changes between two and three dimensions."""

from __future__ import annotations

from functools import partial
from typing import Any

from hushpore.viewer.layers.conversion import unwrapped


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
