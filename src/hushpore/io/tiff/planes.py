"""Planes of a TIFF series on disk: at their place in the file, or page by page."""

from __future__ import annotations

import math
import re
import weakref
from typing import TYPE_CHECKING, Any, Literal

from hushpore.base.errors import InputError, MissingPackageError, NotTrustedError
from hushpore.io.codestream import stated_bytes
from hushpore.io.gate import CONSENT, SMALL, Gate, gate_of
from hushpore.io.log_capture import captured_log
from hushpore.io.planes import PlaneStack, uncompressed_planes

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import tifffile

# compressions as TIFF numbers them: what is decoded into room that is taken before; and what states
# the size of the image once more: JPEG, JPEG 2000, JPEG XR, JPEG XL, JPEG-LS, LERC, PNG and WebP
_BOUNDED = (1, 2, 3, 4, 5, 8, 32773, 32946, 34925, 34926, 48124, 50000, 65000, 65001, 65002)
_STATING = (
    6, 7, 22610, 33003, 33004, 33005, 33007, 34712, 34887, 34892, 34927, 34933, 34934, 50001, 50002,
    52546,
)  # fmt: skip
_LARGE = 2**30  # bytes beyond which a file may have as many pages as it likes
_START = 65536  # bytes within which they do
_MOST_TIMES = 16  # bytes that a decoder may take for each of the image


def planes_of(
    level: tifffile.TiffPageSeries,
    leading: npt.NDArray[np.integer[Any]],
    plane_shape: tuple[int, ...],
    path: Path,
) -> PlaneStack | None:
    """Return the planes of a series, or None where a page is not a plane.

    `level`: the series, or one level of a pyramid. `leading`: the number of the plane in the file,
    at every position of the leading axes.
    """
    native = level.dtype.newbyteorder("=")
    if level.dataoffset is not None:
        if not isinstance(level.dataoffset, int):
            raise explained(path, TypeError(f"its pixels begin at byte {level.dataoffset}"))
        stored = level.dtype.newbyteorder(level.keyframe.parent.byteorder)
        return uncompressed_planes(path, level.dataoffset, stored, leading, plane_shape)
    pages: list[Any] = list(level.pages)
    if level.is_multifile or len(pages) != leading.size:
        return None
    if any(page is None or math.prod(page.shape) != math.prod(plane_shape) for page in pages):
        return None
    gate = gate_of(path)
    handle: Any = pages[0].parent.filehandle
    handle.set_lock(True)

    def read(number: int, out: npt.NDArray[Any]) -> None:
        try:
            with captured_log("tifffile"):
                with handle.lock:
                    if handle.closed:
                        handle.open()
                _require_size(pages[number], handle, gate)
                # the planes are read by several threads already
                values = pages[number].asarray(maxworkers=1)
            out[...] = values.reshape(out.shape)
        except (OSError, MemoryError):
            raise
        except Exception as error:
            raise explained(path, error) from error

    # what was opened for a stack is closed with it
    weakref.finalize(read, handle.close)
    return PlaneStack(leading, plane_shape, native, read)


def explained(path: Path, error: Exception) -> InputError | MissingPackageError:
    """Return an error of tifffile as one for the user."""
    if "imagecodecs" in str(error):
        found = re.search(r"<COMPRESSION\.(\w+)", str(error))
        method = found.group(1) if found else "this method"
        return MissingPackageError(
            f"{path.name} is compressed with {method}, which needs a further package: "
            "pip install imagecodecs"
        )
    return InputError(
        f"{path.name} is damaged or incomplete and cannot be read as TIFF "
        f"({type(error).__name__}: {error}). Copy or export it again."
    )


def require_few_pages(path: Path) -> None:
    """Refuse a small file of very many pages, which takes minutes before anything is known of it.

    Raises NotTrustedError if it has so many; InputError if they lead back to one before.
    """
    gate = gate_of(path)
    if gate.is_trusted or gate.stored > _LARGE:
        return
    with path.open("rb") as file:
        start = file.read(16)
        order: Literal["little", "big"] = "little" if start[:2] == b"II" else "big"
        is_big = int.from_bytes(start[2:4], order) == 43
        # of a directory: bytes of the number of entries, of an entry, of the place of the next
        n_count, n_entry, n_next = (8, 20, 8) if is_big else (2, 12, 4)
        at = int.from_bytes(start[8:16] if is_big else start[4:8], order)
        count, seen = 0, set[int]()
        while 0 < at < gate.stored and count <= gate.most_parts:
            if at in seen:
                raise InputError(
                    f"{path.name} is damaged: its pages follow one another in a circle. Copy or "
                    "export it again."
                )
            seen.add(at)
            count += 1
            file.seek(at)
            entries = int.from_bytes(file.read(n_count), order)
            if entries * n_entry > gate.stored:
                break
            file.seek(at + n_count + entries * n_entry)
            at = int.from_bytes(file.read(n_next), order)
    gate.require_few(count, "pages")


def require_parts(page: Any, gate: Gate) -> None:
    """Refuse a page that is cut into far larger parts than itself, or compressed unknowably.

    Raises NotTrustedError if it is.
    """
    if gate.is_trusted:
        return
    keyframe = page.keyframe
    part = _part_bytes(keyframe)
    whole = math.prod(keyframe.shape) * keyframe.dtype.itemsize
    if part > 4 * whole + SMALL:
        raise NotTrustedError(
            f"{gate.name} is damaged, or made to fill the memory: its parts of {part:,} bytes are "
            f"larger than its images of {whole:,}. {CONSENT}"
        )
    compression = int(keyframe.compression)
    if compression not in _BOUNDED + _STATING:
        raise NotTrustedError(
            f"{gate.name} is compressed in a way (number {compression}) of which cannot be told "
            f"how much memory it takes. {CONSENT}"
        )


def _part_bytes(keyframe: Any) -> int:
    """Return the bytes of a strip or tile, decoded."""
    samples = keyframe.samplesperpixel if keyframe.planarconfig == 1 else 1
    if keyframe.is_tiled:
        pixels = keyframe.tilelength * keyframe.tilewidth * max(keyframe.tiledepth, 1)
    else:
        pixels = min(keyframe.rowsperstrip, keyframe.imagelength) * keyframe.imagewidth
    return int(pixels * samples * keyframe.dtype.itemsize)


def _require_size(page: Any, handle: Any, gate: Gate) -> None:
    """Refuse a page whose compressed parts state a size beyond their own, before it is decoded."""
    keyframe = page.keyframe
    if gate.is_trusted or int(keyframe.compression) not in _STATING:
        return
    room = _MOST_TIMES * _part_bytes(keyframe) + SMALL
    for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
        if not count:
            continue
        with handle.lock:
            handle.seek(offset)
            start = handle.read(min(count, _START))
        stated = stated_bytes(start)
        if stated is None or stated > room:
            raise ValueError(f"a part of {room:,} bytes at most states {stated or 'no size'}")
