"""Reading of NIfTI files with nibabel."""

from __future__ import annotations

import math
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import unit_of
from hushpore.base.volume import Volume
from hushpore.io.input_limits import REST, limits_for
from hushpore.io.lazy_arrays import PlaneStack, Stream, uncompressed_planes
from hushpore.io.libraries import captured_warnings, explained_damage

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.base.arrays import Array

_NO_UNIT = "The header gives no unit; millimetres are assumed, as in nibabel and ITK."
_NO_NUMBERS = "The voxel size in the header is not a number, so it is not known."
_LOGGER = "nibabel.global"  # logger of nibabel for problems in a header


def read_nifti(path: Path) -> Volume:
    """Open a NIfTI image, 2D to 4D, as a lazy volume.

    `path`: ``.nii`` or ``.nii.gz``.
    Returns: a volume with axes zyx or tzyx; rows keep their stored order.
    Raises InputError if the file is damaged or does not contain grey values.
    """
    import nibabel

    with explained_damage(partial(_damaged, path)), captured_warnings(_LOGGER) as messages:
        image: Any = nibabel.load(path)
        _require_plausible(image, path)
        steps = image.header.get_zooms()
        stated = _unit(image.header)
        values = _values(image, path)
    n_spatial = min(values.ndim, 3)
    # sizes of 1 without a unit are what programs write that know nothing of the image
    assumed = stated == "unknown" and any(step not in (0, 1) for step in steps[:n_spatial])
    unit = ("mm", 1.0) if assumed else unit_of(stated.replace("unknown", ""))
    notes = [_NO_UNIT] if assumed else []
    if not all(math.isfinite(step) for step in steps[:n_spatial]):
        unit, notes = None, [_NO_NUMBERS]
    return Volume(
        values,
        # shortest decimal of a float32: 0.4, not 0.4000000059604645
        spacing=tuple((unit and float(str(step))) or 1.0 for step in reversed(steps[:n_spatial])),
        unit=unit[0] if unit else "pixel",
        name=path.name.removesuffix(".gz").removesuffix(".nii"),
        notes=[*(f"NIfTI: {message}." for message in messages), *notes, *_notes(image, path)],
    )


def _unit(header: Any) -> str:
    """Return the unit of length in a header; ``"unknown"`` also for a code that has no meaning."""
    try:
        return str(header.get_xyzt_units()[0])
    except KeyError:
        return "unknown"


def _notes(image: Any, path: Path) -> list[str]:
    """Return notes on values that a damaged header would explain, too."""
    notes, stored = [], image.dataobj
    if (stored.slope, stored.inter) != (1, 0):
        notes.append(
            f"The stored values are rescaled with slope {stored.slope:g} and intercept "
            f"{stored.inter:g}, as given in the header."
        )
    end = stored.offset + math.prod(image.shape) * image.get_data_dtype().itemsize
    if not path.name.lower().endswith(".gz"):
        return notes + limits_for(path).notes_of_rest(end)
    with path.open("rb") as file:
        # the last four bytes give the uncompressed size of the (last) gzip stream
        file.seek(-4, os.SEEK_END)
        expanded = int.from_bytes(file.read(4), "little")
    if expanded > end:
        notes.append(REST.format(name=path.name, rest=expanded - end))
    return notes


def _values(image: Any, path: Path) -> PlaneStack | Stream:
    """Return the values of an image as a lazy array in z, y, x order."""
    stored, dtype = image.dataobj, image.get_data_dtype()
    if dtype.kind not in "buif":
        raise InputError(f"{path.name} contains {dtype} values; grey values are needed.")
    # NIfTI stores x fastest, so the order of the axes is reversed
    shape = tuple(image.shape[:3]) + tuple(n for n in image.shape[3:] if n > 1)
    shape = shape[::-1]
    is_scaled = (stored.slope, stored.inter) != (1, 0)
    if not is_scaled and not path.name.lower().endswith(".gz") and len(shape) > 1:
        numbers = np.arange(math.prod(shape[:-2])).reshape(shape[:-2])
        return uncompressed_planes(path, stored.offset, dtype, numbers, shape[-2:])
    wanted = dtype.newbyteorder("=")
    if is_scaled and wanted != np.float64:
        wanted = np.dtype(np.float32)

    def fill(out: Array) -> None:
        with explained_damage(partial(_damaged, path)), captured_warnings(_LOGGER):
            out[...] = np.asarray(stored).T.reshape(shape)

    return Stream(shape, wanted, fill, limits_for(path))


def _damaged(path: Path, error: Exception) -> InputError:
    if isinstance(error, EOFError):
        return InputError(
            f"{path.name} is incomplete: its compressed data end too early. Copy or export it "
            "again."
        )
    return InputError(
        f"{path.name} is damaged or incomplete and cannot be read as NIfTI "
        f"({type(error).__name__}: {error}). Copy or export it again."
    )


def _require_plausible(image: Any, path: Path) -> None:
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
    if path.name.lower().endswith(".gz"):
        limits_for(path).require_plausible(needed)
    elif needed > path.stat().st_size - image.dataobj.offset:
        raise InputError(
            f"{path.name} is damaged or incomplete: it is too small for an image of "
            f"{' x '.join(map(str, image.shape))} voxels. Copy or export it again."
        )
