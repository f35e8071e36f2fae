"""One stage after another of a segmentation, each task on some worker, and what they report."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.events import Progress, Span, StageTime, Timing
from hushpore.cluster import components, merging, outputs, void, watershed
from hushpore.cluster.blocks import Blocks, load_named, save_arrays
from hushpore.cluster.task_runner import spread
from hushpore.device.memory import PeakMemory, freed_memory_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from distributed import Client

    from hushpore.base.events import Event
    from hushpore.cluster.blocks import Plan, Report

#: What tasks do, by names that their records have.
TASKS: dict[str, Callable[..., Report]] = {
    "reading": void.copy_scan,
    "survey": void.survey,
    "levels": void.count_levels,
    "threshold": void.find_void,
    "hysteresis": void.apply_hysteresis,
    "hysteresis-parts": components.stitch_parts,
    "air": void.mark_slices,
    "mask": void.mark_masked,
    "balls": void.fit_balls,
    "balls-join": void.stitch_balls,
    "reach": void.reach_balls,
    "covered": void.mark_covered,
    "parts": void.find_parts,
    "join": components.stitch_parts,
    "paint": void.paint,
    "along": void.pass_along_z,
    "basins": watershed.watershed,
    "stitch": watershed.stitch,
    "reduce": watershed.reduce_basins,
    "peaks": merging.find_slab_peaks,
    "widths": merging.look_up_widths,
    "merge": merging.merge_slab,
    "union": merging.union_ranges,
    "finish": outputs.finish,
    "labels": outputs.write_labels,
    "coarser": outputs.write_coarser,
}


@dataclass(frozen=True, eq=False)
class FinishedTask:
    """What a finished task says."""

    number: int  # which one of its stage
    report: Report  # its result, few numbers
    seconds: float  # how long it took
    moved: int  # bytes it read and wrote, of values and of tables
    memory: int  # the most bytes that its process has held


def run_task(plan: Plan, stage: str, key: tuple[int, dict[str, Any]]) -> FinishedTask:
    """Do one task on a worker, and leave a record of it when all that it writes is there."""
    begun, memory = time.perf_counter(), PeakMemory()
    number, arguments = key
    # dask has workers give back all that is freed; to take it anew was a quarter of their time
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
    """The workers of a job, as its stages use them."""

    client: Client  # connected
    plan: Plan  # of the job
    # tasks that an earlier run has left, and those of this one
    reused: int = 0
    computed: int = 0
    # of each stage its tasks that this run has finished
    finished: dict[str, list[FinishedTask]] = field(default_factory=lambda: defaultdict(list))
    _begun: float = field(default_factory=time.perf_counter)
    _done: float = 0.0
    _spans: list[Span] = field(default_factory=list)

    def run(
        self, stage: str, shown: str, until: float, keys: Iterable[tuple[int, dict[str, Any]]]
    ) -> Generator[Event, Any, list[Report]]:
        """Run the tasks of a stage that are not done, and return what all of them tell, in order.

        `stage`: a key of `TASKS`, perhaps with a number after a space. `shown`: the stage in the
        user's words. `until`: share of the job that is done after it. `keys`: of each task its
        number, and further arguments by name.
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
        """Return what the workers' time went into: of each stage the sum of all its tasks."""
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
