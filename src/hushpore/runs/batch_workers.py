"""The scans of a batch: which they are and what is done of them, and how they are worked on.

They are worked on one after another here, or several at once in processes of their own.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import math
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpore.base.atomic import remove_partial
from hushpore.base.errors import NO_MEMORY, HushporeError, InputError, OutputError
from hushpore.base.events import Driver, Progress, StopEarly
from hushpore.device.backend import Backend
from hushpore.device.memory import is_out_of_memory
from hushpore.io import describe
from hushpore.io.folders import natural_key
from hushpore.io.output_target import require_apart, require_result
from hushpore.runs.pipeline import run_pipeline
from hushpore.runs.result_folder import read_provenance
from hushpore.runs.scan_recipe import ScanRecipe, origin_of, settings_for

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from hushpore.base.settings import Settings
    from hushpore.runs.pipeline import Pipeline

    #: Yields how tasks stand, and ends when all are done or have failed.
    Working = Generator["State", None, None]


@dataclass(frozen=True, eq=False)
class Task:
    """One scan of a batch, and how it is worked on."""

    name: str  # what it is called in the summary, and its result folder
    source: ScanRecipe  # what is read
    folder: Path  # its result folder
    steps: Mapping[str, Settings]  # the settings of each job, in the order in which they run
    device: str  # where to run
    overwrite: bool  # whether an earlier result is replaced

    def start(self) -> Pipeline:
        """Return its job."""
        return run_pipeline(
            self.source, self.folder, self.steps, device=self.device, overwrite=self.overwrite
        )

    def provenance(self) -> dict[str, Any] | None:
        """Return the record of its result, or None where there is none yet.

        Raises OutputError if something else is in the place of the result.
        """
        is_folder = self.folder.is_dir()
        if not self.folder.exists() or (is_folder and not any(self.folder.iterdir())):
            return None
        try:
            return read_provenance(self.folder)
        except InputError as error:
            raise OutputError(
                f"{self.folder} is in the way: {error} Move it, or choose another folder."
            ) from error

    def made_by(self, provenance: dict[str, Any]) -> str:
        """Return why a record is not that of this task; empty where it is."""
        used = {job["job"]: job["settings"] for job in provenance.get("jobs", [])}
        # whether it was trusted says whether it could be read, and nothing of what was
        origin = origin_of(replace(self.source, trust=False), self.steps.values())
        if provenance.get("source") not in (origin, {**origin, "trust": True}):
            return "the scan, or a file that the settings name, is another or has changed since"
        if used != {job: settings.to_dict() for job, settings in self.steps.items()}:
            return "it was made with other settings"
        return ""

    def clean(self) -> None:
        """Remove what an earlier batch that was killed has left half-written beside the result."""
        remove_partial(self.folder)


def find_scans(patterns: Iterable[str], output: Path) -> list[Path]:
    """Return the files and folders that patterns name, in natural order, each once.

    `patterns`: paths, with wildcards where wanted: ``"scans/*/"`` for all folders in one, ``**``
    for any depth. `output`: the folder of results; it is no scan itself, nor is what it holds.
    Raises InputError if a pattern matches nothing.
    """
    found: dict[Path, None] = {}
    results = output.expanduser().resolve()
    for pattern in patterns:
        place = Path(pattern).expanduser()
        matches = [pattern] if place.exists() else glob.glob(str(place), recursive=True)
        if str(pattern).endswith(("/", "\\")):
            matches = [match for match in matches if Path(match).is_dir()]
        scans = [path for path in (Path(match).resolve() for match in matches)
                 if path != results and results not in path.parents]  # fmt: skip
        if matches and not scans:
            raise InputError(
                f"What {pattern!r} matches lies in the folder of the results, {results}, and "
                "nothing there is taken for a scan. Choose another folder for the results."
            )
        if not scans:
            raise InputError(f"Nothing matches {pattern!r}: no file and no folder of that name.")
        found |= dict.fromkeys(sorted(scans, key=natural_key))
    return list(found)


def names_of(scans: Sequence[Path]) -> list[str]:
    """Return a name for each scan that no other has: its own, with its folder's where needed.

    >>> names_of([Path("/a/one.tif"), Path("/a/scan"), Path("/b/scan")])
    ['one', 'a_scan', 'b_scan']
    """
    names = [scan.name if scan.is_dir() else scan.stem or scan.name for scan in scans]
    shared = {name for name, number in Counter(map(str.casefold, names)).items() if number > 1}
    names = [
        f"{scan.parent.name}_{name}" if name.casefold() in shared else name
        for scan, name in zip(scans, names, strict=True)
    ]
    # a number must not make the name of another scan, whether before or after this one
    taken, met, unique = {name.casefold() for name in names}, set[str](), []
    for name in names:
        chosen = name
        if name.casefold() in met:
            numbered = (f"{name}_{number}" for number in count(2))
            chosen = next(each for each in numbered if each.casefold() not in taken)
        met.add(name.casefold())
        taken.add(chosen.casefold())
        unique.append(chosen)
    return unique


def plan(
    patterns: Iterable[str],
    output: Path,
    steps: Mapping[str, Settings],
    *,
    reading: ScanRecipe | None = None,
    device: str = "auto",
    overwrite: bool = False,
) -> dict[Task, bool]:
    """Return the tasks of a batch in the order of their scans, and whether each is done already.

    `patterns`, `output`: as for `find_scans`. `steps`, `device`, `overwrite`: of each `Task`.
    `reading`: how scans are read, whatever its path.
    Raises InputError if a pattern matches nothing; OutputError if there are results of other scans
    or other settings, and they may not be replaced.
    """
    scans = find_scans(patterns, output)
    of_each = {
        scan: {job: settings_for(settings, scan) for job, settings in steps.items()}
        for scan in scans
    }
    # what goes with another scan is none itself
    beside = {
        getattr(settings, opt.name)
        for own in of_each.values()
        for settings in own.values()
        for opt in settings.options()
        if opt.auxiliary
    }
    scans = [scan for scan in scans if str(scan) not in beside]
    tasks: dict[Task, bool] = {}
    outdated = []
    require_apart([output], scans)
    for scan, name in zip(scans, names_of(scans), strict=True):
        folder = output / name
        source = ScanRecipe(str(scan)) if reading is None else replace(reading, path=str(scan))
        task = Task(name, source, folder, of_each[scan], device, overwrite)
        provenance = task.provenance()
        why = task.made_by(provenance) if provenance is not None else ""
        tasks[task] = provenance is not None and not why
        if why and not overwrite:
            outdated.append(f"{name}: {why}")
        elif why:
            require_result(folder)
    if outdated:
        more = f", and {len(outdated) - 3} more" if len(outdated) > 3 else ""
        raise OutputError(
            f"{output} holds results that do not belong to this batch ({'; '.join(outdated[:3])}"
            f"{more}). Choose another folder, or allow overwriting to make these again."
        )
    return tasks


def explained(error: BaseException) -> str:
    """Return an error in the user's words, on one line."""
    if isinstance(error, HushporeError):
        return " ".join(str(error).split())
    if is_out_of_memory(error):
        return NO_MEMORY
    return f"Unexpected {type(error).__name__}: {' '.join(str(error).split())}"


# ---- processes

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
        yield State(task.name, "done", 1.0, job.result.headline, time.monotonic() - begun)


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
