"""The scans of a batch: which they are and what is done of them, and how they are worked on.

They are worked on one after another here, or several at once in processes of their own.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import itertools
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
from hushpore.runs.reading import ALL
from hushpore.runs.result_folder import read_provenance
from hushpore.runs.scan_recipe import ScanRecipe, origin_of, settings_for

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from hushpore.base.settings import Settings
    from hushpore.runs.pipeline import Pipeline
    from hushpore.runs.reading import Reading

    #: Yields the states of tasks until all have finished or failed.
    Working = Generator["State", None, None]


@dataclass(frozen=True, eq=False)
class Task:
    """One scan of a batch and how it is processed."""

    name: str  # in the summary, and of its result folder
    source: ScanRecipe  # how the scan is read
    folder: Path  # its result folder
    steps: Mapping[str, Settings]  # the settings of each job, in the order in which they run
    device: str  # as for `hushpore.denoise`
    overwrite: bool  # whether an earlier result is replaced

    def start(self) -> Pipeline:
        """Return the job of this scan."""
        return run_pipeline(
            self.source, self.folder, self.steps, device=self.device, overwrite=self.overwrite
        )

    def provenance(self) -> dict[str, Any] | None:
        """Return the record of the result, or None if there is none yet.

        Raises OutputError if the place of the result is taken by something else.
        """
        is_folder = self.folder.is_dir()
        if not self.folder.exists() or (is_folder and not any(self.folder.iterdir())):
            return None
        try:
            return read_provenance(self.folder)
        except InputError as error:
            raise OutputError(
                f"{self.folder} exists but is not a result: {error} Move it, or choose another "
                "folder."
            ) from error

    def made_by(self, provenance: dict[str, Any]) -> str:
        """Return why a record does not belong to this task; empty if it does."""
        used = {job["job"]: job["settings"] for job in provenance.get("jobs", [])}
        # trust decides whether a scan is read, not what is read
        origin = origin_of(replace(self.source, trust=False), self.steps.values())
        if provenance.get("source") not in (origin, {**origin, "trust": True}):
            return "the scan or a file named in the settings has changed"
        if used != {job: settings.to_dict() for job, settings in self.steps.items()}:
            return "made with other settings"
        return ""

    def clean(self) -> None:
        """Remove partial files that a killed batch has left beside the result."""
        remove_partial(self.folder)


def find_scans(patterns: Iterable[str], output: Path) -> list[Path]:
    """Return the files and folders that match the patterns, in natural order, without duplicates.

    `patterns`: paths, which may contain wildcards: ``"scans/*/"`` for all folders in one, ``**``
    for any depth. `output`: the folder of the results, which is searched for no scans.
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
                f"All matches of {pattern!r} are inside the folder of the results, {results}. "
                "Choose another folder for the results."
            )
        if not scans:
            raise InputError(f"No file or folder matches {pattern!r}. Check the path.")
        found |= dict.fromkeys(sorted(scans, key=natural_key))
    return list(found)


def names_of(scans: Sequence[Path]) -> list[str]:
    """Return a unique name for each scan: its file name, with its folder's name if needed.

    >>> names_of([Path("/a/one.tif"), Path("/a/scan"), Path("/b/scan")])
    ['one', 'a_scan', 'b_scan']
    """
    names = [scan.name if scan.is_dir() else scan.stem or scan.name for scan in scans]
    shared = {name for name, number in Counter(map(str.casefold, names)).items() if number > 1}
    names = [
        f"{scan.parent.name}_{name}" if name.casefold() in shared else name
        for scan, name in zip(scans, names, strict=True)
    ]
    # a numbered name must not equal that of another scan
    taken, seen, unique = {name.casefold() for name in names}, set[str](), []
    for name in names:
        chosen = name
        if name.casefold() in seen:
            numbered = (f"{name}_{number}" for number in count(2))
            chosen = next(each for each in numbered if each.casefold() not in taken)
        seen.add(name.casefold())
        taken.add(chosen.casefold())
        unique.append(chosen)
    return unique


def plan(
    patterns: Iterable[str],
    output: Path,
    steps: Mapping[str, Settings],
    *,
    reading: Reading | None = None,
    device: str = "auto",
    overwrite: bool = False,
) -> dict[Task, bool]:
    """Return the tasks of a batch in the order of the scans, and whether each is finished already.

    `patterns`, `output`: as for `find_scans`. `steps`, `device`, `overwrite`: of each `Task`.
    `reading`: how scans are read.
    Raises InputError if a pattern has no match; OutputError if there are results of other scans or
    settings that may not be replaced.
    """
    scans = find_scans(patterns, output)
    of_each = {
        scan: {job: settings_for(settings, scan) for job, settings in steps.items()}
        for scan in scans
    }
    # a file that belongs to another scan is not a scan of the batch
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
        whole = ScanRecipe.read_as(scan, reading)
        for end, source in positions(whole):
            folder = output / f"{name}{end}"
            task = Task(folder.name, source, folder, of_each[scan], device, overwrite)
            provenance = task.provenance()
            why = task.made_by(provenance) if provenance is not None else ""
            tasks[task] = provenance is not None and not why
            if why and not overwrite:
                outdated.append(f"{task.name}: {why}")
            elif why:
                require_result(folder)
    if outdated:
        more = f", and {len(outdated) - 3} more" if len(outdated) > 3 else ""
        raise OutputError(
            f"{output} contains results that do not belong to this batch "
            f"({'; '.join(outdated[:3])}{more}). Choose another folder, or allow overwriting to "
            "replace them."
        )
    return tasks


def positions(whole: ScanRecipe) -> list[tuple[str, ScanRecipe]]:
    """Return a recipe for each time and channel, with the end of its name, if ``at`` is "all"."""
    if ALL not in whole.at:
        return [("", whole)]
    given = tuple(position for position in whole.at if position != ALL)
    chosen = replace(whole, at=given)
    try:
        # crop and flattening apply to one image
        scan = replace(chosen, crop="", bin="", flatten="").describe()
    except (HushporeError, OSError):
        # the reason is given when its turn comes
        return [("", chosen)]
    axes = [*zip(scan.axes, scan.leading_shape, strict=False)]
    found = []
    for place in itertools.product(*(range(n) for _, n in axes)):
        pairs = [
            (axis, number, len(str(n - 1))) for (axis, n), number in zip(axes, place, strict=True)
        ]
        end = "".join(f"_{axis}{number:0{digits}}" for axis, number, digits in pairs)
        at = (*given, *(f"{axis}={number}" for axis, number, _ in pairs))
        found.append((end, replace(chosen, at=at)))
    return found


def explained(error: BaseException) -> str:
    """Return the message of an error on one line, without technical terms."""
    if isinstance(error, HushporeError):
        return " ".join(str(error).split())
    if is_out_of_memory(error):
        return NO_MEMORY
    return f"Unexpected error ({type(error).__name__}): {' '.join(str(error).split())}"


# ---- processes

#: Seconds between two progress reports of a scan.
_PAUSE = 0.2
#: Share of the free memory for the scans that run in parallel, by their estimates.
_SHARE = 0.8
#: Bytes per voxel that a scan needs beside its values: denoised image, labels, intermediates.
_BYTES_A_VOXEL = 22


@dataclass(frozen=True)
class State:
    """The state of one scan of a batch.

    Attributes
    ----------
    name : str
        Name of the scan.
    state : str
        ``"waiting"``, ``"running"``, ``"done"``, ``"skipped"`` (has a result) or ``"failed"``.
    fraction : float
        Finished share of the work.
    message : str
        The stage while it runs; then the headline of the result, or the error.
    seconds : float
        Duration.
    """

    name: str
    state: str
    fraction: float = 0.0
    message: str = ""
    seconds: float = 0.0


def work_on(task: Task) -> Working:
    """Run a task in this process; errors become a state, an interrupt is raised."""
    started = reported = time.monotonic()
    try:
        with Driver(task.start()) as job:
            yield State(task.name, "running", 0.0, "reading")
            for event in job:
                if isinstance(event, Progress) and time.monotonic() - reported > _PAUSE:
                    reported = time.monotonic()
                    yield State(task.name, "running", event.fraction, event.stage)
    except StopEarly:
        raise
    except Exception as error:
        yield State(task.name, "failed", 1.0, explained(error), time.monotonic() - started)
    else:
        yield State(task.name, "done", 1.0, job.result.headline, time.monotonic() - started)


def run_in_sequence(tasks: Sequence[Task]) -> Working:
    """Run tasks one after another in this process."""
    for task in tasks:
        yield from work_on(task)


def run_in_parallel(tasks: Sequence[Task], count: int) -> Working:
    """Run tasks in up to `count` processes, as many as memory allows.

    If a process dies, its scan counts as failed and the others go on.

    Yields: states, as the processes report them.
    """
    waiting, processes = list(tasks), [_Process(number, count) for number in range(count)]
    room = Backend().free_memory() * _SHARE
    # read the headers of a waiting scan only once
    memory = functools.cache(_memory)
    try:
        while waiting or any(process.task for process in processes):
            for process in processes:
                taken = sum(other.needs for other in processes if other.task)
                if waiting and process.task is None:
                    needs = memory(waiting[0])
                    if taken and taken + needs > room:
                        break
                    process.send(waiting.pop(0), needs)
            busy = [
                (process.pipe, process) for process in processes if process.pipe and process.task
            ]
            ready = wait([pipe for pipe, _ in busy])
            for pipe, process in busy:
                if pipe in ready:
                    yield process.receive()
    finally:
        for process in processes:
            process.end()


class _Process:
    """A process that runs one task at a time; started with its first task."""

    def __init__(self, number: int, count: int) -> None:
        self.task: Task | None = None
        self.needs = 0.0
        self.pipe: Connection[Any, Any] | None = None
        # give each process its own cores, if the system supports it
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._cores = cores[number::count] or cores
        self._process: SpawnProcess | None = None

    def send(self, task: Task, needs: float) -> None:
        try:
            self._connect().send(task)
        except OSError:
            # it died while idle: no scan is lost
            self.end()
            # `receive` reports what becomes of this one
            with contextlib.suppress(OSError):
                self._connect().send(task)
        self.task, self.needs = task, needs

    def _connect(self) -> Connection[Any, Any]:
        """Return the pipe to the process, which is started if it does not run."""
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

    def receive(self) -> State:
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
        """Terminate the process."""
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
        why = "probably out of memory" if code == -9 else f"exit status {code}"
        return (
            f"The process of this scan ended unexpectedly ({why}). Run the batch again with fewer "
            "scans in parallel (--jobs)."
        )


def _serve(pipe: Connection[Any, Any], cores: Sequence[int]) -> None:
    """Run the tasks received through a pipe; the main function of a process."""
    # Ctrl+C reaches all processes; the parent decides
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
    # a killed parent cannot stop its processes, and a new batch must not find them running
    os._exit(1)


def _memory(task: Task) -> float:
    """Estimate the bytes that a task needs; 0 if its scan cannot be opened."""
    try:
        volumes = describe(task.source.path, trust=task.source.trust)
    except Exception:
        # its own process will report the error
        return 0.0
    needs = max(volume.nbytes + _BYTES_A_VOXEL * math.prod(volume.shape) for volume in volumes)
    # the second scan of a pair is in memory, too
    has_pair = any(getattr(settings, "pair", "") for settings in task.steps.values())
    return needs * (1 + has_pair)
