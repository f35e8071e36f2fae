"""The window goes first: what a job's thread gives way to while a person looks at the screen."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds after which a thread that runs Python code gives way to one that waits. Python's own is
#: 5 ms, and drawing a scene takes up to some hundred calls of the graphics library, each of which
#: lets go of the interpreter and has to wait for it again: half a second for one picture.
SWITCH = 0.0005

#: How much less of a processor the threads of a job ask for than the window: at 5 a third. It
#: matters only while more threads want to run than there are cores. Not more: a thread that holds
#: the interpreter and is not let run makes the window wait for it.
NICE = 5

_lock = threading.Lock()
_inside = 0
_before = 0.0
_leaving_alone = 0


@contextmanager
def window_first() -> Iterator[None]:
    """Let other threads go before this one, and before those that it starts.

    For a thread that ends after it: where the system allows less priority for a single thread
    (Linux), it has less until its end. How often threads take turns is as before once the last
    block of this kind is left. Old objects are left alone meanwhile.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _niceness() + NICE)
    with old_objects_left_alone():
        _enter()
        try:
            yield
        finally:
            _leave()


@contextmanager
def old_objects_left_alone() -> Iterator[None]:
    """Do not have Python look for garbage among the objects that there are already.

    With napari and PyTorch loaded all threads stand still for a quarter of a second while it does.
    What is made meanwhile is looked through as ever.
    """
    global _leaving_alone  # noqa: PLW0603 - the interpreter has one such setting
    with _lock:
        if not _leaving_alone:
            gc.freeze()
        _leaving_alone += 1
    try:
        yield
    finally:
        with _lock:
            _leaving_alone -= 1
            if not _leaving_alone:
                gc.unfreeze()


def look_at_old_objects_too() -> None:
    """Have the next look for garbage go through old objects, for large ones may be among it."""
    gc.unfreeze()


def leave_old_objects_alone_again() -> None:
    """Leave them alone after such a look, if that is still asked for."""
    with _lock:
        if _leaving_alone:
            gc.freeze()


def _niceness() -> int:
    """That of the whole process, which the user may have chosen."""
    return os.getpriority(os.PRIO_PROCESS, os.getpid())


def _enter() -> None:
    global _inside, _before  # noqa: PLW0603
    with _lock:
        if not _inside:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_before, SWITCH))
        _inside += 1


def _leave() -> None:
    global _inside  # noqa: PLW0603
    with _lock:
        _inside -= 1
        if not _inside:
            sys.setswitchinterval(_before)
