"""OME-Zarr images (NGFF 0.5): laid out, written block by block or whole, with their pyramids."""

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
from hushpore.base.formatting import FULL, readable_bytes
from hushpore.base.safe_text import file_name
from hushpore.device.timing import StageTimer
from hushpore.io.lazy_arrays import chunk_depth, in_native_order
from hushpore.io.output_target import check_target, new_directory, require_zarr
from hushpore.io.value_metadata import value_metadata

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from types import ModuleType

    import numpy.typing as npt

    from hushpore.base.volume import Volume

    #: A part of an array: an index of the leading axes, and slices of those in space.
    Block: TypeAlias = tuple[int | slice, ...]
    #: A job that yields `Progress` and `Timing`, and returns a number of blocks.
    Writing: TypeAlias = Generator[Progress | Timing, None, int]

VERSION = "0.5"
#: Bytes that writing may take where nothing else is said.
MEMORY = 600_000_000
_CHUNK = 64  # edge of a chunk, which is read at once
#: Edge of a block in y and x, in z it is a chunk deep: a multiple of the denoiser's tiles.
_BLOCK = 512
_SMALLEST = 256  # pixels of the coarsest level
#: Bytes that are read at once of what lies on disk, so that it can be cancelled meanwhile.
_PIECE = 32_000_000
#: Share of the work that is over when the finest level is written.
_FINEST = 0.7
#: Characters of the folder of labels at most; of whatever script, a file system takes that many.
_LONGEST = 60


def import_zarr() -> ModuleType:
    """Import zarr, which the library works without until OME-Zarr is met.

    Raises MissingPackageError if it is not installed.
    """
    return import_optional("zarr", "OME-Zarr", "zarr")


@dataclass(frozen=True, eq=False)
class ZarrImage:
    """The arrays of an image, the finest first."""

    # each half as fine as the one before, along the axes that were finest there
    levels: tuple[Any, ...]
    n_spatial: int  # how many of the last axes are in space, 2 or 3
    are_labels: bool  # whether values are classes or numbers of pores, which have no mean

    @classmethod
    def create(
        cls, group: Any, volume: Volume, name: str, *, are_labels: bool, memory: float = MEMORY
    ) -> ZarrImage:
        """Make the arrays of all levels, empty, and write what is to be known of them.

        `volume`: its shape, type and place; the values are not looked at. A boolean one is kept as
        it is. `memory`: bytes that a layer of blocks may take, and what it is encoded in; decides
        on their size.
        Raises MemoryLimitError if not even a slice fits.
        """
        shape, scale = volume.shape, np.ones(volume.n_spatial)
        levels = [_create(group, 0, shape, volume, memory)]
        places = [_transformations(volume, scale, are_labels)]
        while max(shape[-volume.n_spatial :]) > _SMALLEST:
            spatial = shape[-volume.n_spatial :]
            # axes that are finest are halved, so that voxels become cubes
            steps = list(zip(np.asarray(volume.spacing) * scale, spatial, strict=True))
            finest = min(step for step, n in steps if n > 1)
            factors = [2 if n > 1 and step < 2 * finest else 1 for step, n in steps]
            divided = (n // f for n, f in zip(spatial, factors, strict=True))
            shape = (*shape[: -volume.n_spatial], *divided)
            scale = scale * factors
            levels.append(_create(group, len(levels), shape, volume, memory))
            places.append(_transformations(volume, scale, are_labels))
        # at once: a key after the other could be broken off between two
        group.update_attributes(_attributes(volume, name, places, are_labels))
        return cls(tuple(levels), volume.n_spatial, are_labels)

    @classmethod
    def begin(
        cls, path: str | Path, volume: Volume, *, are_labels: bool, memory: float = MEMORY
    ) -> ZarrImage:
        """Open the image in a folder that an earlier run has begun, or make it there; as `create`.

        It has the name of the volume.
        """
        zarr = import_zarr()
        # the metadata of the group are written last
        if "ome" in zarr.open_group(str(path), mode="a").attrs:
            return cls.open(path)
        group = zarr.open_group(str(path), mode="w", zarr_format=3)
        return cls.create(group, volume, volume.name, are_labels=are_labels, memory=memory)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> ZarrImage:
        """Open an image that `create` made, to write blocks into it."""
        group = import_zarr().open_group(str(path), mode="r+")
        image = group.attrs["ome"]["multiscales"][0]
        levels = tuple(group[dataset["path"]] for dataset in image["datasets"])
        n_spatial = sum(axis["type"] == "space" for axis in image["axes"])
        return cls(levels, n_spatial, group.attrs["hushpore"]["means"] is False)

    @property
    def depth(self) -> int:
        """Slices of a layer of blocks of the finest level."""
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
        """Whether a block is on disk, whole."""
        array = self.levels[level]
        place = [
            each if isinstance(each, int) else each.start // shard
            for each, shard in zip(block, array.shards, strict=True)
        ]
        # the file is renamed to its name when it is complete; one without content is what a
        # machine leaves that lost its power
        file = Path(array.store.root, array.path, "c", *map(str, place))
        return file.is_file() and file.stat().st_size > 0

    def reduce(self, level: int, block: Block) -> None:
        """Write a block of a level from the one before: means of neighbours, of labels the first.

        A last odd slice, row or column of the finer level is left out.
        """
        finer, array, n_spatial = self.levels[level - 1], self.levels[level], self.n_spatial
        leading, where = block[:-n_spatial], block[-n_spatial:]
        starts = [each.start for each in where if isinstance(each, slice)]
        sizes = [each.stop - each.start for each in where if isinstance(each, slice)]
        both = zip(finer.shape[-n_spatial:], array.shape[-n_spatial:], strict=True)
        factors = [1 if n == m else 2 for n, m in both]
        values = np.empty(sizes, array.dtype)
        # a quarter at a time, of which the finer level has up to eight times as many voxels
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


def reduced(values: npt.NDArray[Any], factors: Sequence[int], are_labels: bool) -> npt.NDArray[Any]:
    """Return every second voxel, or the mean of neighbours, along axes whose factor is 2.

    `values`: as many axes as there are factors. `factors`: 1 or 2 for each axis; the length along
    it is a multiple.
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
        # of noisy grey values as much as slower ones leave, and of labels nearly nothing; read and
        # written in 0.6 of the time that Zstandard takes
        compressors=BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle"),
        # a block of zeros is there too, so that what is missing is known to be not written
        config={"write_empty_chunks": True},
    )


def _layout(
    shape: tuple[int, ...], dtype: np.dtype[Any], n_spatial: int, memory: float
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of chunks and of blocks, so that writing takes no more than the memory."""
    plane, depth = shape[-1] * shape[-2] * dtype.itemsize, _CHUNK if n_spatial == 3 else 1
    while depth > 1 and depth * plane > memory / 2:
        depth //= 2
    if depth * plane > memory / 2:
        raise MemoryLimitError(
            f"A slice takes {readable_bytes(plane)}, and twice that is needed; "
            f"{readable_bytes(memory)} of memory are too little."
        )
    edge, high = _BLOCK, min(depth, shape[-3]) if n_spatial == 3 else 1
    # encoding a block takes some times its size
    while edge > _CHUNK and high * edge**2 * dtype.itemsize > memory / 8:
        edge //= 2
    largest = (*(1,) * (len(shape) - n_spatial), depth, edge, edge)[-len(shape) :]
    chunks = tuple(min(_CHUNK, most, n) for most, n in zip(largest, shape, strict=True))
    shards = tuple(
        min(most // chunk, math.ceil(n / chunk)) * chunk
        for most, chunk, n in zip(largest, chunks, shape, strict=True)
    )
    return chunks, shards


def _transformations(
    volume: Volume, scale: npt.NDArray[np.float64], are_labels: bool
) -> list[dict[str, Any]]:
    leading = len(volume.leading_shape)
    steps = np.asarray(volume.spacing) * scale
    # the mean of two voxels lies between them
    shift = 0 if are_labels else (scale - 1) / 2 * np.asarray(volume.spacing)
    places = np.asarray(volume.origin) + shift
    return [
        {"type": "scale", "scale": [*[1.0] * leading, *map(float, steps)]},
        {"type": "translation", "translation": [*[0.0] * leading, *map(float, places)]},
    ]


def _attributes(
    volume: Volume, name: str, places: list[list[dict[str, Any]]], are_labels: bool
) -> dict[str, Any]:
    """Return the metadata of an image by NGFF 0.5."""
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
        # coarse levels hold means; or the values of some voxels, where there is no mean
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
    """Write a volume as an OME-Zarr image (NGFF 0.5, Zarr 3), complete or not there at all.

    Values, axes, spacing, unit, origin and what is known of values (`hushpore.io.value_metadata`)
    survive a round trip through `hushpore.read`. Levels of half the resolution are added until the
    largest is no wider than 256 pixels. What lies on disk is read a layer of blocks at a time.

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
