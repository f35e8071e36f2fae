"""Shape and data type from the names of raw files: ``bread_512x512x400_16bit.raw``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushpore.io.folders import RAW

if TYPE_CHECKING:
    from pathlib import Path

_SIZES = re.compile(r"(?<![\d.])(\d{1,6})([x×_-])(?=(\d{1,6})\2(\d{1,6})(?![\d.]))", re.IGNORECASE)
_TYPES = {
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
_VOXEL = re.compile(r"(?<![\d.])(\d+(?:[.,p]\d+)?)[_-]?(nm|um|µm|μm|micron|mm)(?![a-z])", re.I)


@dataclass(frozen=True)
class NamedLayout:
    """Shape and data type from the name of a raw file, confirmed by the size of the file."""

    shape: tuple[int, int, int]  # z, y, x
    dtype: str  # NumPy's name of the data type, including byte order
    states_type: bool  # True: data type from the name; False: only from the size of the file
    spacing: float | None = None
    unit: str = ""


def layout_by_name(path: Path) -> NamedLayout | None:
    """Return the layout that the name of a raw file gives, if the file has exactly that size.

    Parameters
    ----------
    path : Path
        The file. Three numbers joined by ``x``, ``_`` or ``-`` are taken as lengths along x, y, z.

    Returns
    -------
    NamedLayout or None
        None if the name gives no shape, or if the size of the file does not match exactly.

    Raises
    ------
    OSError
        If the file is missing.
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
        length = _VOXEL.search(stem)
        if length is None:
            return NamedLayout(shape, order + kind, stated is not None)
        number = float(re.sub("[,p]", ".", length[1]))
        return NamedLayout(shape, order + kind, stated is not None, number or None, length[2])
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
    return shapes, next((kind for kind, words in _TYPES.items() if _has(stem, words)), None)


def _has(stem: str, words: str) -> bool:
    """Whether a name contains one of the words, delimited by separators."""
    return re.search(rf"(?:^|[\W_]|(?<=\d))(?:{words})(?:$|[\W_])", stem, re.IGNORECASE) is not None
