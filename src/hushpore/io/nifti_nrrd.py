"""Readers of NIfTI (by nibabel) and NRRD (header by pynrrd, values as in raw files)."""

from __future__ import annotations

import gzip
import math
import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import unit_of
from hushpore.base.volume import Volume
from hushpore.io.folders import GZIP
from hushpore.io.guards import REST, captured_warnings, damaged, explained_damage, limits_for
from hushpore.io.lazy_arrays import PlaneStack, Stream, uncompressed_planes
from hushpore.io.raw import Layout, data_file, volume_of_layout
from hushpore.io.undefined import in_one_unit, unitless_notes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from hushpore.base.arrays import Array


_NIFTI_NO_UNIT = "The header gives no unit; millimetres are assumed, as in nibabel and ITK."
_NO_NUMBERS = "The voxel size in the header is not a number, so it is not known."
_LOGGER = "nibabel.global"  # logger of nibabel for problems in a header


def read_nifti(path: Path) -> Volume:
    """Open a NIfTI image, 2D to 4D, as a lazy volume.

    `path`: ``.nii`` or ``.nii.gz``; its content tells whether it is compressed.
    Returns: a volume with axes zyx or tzyx; rows keep their stored order.
    Raises InputError if the file is damaged or does not contain grey values.
    """
    with (
        explained_damage(partial(_damaged, path)),
        captured_warnings(_LOGGER) as messages,
        _opened(path) as file,
    ):
        is_packed = isinstance(file, gzip.GzipFile)
        image = _image(file)
        _require_plausible(image, path, is_packed)
        steps = image.header.get_zooms()
        stated = _unit(image.header)
        values = _values(image, path, is_packed)
    n_spatial = min(values.ndim, 3)
    # sizes of 1 without a unit are what programs write that know nothing of the image
    assumed = stated == "unknown" and any(step not in (0, 1) for step in steps[:n_spatial])
    unit = ("mm", 1.0) if assumed else unit_of(stated.replace("unknown", ""))
    notes = [_NIFTI_NO_UNIT] if assumed else []
    if not all(math.isfinite(step) for step in steps[:n_spatial]):
        unit, notes = None, [_NO_NUMBERS]
    # of the axes behind the spatial ones, the first is time and the second holds components
    more = "".join(axis for axis, n in zip("tc", image.shape[3:], strict=False) if n > 1)
    return Volume(
        values,
        axes=f"{more[::-1]}zyx" if len(image.shape) > 3 else "",
        # shortest decimal of a float32: 0.4, not 0.4000000059604645
        spacing=tuple((unit and float(str(step))) or 1.0 for step in reversed(steps[:n_spatial])),
        unit=unit[0] if unit else "pixel",
        name=path.name.removesuffix(".gz").removesuffix(".nii"),
        notes=[
            *(f"NIfTI: {message}." for message in messages),
            *notes,
            *_notes(image, path, is_packed),
        ],
    )


def _opened(path: Path) -> BinaryIO | gzip.GzipFile:
    """Open a file, through gzip if it is compressed, whatever its name."""
    with path.open("rb") as file:
        is_packed = file.read(2) == GZIP
    return gzip.open(path) if is_packed else path.open("rb")


def _image(file: BinaryIO | gzip.GzipFile) -> Any:
    """Return the image of an open file; its values can be read until the file is closed."""
    import nibabel

    is_second = file.read(8)[4:] == b"n+2\0"
    version: Any = nibabel.Nifti2Image if is_second else nibabel.Nifti1Image
    file.seek(0)
    return version.from_file_map(version.make_file_map({"image": file}))


def _unit(header: Any) -> str:
    """Return the unit of length in a header; ``"unknown"`` also for a code that has no meaning."""
    try:
        return str(header.get_xyzt_units()[0])
    except KeyError:
        return "unknown"


def _notes(image: Any, path: Path, is_packed: bool) -> list[str]:
    """Return notes on values that a damaged header would explain, too."""
    notes, stored = [], image.dataobj
    if (stored.slope, stored.inter) != (1, 0):
        notes.append(
            f"The stored values are rescaled with slope {stored.slope:g} and intercept "
            f"{stored.inter:g}, as given in the header."
        )
    end = stored.offset + math.prod(image.shape) * image.get_data_dtype().itemsize
    if not is_packed:
        return notes + limits_for(path).notes_of_rest(end)
    with path.open("rb") as file:
        # the last four bytes give the uncompressed size of the (last) gzip stream
        file.seek(-4, os.SEEK_END)
        expanded = int.from_bytes(file.read(4), "little")
    if expanded > end:
        notes.append(REST.format(name=path.name, rest=expanded - end))
    return notes


def _values(image: Any, path: Path, is_packed: bool) -> PlaneStack | Stream:
    """Return the values of an image as a lazy array in z, y, x order."""
    stored, dtype = image.dataobj, image.get_data_dtype()
    if dtype.kind not in "buif":
        raise InputError(f"{path.name} contains {dtype} values; grey values are needed.")
    # NIfTI stores x fastest, so the order of the axes is reversed
    shape = tuple(image.shape[:3]) + tuple(n for n in image.shape[3:] if n > 1)
    shape = shape[::-1]
    is_scaled = (stored.slope, stored.inter) != (1, 0)
    if not is_scaled and not is_packed and len(shape) > 1:
        numbers = np.arange(math.prod(shape[:-2])).reshape(shape[:-2])
        return uncompressed_planes(path, stored.offset, dtype, numbers, shape[-2:])
    wanted = dtype.newbyteorder("=")
    if is_scaled and wanted != np.float64:
        wanted = np.dtype(np.float32)

    def fill(out: Array) -> None:
        with (
            explained_damage(partial(_damaged, path)),
            captured_warnings(_LOGGER),
            _opened(path) as file,
        ):
            out[...] = np.asarray(_image(file).dataobj).T.reshape(shape)

    return Stream(shape, wanted, fill, limits_for(path))


def _damaged(path: Path, error: Exception) -> InputError:
    if isinstance(error, EOFError):
        return InputError(
            f"{path.name} is incomplete: its compressed data end too early. Copy or export it "
            "again."
        )
    return damaged(path, "NIfTI", error)


def _require_plausible(image: Any, path: Path, is_packed: bool) -> None:
    """Raise InputError for a damaged header, before memory is allocated for its image."""
    if min(image.shape, default=0) < 1:
        raise InputError(
            f"{path.name} is damaged: its header gives the shape {image.shape}. Copy or export it "
            "again."
        )
    if image.dataobj.offset < image.header.single_vox_offset:
        raise InputError(
            f"{path.name} is damaged: its header places the values at byte "
            f"{image.dataobj.offset}, inside the header. Copy or export it again."
        )
    needed = math.prod(image.shape) * image.get_data_dtype().itemsize
    if is_packed:
        limits_for(path).require_plausible(needed)
    elif needed > path.stat().st_size - image.dataobj.offset:
        raise InputError(
            f"{path.name} is damaged or incomplete: it is too small for an image of "
            f"{' x '.join(map(str, image.shape))} voxels. Copy or export it again."
        )


_TYPES = {
    "i1": ("signed char", "int8", "int8_t"),
    "u1": ("uchar", "unsigned char", "uint8", "uint8_t"),
    "i2": ("short", "short int", "signed short", "signed short int", "int16", "int16_t"),
    "u2": ("ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"),
    "i4": ("int", "signed int", "int32", "int32_t"),
    "u4": ("uint", "unsigned int", "uint32", "uint32_t"),
    "i8": ("longlong", "long long", "long long int", "signed long long", "int64", "int64_t"),
    "u8": ("ulonglong", "unsigned long long", "unsigned long long int", "uint64", "uint64_t"),
    "f4": ("float",),
    "f8": ("double",),
}
_SPATIAL = ("domain", "space", "???", "none", "")  # values of ``kinds`` for spatial axes
_NRRD_NO_UNIT = "The header gives no unit; millimetres are assumed, as in 3D Slicer."
_NO_SIZE = "The header gives no voxel size; the voxel size is not known."


def open_nrrd(path: Path) -> Volume:
    """Open an NRRD volume (``.nrrd``, or ``.nhdr`` with a detached data file) as a lazy array.

    `path`: the header file. A detached data file must lie in the same folder.
    Returns: a volume with axes z, y, x, and time before them. Oblique directions are not applied.
    Raises InputError if the header is damaged, the data file is missing or too small, the encoding
    is text or bzip2, or a voxel has several values.
    """
    import nrrd

    with explained_damage(partial(damaged, path, "NRRD")), captured_warnings("nrrd"):
        with path.open("rb") as file:
            header: dict[str, Any] = dict(nrrd.read_header(_fields(file)))
            start = file.tell()
        axes = _nrrd_axes(path, header)
        layout = _layout(path, header, start)
        known = _geometry(header, 3 if axes.endswith("zyx") else 2)
    return volume_of_layout(layout, path, axes=axes, **known)


def _nrrd_axes(path: Path, header: dict[str, Any]) -> str:
    """Return the axes in C order; an axis of length one that is not spatial is dropped.

    Raises InputError if an axis that is not spatial comes before another one in the file.
    """
    sizes = [int(size) for size in header["sizes"]]
    kinds = [str(each or "").lower() for each in header.get("kinds") or [""] * len(sizes)]
    directions = header.get("space directions")
    lost = [False] * len(sizes)
    if directions is not None and len(directions) == len(sizes):
        lost = [row is None or not np.isfinite(np.asarray(row, float)).any() for row in directions]
    other = [kind not in _SPATIAL or none for kind, none in zip(kinds, lost, strict=True)]
    if len(sizes) - sum(other) > 1:
        kept = [axis for axis, size in enumerate(sizes) if size > 1 or not other[axis]]
        for name in ("sizes", "space directions", "spacings", "units", "kinds"):
            if (found := header.get(name)) is not None and len(found) == len(sizes):
                header[name] = [found[axis] for axis in kept]
        sizes, other = [sizes[axis] for axis in kept], [other[axis] for axis in kept]
        kinds = [kinds[axis] for axis in kept]
    if any(other[:-1]):
        kind = kinds[other.index(True)] or "no direction"
        raise InputError(
            f"{path.name} has {sizes[other.index(True)]} values a voxel ({kind}), but one is "
            "needed. Save each component as an image of its own."
        )
    count = len(sizes)
    if other[-1]:
        return "tzyx"[-count:] if count > 3 else "tyx"
    return "" if count > 3 else "zyx"[-count:]


def _fields(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a header up to its end: an empty line, or the start of a list of files."""
    for line in file:
        # pynrrd would drop the sign of micro, in UTF-8 or Latin-1
        yield re.sub(b"\xc2\xb5|\xce\xbc|\xb5", b"u", line)
        if not line.strip() or re.match(rb"data ?file: *LIST", line):
            return


def _layout(path: Path, header: Mapping[str, Any], start: int) -> Layout:
    stated = str(header["type"]).lower()
    kind = next((name for name, words in _TYPES.items() if stated in words), None)
    if kind is None:
        raise InputError(f"{path.name} holds {stated!r} values; grey values are needed.")
    sizes = [int(size) for size in header["sizes"]]
    encoding = str(header.get("encoding", "raw")).lower()
    if encoding not in ("raw", "gzip", "gz"):
        raise InputError(
            f"{path.name} has the encoding {encoding!r}; raw and gzip are read. Save it again as "
            "one of these, as 3D Slicer does."
        )
    name = header.get("data file") or header.get("datafile")
    data, offset = (path, start) if name is None else data_file(path, str(name), 0)
    lines = int(header.get("line skip", header.get("lineskip", 0)) or 0)
    skip = int(header.get("byte skip", header.get("byteskip", 0)) or 0)
    compressed = encoding != "raw"
    if lines < 0 or skip < -1:
        raise InputError(
            f"{path.name}: expected a line skip of at least 0 and a byte skip of at least -1, "
            f"found {lines} and {skip}. Export it again."
        )
    if compressed and skip:
        # the definition of NRRD allows -1, which counts from the end of the file, for raw alone
        why = "is allowed for the encoding raw only" if skip < 0 else "cannot be read"
        raise InputError(
            f"{path.name} has the encoding {encoding} with byte skip {skip}, which {why}. Save it "
            "again, for example in 3D Slicer."
        )
    if lines:
        with data.open("rb") as file:
            file.seek(offset)
            for _ in range(min(lines, 10_000)):
                file.readline(1 << 20)
            offset = file.tell()
    order = ">" if str(header.get("endian", "little")).lower() == "big" else "<"
    dtype = np.dtype(order + kind)
    # in NRRD, the first axis is the fastest
    shape = tuple(reversed(sizes))
    if skip == -1:
        offset = data.stat().st_size - math.prod(shape) * dtype.itemsize
    return Layout(data, offset + max(skip, 0), dtype, shape, compressed, is_exact=True)


def _geometry(header: Mapping[str, Any], n_spatial: int) -> dict[str, Any]:
    """Return voxel size, origin and notes for the last axes of the array, in C order."""
    directions = header.get("space directions")
    notes: list[str] = []
    origin: tuple[float, ...] = ()
    if directions is not None:
        rows = [None if row is None else np.asarray(row, float) for row in directions]
        vectors = [row for row in rows if row is not None and np.isfinite(row).all()]
        steps = [float(np.linalg.norm(row)) for row in vectors][::-1]
        along = [np.count_nonzero(np.abs(row) > 1e-6 * np.abs(row).max()) for row in vectors]
        place = header.get("space origin")
        if any(count != 1 for count in along):
            notes.append("The volume is oblique; z, y, x are those of the stack.")
        elif place is not None and len(place) == n_spatial:
            axes = [int(np.argmax(np.abs(row))) for row in vectors][::-1]
            origin = tuple(float(place[axis]) for axis in axes)
    else:
        found = [float(each) for each in header.get("spacings", ())]
        steps = found[::-1]
    # a negative spacing reverses an axis
    steps = [abs(step) for step in steps[-n_spatial:]]
    if len(steps) != n_spatial or not all(math.isfinite(step) and step > 0 for step in steps):
        return {"notes": [*notes, _NO_SIZE]}
    stated = header.get("space units") or header.get("units") or ()
    units = [str(each).strip(' "') for each in stated][::-1][-n_spatial:]
    if not any(units):
        units = ["mm"] * n_spatial
        notes.append(_NRRD_NO_UNIT)
    # an axis without a unit has that of the others
    first = next(unit for unit in reversed(units) if unit)
    units = [unit or first for unit in units] + [first] * (n_spatial - len(units))
    size = in_one_unit(steps, units)
    if size is None:
        unknown = next((unit for unit in units if unit_of(unit) is None), "")
        return {"notes": [*notes, *unitless_notes(steps, unknown)]}
    known = {"spacing": size[0], "unit": size[1], "notes": notes}
    return known | ({"origin": origin} if len(origin) == n_spatial else {})
