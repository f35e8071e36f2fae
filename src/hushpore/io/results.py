"""The one way in which results are written: images, tables, figures and the record of the job."""

from __future__ import annotations

import json
import math
import re
import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError, OutputError
from hushpore.base.safe_text import as_csv, read_text
from hushpore.io.output_target import PROVENANCE, check_target, new_directory
from hushpore.io.registry import exporter_by_ending, exporters_of
from hushpore.io.tiff.writer import write_tiff

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import pandas as pd

    from hushpore.base.volume import Volume

__all__ = ["check_image_target", "check_target", "write_image", "write_results"]

_NAME = re.compile(r"[^\W.][\w .+-]*")


def write_results(
    directory: str | os.PathLike[str],
    *,
    images: Mapping[str, Volume],
    tables: Mapping[str, pd.DataFrame],
    provenance: Mapping[str, Any],
    figures: Mapping[str, bytes] | None = None,
    pages: Mapping[str, str] | None = None,
    arrays: Mapping[str, Mapping[str, Any]] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a result as a directory that is complete or not there at all.

    Parameters
    ----------
    directory : str or path-like
        Where to. Its parent must exist; it must not, or be empty.
    images : mapping of str to Volume
        Written as ``<name>.tif``, see `write_image`.
    tables : mapping of str to pandas.DataFrame
        Written as ``<name>.csv``, numbers in full precision.
    provenance : mapping
        How the result was made; written as ``result.json`` with the list of files added. NaN and
        infinity become null.
    figures : mapping of str to bytes, optional
        PNG files, written as ``<name>.png``.
    pages : mapping of str to str, optional
        HTML pages, written as ``<name>.html``.
    arrays : mapping of str to mapping, optional
        Sets of arrays by their names, written compressed as ``<name>.npz``.
    overwrite : bool, optional
        Replace an earlier result, once this one is complete. A directory that is not a result, or
        that holds other files too, is never replaced.

    Returns
    -------
    Path
        The directory.

    Raises
    ------
    OutputError
        If it cannot be written; nothing is left behind then.
    InputError
        If a name cannot be a file's, or an image has a type that TIFF does not know.
    """
    target = check_target(directory, overwrite)
    figures, pages, arrays = figures or {}, pages or {}, arrays or {}
    parts = {"tif": images, "csv": tables, "png": figures, "html": pages, "npz": arrays}
    names = [f"{name}.{ending}" for ending, named in parts.items() for name in named]
    for name in names:
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} cannot be the name of a file in a result.")
    with new_directory(target, overwrite) as part:
        for name, volume in images.items():
            write_tiff(part / f"{name}.tif", volume)
        for name, table in tables.items():
            as_csv(table, part / f"{name}.csv")
        for name, picture in figures.items():
            (part / f"{name}.png").write_bytes(picture)
        for name, page in pages.items():
            (part / f"{name}.html").write_text(page, encoding="utf-8")
        for name, named in arrays.items():
            write_arrays(part / f"{name}.npz", named)
        write_json(part / PROVENANCE, {**provenance, "files": sorted([*names, PROVENANCE])})
    return target


def write_image(
    path: str | os.PathLike[str],
    volume: Volume,
    *,
    provenance: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a volume as an OME-TIFF file, or as OME-Zarr, that is complete or not there at all.

    Axes, spacing, unit, origin and type survive a round trip through `hushpore.read`. In TIFF
    boolean values are uint8, 0 and 1, of which the file says what they are; 8-bit and 32-bit
    integers, which labels and masks have, are compressed with zlib.

    Parameters
    ----------
    path : str or path-like
        Ends in ``.tif`` or ``.tiff`` (see `hushpore.io.tiff.writer.write_tiff`), or in ``.zarr``
        (see `hushpore.io.zarr.write_zarr`).
    volume : Volume
        2D or 3D, with leading axes or without.
    provenance : mapping, optional
        How the image was made; written beside it, under its name with ``.json``.
    overwrite : bool, optional
        Replace existing files, once these are complete.

    Returns
    -------
    Path
        The TIFF file or the OME-Zarr folder.

    Raises
    ------
    OutputError
        If it cannot be written; nothing is left behind then.
    InputError
        If the volume is empty or has a type that TIFF does not know.
    """
    target = check_target(path, overwrite, suffixes=_endings())
    exporter = exporter_by_ending(target, "image")
    assert exporter is not None  # its ending was checked
    with ExitStack() as parts:
        replaced = None
        # the record takes its place after the image, or not at all
        if provenance is not None:
            beside = check_provenance_target(target, overwrite)
            write_json(parts.enter_context(new_file(beside, overwrite)), provenance)
            replaced = beside if overwrite else None

        def ready() -> None:
            # an image may be without a record for a moment, but never beside that of another
            if replaced is not None:
                replaced.unlink(missing_ok=True)

        exporter.write(target, volume, overwrite, ready)
    return target


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays by their names as a compressed NumPy archive."""
    # numpy.savez_compressed is three to four times as slow, for an eighth to a sixth less
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(values), allow_pickle=False)


def check_image_target(path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Check that an image, with its provenance beside it, can be written; as `check_target`."""
    target = check_target(path, overwrite, suffixes=_endings())
    check_provenance_target(target, overwrite)
    return target


def check_provenance_target(image: Path, overwrite: bool = False) -> Path:
    """Return where the provenance of an image goes.

    Raises OutputError if a file of that name is there already and may not be replaced: never one
    that is no record, such as the header of a raw file.
    """
    beside = image.with_suffix(".json")
    if beside.exists() and not (overwrite and _holds_record(beside)):
        foreign = ", and is no record of hushpore" if overwrite else ""
        raise OutputError(
            f"Cannot write {beside}: it is there already{foreign}. Choose another name."
        )
    return beside


def is_record(known: object) -> TypeGuard[dict[str, Any]]:
    """Whether JSON values are a record of hushpore, which names its jobs."""
    return isinstance(known, dict) and ("jobs" in known or "job" in known)


def _holds_record(path: Path) -> bool:
    try:
        return is_record(json.loads(read_text(path)))
    except (OSError, ValueError, RecursionError):
        return False


def _endings() -> tuple[str, ...]:
    return tuple(end for each in exporters_of("image").values() for end in each.endings)


def write_json(path: Path, provenance: Mapping[str, Any]) -> None:
    """Write a record as JSON; NaN and infinity become null."""
    text = json.dumps(_as_json(provenance), indent=2, ensure_ascii=False, allow_nan=False)
    # of a name that is no text what is written is its code, which JSON reads as such
    path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def _as_json(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, dict):
        return {str(key): _as_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_as_json(each) for each in value]
    if isinstance(value, np.ndarray):
        return _as_json(value.tolist())
    if isinstance(value, np.generic):
        return _as_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
