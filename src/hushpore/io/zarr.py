"""Writing of OME-Zarr images (NGFF 0.5) with pyramids, block by block or as a whole."""

from __future__ import annotations

import itertools
import math
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hushpore.base.errors import HushporeError, InputError, MemoryLimitError, import_optional
from hushpore.base.events import Progress, Timing, result_of
from hushpore.base.formatting import FULL, file_name, readable_bytes
from hushpore.device.timing import StageTimer
from hushpore.io.lazy_arrays import chunk_depth, in_native_order
from hushpore.io.output_target import check_target, new_directory, require_zarr
from hushpore.io.undefined import value_metadata

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

    from hushpore.base.arrays import Array, Float64s
    from hushpore.base.volume import Volume

    #: A part of an array: indices on the leading axes, and slices on the spatial axes.
    Block: TypeAlias = tuple[int | slice, ...]
    #: A job that yields `Progress` and `Timing`, and returns a number of blocks.
    Writing: TypeAlias = Generator[Progress | Timing, None, int]


VERSION = "0.5"
#: Default memory limit for writing, in bytes.
MEMORY = 600_000_000
_CHUNK = 64  # edge length of a chunk, in voxels
#: Edge length of a block in y and x, a multiple of the denoiser's tiles; in z it is one chunk.
_BLOCK = 512
_SMALLEST = 256  # largest edge length of the coarsest level, in pixels
#: Bytes per reading step of a lazy array, after which the job can be cancelled.
_PIECE = 32_000_000
#: Fraction of the work for the finest level.
_FINEST = 0.7
#: Largest length of the folder name of labels; safe for all scripts and file systems.
_LONGEST = 60


def import_zarr() -> ModuleType:
    """Import the optional package zarr; raises MissingPackageError if it is not installed."""
    return import_optional("zarr", "OME-Zarr", "zarr")


@dataclass(frozen=True, eq=False)
class ZarrImage:
    """Arrays of all resolution levels of an image, the finest first."""

    # each level halves the axes that were finest in the previous one
    levels: tuple[Any, ...]
    n_spatial: int  # number of spatial axes, 2 or 3
    are_labels: bool  # whether values are labels, which must not be averaged

    @classmethod
    def create(
        cls, group: Any, volume: Volume, name: str, *, are_labels: bool, memory: float = MEMORY
    ) -> ZarrImage:
        """Create the empty arrays of all levels, and write their metadata.

        `volume`: gives shape, data type and geometry; its values are not used. `memory`: memory
        limit for a layer of blocks and its encoding, in bytes; determines the size of the blocks.
        Raises MemoryLimitError if not even one slice fits.
        """
        shape, scale = volume.shape, np.ones(volume.n_spatial)
        levels = [_create(group, 0, shape, volume, memory)]
        places = [_transformations(volume, scale, are_labels)]
        while max(shape[-volume.n_spatial :]) > _SMALLEST:
            spatial = shape[-volume.n_spatial :]
            # halve the finest axes, so that voxels become more isotropic
            steps = list(zip(np.asarray(volume.spacing) * scale, spatial, strict=True))
            finest = min(step for step, n in steps if n > 1)
            factors = [2 if n > 1 and step < 2 * finest else 1 for step, n in steps]
            divided = (n // f for n, f in zip(spatial, factors, strict=True))
            shape = (*shape[: -volume.n_spatial], *divided)
            scale = scale * factors
            levels.append(_create(group, len(levels), shape, volume, memory))
            places.append(_transformations(volume, scale, are_labels))
        # all keys at once, so that an interruption cannot leave only some of them
        group.update_attributes(_attributes(volume, name, places, are_labels))
        return cls(tuple(levels), volume.n_spatial, are_labels)

    @classmethod
    def begin(
        cls, path: str | Path, volume: Volume, *, are_labels: bool, memory: float = MEMORY
    ) -> ZarrImage:
        """Open the partial image of an earlier run, or create it as `create` does.

        The image has the name of the volume.
        """
        zarr = import_zarr()
        # the metadata of the group are written last
        if "ome" in zarr.open_group(str(path), mode="a").attrs:
            return cls.open(path)
        group = zarr.open_group(str(path), mode="w", zarr_format=3)
        return cls.create(group, volume, volume.name, are_labels=are_labels, memory=memory)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> ZarrImage:
        """Open an image made by `create`, to write blocks into it."""
        group = import_zarr().open_group(str(path), mode="r+")
        image = group.attrs["ome"]["multiscales"][0]
        levels = tuple(group[dataset["path"]] for dataset in image["datasets"])
        n_spatial = sum(axis["type"] == "space" for axis in image["axes"])
        return cls(levels, n_spatial, group.attrs["hushpore"]["means"] is False)

    @property
    def depth(self) -> int:
        """Number of slices in a layer of blocks of the finest level."""
        return int(self.levels[0].shards[-3]) if self.n_spatial == 3 else 1

    def blocks(self, level: int = 0) -> Iterator[Block]:
        """Yield the blocks of a level, in C order; they cover it exactly once."""
        array, spatial = self.levels[level], range(-self.n_spatial, 0)
        cuts = [range(0, array.shape[axis], array.shards[axis]) for axis in spatial]
        for leading in np.ndindex(array.shape[: -self.n_spatial]):
            for starts in itertools.product(*cuts):
                where = (
                    slice(start, min(start + array.shards[axis], array.shape[axis]))
                    for axis, start in zip(spatial, starts, strict=True)
                )
                yield (*leading, *where)

    def is_written(self, block: Block, level: int = 0) -> bool:
        """Return whether a block is completely written."""
        array = self.levels[level]
        place = [
            each if isinstance(each, int) else each.start // shard
            for each, shard in zip(block, array.shards, strict=True)
        ]
        # complete files are renamed to their final name; a power failure can leave an empty file
        file = Path(array.store.root, array.path, "c", *map(str, place))
        return file.is_file() and file.stat().st_size > 0

    def reduce(self, level: int, block: Block) -> None:
        """Write a block of a coarser level: mean of neighbours, or the first voxel for labels.

        A last odd slice, row or column of the finer level is dropped.
        """
        finer, array, n_spatial = self.levels[level - 1], self.levels[level], self.n_spatial
        leading, where = block[:-n_spatial], block[-n_spatial:]
        starts = [each.start for each in where if isinstance(each, slice)]
        sizes = [each.stop - each.start for each in where if isinstance(each, slice)]
        both = zip(finer.shape[-n_spatial:], array.shape[-n_spatial:], strict=True)
        factors = [1 if n == m else 2 for n, m in both]
        values = np.empty(sizes, array.dtype)
        # one quarter at a time, because the finer level has up to eight times as many voxels
        halves = [*sizes[:-2], *(max(1, math.ceil(n / 2)) for n in sizes[-2:])]
        cuts = (
            [slice(start, min(start + step, n)) for start in range(0, n, step)]
            for n, step in zip(sizes, halves, strict=True)
        )
        for part in itertools.product(*cuts):
            wanted = tuple(
                slice((start + each.start) * f, (start + each.stop) * f)
                for each, start, f in zip(part, starts, factors, strict=True)
            )
            values[part] = reduced(np.asarray(finer[(*leading, *wanted)]), factors, self.are_labels)
        array[block] = values


def reduced(values: Array, factors: Sequence[int], are_labels: bool) -> Array:
    """Return the means of two neighbours (labels: the first) along axes with factor 2.

    `values`: one axis per factor. `factors`: 1 or 2 for each axis; must divide its length.
    """
    exact = np.float32 if values.dtype.itemsize <= 2 or values.dtype == np.float32 else np.float64
    result = values
    for axis, factor in enumerate(factors):
        if factor == 1:
            continue
        first, second = (
            result[(slice(None),) * axis + (slice(start, None, 2),)] for start in (0, 1)
        )
        if are_labels:
            result = first
        else:
            result = first.astype(exact)
            result += second
            result /= 2
    if not are_labels and values.dtype.kind in "iu":
        result = np.rint(result)
    return result.astype(values.dtype, copy=False)


def _create(group: Any, number: int, shape: tuple[int, ...], volume: Volume, memory: float) -> Any:
    from zarr.codecs import BloscCodec

    dtype = volume.dtype.newbyteorder("=")
    chunks, shards = _layout(shape, dtype, volume.n_spatial, memory)
    return group.create_array(
        str(number),
        shape=shape,
        chunks=chunks,
        shards=shards,
        dtype=dtype,
        dimension_names=list(volume.axes),
        # compresses noisy grey values as well as slower codecs, and labels to nearly nothing, in
        # 0.6 of the time of Zstandard
        compressors=BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle"),
        # also write blocks of zeros, so that a missing file means an unwritten block
        config={"write_empty_chunks": True},
    )


def _layout(
    shape: tuple[int, ...], dtype: np.dtype[Any], n_spatial: int, memory: float
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of chunks and blocks for writing within the memory limit."""
    plane, depth = shape[-1] * shape[-2] * dtype.itemsize, _CHUNK if n_spatial == 3 else 1
    while depth > 1 and depth * plane > memory / 2:
        depth //= 2
    if depth * plane > memory / 2:
        raise MemoryLimitError(
            f"Writing needs memory for two slices of {readable_bytes(plane)} each, but the limit "
            f"is {readable_bytes(memory)}. Allow more memory, or crop the scan."
        )
    edge, high = _BLOCK, min(depth, shape[-3]) if n_spatial == 3 else 1
    # encoding a block needs several times its size
    while edge > _CHUNK and high * edge**2 * dtype.itemsize > memory / 8:
        edge //= 2
    largest = (*(1,) * (len(shape) - n_spatial), depth, edge, edge)[-len(shape) :]
    chunks = tuple(min(_CHUNK, most, n) for most, n in zip(largest, shape, strict=True))
    shards = tuple(
        min(most // chunk, math.ceil(n / chunk)) * chunk
        for most, chunk, n in zip(largest, chunks, shape, strict=True)
    )
    return chunks, shards


def _transformations(volume: Volume, scale: Float64s, are_labels: bool) -> list[dict[str, Any]]:
    leading = len(volume.leading_shape)
    steps = np.asarray(volume.spacing) * scale
    # the mean of two voxels is located between them
    shift = 0 if are_labels else (scale - 1) / 2 * np.asarray(volume.spacing)
    places = np.asarray(volume.origin) + shift
    return [
        {"type": "scale", "scale": [*[1.0] * leading, *map(float, steps)]},
        {"type": "translation", "translation": [*[0.0] * leading, *map(float, places)]},
    ]


def _attributes(
    volume: Volume, name: str, places: list[list[dict[str, Any]]], are_labels: bool
) -> dict[str, Any]:
    """Return the metadata of an image in NGFF 0.5."""
    kinds = {"t": "time", "c": "channel"}
    axes: list[dict[str, str]] = []
    for letter in volume.axes:
        axis = {"name": letter, "type": kinds.get(letter, "space")}
        if letter in "zyx" and volume.unit in FULL:
            axis["unit"] = FULL[volume.unit]
        axes.append(axis)
    image = {
        "name": name,
        "axes": axes,
        "datasets": [
            {"path": str(number), "coordinateTransformations": place}
            for number, place in enumerate(places)
        ],
    }
    ours = {
        "axes": volume.axes,
        "source": volume.source,
        "notes": list(volume.notes),
        # whether coarser levels contain means, or single voxels as for labels
        "means": not are_labels,
        **value_metadata(volume.metadata),
    }
    return {"ome": {"version": VERSION, "multiscales": [image]}, "hushpore": ours}


def write_zarr(
    path: str | os.PathLike[str],
    volume: Volume,
    *,
    labels: Mapping[str, Volume] | None = None,
    overwrite: bool = False,
    memory: float = MEMORY,
    ready: Callable[[], None] | None = None,
) -> Path:
    """Write a volume as an OME-Zarr image (NGFF 0.5, Zarr 3), atomically.

    Values, axes, spacing, unit, origin and value metadata (`hushpore.io.undefined`) survive a
    round trip through `hushpore.read`. Levels of half the resolution are added until the coarsest
    is at most 256 pixels wide. A lazy volume is read one layer of blocks at a time.

    `path`: a folder, usually named ``.ome.zarr``. `volume`: 2D or 3D, with or without leading axes;
    with ``metadata["labels"]`` it is marked as labels. `labels`: integers of the same shape by
    name, written into the group ``labels``; characters that are invalid in folder names are
    replaced, but `hushpore.read` returns the original names. `overwrite`: replace an existing
    OME-Zarr folder. `memory`: memory limit for reading and writing, without the volume itself, in
    bytes. `ready`: called when the folder is complete, just before it gets its name.
    Returns: the folder.
    Raises OutputError if it cannot be written (without partial files); InputError if the volume is
    empty or the labels do not match it; MemoryLimitError if not even one slice fits into memory;
    MissingPackageError if zarr is not installed.
    """
    zarr = import_zarr()
    labels = labels or {}
    for name, each in labels.items():
        if each.shape != volume.shape or each.dtype.kind not in "iub":
            raise InputError(
                f"The labels {name} ({each.facts}) do not match the image ({volume.facts}). Give "
                "integers of the same shape."
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
    """Write the values of an image and its coarser levels, as a job; existing blocks are kept.

    `data`: array of the shape of the image; a lazy array is read a few slices at a time. `timer`:
    records the time for reading and writing.
    Returns: number of blocks of the finest level that existed already.
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
            del layer  # free its memory for the next one
        done += _length(where)
        yield timer.timing()
    return n_present


def _progress(done: float, total: int) -> Progress:
    return Progress("converting", round(done), total, "slices", _FINEST * done / total)


def _read_layer(
    data: Any, where: Block, timer: StageTimer, done: int, total: int
) -> Generator[Progress, None, Any]:
    """Return a layer of blocks; a lazy array is read a few slices at a time."""
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
    """Convert an OSError into an InputError: inside the block, errors are of reading."""
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
