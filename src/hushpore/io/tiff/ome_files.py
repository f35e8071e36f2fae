"""Checks of the files of an OME-TIFF: each must be there, complete and distinct."""

from __future__ import annotations

import html
import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tifffile

from hushpore.base.errors import InputError
from hushpore.io.folders import shortened
from hushpore.io.libraries import captured_log

if TYPE_CHECKING:
    from collections.abc import Iterator

_REMEDY = "Copy all files of this OME-TIFF into one folder, with their original names."


def files_of_image(tif: tifffile.TiffFile) -> set[Path]:
    """Return the existing files of an OME-TIFF of several files; empty for any other TIFF."""
    folder = Path(tif.filehandle.path).parent
    names = {name for name, _ in _named(tif)} if tif.is_ome else set()
    return {(folder / name).resolve() for name in names} if len(names) > 1 else set()


def require_own_folder(tif: tifffile.TiffFile, path: Path) -> None:
    """Raise InputError if an OME-TIFF refers to anything but regular files in its own folder."""
    own = _own_uuid(tif)
    for name, uuid in _named(tif):
        if own and uuid == own:
            continue  # this file itself, under an earlier name
        other = path.parent / name
        is_there = os.path.lexists(other)
        real = Path(os.path.realpath(other))
        if (
            real.parent != Path(os.path.realpath(path.parent))
            or Path(name).name != name
            or (is_there and not real.is_file())
        ):
            raise InputError(
                f"{path.name} refers to {name[:200]!r}, but the files of an OME-TIFF must be "
                "regular files in the same folder. Put all of them into one folder."
            )


def require_distinct(tif: tifffile.TiffFile, path: Path) -> None:
    """Raise InputError if several files have one UUID, since one would be read for all of them."""
    names: dict[str, set[str]] = {}
    for name, uuid in _named(tif):
        names.setdefault(uuid, set()).add(name)
    for alike in names.values():
        if len(alike) > 1:
            raise InputError(
                f"The OME metadata of {path.name} give {len(alike)} files the same UUID "
                f"({shortened(sorted(alike))}), so their slices cannot be distinguished. Save "
                "the stack again as one file, for example in ImageJ."
            )


def require_files(tif: tifffile.TiffFile, path: Path) -> None:
    """Raise InputError if files of an incomplete OME-TIFF are missing or damaged; names these."""
    named = Counter(name for name, _ in _named(tif))
    missing = [name for name in named if not (path.parent / name).is_file()]
    others = [path.parent / name for name in named if name not in missing]
    is_named = any(other.samefile(path) for other in others)
    if missing and is_named:
        raise InputError(
            f"{path.name} is one file of {len(named)}, and {shortened(missing)} is not beside it. "
            + _REMEDY
        )
    if missing:
        raise InputError(
            f"{path.name} refers to {shortened(missing)}, which is not beside it. {_REMEDY}"
        )
    damaged = [
        other.name
        for other in others
        if not other.samefile(path) and _is_damaged(other, named[other.name])
    ]
    if damaged:
        raise InputError(
            f"{path.name} is one file of {len(named)}, and {shortened(damaged)} is damaged or "
            "incomplete. Copy or export it again."
        )


def _is_damaged(path: Path, planes: int) -> bool:
    """Whether a file cannot be opened, or has fewer planes or values than its pages state."""
    with captured_log("tifffile"):
        try:
            with tifffile.TiffFile(path) as tif:
                pages: list[Any] = list(tif.pages)
                ends = [
                    offset + count
                    for page in pages
                    for offset, count in zip(page.dataoffsets, page.databytecounts, strict=False)
                ]
                return len(pages) < planes or max(ends, default=0) > tif.filehandle.size
        except (tifffile.TiffFileError, OSError, ValueError, IndexError, KeyError):
            return True


def _named(tif: tifffile.TiffFile) -> Iterator[tuple[str, str]]:
    """Yield file name and UUID of each plane in the OME metadata."""
    xml = str(tif.ome_metadata)
    for written, uuid in re.findall(r"\bFileName=[\"']([^\"']*)[\"'][^>]*>\s*([^<\s]*)", xml):
        yield html.unescape(written), uuid.lower()


def _own_uuid(tif: tifffile.TiffFile) -> str:
    found = re.search(r"<(?:\w+:)?OME\b[^>]*\bUUID=[\"']([^\"']*)", str(tif.ome_metadata))
    return found[1].lower() if found else ""
