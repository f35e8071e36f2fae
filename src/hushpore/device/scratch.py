"""Folders of temporary files: their location, their owner, and those left by crashed sessions."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from contextlib import suppress
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

    from hushpore.base.arrays import Float32s

_PREFIX = "hushpore-"  # of the names of all these folders
_DISK = Path("/var/tmp")  # always on disk, since its files survive a restart


@dataclass(frozen=True)
class TemporaryFolder:
    """A folder of temporary files."""

    path: Path
    nbytes: int  # size on disk
    is_left_over: bool  # whether its process has ended


def scratch_folder() -> Path:
    """Return the folder for temporary files: the preferred one, or the system's if on disk."""
    chosen = preferred("temporary_folder").value
    if chosen:
        return Path(chosen).expanduser()
    folder = Path(tempfile.gettempdir())
    named = any(name in os.environ for name in ("TMPDIR", "TEMP", "TMP"))
    if not named and _lies_in_memory(folder) and os.access(_DISK, os.W_OK):
        return _DISK
    return folder


def array_within(room: float, shape: tuple[int, ...]) -> Float32s:
    """Return a new array, in memory if it needs at most `room` bytes, otherwise in a file.

    The temporary file is deleted with the last reference to the array.
    """
    if 4 * math.prod(shape) <= room:
        return np.empty(shape, np.float32)
    # without a name, so that it is deleted even after a crash
    with tempfile.TemporaryFile(dir=scratch_folder()) as file:
        return np.memmap(file, np.float32, "w+", shape=shape)


def new_folder() -> Path:
    """Make a folder for temporary files of this process; the caller removes it.

    Raises OSError if no folder can be made.
    """
    folder = scratch_folder().absolute() / f"{_PREFIX}{new_mark()}"
    folder.mkdir(mode=0o700)  # scans may be private, and the parent folder is not
    return folder


def folder_of(owner: object) -> Path:
    """Make a folder for temporary files that is removed with its owner, or at exit.

    `owner`: an object that supports weak references.
    Raises OSError if no folder can be made.
    """
    folder = new_folder()
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder


def temporary_folders() -> list[TemporaryFolder]:
    """Return the folders with temporary files of this user.

    Looks in the current folder for temporary files and in that of the system.

    Returns
    -------
    list of TemporaryFolder
        Folders of running and of ended processes; without folders of other users.

    Examples
    --------
    >>> path = new_folder()
    >>> [folder.is_left_over for folder in temporary_folders() if folder.path.name == path.name]
    [False]
    >>> path.rmdir()
    """
    places = {scratch_folder().resolve(), Path(tempfile.gettempdir()).resolve()}
    return [
        TemporaryFolder(path, _size(path), process is None)
        for place in sorted(places)
        for path, process in marked(place, _PREFIX)
        if path.is_dir()
    ]


def in_words(folders: Sequence[TemporaryFolder]) -> str:
    """Return the number of folders, and their total size, as text."""
    if not folders:
        return "none"
    size = readable_bytes(sum(folder.nbytes for folder in folders))
    return f"{readable_count(len(folders), 'folder')}, {size}"


def remove_left_over() -> list[TemporaryFolder]:
    """Remove the folders of ended processes.

    Returns
    -------
    list of TemporaryFolder
        The removed folders.

    Examples
    --------
    >>> removed = remove_left_over()    # doctest: +SKIP
    """
    left_over = [folder for folder in temporary_folders() if folder.is_left_over]
    for folder in left_over:
        shutil.rmtree(folder.path, ignore_errors=True)
    return [folder for folder in left_over if not folder.path.exists()]


def _size(path: Path) -> int:
    total = 0
    for file in path.rglob("*"):
        with suppress(OSError):
            state = file.lstat()
            # allocated blocks, if the system counts them: sparse files are smaller
            total += 512 * state.st_blocks if hasattr(state, "st_blocks") else state.st_size
    return total


def _lies_in_memory(folder: Path) -> bool:
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    place = next((each for each in (folder, *folder.parents) if each in mounts), None)
    return place is not None and mounts[place] in ("tmpfs", "ramfs")
