"""Work in processes that are forked from this one, which has imported and compiled all it needs.

Each may be killed before one of its changes to the disk, may find the disk full, and has limits of
time. Linux only. What a fork shares with this process must not have begun threads.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link"}


def alone(work: Callable[[], T]) -> T:
    """Run a function in a process of its own, and of one thread, which is safe to fork."""
    before = dict(os.environ)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(work).result()
    finally:
        os.environ.clear()
        os.environ.update(before)


def forked(work: Callable[[], Any], seconds: float = 120, output: Path | None = None) -> int:
    """Run a function in a fork; returns its exit status, below zero the signal that ended it.

    `work`: what it returns is the status (None: 0). `seconds`: after which it is killed: -9.
    `output`: of both streams; nowhere if None.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if not process:
        _be_child(work, output)
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.002)


def _be_child(work: Callable[[], Any], output: Path | None) -> None:
    status = 70
    try:
        place = os.open(output or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(place, 1)
        os.dup2(place, 2)
        status = int(work() or 0)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def command(words: str, folder: Path) -> Callable[[], None]:
    """Return the command line, as it is typed in a folder."""

    def run() -> None:
        from hushpore.cli.commands import hushpore

        os.chdir(folder)
        hushpore(words.split(), prog_name="hushpore")

    return run


def before_changes(folder: Path, act: Callable[[int], None]) -> None:
    """Have a function called before each change below a folder, with its number from 1 on.

    For the rest of the process: files opened to be written, renamed or removed, folders made or
    removed.
    """
    inside, count, busy = os.path.realpath(folder), 0, False

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count, busy
        if busy or not (event in _CHANGES or (event == "open" and _writes(args))):
            return
        busy = True
        try:
            path = os.fspath(args[0])
            path = os.fsdecode(path) if isinstance(path, bytes) else path
            if os.path.join(os.getcwd(), path).startswith(inside):
                count += 1
                act(count)
        except TypeError:
            pass  # a number of a file that is open
        finally:
            busy = False

    sys.addaudithook(hook)


def _writes(args: tuple[Any, ...]) -> bool:
    _, mode, flags = args
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool((flags or 0) & _WRITING)


def kill_before(folder: Path, number: int, later: float) -> None:
    """Have this process killed before its n-th change below a folder, or some seconds later."""

    def act(count: int) -> None:
        if count != number:
            return
        if later:
            threading.Timer(later, os.kill, (os.getpid(), signal.SIGKILL)).start()
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    before_changes(folder, act)
