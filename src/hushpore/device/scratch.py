"""Folders of temporary files: where they lie, whose they are, and which were left over."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil

from hushpore.base.atomic import marked, new_mark
from hushpore.base.formatting import readable_bytes, readable_count
from hushpore.base.preferences import preferred

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_PREFIX = "hushpore-"  # begins the names of all these folders
_DISK = Path("/var/tmp")  # where temporary files survive a restart, and so are on disk


@dataclass(frozen=True)
class TemporaryFolder:
    """A folder of temporary files."""

    path: Path  # where it is
    nbytes: int  # what it takes on the disk
    is_left_over: bool  # whether the process that made it runs no longer


def scratch_folder() -> Path:
    """Return the folder for temporary files: as preferred, else the system's, if on a disk."""
    chosen = preferred("temporary_folder").value
    if chosen:
        return Path(chosen).expanduser()
    folder = Path(tempfile.gettempdir())
    named = any(name in os.environ for name in ("TMPDIR", "TEMP", "TMP"))
    if not named and _lies_in_memory(folder) and os.access(_DISK, os.W_OK):
        return _DISK
    return folder


def array_within(room: float, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return a new array: in memory where it takes no more than `room` bytes, else in a file.

    The file is a temporary one, which goes when the last user of the array lets go of it.
    """
    if 4 * math.prod(shape) <= room:
        return np.empty(shape, np.float32)
    # without a name, so that nothing is left of it whatever happens
    with tempfile.TemporaryFile(dir=scratch_folder()) as file:
        return np.memmap(file, np.float32, "w+", shape=shape)


def new_folder(place: Path | None = None) -> Path:
    """Make a folder for temporary files of this process, who is to remove it.

    `place`: where; by default in `scratch_folder`.
    Returns: an own folder.
    Raises OSError if none can be made there.
    """
    folder = (place or scratch_folder()).absolute() / f"{_PREFIX}{new_mark()}"
    folder.mkdir(mode=0o700)  # what is worked on may be private, and the folder around it is not
    return folder


def folder_of(owner: object) -> Path:
    """Make a folder for temporary files that goes with what they are of, or with the program.

    `owner`: whatever can be referred to weakly; it goes once nobody holds it any more.
    Returns: an own folder.
    Raises OSError if none can be made.
    """
    folder = new_folder()
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder


def temporary_folders() -> list[TemporaryFolder]:
    """Return the folders of this user's processes, where such folders are made now.

    What does not say whose it is, or belongs to another user, is not among them.
    """
    places = {scratch_folder().resolve(), Path(tempfile.gettempdir()).resolve()}
    return [
        TemporaryFolder(path, _size(path), process is None)
        for place in sorted(places)
        for path, process in marked(place, _PREFIX)
        if path.is_dir()
    ]


def in_words(folders: Sequence[TemporaryFolder]) -> str:
    """Return how many folders there are, and what they take."""
    if not folders:
        return "none"
    size = readable_bytes(sum(folder.nbytes for folder in folders))
    return f"{readable_count(len(folders), 'folder')}, {size}"


def remove_left_over() -> list[TemporaryFolder]:
    """Remove the folders whose processes run no longer, and return them."""
    removed = []
    for folder in temporary_folders():
        if folder.is_left_over:
            shutil.rmtree(folder.path, ignore_errors=True)
            if not folder.path.exists():
                removed.append(folder)
    return removed


def _size(path: Path) -> int:
    total = 0
    for file in path.rglob("*"):
        try:
            state = file.lstat()
        except OSError:
            continue
        # what is announced and not yet written takes no room, where the system tells
        total += 512 * state.st_blocks if hasattr(state, "st_blocks") else state.st_size
    return total


def _lies_in_memory(folder: Path) -> bool:
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    place = next((each for each in (folder, *folder.parents) if each in mounts), None)
    return place is not None and mounts[place] in ("tmpfs", "ramfs")
