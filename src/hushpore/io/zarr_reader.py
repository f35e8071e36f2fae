"""Reading of OME-Zarr (NGFF 0.1 to 0.5), with pyramids and labels."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import METRES, readable_count, readable_unit, unit_of
from hushpore.base.volume import Volume
from hushpore.io.folders import natural_key, shortened
from hushpore.io.guards import SMALL, explained_damage, limits_for
from hushpore.io.lazy_arrays import DiskArray
from hushpore.io.loading import with_own_names
from hushpore.io.undefined import unitless_notes, value_metadata
from hushpore.io.zarr import import_zarr

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hushpore.base.arrays import Array
    from hushpore.io.guards import InputLimits


_ORDER = "tczyx"
#: Largest cached layer of chunks, in bytes; the next slice then needs no decoding.
_KEPT = 256_000_000


class ZarrStack(DiskArray):
    """Lazy array of a Zarr array, read when indexed, or in whole chunks.

    `index`: applied first; drops axes of length one.
    `chunks`: shape of a chunk on the remaining axes.
    """

    def __init__(self, array: Any, index: tuple[int | slice, ...]) -> None:
        kept = [axis for axis, each in enumerate(index) if isinstance(each, slice)]
        super().__init__(tuple(int(array.shape[axis]) for axis in kept), array.dtype)
        self._array, self._index = array, index
        self.chunks: tuple[int, ...] = tuple(int(array.chunks[axis]) for axis in kept)
        self._lock = threading.Lock()
        self._kept_layer: tuple[Any, Array] | None = None

    @property
    def folder(self) -> Path | None:
        """OME-Zarr folder of the array; None if it is not in a folder."""
        root = getattr(self._array.store, "root", None)
        return Path(root) if root is not None else None

    def is_same_as(self, other: ZarrStack) -> bool:
        """Return whether both are the same array with the same axes."""
        mine, theirs = ((each._array.path, each.folder, each.shape) for each in (self, other))
        return mine == theirs

    def at_positions(self, key: tuple[int | slice, ...]) -> ZarrStack:
        """Return the array at positions on the leading axes, without reading it.

        `key`: one index or slice per axis; full slices on the spatial axes.
        """
        rest = iter(key)
        index = (next(rest) if isinstance(each, slice) else each for each in self._index)
        return ZarrStack(self._array, tuple(index))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a dask worker, without lock and cached values."""
        return {**self.__dict__, "_lock": None, "_kept_layer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def _read_part(self, keys: list[Any]) -> Array:
        axis = max(self.ndim - 3, 0)
        return self._from_kept_layer(keys, axis) if self.ndim > 2 else self._read(keys)

    def _from_kept_layer(self, keys: list[Any], axis: int) -> Array:
        """Read slices from their layer of chunks, and cache the layer for the next slices."""
        depth = self.chunks[axis]
        taken = np.arange(self.shape[axis])[keys[axis]]
        if depth == 1 or not taken.size or taken.min() // depth != taken.max() // depth:
            return self._read(keys)
        start = int(taken.min()) // depth * depth
        sizes = [
            len(range(n)[each]) if isinstance(each, slice) else 1
            for n, each in zip(self.shape, keys, strict=True)
        ]
        sizes[axis] = min(depth, self.shape[axis] - start)
        if math.prod(sizes) * self.dtype.itemsize > _KEPT:
            return self._read(keys)
        wanted = [*keys[:axis], slice(start, start + depth), *keys[axis + 1 :]]
        with self._lock:
            if self._kept_layer is None or self._kept_layer[0] != wanted:
                self._kept_layer = None
                self._kept_layer = wanted, self._read(wanted)
            layer = self._kept_layer[1]
        # axes indexed by an integer are dropped
        before = sum(isinstance(each, slice) for each in keys[:axis])
        values: Array = layer.take(taken - start, before)
        return values

    def _read(self, keys: list[Any], out: Array | None = None) -> Array:
        """Return the values at an index, in `out` if given."""
        rest = iter(keys)
        full = tuple(next(rest) if isinstance(i, slice) else i for i in self._index)
        with explained_damage(
            lambda error: InputError(
                f"A chunk of the Zarr array {self._array.path or '/'} is damaged "
                f"({type(error).__name__}). Copy or export the image again."
            ),
            IndexError,
            NotImplementedError,
        ):
            if out is None:
                return np.asarray(self._array[full])
            from zarr.buffer.cpu import NDBuffer

            self._array.get_basic_selection(full, out=NDBuffer.from_numpy_array(out))
            return out

    def read_into(self, values: Array) -> Iterator[int]:
        """Fill an array of this shape; see `DiskArray`."""
        planes = int(np.prod(self.shape[1:-2]))
        rest = [slice(None)] * (self.ndim - 1)
        for start in range(0, self.shape[0], self.chunks[0]):
            end = min(start + self.chunks[0], self.shape[0])
            self._read([slice(start, end), *rest], values[start:end])
            yield end * planes if self.ndim > 2 else 1


#: Supported codecs: others could run code, as a pickle does.
_CODECS = ("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd")
#: Those of Zarr 2, with codecs that do not change the size, or only compute a checksum.
_CODECS_V2 = (
    *_CODECS, "shuffle", "delta", "fixedscaleoffset", "quantize", "bitround", "astype", "packbits",
    "crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3",
)  # fmt: skip
#: Those of Zarr 3, likewise.
_CODECS_V3 = (*_CODECS, "bytes", "transpose", "crc32c", "sharding_indexed", "endian")
#: Codecs of the index of a shard, which must have a known size.
_INDEX_CODECS = ("bytes", "crc32c", "endian")
#: Chunks, above which those that are missing are not counted.
_MOST_COUNTED = 100_000
_NO_LENGTHS = "The scale in the file is not above zero; the voxel size is not known."
_NO_SCALE = "The file gives a unit ({unit}) but no scale; the voxel size is not known."


def open_zarr(folder: Path) -> list[Volume]:
    """Open the images of an OME-Zarr folder as lazy volumes.

    `folder`: an OME-Zarr image, several images as written by bioformats2raw, or a bare Zarr array.
    Returns: volumes with spacing, unit and origin, at full resolution; the other levels of a
    pyramid are in ``volume.data.levels``. Time and channel axes of length one are dropped, unless
    written by hushpore. Labels follow the images, with ``metadata["labels"]`` set.
    Raises InputError if the folder contains no image, or is damaged; MissingPackageError if zarr is
    not installed.
    """
    zarr = import_zarr()
    with explained_damage(partial(_damaged, folder)):
        limits = limits_for(folder)
        node = zarr.open(str(folder), mode="r")
        if not hasattr(node, "keys"):
            stack = ZarrStack(_checked(node, limits), tuple(slice(None) for _ in node.shape))
            return [
                Volume(stack, name=folder.stem, notes=[*_chunk_notes(node), *_lost_chunks(node)])
            ]
        images = {folder.name.removesuffix(".zarr").removesuffix(".ome"): node}
        labels = {}
        if _multiscales(node) is None:
            keys = sorted(node.keys(), key=lambda key: natural_key(Path(key)))
            groups = {key: node[key] for key in keys if hasattr(node[key], "keys")}
            images = {key: group for key, group in groups.items() if _multiscales(group)}
        for group in images.values():
            labels.update(_labels(group))
        volumes = with_own_names([_image(group, key, limits) for key, group in images.items()])
        volumes += [_label(group, key, limits) for key, group in labels.items()]
    if not volumes:
        raise InputError(
            f"{folder.name} is a Zarr group without an OME image (no 'multiscales'). Open an image "
            f"or array inside it; it contains {shortened(sorted(node.keys())) or 'nothing'}."
        )
    return volumes


def _checked(array: Any, limits: InputLimits) -> Any:
    """Return a zarr array after checking its data type, codecs and the size of its chunks.

    Raises InputError if it uses another codec or does not contain numbers; MemoryLimitError if a
    chunk or shard does not fit into memory.
    """
    dtype = np.dtype(array.dtype)
    if dtype.kind not in "buif":
        raise InputError(f"{limits.name} contains {dtype} values; real numbers are needed.")
    chunk, whole = (math.prod(shape) * dtype.itemsize for shape in (array.chunks, array.shape))
    if not chunk or not whole or chunk > 4 * whole + SMALL:
        raise InputError(
            f"{limits.name} is damaged: its shape is {array.shape}, in chunks of {array.chunks}. "
            "Copy or export it again."
        )
    limits.require_room(chunk, "the values of a chunk")
    metadata = array.metadata
    if metadata.zarr_format == 2:
        used = [metadata.compressor, *(metadata.filters or ())]
        _require_supported([codec for codec in used if codec is not None], _CODECS_V2, limits)
    else:
        _require_supported(metadata.codecs, _CODECS_V3, limits)
    return array


def _require_supported(
    codecs: Sequence[Any], supported: tuple[str, ...], limits: InputLimits
) -> None:
    """Raise InputError for a codec that is not supported."""
    for codec in codecs:
        name = str(getattr(codec, "codec_id", None) or codec.to_dict().get("name", ""))
        if name not in supported:
            raise InputError(
                f"{limits.name} uses the codec {name[:100]!r}, which is not supported, because a "
                f"codec could run code. Supported codecs: {', '.join(sorted(supported))}. Convert "
                "the image with the program that wrote it."
            )
        if name == "sharding_indexed":
            _require_supported(codec.codecs, supported, limits)
            _require_supported(codec.index_codecs, _INDEX_CODECS, limits)


def _damaged(folder: Path, error: Exception) -> InputError:
    if isinstance(error, json.JSONDecodeError):
        return InputError(
            f"{folder.name} is damaged: its metadata (JSON) are incomplete. Copy or export it "
            "again."
        )
    return InputError(
        f"{folder.name} is damaged and cannot be read as Zarr ({type(error).__name__}: {error}). "
        "Copy or export it again."
    )


def _multiscales(group: Any) -> Any:
    return _stated(group).get("multiscales")


def _stated(group: Any) -> Mapping[str, Any]:
    """Return the NGFF metadata of a group; since version 0.5 they are under one key."""
    attributes: Mapping[str, Any] = group.attrs
    stated: Mapping[str, Any] = attributes.get("ome", attributes)
    return stated


def _labels(group: Any) -> dict[str, Any]:
    """Return the label groups of an image by name."""
    if "labels" not in group:
        return {}
    inner = group["labels"]
    listed = _stated(inner).get("labels", [])
    return {str(name): inner[name] for name in listed if name in inner}


def _image(group: Any, name: str, limits: InputLimits) -> Volume:
    image = _multiscales(group)[0]
    dataset = image["datasets"][0]
    array = _checked(group[dataset["path"]], limits)
    stated = image.get("axes") or [{"name": letter} for letter in _ORDER[-array.ndim :]]
    axes = [axis if isinstance(axis, dict) else {"name": axis} for axis in stated]
    letters = "".join(str(axis["name"])[:1].lower() for axis in axes)
    if len(axes) != array.ndim or not set(letters) <= set(_ORDER) or not letters.endswith("yx"):
        raise InputError(
            f"{name} has the axes {[axis['name'] for axis in axes]} for {array.ndim} dimensions; "
            "expected time, channel, z, y and x, in this order."
        )
    scale, shift = np.ones(array.ndim), np.zeros(array.ndim)
    ignored: list[str] = []
    is_scaled = False
    for step in [*dataset.get("coordinateTransformations", []),
                 *image.get("coordinateTransformations", [])]:  # fmt: skip
        if step["type"] == "scale":
            is_scaled = True
            factors = np.asarray(step["scale"], float)
            scale, shift = scale * factors, shift * factors
        elif step["type"] == "translation":
            shift = shift + np.asarray(step["translation"], float)
        elif step["type"] != "identity":
            ignored.append(str(step["type"])[:40])
    ours = "hushpore" in group.attrs
    known = group.attrs.get("hushpore") or {}
    index: tuple[int | slice, ...] = tuple(
        0 if letter in "tc" and array.shape[axis] == 1 and not ours else slice(None)
        for axis, letter in enumerate(letters)
    )
    kept = [axis for axis, each in enumerate(index) if isinstance(each, slice)]
    spatial = [axis for axis in kept if letters[axis] in "zyx"]
    unit, factor, notes = _common_unit([str(axes[axis].get("unit", "")) for axis in spatial])
    steps = [abs(float(scale[axis])) * f for axis, f in zip(spatial, factor, strict=True)]
    origin = [float(shift[axis]) * f for axis, f in zip(spatial, factor, strict=True)]
    if not ours and unit != "pixel" and not is_scaled:
        unit, notes = "pixel", [*notes, _NO_SCALE.format(unit=readable_unit(unit))]
    if not all(math.isfinite(step) and step > 0 for step in steps):
        unit, notes = "pixel", [*notes, _NO_LENGTHS]
        steps, origin = [1.0] * len(steps), []
    if not ours and unit == "pixel":
        # numbers without a unit are no lengths
        notes = notes or unitless_notes(steps)
        steps, origin = [1.0] * len(steps), []
    if ignored:
        notes.append(
            f"Coordinate transformations of other types were ignored: {', '.join(ignored)}."
        )
    stack = ZarrStack(array, index)
    finer = stack
    coarser = []
    for other in image["datasets"][1:]:
        level = ZarrStack(_checked(group[other["path"]], limits), index)
        # levels of equal size are versions of the image, not a pyramid
        if level.ndim != stack.ndim or level.size >= finer.size:
            break
        coarser.append(level)
        finer = level
    stack.coarser = tuple(coarser)
    metadata = value_metadata(known)
    if "image-label" in _stated(group):
        metadata["labels"] = True
    return Volume(
        stack,
        spacing=tuple(steps),
        origin=tuple(origin),
        unit=unit,
        axes="".join(letters[axis] for axis in kept),
        name=str(image.get("name") or name),
        notes=[
            *known.get("notes", []),
            *notes,
            *_chunk_notes(array, ours=ours),
            *([] if "labels" in metadata else _lost_chunks(array)),
        ],
        metadata=metadata,
    )


def _lost_chunks(array: Any) -> list[str]:
    """Say how many chunks of an array are missing or empty, and are read as its fill value."""
    parts = array.shards or array.chunks
    expected = math.prod(math.ceil(n / each) for n, each in zip(array.shape, parts, strict=True))
    place = Path(array.store.root, array.path)
    if expected > _MOST_COUNTED:
        return []
    stored = sum(
        not name.startswith(".z")
        and name != "zarr.json"
        and Path(folder, name).stat().st_size > 0  # zarr reads an empty shard as the fill value
        for folder, _, names in os.walk(place)
        for name in names
    )
    if stored >= expected:
        return []
    missing = readable_count(expected - stored, "chunk")
    fill = array.metadata.fill_value
    return [
        f"{missing} of {expected:,} are not stored and are read as the fill value {fill}. If the "
        "scan is not empty there, copy it again."
    ]


def _label(group: Any, key: str, limits: InputLimits) -> Volume:
    """Open labels under the name of their group, or under their own name if hushpore wrote them."""
    labels = _image(group, key, limits)
    name = labels.name if "hushpore" in group.attrs else key
    return dataclasses.replace(labels, name=name, metadata={"labels": True})


def _chunk_notes(array: Any, *, ours: bool = False) -> list[str]:
    """Return a note on an array with chunks that contradict its shape.

    Only a few file names are checked: the next chunk along each axis, and names with one axis more
    or less. `ours`: whether hushpore wrote the array; its chunks are never larger than the array.
    """
    parts = array.shards or array.chunks
    count = [math.ceil(n / each) for n, each in zip(array.shape, parts, strict=True)]
    none = (0,) * (array.ndim + 1)
    beyond = [(*none[:axis], n, *none[axis + 2 :]) for axis, n in enumerate(count)]
    keys = (array.metadata.encode_chunk_key(place) for place in (*beyond, none, none[2:]))
    found = [key for key in keys if Path(array.store.root, array.path, key).is_file()]
    if found:
        problem = f"there is a further chunk, {found[0]}"
    elif ours and any(each > n for n, each in zip(array.shape, array.chunks, strict=True)):
        problem = "the chunks are larger than the array"
    else:
        return []
    return [
        f"The metadata give the shape {tuple(array.shape)} in chunks of {tuple(array.chunks)}, but "
        f"{problem}; check the shape."
    ]


def _common_unit(units: list[str]) -> tuple[str, list[float], list[str]]:
    """Return the unit of x, the factors that convert each axis to it, and notes."""
    found = [each for each in map(unit_of, units) if each is not None]
    if len(found) < len(units):
        note = f"The units of the axes ({', '.join(units)}) are unknown; pixels are used instead."
    elif {"pixel"} < {each[0] for each in found}:
        note = "Only some axes have a unit, so the voxel size is given in pixels."
    else:
        name = found[-1][0]
        return name, [f if own == name else f * METRES[own] / METRES[name] for own, f in found], []
    return "pixel", [1.0] * len(units), [note]
