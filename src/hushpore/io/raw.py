"""Raw voxels with a header: MetaImage (``.mhd``, ``.mha``), JSON beside them, or NumPy's own."""

from __future__ import annotations

import json
import math
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io.marks import sidecar_of
from hushpore.io.planes import uncompressed_planes
from hushpore.io.units import unit_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TYPES = {
    "MET_CHAR": "i1", "MET_UCHAR": "u1", "MET_SHORT": "i2", "MET_USHORT": "u2", "MET_INT": "i4",
    "MET_UINT": "u4", "MET_LONG_LONG": "i8", "MET_ULONG_LONG": "u8", "MET_FLOAT": "f4",
    "MET_DOUBLE": "f8",
}  # fmt: skip
_LONGEST_HEADER = 65536
_LARGEST_RATIO = 1032  # of zlib


@dataclass(frozen=True)
class _Layout:
    """Where the voxels of a file begin, and what they are; shape in the order of the axes."""

    path: Path
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    compressed: bool = False


def open_raw(path: Path) -> Volume:
    """Open a raw file that has a JSON file of the same name beside it.

    The JSON file states ``shape`` and ``dtype`` as NumPy does, and where known ``spacing``,
    ``unit``, ``axes`` and ``offset`` (bytes before the first voxel).

    Returns: its values stay on disk.
    Raises InputError if the header cannot be understood, or the file is smaller than it states.
    """
    sidecar = sidecar_of(path)
    assert sidecar is not None  # what marks a raw file
    with _explain_header(sidecar):
        stated = json.loads(sidecar.read_text(encoding="utf-8"))
        shape = tuple(int(n) for n in stated["shape"])
        raw = _Layout(path, int(stated.get("offset", 0)), np.dtype(stated["dtype"]), shape)
        known = {key: stated[key] for key in ("unit", "axes") if key in stated}
        if "spacing" in stated:
            known["spacing"] = tuple(float(step) for step in stated["spacing"])
    return Volume(_values(raw), name=path.stem, **known)


def open_meta_image(path: Path) -> Volume:
    """Open a MetaImage, its values on disk unless they are compressed; as `open_raw`."""
    with _explain_header(path):
        raw, known = _read_header(path)
    return Volume(_values(raw), name=path.stem, **known)


def open_npy(path: Path) -> Volume:
    """Open an array that NumPy saved; as `open_raw`."""
    try:
        values: Any = np.load(path, allow_pickle=False, mmap_mode="r")
    except (ValueError, EOFError) as error:
        raise InputError(f"{path.name} is not a complete NumPy file: {error}.") from error
    return Volume(values, name=path.stem)


@contextmanager
def _explain_header(header: Path) -> Iterator[None]:
    """Explain what goes wrong while a header is read."""
    try:
        yield
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"The header {header.name} cannot be understood ({type(error).__name__}: {error}). "
            "Expected the shape and the type of the values, as docs/formats.md says."
        ) from error


def _read_header(path: Path) -> tuple[_Layout, dict[str, Any]]:
    with path.open("rb") as file:
        start = file.read(_LONGEST_HEADER)
    stated: dict[str, str] = {}
    at = 0
    for line in start.split(b"\n"):
        at += len(line) + 1
        key, _, value = line.decode("ascii").partition("=")
        stated[key.strip()] = value.strip()
        # the last line of the header; in an .mha file the voxels follow it
        if key.strip() == "ElementDataFile":
            break
    n_axes = int(stated["NDims"])
    if int(stated.get("ElementNumberOfChannels", 1)) != 1:
        raise InputError(f"{path.name} holds several values a voxel; one is needed.")
    big = stated.get("BinaryDataByteOrderMSB", stated.get("ElementByteOrderMSB", "False"))
    order = ">" if big.lower() == "true" else "<"
    shape = tuple(int(n) for n in reversed(stated["DimSize"].split()))
    dtype = np.dtype(order + _TYPES[stated["ElementType"]])
    data, offset = _data_file(path, stated["ElementDataFile"], at)
    skipped = int(stated.get("HeaderSize", 0))
    if skipped < 0:
        offset = data.stat().st_size - math.prod(shape) * dtype.itemsize
    raw = _Layout(
        data, offset + max(skipped, 0), dtype, shape,
        stated.get("CompressedData", "False").lower() == "true",
    )  # fmt: skip
    spacing = stated.get("ElementSpacing") or stated.get("ElementSize")
    if spacing is None:
        return raw, {}
    place = stated.get("Offset") or stated.get("Position") or stated.get("Origin") or ""
    unit = unit_of(stated.get("DistanceUnits", "mm")) or ("pixel", 1.0)
    known: dict[str, Any] = {
        "spacing": tuple(abs(float(step)) for step in reversed(spacing.split())),
        "origin": tuple(float(x) for x in reversed(place.split())),
        "unit": unit[0],
    }
    if "DistanceUnits" not in stated and unit[0] == "mm":
        known["notes"] = ["The header states no unit; millimetres are meant then, as in ITK."]
    n_spatial = min(n_axes, 3)
    for key in ("spacing", "origin"):
        known[key] = known[key][-n_spatial:]
    return raw, known


def _data_file(path: Path, name: str, after_header: int) -> tuple[Path, int]:
    if name.upper() == "LOCAL":
        return path, after_header
    # a header that was sent to you must not make other files of yours be read
    data = (path.parent / name).resolve()
    if name.upper() == "LIST" or "%" in name or data.parent != path.parent.resolve():
        raise InputError(
            f"{path.name} refers to {name!r}; one file in the same folder is expected."
        )
    if not data.is_file():
        raise InputError(f"{path.name} refers to {name}, which is not beside it. Copy both.")
    return data, 0


def _values(raw: _Layout) -> Any:
    size = raw.path.stat().st_size
    needed = math.prod(raw.shape) * raw.dtype.itemsize
    if raw.dtype.kind not in "buif" or len(raw.shape) < 2 or min(raw.shape) < 1 or raw.offset < 0:
        raise InputError(
            f"{raw.path.name} is said to hold {raw.dtype} values of shape {raw.shape}; numbers "
            "with two axes or more are needed."
        )
    held = (size - raw.offset) * (_LARGEST_RATIO if raw.compressed else 1)
    if held < needed:
        raise InputError(
            f"{raw.path.name} is incomplete: by its header the image takes {needed} bytes from "
            f"byte {raw.offset}, but the file has {size}."
        )
    if raw.compressed:
        with raw.path.open("rb") as file:
            file.seek(raw.offset)
            # never more than stated, whatever the stream expands to
            content = zlib.decompressobj().decompress(file.read(), needed)
        if len(content) < needed:
            raise InputError(f"{raw.path.name} is incomplete: its compressed data end too early.")
        values = np.frombuffer(content, raw.dtype).reshape(raw.shape)
        return values.astype(raw.dtype.newbyteorder("="))
    numbers = np.arange(math.prod(raw.shape[:-2])).reshape(raw.shape[:-2])
    return uncompressed_planes(raw.path, raw.offset, raw.dtype, numbers, raw.shape[-2:])
