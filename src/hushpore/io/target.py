"""Where results go: checked before the work, and complete or not there at all after it."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from contextlib import contextmanager, suppress
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

from hushpore.base.errors import OutputError
from hushpore.base.partial import (
    exchange,
    explained_writing,
    is_real_folder,
    left_behind,
    partial_path,
    remove_partial,
    write_all_through,
    write_through,
)  # fmt: skip
from hushpore.base.text import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PROVENANCE = "result.json"

_OLD = ".old"  # ends the hidden name of what is just being replaced

# what the names in a result folder look like, and those of an OME-Zarr image of any version
_OURS = re.compile(r"[^\W.][\w .+-]*\.(tif|csv|png|html|npz|json|zarr)")
_OF_ZARR = re.compile(r"\d+|labels|zarr\.json|\.z(attrs|group|array|metadata)")


def require_result(folder: Path) -> None:
    """Refuse to replace a folder unless it is a result, and holds nothing but that.

    A record can be written by anybody. What goes is what a result consists of: plain files with
    names as `hushpore.io.results` gives them, and labels in blocks.

    Raises OutputError if it has no readable record, or other files than the record lists.
    """
    try:
        listed = json.loads(read_text(folder / PROVENANCE))["files"]
        listed = {name for name in listed if isinstance(listed, list) and _OURS.fullmatch(name)}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise OutputError(
            f"{folder} is not replaced: it is not a result of hushpore (it has no readable "
            f"{PROVENANCE}). Choose another folder."
        ) from None
    foreign = sorted(
        item.name
        for item in folder.iterdir()
        if item.name not in {*listed, PROVENANCE} or not _is_part_of_result(item)
    )
    if foreign:
        raise OutputError(
            f"{folder} is not replaced: it also holds files that hushpore did not write "
            f"({', '.join(foreign[:3])}). Move them, or choose another folder."
        )


def require_zarr(folder: Path) -> None:
    """Refuse to replace a folder unless it is an OME-Zarr image written here, and nothing else.

    Raises OutputError if it is not, or holds other files.
    """
    ours = False
    for name in ("zarr.json", ".zattrs"):  # of Zarr 3, and of versions that wrote Zarr 2
        try:
            known = json.loads(read_text(folder / name))
            ours = ours or "hushpore" in known.get("attributes", known)
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            continue
    if not ours:
        raise OutputError(
            f"{folder} is not replaced: it is not an OME-Zarr image of hushpore. Choose another "
            "name."
        )
    foreign = sorted(
        item.name for item in folder.iterdir() if not _OF_ZARR.fullmatch(item.name) or is_link(item)
    )
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
    if item.is_dir():
        try:
            require_zarr(item)
        except OutputError:
            return False
        return item.suffix == ".zarr"
    return True


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
    remove_partial(target)
    part = partial_path(target)
    with explained_writing(target):
        part.mkdir()
    try:
        with explained_writing(target):
            yield part
            check_target(target, overwrite, replaceable=replaceable)
            write_all_through(part)
            move_into_place(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def move_into_place(part: Path, target: Path) -> None:
    """Give a finished directory its name; an earlier one of that name goes after that.

    All of it must be on the disk. Whenever the process is killed one of the two is there, whole:
    under the name, or, where two names cannot change places in one step, for a moment under a
    hidden one, from which `check_target` brings it back.
    """
    if not target.exists():
        part.rename(target)
        write_through(target.parent)
    elif exchange(part, target):
        write_through(target.parent)
        shutil.rmtree(part, ignore_errors=True)
    else:
        old = partial_path(target, _OLD)
        target.rename(old)
        try:
            part.rename(target)
        except BaseException:
            old.rename(target)
            raise
        write_through(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    for each in left_behind(target, _OLD):
        shutil.rmtree(each, ignore_errors=True)
