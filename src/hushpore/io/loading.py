"""From disk into memory: with progress, cancelled at any plane, and only what memory holds."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hushpore.base.errors import HushporeError, InputError, MemoryLimitError
from hushpore.base.events import Driver, Progress
from hushpore.base.scaled import Scaled, held
from hushpore.io.gate import free_memory, trusting
from hushpore.io.opening import opening, opening_files
from hushpore.io.planes import LEFT_OUT, DiskArray

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from hushpore.base.volume import Volume
    from hushpore.io.opening import Opening

    #: A file, a folder, or several files.
    Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    #: A job that yields `Progress` and returns volumes.
    LoadingJob: TypeAlias = Generator[Progress, None, list[Volume]]
    #: Makes an array of a shape and dtype.
    Empty: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], np.ndarray]

#: Share of the free memory above which a stack stays on disk.
MEMORY_SHARE = 0.5
_HEADERS = 0.1  # share of the time that headers take


def load(
    path: Paths, *, lazy: bool | None = None, empty: Empty | None = None, trust: bool = False
) -> LoadingJob:
    """Read every image stack of a file or folder, as a job; closing it stops the reading.

    `path`, `lazy`, `trust`: as for `hushpore.io.read_all`. `empty`: makes the array, given shape
    and dtype; by default `numpy.empty`. See `hushpore.device.backend.Backend.empty`.
    Yields: headers first, then planes.
    Returns: at least one; errors are those of `hushpore.io.read_all`.
    """
    given = [path] if isinstance(path, str | os.PathLike) else path
    files = [Path(each).expanduser() for each in given]
    place = _common_folder(files)
    try:
        volumes = yield from _with_progress(
            opening_files(files, place) if len(files) > 1 else opening(place), trust
        )
    except OSError as error:
        raise _reading_error(place, error) from error
    volumes = [dataclasses.replace(volume, source=str(place)) for volume in volumes]
    return volumes if lazy is True else (yield from into_memory(volumes, lazy=lazy, empty=empty))


def into_memory(
    volumes: Sequence[Volume], *, lazy: bool | None = None, empty: Empty | None = None
) -> LoadingJob:
    """Read the values of volumes that lie on disk; one that is damaged does not stop the others.

    `volumes`: as `load` returns them with ``lazy=True``. `lazy`, `empty`: as for `load`.
    Returns: those that could be read; notes name the others.
    Raises InputError, MissingPackageError, MemoryLimitError: as for `load`, if none could be read.
    """
    free = np.inf if lazy is False else free_memory() * MEMORY_SHARE
    total = sum(_n_planes(volume) for volume in volumes)
    before = 0
    loaded: list[Volume] = []
    failures: list[HushporeError] = []
    for volume in volumes:
        if is_on_disk(volume) and (lazy is True or volume.nbytes > free):
            note = (
                f"At {volume.nbytes / 1e9:.3g} GB it is larger than half of the free memory: "
                "slices are read from disk when they are shown."
            )
            said = [] if lazy else [note]
            loaded.append(dataclasses.replace(volume, notes=[*volume.notes, *said]))
            continue
        free -= volume.nbytes
        try:
            loaded.append((yield from _read_values(volume, before, total, empty)))
        except MemoryLimitError:
            raise
        except HushporeError as error:
            failures.append(error)
        except OSError as error:
            failures.append(_reading_error(Path(volume.source), error))
        before += _n_planes(volume)
    if not loaded:
        raise failures[0]
    notes = [LEFT_OUT.format(failure) for failure in failures]
    return [dataclasses.replace(each, notes=[*notes, *each.notes]) for each in loaded]


def _read_values(
    volume: Volume, before: int, total: int, empty: Empty | None
) -> Generator[Progress, None, Volume]:
    if not is_on_disk(volume):
        return volume
    data = volume.data
    stored = held(data)
    try:
        values = (empty or np.empty)(volume.shape, stored.dtype.newbyteorder("="))
    except MemoryError as error:
        raise MemoryLimitError(
            f"{volume.name} ({volume.facts}) does not fit into memory. Close other programs, or "
            "read it with lazy=True and work on a part of it."
        ) from error
    if isinstance(stored, DiskArray):
        for count in stored.read_into(values):
            fraction = _HEADERS + (1 - _HEADERS) * (before + count) / total
            yield Progress("reading", before + count, total, "slices", fraction)
    else:
        values[...] = stored
    return volume.replace(data.with_stored(values) if isinstance(data, Scaled) else values)


def is_on_disk(volume: Volume) -> bool:
    """Whether the values of a volume are read only when they are asked for."""
    stored = held(volume.data)
    return isinstance(stored, np.memmap | DiskArray)


def _common_folder(files: Sequence[Path]) -> Path:
    """Return a file itself, and of several the folder in which they all are."""
    if len(files) == 1:
        return files[0]
    if not files:
        raise InputError("There is no file to read.")
    try:
        return Path(os.path.commonpath([file.absolute().parent for file in files]))
    except ValueError:  # on several drives
        return files[0].absolute().parent


def _with_progress(work: Opening, trust: bool) -> LoadingJob:
    with Driver(work) as driver:
        while True:
            # not around a yield: what runs meanwhile is not what the user trusts
            with trusting(trust):
                share = next(driver, None)
            if share is None:
                return driver.result
            yield Progress("reading headers", round(100 * share), 100, "%", _HEADERS * share)


def _n_planes(volume: Volume) -> int:
    return int(np.prod(volume.shape[:-2]))


def _reading_error(path: Path, error: OSError) -> InputError:
    where: Any = error.filename or path
    if isinstance(error, FileNotFoundError):
        return InputError(f"There is no file or folder {where}.")
    if isinstance(error, PermissionError):
        return InputError(f"You are not allowed to read {where}; ask its owner for permission.")
    if error.errno == errno.ENAMETOOLONG:
        return InputError(f"The name {str(path)[:60]}... is too long for a file.")
    return InputError(f"{where} cannot be read: {error.strerror or error}.")
