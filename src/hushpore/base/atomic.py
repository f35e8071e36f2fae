"""Atomic writes: partial files have hidden names, and are renamed when they are complete.

The hidden name identifies the process, so that partial files of killed processes can be recognised
and removed. In a folder shared with other users, somebody else may have taken such a name, or made
it a link. Nothing here follows a link, or opens, fills or empties a file that it did not create.
"""

from __future__ import annotations

import errno
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

_LONGEST = 40  # characters of the target name in a hidden name
# computer, process number and a random part; only the random part for partial results that were
# released for resuming
_MARK = re.compile(r"(?:([0-9a-f]{8})-([0-9a-f]+)-)?[0-9a-f]{16}")
_CLOCKS = 60.0  # seconds by which the clocks of a computer and of its file server may differ


def partial_path(target: Path, suffix: str = ".part", *, owned: bool = True) -> Path:
    """Return a new hidden name next to a target, which nobody can guess.

    `owned`: whether the name identifies this process as the writer.
    """
    # next to the target, because renaming is atomic only within one file system
    mark = new_mark() if owned else secrets.token_hex(8)
    return target.with_name(f".{_shortened(target.name)}.{mark}{suffix}")


def partials(target: Path, suffix: str = ".part") -> Iterator[tuple[Path, int | None]]:
    """Yield this user's partial files of a target, each with its writer; see `marked`."""
    return marked(target.parent, f".{_shortened(target.name)}.", suffix)


def abandoned_partials(target: Path, suffix: str = ".part") -> Iterator[Path]:
    """Yield the partial files of a target left by killed processes."""
    return (item for item, process in partials(target, suffix) if process is None)


def _shortened(name: str) -> str:
    """Return a name, shortened to its beginning and a digest if it is long."""
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}-{_digest(name, 8)}"


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def new_mark() -> str:
    """Return a mark for a hidden name: computer, process and a random part."""
    return f"{_digest(platform.node(), 4)}-{os.getpid():x}-{secrets.token_hex(8)}"


def marked(folder: Path, start: str, suffix: str = "") -> Iterator[tuple[Path, int | None]]:
    """Yield this user's files and folders with a marked name, and the process writing each.

    The process is None if it has ended. Processes of other computers count as running.
    """
    with suppress(OSError):
        for name in sorted(os.listdir(folder)):
            mark = _MARK.fullmatch(name.removeprefix(start).removesuffix(suffix))
            if mark is None or not (name.startswith(start) and name.endswith(suffix)):
                continue
            item = folder / name
            with suppress(OSError):
                state = item.lstat()
                if is_own_folder(item) or stat.S_ISREG(state.st_mode):
                    yield item, _writer(mark, state.st_mtime)


def _writer(mark: re.Match[str], changed: float) -> int | None:
    """Return the process of a mark, or None if it has certainly ended.

    `changed`: time of the last change to the file or folder.
    """
    import psutil

    if mark[1] is None:
        return None
    process = int(mark[2], 16)
    if mark[1] != _digest(platform.node(), 4):
        return process
    try:
        began = psutil.Process(process).create_time()
    except psutil.NoSuchProcess:
        return None
    except psutil.Error:
        return process
    # numbers are reused: a process that began after the last change is another one
    return process if began < changed + _CLOCKS else None


@contextmanager
def new_file(
    target: Path, overwrite: bool, suffix: str = ".part", *, lasting: bool = True
) -> Iterator[Path]:
    """Write a file atomically.

    `overwrite`: whether a file that appears meanwhile may be replaced. `suffix`: suffix of the
    partial file. `lasting`: flush the file to disk before renaming it, so that it survives a power
    failure; not needed for files that can be recomputed. Yields: the path of an empty partial file
    next to `target`, removed after an error. Partial files of killed processes are removed first.
    Raises OutputError if writing fails.
    """
    if lasting:
        remove_partial(target, suffix)
    part = partial_path(target, suffix)
    with explained_writing(target):
        part.touch(exist_ok=False)  # fails for a link as well
    try:
        with explained_writing(target):
            yield part
            if not overwrite and os.path.lexists(target):
                raise OutputError(
                    f"Cannot write {target}: another file of this name was created meanwhile. "
                    "Choose another name."
                )
            if lasting:
                write_through(part)
            part.replace(target)
            if lasting:
                write_through(target.parent)
    finally:
        part.unlink(missing_ok=True)


def write_through(place: Path) -> None:
    """Flush a file, or the names in a folder, to disk.

    Raises OSError on failure; some file systems report only now that they are full.
    """
    if place.is_dir():
        # some systems cannot open folders, and some file systems cannot flush them
        with suppress(OSError):
            _flush(place, os.O_RDONLY)
    else:
        _flush(place, os.O_RDWR)


def write_all_through(folder: Path) -> None:
    """Flush all files in a folder and its subfolders to disk."""
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


def is_own_folder(path: Path) -> bool:
    """Return whether a path is a real folder (no link) of this user.

    Raises OSError if it does not exist.
    """
    # Windows has no user numbers, and separates the folders of users itself
    own = not hasattr(os, "geteuid") or path.lstat().st_uid == os.geteuid()
    return is_real_folder(path) and own


def is_real_folder(path: Path) -> bool:
    """Return whether a path is a real folder, and neither a link nor a Windows junction."""
    state, point = path.lstat(), getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0)
    leads_on = bool(getattr(state, "st_file_attributes", 0) & point)
    return stat.S_ISDIR(state.st_mode) and not leads_on


def remove_partial(target: Path, suffix: str = ".part") -> None:
    """Remove the partial files of a target left by killed processes."""
    for item in abandoned_partials(target, suffix):
        if item.is_dir():
            shutil.rmtree(item, ignore_errors=True)
        else:
            with suppress(OSError):
                item.unlink()


@contextmanager
def explained_writing(target: Path) -> Iterator[None]:
    """Convert an OSError into an OutputError that explains the reason to the user."""
    reasons = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "your disk quota is used up",
        errno.EACCES: "permission to write there is missing",
        errno.EPERM: "permission to write there is missing",
        errno.EROFS: "the disk is read-only",
        errno.ENAMETOOLONG: "the name is too long",
    }
    try:
        yield
    except HushporeError:
        raise
    except OSError as error:
        # NumPy reports a full disk only by the number of written values
        is_short = error.errno is None and "requested and" in str(error)
        number = errno.ENOSPC if is_short else error.errno or 0
        reason = reasons.get(number, str(error.strerror or error))
        raise OutputError(
            f"Cannot write {target}: {reason}. No incomplete files remain."
        ) from error
