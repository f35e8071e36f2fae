"""The layer that a job works on, as it was when Run was pressed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image, Points
from napari.utils.colormaps import AVAILABLE_COLORMAPS

from hushpore.base.errors import InputError
from hushpore.viewer.layers.conversion import Placement, known_of, placement_of, volume_of
from hushpore.viewer.layers.origin import INHERITED, UPSTREAM, identity, scan_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.volume import Volume


@dataclass(frozen=True)
class Target:
    """A layer at one moment: what happens to it later changes nothing here."""

    volume: Volume  # its values and geometry
    placement: Placement  # where it lies
    kind: str  # ``"image"`` or ``"labels"``
    # contrast limits, gamma and colour map of an image, for results shown beside it
    appearance: dict[str, Any]
    job: str = ""  # what is done with it, a key of `hushpore.jobs.JOBS`
    layer: str = ""  # which layer it is; see `identity`
    scan: str = ""  # of which scan it is; see `scan_of`
    # what hushpore keeps in the metadata of what is made of it: the records of the jobs before, the
    # voxel size that the user has given, and how the scan was read
    inherited: dict[str, Any] = field(default_factory=dict)


def capture(
    layer: Any,
    axis_labels: Sequence[str] = (),
    auxiliary: Sequence[Any] = (),
    job: str = "",
    scans: Sequence[Any] = (),
) -> Target:
    """Remember a layer; its values are not copied.

    `layer`, `axis_labels`: as for `volume_of`, which says the errors too. `auxiliary`: other layers
    that the job needs: they lie beside the volume under their names. `job`: what is done with it.
    `scans`: of the layers that the job needs those that are further scans of the same thing.
    """
    placement = placement_of(layer)
    which = (job, identity(layer), scan_of(layer), _inherited(layer))
    volume = dataclasses.replace(
        volume_of(layer, axis_labels),
        auxiliary={
            **{other.name: _over(other, layer) for other in auxiliary},
            **{other.name: volume_of(other, axis_labels) for other in scans},
        },
    )
    if not isinstance(layer, Image):
        return Target(volume, placement, "labels", {}, *which)
    appearance = {"contrast_limits": tuple(layer.contrast_limits), "gamma": layer.gamma}
    if layer.colormap.name in AVAILABLE_COLORMAPS:
        appearance["colormap"] = layer.colormap.name
    return Target(volume, placement, "image", appearance, *which)


def _inherited(layer: Any) -> dict[str, Any]:
    known = known_of(layer)
    provenance = known.get("provenance")
    before = (*known.get(UPSTREAM, ()), *([provenance] if provenance else []))
    return {UPSTREAM: before, **{key: known[key] for key in INHERITED if key in known}}


def _over(other: Any, layer: Any) -> Any:
    """Return what another layer holds in the voxels of `layer`: an array, or coordinates."""
    if not isinstance(other, Points):
        return other.data[0] if other.multiscale else other.data
    if other.ndim != layer.ndim:
        raise InputError(
            f"The points of {other.name} have {other.ndim} axes, but {layer.name} has "
            f"{layer.ndim}. Add a Points layer while {layer.name} is shown, and place them there."
        )
    places = [layer.world_to_data(other.data_to_world(point)) for point in other.data]
    return np.array(places, np.float64).reshape(len(places), layer.ndim)


def slice_on_screen(viewer: Any, target: Target) -> tuple[int, ...] | None:
    """Return which slice of a volume is on the screen: its position on the leading axes.

    None where that is no slice of it: in 3D, with the axes turned, or beyond its ends.
    """
    dims, shape = viewer.dims, target.volume.shape
    ndim, last = len(shape), tuple(range(dims.ndim - 2, dims.ndim))
    if dims.ndisplay != 2 or tuple(dims.displayed) != last or dims.ndim < ndim:
        return None
    index = target.placement.voxel_at(dims.point[-ndim:])[:-2]
    is_inside = all(0 <= at < length for at, length in zip(index, shape, strict=False))
    return index if is_inside else None
