"""Working on scans, one after another here, or several at once in processes of their own."""

from __future__ import annotations

import contextlib
import functools
import math
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from hushpore.base.events import Driver, Progress, StopEarly
from hushpore.device.backend import Backend
from hushpore.io import describe
from hushpore.runs.batch_scans import explained

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from hushpore.runs.batch_scans import Task

    #: Yields how tasks stand, and ends when all are done or have failed.
    Working = Generator["State", None, None]

#: Seconds between two words on how a scan is doing.
_PAUSE = 0.2
#: Share of the free memory that scans which run at once may be estimated to need.
_SHARE = 0.8
#: Bytes a voxel that a scan needs beside its values: denoised, labels and what they are made from.
_BYTES_A_VOXEL = 22


@dataclass(frozen=True)
class State:
    """How one scan of a batch stands.

    Attributes
    ----------
    name : str
        Which one.
    state : str
        ``"waiting"``, ``"running"``, ``"done"``, ``"skipped"`` (was done already) or ``"failed"``.
    fraction : float
        Share of it that is done.
    message : str
        Its stage while it runs; then its result, or what went wrong, in a sentence.
    seconds : float
        How long it took.
    """

    name: str
    state: str
    fraction: float = 0.0
    message: str = ""
    seconds: float = 0.0


def work_on(task: Task) -> Working:
    """Do one task in this process; what goes wrong becomes a state, an interrupt does not."""
    begun = said = time.monotonic()
    try:
        with Driver(task.start()) as job:
            yield State(task.name, "running", 0.0, "reading")
            for event in job:
                if isinstance(event, Progress) and time.monotonic() - said > _PAUSE:
                    said = time.monotonic()
                    yield State(task.name, "running", event.fraction, event.stage)
    except StopEarly:
        raise
    except Exception as error:
        yield State(task.name, "failed", 1.0, explained(error), time.monotonic() - begun)
    else:
        yield State(task.name, "done", 1.0, job.result.summary, time.monotonic() - begun)


def in_turn(tasks: Sequence[Task]) -> Working:
    """Do tasks one after another in this process."""
    for task in tasks:
        yield from work_on(task)


def at_once(tasks: Sequence[Task], count: int) -> Working:
    """Do tasks in up to `count` processes, as many at once as memory allows.

    A process that dies takes its scan with it, which counts as failed; the others go on.

    Yields: how each stands, as its process tells.
    """
    waiting, processes = list(tasks), [_Process(number, count) for number in range(count)]
    room = Backend().free_memory() * _SHARE
    # the headers of a scan that waits for memory are read once
    memory = functools.cache(_memory)
    try:
        while waiting or any(process.task for process in processes):
            for process in processes:
                taken = sum(other.needs for other in processes if other.task)
                if waiting and process.task is None:
                    needs = memory(waiting[0])
                    if taken and taken + needs > room:
                        break
                    process.give(waiting.pop(0), needs)
            busy = [
                (process.pipe, process) for process in processes if process.pipe and process.task
            ]
            ready = wait([pipe for pipe, _ in busy])
            for pipe, process in busy:
                if pipe in ready:
                    yield process.heard()
    finally:
        for process in processes:
            process.end()


class _Process:
    """One process that works on a task at a time; started when it is first needed."""

    def __init__(self, number: int, count: int) -> None:
        self.task: Task | None = None
        self.needs = 0.0
        self.pipe: Connection[Any, Any] | None = None
        # cores are dealt out, where the system lets processes have their own
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._cores = cores[number::count] or cores
        self._process: SpawnProcess | None = None

    def give(self, task: Task, needs: float) -> None:
        try:
            self._begun().send(task)
        except OSError:
            # it died with nothing to do, and takes no scan with it
            self.end()
            # what becomes of this one is heard
            with contextlib.suppress(OSError):
                self._begun().send(task)
        self.task, self.needs = task, needs

    def _begun(self) -> Connection[Any, Any]:
        """Return the pipe to the process, which is started where there is none."""
        if self.pipe is None:
            # spawn, on every system: threads and CUDA do not survive a fork
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self._process = context.Process(
                target=_serve, args=(theirs, self._cores), daemon=True, name="hushpore-batch"
            )
            self._process.start()
            theirs.close()
        return self.pipe

    def heard(self) -> State:
        """Return the newest state of the task."""
        assert self.pipe is not None
        assert self.task is not None
        try:
            state: State = self.pipe.recv()
        except (EOFError, OSError):
            state = State(self.task.name, "failed", 1.0, self._died())
            self.end()
        if state.state in ("done", "failed"):
            self.task = None
        return state

    def end(self) -> None:
        """Stop the process, whatever it does."""
        if self._process is not None and self.pipe is not None:
            self._process.terminate()
            self._process.join()
            self.pipe.close()
            if self.task is not None:
                self.task.clean()
        self.pipe = self._process = None

    def _died(self) -> str:
        assert self._process is not None
        self._process.join(timeout=5)
        code = self._process.exitcode
        why = "perhaps for want of memory" if code == -9 else f"exit status {code}"
        return f"Its process ended unexpectedly ({why}). Run the batch again, with fewer at once."


def _serve(pipe: Connection[Any, Any], cores: Sequence[int]) -> None:
    """Do the tasks that come through a pipe; in a process of its own."""
    # an interrupt in the terminal reaches all processes; the first one decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            for state in work_on(pipe.recv()):
                pipe.send(state)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    # killed, it can stop nobody; a batch that is started again must find nobody at work
    os._exit(1)


def _memory(task: Task) -> float:
    """Estimate the bytes that a task needs; 0 where its scan cannot be opened."""
    try:
        volumes = describe(task.source.path, trust=task.source.trust)
    except Exception:
        # its own process will say what is wrong with it
        return 0.0
    needs = max(volume.nbytes + _BYTES_A_VOXEL * math.prod(volume.shape) for volume in volumes)
    # a second scan lies beside the first
    has_pair = any(getattr(settings, "pair", "") for settings in task.steps.values())
    return needs * (1 + has_pair)
