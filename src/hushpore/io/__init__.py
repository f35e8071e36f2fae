"""Files to volumes, and results to files.

`read` and `read_all` open DICOM (a file, a series, a folder of several), TIFF (ImageJ, OME, plain
stacks, a folder with one slice a file) and NumPy files. `hushpore.io.results` writes.
"""

from __future__ import annotations

import dataclasses
import errno
import math
from pathlib import Path
from typing import TYPE_CHECKING

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io.formats import IMAGES, files_below, kind_of, kind_of_file, natural_key

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

__all__ = ["kind_of", "read", "read_all"]


def read(path: str | os.PathLike[str]) -> Volume:
    """Read the image stack of a file or folder.

    Parameters
    ----------
    path : str or path-like
        A TIFF, DICOM or NumPy file, or a folder that holds a DICOM series or one TIFF a slice.
        Of a single DICOM file its own pixels are read, never those of its neighbours.

    Returns
    -------
    Volume
        With spacing, unit, axes and notes. Where there are several, the one with most voxels; a
        note then names the others.

    Raises
    ------
    InputError
        If there is nothing that can be read; says why.
    MissingPackageError
        If an optional package is needed; gives the command that installs it.
    """
    volumes = read_all(path)
    largest = max(volumes, key=lambda volume: math.prod(volume.shape))
    others = [volume for volume in volumes if volume is not largest]
    if not others:
        return largest
    names = "; ".join(f"{volume.name} ({_times(volume.shape)})" for volume in others)
    note = (
        f"The largest of {len(volumes)} image stacks was read. The others: {names}; "
        "hushpore.read_all gives them all."
    )
    return dataclasses.replace(largest, notes=[note, *largest.notes])


def read_all(path: str | os.PathLike[str]) -> list[Volume]:
    """Read every image stack of a file or folder: one for each DICOM series and shape of page.

    Parameters
    ----------
    path : str or path-like
        As for `read`.

    Returns
    -------
    list of Volume
        At least one.

    Raises
    ------
    InputError
        If there is nothing that can be read; says why.
    MissingPackageError
        If an optional package is needed; gives the command that installs it.
    """
    place = Path(path).expanduser()
    try:
        place.stat()
        volumes = _read_folder(place) if place.is_dir() else _read_file(place)
    except OSError as error:
        raise _explain(place, error) from error
    return [dataclasses.replace(volume, source=str(place)) for volume in volumes]


def _read_file(path: Path) -> list[Volume]:
    kind = kind_of_file(path)
    if kind == "tiff":
        from hushpore.io.tiff import read_tiff

        return read_tiff(path)
    if kind == "dicom":
        from hushpore.io.dicom import read_dicom
        from hushpore.io.dicom_header import is_dicomdir

        if is_dicomdir(path):
            return _read_folder(path.parent)
        return read_dicom([path], path)
    if kind == "npy":
        return [_read_npy(path)]
    raise InputError(_not_ours(path))


def _read_folder(folder: Path) -> list[Volume]:
    files = files_below(folder)
    if not files:
        raise InputError(f"The folder {folder} is empty; expected a DICOM series or TIFF files.")
    kinds = {path: kind_of_file(path) for path in files}
    dicom = [path for path in files if kinds[path] == "dicom"]
    if dicom:
        from hushpore.io.dicom import read_dicom

        return read_dicom(dicom, folder, strays=[path for path in files if path not in set(dicom)])
    tiff = [path for path in files if kinds[path] == "tiff"]
    here = sorted((path for path in tiff if path.parent == folder), key=natural_key)
    if here:
        from hushpore.io.tiff import read_tiff_folder

        return read_tiff_folder(here, folder)
    if tiff:
        where = sorted({str(path.parent.relative_to(folder)) for path in tiff})
        raise InputError(
            f"The folder {folder} holds no images itself; the TIFF files are in its folders "
            f"{_some(where)}. Open one of these."
        )
    raise InputError(
        f"The folder {folder} holds no image stack: none of its {len(files)} files "
        f"({_some([path.name for path in files])}) is DICOM or TIFF."
    )


def _read_npy(path: Path) -> Volume:
    import numpy as np

    try:
        values = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path.name} is not a complete NumPy file: {error}.") from error
    return Volume(values, name=path.stem)


def _not_ours(path: Path) -> str:
    if path.stat().st_size == 0:
        return f"{path.name} is empty (0 bytes)."
    suffix = path.suffix.lower()
    if suffix in (".tif", ".tiff", ".btf", ".npy", ".dcm"):
        kind = {".npy": "NumPy", ".dcm": "DICOM"}.get(suffix, "TIFF")
        with path.open("rb") as file:
            start = file.read(12)
        return f"{path.name} is named like a {kind} file but is not one: it begins with {start!r}."
    if suffix in IMAGES:
        return (
            f"{path.name} is a photograph or picture format ({suffix}); TIFF, DICOM and NumPy "
            "(.npy) stacks are read. Save it as a greyscale TIFF first, for example in ImageJ."
        )
    return f"{path.name} is not a file that can be read: TIFF, DICOM or NumPy (.npy) is expected."


def _explain(path: Path, error: OSError) -> InputError:
    where = error.filename or path
    if isinstance(error, FileNotFoundError):
        return InputError(f"There is no file or folder {where}.")
    if isinstance(error, PermissionError):
        return InputError(f"You are not allowed to read {where}; ask its owner for permission.")
    if error.errno == errno.ENAMETOOLONG:
        return InputError(f"The name {str(path)[:60]}... is too long for a file.")
    return InputError(f"{where} cannot be read: {error.strerror or error}.")


def _times(shape: Sequence[int]) -> str:
    return " x ".join(str(n) for n in shape)


def _some(names: Sequence[str], limit: int = 3) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
