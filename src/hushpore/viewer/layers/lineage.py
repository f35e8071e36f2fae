"""Which scan a layer is of, and which run made it of which layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from hushpore.viewer.layers.conversion import METADATA_KEY, known_of, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Key of an `Lineage` in what hushpore keeps in the metadata of a layer.
ORIGIN = "origin"

#: Key of the records of the jobs that have made what a layer was made of, the first one first.
UPSTREAM = "upstream"

#: Keys of what a layer shares with all that is made of it: the voxel size that the user has given,
#: as `hushpore.runs.scan_recipe.ScanRecipe` takes it; spacing and unit as the file has them; how
#: the scan was read, as `ScanRecipe.of` takes it, with the ``shape`` that it had.
VOXEL_SIZE, OF_FILE, READ = INHERITED = ("voxel_size", "voxel_size_of_file", "read")

#: Key that says that a user has painted on a layer.
_PAINTED = "painted"

#: What stands behind the name of a layer in whose place another came, and of what a run has left
#: that was cancelled.
BEFORE, CANCELLED = " (before)", " (cancelled)"

#: What stands behind the name of what shows a slice of a result that is being made.
PREVIEW = " (preview)"


@dataclass(frozen=True)
class Lineage:
    """Where a layer that a job has made comes from."""

    scan: str  # see `scan_of`
    layer: str  # the layer that the job worked on, as `identity` has it
    job: str  # key of `hushpore.jobs.JOBS`
    name: str  # that the layer was given: one that has another by now was named by the user


class WorkedOn(Protocol):
    """A layer that a job works on: a `hushpore.viewer.running.task.Target`."""

    @property
    def layer(self) -> str:
        """Which one it is, as `identity` has it."""

    @property
    def scan(self) -> str:
        """Which scan it is of."""

    @property
    def job(self) -> str:
        """Key of `hushpore.jobs.JOBS`."""


def identity(layer: Any) -> str:
    """Return what tells a layer from all others, whatever it is called."""
    return str(unwrapped(layer).unique_id)


def lineage_of(layer: Any) -> Lineage | None:
    """Return where a layer comes from, or None where no job of this window has made it."""
    found = known_of(layer).get(ORIGIN)
    return found if isinstance(found, Lineage) else None


def scan_of(layer: Any) -> str:
    """Return what tells a scan from others: the same for a layer and all that was made of it."""
    origin = lineage_of(layer)
    return identity(layer) if origin is None else origin.scan


def mark_as_made(layer: Any, target: WorkedOn) -> None:
    """Remember what a layer that has its name was made of."""
    set_lineage(layer, Lineage(target.scan, target.layer, target.job, layer.name))


def set_lineage(layer: Any, origin: Lineage) -> None:
    """Remember where a layer comes from."""
    known = {**known_of(layer), ORIGIN: origin}
    layer.metadata = {**layer.metadata, METADATA_KEY: known}


def watch_painting(layer: Any) -> None:
    """Remember it when a user paints on labels: what is made by hand is never taken away."""
    if hasattr(layer.events, "paint"):
        # before those who then ask whether it was
        layer.events.paint.connect(_remember_painting, position="first")


def is_painted(layer: Any) -> bool:
    """Whether a user has painted on labels: what was measured of them is not of them any more."""
    return bool(known_of(layer).get(_PAINTED))


def _remember_painting(event: Any) -> None:
    known_of(event.source)[_PAINTED] = True


def set_aside(viewer: Any, target: WorkedOn) -> None:
    """Make room for what a job has made of a layer: hide what it had made of that before.

    One run before stays, hidden, to compare with; what it had replaced itself goes, and so does
    what was left of a run that was cancelled. What the user has painted on, or given a name of
    their own, stays, hidden.
    """
    set_aside_remains(viewer, target, (BEFORE, CANCELLED))
    for layer, is_the_users in _made_of(viewer, target):
        layer.visible = False
        if not is_the_users:
            layer.name += BEFORE
            mark_as_made(layer, target)


def set_aside_remains(
    viewer: Any, target: WorkedOn, endings: tuple[str, ...] = (CANCELLED,)
) -> None:
    """Take away what was left of a run of a job on a layer that was cancelled."""
    for layer, is_the_users in _made_of(viewer, target):
        if layer.name.endswith(endings) and not is_the_users:
            viewer.layers.remove(layer)


def _made_of(viewer: Any, target: WorkedOn) -> Iterator[tuple[Any, bool]]:
    """Return what a job has made of a layer; of each, whether the user has worked on it.

    What it makes now, a preview, is not among them.
    """
    for layer in list(viewer.layers):
        origin = lineage_of(layer)
        if origin is None or (origin.layer, origin.job) != (target.layer, target.job):
            continue
        if not origin.name.endswith(PREVIEW):
            yield layer, layer.name != origin.name or is_painted(layer)


def find_layer(viewer: Any, wanted: str) -> Any:
    """Return the layer of an `identity`, or None where it is gone."""
    return next((layer for layer in viewer.layers if identity(layer) == wanted), None)
