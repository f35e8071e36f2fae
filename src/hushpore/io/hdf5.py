"""Reader of HDF5 files, by h5py: data sets of any program, NeXus and Data Exchange."""

from __future__ import annotations

import math
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
_SMALLEST_PLANE = 4  # pixels along an edge, below which a data set is a table
_MOST_CACHED = 256_000_000  # maximum size of a cached layer of chunks, in bytes


class _Dataset(DiskArray):
    """A data set as a lazy array; caches the newest layer of chunks for slice-by-slice reading.

    `place`: name of the data set in the file. `kept`: for each axis in the file, whether it is an
    axis of the array; the others have length 1.
    """

    def __init__(self, path: Path, place: str, stored: Any, kept: Sequence[bool]) -> None:
        shape = tuple(int(n) for n, keep in zip(stored.shape, kept, strict=True) if keep)
        super().__init__(shape, np.dtype(stored.dtype).newbyteorder("="))
        self._path, self._place, self._kept = path, place, tuple(kept)
        self._stored_shape = tuple(int(n) for n in stored.shape)
        chunks = stored.chunks
        # chunk sizes, used by `slabs` and dask
        self.chunks = None if chunks is None else tuple(
            int(n) for n, keep in zip(chunks, kept, strict=True) if keep
        )  # fmt: skip
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
        given = iter(_whole_keys(keys, self.ndim))
        wanted: list[Any] = []
        within: list[Any] = []
        for length, keep in zip(self._stored_shape, self._kept, strict=True):
            key = next(given) if keep else 0
            if not isinstance(key, slice):
                wanted.append(range(length)[int(key)])
                continue
            # h5py cannot read slices with a negative step
            places = range(length)[key]
            ends = (min(places), max(places) + 1) if places else (0, 0)
            wanted.append(slice(*ends))
            within.append(slice(None, None, places.step))
        try:
            with h5py.File(self._path, "r") as file:
                found = np.asarray(file[self._place][tuple(wanted)])
        except OSError as error:
            raise _damaged(self._path, error) from error
        return np.ascontiguousarray(found[tuple(within)], self.dtype)

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
        if place.rpartition("/")[2].lower() in _NO_SCAN:
            left_out.append(f"{place} (flat or dark field)")
        elif stored.external or (stored.is_virtual and not _in_folder(stored, path)):
            left_out.append(f"{place} (its values lie in other files)")
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


def _volume(stored: Any, place: str, path: Path) -> Volume:
    axes, kept = _axes(stored)
    values = _Dataset(path, place, stored, kept)
    n_spatial = 3 if axes.endswith("zyx") else 2
    found = _voxel_size(stored, kept, n_spatial)
    notes = found.pop("notes", []) if found else [_NO_SIZE]
    if stored.id.get_storage_size() == 0 and not stored.is_virtual and stored.chunks:
        notes.append(f"No values were ever written to {place}: it holds its fill value only.")
    return Volume(values, axes=axes, name=place.strip("/"), notes=notes, **(found or {}))


def _axes(stored: Any) -> tuple[str, list[bool]]:
    """Return the axes as letters of ``tczyx``, and whether each axis of the file is among them."""
    kept = [length > 1 for length in stored.shape]
    # keep at least two axes, even of length 1
    for axis in reversed(range(len(kept))):
        if sum(kept) < 2:
            kept[axis] = True
    names = [label for label, keep in zip(_labels(stored), kept, strict=True) if keep]
    count = sum(kept)
    if all(names) and len(set(names)) == count and names[-2:] == ["y", "x"]:
        stated = "".join(names)
        if set(stated[: -(3 if stated.endswith("zyx") else 2)]) <= set("tc"):
            return stated, kept
    return ("tczyx"[-count:] if count != 4 else "tzyx"), kept


def _labels(stored: Any) -> list[str]:
    """Return the letter of each axis; empty for axes without a label in the file."""
    labels = [str(stored.dims[axis].label or "").lower()[:1] for axis in range(len(stored.shape))]
    if not any(labels):
        labels = [name.lower()[:1] for name in _nexus_axes(stored)]
    return labels if len(labels) == len(stored.shape) else [""] * len(stored.shape)


def _nexus_axes(stored: Any) -> list[str]:
    """Return the names of the axes that an NXdata group gives its signal."""
    group = stored.parent
    if _text(group.attrs.get("signal")) not in ("", stored.name.rpartition("/")[2]):
        return []
    found = group.attrs.get("axes")
    if found is None:
        return []
    return [_text(each) for each in np.atleast_1d(found)]


def _voxel_size(stored: Any, kept: Sequence[bool], n_spatial: int) -> dict[str, Any] | None:
    """Return spacing and unit from attributes of the data set or its groups, or from NeXus axes."""
    without: list[str] = []
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
            steps = ([float(size) for size in sizes] * n_spatial)[:3][-n_spatial:]
            unit = implied or _first_text(holder.attrs, beside)
            size = in_one_unit(steps, [unit] * n_spatial)
            if size is not None:
                return {"spacing": size[0], "unit": size[1]}
            without = without or unitless_notes(steps, "" if unit_of(unit) else unit)
    names = [name for name, keep in zip(_nexus_axes(stored), kept, strict=False) if keep]
    size = in_one_unit(*along) if (along := _nexus_steps(stored, names[-n_spatial:])) else None
    if size is not None and len(size[0]) == n_spatial:
        return {"spacing": size[0], "unit": size[1]}
    return {"notes": without} if without else None


def _nexus_steps(stored: Any, names: Sequence[str]) -> tuple[list[float], list[str]] | None:
    """Return distance and unit along each NeXus axis; None if any is not an even axis."""
    steps, units = [], []
    for name in names:
        axis = stored.parent.get(name) if name not in (".", "") else None
        if axis is None or len(getattr(axis, "shape", ())) != 1 or axis.shape[0] < 2:
            return None
        places = np.asarray(axis[:2], float)
        step = abs(float(axis[-1]) - float(axis[0])) / (axis.shape[0] - 1)
        even = math.isclose(step, abs(float(places[1] - places[0])), rel_tol=1e-2)
        if not even or not step > 0:
            return None
        steps.append(float(f"{step:.12g}"))
        units.append(_text(axis.attrs.get("units", "?")))
    return (steps, units) if steps else None


def _first_text(attributes: Any, names: Sequence[str]) -> str:
    return next((_text(attributes[name]) for name in names if name in attributes), "")


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = value.ravel()[0] if value.size else ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


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
