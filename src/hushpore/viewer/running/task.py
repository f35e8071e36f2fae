"""Running a job on a layer, and turning its result into layers."""

from __future__ import annotations

import dataclasses
import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image, Layer, Points

from hushpore import jobs
from hushpore.base.errors import InputError
from hushpore.base.events import Note, Progress
from hushpore.base.formatting import file_name
from hushpore.viewer.layers.conversion import (
    INHERITED,
    UPSTREAM,
    Placement,
    appearance_of,
    identity,
    known_of,
    mark_as_made,
    name_of,
    placement_of,
    scan_of,
    units_in_world,
    volume_of,
)
from hushpore.viewer.layers.visibility import show_colour_bar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hushpore.base.events import Job
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.viewer.layers.conversion import LayerData


@dataclass(frozen=True)
class Target:
    """A snapshot of the input layer of a job, independent of later changes."""

    volume: Volume  # values and geometry
    placement: Placement
    kind: str  # ``"image"`` or ``"labels"``
    # contrast limits, gamma and colour map of an image, for results shown beside it
    appearance: dict[str, Any]
    job: str = ""  # key of `hushpore.jobs.JOBS`
    layer: str = ""  # see `identity`
    scan: str = ""  # see `scan_of`
    # metadata for the results: records of the previous jobs, the voxel size given by the user, and
    # how the scan was read
    inherited: dict[str, Any] = field(default_factory=dict)

    def named(self, shows: str) -> str:
        """Return the name of a layer made from this one, by what it shows."""
        return name_of(self.volume.name, shows)


def capture(
    layer: Any,
    axis_labels: Sequence[str] = (),
    auxiliary: Sequence[Any] = (),
    job: str = "",
    scans: Sequence[Any] = (),
) -> Target:
    """Return the snapshot of a layer; its values are not copied.

    `layer`, `axis_labels`: as for `volume_of`, which also lists the errors. `auxiliary`: other
    layers for the job, by their names in `Volume.auxiliary`. `job`: key of `hushpore.jobs.JOBS`.
    `scans`: further scans of the same sample for the job.
    """
    placement = placement_of(layer)
    volume = dataclasses.replace(
        volume_of(layer, axis_labels),
        auxiliary={
            **{other.name: _over(other, layer) for other in auxiliary},
            **{other.name: volume_of(other, axis_labels) for other in scans},
        },
    )
    kind, appearance = "labels", {}
    if isinstance(layer, Image):
        kind, appearance = "image", appearance_of(layer)
    known = _inherited(layer)
    return Target(volume, placement, kind, appearance, job, identity(layer), scan_of(layer), known)


def _inherited(layer: Any) -> dict[str, Any]:
    known = known_of(layer)
    provenance = known.get("provenance")
    before = (*known.get(UPSTREAM, ()), *([provenance] if provenance else []))
    return {UPSTREAM: before, **{key: known[key] for key in INHERITED if key in known}}


def _over(other: Any, layer: Any) -> Any:
    """Return the values of another layer, or its points in voxel coordinates of `layer`."""
    if not isinstance(other, Points):
        return other.data[0] if other.multiscale else other.data
    if other.ndim != layer.ndim:
        raise InputError(
            f"The points of {other.name} have {other.ndim} axes, but {layer.name} has "
            f"{layer.ndim}. Add a Points layer while {layer.name} is shown, and set them there."
        )
    places = [layer.world_to_data(other.data_to_world(point)) for point in other.data]
    return np.array(places, np.float64).reshape(len(places), layer.ndim)


def slice_on_screen(viewer: Any, target: Target) -> tuple[int, ...] | None:
    """Return the slice of a volume on the screen, as its position on the leading axes.

    None in 3D, with rolled axes, or outside the volume.
    """
    dims, shape = viewer.dims, target.volume.shape
    ndim, last = len(shape), tuple(range(dims.ndim - 2, dims.ndim))
    if dims.ndisplay != 2 or tuple(dims.displayed) != last or dims.ndim < ndim:
        return None
    point = np.array(dims.point[-ndim:]) / units_in_world(viewer, target.placement.units)
    index = target.placement.voxel_at(tuple(point))[:-2]
    is_inside = all(0 <= at < length for at, length in zip(index, shape, strict=False))
    return index if is_inside else None


@dataclass(frozen=True)
class Outcome:
    """A finished job, prepared for the window."""

    headline: str  # main figures of the result
    layers: list[Layer]  # the result as layers, not in a viewer yet
    timings: Mapping[str, float]  # seconds by stage
    result: Any  # what the job returned
    remarks: tuple[Note, ...]  # on the result, the most important first


def local_task(widget: Any, target: Target, settings: Settings, device: str) -> Job:
    """Prepare the volume, run the job, and create the layers of its result.

    `widget`: a class; no widget is accessed. `device`: as `hushpore.jobs.start`
    takes it.
    Returns: the outcome, as the return value of the generator.
    """
    yield Progress("preparing", 0, 0, "", 0.0)
    volume = widget.prepare(target)
    result = yield from jobs.start(widget.job, volume, settings, device)
    # in this thread, because napari computes contrast, thumbnail and colours of a new layer
    layers = _made(widget.result_layers(result, target), target)
    return Outcome(result.headline, layers, result.timings, result, result.remarks)


def cluster_task(widget: Any, target: Target, settings: Settings, device: str, where: str) -> Job:
    """Run a job on a cluster; otherwise the same as `local_task`.

    `where`: see `hushpore.cluster.connection.connect`.
    Raises InputError if a setting names a layer, or there is no folder for the result.
    """
    from hushpore.cluster.connection import connect

    yield Progress("preparing", 0, 0, "", 0.0)
    for opt in settings.options():
        if opt.auxiliary and getattr(settings, opt.name):
            raise InputError(
                f"{opt.label}: a cluster has no access to layers of this window. Leave it empty, "
                "or run on this computer."
            )
    volume = widget.prepare(target)
    with connect(where) as client:
        yield Note(f"Dashboard of workers and tasks: {client.dashboard_link}")
        folder = result_folder_for(volume, where)
        kind = jobs.JOBS[widget.job]
        end = ".ome.zarr" if kind.gives else ""
        stem = file_name(f"{volume.name}_{kind.gives or widget.job}")
        path = unused_path(folder, stem, end)
        result = yield from jobs.load(kind.cluster)(client, volume, path, settings, device=device)
    layers = _made(widget.cluster_layers(result, target), target)
    remarks = (*result.remarks, Note(f"The result was saved as {path}."))
    return Outcome(result.headline, layers, result.provenance["timings"], result, remarks)


def _made(found: list[LayerData], target: Target) -> list[Layer]:
    """Return the layers of a result, with their lineage."""
    layers: list[Any] = [Layer.create(*data) for data in found]
    for number, layer in enumerate(layers):
        mark_as_made(layer, target, helps=number > 0)
        known_of(layer).update(target.inherited)
        show_colour_bar(layer)
    return layers


def result_folder_for(volume: Volume, where: str) -> Path:
    """Return the folder for the result of a cluster: the folder of the scan, if it is writable.

    Otherwise the home folder, if all workers run on this computer.

    Raises InputError if there is no folder that other machines can access.
    """
    source = Path(volume.source) if volume.source else None
    if source is not None and source.exists() and os.access(source.parent, os.W_OK):
        return source.parent
    if where.partition(":")[0] == "local":
        return Path.home()
    raise InputError(
        f"{volume.name} is not in a writable folder that the workers can access. Save it as "
        "OME-Zarr in such a folder (File > Save Selected Layers), and open that."
    )


def unused_path(folder: Path, stem: str, suffix: str = "") -> Path:
    """Return a path that does not exist yet; an interrupted job gets the same path again."""
    names = itertools.chain([stem], (f"{stem} {number}" for number in itertools.count(2)))
    return next(path for name in names if not (path := folder / f"{name}{suffix}").exists())
