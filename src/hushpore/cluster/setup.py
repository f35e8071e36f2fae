"""Setup of a segmentation on a cluster: slabs that fit into the memory of the workers.

The scan is read, the exterior of the sample is detected, and the slabs are planned; or the plan of
an interrupted run is resumed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import psutil

from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError, MemoryLimitError, OutputError
from hushpore.base.events import Progress, Span, StageTime, Timing
from hushpore.cluster import merging, void, watershed
from hushpore.cluster.blocks import Blocks, Plan, folders_of, load_named, save_arrays, whole
from hushpore.cluster.task_runner import spread, workers_of
from hushpore.cluster.void import digest_of
from hushpore.device.memory import PeakMemory, freed_memory_kept
from hushpore.pores.numbering import require_points, whole_markers
from hushpore.pores.void.components import ball_around
from hushpore.pores.void.threshold import BYTES_IN_WINDOW
from hushpore.pores.work import BYTES_A_BASIN, bytes_in_memory, check_grey, window_of
from hushpore.scan.exterior import Exterior, find_exterior

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from distributed import Client

    from hushpore.base.events import Event
    from hushpore.base.volume import Volume
    from hushpore.cluster.blocks import Report
    from hushpore.cluster.task_runner import Gpus
    from hushpore.io.output_target import Unfinished
    from hushpore.pores.settings import PoreSettings


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


#: Maximum memory of a task per voxel of a slab in bytes, besides grey values: phase 1, distance 4,
#: basins 4, runs of a noisy void and tables 4.
BYTES_IN_SLAB = 13

#: Additional memory of a slab per voxel of one slice in bytes: neighbouring slices, carried planes,
#: exits and their tables, and both faces as 64-bit integers where slabs meet.
BYTES_IN_SLICE = 160

#: Memory per voxel of the padded volume of the rolling ball in bytes: distance 4, fitting balls 2.
_BYTES_IN_ROOM = 6

#: Memory of an idle worker process in bytes, with all libraries loaded.
PROCESS = 400_000_000

#: Share of its memory limit that a worker may use: dask assigns no new tasks at 0.8.
_SHARE = 0.75
#: Share of that for tables, which grow with the number of basins.
_TABLES = 0.3
#: Thickness in slices below which thinner slabs cost more for their faces than they save.
_THIN = 16


class Cut(NamedTuple):
    """The thickness of the slabs, and the maximum number of basins in each."""

    thickness: int
    most_basins: int


def check_settings(volume: Volume, settings: PoreSettings, thickness: int | None) -> None:
    """Check before reading that a volume can be segmented on a cluster.

    `thickness`: requested thickness of the blocks; None: automatic.
    Raises InputError: with what to change.
    """
    if volume.axes != "zyx":
        raise InputError(
            f"{volume.name} has axes {volume.axes!r}, but a cluster segments only volumes with "
            "axes z, y and x. Segment it without a cluster."
        )
    check_grey(volume, settings)
    markers = volume.auxiliary_of(settings, "markers")
    if markers is not None and tuple(markers.shape) != volume.shape:
        require_points(whole_markers(markers), volume.shape)
    wanted = _of_the_whole(settings)
    if wanted and thickness is not None:
        raise InputError(
            f"On a cluster {wanted} needs the whole volume on one worker. Do not set the thickness "
            "of the blocks."
        )


def _of_the_whole(settings: PoreSettings) -> str:
    """Return the requested measures that need the whole volume, as text."""
    wants = {
        "local thickness (local_thickness)": bool(settings.thickness_of),
        "tortuosity (tortuosity)": settings.tortuosity,
        "transport (transport)": settings.transport != "none",
        "a measured porosity (measured_porosity)": settings.measured_porosity is not None,
        "sub-voxel porosity (subvoxel_porosity)": settings.subvoxel_porosity,
        "intervals (intervals)": settings.intervals,
        "the detection limit (detection_limit)": settings.detection_limit,
    }
    return ", ".join(name for name, is_asked in wants.items() if is_asked)


def memory_for_one(
    volume: Volume,
    settings: PoreSettings,
    workers: Sequence[dict[str, Any]],
    threads: int,
    all_gpus: bool = False,
) -> float | None:
    """Return the memory of one task for the whole volume, or None to work in slabs.

    One task is used if the volume fits into one slab, or if a requested measure needs the whole
    volume. `workers`, `threads`: as for `cut_volume`. `all_gpus`: whether to use the GPUs of all
    workers, of which one task would use only one.
    Raises MemoryLimitError if a requested measure needs the whole volume and no worker can hold it.
    """
    available = _memory_of_tasks(workers, settings)
    needed = bytes_in_memory(volume, settings) / (1 - _TABLES)
    wanted = _of_the_whole(settings)
    if wanted and needed > available:
        raise MemoryLimitError(
            f"On a cluster {wanted} needs all of {volume.name} in the memory of one worker: "
            f"{_with_process(needed) / 1e9:.3g} GB, but a task has only "
            f"{_with_process(available) / 1e9:.3g} GB. Give the workers more memory or fewer "
            "threads, switch the measure off, or bin the volume."
        )
    if needed > available or math.prod(volume.shape) >= 2**31:
        return None
    if wanted:
        return available
    is_one = cut_volume(volume, settings, workers, threads, None).thickness >= volume.shape[0]
    return available if is_one and not all_gpus else None


def cut_volume(
    volume: Volume,
    settings: PoreSettings,
    workers: Sequence[dict[str, Any]],
    threads: int,
    thickness: int | None,
    on_gpu: int | None = None,
) -> Cut:
    """Return slabs as thick as the memory of the workers allows, several for each worker.

    `workers`: facts of each worker, see `hushpore.cluster.task_runner.workers_of`.
    `on_gpu`: slices that fit into the smallest GPU of the workers; None: no GPU.
    Raises MemoryLimitError if the thinnest slabs do not fit.
    """
    depth, *plane = volume.shape
    size = math.prod(plane)
    available = _memory_of_tasks(workers, settings)
    a_slice = size * (BYTES_IN_SLAB + 2 * volume.dtype.itemsize)
    beside = size * BYTES_IN_SLICE
    if settings.is_local:
        around = window_of(volume, settings)[0] * volume.dtype.itemsize
        beside += size * (around + BYTES_IN_WINDOW * threads)
    if settings.exterior == "remove" and not settings.sample_mask:
        ball = ball_around(volume.shape, volume.spacing, settings.ball_radius, slicewise=False)
        room = math.prod(ball.shape[1:]) * _BYTES_IN_ROOM
        a_slice = max(a_slice, room)
        # slices within reach of the ball on both sides
        beside = max(beside, room * (ball.shape[0] - depth))
    most = int(((1 - _TABLES) * available - beside) / a_slice)
    least = min(2, depth)
    if most < least:
        needed = _with_process((least * a_slice + beside) / (1 - _TABLES))
        raise MemoryLimitError(
            f"Segmenting {volume.name} in the thinnest slabs needs at least {needed / 1e9:.3g} GB "
            f"per worker, but a task has only {_with_process(available) / 1e9:.3g} GB. Give each "
            "worker more memory or fewer threads."
        )
    basins = int(max(_TABLES * available, 5e7) / BYTES_A_BASIN)
    if thickness is not None:
        if thickness < least:
            raise InputError(
                f"The thickness of the blocks must be at least {least} slices; got {thickness}."
            )
        return Cut(min(thickness, depth), basins)
    most = min(most, depth, (2**31 - 1) // size - 4)
    if on_gpu is not None:
        most = min(most, max(on_gpu, least))
    together = sum(int(worker["nthreads"]) for worker in workers)
    count = -(-depth // most)
    # several slabs per worker, unless slabs would become too thin
    count = max(count, min(-(-count // together) * together, depth // _THIN))
    return Cut(max(least, -(-depth // count)), basins)


def _memory_of_tasks(workers: Sequence[dict[str, Any]], settings: PoreSettings) -> float:
    """Return the memory for a task on the smallest worker, minus that of the process itself."""
    limit = min(_memory(worker) for worker in workers)
    if settings.memory_budget is not None:
        limit = min(limit, settings.memory_budget * 1e9)
    return _SHARE * limit - PROCESS


def _with_process(available: float) -> float:
    """Return the memory limit that a worker needs for a task of `available` bytes."""
    return (available + PROCESS) / _SHARE


def _memory(worker: dict[str, Any]) -> float:
    """Return the memory per thread of a worker."""
    total = worker["memory_limit"] or psutil.virtual_memory().total
    return float(total) / int(worker["nthreads"])


# ---- start of a segmentation

#: Maximum temporary disk space per voxel in bytes: phase twice, basins and labels, as if they were
#: incompressible (a foam shrinks to a tenth); and besides the grey values, while these are needed.
_BYTES_ON_DISK, _BESIDE_GREY = 8, 3

#: Temporary disk space of the distance per voxel in bytes, for SNOW peaks only.
_BYTES_OF_DISTANCE = 4


#: Name of the file with the plan of the slabs.
_PLAN = "plan.json"


class Setup(NamedTuple):
    """The state of a segmentation after setup."""

    runner: StageRunner  # with the plan
    exterior: Exterior
    most_basins: int  # maximum number of basins in a slab
    digest: dict[str, str]  # fingerprint of the input
    earlier: int  # tasks finished by an earlier run


def has_slab_results(work: Unfinished) -> bool:
    """Whether an interrupted run has left results of slabs."""
    return (work.scratch / _PLAN).is_file()


def set_up(
    client: Client,
    work: Unfinished,
    volume: Volume,
    settings: PoreSettings,
    threads: int,
    thickness: int | None,
    gpus: Gpus,
) -> Generator[Event, Any, Setup]:
    """Read the scan layer by layer, decide automatic settings, and plan the slabs.

    Raises InputError if a worker does not see the files; OutputError if the disk is too small;
    MemoryLimitError if the thinnest slabs do not fit.
    """
    scratch, file = work.scratch, work.scratch / _PLAN
    check_folders(client, *folders_of(volume), scratch)
    depth, height, width = volume.shape
    known: dict[str, Any] = {}
    if file.is_file():
        with whole(file):
            known = json.loads(file.read_text(encoding="utf-8"))
    around = Exterior(*known["around"]) if "around" in known else None
    workers = workers_of(client)
    most = cut_volume(volume, settings, workers, threads, None).thickness
    applied = around.apply(settings) if around else settings
    cut = cut_volume(volume, applied, workers, threads, thickness, gpus.slices)
    # the earlier plan may not fit the memory of the workers of this run
    fits = known.get("layer", 0) <= most and (
        around is None
        or known["thickness"] == cut.thickness
        or (thickness is None and known["thickness"] <= cut.thickness)
    )
    if not fits:
        for item in scratch.iterdir():
            if item.is_file():
                item.unlink()
        known, around = {}, None
    earlier = len(list(scratch.glob("done-*.arrays")))
    if not earlier:
        of_work = _BYTES_ON_DISK + _BYTES_OF_DISTANCE * settings.by_snow
        most_bytes = max(of_work, _BESIDE_GREY + volume.dtype.itemsize)
        _check_disk(scratch, math.prod(volume.shape) * most_bytes)
    if not known:
        # whole chunks, so that each is decompressed only once
        chunk = volume.data.chunks[0]
        known = {"layer": most // chunk * chunk or most}
        _write(file, known)
    layer = known["layer"]
    plan = Plan(
        volume, str(scratch), str(work.content), settings, (depth, height, width), layer, layer,
        threads=threads, device=gpus.device,
    )  # fmt: skip
    runner = StageRunner(client, plan)
    layers: list[Any] = [(number, {}) for number in range(len(plan.layers))]
    reports = yield from runner.run("reading", "reading", 0.05, layers)
    if around is None:
        with Blocks(plan) as blocks:
            around = find_exterior(blocks.work.volume, settings)
        applied = around.apply(settings)
        cut = cut_volume(volume, applied, workers, threads, thickness, gpus.slices)
        # one band for each worker, for the pass along z
        bands = min(len(workers), height)
        known |= {"thickness": cut.thickness, "bands": bands, "around": list(around)}
        _write(file, known)
    runner.plan = dataclasses.replace(
        plan,
        settings=around.apply(settings),
        thickness=known["thickness"],
        bands=known["bands"],
        padding=around.padding,
    )
    return Setup(runner, around, cut.most_basins, digest_of(reports), earlier)


def _write(file: Path, known: dict[str, Any]) -> None:
    with new_file(file, overwrite=True) as part:
        part.write_text(json.dumps(known), encoding="utf-8")


def check_folders(client: Client, *folders: str | Path) -> None:
    """Check that all workers see the files under the same path."""
    for folder in map(str, folders):
        for worker, is_there in client.run(os.path.isdir, folder).items():
            if not is_there:
                raise InputError(
                    f"The worker {worker} cannot access {folder}. Put scan and result on a disk "
                    "that all workers see under the same path."
                )


def _check_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OutputError(
            f"The job needs {needed / 1e9:.1f} GB of temporary space in {folder.parent.parent}, "
            f"but only {free / 1e9:.1f} GB are free. Choose a folder on another disk."
        )
