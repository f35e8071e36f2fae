"""A volume that one worker holds: a single task there finds its pores as one machine does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hushpore.base.events import Note, Progress, part_of
from hushpore.cluster.beginning import check_folders
from hushpore.cluster.finishing import write_table
from hushpore.cluster.remote_job import watch
from hushpore.cluster.scan import folders_of
from hushpore.device.backend import Backend, choose_backend
from hushpore.device.memory import freed_memory_kept
from hushpore.io.zarr.image import ZarrImage, looks_like_labels, write_blocks
from hushpore.pores.job import segment_pores

if TYPE_CHECKING:
    from collections.abc import Generator

    from distributed import Client

    from hushpore.base.events import Event, Job
    from hushpore.base.volume import Volume
    from hushpore.cluster.gpus import Gpus
    from hushpore.io.target import Unfinished
    from hushpore.pores.settings import PoreSettings

# share of the task that is over when pores are found
_FOUND = 0.9


def in_one_task(
    client: Client,
    work: Unfinished,
    volume: Volume,
    settings: PoreSettings,
    memory: float,
    gpus: Gpus,
    threads: int,
    where: str,
) -> Generator[Event, Any, tuple[dict[str, Any], str]]:
    """Have one worker do all, where that has so many bytes of memory for it.

    Yields: as on one machine.
    Returns: the record of the job and the result in a sentence.
    """
    check_folders(client, *folders_of(volume), work.scratch)
    notes = [f"Worked on in one piece, by one of {where}."]
    yield Note(notes[0])
    if gpus.problem:
        notes.append(gpus.problem)
        yield Note(gpus.problem, warning=True)
    how = str(work.content), memory, gpus.device, threads
    job = watch(client, segment_in_one, volume, settings, *how)
    provenance, summary = yield from part_of(job, 0.02, 0.99)
    told = provenance["notes"][len(volume.notes) :]
    provenance |= {"device": where, "notes": [*volume.notes, *notes, *told]}
    return provenance, summary


class Finished(NamedTuple):
    """What a worker tells of the result that it has written."""

    provenance: dict[str, Any]
    summary: str


def segment_in_one(
    volume: Volume,
    settings: PoreSettings,
    content: str,
    memory: float,
    device: str,
    threads: int,
) -> Job:
    """Segment a volume and write images and tables of the result; a job for a worker.

    `content`: folder of the result. `memory`: bytes that it may take. `device`: the worker's GPU;
    empty: none. `threads`: on which it runs.
    Yields: as `hushpore.pores.job.segment_pores`.
    Returns: `Finished`.
    """
    if device:
        backend = dataclasses.replace(choose_backend(device), threads=threads)
    else:
        backend = Backend(threads=threads)
    bounded = dataclasses.replace(settings, memory_budget=memory / 1e9)
    with freed_memory_kept():
        found = yield from part_of(segment_pores(volume, bounded, backend), 0.0, _FOUND)
    files = found.files()
    folder = Path(content)
    for name, table in files.tables.items():
        write_table(folder, name, table)
    done = _FOUND
    for name, image in files.images.items():
        until = done + (1 - _FOUND) / len(files.images)
        # by its name it is known again
        named = image.replace(image.data, name=name)
        yield from part_of(_write(folder / f"{name}.ome.zarr", named), done, until)
        done = until
    # the bound is the worker's, and not of what is asked for
    provenance = {**found.provenance, "settings": settings.to_dict()}
    return Finished(provenance, found.summary)


def _write(path: Path, image: Volume) -> Generator[Event, Any, None]:
    # once it is cancelled zarr would make the folders of the result anew
    if not path.parent.is_dir():
        return
    stored = ZarrImage.begin(path, image, are_labels=looks_like_labels(image))
    for event in write_blocks(stored, image.data):
        if not path.is_dir():
            return
        if isinstance(event, Progress):
            yield dataclasses.replace(event, stage="writing")
