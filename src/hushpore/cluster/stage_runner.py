"""Runs the stages of a segmentation one after another on the workers and collects their reports."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.events import Progress, Span, StageTime, Timing
from hushpore.cluster import merging, void, watershed
from hushpore.cluster.blocks import Blocks, load_named, save_arrays
from hushpore.cluster.task_runner import spread
from hushpore.device.memory import PeakMemory, freed_memory_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from distributed import Client

    from hushpore.base.events import Event
    from hushpore.cluster.blocks import Plan, Report

#: Functions of the tasks, by the names of their stages.
TASKS: dict[str, Callable[..., Report]] = {
    "reading": void.copy_scan,
    "survey": void.survey,
    "levels": void.count_levels,
    "threshold": void.find_void,
    "hysteresis": void.apply_hysteresis,
    "hysteresis-parts": merging.stitch_parts,
    "air": void.mark_slices,
    "mask": void.mark_masked,
    "balls": void.fit_balls,
    "balls-join": void.stitch_balls,
    "reach": void.reach_balls,
    "covered": void.mark_covered,
    "points": void.read_points,
    "parts": void.find_parts,
    "join": merging.stitch_parts,
    "paint": void.paint,
    "along": void.pass_along_z,
    "basins": watershed.watershed,
    "stitch": watershed.stitch,
    "reduce": watershed.reduce_basins,
    "peaks": merging.find_slab_peaks,
    "widths": merging.look_up_widths,
    "merge": merging.merge_slab,
    "union": merging.union_ranges,
    "finish": watershed.finish,
    "labels": watershed.write_labels,
    "coarser": watershed.write_coarser,
}


@dataclass(frozen=True, eq=False)
class FinishedTask:
    """The outcome of a finished task."""

    number: int  # number of the task in its stage
    report: Report  # result, a few numbers
    seconds: float  # duration
    moved: int  # bytes of values and tables read and written
    memory: int  # peak memory of its process in bytes


def run_task(plan: Plan, stage: str, key: tuple[int, dict[str, Any]]) -> FinishedTask:
    """Run one task on a worker, and write its record after all its output is written."""
    begun, memory = time.perf_counter(), PeakMemory()
    number, arguments = key
    # dask makes workers return freed memory at once; allocating it again took 25 % of the time
    with Blocks(plan) as blocks, freed_memory_kept():
        report = TASKS[stage.partition(" ")[0]](blocks, number, **arguments)
        moved = blocks.moved
    memory.update()
    report = {name: np.asarray(value) for name, value in report.items()}
    task = FinishedTask(number, report, time.perf_counter() - begun, moved, memory.host)
    save_arrays(_record(plan, stage, number), report)
    return task


@dataclass
class StageRunner:
    """Runs the stages of a job on its workers."""

    client: Client  # connected
    plan: Plan  # plan of the job
    # tasks taken from an earlier run, and tasks of this run
    reused: int = 0
    computed: int = 0
    # tasks finished in this run, by stage
    finished: dict[str, list[FinishedTask]] = field(default_factory=lambda: defaultdict(list))
    _begun: float = field(default_factory=time.perf_counter)
    _done: float = 0.0
    _spans: list[Span] = field(default_factory=list)

    def run(
        self, stage: str, shown: str, until: float, keys: Iterable[tuple[int, dict[str, Any]]]
    ) -> Generator[Event, Any, list[Report]]:
        """Run the unfinished tasks of a stage, and return the reports of all its tasks in order.

        `stage`: a key of `TASKS`, optionally followed by a space and a suffix. `shown`: name of the
        stage for users. `until`: fraction of the job that is complete after the stage. `keys`: for
        each task its number and further arguments by name.
        """
        keys = list(keys)
        found = {}
        for number, _ in keys:
            record = _record(self.plan, stage, number)
            if record.is_file():
                found[number] = load_named(record)
        missing = [key for key in keys if key[0] not in found]
        self.reused += len(found)
        start = self._done
        for task in spread(self.client, run_task, missing, self.plan, stage):
            if task is not None:
                found[task.number] = task.report
                self.computed += 1
                self.finished[shown].append(task)
                now = time.perf_counter() - task.seconds
                self._spans.append(Span(shown, now, task.seconds))
                self._done = start + (until - start) * len(found) / len(keys)
            yield Progress(shown, len(found), len(keys), "blocks", self._done)
        self._done = until
        if missing:
            yield self.timing()
        return [found[number] for number, _ in keys]

    def timing(self) -> Timing:
        """Return the workers' time by stage, each the sum over all tasks of the stage."""
        spans, self._spans = tuple(self._spans), []
        voxels = self.plan.shape[0] * self.plan.shape[1] * self.plan.shape[2]
        stages = {shown: _stage_time(tasks, voxels) for shown, tasks in self.finished.items()}
        memory = max((each.memory for tasks in self.finished.values() for each in tasks), default=0)
        elapsed = time.perf_counter() - self._begun
        return Timing(stages, elapsed, spans, host_memory=memory)


def _record(plan: Plan, stage: str, number: int) -> Path:
    return Path(plan.scratch, f"done-{stage.replace(' ', '-')}-{number}.arrays")


def _stage_time(tasks: list[FinishedTask], voxels: int) -> StageTime:
    seconds = np.array([each.seconds for each in tasks])
    p50, p95 = np.percentile(seconds, [50, 95])
    moved = sum(each.moved for each in tasks)
    total = float(seconds.sum())
    return StageTime(
        count=len(tasks),
        seconds=total,
        worst=float(seconds.max()),
        first=float(seconds[0]),
        last=float(seconds[-1]),
        p50=float(p50),
        p95=float(p95),
        host=total,
        nbytes=moved,
        voxels=voxels,
        bytes_per_second=moved / total if total else 0.0,
        voxels_per_second=voxels / total if total else 0.0,
    )
