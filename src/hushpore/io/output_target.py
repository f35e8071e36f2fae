"""Output targets: checked before a job, and written atomically after it."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpore.base.atomic import (
    abandoned_partials,
    explained_writing,
    is_real_folder,
    partial_path,
    partials,
    remove_partial,
    write_all_through,
    write_through,
)  # fmt: skip
from hushpore.base.errors import DeviceError, OutputError
from hushpore.base.formatting import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

PROVENANCE = "result.json"

_OLD = ".old"  # suffix of the hidden name of a result that is being replaced
_UNFINISHED = ".unfinished"  # suffix of the hidden name of a partial result, for resuming
_FOLDERS = ("content", "scratch")  # subfolders for the result and for temporary files
_KEY = "work.json"  # identifies the work

# file names in a result folder, and in an OME-Zarr image
_OURS = re.compile(r"[^\W.][\w .+-]*\.(tif|csv|png|html|npz|json|zarr)")
_OF_ZARR = re.compile(r"\d+|labels|zarr\.json")


def require_result(folder: Path) -> None:
    """Raise OutputError unless a folder is a result and may be replaced.

    As anybody can write a record, only the regular contents of a result may be deleted: plain files
    with the names given by `hushpore.io.results`, and OME-Zarr images. The folder must have a
    readable record, and only files that the record lists.
    """
    try:
        listed = json.loads(read_text(folder / PROVENANCE))["files"]
        ours = {name for name in listed if isinstance(listed, list) and _OURS.fullmatch(name)}
        ours.add(PROVENANCE)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise OutputError(
            f"{folder} was not replaced, because it is not a result of hushpore (no readable "
            f"{PROVENANCE}). Choose another folder."
        ) from None
    _require_no_other(folder, lambda item: item.name in ours and _is_part_of_result(item))


def require_zarr(folder: Path) -> None:
    """Raise OutputError unless a folder is an OME-Zarr image of hushpore without other files."""
    try:
        ours = "hushpore" in json.loads(read_text(folder / "zarr.json"))["attributes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        ours = False
    if not ours:
        raise OutputError(
            f"{folder} was not replaced, because it is not an OME-Zarr image of hushpore. Choose "
            "another name."
        )
    _require_no_other(folder, lambda item: _OF_ZARR.fullmatch(item.name) and not is_link(item))


def _require_no_other(folder: Path, is_ours: Callable[[Path], object]) -> None:
    foreign = sorted(item.name for item in folder.iterdir() if not is_ours(item))
    if foreign:
        raise OutputError(
            f"{folder} was not replaced, because it also contains other files "
            f"({', '.join(foreign[:3])}). Move them, or choose another name."
        )


def require_apart(
    targets: Iterable[Path], inputs: Iterable[str | os.PathLike[str]], what: str = "read"
) -> None:
    """Raise OutputError if an output overlaps another output or an input.

    An input must never be overwritten, even if overwriting is allowed.

    `targets`: all outputs, as returned by `check_target`. `inputs`: files and folders that are
    read; missing ones are ignored. `what`: participle for the messages ("read").
    """
    places = [Path(os.path.realpath(target)) for target in targets]
    for place, other in permutations(places, 2):
        if place == other or place in other.parents:
            raise OutputError(
                f"Two outputs would be written to the same place: {place}. Choose another for one."
            )
    for given in inputs:
        source = Path(os.path.realpath(Path(given).expanduser()))
        # the source of a volume in memory is empty
        if not str(given) or not source.exists():
            continue
        for place in places:
            if place == source or (place.exists() and place.samefile(source)):
                why = f"it is the input that is {what}"
            elif place in source.parents:
                why = f"it contains the input that is {what}, {source}"
            elif source in place.parents:
                why = f"it is inside the input that is {what}, {source}"
            else:
                continue
            raise OutputError(f"Cannot write {place}: {why}. Choose another place.")


def is_link(path: Path) -> bool:
    """Return whether a path is neither a regular file nor a real folder, for example a link."""
    mode = path.lstat().st_mode
    return not (stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and is_real_folder(path)))


def _is_part_of_result(item: Path) -> bool:
    if is_link(item):
        return False
    if not item.is_dir():
        return True
    try:
        require_zarr(item)
    except OutputError:
        return False
    return item.suffix == ".zarr"


def check_target(
    path: str | os.PathLike[str],
    overwrite: bool = False,
    *,
    suffixes: tuple[str, ...] = (),
    replaceable: Callable[[Path], None] = require_result,
) -> Path:
    """Check that a result can be written to a path, before the job runs.

    `path`: directory of the result; with `suffixes`, its file or OME-Zarr folder. `overwrite`:
    whether an earlier result may be replaced. `suffixes`: allowed extensions of a file, in lower
    case; empty for a directory. `replaceable`: called with an existing directory that is not empty;
    raises if it must be kept.
    Returns: the absolute path, links followed.
    Raises OutputError if it cannot be written or already exists; says what to do.
    """
    try:
        target = Path(path).expanduser().resolve()
        exists = target.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise OutputError(f"{path} is not a valid path: {error}. Choose another.") from error
    directory = not suffixes
    if target.suffix.lower() == ".zarr" and ".zarr" in suffixes:
        directory, replaceable = True, require_zarr  # an image in a folder
    parent = target.parent
    if not parent.is_dir():
        what = "is a file, not a folder" if parent.exists() else "does not exist"
        raise OutputError(f"Cannot write {target}: {parent} {what}. Choose an existing folder.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(
            f"Cannot write {target}: permission to write in {parent} is missing. Choose another "
            "folder."
        )
    if not directory and target.suffix.lower() not in suffixes:
        *others, last = suffixes
        endings = f"{', '.join(others)} or {last}" if others else last
        raise OutputError(f"Cannot write {target}: its name must end in {endings}.")
    if directory and not exists:
        _put_back(target)
        exists = target.exists()
    if exists:
        _check_existing(target, overwrite, directory, replaceable)
    return target


def _put_back(target: Path) -> None:
    """Restore an earlier result, if a process was killed while replacing it."""
    for old in abandoned_partials(target, _OLD):
        with suppress(OSError):
            old.rename(target)
            write_through(target.parent)
            return


def _check_existing(
    target: Path, overwrite: bool, directory: bool, replaceable: Callable[[Path], None]
) -> None:
    if directory and not target.is_dir():
        raise OutputError(
            f"Cannot write the folder {target}: a file of this name exists. Choose another name."
        )
    if not directory and not target.is_file():
        raise OutputError(
            f"Cannot write the file {target}: a folder of this name exists. Choose another name."
        )
    if directory and target == Path.cwd():
        raise OutputError(f"Cannot write to {target}, the current folder. Choose a new folder.")
    if directory and next(target.iterdir(), None) is None:
        return
    if not overwrite:
        raise OutputError(
            f"{target} already exists and was not changed. Choose another name, or allow "
            "overwriting."
        )
    if directory:
        replaceable(target)


@contextmanager
def new_directory(
    target: Path, overwrite: bool, replaceable: Callable[[Path], None] = require_result
) -> Iterator[Path]:
    """Write a directory atomically.

    `target`: as returned by `check_target`. `overwrite`, `replaceable`: as for `check_target`,
    which is called again at the end.
    Yields: an empty directory next to `target`, renamed when the block is done and removed after an
    error. Partial directories of killed processes are removed first.
    Raises OutputError if writing fails.
    """
    with explained_writing(target):
        remove_partial(target)
        part = partial_path(target)
        part.mkdir()
        try:
            yield part
            check_target(target, overwrite, replaceable=replaceable)
            write_all_through(part)
            _move_into_place(part, target)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@dataclass(frozen=True)
class Unfinished:
    """Folders of a partial result."""

    content: Path  # the future result; already contains data if `resumed`
    scratch: Path  # for temporary files, removed when the result is complete
    resumed: bool  # whether the partial result of an earlier run is continued


@contextmanager
def resumable_directory(
    target: Path,
    key: Mapping[str, Any],
    overwrite: bool,
    replaceable: Callable[[Path], None] = require_result,
) -> Iterator[Unfinished]:
    """Write a directory atomically, possibly in several runs.

    `target`, `overwrite`, `replaceable`: as for `new_directory`. `key`: everything that the result
    depends on, as JSON values; a partial result with another key is discarded.
    Yields: the folders of the partial result. It is kept if the process dies, or the block raises
    `DeviceError` because workers were lost; any other error removes it.
    Raises OutputError if writing fails, or another process is writing the same result.
    """
    wanted = json.loads(json.dumps(key))  # as it will be read back
    lost = False
    with explained_writing(target):
        remove_partial(target)
        work = _taken(target, wanted)
        resumed = work is not None
        if work is None:
            work = partial_path(target, _UNFINISHED)
            work.mkdir(mode=0o700)  # private, even in a folder that a group may write to
        content, scratch, note = (work / name for name in (*_FOLDERS, _KEY))
        try:
            if not resumed:
                content.mkdir()
                scratch.mkdir()
                # the key last, as it marks the folder as complete
                note.write_text(json.dumps(wanted))
            yield Unfinished(content, scratch, resumed)
            check_target(target, overwrite, replaceable=replaceable)
            # partial chunk files of killed writers
            for part in content.rglob("*.partial"):
                part.unlink(missing_ok=True)
            write_all_through(content)
            # from here on the folder must not be resumed: it may contain the earlier result
            note.unlink()
            _move_into_place(content, target)
        except DeviceError:
            # if no worker ever started, there is nothing to resume
            lost = any(any(folder.iterdir()) for folder in (content, scratch))
            raise
        finally:
            if lost:
                work.rename(partial_path(target, _UNFINISHED, owned=False))
            else:
                shutil.rmtree(work, ignore_errors=True)


def _taken(target: Path, key: Any) -> Path | None:
    """Return the partial result of an earlier run with the same key; others are removed.

    Raises OutputError if its process is running, or ran on another computer.
    """
    taken = None
    for work, process in list(partials(target, _UNFINISHED)):
        if not work.is_dir() or {item.name for item in work.iterdir()} - {*_FOLDERS, _KEY}:
            continue  # not a partial result, in spite of its name
        if process is not None:
            raise OutputError(
                f"{target} is being written by another process ({process}). If that process has "
                f"ended, delete {work}."
            )
        try:
            is_same = json.loads((work / _KEY).read_text(encoding="utf-8")) == key
        except (OSError, ValueError):
            is_same = False
        if taken is None and is_same and (work / "content").is_dir():
            taken = partial_path(target, _UNFINISHED)
            # only one of two processes succeeds
            work.rename(taken)
        else:
            shutil.rmtree(work, ignore_errors=True)
    return taken


def _move_into_place(part: Path, target: Path) -> None:
    """Rename a complete directory to its final name, then remove the earlier one.

    All data must be on disk. The earlier directory has a hidden name meanwhile, from which
    `check_target` restores it if the process is killed in between.
    """
    if target.exists():
        old = partial_path(target, _OLD)
        target.rename(old)
        try:
            part.rename(target)
        except BaseException:
            old.rename(target)
            raise
        part = old
    else:
        part.rename(target)
    write_through(target.parent)
    shutil.rmtree(part, ignore_errors=True)
    remove_partial(target, _OLD)
