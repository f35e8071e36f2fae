"""The lineage of layers: their scan, and the job and layer that they were made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hushpore.viewer.layers.conversion import METADATA_KEY, known_of, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Key of the `Lineage` in hushpore's metadata of a layer.
LINEAGE = "lineage"

#: Key of the records of the jobs before the one that made a layer, in order.
UPSTREAM = "upstream"

#: Keys that a layer shares with all layers made from it: the voxel size given by the user, as
#: `hushpore.runs.scan_recipe.ScanRecipe` takes it; spacing and unit of the file; how the scan was
#: read, as `ScanRecipe.of` takes it, with its shape (``scan_shape``).
VOXEL_SIZE, OF_FILE, READ = INHERITED = ("voxel_size", "voxel_size_of_file", "read")

#: Key for labels edited by hand.
_PAINTED = "painted"

#: Endings of the names of a replaced result and of the preview of a cancelled run.
REPLACED, CANCELLED = " (previous run)", " (cancelled)"

#: Ending of the name of a preview.
PREVIEW = " (preview)"


@dataclass(frozen=True)
class Lineage:
    """The scan, layer and job from which a layer was made."""

    scan: str  # see `scan_of`
    layer: str  # `identity` of the input layer
    job: str  # key of `hushpore.jobs.JOBS`
    name: str  # given by hushpore; another name means that the user has renamed the layer


class WorkedOn(Protocol):
    """The input layer of a job: a `hushpore.viewer.running.task.Target`."""

    @property
    def layer(self) -> str:
        """The `identity` of the layer."""

    @property
    def scan(self) -> str:
        """The scan of the layer."""

    @property
    def job(self) -> str:
        """Key of `hushpore.jobs.JOBS`."""


def identity(layer: Any) -> str:
    """Return an id of the layer that survives renaming."""
    return str(unwrapped(layer).unique_id)


def lineage_of(layer: Any) -> Lineage | None:
    """Return the lineage of a layer, or None if no job of this window made it."""
    found = known_of(layer).get(LINEAGE)
    return found if isinstance(found, Lineage) else None


def scan_of(layer: Any) -> str:
    """Return the id of the scan of a layer, which all layers made from it share."""
    lineage = lineage_of(layer)
    return identity(layer) if lineage is None else lineage.scan


def mark_as_made(layer: Any, target: WorkedOn) -> None:
    """Set the lineage of a layer that was made from a target; call it after naming the layer."""
    set_lineage(layer, Lineage(target.scan, target.layer, target.job, layer.name))


def set_lineage(layer: Any, lineage: Lineage) -> None:
    """Set the lineage of a layer."""
    known = {**known_of(layer), LINEAGE: lineage}
    layer.metadata = {**layer.metadata, METADATA_KEY: known}


def watch_painting(layer: Any) -> None:
    """Mark labels when the user edits them: such layers are never removed.

    From the first brush on the layer has its own copy of the labels, so that its result stays.
    """
    if hasattr(layer.events, "paint"):
        layer.events.mode.connect(_own_labels)
        # before the callbacks that ask for the mark
        layer.events.paint.connect(_remember_painting, position="first")


def is_painted(layer: Any) -> bool:
    """Whether the user has edited labels, so that their tables are out of date."""
    return bool(known_of(layer).get(_PAINTED))


def unpainted(layer: Any) -> dict[str, Any]:
    """Return hushpore's metadata of a layer without the mark of editing."""
    return {name: value for name, value in known_of(layer).items() if name != _PAINTED}


def _own_labels(event: Any) -> None:
    layer, result = event.source, known_of(event.source).get("pores")
    is_editing = str(layer.mode) not in ("pan_zoom", "pick", "transform")
    if is_editing and result is not None and np.shares_memory(layer.data, result.labels):
        layer.data = np.array(layer.data)


def _remember_painting(event: Any) -> None:
    known_of(event.source)[_PAINTED] = True


def hide_previous_results(viewer: Any, target: WorkedOn) -> None:
    """Hide the results of the previous run of a job on a layer, for comparison with the new ones.

    Results of the run before that and previews of cancelled runs are removed. Layers that the user
    has edited or renamed are hidden, but never removed. Labels that the job made from another layer
    of the scan are hidden, too, because they would lie under the new ones.
    """
    for layer in viewer.layers:
        lineage = lineage_of(layer)
        if lineage is None or (lineage.scan, lineage.job) != (target.scan, target.job):
            continue
        if lineage.layer != target.layer and hasattr(layer, "selected_label"):
            layer.visible = False
    remove_leftovers(viewer, target, (REPLACED, CANCELLED))
    for layer, is_the_users in _made_of(viewer, target):
        layer.visible = False
        if not is_the_users:
            layer.name += REPLACED
            mark_as_made(layer, target)


def remove_leftovers(
    viewer: Any, target: WorkedOn, endings: tuple[str, ...] = (CANCELLED,)
) -> None:
    """Remove the layers of earlier runs of a job on a layer by the endings of their names."""
    for layer, is_the_users in _made_of(viewer, target):
        if layer.name.endswith(endings) and not is_the_users:
            viewer.layers.remove(layer)


def _made_of(viewer: Any, target: WorkedOn) -> Iterator[tuple[Any, bool]]:
    """Yield the results of a job on a layer, and whether the user has changed them.

    Previews are left out.
    """
    for layer in list(viewer.layers):
        lineage = lineage_of(layer)
        if lineage is None or (lineage.layer, lineage.job) != (target.layer, target.job):
            continue
        if not lineage.name.endswith(PREVIEW):
            record = known_of(layer).get("provenance") or {}
            is_edited = is_painted(layer) or bool(record.get("corrections"))
            yield layer, layer.name != lineage.name or is_edited


def layers_of_other_scans(viewer: Any, scan: str) -> list[Any]:
    """Return the layers of scans from which jobs of this window made layers, except for one scan.

    Layers that the user has edited or added by hand are left out.
    """
    made = {lineage.scan for lineage in map(lineage_of, viewer.layers) if lineage is not None}
    return [
        layer
        for layer in viewer.layers
        if scan_of(layer) in made - {scan} and not is_painted(layer)
    ]


def layer_with(viewer: Any, wanted: str) -> Any:
    """Return the layer with this `identity`, or None if it was removed."""
    return next((layer for layer in viewer.layers if identity(layer) == wanted), None)
