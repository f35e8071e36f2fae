"""Batches: many scans with the same settings, resumable and robust against failures."""

from __future__ import annotations

import json
import os
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import psutil

from hushpore._version import __version__
from hushpore.base.atomic import new_file, remove_partial
from hushpore.base.errors import InputError, OutputError
from hushpore.base.events import Note, Progress, StopEarly
from hushpore.base.formatting import encodable, read_text
from hushpore.io.folders import shortened
from hushpore.io.results import as_csv, write_json
from hushpore.jobs import JOBS, check_chain, is_one_image, load
from hushpore.runs.batch_groups import (
    group_table,
    groups_of,
    groups_picture,
    has_figures,
    note_on_units,
)
from hushpore.runs.batch_workers import (
    State,
    find_scans,
    plan,
    positions,
    run_in_parallel,
    run_in_sequence,
)
from hushpore.runs.common_network import network_of_batch
from hushpore.runs.control_chart import control_chart, control_table
from hushpore.runs.scan_recipe import ScanRecipe

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    from hushpore.base.events import Event
    from hushpore.base.settings import Settings
    from hushpore.runs.batch_workers import Task
    from hushpore.runs.reading import Reading

    #: Yields events and the states of scans, and returns the batch.
    Batching: TypeAlias = Generator[Event | State, None, "Batch"]

#: Files of a batch beside the result folders.
TABLE, PROVENANCE, LOCK = "summary.csv", "summary.json", ".batch.lock"
GROUPS, PICTURE = "groups.csv", "groups.png"
CONTROL, CHART = "control.csv", "control.png"

_claiming = threading.Lock()


@dataclass(frozen=True, eq=False)
class Batch:
    """A finished batch.

    Attributes
    ----------
    folder : pathlib.Path
        Contains a result folder per scan, ``summary.csv`` and ``summary.json``.
    states : tuple of State
        State of each scan, in the order in which they were found.
    table : pandas.DataFrame
        One row per scan: ``name``, ``group`` (if there are groups), ``state``, ``t`` and ``c`` (if
        positions were chosen), the totals of the result, ``message``, ``path``.
    """

    folder: Path
    states: tuple[State, ...]
    table: pd.DataFrame

    def count(self, *states: str) -> int:
        """Return the number of scans in any of these states."""
        return sum(state.state in states for state in self.states)

    @property
    def summary(self) -> str:
        """Number of results and of failed scans, in one sentence."""
        results, failed = self.count("done", "skipped"), self.count("failed")
        parts = [f"{results} of {len(self.states)} scans have a result"]
        if self.count("skipped"):
            parts.append(f"{self.count('skipped')} of them from an earlier run")
        parts.append(f"{failed} failed" if failed else "none failed")
        if self.count("waiting", "running"):
            parts.append(f"{self.count('waiting', 'running')} were not started")
        return ", ".join(parts)


def run_batch(
    patterns: str | Iterable[str],
    output: str | os.PathLike[str],
    steps: Mapping[str, Settings | None] | None = None,
    *,
    reading: Reading | None = None,
    device: str = "auto",
    jobs: int = 1,
    overwrite: bool = False,
    groups: str = "",
    one_network: bool = False,
) -> Batching:
    """Run the same jobs with the same settings on many scans; a job itself.

    A batch that was stopped or has crashed resumes: a scan is skipped if its result folder is
    complete and was made from the same files with the same settings.

    Parameters
    ----------
    patterns : str or iterable of str
        Files and folders, with wildcards where wanted: ``"scans/*/"``.
    output : str or path-like
        Folder for the results, with one folder per scan; created if it does not exist.
    steps : mapping of str to Settings, optional
        The settings of each job, in the order in which they run; None skips the job. By default
        pores are segmented with the default settings.
    reading : Reading, optional
        How each scan is read. With ``at=("all",)`` each time and channel of a scan has its own
        result and row.
    device : str, optional
        As for `hushpore.denoise`.
    jobs : int, optional
        Number of scans processed in parallel, each in its own process, as far as memory allows.
        1: in this process.
    overwrite : bool, optional
        Replace results that were made with other settings or from files that have changed since.
    groups : str, optional
        Groups to compare: ``"folder"`` (each folder with scans is a group), or a CSV file with the
        columns ``name`` and ``group``. Writes ``groups.csv`` (mean, standard deviation and number
        of scans of each group) and ``groups.png``.
    one_network : bool, optional
        Train one denoising network on the middles of all scans, for one kind of sample from one
        scanner, and denoise each with it. It is kept as ``network.safetensors``, with its record
        ``network.json``, and used again when the batch is continued.

    Yields
    ------
    Progress, Note, State
        Progress over all scans, a note for each finished scan, and each change of state.

    Returns
    -------
    Batch
        Also after `StopEarly`, with the scans finished by then.

    Raises
    ------
    InputError
        If no scan matches, `jobs` is below 1, the last job writes no result folder, or the groups
        cannot be read.
    OutputError
        If the folder cannot be written, contains other results, or is in use by another batch.
    StopEarly
        If it is thrown in while the common network is trained.

    Notes
    -----
    The summary is rewritten after each scan, atomically.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from hushpore.base.events import result_of
    >>> void = np.zeros((9, 9, 9), np.uint8)
    >>> void[3:6, 3:6, 3:6] = 1
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("a", "b"):
    ...         np.save(Path(folder) / f"{name}.npy", 255 - 200 * void)
    ...     batch = result_of(run_batch(f"{folder}/*.npy", f"{folder}/results", device="cpu"))
    ...     sorted(path.name for path in Path(folder, "results").iterdir() if path.is_dir())
    ['a', 'b']
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1; got {jobs}.")
    folder = Path(output).expanduser().resolve()
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        why = "its folder does not exist" if not folder.parent.exists() else error.strerror
        raise OutputError(f"Cannot write to {folder}: {why}.") from error
    given = [patterns] if isinstance(patterns, str | os.PathLike) else list(patterns)
    if steps is None:
        steps = {"pores": JOBS["pores"].settings()}
    wanted = {job: settings for job, settings in steps.items() if settings is not None}
    check_chain(list(wanted))
    if not wanted or is_one_image(list(wanted)):
        raise InputError(
            "The last job of a batch must write a result folder. Add a job that measures, for "
            "example pores."
        )
    known = {job: settings and settings.to_dict() for job, settings in steps.items()}
    with _claimed(folder):
        if one_network and (denoising := wanted.get("denoise")) is not None:
            sources = [
                source
                for path in find_scans(given, folder)
                for _, source in positions(ScanRecipe.read_as(path, reading))
            ]
            model = yield from network_of_batch(
                folder, sources, denoising, device=device, overwrite=overwrite
            )
            wanted["denoise"] = replace(denoising, **{"model": model})
        tasks = plan(given, folder, wanted, reading=reading, device=device, overwrite=overwrite)
        group_of = _groups(list(tasks), groups)
        return (yield from _run(folder, tasks, known, jobs, group_of))


def _groups(tasks: Sequence[Task], groups: str) -> dict[str, str]:
    """Return the group of each scan by name; empty without groups."""
    if not groups:
        return {}
    names = [task.name for task in tasks]
    return dict(zip(names, groups_of([task.source.path for task in tasks], names, groups),
                    strict=True))  # fmt: skip


def _run(
    folder: Path,
    planned: dict[Task, bool],
    settings: Mapping[str, Any],
    jobs: int,
    group_of: Mapping[str, str],
) -> Batching:
    tasks = list(planned)
    todo = [task for task, is_done in planned.items() if not is_done]
    # finished results may also have partial files beside them
    for task in tasks:
        task.clean()
    states = {}
    for task, is_done in planned.items():
        states[task.name] = State(task.name, "waiting")
        if is_done:
            headline = str((task.provenance() or {}).get("headline", ""))
            states[task.name] = State(task.name, "skipped", 1.0, headline)
    yield from states.values()
    if len(todo) < len(tasks):
        done = len(tasks) - len(todo)
        yield Note(f"Skipped {done} of {len(tasks)} scans: their results exist already.")
    if jobs == 1:
        working = run_in_sequence(todo)
    else:
        working = run_in_parallel(todo, min(jobs, len(todo) or 1))
    try:
        with closing(working):
            for state in working:
                states[state.name] = state
                yield state
                yield _progress(states)
                if state.state in ("done", "failed"):
                    _write(folder, tasks, settings, states, group_of)
                    yield Note(f"{state.name}: {state.message}", warning=state.state == "failed")
    except StopEarly:
        yield Note("Batch stopped. Run it again to continue with the remaining scans.")
    table = _write(folder, tasks, settings, states, group_of)
    if has_figures(table):
        _write_groups(folder, table)
        if note := note_on_units(table):
            yield Note(note, warning=True)
    _write_control(folder, tasks, states)
    for names in _copies(tasks, states):
        text = f"{shortened(names)} hold the same image, so they are no independent samples. "
        yield Note(f"{text}Leave all but one of them out.", warning=True)
    return Batch(folder, tuple(states.values()), table)


def _progress(states: dict[str, State]) -> Progress:
    ended = sum(state.state in ("done", "skipped", "failed") for state in states.values())
    running = [state for state in states.values() if state.state == "running"]
    stage = ", ".join(f"{state.name} ({state.message})" for state in running) or "scans"
    fraction = sum(state.fraction for state in states.values()) / len(states)
    return Progress(stage, ended, len(states), "scans", fraction)


def _write(
    folder: Path,
    tasks: Sequence[Task],
    settings: Mapping[str, Any],
    states: dict[str, State],
    group_of: Mapping[str, str],
) -> pd.DataFrame:
    """Write the summary of all scans so far and return it as a table."""
    import pandas as pd

    rows = [_row(task, states[task.name]) for task in tasks]
    table = pd.DataFrame(rows)
    if group_of:
        table.insert(1, "group", [group_of[task.name] for task in tasks])
    provenance = {
        "hushpore": __version__,
        "settings": settings,
        "scans": json.loads(table.to_json(orient="records")),
    }
    with new_file(folder / TABLE, overwrite=True) as part:
        as_csv(table, part)
    with new_file(folder / PROVENANCE, overwrite=True) as part:
        write_json(part, provenance)
    return table


def _write_groups(folder: Path, table: pd.DataFrame) -> None:
    """Write the table of groups and its plot."""
    with new_file(folder / GROUPS, overwrite=True) as part:
        as_csv(group_table(table), part)
    with new_file(folder / PICTURE, overwrite=True) as part:
        part.write_bytes(groups_picture(table))


def _result(provenance: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the totals of the last job of a record; empty without a record."""
    return {} if provenance is None else provenance["jobs"][-1].get("result", {})


def _write_control(folder: Path, tasks: Sequence[Task], states: Mapping[str, State]) -> None:
    """Write the control chart of figures with acceptance limits, if any, and its table."""
    acceptances = {
        task.name: acceptance
        for task in tasks
        if states[task.name].state in ("done", "skipped")
        and (acceptance := _result(task.provenance()).get("acceptance"))
    }
    if acceptances:
        table = control_table(acceptances)
        with new_file(folder / CONTROL, overwrite=True) as part:
            as_csv(table, part)
        with new_file(folder / CHART, overwrite=True) as part:
            part.write_bytes(control_chart(table))


def _copies(tasks: Sequence[Task], states: Mapping[str, State]) -> Iterator[list[str]]:
    """Yield the names of scans that have the same fingerprint."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    for task in tasks:
        record = task.provenance() if states[task.name].state in ("done", "skipped") else None
        # masks without pores may well be equal
        if record is not None and _result(record).get("porosity") != 0:
            given = record["jobs"][0]["input"].items()
            key = tuple(value for name, value in given if name.startswith("blake2b"))
            alike.setdefault(key, []).append(task.name)
    yield from (names for key, names in alike.items() if key and len(names) > 1)


def _row(task: Task, state: State) -> dict[str, Any]:
    row: dict[str, Any] = {"name": encodable(task.name), "state": state.state}
    for position in task.source.at:
        axis, _, number = position.partition("=")
        row[axis] = int(number) if number.strip("-").isdecimal() else number
    provenance = task.provenance() if state.state in ("done", "skipped") else None
    result = _result(provenance)
    plain = [name for name, value in result.items() if isinstance(value, int | float | str)]
    kind = JOBS[list(task.steps)[-1]]
    row |= {name: result.get(name) for name in kind.figures or plain}
    if kind.more_figures:
        row |= load(kind.more_figures)(result)
    jobs = provenance["jobs"] if provenance else []
    seconds = sum(sum(job["timings"].values()) for job in jobs) if provenance else None
    return {
        **row,
        "seconds": seconds,
        "message": state.message,
        "path": encodable(task.source.path),
    }


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Lock the folder against other batches inside the block."""
    lock = folder / LOCK
    # one thread at a time: the second sees the lock file of the first
    with _claiming:
        holder = _holder(lock)
        if holder is not None:
            raise OutputError(
                f"{folder} is in use by another batch (process {holder}). Wait until it has "
                "finished, or choose another folder."
            )
        own = psutil.Process()
        with new_file(lock, overwrite=True) as part:
            part.write_text(json.dumps({"process": own.pid, "started": own.create_time()}))
    # partial files of a batch that was killed
    for name in (TABLE, PROVENANCE, LOCK, GROUPS, PICTURE, CONTROL, CHART):
        remove_partial(folder / name)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _holder(lock: Path) -> int | None:
    """Return the process that holds a lock, or None if it no longer runs."""
    try:
        known = json.loads(read_text(lock))
        process = psutil.Process(known["process"])
        # the system reuses the numbers of processes that have ended
        alive = abs(process.create_time() - known["started"]) < 1
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        return None
    return process.pid if alive else None
