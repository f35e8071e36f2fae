"""Loading of files: find the reader, keep the values on disk or read them, choose a stack.

`opening` lists the image stacks in a file or folder. `load` reads them as a job, which can be
cancelled after any plane, and keeps stacks larger than memory on disk. `choose` selects one of
several stacks.
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
from hushpore.base.formatting import harmless, readable_count
from hushpore.base.rescaled import Scaled, held
from hushpore.base.volume import Volume
from hushpore.io.folders import (
    HEADERS,
    files_below,
    header_beside,
    natural_key,
    read_beginnings_ahead,
    shortened,
)
from hushpore.io.guards import free_memory, trusting
from hushpore.io.lazy_arrays import LEFT_OUT, DiskArray
from hushpore.io.output_target import PROVENANCE
from hushpore.io.raw import why_misfit
from hushpore.io.registry import READERS, kind_of_one, resolved, titles
from hushpore.io.undefined import with_checked_size
from hushpore.io.vendor_headers import is_log

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence, Set

    from hushpore.io.registry import Function, Reader

    #: Yields the fraction of the headers read so far; returns lazy volumes.
    Opening: TypeAlias = Generator[float, None, list[Volume]]
    #: A file, a folder, or several files.
    Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    #: A job that yields `Progress` and returns volumes.
    LoadingJob: TypeAlias = Generator[Progress, None, list[Volume]]
    #: Allocates an array, given shape and dtype.
    Empty: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], np.ndarray]

#: Extensions of picture formats that are not read.
_PICTURES = (".gif", ".webp", ".heic", ".svg")
#: Extensions of tables, which users drop with the scan.
_TABLES = (".csv", ".tsv", ".xls", ".xlsx", ".parquet")
#: Fraction of the free memory above which a stack stays on disk.
MEMORY_SHARE = 0.5
#: Number of pictures per TIFF file above which a folder is read as pictures.
_MANY = 8
_HEADERS = 0.1  # fraction of the reading time for headers
#: Maximum number of preselected stacks; a study of thirty would fill the screen with layers.
MOST = 6


def opening(path: Path) -> Opening:
    """Open every image stack of a file or folder without reading its values.

    Yields: the fraction of the headers read so far.
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
        raise InputError(f"The folder {path} is empty. Give a folder with {_titles_of_slices()}.")
    return (yield from _slices(files, path, {path}))


def opening_files(files: Sequence[Path], folder: Path) -> Opening:
    """Open several files like a folder that contains only these; as `opening`.

    `files`: at least two, as selected by a user. `folder`: their folder, for names and messages.
    """
    for path in files:
        path.stat()
    _require_text(folder)
    return (yield from _slices(sorted(files, key=natural_key), folder, {p.parent for p in files}))


def _require_text(path: Path) -> None:
    """Raise InputError if a name is not valid text, which no record or table could store."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(
            f"The name of {harmless(str(path))} is not valid UTF-8. Rename the file or its folder."
        ) from None


def _slices(files: Sequence[Path], folder: Path, places: Set[Path]) -> Opening:
    """Open the slices among some files; slices ordered by name only directly in `places`."""
    read_beginnings_ahead(files)
    kinds = [(path, kind_of_one(path)) for path in files]
    for name in _kinds_of_slices([kind for _, kind in kinds]):
        reader = READERS[name]
        own = [path for path, kind in kinds if kind == name]
        here = [path for path in own if reader.slices_by == "header" or path.parent in places]
        if not here:
            where = sorted({str(path.parent.relative_to(folder)) for path in own})
            raise InputError(
                f"The folder {folder} contains no images itself; the {reader.title} files are in "
                f"its subfolders {shortened(where)}. Open one of these."
            )
        others = [path for path, kind in kinds if kind != name]
        volumes = yield from _read(reader, reader.read_slices, here, folder, others)
        if reader.slices_by == "name":
            paths = [(path, kind) for path, kind in kinds if path.parent in places]
            return (yield from _with_other_stacks(volumes, name, paths, folder))
        return volumes
    single = _single_files([(path, kind) for path, kind in kinds if kind is not None])
    if len(single) == 1:
        path, kind = single[0]
        return (yield from _read(READERS[kind], READERS[kind].read, path))
    if single:
        names = shortened([path.name for path, _ in single])
        raise InputError(
            f"The folder {folder} contains {len(single)} images, but no slices of a stack: "
            f"{names}. Open one of these files."
        )
    names = shortened([path.name for path in files])
    if not any(path.stat().st_size for path in files):
        raise InputError(
            f"All files in {folder} are empty (0 bytes): {names}. Copy or export them again."
        )
    raise InputError(
        f"No image stack was found in {folder}: it contains no {_titles_of_slices()} (only "
        f"{names}). Open the folder that holds the slices."
    )


def _with_other_stacks(
    volumes: list[Volume], first: str, kinds: Sequence[tuple[Path, str | None]], folder: Path
) -> Opening:
    """Add the stacks of other formats of slices in the same folder, or say that they are skipped.

    `volumes`: stacks of the format `first`. `kinds`: the files of the folder with their formats.
    """
    notes: list[str] = []
    found = list(volumes)
    for name, reader in READERS.items():
        own = [path for path, kind in kinds if kind == name != first and reader.slices_by == "name"]
        if len(own) >= _MANY:
            try:
                found += yield from _read(reader, reader.read_slices, own, folder, ())
            except HushporeError as error:
                notes.append(LEFT_OUT.format(error))
        elif own and not (folder / PROVENANCE).is_file():
            # the picture beside a result is known to be none of its slices
            count, files = readable_count(len(own), "file"), shortened([path.name for path in own])
            notes.append(f"{count} skipped (format differs from the slices): {files}.")
    named = with_own_names(found)
    if len(found) > len(volumes):
        names = ", ".join(volume.name for volume in named)
        notes.append(f"The folder holds {len(found)} image stacks, read one by one: {names}.")
    return [dataclasses.replace(volume, notes=[*notes, *volume.notes]) for volume in named]


def _kinds_of_slices(kinds: Sequence[str | None]) -> list[str]:
    """Return the slice formats among some files, the format to read first."""
    found = [name for name, reader in READERS.items() if reader.slices_by and name in kinds]
    by_name = [name for name in found if READERS[name].slices_by == "name"]
    if found[:1] == by_name[:1] and by_name:
        # ignore single TIFF files beside many pictures, and a few pictures beside TIFF files
        most = max(by_name, key=kinds.count)
        if kinds.count(most) >= _MANY * kinds.count(found[0]):
            return [most]
    return found


def _single_files(found: Sequence[tuple[Path, str]]) -> list[tuple[Path, str]]:
    """Return the files with one stack each; for a header and its raw file, the header."""
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
    """Return the reason why a file cannot be read."""
    if path.stat().st_size == 0:
        return f"{path.name} is empty (0 bytes). Copy or export it again."
    meant = next((each for each in READERS.values() if each.is_named_like(path)), None)
    if misfit := why_misfit(path):
        return (
            f"{path.name}: {misfit}. Copy it again if it is incomplete, or describe it with "
            "--shape and --dtype."
        )
    if meant is not None and meant.hint:
        return f"{path.name} cannot be read as {meant.title}: {meant.hint}."
    if meant is not None:
        with path.open("rb") as file:
            start = file.read(12)
        return (
            f"{path.name} has an extension of {meant.title}, but its content is not {meant.title}: "
            f"it begins with {start!r}. Export it again, or correct the extension."
        )
    suffix = path.suffix.lower()
    reason = (
        f"cannot be read. Supported formats: {titles(READERS.values(), 'and')}. Save it as TIFF "
        "first."
    )
    if suffix in _TABLES:
        reason = (
            "is a table, but an image is needed. Open the scan, or the result folder that the "
            "table lies in."
        )
    elif suffix in _PICTURES:
        reason = (
            f"is a picture format ({suffix}) that cannot be read. Save it as a greyscale TIFF "
            "first, for example in ImageJ."
        )
    elif suffix == ".log" and is_log(path):
        reason = (
            "holds the settings of a scan, but no image. Open the folder that holds the log and "
            "the slices."
        )
    return f"{path.name} {reason}"


def _titles_of_slices() -> str:
    return titles(reader for reader in READERS.values() if reader.slices_by)


def load(
    path: Paths, *, lazy: bool | None = None, empty: Empty | None = None, trust: bool = False
) -> LoadingJob:
    """Read every image stack of a file or folder, as a job; closing it stops the reading.

    `path`, `lazy`, `trust`: as for `hushpore.io.read_all`. `empty`: allocates the array, given
    shape and dtype; by default `numpy.empty`. See `hushpore.device.backend.Backend.empty`.
    Yields: progress, first of the headers, then of the planes.
    Returns: at least one volume; raises the errors of `hushpore.io.read_all`.
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
    volumes = [
        with_checked_size(dataclasses.replace(volume, source=str(place))) for volume in volumes
    ]
    return volumes if lazy is True else (yield from into_memory(volumes, lazy=lazy, empty=empty))


def into_memory(
    volumes: Sequence[Volume], *, lazy: bool | None = None, empty: Empty | None = None
) -> LoadingJob:
    """Read the values of lazy volumes; a damaged one does not stop the others.

    `volumes`: as `load` returns them with ``lazy=True``. `lazy`, `empty`: as for `load`.
    Returns: the volumes that were read; their notes name the damaged ones.
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
                f"The stack ({volume.nbytes / 1e9:.3g} GB) is larger than half of the free memory: "
                "slices are read from disk when they are needed."
            )
            new = [] if lazy else [note]
            loaded.append(dataclasses.replace(volume, notes=[*volume.notes, *new]))
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
            f"{volume.name} ({volume.facts}) does not fit into memory. Close other programs, or, "
            "in Python, read it with lazy=True and work on a part of it."
        ) from error
    if isinstance(stored, DiskArray):
        for count in stored.read_into(values):
            fraction = _HEADERS + (1 - _HEADERS) * (before + count) / total
            yield Progress("reading", before + count, total, "slices", fraction)
    else:
        values[...] = stored
    return volume.replace(data.with_stored(values) if isinstance(data, Scaled) else values)


def is_on_disk(volume: Volume) -> bool:
    """Return whether the values of a volume are on disk and read on demand."""
    stored = held(volume.data)
    return isinstance(stored, np.memmap | DiskArray)


def _common_folder(files: Sequence[Path]) -> Path:
    """Return a single file itself, or the common folder of several files."""
    if len(files) == 1:
        return files[0]
    if not files:
        raise InputError("No file was given. Give a file, a folder or several files.")
    try:
        return Path(os.path.commonpath([file.absolute().parent for file in files]))
    except ValueError:  # on several drives
        return files[0].absolute().parent


def _with_progress(work: Opening, trust: bool) -> LoadingJob:
    with Driver(work) as driver:
        while True:
            # not around the yield: the consent is for this file, not for code that runs meanwhile
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
        return InputError(f"The file or folder {where} does not exist.")
    if isinstance(error, PermissionError):
        return InputError(f"Permission to read {where} is missing; ask its owner for access.")
    if error.errno == errno.ENAMETOOLONG:
        return InputError(f"The file name {str(path)[:60]}... is too long. Give a shorter one.")
    return InputError(f"{where} cannot be read: {error.strerror or error}.")


def choose(volumes: Sequence[Volume], series: int | str = "") -> Volume:
    """Return the image stack selected by number or name.

    `volumes`: all stacks of a file or folder. `series`: number in the list of `hushpore info`, from
    1; or the name, or a part of it that is unique, in any case; empty for the largest stack.
    Raises InputError, with a list of the stacks, if none or more than one matches.

    >>> import numpy as np
    >>> from hushpore.base.volume import Volume
    >>> head, chest = (Volume(np.zeros((2, 3)), name=name) for name in ("head", "chest"))
    >>> choose([head, chest], 2).name, choose([head, chest], "HEA").name
    ('chest', 'head')
    """
    text = str(series).strip()
    if not text:
        # labels of the same size come after their image
        return max(volumes, key=lambda volume: math.prod(volume.shape))
    if text.isdecimal() and 1 <= int(text) <= len(volumes):
        return volumes[int(text) - 1]
    folded = text.casefold()
    exact = [volume for volume in volumes if volume.name.casefold() == folded]
    found = exact or [volume for volume in volumes if folded in volume.name.casefold()]
    if len(found) == 1:
        return found[0]
    listed = "; ".join(f"{number} {volume.name}" for number, volume in enumerate(volumes, start=1))
    count = f"{len(found)} image stacks match" if found else "No image stack matches"
    raise InputError(f"{count} {text!r}. Give a number or a unique name: {listed}.")


def with_own_names(volumes: Sequence[Volume]) -> list[Volume]:
    """Return the image stacks of a file or folder, with numbers added to equal names."""
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
    """Return the indices of the image stacks to preselect for the user.

    The largest stack, and as many of the next largest as fit into memory, up to `MOST`.

    `volumes`: all stacks of a file or folder; at least one. `room`: total memory for them, in
    bytes.
    """
    order = sorted(range(len(volumes)), key=lambda i: math.prod(volumes[i].shape), reverse=True)
    kept = order[:1]
    for index in order[1:MOST]:
        if sum(volumes[i].nbytes for i in [*kept, index]) > room:
            break
        kept.append(index)
    return sorted(kept)


def split_notes(notes: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Split notes into those shared by all image stacks and those of single stacks.

    >>> split_notes([["a", "b"], ["a"]])
    (['a'], [['b'], []])
    """
    if len(notes) < 2:
        return [], [list(each) for each in notes]
    shared = [note for note in notes[0] if all(note in other for other in notes)]
    return shared, [[note for note in each if note not in shared] for each in notes]
