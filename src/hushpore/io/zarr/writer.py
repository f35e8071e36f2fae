"""Volumes to OME-Zarr (NGFF 0.5): sharded, a pyramid, and labels beside the image."""

from __future__ import annotations

import itertools
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.events import Progress, Timing, result_of
from hushpore.base.text import file_name
from hushpore.device.timing import StageTimer
from hushpore.io.slabs import chunk_depth, in_native_order
from hushpore.io.target import check_target, new_directory, require_zarr
from hushpore.io.zarr.image import MEMORY, VERSION, ZarrImage, import_zarr

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
    from pathlib import Path

    from hushpore.base.volume import Volume
    from hushpore.io.zarr.image import Block

    #: A job that yields `Progress` and `Timing`, and returns a number of blocks.
    Writing: TypeAlias = Generator[Progress | Timing, None, int]

#: Bytes that are read at once of what lies on disk, so that it can be cancelled meanwhile.
_PIECE = 32_000_000
#: Share of the work that is over when the finest level is written.
_FINEST = 0.7
#: Characters of the folder of labels at most; of whatever script, a file system takes that many.
_LONGEST = 60


def write_zarr(
    path: str | os.PathLike[str],
    volume: Volume,
    *,
    labels: Mapping[str, Volume] | None = None,
    overwrite: bool = False,
    memory: float = MEMORY,
    ready: Callable[[], None] | None = None,
) -> Path:
    """Write a volume as an OME-Zarr image (NGFF 0.5, Zarr 3), complete or not there at all.

    Values, axes, spacing, unit, origin and what is known of values (`hushpore.io.known`) survive a
    round trip through `hushpore.read`. Levels of half the resolution are added until the largest
    is no wider than 256 pixels. What lies on disk is read a layer of blocks at a time.

    `path`: a folder, usually named ``.ome.zarr``. `volume`: 2D or 3D, with leading axes or without.
    With ``metadata["labels"]`` it is opened as labels. `labels`: integers of the same shape,
    written into the group ``labels`` under these names; what no file system takes is replaced in
    those of the folders, and read here they have the names that were given. `overwrite`: replace
    an OME-Zarr folder of that name. `memory`: bytes that reading and writing may take beside the
    volume itself. `ready`: called when it is complete, and just about to get its name.
    Returns: the folder.
    Raises OutputError if it cannot be written; nothing is left behind then; InputError if the
    volume is empty, or labels do not fit it; MemoryLimitError if not even a slice fits into the
    memory; MissingPackageError if zarr is not installed.
    """
    zarr = import_zarr()
    labels = labels or {}
    for name, each in labels.items():
        if each.shape != volume.shape or each.dtype.kind not in "iub":
            raise InputError(
                f"The labels {name} ({each.facts}) do not fit the image ({volume.facts}): integers "
                "of the same shape are expected."
            )
    require_content(volume)
    target = check_target(path, overwrite, replaceable=require_zarr)
    with new_directory(target, overwrite, replaceable=require_zarr) as part:
        group = zarr.open_group(str(part), mode="w", zarr_format=3)
        image = ZarrImage.create(
            group, volume, volume.name, are_labels=looks_like_labels(volume), memory=memory
        )
        result_of(write_blocks(image, volume.data))
        if labels:
            inner = group.create_group("labels")
            keys = _keys(labels)
            inner.attrs["ome"] = {"version": VERSION, "labels": keys}
            for key, (name, each) in zip(keys, labels.items(), strict=True):
                whole = each
                if each.dtype.kind == "b":
                    whole = each.replace(np.asarray(each.data).view(np.uint8))
                own = ZarrImage.create(
                    inner.create_group(key), whole, name, are_labels=True, memory=memory
                )
                known = inner[key].attrs["ome"]
                known["image-label"] = {"source": {"image": "../../"}}
                inner[key].attrs["ome"] = known
                result_of(write_blocks(own, whole.data))
        if ready is not None:
            ready()
    return target


def _keys(names: Iterable[str]) -> list[str]:
    """Return a folder for each name: one that any system takes, and that is no other's on any."""
    taken, keys = {"zarr.json"}, []
    for name in names:
        stem = file_name(name)[:_LONGEST].strip(". ") or "labels"
        numbered = (f"{stem} {number}" for number in itertools.count(2))
        key = next(k for k in itertools.chain([stem], numbered) if k.casefold() not in taken)
        taken.add(key.casefold())
        keys.append(key)
    return keys


def require_content(volume: Volume) -> None:
    """Refuse a volume without voxels.

    Raises InputError if it has none.
    """
    if 0 in volume.shape:
        raise InputError(f"{volume.name} is empty (shape {volume.shape}); nothing to write.")


def looks_like_labels(volume: Volume) -> bool:
    """Whether values are classes or numbers of pores, which have no mean."""
    is_wide = volume.dtype.kind in "iu" and volume.dtype.itemsize > 2
    return volume.holds_labels or volume.dtype.kind == "b" or is_wide


def write_blocks(image: ZarrImage, data: Any, timer: StageTimer | None = None) -> Writing:
    """Write the values of an image and its coarser levels, as a job; blocks that are there stay.

    `data`: of its shape; what lies on disk is read a few slices at a time. `timer`: told how long
    reading and writing take.
    Returns: how many blocks of the finest level were there already.
    """
    timer = timer or StageTimer()
    n_present = yield from _write_finest(image, data, timer)
    done, total = 0, sum(math.prod(level.shape) for level in image.levels[1:])
    for level in range(1, len(image.levels)):
        for block in image.blocks(level):
            if not image.is_written(block, level):
                with timer.stage("coarser levels"):
                    image.reduce(level, block)
            done += math.prod(each.stop - each.start for each in block if isinstance(each, slice))
            fraction = _FINEST + (1 - _FINEST) * done / total
            yield Progress("coarser levels", round(100 * done / total), 100, "%", fraction)
        yield timer.timing()
    return n_present


def _write_finest(image: ZarrImage, data: Any, timer: StageTimer) -> Writing:
    finest, n_present = image.levels[0], 0
    done, total = 0, math.prod(finest.shape[:-2])
    for where, members in itertools.groupby(image.blocks(), lambda block: block[:-2]):
        blocks = list(members)
        missing = [block for block in blocks if not image.is_written(block)]
        n_present += len(blocks) - len(missing)
        if missing:
            layer = yield from _read_layer(data, where, timer, done, total)
            for number, block in enumerate(missing, start=1):
                with timer.stage("writing") as run:
                    part = in_native_order(layer[(..., *block[-2:])])
                    run.nbytes = part.nbytes
                    finest[block] = part
                # reading counts as much as writing
                yield _progress(done + _length(where) * (1 + number / len(missing)) / 2, total)
            del layer  # its memory is needed for the next
        done += _length(where)
        yield timer.timing()
    return n_present


def _progress(done: float, total: int) -> Progress:
    return Progress("converting", round(done), total, "slices", _FINEST * done / total)


def _read_layer(
    data: Any, where: Block, timer: StageTimer, done: int, total: int
) -> Generator[Progress, None, Any]:
    """Return a layer of blocks; of what lies on disk some slices are read at a time."""
    last = where[-1] if where else 0
    if isinstance(data, np.ndarray) or not isinstance(last, slice):
        with timer.stage("reading") as run, _explain_reading():
            layer = data[where]
            run.nbytes = layer.nbytes
        return layer
    plane = math.prod(data.shape[-2:]) * np.dtype(data.dtype).itemsize
    own = chunk_depth(data, len(where) - 1)
    step = max(1, _PIECE // plane) if own == 1 else own
    layer = np.empty((last.stop - last.start, *data.shape[-2:]), data.dtype)
    for start in range(last.start, last.stop, step):
        stop = min(start + step, last.stop)
        with timer.stage("reading", nbytes=(stop - start) * plane), _explain_reading():
            layer[start - last.start : stop - last.start] = data[(*where[:-1], slice(start, stop))]
        yield _progress(done + (stop - last.start) / 2, total)
    return layer


@contextmanager
def _explain_reading() -> Iterator[None]:
    """Say of an error that it is one of reading: others here are of writing."""
    try:
        yield
    except HushporeError:
        raise
    except OSError as error:
        what = error.filename or "The volume"
        raise InputError(f"{what} cannot be read: {error.strerror or error}.") from error


def _length(where: Block) -> int:
    """Return the number of slices in a layer."""
    last = where[-1] if where else 0
    return last.stop - last.start if isinstance(last, slice) else 1
