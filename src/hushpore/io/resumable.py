"""Results of long work: under a hidden name until they are whole, and gone on with after a crash.

What ends in an error or is cancelled leaves nothing behind. What is killed, or loses the machines
that it runs on, leaves its finished blocks, and the same work started again goes on from them.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import DeviceError, OutputError
from hushpore.base.partial import (
    explained_writing,
    is_own_folder,
    remove_partial,
    shortened,
    write_all_through,
)  # fmt: skip
from hushpore.io.target import check_target, move_into_place, require_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_WORK_FILE, _OWNER_FILE = "work.json", "owner.json"
_CONTENT, _SCRATCH = "content", "scratch"
_PRIVATE = 0o700  # permissions of the folder around both


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

    `target`: as returned by `hushpore.io.target.check_target`. `key`: all that the result depends
    on, as JSON values: what was begun with another is begun anew. `overwrite`, `replaceable`: as
    for `check_target`, which is asked again at the end.
    Yields: it stays where the process dies, or the block raises `DeviceError`: the machines that it
    ran on are gone, and what they have written is not. Any other error removes it.
    Raises OutputError if writing fails, or another process is making the same.
    """
    work = _work_folder(target)
    # as JSON gives it back
    wanted = json.loads(json.dumps(key))
    lost = False
    with explained_writing(target):
        _take(work)
        _lock(work, target)
    content, scratch = work / _CONTENT, work / _SCRATCH
    try:
        with explained_writing(target):
            remove_partial(target)
            resumed = _key_of(work) == wanted and content.is_dir()
            if not resumed:
                _empty(work)
                content.mkdir()
                scratch.mkdir()
                # last, so that what has a key is whole
                (work / _WORK_FILE).write_text(json.dumps(wanted), encoding="utf-8")
            yield Unfinished(content, scratch, resumed)
            check_target(target, overwrite, replaceable=replaceable)
            # what a writer that was killed has left: zarr's files have such names until they are
            # whole
            for part in content.rglob("*.partial"):
                part.unlink(missing_ok=True)
            write_all_through(content)
            # from here on nothing in this folder is to go on with: it may be the earlier result
            (work / _WORK_FILE).unlink()
            move_into_place(content, target)
    except DeviceError:
        # a cluster that was never there has left nothing to go on with
        lost = any(any(folder.iterdir()) for folder in (content, scratch))
        raise
    finally:
        if lost:
            (work / _OWNER_FILE).unlink(missing_ok=True)
        else:
            with suppress(OSError):
                _empty(work)
                (work / _OWNER_FILE).unlink(missing_ok=True)
                work.rmdir()


def _work_folder(target: Path) -> Path:
    """Return where the same work is found again; no other result has the same place."""
    return target.with_name(f".{shortened(target.name)}.unfinished")


def _take(work: Path) -> None:
    """Make the folder, or take the one that an earlier run has left.

    Its name can be guessed. A link, another user's folder or one of other things in its place are
    left as they are.
    """
    try:
        # nobody else writes here, also where a group writes to the folder around it
        work.mkdir(mode=_PRIVATE)
        return
    except FileExistsError:
        pass
    # what was killed before it could write a mark has left an empty folder
    marks = [work / name for name in (_WORK_FILE, _OWNER_FILE)]
    ours = is_own_folder(work) and (
        next(work.iterdir(), None) is None
        or any(mark.is_file() and not mark.is_symlink() for mark in marks)
    )
    for folder in (work / _CONTENT, work / _SCRATCH):
        ours = ours and (not os.path.lexists(folder) or is_own_folder(folder))
    if not ours:
        raise OutputError(
            f"{work} is in the way, and is not what an earlier run of yours has left unfinished "
            "(a link, another user's, or other files). Nothing was changed. Move it, or choose "
            "another name."
        )
    work.chmod(_PRIVATE)


def _empty(work: Path) -> None:
    """Remove what is made here, and nothing else."""
    (work / _WORK_FILE).unlink(missing_ok=True)
    for folder in (work / _CONTENT, work / _SCRATCH):
        if folder.exists():
            shutil.rmtree(folder)


def _lock(work: Path, target: Path) -> None:
    """Take possession of the work, unless a process that lives has it."""
    import psutil

    file, own = work / _OWNER_FILE, os.getpid()
    mine = {"host": platform.node(), "pid": own, "since": psutil.Process(own).create_time()}
    try:
        with file.open("x", encoding="utf-8") as new:
            json.dump(mine, new)
        return
    except FileExistsError:
        pass
    except OSError:
        # a folder with more in it stays, to be gone on with
        with suppress(OSError):
            file.unlink(missing_ok=True)
            work.rmdir()
        raise
    try:
        theirs = json.loads(file.read_text(encoding="utf-8"))
        host, pid, since = theirs["host"], int(theirs["pid"]), float(theirs["since"])
    except (OSError, ValueError, KeyError, TypeError):
        host, pid, since = mine["host"], -1, 0.0
    if host != mine["host"]:
        raise OutputError(
            f"{target} is being written by process {pid} on {host}. If that is over, remove "
            f"{file} to go on from what it has left."
        )
    try:
        lives = pid > 0 and abs(psutil.Process(pid).create_time() - since) < 1
    except psutil.Error:
        lives = False
    if lives:
        raise OutputError(f"{target} is being written by another process already ({pid}).")
    file.write_text(json.dumps(mine), encoding="utf-8")


def _key_of(work: Path) -> Any:
    try:
        return json.loads((work / _WORK_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
