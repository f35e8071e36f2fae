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
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError, MemoryLimitError, OutputError
from hushpore.cluster.blocks import Blocks, Plan, folders_of, whole
from hushpore.cluster.stage_runner import StageRunner
from hushpore.cluster.task_runner import workers_of
from hushpore.cluster.void import digest_of
from hushpore.pores.memory_plan import BYTES_A_BASIN, bytes_in_memory
from hushpore.pores.numbering import require_points, whole_markers
from hushpore.pores.void.components import ball_around
from hushpore.pores.void.threshold import BYTES_IN_WINDOW
from hushpore.pores.work import check_grey, window_of
from hushpore.scan.exterior import Exterior, find_exterior

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from distributed import Client

    from hushpore.base.events import Event
    from hushpore.base.volume import Volume
    from hushpore.cluster.task_runner import Gpus
    from hushpore.io.output_target import Unfinished
    from hushpore.pores.settings import PoreSettings

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
        "a measured porosity (measured_porosity)": settings.measured_porosity is not None,
        "sub-voxel porosity (subvoxel_porosity)": settings.subvoxel_porosity,
        "intervals (intervals)": settings.intervals,
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
