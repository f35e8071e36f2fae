"""Grouping of slices dropped together into volumes; napari would open them one by one."""

from __future__ import annotations

import itertools
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QTimer

from hushpore.io import kind_of
from hushpore.io.registry import READERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: Reads files; a list of files is one volume.
    Read = Callable[[Any, str | list[str]], None]

#: Milliseconds to wait for further slices of a drop.
DROP_PAUSE = 250

#: Minimum number of TIFF files or pictures with numbered names that are treated as one stack.
MIN_NUMBERED = 8

_LOOKED_AT = 200  # maximum number of names checked in a folder

#: The timer that waits for further slices, and the slices so far, by viewer.
_pending: dict[Any, tuple[QTimer, list[str]]] = {}


def is_slice(viewer: Any, path: str) -> bool:
    """Whether a file is probably a slice of a stack, so that the reader waits for others.

    True for DICOM files, and for TIFF files and pictures if the names of enough others in their
    folder differ only by a number.
    """
    by = slices_by(path)
    return by == "header" or (by == "name" and (viewer in _pending or _has_alike(path)))


def collect_slice(viewer: Any, path: str, read: Read) -> None:
    """Wait for further slices of the same drop, then read them together."""
    if viewer not in _pending:
        read_all = partial(_read_all, viewer, read)
        _pending[viewer] = QTimer(singleShot=True, interval=DROP_PAUSE, timeout=read_all), []
    timer, paths = _pending[viewer]
    paths.append(path)
    # restarted for each file, because napari processes events between two files
    timer.start()


def grouped(paths: Sequence[str]) -> list[list[str]]:
    """Group files into stacks: all files with slice headers, and each numbered series."""
    by_pattern: dict[str, list[str]] = {}
    for path in paths:
        pattern = _pattern(path) if slices_by(path) == "name" else ""
        by_pattern.setdefault(pattern, []).append(path)
    groups = []
    for pattern, alike in by_pattern.items():
        together = not pattern or len(alike) >= MIN_NUMBERED
        groups += [alike] if together else [[path] for path in alike]
    return groups


def _read_all(viewer: Any, read: Read) -> None:
    _, paths = _pending.pop(viewer)
    for group in grouped(paths):
        read(viewer, group[0] if len(group) == 1 else group)


def slices_by(path: str | Path) -> str:
    """Return how slices in this file format are ordered: "header", "name", or empty."""
    kind = kind_of(path) if Path(path).is_file() else None
    return READERS[kind].slices_by if kind else ""


def _has_alike(path: str) -> bool:
    folder, name = os.path.split(path)
    pattern = _pattern(name)
    if pattern == name:
        return False
    with os.scandir(folder or ".") as entries:
        names = (entry.name for entry in itertools.islice(entries, _LOOKED_AT))
        alike = (other for other in names if _pattern(other) == pattern)
        return len(list(itertools.islice(alike, MIN_NUMBERED))) == MIN_NUMBERED


def _pattern(path: str) -> str:
    """Return a path with its last number replaced by ``#``; unchanged if it has none.

    >>> _pattern("scan2/slice_0017.tif")
    'scan2/slice_#.tif'
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, re.sub(r"\d+(?=\D*$)", "#", name))
