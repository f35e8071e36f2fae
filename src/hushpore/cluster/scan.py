"""The scan of a job on a cluster: an OME-Zarr image that workers read in blocks."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hushpore.base.events import Note
from hushpore.base.volume import Volume
from hushpore.io import choose
from hushpore.io.input_limits import trusting
from hushpore.io.registry import kind_of
from hushpore.io.undefined import with_fill_value
from hushpore.io.zarr.image import write_zarr
from hushpore.io.zarr.reader import ZarrStack, open_zarr
from hushpore.pores.numbering import whole_markers
from hushpore.runs.convert import converting
from hushpore.runs.scan_recipe import ScanRecipe, attach_files, files_of

if TYPE_CHECKING:
    import os
    from collections.abc import Generator, Mapping

    from hushpore.base.events import Event
    from hushpore.base.settings import Settings

    #: A file or folder, as a path or with its reading options, or a volume.
    Scan: TypeAlias = str | os.PathLike[str] | ScanRecipe | Volume


def as_source(scan: Scan, series: int | str | None, trust: bool) -> ScanRecipe | Volume:
    """Return the recipe of a path; recipes and volumes are returned unchanged.

    `series`: which of several image stacks, and `trust`: as for `hushpore.read`.
    """
    if isinstance(scan, ScanRecipe | Volume):
        return scan
    return ScanRecipe(str(scan), "" if series is None else str(series), trust=trust)


def as_zarr(
    scan: ScanRecipe | Volume, scratch: Path, copy: str = "scan", *, trust: bool = False
) -> Generator[Event, None, Volume]:
    """Return the scan as OME-Zarr, converted first if it has another format or NaN.

    `scan`: recipe of a file, or a volume. A volume opened from OME-Zarr is not converted; its
    metadata may differ from the file. `scratch`: folder for the converted scan, on a disk that all
    workers see. `copy`: name of the converted scan. `trust`: as for `hushpore.read`, for volumes.
    Yields: events of the conversion.
    Returns: the scan, without attached images.
    Raises InputError if it cannot be read.
    """
    folder = scratch / f"{copy}.ome.zarr"
    if folder.exists():
        return _own(folder)
    with trusting(trust or (isinstance(scan, ScanRecipe) and scan.trust)):
        found = _on_disk(scan)
        is_file = isinstance(scan, ScanRecipe)
        if found is not None and (not is_file or with_fill_value(found) is found):
            return found
    name = scan.name if isinstance(scan, Volume) else Path(scan.path).name
    if found is not None:
        reason = "has voxels without a value (NaN); a copy with a fill value is written first."
    else:
        reason = (
            "is not OME-Zarr and is converted first, so that workers can read blocks. To convert "
            "it once for several jobs, use hushpore convert."
        )
    yield Note(f"{name} {reason}")
    if isinstance(scan, ScanRecipe):
        yield from converting(scan.path, folder, scan, fill_undefined=True)
    else:
        yield from converting(scan, folder)
    return _own(folder)


def open_beside(
    volume: Volume, auxiliary: Mapping[str, Any], settings: Settings, scratch: Path, *, trust: bool
) -> Volume:
    """Return a scan with the files named in the settings attached, all readable by workers.

    `volume`: the scan from `as_zarr`. `auxiliary`: arrays attached to the scan, by name; other
    names in the settings are those of files. `scratch`: folder for masks and labels that are not
    OME-Zarr yet. Points are kept in memory. `trust`: as for `hushpore.read`.
    Raises InputError if a name is not found, or if its shape does not fit the scan.
    """
    volume = dataclasses.replace(volume, auxiliary=dict(auxiliary))
    volume = attach_files(volume, settings, ScanRecipe("", trust=trust))
    named = {}
    for option in settings.options():
        found = volume.auxiliary_of(settings, option.name) if option.auxiliary else None
        if found is None:
            continue
        if option.name == "markers" and found.dtype == np.bool_:
            # number the components of a mask before it is cut into slabs
            found = whole_markers(found)
        if tuple(found.shape) == volume.shape and getattr(found, "folder", None) is None:
            copy = scratch / f"{option.name}.ome.zarr"
            if not copy.exists():
                write_zarr(copy, Volume(found, name=option.name))
            found = _own(copy).data
        named[getattr(settings, option.name)] = found
    return dataclasses.replace(volume, auxiliary=named)


def folders_of(volume: Volume) -> list[Path]:
    """Return the folders of a volume and its attached images."""
    values = (volume.data, *volume.auxiliary.values())
    return [each.folder for each in values if isinstance(each, ZarrStack) and each.folder]


def inputs_of(scan: ScanRecipe | Volume, settings: Settings) -> list[str]:
    """Return the input files of a job: the scan and the files named in the settings."""
    return [scan.source if isinstance(scan, Volume) else scan.path, *files_of([settings])]


def _on_disk(scan: ScanRecipe | Volume) -> Volume | None:
    """Return the scan if it is OME-Zarr already, else None."""
    if isinstance(scan, Volume):
        return None if _in_folder(scan) is None else dataclasses.replace(scan, auxiliary={})
    path = Path(scan.path).expanduser().resolve()
    if kind_of(path) != "zarr":
        return None
    found = scan.arrange(choose(open_zarr(path), scan.series))
    # resampled values are computed and are not in the file
    return found if isinstance(found.data, ZarrStack) else None


def _own(copy: Path) -> Volume:
    """Open a copy written by this job, even if it is extremely compressed."""
    with trusting(True):
        (volume,) = open_zarr(copy)
    return volume


def _in_folder(volume: Volume) -> tuple[Path, int, Volume] | None:
    """Return the OME-Zarr folder of a volume, the number of its image, and the image in the file.

    Images are numbered from 1. Returns None if the volume is not from OME-Zarr.
    """
    if not isinstance(volume.data, ZarrStack) or volume.data.folder is None:
        return None
    folder = volume.data.folder
    images = enumerate(open_zarr(folder), start=1)
    return next(
        ((folder, n, each) for n, each in images if each.data.is_same_as(volume.data)), None
    )


def source_of(scan: ScanRecipe | Volume) -> ScanRecipe | None:
    """Return the recipe of a scan; None for values in memory."""
    if isinstance(scan, ScanRecipe):
        return scan
    found = _in_folder(scan)
    if found is None:
        return None
    folder, number, there = found
    size = ""
    if (scan.spacing, scan.unit) != (there.spacing, there.unit):
        size = f"{','.join(map(repr, scan.spacing))}{scan.unit}"
    return ScanRecipe(str(folder), str(number), voxel_size=size)


def stamp_of(scan: ScanRecipe | Volume) -> dict[str, Any]:
    """Return the identity of a scan as JSON values, without reading it.

    An array in memory has no lasting identity, so a later run does not resume its partial result.
    """
    source = source_of(scan)
    return {"volume": uuid.uuid4().hex} if source is None else source.to_dict()
