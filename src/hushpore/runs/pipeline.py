"""The pipeline from a scan to its result, as a job: read, run jobs in sequence, write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from hushpore.base.events import Note, Progress, part_of
from hushpore.device.timing import StageTimer
from hushpore.jobs import JOBS, load, start
from hushpore.runs.result_folder import all_remarks, check_result_target, write_result
from hushpore.runs.scan_recipe import attach_files, files_of, origin_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterable, Mapping
    from pathlib import Path

    from hushpore.base.events import Event, Job, Result
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.runs.scan_recipe import ScanRecipe

    #: Yields the events of all jobs and returns the written result.
    Pipeline: TypeAlias = Generator[Event, None, "Written"]
    #: Checks the scan before the jobs run; raises an error to reject it.
    Check: TypeAlias = Callable[[Volume], None]
    #: Returns the corrected result of a job.
    Correct: TypeAlias = Callable[[Any], Result]
    #: Returns the generator to run in place of that of a job.
    Watch: TypeAlias = Callable[[str, Job], Job]

#: Progress after reading and before writing.
_READ, _COMPUTED = 0.02, 0.97


@dataclass(frozen=True, eq=False)
class Written:
    """A written result."""

    folder: Path  # the result folder, or for an image its file
    headline: str  # main figures of the last job
    remarks: tuple[Note, ...]  # on the results of all jobs, the most important first
    provenance: dict[str, Any]  # that of the last job
    result: Any = None  # of the last job
    volume: Volume | None = None  # the input of the first job; None if it ran on a cluster


def run_pipeline(
    source: ScanRecipe,
    output: str | os.PathLike[str],
    steps: Mapping[str, Settings],
    *,
    device: str = "auto",
    overwrite: bool = False,
    others: Iterable[Path] = (),
    check: Check | None = None,
    correct: Mapping[str, Correct] | None = None,
    watch: Watch = lambda _, work: work,
) -> Pipeline:
    """Read a scan, run jobs on it in sequence, and write the result.

    `output`: where to write, see `hushpore.runs.result_folder.write_result`. `steps`: the settings
    of each job, in the order in which they run; each but the last `gives` an image to the next.
    `device`: as for `hushpore.denoise`. `others`: further files that are written. `check`: checks
    the scan before the jobs run and raises an error to reject it. `correct`: changes the results of
    jobs, by job. `watch`: called with the name of each job and its generator, and first with
    ``"reading"`` and that of reading; returns the generator to run.
    Yields: the events of all jobs, with `Progress` over the whole pipeline.
    Returns: the written result.
    Raises HushporeError: any error of reading, the jobs or writing; no result is written then.
    """
    jobs = list(steps)
    first = JOBS[jobs[0]]
    inputs = [source.path, *files_of(steps.values())]
    target = check_result_target(output, jobs, overwrite, inputs=inputs, others=others)
    for job in jobs:
        # a missing package is reported before the scan is read, which can take minutes
        JOBS[job].load()
    # stamp the files now, so that changes during the run are noticed
    origin = origin_of(source, steps.values())
    if first.check:
        # the field of flattening is fitted to values, which the checks do not need
        load(first.check)(replace(source, flatten="").describe(), steps[jobs[0]])
    reading = _read(source, device if first.on_gpu else None)
    before = volume = yield from watch("reading", part_of(reading, 0.0, _READ))
    if check is not None:
        check(before)
    results: list[Result] = []
    share = (_COMPUTED - _READ) / sum(JOBS[job].share for job in jobs)
    done = _READ
    for job, settings in steps.items():
        kind = JOBS[job]
        until = done + share * kind.share
        attached = attach_files(volume, settings, source)
        if kind.expected_time and (time := load(kind.expected_time)(settings, volume, device)):
            yield Note(time)
        work = start(job, attached, settings, device)
        result = yield from watch(job, part_of(work, done, until))
        if kind.keep_time:
            load(kind.keep_time)(settings, device, result.provenance)
        if correct is not None and job in correct:
            result = correct[job](result)
        results.append(result)
        done = until
        if kind.gives:
            volume = result.volume
    yield Progress("writing", 0, 0, "", _COMPUTED)
    changes = source.changes_since(origin)
    for change in changes:
        yield Note(change, warning=True)
    extra = {"notes": changes} if changes else {}
    write_result(target, results, before, source=origin, extra=extra, overwrite=overwrite)
    remarks, last = all_remarks(results), results[-1]
    return Written(target, last.headline, remarks, last.provenance, last, before)


def _read(source: ScanRecipe, device: str | None) -> Generator[Event, None, Volume]:
    """Read a scan into memory, ready for transfer to `device` if one is given, and time it."""
    timer = StageTimer()
    yield Progress("reading", 0, 0, "", 0.0)
    with timer.stage("reading files") as run:
        volume = source.read(device)
        run.nbytes = volume.nbytes
    yield timer.timing()
    for note in volume.notes:
        yield Note(note)
    return volume
