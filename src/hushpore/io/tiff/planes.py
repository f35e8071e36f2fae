"""Planes of a TIFF series on disk: at their place in the file, or page by page."""

from __future__ import annotations

import math
import re
import weakref
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError, MissingPackageError
from hushpore.io.codestream import stated_size
from hushpore.io.log_capture import captured_log
from hushpore.io.planes import PlaneStack, uncompressed_planes

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import tifffile

# compressions that state the size of the image once more, as TIFF numbers them
_JPEGS = (7, 33003, 33004, 33005, 34712)
_START = 65536  # bytes within which they do


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
        stored = level.dtype.newbyteorder(level.keyframe.parent.byteorder)
        return uncompressed_planes(path, level.dataoffset, stored, leading, plane_shape)
    pages: list[Any] = list(level.pages)
    if level.is_multifile or len(pages) != leading.size:
        return None
    if any(page is None or math.prod(page.shape) != math.prod(plane_shape) for page in pages):
        return None
    handle: Any = pages[0].parent.filehandle
    handle.set_lock(True)

    def read(number: int, out: npt.NDArray[Any]) -> None:
        try:
            with captured_log("tifffile"):
                with handle.lock:
                    if handle.closed:
                        handle.open()
                _require_size(pages[number], handle)
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


def _require_size(page: Any, handle: Any) -> None:
    """Refuse a page whose compressed parts state a size beyond their own, before it is decoded."""
    keyframe = page.keyframe
    if int(keyframe.compression) not in _JPEGS:
        return
    if keyframe.is_tiled:
        room = (keyframe.tilelength, keyframe.tilewidth)
    else:
        room = (min(keyframe.rowsperstrip, keyframe.imagelength), keyframe.imagewidth)
    for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
        with handle.lock:
            handle.seek(offset)
            start = handle.read(min(count, _START))
        stated = stated_size(start)
        if stated is not None and (stated[0] > room[0] or stated[1] > room[1]):
            raise ValueError(f"a part of {room[0]} x {room[1]} pixels states {stated}")
