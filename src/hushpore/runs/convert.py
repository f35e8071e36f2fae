"""A scan of any format to OME-Zarr, a layer of slices at a time: for what is larger than memory."""

from __future__ import annotations

import dataclasses
import math
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from hushpore._version import __version__
from hushpore.base.errors import InputError
from hushpore.base.events import Note, Progress, result_of
from hushpore.base.formatting import readable_bytes, readable_count
from hushpore.base.volume import Volume
from hushpore.device.timing import StageTimer
from hushpore.io.input_limits import free_memory
from hushpore.io.loading import choose, load
from hushpore.io.output_target import check_target, require_apart, require_zarr, resumable_directory
from hushpore.io.registry import EXPORTERS
from hushpore.io.zarr.image import (
    MEMORY,
    ZarrImage,
    import_zarr,
    looks_like_labels,
    require_content,
    write_blocks,
)
from hushpore.runs.scan_recipe import ScanRecipe

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterable, Sequence
    from pathlib import Path

    from hushpore.base.events import Event

    #: Yields events, and returns what was written.
    Conversion: TypeAlias = Generator[Event, None, "Converted"]

#: Share of the free memory that is taken where nothing is said; more than a layer is of no use.
_SHARE = 0.25


@dataclass(frozen=True)
class Converted:
    """A scan that was written as OME-Zarr."""

    path: Path  # the folder
    facts: str  # what it is: shape, voxel size, type and size
    levels: tuple[tuple[int, ...], ...]  # shapes of the levels, the finest first
    stored: int  # bytes on disk
    resumed: int  # blocks that an earlier run, which was broken off, had written
    seconds: float  # time that it took

    @property
    def summary(self) -> str:
        """The result in one sentence."""
        levels = readable_count(len(self.levels), "level")
        before = f"; {readable_count(self.resumed, 'block')} from before" if self.resumed else ""
        return (
            f"Converted in {self.seconds:.1f} s: {self.facts}, {levels}, "
            f"{readable_bytes(self.stored)} on disk{before}"
        )


def convert(
    scan: str | os.PathLike[str] | Volume,
    path: str | os.PathLike[str],
    *,
    series: int | str | None = None,
    resample: bool = False,
    at: Sequence[str] = (),
    voxel_size: str = "",
    trust: bool = False,
    memory_budget: float | None = None,
    overwrite: bool = False,
    on_event: Callable[[Event], None] | None = None,
) -> Converted:
    """Write a scan of any format as OME-Zarr, with levels of lower resolution for viewing.

    Only a layer of slices is in memory at a time. The folder has its name when it is complete; what
    was killed on the way goes on from the blocks that it had written.

    Parameters
    ----------
    scan : str, path-like or Volume
        What `hushpore.read` takes; or a volume, whose values may lie on disk.
    path : str or path-like
        A folder whose name ends in ``.zarr``, usually ``.ome.zarr``.
    series : int or str, optional
        Which of several image stacks, as for `hushpore.read`; else the largest.
    resample, at, voxel_size, trust : optional
        How it is read, see `hushpore.runs.scan_recipe.ScanRecipe`.
    memory_budget : float, optional
        GB that reading and writing may take beside the program itself; by default a quarter of what
        is free.
    overwrite : bool, optional
        Replace an OME-Zarr folder of that name.
    on_event : callable, optional
        Called with every event, in this thread.

    Returns
    -------
    Converted
        With ``path``, ``facts`` and ``levels``.

    Raises
    ------
    InputError
        If there is nothing to read, or it is damaged.
    OutputError
        If it cannot be written there.
    MemoryLimitError
        If not even a slice fits into the memory.
    MissingPackageError
        If zarr is not installed.
    """
    reading = ScanRecipe(
        "", "" if series is None else str(series), resample, tuple(at), voxel_size, trust
    )
    return result_of(converting(scan, path, reading, memory_budget, overwrite), on_event)


def converting(
    scan: str | os.PathLike[str] | Volume,
    path: str | os.PathLike[str],
    reading: ScanRecipe | None = None,
    memory_budget: float | None = None,
    overwrite: bool = False,
    *,
    others: Iterable[Path] = (),
) -> Conversion:
    """Do what `convert` does as a job; closing it leaves nothing behind.

    Where it cannot be written is said at once, before the job begins.

    `reading`: how the scan is read, whatever its path. `others`: what is written beside it.
    """
    import_zarr()
    target = check_target(path, overwrite, suffixes=EXPORTERS["ome-zarr"].endings)
    require_apart([target, *others], [scan.source if isinstance(scan, Volume) else scan])
    memory = _memory(memory_budget)

    def work() -> Conversion:
        timer = StageTimer()
        with timer.stage("reading headers"):
            volume, known = yield from _opened(scan, reading or ScanRecipe(""))
        require_content(volume)
        for note in volume.notes:
            yield Note(note)
        key = {"hushpore": __version__, "source": known, "name": volume.name}
        with resumable_directory(target, key, overwrite, require_zarr) as begun:
            labels = looks_like_labels(volume)
            image = ZarrImage.begin(begun.content, volume, are_labels=labels, memory=memory)
            n_present = yield from write_blocks(image, volume.data, timer)
            stored = sum(file.stat().st_size for file in begun.content.rglob("*") if file.is_file())
        levels = tuple(tuple(map(int, level.shape)) for level in image.levels)
        return Converted(target, volume.facts, levels, stored, n_present, timer.timing().elapsed)

    return work()


def _memory(budget: float | None) -> float:
    if budget is None:
        return max(MEMORY, _SHARE * free_memory())
    if not budget > 0 or not math.isfinite(budget):
        raise InputError(f"The memory budget must be above 0 GB; got {budget:g}.")
    return 1e9 * budget


def _opened(
    scan: str | os.PathLike[str] | Volume, reading: ScanRecipe
) -> Generator[Progress, None, tuple[Volume, dict[str, Any]]]:
    """Return the volume, its values left on disk, and what tells it from another."""
    if isinstance(scan, Volume):
        # arrays have no stamp that tells whether they have changed: nothing is gone on with
        return reading.arrange(scan), {"volume": uuid.uuid4().hex}
    known = dataclasses.replace(reading, path=str(scan)).to_dict()
    volumes = yield from load(scan, lazy=True, trust=reading.trust)
    chosen = choose(volumes, reading.series)
    others = [volume.name for volume in volumes if volume is not chosen]
    if others and not reading.series:
        note = (
            f"The largest of {len(volumes)} image stacks was taken. The others: "
            f"{', '.join(others)}; name one with series."
        )
        chosen = dataclasses.replace(chosen, notes=[note, *chosen.notes])
    return reading.arrange(chosen), known
