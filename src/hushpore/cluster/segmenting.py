"""Pore segmentation on a cluster, with the labels and tables of a single machine.

A volume that fits into the memory of one worker is segmented there in a single task, a larger one
in blocks on all workers.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpore._version import __version__
from hushpore.base.errors import DeviceError
from hushpore.base.events import Note, Progress, by_importance, part_of, result_text
from hushpore.base.formatting import readable_count
from hushpore.base.volume import Volume
from hushpore.cluster.blocks import (
    as_source,
    as_zarr,
    folders_of,
    inputs_of,
    open_beside,
    source_of,
)
from hushpore.cluster.connection import connect
from hushpore.cluster.setup import check_folders, check_settings, has_slab_results, memory_for_one
from hushpore.cluster.stages import in_blocks
from hushpore.cluster.task_runner import Gpus, gpus_of, watch, workers_of
from hushpore.cluster.watershed import Finished, write_table
from hushpore.device.backend import Backend, choose_backend
from hushpore.device.memory import freed_memory_kept
from hushpore.io.output_target import PROVENANCE, check_target, require_apart, resumable_directory
from hushpore.io.results import write_json
from hushpore.io.zarr import ZarrImage, looks_like_labels, write_blocks
from hushpore.pores.geometry.sums import SUMS
from hushpore.pores.job import segment_pores as segment_on_one_machine
from hushpore.runs.pipeline import Written
from hushpore.runs.scan_recipe import ScanRecipe, origin_of

if TYPE_CHECKING:
    import os
    from collections.abc import Generator

    from distributed import Client

    from hushpore.base.events import Event, Job
    from hushpore.cluster.blocks import Scan
    from hushpore.io.output_target import Unfinished
    from hushpore.pores.settings import PoreSettings

# fraction of the task that is complete once pores are found
_FOUND = 0.9


def segment_on_one_worker(
    client: Client,
    work: Unfinished,
    volume: Volume,
    settings: PoreSettings,
    memory: float,
    gpus: Gpus,
    threads: int,
    where: str,
) -> Generator[Event, Any, Finished]:
    """Segment the whole volume on one worker, within a memory limit; yields its events."""
    check_folders(client, *folders_of(volume), work.scratch)
    notes = [Note(f"Worked on in one piece, by one of {where}.")]
    if gpus.problem:
        notes.append(Note(gpus.problem, warning=True))
    yield from notes
    content = str(work.content)
    job = watch(client, segment_whole, volume, settings, content, memory, gpus.device, threads)
    found: Finished = yield from part_of(job, 0.02, 0.99)
    provenance, of_job = found.provenance, found.provenance["notes"][len(volume.notes) :]
    provenance |= {
        "device": where,
        "notes": [*volume.notes, *(note.message for note in notes), *of_job],
        "remarks": [*(note.to_dict() for note in notes), *provenance["remarks"]],
    }
    return found._replace(remarks=by_importance([*found.remarks, *notes]))


def segment_whole(
    volume: Volume, settings: PoreSettings, content: str, memory: float, device: str, threads: int
) -> Job:
    """Segment a volume and write images and tables of the result; a job for a worker.

    `content`: folder of the result. `memory`: memory limit in bytes. `device`: GPU of the worker;
    empty: none. `threads`: number of threads.
    Yields: as `hushpore.pores.job.segment_pores`.
    Returns: `Finished`.
    """
    if device:
        backend = dataclasses.replace(choose_backend(device), threads=threads)
    else:
        backend = Backend(threads=threads)
    bounded = dataclasses.replace(settings, memory_budget=memory / 1e9)
    with freed_memory_kept():
        found = yield from part_of(segment_on_one_machine(volume, bounded, backend), 0.0, _FOUND)
    files = found.files()
    folder = Path(content)
    for name, table in files.tables.items():
        write_table(folder, name, table)
    done = _FOUND
    for name, image in files.images.items():
        until = done + (1 - _FOUND) / len(files.images)
        # the result refers to the file by this name
        named = image.replace(image.data, name=name)
        yield from part_of(_write(folder / f"{name}.ome.zarr", named), done, until)
        done = until
    # the memory limit is that of the worker, not of the settings
    provenance = {**found.provenance, "settings": settings.to_dict()}
    return Finished(provenance, found.headline, found.remarks)


def _write(path: Path, image: Volume) -> Generator[Event, Any, None]:
    # after a cancel zarr would create the removed folder again
    if not path.parent.is_dir():
        return
    stored = ZarrImage.begin(path, image, are_labels=looks_like_labels(image))
    for event in write_blocks(stored, image.data):
        if not path.is_dir():
            return
        if isinstance(event, Progress):
            yield dataclasses.replace(event, stage="writing")


# ---- in blocks


def segment_pores(
    scan: Scan,
    folder: str | os.PathLike[str],
    settings: PoreSettings,
    *,
    where: str | Client = "local:2",
    memory: float | None = None,
    threads: int = 1,
    thickness: int | None = None,
    series: str | None = None,
    overwrite: bool = False,
    device: str = "auto",
    trust: bool = False,
) -> Job:
    """Segment and measure the pores of a volume on a cluster, and write the result folder.

    Parameters
    ----------
    scan : str, path-like, ScanRecipe or Volume
        A scan that `hushpore.read` opens, or its recipe. Other formats than OME-Zarr are converted
        first. All workers must see the scan and the result folder under the same path.
    folder : str or path-like
        Result folder, with ``labels.ome.zarr``, ``pores.csv``, ``throats.csv``, ``totals.csv``,
        ``profile.csv`` and ``result.json``. It appears once the result is complete.
    settings : PoreSettings
        Settings of the segmentation; ``memory_budget`` is the limit of each task.
    where, memory
        See `hushpore.cluster.connection.connect`.
    threads : int, optional
        Threads of each task; use more than 1 if a single-threaded worker has a machine to itself.
    thickness : int, optional
        Slices of a block; by default as many as the memory of a worker allows.
    series : str, optional
        Which of several image stacks, as for `hushpore.read`.
    overwrite : bool, optional
        Replace an earlier result.
    device : str, optional
        ``"cuda"``: each worker computes void and basins on its own GPU. By default the CPU.
    trust : bool, optional
        As for `hushpore.read`.

    Yields
    ------
    Progress, Timing, Note
        Timings are sums of the times of all workers for each stage.

    Returns
    -------
    Written
        Path of the result, its headline, remarks and record.

    Raises
    ------
    InputError
        If the volume or a setting cannot be used.
    DeviceError
        If the workers are lost. The partial result is kept, and the same call resumes it; any other
        error, or a cancel, removes it.
    MemoryLimitError
        If workers have too little memory for the thinnest block.

    Notes
    -----
    Labels, tables and totals are bit-identical to those of `hushpore.segment_pores`, whatever the
    number of workers and the thickness of blocks.
    """
    target = check_target(folder, overwrite)
    scan = as_source(scan, series, trust)
    require_apart([target], inputs_of(scan, settings))
    # stamp the files now, so that changes during the run are noticed
    origin = _origin(scan, settings)
    key = {
        "hushpore": __version__,
        "settings": settings.to_dict(),
        "scan": origin,
        "sums": [list(each.powers) for each in SUMS],
    }
    with resumable_directory(target, key, overwrite) as work, connect(where, memory) as client:
        converted = as_zarr(scan, work.scratch, trust=trust)
        image = yield from part_of(converted, 0.0, 0.02)
        wanted = device
        beside = scan.auxiliary if isinstance(scan, Volume) else {}
        opened = open_beside(image, beside, settings, work.scratch, trust=trust)
        check_settings(opened, settings, thickness)
        gpus = gpus_of(client, wanted, math.prod(opened.shape[1:]))
        workers = workers_of(client)
        memory_of_one = None
        # a partial result in blocks is resumed
        if thickness is None and not has_slab_results(work):
            all_gpus = gpus != Gpus()
            memory_of_one = memory_for_one(opened, settings, workers, threads, all_gpus)
        name = where if isinstance(where, str) else "the cluster of the given client"
        place = f"{readable_count(len(workers), 'worker')} of {name}"
        if gpus.names:
            place = f"{place}, each with a GPU: {', '.join(gpus.names)}"
        job: Job
        if memory_of_one is None:
            job = in_blocks(client, work, opened, settings, threads, thickness, gpus, place)
        else:
            job = segment_on_one_worker(
                client, work, opened, settings, memory_of_one, gpus, threads, place
            )
        try:
            found: Finished = yield from job
            # the list includes the record itself, which is written next
            files = sorted([*(each.name for each in work.content.iterdir()), PROVENANCE])
            whole = {
                **result_text(found.headline, found.remarks),
                "source": origin,
                "jobs": [found.provenance],
                "files": files,
            }
            write_json(work.content / PROVENANCE, whole)
        except DeviceError:
            raise
        except BaseException:
            _stop_tasks(work.scratch)
            raise
    yield Progress("writing", 1, 1, "", 1.0)
    return Written(target, found.headline, found.remarks, found.provenance)


def segment_on(
    where: str | Client,
    scan: Scan,
    path: str | os.PathLike[str],
    settings: PoreSettings,
    *,
    device: str = "auto",
    series: str | None = None,
    memory: float | None = None,
    overwrite: bool = False,
    trust: bool = False,
) -> Job:
    """Segment as `segment_pores` does, with the signature of all jobs on clusters."""
    how: dict[str, Any] = {
        "memory": memory, "series": series, "overwrite": overwrite, "trust": trust,
    }  # fmt: skip
    return segment_pores(scan, path, settings, where=where, device=device, **how)


def _stop_tasks(scratch: Path) -> None:
    """Remove the folder of tasks that still run somewhere, so that they fail."""
    until = time.monotonic() + 1
    while scratch.exists() and time.monotonic() < until:
        # repeated, since a task may write a file during the removal
        shutil.rmtree(scratch, ignore_errors=True)


def _origin(scan: ScanRecipe | Volume, settings: PoreSettings) -> dict[str, Any]:
    """Return the identity of the scan and the files in the settings, for this and later runs."""
    if isinstance(scan, ScanRecipe):
        return origin_of(scan, [settings])
    source = source_of(scan)
    if source is None or scan.auxiliary:
        # changes of an array in memory cannot be detected
        return {"volume": scan.facts, "id": id(scan)}
    return origin_of(source, [settings])
