"""Hidden names of results until they are complete: one way for all that is written.

A name says which process made it, so that what a process leaves that is killed is known and goes.
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

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)  # Windows opens no links by itself
_LONGEST = 40  # characters of a name that a hidden name repeats
# the machine, the process there, when it began, and what nobody can guess; what a process has let
# go of has that alone
_MARK = re.compile(r"(?:([0-9a-f]{8})-([0-9a-f]+)-([0-9a-f]+)-)?[0-9a-f]{16}")
_HERE = -100  # of Linux (AT_FDCWD): paths are seen from the current folder
_EXCHANGE = 2  # of Linux (RENAME_EXCHANGE): two names change places


def partial_path(target: Path, suffix: str = ".part", *, owned: bool = True) -> Path:
    """Return a name beside a target, in which nobody has written or could guess.

    `owned`: whether it says that this process is at work there.
    """
    # beside and not in /tmp: renaming is only atomic within one file system
    mark = new_mark() if owned else secrets.token_hex(8)
    return target.with_name(f".{_shortened(target.name)}.{mark}{suffix}")


def partials(target: Path, suffix: str = ".part") -> Iterator[tuple[Path, int | None]]:
    """Yield what this user has under hidden names of a target, and which process is at work on it.

    Of another machine's processes nothing is known: they count as running. None: nobody is.
    """
    return marked(target.parent, f".{_shortened(target.name)}.", suffix)


def left_behind(target: Path, suffix: str = ".part") -> Iterator[Path]:
    """Yield what processes that were killed have left under hidden names of a target."""
    return (item for item, process in partials(target, suffix) if process is None)


def _shortened(name: str) -> str:
    """Return a name, or of a long one its beginning and what tells it from others."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"


def new_mark() -> str:
    """Return what tells whose a name is, and what nobody can guess."""
    own = os.getpid()
    return f"{_machine()}-{own:x}-{_beginning(own):x}-{secrets.token_hex(8)}"


def marked(folder: Path, start: str, suffix: str = "") -> Iterator[tuple[Path, int | None]]:
    """Yield this user's files and folders whose names are a mark, and who is at work on them."""
    with suppress(OSError), os.scandir(folder) as entries:
        for name in sorted(each.name for each in entries if each.name.startswith(start)):
            mark = _MARK.fullmatch(name[len(start) :].removesuffix(suffix))
            item = folder / name
            if mark is None or not name.endswith(suffix):
                continue
            with suppress(OSError):
                mode = item.lstat().st_mode
                if is_own_folder(item) if stat.S_ISDIR(mode) else stat.S_ISREG(mode):
                    yield item, _process_of(mark)


def _process_of(mark: re.Match[str]) -> int | None:
    """Return the process that may still be at work on what has such a mark: in doubt it is."""
    import psutil

    if mark[1] is None:
        return None
    process = int(mark[2], 16)
    if mark[1] != _machine():
        return process
    try:
        # a number is given again to another process, once the first has ended
        return process if _beginning(process) == int(mark[3], 16) else None
    except psutil.NoSuchProcess:
        return None
    except psutil.Error:
        return process


@functools.cache
def _machine() -> str:
    """Return what tells this machine, or container, from others: process numbers are its own."""
    try:
        numbers = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        numbers = 0
    told = f"{platform.node()} {numbers}"
    return hashlib.blake2b(told.encode(), digest_size=4).hexdigest()


def _beginning(process: int) -> int:
    """Return when a process began, as the system counts: on Linux no setting of clocks changes it.

    Raises psutil.Error if it cannot be told, as of a process that is no more.
    """
    import psutil

    try:
        state, *known = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        if state in "ZX":
            raise psutil.ZombieProcess(process)  # over; who started it has not looked yet
        return int(known[18])
    except (OSError, ValueError, IndexError):
        return int(100 * psutil.Process(process).create_time())


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
