"""From a layer to a job, and from its result to layers."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import zlib
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from napari.layers import Image, Labels, Layer, Points
from napari.utils.colormaps import AVAILABLE_COLORMAPS, label_colormap

from hushpore import jobs
from hushpore.base.errors import InputError
from hushpore.base.events import Note, Progress
from hushpore.base.rescaled import held
from hushpore.base.safe_text import file_name
from hushpore.device.all_gpus import ALL_GPUS
from hushpore.viewer.layers.conversion import Placement, known_of, placement_of, volume_of
from hushpore.viewer.layers.lineage import INHERITED, UPSTREAM, identity, mark_as_made, scan_of
from hushpore.viewer.running.preloading import load_torch_libraries
from hushpore.viewer.running.worker import gc_paused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hushpore.base.events import Job
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.viewer.layers.conversion import LayerData


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
    volume = dataclasses.replace(
        volume_of(layer, axis_labels),
        auxiliary={
            **{other.name: _over(other, layer) for other in auxiliary},
            **{other.name: volume_of(other, axis_labels) for other in scans},
        },
    )
    kind, appearance = "labels", {}
    if isinstance(layer, Image):
        kind = "image"
        appearance = {"contrast_limits": tuple(layer.contrast_limits), "gamma": layer.gamma}
        if layer.colormap.name in AVAILABLE_COLORMAPS:
            appearance["colormap"] = layer.colormap.name
    known = _inherited(layer)
    return Target(volume, placement, kind, appearance, job, identity(layer), scan_of(layer), known)


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


#: Modules of widgets that are likely opened next; matplotlib behind the last takes half a second.
NEXT_WIDGETS = (
    "hushpore.viewer.segment.widget",
    "hushpore.viewer.patches.widget",
    "hushpore.viewer.results.panel",
    "hushpore.viewer.results.plots",
    "hushpore.viewer.layers.layer_files",
)


#: Colours of labels at random: napari's own number.
FEW_COLOURS = 49

#: Colours of labels by a column: above 255, so that napari takes numbers of 16 bits for them.
MANY_COLOURS = 300

#: Bytes of a layer that are looked at, before a job and after it, to tell whether it was changed.
_LOOKED_AT = 1 << 29
_CHANGED = (
    "The values of the layer were changed while the job ran: the result is neither of what was "
    "there before nor of what is there now. Run it again."
)


@dataclass(frozen=True)
class Outcome:
    """A finished job, made ready for the window."""

    headline: str  # main figures of the result
    layers: list[Layer]  # the result as layers, which no viewer has yet
    timings: Mapping[str, float]  # seconds by stage
    result: Any  # what the job returned
    remarks: tuple[Note, ...]  # on the result, the most important first


class LayerJob(Protocol):
    """How a job goes from a layer to layers; what a widget says of it, without the widget."""

    job: str

    def prepare(self, target: Target) -> Volume:
        """Return the volume to give to the job."""

    def result_layers(self, result: Any, target: Target) -> list[LayerData]:
        """Return the layers of a result."""

    def cluster_layers(self, result: Any, target: Target) -> list[LayerData]:
        """Return the layers of a result that a cluster has written to disk."""


def local_task(widget: LayerJob, target: Target, settings: Settings, device: str) -> Job:
    """Prepare the volume, run the job and make the layers of its result.

    `widget`: a class of widgets; no widget itself is touched. `device`: as `hushpore.jobs.start`
    takes it.
    Returns: from the generator.
    """
    yield Progress("preparing", 0, 0, "", 0.0)
    volume = widget.prepare(target)
    before = _checksum(volume)
    result = yield from jobs.start(widget.job, volume, settings, device)
    if _checksum(volume) != before:
        changed = Note(_CHANGED, True, "result")
        result.provenance["notes"].append(_CHANGED)
        result.provenance["remarks"].append(changed.to_dict())
        yield changed
    # made here, for napari looks for contrast, thumbnail and colours when a layer is made
    layers = _made(widget.result_layers(result, target), target)
    return Outcome(result.headline, layers, result.timings, result, result.remarks)


def _checksum(volume: Volume) -> int:
    """Return what tells whether the values in memory are still the same; 0 where they are on disk.

    Of what is large planes are taken, evenly.
    """
    data = held(volume.data)
    if not isinstance(data, np.ndarray) or data.ndim < 2:
        return 0
    step = max(1, math.ceil(data.nbytes / _LOOKED_AT))
    found = 0
    for place in itertools.islice(np.ndindex(data.shape[:-2]), 0, None, step):
        found = zlib.crc32(np.ascontiguousarray(data[place]).data, found)
    return found


def cluster_task(
    widget: LayerJob, target: Target, settings: Settings, device: str, where: str
) -> Job:
    """Do on a cluster what `local_task` does here; parameters as there.

    `where`: see `hushpore.cluster.connection.connect`.
    Raises InputError if a setting names a layer, or there is no place for the result.
    """
    from hushpore.cluster.connection import connect

    yield Progress("preparing", 0, 0, "", 0.0)
    for opt in settings.options():
        if opt.auxiliary and getattr(settings, opt.name):
            raise InputError(
                f"{opt.label}: a cluster cannot see layers of this window. Leave it empty, or run "
                "on this computer."
            )
    volume = widget.prepare(target)
    with connect(where) as client:
        yield Note(f"Workers and tasks are shown at {client.dashboard_link}")
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
    """Return the layers of a result, which know what they were made of."""
    layers: list[Any] = [Layer.create(*data) for data in found]
    for layer in layers:
        mark_as_made(layer, target)
        known_of(layer).update(target.inherited)
    return layers


def result_folder_for(volume: Volume, where: str) -> Path:
    """Return the folder for the result: that of the scan, if one can write there.

    Else, where all workers are on this computer, that of the user.

    Raises InputError if there is none that other machines could see.
    """
    source = Path(volume.source) if volume.source else None
    if source is not None and source.exists() and os.access(source.parent, os.W_OK):
        return source.parent
    is_here = where == ALL_GPUS or where.partition(":")[0] == "local"
    if is_here:
        return Path.home()
    raise InputError(
        f"{volume.name} does not lie on a disk that can be written to and that the workers see. "
        "Save it there as OME-Zarr (File > Save Selected Layers), and open that."
    )


def unused_path(folder: Path, stem: str, suffix: str = "") -> Path:
    """Return a path that is not there yet; of work that was broken off the same as before."""
    names = itertools.chain([stem], (f"{stem} {number}" for number in itertools.count(2)))
    return next(path for name in names if not (path := folder / f"{name}{suffix}").exists())


def import_libraries(kind: jobs.JobDescription) -> None:
    """Import the libraries behind a job, its layers and what follows; make first layers of labels.

    What those need is the code of napari's colours, which is compiled once after installing, for
    few of them and for many, and the dashes of the lines around a label, for which VisPy takes a
    twentieth of a second.
    """
    load_torch_libraries()
    with gc_paused():
        kind.load()
        for module in NEXT_WIDGETS:
            import_module(module)
        # what was removed from an image is computed slice by slice
        import_module("dask.array")
    for num_colors in (FEW_COLOURS, MANY_COLOURS):
        Labels(np.zeros((2, 2), np.int32), colormap=label_colormap(num_colors))
    with contextlib.suppress(ImportError, AttributeError):
        # it remembers them
        import_module("vispy.visuals.line.dash_atlas").DashAtlas()
