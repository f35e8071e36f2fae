"""One scan from file to result, as a job: read, one job after another, write."""

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

    #: Yields the events of all jobs in turn, and returns what was written.
    Pipeline: TypeAlias = Generator[Event, None, "Written"]
    #: Looks at what was read before anything is done with it; raises to refuse it.
    Check: TypeAlias = Callable[[Volume], None]

#: Share of the whole that is done after reading, and before writing.
_READ, _COMPUTED = 0.02, 0.97


@dataclass(frozen=True)
class Written:
    """A finished scan."""

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
) -> Pipeline:
    """Read a scan, run jobs on it one after another, and write the result.

    `output`: where to write, see `hushpore.runs.result_folder.write_result`. `steps`: the settings
    of each job, in the order in which they run; each but the last `gives` an image to the next.
    `device`: as for `hushpore.denoise`. `check`: looks at what was read before anything is done
    with it; raises to refuse it.
    Yields: of all jobs; `Progress` counts for the whole.
    Returns: where the result is, and what it says.
    Raises HushporeError: as reading, the jobs and writing do; nothing is written then.
    """
    jobs = list(steps)
    inputs = [source.path, *files_of(steps.values())]
    target = check_result_target(output, jobs, overwrite, inputs=inputs)
    # as it is now: files that change while they are worked on are then known to have changed
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
