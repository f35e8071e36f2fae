"""Writing of result folders and OME-TIFF images, and reading of points."""

from __future__ import annotations

import json
import math
import re
import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError, OutputError
from hushpore.base.formatting import METRES, harmless, harmless_table, read_table, read_text
from hushpore.base.preferences import preferred
from hushpore.io.export.workbook import write_sheets
from hushpore.io.lazy_arrays import slabs
from hushpore.io.output_target import PROVENANCE, check_target, new_directory
from hushpore.io.registry import exporter_by_ending, exporters_of
from hushpore.io.undefined import value_metadata

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from hushpore.base.arrays import Array, Float64s
    from hushpore.base.volume import Volume


# OME names of the length units of a Volume
_OME_UNITS = {**{unit: unit for unit in METRES}, "um": "µm", "pixel": "pixel"}
_LABEL_TYPES = (np.uint8, np.int32, np.uint32)
_LARGE = 2**32 - 2**25  # size in bytes above which BigTIFF is needed


def write_tiff(path: Path, volume: Volume) -> None:
    """Write a volume as OME-TIFF; called by `hushpore.io.results.write_image`."""
    import tifffile

    dtype = _storable(volume)
    unit = _OME_UNITS.get(volume.unit, "pixel")
    # OME cannot store axes of length one, the origin of the stack and value metadata, and few
    # programs support its 1-bit type
    ours: dict[str, Any] = {
        "axes": volume.axes,
        "origin": list(volume.origin),
        **value_metadata(volume.metadata),
    }
    if volume.dtype.kind == "b":
        ours["type"] = "bool"
    description = {"hushpore": ours}
    metadata: dict[str, Any] = {
        "axes": volume.axes.upper(),
        # XML allows no control characters, not even escaped
        "Name": harmless(volume.name),
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


def _planes(volume: Volume, dtype: np.dtype[Any]) -> Iterator[Array]:
    """Yield the planes one by one; a lazy volume is read slab by slab."""
    for _, values in slabs(volume.data):
        yield from values.reshape(-1, *volume.shape[-2:]).astype(dtype, copy=False)


def _storable(volume: Volume) -> np.dtype[Any]:
    """Return a data type of OME-TIFF that can store the values."""
    if 0 in volume.shape:
        raise InputError(
            f"{volume.name} is empty (shape {volume.shape}); there is nothing to write."
        )
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
                f"{volume.name} has {dtype} values from {lowest} to {highest}, but TIFF stores "
                "integers of 32 bits. Rescale them first."
            )
        return smaller
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    return dtype


__all__ = ["as_csv", "check_image_target", "check_target", "write_image", "write_results"]

_NAME = re.compile(r"[^\W.][\w .+-]*")


def write_results(
    directory: str | os.PathLike[str],
    *,
    images: Mapping[str, Volume],
    tables: Mapping[str, pd.DataFrame],
    provenance: Mapping[str, Any],
    figures: Mapping[str, bytes] | None = None,
    pages: Mapping[str, str] | None = None,
    arrays: Mapping[str, Mapping[str, Any]] | None = None,
    workbooks: Mapping[str, Mapping[str, pd.DataFrame]] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a result as a directory, atomically.

    Parameters
    ----------
    directory : str or path-like
        New or empty directory; its parent must exist.
    images : mapping of str to Volume
        Written as ``<name>.tif``, see `write_image`.
    tables : mapping of str to pandas.DataFrame
        Written as ``<name>.csv``, numbers in full precision.
    provenance : mapping
        Record of the job, written as ``result.json`` with a list of the files. NaN and infinity
        become null.
    figures : mapping of str to bytes, optional
        PNG files, written as ``<name>.png``.
    pages : mapping of str to str, optional
        HTML pages, written as ``<name>.html``.
    arrays : mapping of str to mapping, optional
        Sets of arrays by their names, written compressed as ``<name>.npz``.
    workbooks : mapping of str to mapping, optional
        Tables by the names of their sheets, written as ``<name>.xlsx``.
    overwrite : bool, optional
        Replace an earlier result when this one is complete. A directory that is not a result, or
        contains other files, is never replaced.

    Returns
    -------
    Path
        The directory.

    Raises
    ------
    OutputError
        If it cannot be written; no partial files remain.
    InputError
        If a name is not a valid file name, or TIFF does not support the data type of an image.
    """
    target = check_target(directory, overwrite)
    figures, pages, arrays, workbooks = figures or {}, pages or {}, arrays or {}, workbooks or {}
    parts = {
        "tif": images, "csv": tables, "png": figures, "html": pages, "npz": arrays,
        "xlsx": workbooks,
    }  # fmt: skip
    names = [f"{name}.{ending}" for ending, named in parts.items() for name in named]
    for name in names:
        if not _NAME.fullmatch(name):
            raise InputError(
                f"{name!r} is not a valid file name for a result. Use letters, digits, spaces and "
                ". _ + -."
            )
    with new_directory(target, overwrite) as part:
        for name, volume in images.items():
            write_tiff(part / f"{name}.tif", volume)
        for name, table in tables.items():
            as_csv(table, part / f"{name}.csv")
        for name, picture in figures.items():
            (part / f"{name}.png").write_bytes(picture)
        for name, page in pages.items():
            (part / f"{name}.html").write_text(page, encoding="utf-8")
        for name, named in arrays.items():
            write_arrays(part / f"{name}.npz", named)
        for name, sheets in workbooks.items():
            write_sheets(part / f"{name}.xlsx", sheets)
        write_json(part / PROVENANCE, {**provenance, "files": sorted([*names, PROVENANCE])})
    return target


def write_image(
    path: str | os.PathLike[str],
    volume: Volume,
    *,
    provenance: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a volume as OME-TIFF or OME-Zarr, atomically.

    Axes, spacing, unit, origin and data type survive a round trip through `hushpore.read`. TIFF
    stores boolean values as uint8 (0 and 1), with a mark in the metadata, and compresses 8-bit and
    32-bit integers (labels and masks) with zlib.

    Parameters
    ----------
    path : str or path-like
        Ends in ``.tif`` or ``.tiff`` (see `hushpore.io.results.write_tiff`), or in ``.zarr``
        (see `hushpore.io.zarr.write_zarr`).
    volume : Volume
        2D or 3D, with or without leading axes.
    provenance : mapping, optional
        Record of the job, written next to the image under the same name with ``.json``.
    overwrite : bool, optional
        Replace existing files when the new ones are complete.

    Returns
    -------
    Path
        The TIFF file or the OME-Zarr folder.

    Raises
    ------
    OutputError
        If it cannot be written; no partial files remain.
    InputError
        If the volume is empty, or TIFF does not support its data type.
    """
    target = check_target(path, overwrite, suffixes=_endings())
    exporter = exporter_by_ending(target, "image")
    assert exporter is not None  # its ending was checked
    with ExitStack() as parts:
        replaced = None
        # the record is renamed after the image
        if provenance is not None:
            beside = check_provenance_target(target, overwrite)
            write_json(parts.enter_context(new_file(beside, overwrite)), provenance)
            replaced = beside if overwrite else None

        def ready() -> None:
            # an image may briefly have no record, but never the record of another image
            if replaced is not None:
                replaced.unlink(missing_ok=True)

        exporter.write(target, volume, overwrite, ready)
    return target


def as_csv(table: pd.DataFrame, path: Path | None = None, separator: str = "") -> str | None:
    """Write a table as CSV with full precision, made safe by `harmless_table`.

    The decimal sign is that of the preference ``csv_decimal``; with commas, semicolons are between
    the columns. `path`: file to write; without it the text is returned. `separator`: another one.
    """
    has_commas = preferred("csv_decimal").value == "comma"
    found: str | None = harmless_table(table).to_csv(
        path,
        sep=separator or ",;"[has_commas],
        decimal=".,"[has_commas],
        index=False,
        lineterminator="\n",
        encoding="utf-8",
    )
    return found


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write named arrays as a compressed NumPy archive."""
    # numpy.savez_compressed takes three to four times as long for files 1/8 to 1/6 smaller
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(values), allow_pickle=False)


def check_image_target(path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Check that an image and its record can be written; as `check_target`."""
    target = check_target(path, overwrite, suffixes=_endings())
    check_provenance_target(target, overwrite)
    return target


def check_provenance_target(image: Path, overwrite: bool = False) -> Path:
    """Return the path of the record of an image.

    Raises OutputError if the file exists and may not be replaced. A file that is not a record, such
    as the header of a raw file, is never replaced.
    """
    beside = image.with_suffix(".json")
    if beside.exists() and not (overwrite and _holds_record(beside)):
        foreign = " and is not a record of hushpore" if overwrite else ""
        raise OutputError(
            f"Cannot write {beside}: it already exists{foreign}. Choose another name."
        )
    return beside


def is_record(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether JSON values are a record of hushpore, with the names of jobs."""
    return isinstance(value, dict) and ("jobs" in value or "job" in value)


def _holds_record(path: Path) -> bool:
    try:
        return is_record(json.loads(read_text(path)))
    except (OSError, ValueError, RecursionError):
        return False


def _endings() -> tuple[str, ...]:
    return tuple(end for each in exporters_of("image").values() for end in each.endings)


def write_json(path: Path, provenance: Mapping[str, Any]) -> None:
    """Write a record as JSON; NaN and infinity become null."""
    text = json.dumps(_as_json(provenance), indent=2, ensure_ascii=False, allow_nan=False)
    # a name with invalid characters is written with escapes
    path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def _as_json(value: Any) -> Any:
    """Return a value converted to JSON types."""
    if isinstance(value, dict):
        return {str(key): _as_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_as_json(each) for each in value]
    if isinstance(value, np.ndarray):
        return _as_json(value.tolist())
    if isinstance(value, np.generic):
        return _as_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


_EXPECTED = (
    "Expected one row per point with the columns z, y and x (or y and x), or axis-0, axis-1, ... "
    "as written by napari, in voxels."
)


def read_points(path: str | Path) -> Float64s:
    """Read points from a CSV file.

    `path`: table with the columns ``z``, ``y``, ``x``, or ``axis-0``, ``axis-1``, ...; other
    columns are ignored.
    Returns: float64, shape (n, 2) or (n, 3): voxel coordinates in z, y, x order.
    Raises InputError if the file cannot be read, lacks these columns, or contains a coordinate that
    is not a number.
    """
    import pandas as pd

    path = Path(path)
    try:
        table = read_table(path, skipinitialspace=True)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        raise InputError(f"{path.name} is not a table of points: {error}. {_EXPECTED}") from None
    lowered = {str(name).strip().lower(): name for name in table.columns}
    wanted = [name for name in "zyx" if name in lowered]
    if not {"y", "x"} <= set(wanted):
        wanted = sorted(name for name in lowered if re.fullmatch(r"axis-\d", name))
    if len(wanted) < 2:
        present = ", ".join(str(name) for name in table.columns)
        raise InputError(f"{path.name} has the columns {present}. {_EXPECTED}")
    columns = [pd.to_numeric(table[lowered[name]], errors="coerce") for name in wanted]
    points = np.stack([column.to_numpy(np.float64) for column in columns], axis=1)
    if not np.isfinite(points).all():
        row = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise InputError(
            f"{path.name}: a coordinate of point {row + 1} is not a number. {_EXPECTED}"
        )
    return points
