"""What is done in the thread of a worker for a job that runs on a cluster."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napari.layers import Layer

from hushpore.base.errors import InputError
from hushpore.base.events import Note, Progress
from hushpore.device.scratch import new_folder
from hushpore.jobs import JOBS, load
from hushpore.viewer.running.task import Outcome

if TYPE_CHECKING:
    from hushpore.base.events import Job
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.viewer.running.target import Target
    from hushpore.viewer.running.task import LayerJob


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
        kind = JOBS[widget.job]
        end = ".ome.zarr" if kind.gives else ""
        path = unused_path(folder, f"{volume.name}_{kind.gives or widget.job}", end)
        result = yield from load(kind.cluster)(client, volume, path, settings, device=device)
    layers: list[Any] = [Layer.create(*data) for data in widget.cluster_layers(result, target)]
    summary = f"{result.summary}. Written: {path}"
    return Outcome(summary, layers, result.provenance["timings"], result)


def result_folder_for(volume: Volume, where: str) -> Path:
    """Return the folder for the result: that of the scan, if one can write there.

    Raises InputError if there is none that other machines could see.
    """
    source = Path(volume.source) if volume.source else None
    if source is not None and source.exists() and os.access(source.parent, os.W_OK):
        return source.parent
    if where.startswith("local"):
        return Path(new_folder())
    raise InputError(
        f"{volume.name} does not lie on a disk that can be written to and that the workers see. "
        "Save it there as OME-Zarr (File > Save Selected Layers), and open that."
    )


def unused_path(folder: Path, stem: str, suffix: str = "") -> Path:
    """Return a path that is not there yet; of work that was broken off the same as before."""
    names = itertools.chain([stem], (f"{stem} {number}" for number in itertools.count(2)))
    return next(path for name in names if not (path := folder / f"{name}{suffix}").exists())
