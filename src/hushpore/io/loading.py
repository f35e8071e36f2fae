"""From files to volumes: find the reader, leave values on disk or read them, choose among stacks.

`opening` finds what is in a file or folder; `load` reads it as a job, cancelled at any plane, and
only what memory holds; `choose` says which of several stacks is meant.
"""

from __future__ import annotations

import dataclasses
import errno
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hushpore.base.errors import HushporeError, InputError, MemoryLimitError
from hushpore.base.events import Driver, Progress
from hushpore.base.rescaled import Scaled, held
from hushpore.base.safe_text import harmless
from hushpore.base.volume import Volume
from hushpore.io.folders import (
    HEADERS,
    files_below,
    header_beside,
    natural_key,
    read_beginnings_ahead,
    shortened,
)
from hushpore.io.input_limits import free_memory, trusting
from hushpore.io.lazy_arrays import LEFT_OUT, DiskArray
from hushpore.io.registry import READERS, kind_of_one, resolved, titles

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence, Set

    from hushpore.io.registry import Function, Reader

    #: Yields the share of the headers that was read; returns volumes that lie on disk still.
    Opening: TypeAlias = Generator[float, None, list[Volume]]
    #: A file, a folder, or several files.
    Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    #: A job that yields `Progress` and returns volumes.
    LoadingJob: TypeAlias = Generator[Progress, None, list[Volume]]
    #: Makes an array of a shape and dtype.
    Empty: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], np.ndarray]

#: Pictures in formats without grey values of a scan.
_PICTURES = (".gif", ".webp", ".heic", ".svg")
#: Share of the free memory above which a stack stays on disk.
MEMORY_SHARE = 0.5
#: Pictures for each TIFF, from which a folder is one of pictures.
_MANY = 8
_HEADERS = 0.1  # share of the time that headers take
#: Stacks that are preselected at most; a study of thirty would fill the screen with layers.
MOST = 6


def opening(path: Path) -> Opening:
    """Open every image stack of a file or folder without reading its values.

    Yields: the share of the headers that was read.
    Raises InputError, MissingPackageError: as for `hushpore.io.read_all`; OSError if the system
    refuses.
    """
    path.stat()
    _require_text(path)
    kind = kind_of_one(path)
    if kind is not None:
        return (yield from _read(READERS[kind], READERS[kind].read, path))
    if not path.is_dir():
        raise InputError(_why_not(path))
    files = files_below(path)
    if not files:
        raise InputError(f"The folder {path} is empty; expected slices as {_titles_of_slices()}.")
    return (yield from _slices(files, path, {path}))


def opening_files(files: Sequence[Path], folder: Path) -> Opening:
    """Open some files as if they were all that a folder holds; as `opening`.

    `files`: at least two, as a user picks them out of a folder. `folder`: where they lie, for names
    and messages.
    """
    for path in files:
        path.stat()
    _require_text(folder)
    return (yield from _slices(sorted(files, key=natural_key), folder, {p.parent for p in files}))


def _require_text(path: Path) -> None:
    """Refuse a name that is no text: no record, table or image could hold it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{harmless(str(path))} has a name that is no text in UTF-8. Rename it, or the folder "
            "that it lies in."
        ) from None


def _slices(files: Sequence[Path], folder: Path, places: Set[Path]) -> Opening:
    """Open the slices among some files; those that their names order only right in `places`."""
    read_beginnings_ahead(files)
    kinds = [(path, kind_of_one(path)) for path in files]
    for name in _kinds_of_slices([kind for _, kind in kinds]):
        reader = READERS[name]
        own = [path for path, kind in kinds if kind == name]
        here = [path for path in own if reader.slices_by == "header" or path.parent in places]
        if not here:
            where = sorted({str(path.parent.relative_to(folder)) for path in own})
            raise InputError(
                f"The folder {folder} holds no images itself; the {reader.title} files are in its "
                f"folders {shortened(where)}. Open one of these."
            )
        others = [path for path, kind in kinds if kind != name]
        return (yield from _read(reader, reader.read_slices, here, folder, others))
    single = _single_files([(path, kind) for path, kind in kinds if kind is not None])
    if len(single) == 1:
        path, kind = single[0]
        return (yield from _read(READERS[kind], READERS[kind].read, path))
    if single:
        names = shortened([path.name for path, _ in single])
        raise InputError(
            f"The folder {folder} holds {len(single)} images, but no slices: {names}. Open one of "
            "these files."
        )
    raise InputError(
        f"The folder {folder} holds no image stack: none of its {len(files)} files "
        f"({shortened([path.name for path in files])}) is {_titles_of_slices()}."
    )


def _kinds_of_slices(kinds: Sequence[str | None]) -> list[str]:
    """Return the formats of slices that are among some files, the one to read first."""
    found = [name for name, reader in READERS.items() if reader.slices_by and name in kinds]
    by_name = [name for name in found if READERS[name].slices_by == "name"]
    if found[:1] == by_name[:1] and by_name:
        # one TIFF beside a stack of pictures is no stack; some figures beside TIFFs are none either
        most = max(by_name, key=kinds.count)
        if kinds.count(most) >= _MANY * kinds.count(found[0]):
            return [most]
    return found


def _single_files(found: Sequence[tuple[Path, str]]) -> list[tuple[Path, str]]:
    """Return files with a stack each; of a header and its raw file the header."""
    headers = {path for path, _ in found if path.name.lower().endswith(HEADERS)}
    return [
        (path, kind)
        for path, kind in found
        if path in headers or header_beside(path) not in headers
    ]


def _read(reader: Reader, function: Function, *what: Any) -> Opening:
    reader.require()
    found = resolved(function)(*what)
    if not isinstance(found, list | Volume):
        found = yield from found
    return [found] if isinstance(found, Volume) else found


def _why_not(path: Path) -> str:
    """Return why a file is not read."""
    if path.stat().st_size == 0:
        return f"{path.name} is empty (0 bytes)."
    meant = next((each for each in READERS.values() if each.is_named_like(path)), None)
    if meant is not None and meant.hint:
        return f"{path.name} cannot be read as {meant.title}: {meant.hint}."
    if meant is not None:
        with path.open("rb") as file:
            start = file.read(12)
        return f"{path.name} is named like {meant.title} but is not: it begins with {start!r}."
    suffix = path.suffix.lower()
    if suffix in _PICTURES:
        return (
            f"{path.name} is a photograph or picture format ({suffix}); "
            f"{titles(READERS.values(), 'and')} are read. Save it as a greyscale TIFF first, for "
            "example in ImageJ."
        )
    return f"{path.name} is not a file that can be read; expected {titles(READERS.values())}."


def _titles_of_slices() -> str:
    return titles(reader for reader in READERS.values() if reader.slices_by)


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


def choose(volumes: Sequence[Volume], series: int | str = "") -> Volume:
    """Return the image stack that a user means.

    `volumes`: all that a file or folder holds. `series`: its number as `hushpore info` lists it,
    from 1; or its name, or a part that only its name has, in upper or lower case; empty for the one
    with most voxels.
    Returns: one of them.
    Raises InputError if none, or more than one, fits; lists them all.

    >>> import numpy as np
    >>> from hushpore.base.volume import Volume
    >>> head, chest = (Volume(np.zeros((2, 3)), name=name) for name in ("head", "chest"))
    >>> choose([head, chest], 2).name, choose([head, chest], "HEA").name
    ('chest', 'head')
    """
    text = str(series).strip()
    if not text:
        # labels, which are no larger, come after their image
        return max(volumes, key=lambda volume: math.prod(volume.shape))
    if text.isdecimal() and 1 <= int(text) <= len(volumes):
        return volumes[int(text) - 1]
    folded = text.casefold()
    exact = [volume for volume in volumes if volume.name.casefold() == folded]
    found = exact or [volume for volume in volumes if folded in volume.name.casefold()]
    if len(found) == 1:
        return found[0]
    listed = "; ".join(f"{number} {volume.name}" for number, volume in enumerate(volumes, start=1))
    what = f"{len(found)} series fit" if found else "no series fits"
    raise InputError(f"{what} {text!r}. Give a number or a name that only one has: {listed}.")


def with_own_names(volumes: Sequence[Volume]) -> list[Volume]:
    """Return the image stacks of a file or folder, numbered where they would have the same name."""
    names = [volume.name for volume in volumes]
    return [
        volume
        if names.count(volume.name) == 1
        else volume.replace(
            volume.data, name=f"{volume.name} [{names[: index + 1].count(volume.name)}]"
        )
        for index, volume in enumerate(volumes)
    ]


def preselected(volumes: Sequence[Volume], room: float) -> list[int]:
    """Return the image stacks that a user is likely to want, as their places in the sequence.

    The largest, and of the others as many as memory has room for, largest first, up to `MOST`.

    `volumes`: all that a file or folder holds; at least one. `room`: bytes that they may take
    together.
    """
    order = sorted(range(len(volumes)), key=lambda i: math.prod(volumes[i].shape), reverse=True)
    kept = order[:1]
    for index in order[1:MOST]:
        if sum(volumes[i].nbytes for i in [*kept, index]) > room:
            break
        kept.append(index)
    return sorted(kept)


def split_notes(notes: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Part notes into those that all image stacks have, and those of each alone.

    >>> split_notes([["a", "b"], ["a"]])
    (['a'], [['b'], []])
    """
    if len(notes) < 2:
        return [], [list(each) for each in notes]
    shared = [note for note in notes[0] if all(note in other for other in notes)]
    return shared, [[note for note in each if note not in shared] for each in notes]
