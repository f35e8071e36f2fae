"""The scan that a cluster works on: an OME-Zarr image, of which every worker reads blocks."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hushpore.base.events import Note
from hushpore.base.volume import Volume
from hushpore.io import choose
from hushpore.io.registry import kind_of
from hushpore.io.zarr.reader import ZarrStack, open_zarr
from hushpore.runs.convert import converting
from hushpore.runs.source import Source, files_of

if TYPE_CHECKING:
    import os
    from collections.abc import Generator

    from hushpore.base.events import Event
    from hushpore.base.settings import Settings

    #: A file or folder, or a volume.
    Scan: TypeAlias = str | os.PathLike[str] | Volume


def as_zarr(
    scan: Scan,
    scratch: Path,
    series: int | str | None = None,
    copy: str = "scan",
    *,
    trust: bool = False,
) -> Generator[Event, None, tuple[str, int]]:
    """Return where the scan lies as OME-Zarr, converted first where it is of another format.

    `scan`: what `hushpore.read` takes; or a volume, which lies on disk already where it was opened
    from OME-Zarr. `scratch`: where to convert to, on a disk that all workers see. `series`: which
    of several image stacks, and `trust`: as for `hushpore.read`. `copy`: what it is called there.
    Yields: of the conversion.
    Returns: the folder; which of its images.
    Raises InputError if it cannot be read.
    """
    found = _on_disk(scan, series)
    if found is not None:
        return found
    folder = scratch / f"{copy}.ome.zarr"
    if not folder.exists():
        name = scan.name if isinstance(scan, Volume) else Path(scan).name
        yield Note(
            f"{name} is no OME-Zarr and is converted first, for the workers to read blocks of it; "
            "hushpore convert does that once for many jobs."
        )
        source = Source("", "" if series is None else str(series), trust=trust)
        yield from converting(scan, folder, source)
    return str(folder), 0


def inputs_of(scan: Scan, settings: Settings) -> list[str]:
    """Return the files that are read for a job: of the scan, and those that its settings name."""
    return [scan.source if isinstance(scan, Volume) else str(scan), *files_of([settings])]


def _on_disk(scan: Scan, series: int | str | None) -> tuple[str, int] | None:
    if isinstance(scan, Volume):
        if not isinstance(scan.data, ZarrStack) or scan.data.folder is None:
            return None
        for number, volume in enumerate(open_zarr(scan.data.folder)):
            if volume.data.is_same_as(scan.data):
                return str(scan.data.folder), number
        return None
    path = Path(scan).expanduser().resolve()
    if kind_of(path) != "zarr":
        return None
    volumes: list[Any] = open_zarr(path)
    # labels come after the images
    chosen = volumes[0] if series is None else choose(volumes, series)
    return str(path), volumes.index(chosen)


def stamp_of(scan: Scan, series: int | str | None = None) -> dict[str, Any]:
    """Return what tells a scan from another, as JSON values, without reading it.

    An array in memory has none: no later run goes on with what was made of it.
    """
    found = _on_disk(scan, series)
    if found is not None:
        folder, number = found
        return {**Source(folder).to_dict(), "number": number}
    if isinstance(scan, Volume):
        return {"volume": uuid.uuid4().hex}
    return Source(str(scan), "" if series is None else str(series)).to_dict()
