"""The window goes first: a job's threads ask for less, and no long search for garbage stops all.

The figures here and in this folder are of `benchmarks live_ablation`: a window in Xvfb, drawn in
software, on two cores, with a volume of 256 x 256 x 256 voxels.
"""

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

#: How much less of a processor the threads of a job ask for than the window: at 5 a third. Not
#: more: a thread that holds the interpreter and is not let run makes the window wait for it.
#: Without it the worst gap of the window while denoising grows from some 45 to 68 ms, and it stands
#: still 2 to 7 times as long in all.
NICE = 5

#: Seconds after which a thread that runs Python code gives way to one that waits. With Python's
#: own, 5 ms, the 99th percentile of gaps about a denoising is 18 to 21 ms, not 14 to 16.
SWITCH = 0.0005

_lock = threading.Lock()
_jobs = _unsearched = 0
_switch_before = 0.0


@contextmanager
def background_job() -> Iterator[None]:
    """Let other threads go before this one, and before those that it starts.

    For a thread that ends after it: where the system allows less priority for a single thread
    (Linux), it has less until its end. How often threads take turns is as before once the last job
    has ended. What objects there are when the first job begins is not
    searched for garbage until the last has ended: with napari and PyTorch loaded all threads stand
    still for 210 to 400 ms while it is, and for 20 to 120 ms without.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            # that of the whole process, which the user may have chosen
            niceness = os.getpriority(os.PRIO_PROCESS, os.getpid())
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness + NICE)
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def thaw() -> None:
    """Let the next search for garbage go through old objects, for large ones may be among it.

    Without it a layer that is removed is kept until the job ends: 314 MB in the trial.
    """
    gc.unfreeze()


def freeze_again() -> None:
    """Keep old objects from further searches, if a job still runs."""
    with _lock:
        if _jobs:
            gc.freeze()


@contextmanager
def old_objects_kept() -> Iterator[None]:
    """Within the block search only what is new for garbage: something small is removed.

    napari searches everything whenever a layer goes, for which all threads stand still for 200 to
    600 ms in a process with PyTorch and Numba.
    """
    gc.freeze()
    try:
        yield
    finally:
        with _lock:
            if not _jobs:
                gc.unfreeze()


@contextmanager
def unsearched() -> Iterator[None]:
    """Within the block search nothing for garbage: what it makes stays, and is a lot.

    For imports: a search for every few libraries would have all threads stand still for 140 to
    210 ms each. And for a widget that is made, of which one search would be a third of the time. At
    the end of the last such block what was made goes to the old objects unseen.
    """
    global _unsearched  # noqa: PLW0603 - the interpreter has one search
    with _lock:
        _unsearched += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _unsearched -= 1
            if not _unsearched:
                gc.freeze()
                gc.enable()
                if not _jobs:
                    gc.unfreeze()


def _count(change: int) -> None:
    global _jobs, _switch_before  # noqa: PLW0603 - the interpreter has one of each
    with _lock:
        before, _jobs = _jobs, _jobs + change
        if not before:
            gc.freeze()
            _switch_before = sys.getswitchinterval()
            sys.setswitchinterval(min(_switch_before, SWITCH))
        elif not _jobs:
            gc.unfreeze()
            sys.setswitchinterval(_switch_before)
