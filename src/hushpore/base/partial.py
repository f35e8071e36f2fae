"""Files and folders under a hidden name until they are complete: one way for all that is written.

Where several people write into one folder, such a name may have been taken by somebody else, or be
a link to somewhere else. Nothing here follows a link, or opens, fills or empties what it has not
made itself.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hushpore.base.errors import HushporeError, OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_LONGEST = 40  # characters of a name that a hidden name repeats
# the machine, the process there, and what nobody can guess; earlier versions had that alone
_MARK = re.compile(r"(?:([0-9a-f]{8})-([0-9a-f]+)-)?(?:[0-9a-f]{8}){1,2}")
# of Linux: the folder that paths are seen from, and that two names change places
_HERE, _EXCHANGE = -100, 2


def partial_path(target: Path, suffix: str = ".part") -> Path:
    """Return a name beside a target, in which nobody has written or could guess.

    It says whose it is, so that what a process leaves that is killed is known: `left_behind`.
    """
    mark = f"{_machine()}-{os.getpid():x}-{secrets.token_hex(8)}"
    # beside and not in /tmp: renaming is only atomic within one file system
    return target.with_name(f".{shortened(target.name)}.{mark}{suffix}")


def shortened(name: str) -> str:
    """Return a name, or of a long one its beginning and what tells it from others."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"


@functools.cache
def _machine() -> str:
    """Return what tells this machine, or container, from others: process numbers are its own."""
    try:
        numbers = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        numbers = 0
    told = f"{platform.node()} {numbers}"
    return hashlib.blake2b(told.encode(), digest_size=4).hexdigest()


def left_behind(target: Path, suffix: str = ".part") -> Iterator[Path]:
    """Yield what this user's processes that were killed have left under hidden names of a target.

    Of processes that live, or of another machine, nothing is known: theirs stays.
    """
    start = f".{shortened(target.name)}."
    with suppress(OSError), os.scandir(target.parent) as entries:
        for name in [each.name for each in entries if each.name.startswith(start)]:
            mark = _MARK.fullmatch(name[len(start) :].removesuffix(suffix))
            item = target.with_name(name)
            if mark is None or not name.endswith(suffix) or _is_in_hand(*mark.groups()):
                continue
            with suppress(OSError):
                mode = item.lstat().st_mode
                if is_own_folder(item) if stat.S_ISDIR(mode) else stat.S_ISREG(mode):
                    yield item


def _is_in_hand(machine: str | None, process: str | None) -> bool:
    """Whether somebody may still be at work on what has such a mark."""
    import psutil

    if machine is None or process is None:
        return False
    return machine != _machine() or psutil.pid_exists(int(process, 16))


def exchange(one: Path, other: Path) -> bool:
    """Let two names change places, in one step; returns whether this system can, and it was done.

    Linux can, on the file systems of one machine.
    """
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    done: int = rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)
    return done == 0


@contextmanager
def new_file(
    target: Path, overwrite: bool, suffix: str = ".part", *, lasting: bool = True
) -> Iterator[Path]:
    """Write a file that takes its place only when it is complete.

    `overwrite`: whether a file that has appeared there may be replaced. `suffix`: how its name ends
    until then. `lasting`: whether it is on the disk when it has its name, also where the power
    fails; what can be made again need not be.
    Yields: an empty file beside `target`, to be opened by its name; removed if the block raises
    anything. What a process that was killed has left of it is removed first.
    Raises OutputError if writing fails.
    """
    if lasting:
        remove_partial(target, suffix)
    part = partial_path(target, suffix)
    with explained_writing(target):
        create_file(part)
    try:
        with explained_writing(target):
            yield part
            if not overwrite and os.path.lexists(target):
                raise OutputError(f"Cannot write {target}: it has appeared there meanwhile.")
            if lasting:
                write_through(part)
            part.replace(target)
            if lasting:
                write_through(target.parent)
    finally:
        part.unlink(missing_ok=True)


def write_through(place: Path) -> None:
    """Have a file, or the names in a folder, written to the disk before anything else is done.

    Raises OSError if the disk cannot: some say only now that they are full.
    """
    if place.is_dir():
        # not every system opens folders, or file system keeps them so
        with suppress(OSError):
            _flush(place, os.O_RDONLY)
    else:
        _flush(place, os.O_RDWR)


def write_all_through(folder: Path) -> None:
    """Have all files of a folder, and of folders in it, written to the disk."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            write_through(Path(place, name))
        write_through(Path(place))


def _flush(place: Path, mode: int) -> None:
    handle = os.open(place, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def create_file(path: Path) -> None:
    """Make an empty file where there is nothing, not even a link.

    Raises FileExistsError if there is something.
    """
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _NO_LINKS, 0o666))


def is_own_folder(path: Path) -> bool:
    """Whether a path itself is a folder, and not a link to one, and this user's.

    Raises OSError if it is not there.
    """
    # a system without user numbers (Windows) keeps a user's folders apart by itself
    own = not hasattr(os, "geteuid") or path.lstat().st_uid == os.geteuid()
    return is_real_folder(path) and own


def is_real_folder(path: Path) -> bool:
    """Whether a path itself is a folder, and not a link or a junction of Windows to one."""
    state, point = path.lstat(), getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0)
    leads_on = bool(getattr(state, "st_file_attributes", 0) & point)
    return stat.S_ISDIR(state.st_mode) and not leads_on


def remove_partial(target: Path, suffix: str = ".part") -> None:
    """Remove what processes that were killed have left half-written beside a target."""
    for item in left_behind(target, suffix):
        if item.is_dir():
            shutil.rmtree(item, ignore_errors=True)
        else:
            with suppress(OSError):
                item.unlink()


@contextmanager
def explained_writing(target: Path) -> Iterator[None]:
    """Say of an error of the system why a result cannot be written, in the user's words."""
    reasons = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "your disk quota is used up",
        errno.EACCES: "you are not allowed to write there",
        errno.EPERM: "you are not allowed to write there",
        errno.EROFS: "the disk is read-only",
        errno.ENAMETOOLONG: "the name is too long",
    }
    try:
        yield
    except HushporeError:
        raise
    except OSError as error:
        # of a full disk NumPy says only how many values it has written
        is_short = error.errno is None and "requested and" in str(error)
        number = errno.ENOSPC if is_short else error.errno or 0
        reason = reasons.get(number, str(error.strerror or error))
        raise OutputError(
            f"Cannot write {target}: {reason}. Nothing was left half-written."
        ) from error
