"""The pipeline from a scan to its result, as a job: read, run jobs in sequence, write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from hushpore.base.events import Note, Progress, part_of
from hushpore.jobs import JOBS, chained, start
from hushpore.runs.result_folder import all_remarks, check_result_target, write_result
from hushpore.runs.scan_recipe import attach_files, files_of, origin_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from hushpore.base.events import Event, Result
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.runs.scan_recipe import ScanRecipe

    #: Yields the events of all jobs and returns the written result.
    Pipeline: TypeAlias = Generator[Event, None, "Written"]
    #: Checks the scan before the jobs run; raises an error to reject it.
    Check: TypeAlias = Callable[[Volume], None]
    #: Returns the corrected result of a job.
    Correct: TypeAlias = Callable[[Any], Result]

#: Progress after reading and before writing.
_READ, _COMPUTED = 0.02, 0.97


@dataclass(frozen=True)
class Written:
    """A written result."""

    folder: Path  # the result folder, or for an image its file
    headline: str  # main figures of the last job
    remarks: tuple[Note, ...]  # on the results of all jobs, the most important first
    provenance: dict[str, Any]  # that of the last job


def run_pipeline(
    source: ScanRecipe,
    output: str | os.PathLike[str],
    steps: Mapping[str, Settings],
    *,
    device: str = "auto",
    overwrite: bool = False,
    check: Check | None = None,
    correct: Mapping[str, Correct] | None = None,
) -> Pipeline:
    """Read a scan, run jobs on it in sequence, and write the result.

    `output`: where to write, see `hushpore.runs.result_folder.write_result`. `steps`: the settings
    of each job, in the order in which they run; each but the last `gives` an image to the next.
    `device`: as for `hushpore.denoise`. `check`: checks the scan
    before the jobs run and raises an error to reject it. `correct`: changes the results of jobs, by
    job.
    Yields: the events of all jobs, with `Progress` over the whole pipeline.
    Returns: the written result.
    Raises HushporeError: any error of reading, the jobs or writing; no result is written then.
    """
    jobs = list(steps)
    inputs = [source.path, *files_of(steps.values())]
    target = check_result_target(output, jobs, overwrite, inputs=inputs)
    # stamp the files now, so that changes during the run are noticed
    origin = origin_of(source, steps.values())
    yield Progress("reading", 0, 0, "", 0.0)
    before = volume = source.read(device if JOBS[jobs[0]].on_gpu else None)
    if check is not None:
        check(before)
    results: list[Result] = []
    share = (_COMPUTED - _READ) / sum(JOBS[job].share for job in jobs)
    done = _READ
    with chained(device) as backend_of:
        for job, settings in steps.items():
            until = done + share * JOBS[job].share
            work = start(job, attach_files(volume, settings, source), settings, backend_of(job))
            result = yield from part_of(work, done, until)
            if correct is not None and job in correct:
                result = correct[job](result)
            results.append(result)
            done = until
            if JOBS[job].gives:
                volume = result.volume
    yield Progress("writing", 0, 0, "", _COMPUTED)
    changes = source.changes_since(origin)
    for change in changes:
        yield Note(change, warning=True)
    extra = {"notes": changes} if changes else {}
    write_result(target, results, before, source=origin, extra=extra, overwrite=overwrite)
    remarks = all_remarks(results)
    return Written(target, results[-1].headline, remarks, results[-1].provenance)
