"""How a segmentation begins: the scan is read, what lies around the sample is seen, slabs are cut.

Or as an earlier run has begun, whose tasks are gone on with.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from hushpore.base.errors import InputError, OutputError
from hushpore.base.partial import new_file
from hushpore.cluster.blocks import Blocks, Plan, whole
from hushpore.cluster.plan import cut_volume
from hushpore.cluster.scan import folders_of
from hushpore.cluster.stage_runner import StageRunner
from hushpore.cluster.task_runner import workers_of
from hushpore.cluster.void import digest_of
from hushpore.pores.void.surroundings import Surroundings, find_surroundings

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from distributed import Client

    from hushpore.base.events import Event
    from hushpore.base.volume import Volume
    from hushpore.cluster.gpus import Gpus
    from hushpore.io.target import Unfinished
    from hushpore.pores.settings import PoreSettings


#: Bytes a voxel on disk at most while the work goes on: phase twice, basins and labels, as if none
#: could be packed (of a foam a tenth is left); and of what lies beside the grey values, before.
_BYTES_ON_DISK, _BESIDE_GREY = 8, 3

#: Bytes a voxel of the distance, which lies there where peaks are sought in it.
_BYTES_OF_DISTANCE = 4


#: Name of the file that says how a volume is cut.
_PLAN = "plan.json"


class Beginning(NamedTuple):
    """What is known once a segmentation has begun."""

    runner: StageRunner  # with the plan
    surroundings: Surroundings
    most_basins: int  # that a slab may have
    digest: dict[str, str]  # what tells the input from others
    earlier: int  # tasks that an earlier run has left done


def has_begun(work: Unfinished) -> bool:
    """Whether an earlier run has begun to work in slabs."""
    return (work.scratch / _PLAN).is_file()


def begin(
    client: Client,
    work: Unfinished,
    volume: Volume,
    settings: PoreSettings,
    threads: int,
    thickness: int | None,
    gpus: Gpus,
) -> Generator[Event, Any, Beginning]:
    """Read the scan layer by layer, and cut it as the settings want that fit what is seen in it.

    Raises InputError for workers that do not see the files; OutputError if the disk is too small;
    MemoryLimitError if the thinnest slabs do not fit.
    """
    scratch, file = work.scratch, work.scratch / _PLAN
    check_folders(client, *folders_of(volume), scratch)
    depth, height, width = volume.shape
    known: dict[str, Any] = {}
    if file.is_file():
        with whole(file):
            known = json.loads(file.read_text(encoding="utf-8"))
    around = Surroundings(*known["around"]) if "around" in known else None
    workers = workers_of(client)
    how = workers, threads, thickness, gpus.slices
    most = cut_volume(volume, settings, workers, threads, None).thickness
    cut = cut_volume(volume, around.apply(settings) if around else settings, *how)
    # more workers may have less memory each
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
        # whole chunks, each of which is unpacked once
        chunk = volume.data.chunks[0]
        known = {"layer": most // chunk * chunk or most}
        _write(file, known)
    paths, shape = (str(scratch), str(work.content)), (depth, height, width)
    layer = known["layer"]
    plan = Plan(volume, *paths, settings, shape, layer, layer, threads=threads, device=gpus.device)
    runner = StageRunner(client, plan)
    layers: list[Any] = [(number, {}) for number in range(len(plan.layers))]
    reports = yield from runner.run("reading", "reading", 0.05, layers)
    if around is None:
        with Blocks(plan) as blocks:
            around = find_surroundings(blocks.work.volume, settings)
        cut = cut_volume(volume, around.apply(settings), *how)
        # a band for each worker that carries planes along z
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
    return Beginning(runner, around, cut.most_basins, digest_of(reports), earlier)


def _write(file: Path, known: dict[str, Any]) -> None:
    with new_file(file, overwrite=True) as part:
        part.write_text(json.dumps(known), encoding="utf-8")


def check_folders(client: Client, *folders: str | Path) -> None:
    """Refuse workers that do not see the files under the same path."""
    for folder in map(str, folders):
        for worker, is_there in client.run(os.path.isdir, folder).items():
            if not is_there:
                raise InputError(
                    f"The worker {worker} does not see {folder}. Scan and result must lie on a "
                    "disk that all workers have under the same path."
                )


def _check_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OutputError(
            f"The work needs {needed / 1e9:.1f} GB in {folder.parent.parent} until it is complete; "
            f"{free / 1e9:.1f} GB are free. Name a folder on another disk."
        )
