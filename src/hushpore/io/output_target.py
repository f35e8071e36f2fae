"""Where results go: checked before the work, and complete or not there at all after it."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpore.base.atomic import (
    exchange,
    explained_writing,
    is_real_folder,
    left_behind,
    partial_path,
    partials,
    remove_partial,
    write_all_through,
    write_through,
)  # fmt: skip
from hushpore.base.errors import DeviceError, OutputError
from hushpore.base.safe_text import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

PROVENANCE = "result.json"

_OLD = ".old"  # ends the hidden name of what is just being replaced
_UNFINISHED = ".unfinished"  # ends that of work that another run may go on with
_FOLDERS = ("content", "scratch")  # of what is made, and of what the work needs meanwhile
_KEY = "work.json"  # what is worked on there, and on which machine

# what the names in a result folder look like, and those of an OME-Zarr image
_OURS = re.compile(r"[^\W.][\w .+-]*\.(tif|csv|png|html|npz|json|zarr)")
_OF_ZARR = re.compile(r"\d+|labels|zarr\.json")


def require_result(folder: Path) -> None:
    """Refuse to replace a folder unless it is a result, and holds nothing but that.

    A record can be written by anybody. What goes is what a result consists of: plain files with
    names as `hushpore.io.results` gives them, and labels in blocks.

    Raises OutputError if it has no readable record, or other files than the record lists.
    """
    try:
        listed = json.loads(read_text(folder / PROVENANCE))["files"]
        ours = {name for name in listed if isinstance(listed, list) and _OURS.fullmatch(name)}
        ours.add(PROVENANCE)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise OutputError(
            f"{folder} is not replaced: it is not a result of hushpore (it has no readable "
            f"{PROVENANCE}). Choose another folder."
        ) from None
    _require_no_other(folder, lambda item: item.name in ours and _is_part_of_result(item))


def require_zarr(folder: Path) -> None:
    """Refuse to replace a folder unless it is an OME-Zarr image written here, and nothing else.

    Raises OutputError if it is not, or holds other files.
    """
    try:
        ours = "hushpore" in json.loads(read_text(folder / "zarr.json"))["attributes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        ours = False
    if not ours:
        raise OutputError(
            f"{folder} is not replaced: it is not an OME-Zarr image of hushpore. Choose another "
            "name."
        )
    _require_no_other(folder, lambda item: _OF_ZARR.fullmatch(item.name) and not is_link(item))


def _require_no_other(folder: Path, is_ours: Callable[[Path], object]) -> None:
    foreign = sorted(item.name for item in folder.iterdir() if not is_ours(item))
    if foreign:
        raise OutputError(
            f"{folder} is not replaced: it also holds files that hushpore did not write "
            f"({', '.join(foreign[:3])}). Move them, or choose another name."
        )


def require_apart(
    targets: Iterable[Path], inputs: Iterable[str | os.PathLike[str]], what: str = "read"
) -> None:
    """Refuse to write what is, contains or lies inside something that is read for it.

    Whatever may be replaced, it must never be what the work is done on.

    `targets`: as `check_target` returns them; all that will be written. `inputs`: files and folders
    that are read; those that are not there are left out. `what`: is done with them, for messages.
    Raises OutputError if one of the targets is or lies inside another, or is, contains or lies
    inside an input.
    """
    places = [Path(os.path.realpath(target)) for target in targets]
    for place, other in permutations(places, 2):
        if place == other or place in other.parents:
            raise OutputError(f"Two things would be written to one place: {place}. Name another.")
    for given in inputs:
        source = Path(os.path.realpath(Path(given).expanduser()))
        # a volume that is of no file has an empty source
        if not str(given) or not source.exists():
            continue
        for place in places:
            if place == source or (place.exists() and place.samefile(source)):
                why = f"it is what is {what}"
            elif place in source.parents:
                why = f"it contains what is {what}, {source}"
            elif source in place.parents:
                why = f"it lies inside what is {what}, {source}"
            else:
                continue
            raise OutputError(f"Cannot write {place}: {why}. Name a place beside it.")


def is_link(path: Path) -> bool:
    """Whether a path leads elsewhere, and is neither a file nor a folder itself."""
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
    """Check that a result can be written to a place, before hours of work go into it.

    `path`: the result's directory, or with `suffixes` its file or OME-Zarr folder. `overwrite`:
    whether an earlier result there may be replaced. `suffixes`: how the name of a file may end, in
    lower case; without them it is a directory. `replaceable`: called with an existing directory
    that is not empty; raises where it must be kept.
    Returns: the absolute path, links followed.
    Raises OutputError if it cannot be written there, or something is there already; says what to
    do.
    """
    try:
        target = Path(path).expanduser().resolve()
        exists = target.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise OutputError(f"{path} is not a place that can be written to: {error}.") from error
    directory = not suffixes
    if target.suffix.lower() == ".zarr" and ".zarr" in suffixes:
        directory, replaceable = True, require_zarr  # an image, but a folder all the same
    parent = target.parent
    if not parent.is_dir():
        what = "is a file, not a folder" if parent.exists() else "does not exist"
        raise OutputError(f"Cannot write {target}: the folder {parent} {what}.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(f"Cannot write {target}: you are not allowed to write in {parent}.")
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
    """Give an earlier result its name again, if a process was killed while it replaced that."""
    for old in left_behind(target, _OLD):
        with suppress(OSError):
            old.rename(target)
            write_through(target.parent)
            return


def _check_existing(
    target: Path, overwrite: bool, directory: bool, replaceable: Callable[[Path], None]
) -> None:
    if directory and not target.is_dir():
        raise OutputError(f"Cannot write the folder {target}: a file of that name is there.")
    if not directory and not target.is_file():
        raise OutputError(f"Cannot write the file {target}: a folder of that name is there.")
    if directory and target == Path.cwd():
        raise OutputError(f"Cannot write to {target}, the current folder: name a new one.")
    if directory and next(target.iterdir(), None) is None:
        return
    if not overwrite:
        raise OutputError(
            f"{target} exists already and was left as it is. Choose another name, or allow "
            "overwriting (--overwrite)."
        )
    if directory:
        replaceable(target)


@contextmanager
def new_directory(
    target: Path, overwrite: bool, replaceable: Callable[[Path], None] = require_result
) -> Iterator[Path]:
    """Fill a directory that takes its place only when it is complete.

    `target`: as returned by `check_target`. `overwrite`, `replaceable`: as for `check_target`,
    which is asked again at the end.
    Yields: an empty directory beside `target`; removed if the block raises anything. What a process
    that was killed has left of it is removed first.
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
    """A result that is being made."""

    content: Path  # the folder that will take the result's name; there already where `resumed`
    scratch: Path  # for what the work needs meanwhile; it goes when the result is whole
    resumed: bool  # whether this goes on from what an earlier run has left


@contextmanager
def resumable_directory(
    target: Path,
    key: Mapping[str, Any],
    overwrite: bool,
    replaceable: Callable[[Path], None] = require_result,
) -> Iterator[Unfinished]:
    """Fill a directory that takes its place only when it is complete, perhaps in several runs.

    `target`, `overwrite`, `replaceable`: as for `new_directory`. `key`: all that the result depends
    on, as JSON values: what was begun with another is begun anew.
    Yields: it stays where the process dies, or the block raises `DeviceError`: the machines that it
    ran on are gone, and what they have written is not. Any other error removes it.
    Raises OutputError if writing fails, or another process is making the same.
    """
    wanted = json.loads(json.dumps(key))  # as JSON gives it back
    lost = False
    with explained_writing(target):
        remove_partial(target)
        work = _taken(target, wanted)
        resumed = work is not None
        if work is None:
            work = partial_path(target, _UNFINISHED)
            work.mkdir(mode=0o700)  # nobody else writes here, also where a group may around it
        content, scratch, note = (work / name for name in (*_FOLDERS, _KEY))
        try:
            if not resumed:
                content.mkdir()
                scratch.mkdir()
                # last, so that what has a key is whole
                note.write_text(json.dumps({"host": platform.node(), "key": wanted}))
            yield Unfinished(content, scratch, resumed)
            check_target(target, overwrite, replaceable=replaceable)
            # what a writer that was killed has left: zarr's files are called so until they are
            # whole
            for part in content.rglob("*.partial"):
                part.unlink(missing_ok=True)
            write_all_through(content)
            # from here on nothing in this folder is to go on with: it may be the earlier result
            note.unlink()
            _move_into_place(content, target)
        except DeviceError:
            # a cluster that was never there has left nothing to go on with
            lost = any(any(folder.iterdir()) for folder in (content, scratch))
            raise
        finally:
            if lost:
                work.rename(partial_path(target, _UNFINISHED, owned=False))
            else:
                shutil.rmtree(work, ignore_errors=True)


def _taken(target: Path, key: Any) -> Path | None:
    """Take over what an earlier run has left of the same work, if it has; other work is removed.

    Raises OutputError if the process lives, or runs on another machine.
    """
    found = None
    for work, process in list(partials(target, _UNFINISHED)):
        if not work.is_dir() or {one.name for one in work.iterdir()} - {*_FOLDERS, _KEY}:
            continue  # of other things: it has been given such a name by somebody
        try:
            known = json.loads((work / _KEY).read_text(encoding="utf-8"))
            host, made_with = known["host"], known["key"]
        except (OSError, ValueError, KeyError, TypeError):
            host, made_with = "another machine", None
        if process is not None:
            free = partial_path(target, _UNFINISHED, owned=False)
            raise OutputError(
                f"{target} is being written by another process already ({process} on {host}). If "
                f"that is over, rename {work} to {free.name} to go on from what it has left."
            )
        if found is None and made_with == key and (work / "content").is_dir():
            found = partial_path(target, _UNFINISHED)
            # of two processes one succeeds
            work.rename(found)
        else:
            shutil.rmtree(work, ignore_errors=True)
    return found


def _move_into_place(part: Path, target: Path) -> None:
    """Give a finished directory its name; an earlier one of that name goes after that.

    All of it must be on the disk. Whenever the process is killed one of the two is there, whole:
    under the name, or, where two names cannot change places in one step, for a moment under a
    hidden one, from which `check_target` brings it back.
    """
    if not target.exists():
        part.rename(target)
    elif not exchange(part, target):
        old = partial_path(target, _OLD)
        target.rename(old)
        try:
            part.rename(target)
        except BaseException:
            old.rename(target)
            raise
        part = old
    write_through(target.parent)
    # where they have changed places: what was there before
    shutil.rmtree(part, ignore_errors=True)
    remove_partial(target, _OLD)
