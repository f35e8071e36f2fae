"""Zeiss volumes (``.txm``): OLE files with a stream for each slice, by olefile."""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import on_one_line
from hushpore.base.volume import Volume
from hushpore.io.guards import captured_warnings, explained_damage, limits_for
from hushpore.io.lazy_arrays import PlaneStack

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from hushpore.base.arrays import Array


_TYPES = {3: "u1", 5: "u2", 10: "f4"}
_PER_FOLDER = 100  # slices in each storage ImageData1, ImageData2, ...
_LONGEST_TEXT = 80


def open_txm(path: Path) -> Volume:
    """Open a reconstructed Zeiss volume as a lazy array.

    Returns: a volume with axes zyx, voxel size in µm, and the type that is stored. Voltage,
    current, exposure and filter are in its metadata, as far as the file has them.
    Raises InputError if the file holds projections (``.txrm``, ``.xrm``), is damaged, or no volume
    of Zeiss.
    """
    if path.suffix.lower() in (".txrm", ".xrm"):
        raise InputError(
            f"{path.name} holds projections, which are no slices. Reconstruct them first, and open "
            "the reconstructed volume (.txm)."
        )
    try:
        with explained_damage(partial(_damaged, path)), captured_warnings("olefile"):
            return _open(path)
    except OSError as error:
        if error.errno is None:
            # raised by olefile, not by the system
            raise _damaged(path, error) from error
        raise


def _open(path: Path) -> Volume:
    import olefile

    with olefile.OleFileIO(path) as ole:
        if not ole.exists("ImageInfo/ImageWidth"):
            raise InputError(
                f"{path.name} is no volume of a Zeiss scanner: it has no image information. "
                "Expected a .txm file."
            )
        columns, rows, count, kind = (
            int(_number(ole, f"ImageInfo/{name}", "<i") or 0)
            for name in ("ImageWidth", "ImageHeight", "NoOfImages", "DataType")
        )
        if kind not in _TYPES or min(columns, rows, count) < 1:
            raise InputError(
                f"{path.name} is damaged: it states {columns} x {rows} x {count} voxels of type "
                f"{kind}; expected type 3, 5 or 10 (8 bits, 16 bits, floats)."
            )
        dtype = np.dtype("<" + _TYPES[kind])
        plane = rows * columns * dtype.itemsize
        limits = limits_for(path)
        limits.require_few(count, "slices")
        starts = []
        for number in range(1, count + 1):
            name = f"ImageData{(number - 1) // _PER_FOLDER + 1}/Image{number}"
            if not ole.exists(name) or ole.get_size(name) != plane:
                raise InputError(
                    f"{path.name} is incomplete: slice {number} of {count} is missing, or has "
                    f"another size than {columns} x {rows} voxels. Copy or export it again."
                )
            starts.append(ole.direntries[ole._find(name)].isectStart)
        # the file allocation table gives the chain of sectors of each large stream
        chain = np.array(ole.fat, np.uint32)
        sector, is_large = int(ole.sectorsize), plane >= int(ole.minisectorcutoff)
        settings = _settings(ole)
        size = _number(ole, "ImageInfo/pixelsize", "<f") or 0.0

    def read(number: int, out: Array) -> None:
        with explained_damage(partial(_damaged, path)):
            if is_large:
                content = _read_chain(path, starts[number], plane, sector, chain)
            else:
                content = _read_small(path, number + 1)
            out[...] = np.frombuffer(content, dtype).reshape(out.shape)

    known: dict[str, Any] = {"notes": ["The file gives no voxel size; it is not known."]}
    if size > 0:
        # the shortest decimal of a float32 is the value that was meant
        known = {"spacing": (float(str(np.float32(size))),) * 3, "unit": "um"}
    planes = PlaneStack(np.arange(count), (rows, columns), dtype.newbyteorder("="), read)
    metadata = {"scanner": settings} if settings else {}
    return Volume(planes, axes="zyx", name=path.stem, metadata=metadata, **known)


def _read_chain(
    path: Path, start: int, length: int, sector: int, chain: npt.NDArray[np.uint32]
) -> bytes:
    """Return the bytes of a stream, reading contiguous sectors at once."""
    count = -(-length // sector)
    pieces, at, left = [], start, count
    with path.open("rb") as file:
        while left:
            # most streams are contiguous
            longest = min(left, len(chain) - at)
            if longest < 1:
                raise ValueError(f"sector {at} is outside the file")
            follows = chain[at : at + longest - 1] == np.arange(at + 1, at + longest)
            run = longest if follows.all() else int(np.argmin(follows)) + 1
            file.seek((at + 1) * sector)
            pieces.append(file.read(run * sector))
            left, at = left - run, int(chain[at + run - 1])
    content = b"".join(pieces)[:length]
    if len(content) < length:
        raise ValueError(f"it ends {length - len(content)} bytes too early")
    return content


def _read_small(path: Path, number: int) -> bytes:
    """Return the bytes of a slice that is stored in the mini stream because it is small."""
    import olefile

    with olefile.OleFileIO(path) as ole:
        name = f"ImageData{(number - 1) // _PER_FOLDER + 1}/Image{number}"
        return bytes(ole.openstream(name).read())


def _number(ole: Any, name: str, form: str) -> float | None:
    """Return the first number of a stream, or None if the stream is missing."""
    if not ole.exists(name):
        return None
    content = ole.openstream(name).read(struct.calcsize(form))
    return float(struct.unpack(form, content)[0])


def _settings(ole: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, name, factor in (
        ("voltage_kv", "ImageInfo/Voltage", 1), ("current_ua", "ImageInfo/Current", 1),
        ("exposure_ms", "ImageInfo/ExpTimes", 1000),
    ):  # fmt: skip
        value = _number(ole, name, "<f")
        if value is not None and value > 0:
            found[key] = round(factor * value, 6)
    for name in ("AcquisitionSettings/SourceFilterName", "ImageInfo/SourceFilterName"):
        if ole.exists(name):
            text = ole.openstream(name).read(260).split(b"\0")[0].decode("utf-8", "replace")
            if text.strip():
                found.setdefault("filter", on_one_line(text, _LONGEST_TEXT))
    return found


def _damaged(path: Path, _: Exception) -> InputError:
    return InputError(
        f"{path.name} is damaged or incomplete and cannot be read as a Zeiss volume. Copy or "
        "export it again."
    )
