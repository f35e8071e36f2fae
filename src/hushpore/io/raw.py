"""Reading of raw voxels described by a MetaImage or JSON file, a NumPy header or the file name."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import read_text, readable_unit, unit_of
from hushpore.base.volume import Volume
from hushpore.io.folders import RAW, sidecar_of
from hushpore.io.guards import explained_damage, limits_for
from hushpore.io.lazy_arrays import Stream, uncompressed_planes
from hushpore.io.undefined import unitless_notes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hushpore.base.arrays import Array

_TYPES = {
    "MET_CHAR": "i1", "MET_UCHAR": "u1", "MET_SHORT": "i2", "MET_USHORT": "u2", "MET_INT": "i4",
    "MET_UINT": "u4", "MET_LONG": "i4", "MET_ULONG": "u4", "MET_LONG_LONG": "i8",
    "MET_ULONG_LONG": "u8", "MET_FLOAT": "f4", "MET_DOUBLE": "f8",
}  # fmt: skip
_LONGEST_HEADER = 65536
_MOST_AXES = 5  # t, c, z, y, x
_NO_SIZE = "The header gives no voxel size; 1 {unit} is assumed."
_ALIGNMENT = 16  # NumPy pads the header of its files to a multiple of this
_ODD_HEADER = (
    "The header of {name} does not have the length of a NumPy header; check the shape, the data "
    "type and the order of the values."
)
_ANY_WRAPPER = 32 + zlib.MAX_WBITS  # zlib (MetaImage) or gzip (NRRD)
_BY_NAME = (
    "Shape {x} x {y} x {z} (x, y, z){kind} and byte order ({order}-endian) were guessed from the "
    "file name, and match the file size. If the image looks wrong, write them to {json}."
)
_PIECE = 1 << 20  # compressed bytes per read


_SIZES = re.compile(r"(?<![\d.])(\d{1,6})([x×_-])(?=(\d{1,6})\2(\d{1,6})(?![\d.]))", re.IGNORECASE)
_TYPE_WORDS = {
    "u1": r"u(?:int)?_?8|8[_-]?bits?|8ub?|uchar|byte",
    "u2": r"u(?:int)?_?16|(?:unsigned[_-]?)?16[_-]?bits?(?:[_-]?unsigned)?|16u|ushort",
    "i1": r"s?int_?8|8s",
    "i2": r"s?int_?16|signed[_-]?16[_-]?bits?|16[_-]?bits?[_-]?signed|16s|short",
    "u4": r"uint_?32|32u", "i4": r"s?int_?32|32s",
    "f4": r"f(?:loat)?_?32|32[_-]?bits?(?:[_-]?float|[_-]?real)?|32f|float|single",
    "f8": r"f(?:loat)?_?64|64[_-]?bits?|64f|double",
}  # fmt: skip
#: Data type by bytes per voxel, for names without a data type.
TYPES_BY_BYTES = {1: "u1", 2: "u2", 4: "f4", 8: "f8"}
_BIG = r"be|big(?:[_-]?endian)?|msb"
_LENGTH = re.compile(r"(?<![\d.])(\d+(?:[.,p]\d+)?)[_-]?(nm|um|µm|μm|micron|mm)(?![a-z])", re.I)
_OF_VOXELS = r"(?:vox(?:el)?s?|vx|px|pix(?:el)?s?)(?:[_-]?size)?"
#: A length beside a word for voxels, before or after it.
_BESIDE = re.compile(rf"{_OF_VOXELS}[_=-]?$", re.I), re.compile(rf"[_-]?{_OF_VOXELS}", re.I)


@dataclass(frozen=True)
class NamedLayout:
    """Shape and data type from the name of a raw file, confirmed by the size of the file."""

    shape: tuple[int, int, int]  # z, y, x
    dtype: str  # NumPy's name of the data type, including byte order
    states_type: bool  # True: data type from the name; False: only from the size of the file
    spacing: float | None = None
    unit: str = ""
    lengths: tuple[str, ...] = ()  # other lengths in the name, which may be those of anything


def layout_by_name(path: Path) -> NamedLayout | None:
    """Return the layout that the name of a raw file gives, if the file has exactly that size.

    Three numbers joined by ``x``, ``_`` or ``-`` are taken as lengths along x, y, z.

    Returns: None if the name gives no shape, or if the size of the file does not match exactly.
    Raises OSError if the file is missing.
    """
    stem = path.stem
    shapes, stated = _stated(path)
    if not shapes:
        return None
    size = path.stat().st_size
    order = ">" if _has(stem, _BIG) else "<"
    for shape in shapes:
        voxels = math.prod(shape)
        each, rest = divmod(size, voxels) if voxels else (0, 1)
        kind = stated or TYPES_BY_BYTES.get(each)
        if rest or kind is None or int(kind[1:]) != each:
            continue
        named = NamedLayout(shape, order + kind, stated is not None)
        lengths = list(_LENGTH.finditer(stem))
        of_voxels = [
            length
            for length in lengths
            if _BESIDE[0].search(stem[: length.start()]) or _BESIDE[1].match(stem[length.end() :])
        ]
        if len(of_voxels) != 1:
            return replace(named, lengths=tuple(length[0] for length in lengths))
        number = float(re.sub("[,p]", ".", of_voxels[0][1]))
        return replace(named, spacing=number or None, unit=of_voxels[0][2])
    return None


def why_misfit(path: Path) -> str:
    """Return why the name of a raw file does not describe it, as a clause without a full stop.

    Empty if the name does not give both shape and type, or fits the file.
    """
    shapes, stated = _stated(path)
    if not shapes or stated is None or layout_by_name(path) is not None:
        return ""
    z, y, x = shapes[0]
    kind = np.dtype(stated)
    return (
        f"its name gives {x} x {y} x {z} voxels of {kind.name} ({x * y * z * kind.itemsize:,} "
        f"bytes), but the file has {path.stat().st_size:,} bytes"
    )


def _stated(path: Path) -> tuple[list[tuple[int, int, int]], str | None]:
    """Return the shapes (z, y, x) and the data type that the name of a raw file gives."""
    if path.suffix.lower() not in RAW:
        return [], None
    stem = path.stem
    shapes = [(int(z), int(y), int(x)) for x, _, y, z in _SIZES.findall(stem)]
    return shapes, next((kind for kind, words in _TYPE_WORDS.items() if _has(stem, words)), None)


def _has(stem: str, words: str) -> bool:
    """Whether a name contains one of the words, delimited by separators."""
    return re.search(rf"(?:^|[\W_]|(?<=\d))(?:{words})(?:$|[\W_])", stem, re.IGNORECASE) is not None


@dataclass(frozen=True)
class Layout:
    """Offset, data type and shape of the voxels in a file."""

    path: Path
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    compressed: bool = False
    is_exact: bool = False  # whether surplus compressed data are an error


def open_raw(path: Path) -> Volume:
    """Open a raw file described by a JSON file of the same name, or by its own file name.

    The JSON file gives ``shape`` and ``dtype`` as in NumPy, and optionally ``spacing``, ``unit``,
    ``axes`` and ``offset`` (bytes before the first voxel).

    Returns: a lazy volume.
    Raises InputError if the header is invalid, or the file is too small.
    """
    sidecar = sidecar_of(path)
    if sidecar is None:
        return _open_by_name(path)
    with _explain_header(sidecar):
        if sidecar.stat().st_size > _LONGEST_HEADER:
            raise ValueError(f"it is longer than {_LONGEST_HEADER} bytes")
        stated = json.loads(read_text(sidecar))
        shape = tuple(_whole(n) for n in stated["shape"])
        raw = Layout(path, _whole(stated.get("offset", 0)), np.dtype(str(stated["dtype"])), shape)
        known: dict[str, Any] = {key: str(stated[key]) for key in ("unit", "axes") if key in stated}
        if "spacing" in stated:
            steps = stated["spacing"]
            each = steps if isinstance(steps, list) else [steps]
            known["spacing"] = tuple(float(_number(step)) for step in each)
            if "unit" not in known:
                known["notes"] = unitless_notes(known.pop("spacing"))
        elif "unit" in known:
            known["notes"] = [_NO_SIZE.format(unit=known["unit"])]
        return volume_of_layout(raw, path, **known)


def _open_by_name(path: Path) -> Volume:
    named = layout_by_name(path)
    if named is None:
        raise InputError(f"{path.name} was modified while it was read. Open it again.")
    z, y, x = named.shape
    dtype = np.dtype(named.dtype)
    note = _BY_NAME.format(
        x=x, y=y, z=z, kind=f", type ({dtype.name})", json=path.with_suffix(".json").name,
        order="big" if dtype.byteorder == ">" else "little",
    )  # fmt: skip
    known: dict[str, Any] = {"notes": [note]}
    if named.spacing:
        known |= {"spacing": (named.spacing,) * 3, "unit": named.unit}
        unit, _ = unit_of(named.unit) or (named.unit, 1.0)
        length = f"{named.spacing:g} {readable_unit(unit)}"
        note += f" The voxel size ({length}) is also from the name."
        known["notes"] = [note]
    elif named.lengths:
        known["notes"].insert(
            0,
            f"The name gives {' and '.join(named.lengths)}, but does not call it the size of a "
            f"voxel; the voxel size is not known. If it is, set it: --voxel-size "
            f"{in_flag(named.lengths[-1])}, or in napari the field Voxel size.",
        )
    return volume_of_layout(Layout(path, 0, dtype, named.shape), path, **known)


def in_flag(length: str) -> str:
    """Return a length of a file name as the flag takes it."""
    number, unit = _LENGTH.findall(length)[0]
    return f"{float(re.sub('[,p]', '.', number)):g}{(unit_of(unit) or (unit,))[0]}"


def open_raw_as(
    path: Path, shape: Sequence[int], dtype: str = "", order: str = "", offset: int = 0
) -> Volume:
    """Open a raw file whose layout the user gives; its values stay on disk.

    `shape`: voxels along z, y, x (or y, x). `dtype`: type as NumPy writes it, ``"uint16"``; by
    default that whose voxels fill the file to the byte, which a note says. `order`: byte order,
    ``"little"`` or ``"big"``; by default that of `dtype`, or little. `offset`: bytes before the
    first voxel.
    Raises InputError if the type is not known, or the file is smaller.
    """
    notes = []
    if not dtype:
        size, voxels = path.stat().st_size - offset, math.prod(shape)
        each, rest = divmod(size, voxels) if voxels > 0 else (0, 1)
        if rest or each not in TYPES_BY_BYTES:
            raise InputError(
                f"{path.name} has {size:,} bytes of voxels, which is not {voxels:,} voxels of 1, "
                "2, 4 or 8 bytes. Check the shape, or set the data type (--dtype)."
            )
        dtype = TYPES_BY_BYTES[each]
        notes = [f"The data type {np.dtype(dtype).name} was guessed from the size of the file."]
    try:
        kind = np.dtype(dtype)
        if order or kind.isnative:
            kind = kind.newbyteorder("big" if order == "big" else "little")
    except TypeError:
        raise InputError(
            f"The data type {dtype!r} is unknown. Use for example uint8, uint16, int16 or float32."
        ) from None
    return volume_of_layout(Layout(path, offset, kind, tuple(shape)), path, notes)


def open_meta_image(path: Path) -> Volume:
    """Open a MetaImage, lazy unless it is compressed; as `open_raw`."""
    with _explain_header(path):
        raw, known = _read_header(path)
        return volume_of_layout(raw, path, **known)


def open_npy(path: Path) -> Volume:
    """Open a NumPy array file; as `open_raw`."""
    with explained_damage(
        lambda error: InputError(
            f"{path.name} is not a complete NumPy file: its header is damaged, or values at its "
            "end are missing. Copy or save it again."
        )
    ):
        # only for the header; no values are read from the mapping
        mapped: Any = np.load(path, allow_pickle=False, mmap_mode="r")
    raw = Layout(path, mapped.offset, mapped.dtype, mapped.shape)
    notes = [] if mapped.offset % _ALIGNMENT == 0 else [_ODD_HEADER.format(name=path.name)]
    if not mapped.flags.c_contiguous:
        turned = _values(Layout(path, mapped.offset, mapped.dtype, mapped.shape[::-1]))

        def fill(out: Array) -> None:
            out[...] = np.asarray(turned).T

        native = mapped.dtype.newbyteorder("=")
        values = Stream(mapped.shape, native, fill, limits_for(path))
        return Volume(values, name=path.stem, notes=[*notes, *_rest_notes(raw)])
    return volume_of_layout(raw, path, notes)


def volume_of_layout(raw: Layout, path: Path, notes: Sequence[str] = (), **known: Any) -> Volume:
    """Return a lazy volume of the voxels in a file with a given layout."""
    values = _values(raw)
    return Volume(values, name=path.stem, notes=[*notes, *_rest_notes(raw)], **known)


def _rest_notes(raw: Layout) -> list[str]:
    """Return a note if the file has more data than its header describes, unless compressed."""
    if raw.compressed:
        return []
    return limits_for(raw.path).notes_of_rest(
        raw.offset + math.prod(raw.shape) * raw.dtype.itemsize
    )


def _number(value: Any) -> Any:
    """Return the value; raises TypeError for a boolean, which Python would accept as a number."""
    if isinstance(value, bool):
        raise TypeError(f"{value} is not a number")
    return value


def _whole(value: Any) -> int:
    """Return the value as an integer; raises ValueError or TypeError if it is not one."""
    number = float(_number(value))
    if not number.is_integer():
        raise ValueError(f"{value} is not a whole number")
    return int(number)


def _explain_header(header: Path) -> AbstractContextManager[None]:
    """Convert errors in an arbitrary header into InputError."""
    return explained_damage(
        lambda error: InputError(
            f"The header {header.name} is invalid ({type(error).__name__}: {error}). It must give "
            "the shape and data type of the values, as described in docs/formats.md."
        )
    )


def _read_header(path: Path) -> tuple[Layout, dict[str, Any]]:
    with path.open("rb") as file:
        start = file.read(_LONGEST_HEADER)
    stated: dict[str, str] = {}
    at = 0
    for line in start.split(b"\n"):
        at += len(line) + 1
        # comments and file names may have any encoding
        key, _, value = os.fsdecode(line).partition("=")
        stated[key.strip()] = value.strip()
        # the last header line; in an .mha file the voxels follow
        if key.strip() == "ElementDataFile":
            break
    n_axes = int(stated["NDims"])
    if int(stated.get("ElementNumberOfChannels", 1)) != 1:
        raise InputError(
            f"{path.name} has several channels per voxel; save one channel alone (grey values)."
        )
    if stated.get("BinaryData", "True").lower() == "false":
        raise InputError(
            f"{path.name} stores its values as text (BinaryData = False), but binary values are "
            "needed. Save it again as binary, the default of ITK."
        )
    big = stated.get("BinaryDataByteOrderMSB", stated.get("ElementByteOrderMSB", "False"))
    order = ">" if big.lower() == "true" else "<"
    shape = tuple(int(n) for n in reversed(stated["DimSize"].split()))
    dtype = np.dtype(order + _TYPES[stated["ElementType"]])
    data, offset = data_file(path, stated["ElementDataFile"], at)
    skipped = int(stated.get("HeaderSize", 0))
    if skipped < 0:
        offset = data.stat().st_size - math.prod(shape) * dtype.itemsize
    raw = Layout(
        data, offset + max(skipped, 0), dtype, shape,
        stated.get("CompressedData", "False").lower() == "true",
    )  # fmt: skip
    spacing = stated.get("ElementSpacing") or stated.get("ElementSize")
    if spacing is None:
        return raw, {"notes": ["The voxel size is unknown, because the header gives none."]}
    place = stated.get("Offset") or stated.get("Position") or stated.get("Origin") or ""
    unit = stated.get("DistanceUnits", "mm")
    # some programs write decimals as their country does
    spacing, place = spacing.replace(",", "."), place.replace(",", ".")
    known: dict[str, Any] = {
        "spacing": tuple(abs(float(step)) for step in reversed(spacing.split())),
        "origin": tuple(float(x) for x in reversed(place.split())),
        "unit": unit,
    }
    named = unit_of(unit)
    if named is None or named[0] == "pixel":
        return raw, {"notes": unitless_notes(known["spacing"], "" if named else unit)}
    if "DistanceUnits" not in stated:
        known["notes"] = ["The header gives no unit; millimetres are assumed, as in ITK."]
    if len(known["spacing"]) != n_axes or min(map(float, spacing.split())) <= 0:
        known.setdefault("notes", []).append(
            f"The voxel size {spacing!r} in the header does not match {n_axes} axes; check it."
        )
    n_spatial = min(n_axes, 3)
    for key in ("spacing", "origin"):
        known[key] = known[key][-n_spatial:]
    return raw, known


def data_file(path: Path, name: str, after_header: int) -> tuple[Path, int]:
    """Return the data file of a header, and the offset of its values.

    Raises InputError if the file does not exist, or is outside the folder of the header.
    """
    if name.upper() == "LOCAL":
        return path, after_header
    # a header from someone else must not read other files of the user
    data = (path.parent / name).resolve()
    if (
        re.match(r"LIST( \d+)?$", name.upper())
        or "%" in name
        or data.parent != path.parent.resolve()
    ):
        raise InputError(
            f"{path.name} refers to {name!r}; its data must be one file in the same folder."
        )
    if not data.is_file():
        raise InputError(
            f"{path.name} refers to {name}, which is not in the same folder. Copy both files."
        )
    return data, 0


def _values(raw: Layout) -> Any:
    size = raw.path.stat().st_size
    needed = math.prod(raw.shape) * raw.dtype.itemsize
    n_axes = len(raw.shape)
    if raw.dtype.kind not in "buif":
        kind = "complex numbers" if raw.dtype.kind == "c" else f"{raw.dtype} values"
        raise InputError(f"{raw.path.name} contains {kind}; real numbers are needed.")
    if not 2 <= n_axes <= _MOST_AXES or min(raw.shape) < 1:
        raise InputError(
            f"{raw.path.name} has the shape {raw.shape}; 2 to {_MOST_AXES} axes of at least 1 are "
            "needed."
        )
    if not 0 <= raw.offset <= size:
        raise InputError(
            f"{raw.path.name} has only {size:,} bytes, but its header places the values at byte "
            f"{raw.offset:,}. Copy or export it again."
        )
    limits = limits_for(raw.path)
    if raw.compressed:
        limits.require_plausible(needed)
    elif size - raw.offset < needed:
        raise InputError(
            f"{raw.path.name} is incomplete: its image needs {needed:,} bytes from byte "
            f"{raw.offset:,} on, but the file has only {size:,}. Copy or export it again."
        )
    if raw.compressed:
        native = raw.dtype.newbyteorder("=")
        return Stream(raw.shape, native, functools.partial(_inflate, raw), limits)
    numbers = np.arange(math.prod(raw.shape[:-2])).reshape(raw.shape[:-2])
    return uncompressed_planes(raw.path, raw.offset, raw.dtype, numbers, raw.shape[-2:])


def _inflate(raw: Layout, out: Array) -> None:
    """Fill an array from a compressed stream, and stop when it is full."""
    values = out if out.flags.c_contiguous else np.empty(raw.shape, out.dtype)
    room = memoryview(values.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    stream = zlib.decompressobj(_ANY_WRAPPER)
    try:
        with raw.path.open("rb") as file:
            file.seek(raw.offset)
            piece = b""
            while room:
                piece = piece or file.read(_PIECE)
                found = stream.decompress(piece, min(len(room), _PIECE))
                if not found and (stream.eof or not piece):
                    raise InputError(
                        f"{raw.path.name} is incomplete: its compressed data end too early. Copy "
                        "or export it again."
                    )
                room[: len(found)] = found
                room, piece = room[len(found) :], stream.unconsumed_tail
            if raw.is_exact and stream.decompress(piece or file.read(_PIECE), 1):
                raise InputError(
                    f"{raw.path.name} contains more compressed data than its header describes, "
                    "possibly a header before the values. Open the original file instead, or "
                    "export it again."
                )
    except zlib.error as error:
        raise InputError(
            f"{raw.path.name} is damaged: its values cannot be decompressed ({error}). Copy or "
            "export it again."
        ) from error
    if not raw.dtype.isnative:
        values.byteswap(inplace=True)
    if values is not out:
        out[...] = values
