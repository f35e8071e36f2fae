"""Reader of HDF5 files, by h5py: data sets of any program, NeXus and Data Exchange."""

from __future__ import annotations

import json
import math
import re
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.formatting import unit_of
from hushpore.base.volume import Volume
from hushpore.io.folders import shortened
from hushpore.io.guards import limits_for
from hushpore.io.lazy_arrays import SLAB, DiskArray
from hushpore.io.undefined import in_one_unit, unitless_notes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hushpore.base.arrays import Array

#: Data sets with these names are listed first: the images of Data Exchange and NeXus.
_FIRST = ("/exchange/data", "/entry/data/data")
#: Names of data sets with rotation angles, and of flat and dark fields.
_ANGLES = ("theta", "rotation_angle", "angles", "image_key")
_NO_SCAN = ("data_white", "data_dark", "white", "dark", "flats", "darks", "flat", "dark_field")
#: Attributes that give a voxel size, and their units if no unit is stated.
_SIZES = {
    "element_size_um": "um", "element_size_mm": "mm", "voxel_size_um": "um", "voxel_size_mm": "mm",
    "pixel_size_um": "um", "voxel_size": "", "voxelsize": "", "pixel_size": "", "spacing": "",
}  # fmt: skip
_UNITS = ("unit", "units")
_NO_SIZE = "The file gives no voxel size; the voxel size is not known."
_ORDER = "tczyx"
#: Numbers of the levels in Imaris and BigDataViewer; 0 is the image, the others are copies of it.
_LEVEL = re.compile(r"/DataSet/ResolutionLevel (\d+)/.*|/t\d+/s\d+/(\d+)/cells")
_SMALLEST_PICTURE = 16  # pixels along an edge, above which a last axis of 2 to 4 holds samples
_SMALLEST_PLANE = 4  # pixels along an edge, below which a data set is a table
_MOST_CACHED = 256_000_000  # maximum size of a cached layer of chunks, in bytes


class _Dataset(DiskArray):
    """A data set as a lazy array; caches the newest layer of chunks for slice-by-slice reading.

    `place`: name of the data set in the file. `order`: the axis in the file of each axis of the
    array; the others are read at their first position. `lengths`: length of each axis in the file,
    without the padding behind it. `dtype`: data type of the values.
    """

    def __init__(
        self, path: Path, place: str, stored: Any, order: Sequence[int], lengths: Sequence[int],
        dtype: Any,
    ) -> None:  # fmt: skip
        super().__init__(tuple(lengths[axis] for axis in order), np.dtype(dtype).newbyteorder("="))
        self._path, self._place = path, place
        self._order, self._lengths = tuple(order), tuple(lengths)
        chunks = stored.chunks
        # chunk sizes, used by `slabs` and dask
        self.chunks = None if chunks is None else tuple(int(chunks[axis]) for axis in order)
        self._lock = threading.Lock()
        self._layer: tuple[int, Array] | None = None

    def _read_part(self, keys: list[Any]) -> Array:
        first, depth = keys[0], self.chunks[0] if self.chunks else 1
        layer_bytes = self.nbytes // max(self.shape[0], 1) * depth
        if not isinstance(first, int | np.integer) or depth == 1 or layer_bytes > _MOST_CACHED:
            return self._read(keys)
        number = range(self.shape[0])[int(first)]
        start = number // depth * depth
        with self._lock:
            if self._layer is None or self._layer[0] != start:
                self._layer = start, self._read([slice(start, start + depth), ...])
            return np.array(self._layer[1][(number - start, *keys[1:])])

    def _read(self, keys: Sequence[Any]) -> Array:
        h5py = _library()
        wanted: list[Any] = [0] * len(self._lengths)
        within: dict[int, slice] = {}
        for axis, key in zip(self._order, _whole_keys(keys, self.ndim), strict=True):
            places = range(self._lengths[axis])
            if not isinstance(key, slice):
                wanted[axis] = places[int(key)]
                continue
            # h5py cannot read slices with a negative step
            places = places[key]
            wanted[axis] = slice(min(places), max(places) + 1) if places else slice(0)
            within[axis] = slice(None, None, places.step)
        try:
            with h5py.File(self._path, "r") as file:
                found = np.asarray(file[self._place][tuple(wanted)])
        except OSError as error:
            raise _damaged(self._path, error) from error
        in_file = sorted(within)
        found = found[tuple(within[axis] for axis in in_file)]
        # `within` has the order of the array
        found = found.transpose([in_file.index(axis) for axis in within])
        return np.ascontiguousarray(found, self.dtype)

    def read_into(self, values: Array) -> Iterator[int]:
        """Fill an array of this shape; see `DiskArray`."""
        each = self.nbytes // self.shape[0]
        depth = self.chunks[0] if self.chunks else 1
        step = max(depth, SLAB // max(each, 1) // depth * depth)
        planes = math.prod(self.shape[1:-2]) if self.ndim > 2 else 1
        if self.ndim < 3:
            values[...] = self._read([...])
            yield 1
            return
        for start in range(0, self.shape[0], step):
            stop = min(start + step, self.shape[0])
            values[start:stop] = self._read([slice(start, stop), ...])
            yield stop * planes


def _whole_keys(keys: Sequence[Any], count: int) -> list[Any]:
    """Return an index for each axis; an ellipsis at the end stands for all others."""
    if keys[-1] is not ...:
        return list(keys)
    return [*keys[:-1], *[slice(None)] * (count - len(keys) + 1)]


def open_hdf5(path: Path) -> list[Volume]:
    """Open every image in an HDF5 file as a lazy array.

    `path`: a file of any program; NeXus (``NXdata``), Data Exchange.
    Returns: one volume for each data set of 2 to 5 axes, named by its path in the file. The image
    of Data Exchange or NeXus comes first, the others by size.
    Raises InputError if the file is damaged, has no image, or has only projections.
    """
    try:
        with _library().File(path, "r") as file:
            return _open(file, path)
    except HushporeError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, PermissionError | FileNotFoundError):
            raise
        raise _damaged(path, error) from error


def _library() -> Any:
    """Return h5py, with the compressions of hdf5plugin if that is installed."""
    import h5py

    with suppress(ImportError):
        import hdf5plugin  # noqa: F401
    return h5py


def _open(file: Any, path: Path) -> list[Volume]:
    h5py = _library()
    limits = limits_for(path)
    places: list[str] = []

    # soft and external links are not followed: a file must not make others be read
    def visit(name: str, found: Any) -> None:
        limits.require_few(len(places) + 1, "data sets")
        if isinstance(found, h5py.Dataset) and _is_image(found):
            places.append("/" + name)

    file.visititems(visit)
    left_out: list[str] = []
    projections: list[str] = []
    volumes = []
    rank = {place: number for number, place in enumerate(_FIRST)}
    places.sort(key=lambda place: (rank.get(place, len(rank)), -file[place].size, place))
    for place in places:
        stored = file[place]
        if _is_copy(place, file):
            continue
        if place.rpartition("/")[2].lower() in _NO_SCAN:
            left_out.append(f"{place} (flat or dark field)")
        elif stored.external or (stored.is_virtual and not _in_folder(stored, path)):
            left_out.append(f"{place} (its values lie in other files)")
        elif _are_colours(stored):
            left_out.append(f"{place} (a colour picture; grey values are needed)")
        elif _are_projections(stored):
            projections.append(place)
        else:
            limits.require_plausible(int(stored.nbytes), f"a data set ({place})")
            volumes.append(_volume(stored, place, path))
    if projections and not volumes:
        raise InputError(
            f"{path.name} holds projections ({shortened(projections)}, with rotation angles beside "
            "them), which are no slices. Reconstruct them first."
        )
    if not volumes:
        raise InputError(
            f"{path.name} holds no image: expected a data set of numbers with 2 to 5 axes"
            + (f"; left out: {shortened(left_out)}." if left_out else ".")
        )
    left_out += [f"{place} (projections)" for place in projections]
    notes = [f"Left out: {shortened(left_out)}."] if left_out else []
    name = path.stem
    if len(volumes) == 1:
        return [volumes[0].replace(volumes[0].data, name=name, notes=[*volumes[0].notes, *notes])]
    return [each.replace(each.data, notes=[*each.notes, *notes]) for each in volumes]


def _is_image(stored: Any) -> bool:
    lengths = [n for n in stored.shape or () if n > 1]
    large = sorted(stored.shape or ())[-2:]
    return (
        2 <= len(lengths) <= 5 and stored.dtype.kind in "buif" and 0 not in stored.shape
        and len(large) == 2 and min(large) >= _SMALLEST_PLANE
    )  # fmt: skip


def _are_projections(stored: Any) -> bool:
    """Whether a data set has one rotation angle for each of its images."""
    near = [stored.parent, stored.parent.parent]
    counts = {
        int(group[name].shape[0])
        for group in near
        for name in _ANGLES
        if name in group and len(getattr(group[name], "shape", ())) == 1
    }
    return len(stored.shape) == 3 and stored.shape[0] in counts


def _in_folder(stored: Any, path: Path) -> bool:
    """Whether the parts of a virtual data set are in this file or in files beside it."""
    root = path.resolve().parent
    names = {source.file_name for source in stored.virtual_sources()}
    others = [path.parent / name for name in names if name != "."]
    return all(each.resolve().parent == root and each.is_file() for each in others)


def _is_copy(place: str, file: Any) -> bool:
    """Whether a data set is a coarser copy or a thumbnail, in a file of Imaris or BigDataViewer."""
    found = _LEVEL.fullmatch(place)
    is_thumbnail = place.startswith("/Thumbnail/") and "DataSetInfo" in file
    return is_thumbnail or (found is not None and int(found[1] or found[2]) > 0)


def _are_colours(stored: Any) -> bool:
    """Whether a data set has red, green and blue on its last axis, by its attributes or shape."""
    if _text(stored.attrs.get("IMAGE_SUBCLASS")).startswith("IMAGE_TRUECOLOR"):
        return True
    return (
        _has_samples(stored) and stored.shape[-1] > 2 and stored.dtype.kind in "ui"
        and not any(_letters(stored))
    )  # fmt: skip


def _has_samples(stored: Any) -> bool:
    """Whether the last axis has a few values for each pixel of an image."""
    shape = stored.shape
    return len(shape) > 2 and 1 < shape[-1] < 5 and min(shape[-3:-1]) > _SMALLEST_PICTURE


def _volume(stored: Any, place: str, path: Path) -> Volume:
    axes, order = _axes(stored)
    lengths, known = [int(n) for n in stored.shape], _imaris(stored)
    if known:
        lengths = known.pop("lengths")
    # BigDataViewer stores unsigned values as signed ones
    is_viewer = (
        place.endswith("/cells") and _LEVEL.fullmatch(place) and stored.dtype.str[1:] == "i2"
    )
    values = _Dataset(path, place, stored, order, lengths, np.uint16 if is_viewer else stored.dtype)
    n_spatial = 3 if axes.endswith("zyx") else 2
    found = known or _voxel_size(stored, order[-n_spatial:])
    notes = found.pop("notes", []) if found else [_NO_SIZE]
    if stored.id.get_storage_size() == 0 and not stored.is_virtual and stored.chunks:
        notes.append(f"No values were ever written to {place}: it holds its fill value only.")
    return Volume(values, axes=axes, name=place.strip("/"), notes=notes, **(found or {}))


def _imaris(stored: Any) -> dict[str, Any]:
    """Return lengths without padding, spacing and unit of an image of Imaris; otherwise empty."""
    group, info = stored.parent.attrs, stored.file.get("DataSetInfo/Image")
    if info is None or "ImageSizeX" not in group or len(stored.shape) != 3:
        return {}
    lengths = [int(_joined(group[f"ImageSize{axis}"])) for axis in "ZYX"]
    if any(not 0 < n <= stored_n for n, stored_n in zip(lengths, stored.shape, strict=True)):
        raise ValueError(f"an image of {lengths} voxels in a data set of {stored.shape}")
    known: dict[str, Any] = {"lengths": lengths, "notes": []}
    with suppress(KeyError, ValueError):
        extents = [[float(_joined(info.attrs[f"Ext{end}{axis}"])) for axis in (2, 1, 0)]
                   for end in ("Min", "Max")]  # fmt: skip
        steps = [abs(high - low) / n for low, high, n in zip(*extents, lengths, strict=True)]
        unit = _joined(info.attrs.get("Unit", "um"))
        size = in_one_unit([float(f"{step:.12g}") for step in steps], [unit] * 3)
        if size is not None and min(steps) > 0 and math.isfinite(max(steps)):
            return known | {"spacing": size[0], "unit": size[1]}
        known["notes"] = unitless_notes(steps, unit)
    return known | {"notes": known["notes"] or [_NO_SIZE]}


def _axes(stored: Any) -> tuple[str, list[int]]:
    """Return the axes as letters of ``tczyx``, and the axis in the file of each."""
    kept = [axis for axis, length in enumerate(stored.shape) if length > 1]
    # keep at least two axes, even of length 1
    for axis in reversed(range(len(stored.shape))):
        if len(kept) < 2 and axis not in kept:
            kept = sorted([*kept, axis])
    letters = _letters(stored)
    names = [letters[axis] for axis in kept]
    if {"y", "x"} <= set(names) <= set(_ORDER) and len(set(names)) == len(names):
        order = sorted(kept, key=lambda axis: _ORDER.index(letters[axis]))
        return "".join(letters[axis] for axis in order), order
    count = len(kept)
    if _has_samples(stored) and count > 2 and not any(names):
        return {3: "cyx", 4: "czyx", 5: "tczyx"}[count], (
            [kept[0], kept[-1], *kept[1:-1]] if count == 5 else [kept[-1], *kept[:-1]]
        )
    return (_ORDER[-count:] if count != 4 else "tzyx"), kept


def _letters(stored: Any) -> list[str]:
    """Return the letter of each axis; empty for axes without a name in the file."""
    return [name.lower()[:1] for name, _ in _named(stored)]


def _named(stored: Any) -> list[tuple[str, Any]]:
    """Return the name of each axis and the data set of its positions; empty or None without one.

    From dimension labels and scales, else axis tags (ilastik), else an attribute ``axes``, also of
    the NXdata group.
    """
    found = []
    for axis in range(len(stored.shape)):
        scales = list(stored.dims[axis].values())
        name = str(stored.dims[axis].label or "")
        name = name or (scales[0].name.rpartition("/")[2] if scales else "")
        found.append((name, scales[0] if scales else None))
    if any(name for name, _ in found):
        return found
    names = _tagged(stored) or _nexus_axes(stored)
    if len(names) != len(found):
        return [("", None)] * len(found)
    return [(name, stored.parent.get(name) if name.strip(".") else None) for name in names]


def _tagged(stored: Any) -> list[str]:
    """Return the axes in an attribute of the data set: JSON of ilastik, or ``zyx`` or ``z:y:x``."""
    with suppress(ValueError, KeyError, TypeError):
        return [str(axis["key"]) for axis in json.loads(_text(stored.attrs["axistags"]))["axes"]]
    found = stored.attrs.get("axes", "")
    if isinstance(found, np.ndarray) and found.size > 1:
        return [_text(each) for each in found]
    words = re.findall(r"\w+", _text(found))
    return list(words[0]) if len(words) == 1 else words


def _nexus_axes(stored: Any) -> list[str]:
    """Return the names of the axes that an NXdata group gives its signal."""
    group = stored.parent
    if _text(group.attrs.get("signal")) not in ("", stored.name.rpartition("/")[2]):
        return []
    found = group.attrs.get("axes")
    if found is None:
        return []
    return [_text(each) for each in np.atleast_1d(found)]


def _voxel_size(stored: Any, spatial: Sequence[int]) -> dict[str, Any] | None:
    """Return spacing and unit from attributes of the data set or its groups, or from its axes.

    `spatial`: the axes in the file along z, y, x.
    """
    n_spatial, without = len(spatial), list[str]()
    for holder in (stored, stored.parent, stored.file["/"]):
        for name, implied in _SIZES.items():
            if name not in holder.attrs:
                continue
            sizes = np.atleast_1d(np.asarray(holder.attrs[name]))
            if sizes.dtype.kind not in "uif" or not (np.isfinite(sizes) & (sizes > 0)).all():
                continue
            beside = [f"{name}_{word}" for word in _UNITS] + list(_UNITS)
            if len(sizes) not in (1, 3, n_spatial):
                continue
            in_file = ([float(size) for size in sizes] * n_spatial)[:3][-n_spatial:]
            steps = [in_file[sorted(spatial).index(axis)] for axis in spatial]
            unit = implied or _first_text(holder.attrs, beside)
            size = in_one_unit(steps, [unit] * n_spatial)
            if size is not None:
                return {"spacing": size[0], "unit": size[1]}
            without = without or unitless_notes(steps, "" if unit_of(unit) else unit)
    named = _named(stored)
    size = in_one_unit(*along) if (along := _steps([named[axis][1] for axis in spatial])) else None
    if size is not None:
        return {"spacing": size[0], "unit": size[1]}
    return {"notes": without} if without else None


def _steps(positions: Sequence[Any]) -> tuple[list[float], list[str]] | None:
    """Return distance and unit along each axis by its positions; None if any is not even."""
    steps, units = [], []
    for axis in positions:
        if axis is None or len(getattr(axis, "shape", ())) != 1 or axis.shape[0] < 2:
            return None
        places = np.asarray(axis[:2], float)
        step = abs(float(axis[-1]) - float(axis[0])) / (axis.shape[0] - 1)
        even = math.isclose(step, abs(float(places[1] - places[0])), rel_tol=1e-2)
        if not even or not step > 0:
            return None
        steps.append(float(f"{step:.12g}"))
        units.append(_text(axis.attrs.get("units", "?")))
    return steps, units


def _first_text(attributes: Any, names: Sequence[str]) -> str:
    return next((_text(attributes[name]) for name in names if name in attributes), "")


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = value.ravel()[0] if value.size else ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def _joined(value: Any) -> str:
    """Return a text of Imaris, which stores each letter by itself."""
    found = np.asarray(value).ravel().tolist()
    return b"".join(
        each if isinstance(each, bytes) else str(each).encode() for each in found
    ).decode()


def _damaged(path: Path, error: Exception) -> InputError:
    """Return the error for a file or data set that h5py cannot read."""
    if any(word in str(error).lower() for word in ("plugin", "required filter")):
        return InputError(
            f"The values in {path.name} are compressed by a method that h5py lacks (LZ4, Blosc or "
            "Zstandard, for example). Install it: pip install hdf5plugin."
        )
    return InputError(
        f"{path.name} is damaged or incomplete and cannot be read as HDF5. Copy or export it again."
    )
