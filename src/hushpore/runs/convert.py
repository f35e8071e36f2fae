"""Conversion of scans of any format to OME-Zarr, in slabs: also of scans larger than memory."""

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
from hushpore.io.guards import free_memory
from hushpore.io.loading import choose, load
from hushpore.io.output_target import check_target, require_apart, require_zarr, resumable_directory
from hushpore.io.registry import EXPORTERS
from hushpore.io.undefined import with_fill_value
from hushpore.io.zarr import (
    MEMORY,
    ZarrImage,
    import_zarr,
    looks_like_labels,
    require_content,
    write_blocks,
)
from hushpore.runs.reading import Reading
from hushpore.runs.scan_recipe import ScanRecipe

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterable
    from pathlib import Path

    from hushpore.base.events import Event

    #: Yields events and returns the conversion.
    Conversion: TypeAlias = Generator[Event, None, "Converted"]

#: Default share of the free memory; more than a slab is of no use.
_SHARE = 0.25


@dataclass(frozen=True)
class Converted:
    """A scan that was written as OME-Zarr."""

    path: Path  # the folder
    facts: str  # shape, voxel size, data type and size
    levels: tuple[tuple[int, ...], ...]  # shapes of the levels, the finest first
    stored: int  # bytes on disk
    resumed: int  # blocks written by an earlier, interrupted run
    seconds: float  # duration

    @property
    def summary(self) -> str:
        """The result in one sentence."""
        levels = readable_count(len(self.levels), "level")
        resumed = readable_count(self.resumed, "block")
        before = f"; {resumed} from an earlier run" if self.resumed else ""
        return (
            f"Converted in {self.seconds:.1f} s: {self.facts}, {levels}, "
            f"{readable_bytes(self.stored)} on disk{before}"
        )


def convert(
    scan: str | os.PathLike[str] | Volume,
    path: str | os.PathLike[str],
    *,
    memory_budget: float | None = None,
    overwrite: bool = False,
    on_event: Callable[[Event], None] | None = None,
    **reading: Any,
) -> Converted:
    """Convert a scan of any format to OME-Zarr, with levels of lower resolution for viewing.

    Only a slab of slices is in memory at a time. The folder gets its name once it is complete; an
    interrupted conversion resumes from the blocks that it has written.

    Parameters
    ----------
    scan : str, path-like or Volume
        A path as for `hushpore.read`, or a volume, which may be lazy (memory-mapped or chunked).
    path : str or path-like
        A folder whose name ends in ``.zarr``, usually ``.ome.zarr``.
    memory_budget : float, optional
        Memory in GB for reading and writing, beside the program itself; by default a quarter of
        the free memory.
    overwrite : bool, optional
        Replace an OME-Zarr folder of that name.
    on_event : callable, optional
        Called with each event, in this thread.
    **reading
        How the scan is read, see `hushpore.runs.reading.Reading`; among them ``series``, ``at``,
        ``voxel_size``, ``crop`` and ``bin``.

    Returns
    -------
    Converted
        With ``path``, ``facts`` and ``levels``.

    Raises
    ------
    InputError
        If there is no scan, or it is damaged.
    OutputError
        If it cannot be written there.
    MemoryLimitError
        If a single slice does not fit into memory.
    MissingPackageError
        If zarr is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import hushpore
    >>> scan = hushpore.Volume(np.zeros((4, 8, 8), np.uint8), spacing=(2, 1, 1), unit="um")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = hushpore.convert(scan, Path(folder) / "scan.ome.zarr")
    ...     hushpore.read(written.path).spacing
    (2.0, 1.0, 1.0)
    """
    if "series" in reading:
        # a number, too
        reading["series"] = "" if reading["series"] is None else str(reading["series"])
    how = Reading.of(reading)
    return result_of(converting(scan, path, how, memory_budget, overwrite), on_event)


def converting(
    scan: str | os.PathLike[str] | Volume,
    path: str | os.PathLike[str],
    reading: Reading | None = None,
    memory_budget: float | None = None,
    overwrite: bool = False,
    *,
    others: Iterable[Path] = (),
    fill_undefined: bool = False,
) -> Conversion:
    """Convert as `convert` does, as a job; closing it removes partial files.

    Errors about the output are raised by this call, before the job starts.

    `reading`: how the scan is read. `others`: further files to be written.
    `fill_undefined`: replace NaN as `hushpore.io.undefined.with_fill_value` does.
    """
    import_zarr()
    target = check_target(path, overwrite, suffixes=EXPORTERS["ome-zarr"].endings)
    require_apart([target, *others], [scan.source if isinstance(scan, Volume) else scan])
    memory = _memory(memory_budget)

    def work() -> Conversion:
        timer = StageTimer()
        with timer.stage("reading headers"):
            volume, known = yield from _opened(scan, reading or Reading())
            if fill_undefined:
                volume = with_fill_value(volume)
        require_content(volume)
        for note in volume.notes:
            yield Note(note)
        key = {"hushpore": __version__, "source": known, "name": volume.name}
        with resumable_directory(target, key, overwrite, require_zarr) as unfinished:
            labels = looks_like_labels(volume)
            image = ZarrImage.begin(unfinished.content, volume, are_labels=labels, memory=memory)
            n_present = yield from write_blocks(image, volume.data, timer)
            files = [file for file in unfinished.content.rglob("*") if file.is_file()]
            stored = sum(file.stat().st_size for file in files)
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
    scan: str | os.PathLike[str] | Volume, how: Reading
) -> Generator[Progress, None, tuple[Volume, dict[str, Any]]]:
    """Return the scan as a lazy volume, and a key that identifies it."""
    path = "" if isinstance(scan, Volume) else str(scan)
    reading = ScanRecipe.read_as(path, how)
    if isinstance(scan, Volume):
        # changes of an array go unnoticed, so its conversion cannot resume
        return reading.arrange(scan), {"volume": uuid.uuid4().hex}
    known = reading.to_dict()
    volumes = yield from load(scan, lazy=True, trust=reading.trust)
    chosen = choose(volumes, reading.series)
    others = [volume.name for volume in volumes if volume is not chosen]
    if others and not reading.series:
        note = (
            f"The largest of {len(volumes)} image stacks was converted. Choose another with series "
            f"({', '.join(others)})."
        )
        chosen = dataclasses.replace(chosen, notes=[note, *chosen.notes])
    return reading.arrange(chosen), known
