"""The one way in which results are written: images, tables, figures and the record of the job."""

from __future__ import annotations

import json
import math
import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.deprecation import renamed_keywords
from hushpore.base.errors import InputError, OutputError
from hushpore.io.slabs import slabs
from hushpore.io.target import PROVENANCE, check_target, new_directory, new_file
from hushpore.io.units import METRES

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt
    import pandas as pd

    from hushpore.base.volume import Volume

__all__ = ["check_target", "write_image", "write_results"]

_NAME = re.compile(r"[^\W.][\w .+-]*")
# lengths that OME knows by the names that a Volume uses
_OME_UNITS = {**{unit: unit for unit in METRES}, "um": "µm", "pixel": "pixel"}
_LABEL_TYPES = (np.uint8, np.int32, np.uint32)
_LARGE = 2**32 - 2**25  # bytes from which a classic TIFF's offsets do not suffice


@renamed_keywords(record="provenance")
def write_results(
    directory: str | os.PathLike[str],
    *,
    images: Mapping[str, Volume],
    tables: Mapping[str, pd.DataFrame],
    provenance: Mapping[str, Any],
    figures: Mapping[str, bytes] | None = None,
    pages: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a result as a directory that is complete or not there at all.

    Parameters
    ----------
    directory : str or path-like
        Where to. Its parent must exist; it must not, or be empty.
    images : mapping of str to Volume
        Written as ``<name>.tif``, see `write_image`.
    tables : mapping of str to pandas.DataFrame
        Written as ``<name>.csv``, numbers in full precision.
    provenance : mapping
        How the result was made; written as ``result.json`` with the list of files added. NaN and
        infinity become null.
    figures : mapping of str to bytes, optional
        PNG files, written as ``<name>.png``.
    pages : mapping of str to str, optional
        HTML pages, written as ``<name>.html``.
    overwrite : bool, optional
        Replace an earlier result, once this one is complete. A directory that is not a result, or
        that holds other files too, is never replaced.

    Returns
    -------
    Path
        The directory.

    Raises
    ------
    OutputError
        If it cannot be written; nothing is left behind then.
    InputError
        If a name cannot be a file's, or an image has a type that TIFF does not know.
    """
    target = check_target(directory, overwrite)
    figures, pages = figures or {}, pages or {}
    names = [f"{name}.tif" for name in images]
    names += [f"{name}.csv" for name in tables] + [f"{name}.png" for name in figures]
    names += [f"{name}.html" for name in pages]
    for name in names:
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} cannot be the name of a file in a result.")
    with new_directory(target, overwrite) as part:
        for name, volume in images.items():
            _write_tiff(part / f"{name}.tif", volume)
        for name, table in tables.items():
            table.to_csv(part / f"{name}.csv", index=False, lineterminator="\n", encoding="utf-8")
        for name, picture in figures.items():
            (part / f"{name}.png").write_bytes(picture)
        for name, page in pages.items():
            (part / f"{name}.html").write_text(page, encoding="utf-8")
        write_json(part / PROVENANCE, {**provenance, "files": sorted([*names, PROVENANCE])})
    return target


@renamed_keywords(record="provenance")
def write_image(
    path: str | os.PathLike[str],
    volume: Volume,
    *,
    provenance: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a volume as an OME-TIFF file, or as OME-Zarr, that is complete or not there at all.

    Axes, spacing, unit, origin and type survive a round trip through `hushpore.read`. Boolean
    values are written as uint8, 0 and 1; 8-bit and 32-bit integers, which labels and masks have,
    are compressed with zlib.

    Parameters
    ----------
    path : str or path-like
        Ends in ``.tif`` or ``.tiff``, or in ``.zarr`` (see `hushpore.io.zarr.reader.write_zarr`).
    volume : Volume
        2D or 3D, with leading axes or without.
    provenance : mapping, optional
        How the image was made; written beside it, under its name with ``.json``.
    overwrite : bool, optional
        Replace existing files, once these are complete.

    Returns
    -------
    Path
        The TIFF file or the OME-Zarr folder.

    Raises
    ------
    OutputError
        If it cannot be written; nothing is left behind then.
    InputError
        If the volume is empty or has a type that TIFF does not know.
    """
    target = check_target(path, overwrite, directory=False)
    beside = None if provenance is None else check_provenance_target(target, overwrite)
    with ExitStack() as parts:
        # the record takes its place after the image, or not at all
        if provenance is not None and beside is not None:
            write_json(parts.enter_context(new_file(beside, overwrite)), provenance)
        if target.suffix.lower() == ".zarr":
            from hushpore.io.zarr.reader import write_zarr

            write_zarr(target, volume, overwrite=overwrite)
        else:
            _write_tiff(parts.enter_context(new_file(target, overwrite)), volume)
    return target


def check_provenance_target(image: Path, overwrite: bool = False) -> Path:
    """Return where the record of an image goes.

    Raises
    ------
    OutputError
        If a file of that name is there already and may not be replaced.
    """
    beside = image.with_suffix(".json")
    if beside.exists() and not overwrite:
        raise OutputError(f"Cannot write {beside}: it is there already. Choose another name.")
    return beside


def write_json(path: Path, provenance: Mapping[str, Any]) -> None:
    """Write a record as JSON; NaN and infinity become null."""
    text = json.dumps(_plain(provenance), indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _write_tiff(path: Path, volume: Volume) -> None:
    import tifffile

    dtype = _storable(volume)
    unit = _OME_UNITS.get(volume.unit, "pixel")
    # OME has no place for the order of axes of length one, nor for the position of the stack
    description = {"hushpore": {"axes": volume.axes, "origin": list(volume.origin)}}
    metadata: dict[str, Any] = {
        "axes": volume.axes.upper(),
        "Name": volume.name,
        "Description": json.dumps(description),
    }
    for axis, step in zip(reversed("ZYX"), reversed(volume.spacing), strict=False):
        metadata[f"PhysicalSize{axis}"] = step
        metadata[f"PhysicalSize{axis}Unit"] = unit
    tifffile.imwrite(
        path,
        _planes(volume, dtype),
        shape=volume.shape,
        dtype=dtype,
        ome=True,
        bigtiff=math.prod(volume.shape) * dtype.itemsize > _LARGE,
        photometric="minisblack",
        compression="zlib" if dtype in _LABEL_TYPES else None,
        metadata=metadata,
    )


def _planes(volume: Volume, dtype: np.dtype[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield the planes one by one; what lies on disk is read a slab at a time."""
    for _, values in slabs(volume.data):
        yield from values.reshape(-1, *volume.shape[-2:]).astype(dtype, copy=False)


def _storable(volume: Volume) -> np.dtype[Any]:
    """Return a type that OME-TIFF has, and that holds the values."""
    if 0 in volume.shape:
        raise InputError(f"{volume.name} is empty (shape {volume.shape}); nothing to write.")
    dtype = volume.dtype.newbyteorder("=")
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    if dtype.kind in "ui" and dtype.itemsize == 8:
        smaller = np.dtype(f"{dtype.kind}4")
        limits = np.iinfo(smaller)
        ends = [(values.min(), values.max()) for _, values in slabs(volume.data)]
        lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
        if lowest < limits.min or highest > limits.max:
            raise InputError(
                f"{volume.name} holds {dtype} values from {lowest} to {highest}; TIFF stores "
                "integers of 32 bits. Rescale them first."
            )
        return smaller
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    return dtype


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
