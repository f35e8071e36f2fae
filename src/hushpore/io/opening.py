"""What is in a file or folder: finds the reader for it, and leaves the values on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io.formats import IMAGES, files_below, is_zarr, kind_of_file, natural_key

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence, Set
    from pathlib import Path

    #: Yields the share of the headers that was read; returns volumes that lie on disk still.
    Opening: TypeAlias = Generator[float, None, list[Volume]]


def opening(path: Path) -> Opening:
    """Open every image stack of a file or folder without reading its values.

    Yields
    ------
    float
        The share of the headers that was read.

    Raises
    ------
    InputError, MissingPackageError
        As for `hushpore.io.read_all`.
    OSError
        If the system refuses.
    """
    path.stat()
    return (yield from _folder(path) if path.is_dir() else _file(path))


def opening_files(files: Sequence[Path], folder: Path) -> Opening:
    """Open some files as if they were all that a folder holds; as `opening`.

    Parameters
    ----------
    files : sequence of Path
        At least two, as a user picks them out of a folder.
    folder : Path
        Where they lie, for names and messages.
    """
    for path in files:
        path.stat()
    return (yield from _files(sorted(files, key=natural_key), folder, {p.parent for p in files}))


def _file(path: Path) -> Opening:
    kind = kind_of_file(path)
    if kind == "tiff":
        from hushpore.io.tiff.reader import read_tiff

        return read_tiff(path)
    if kind == "dicom":
        from hushpore.io.dicom.header import is_dicomdir

        if is_dicomdir(path):
            return (yield from _disc(path))
        return (yield from _dicom([path], path))
    if kind == "npy":
        return [_npy(path)]
    if kind == "nifti":
        from hushpore.io.nifti import read_nifti

        return [read_nifti(path)]
    if kind == "raw":
        from hushpore.io.raw import open_raw

        return [open_raw(path)]
    raise InputError(_not_ours(path))


def _folder(folder: Path) -> Opening:
    if is_zarr(folder):
        from hushpore.io.zarr.reader import open_zarr

        return open_zarr(folder)
    files = files_below(folder)
    if not files:
        raise InputError(f"The folder {folder} is empty; expected a DICOM series or TIFF files.")
    return (yield from _files(files, folder, {folder}))


def _files(files: Sequence[Path], folder: Path, places: Set[Path]) -> Opening:
    """Open the files of a folder; of those that are TIFF only what lies right in `places`."""
    kinds = {path: kind_of_file(path) for path in files}
    dicom = [path for path in files if kinds[path] == "dicom"]
    if dicom:
        strays = [path for path in files if kinds[path] != "dicom"]
        return (yield from _dicom(dicom, folder, strays))
    tiff = [path for path in files if kinds[path] == "tiff"]
    here = sorted((path for path in tiff if path.parent in places), key=natural_key)
    if here:
        from hushpore.io.tiff.reader import read_tiff_folder

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


def _disc(directory: Path) -> Opening:
    from hushpore.io.dicom.directory import files_of

    files, notes = files_of(directory)
    kinds = {path: kind_of_file(path) for path in files}
    dicom = [path for path in files if kinds[path] == "dicom"]
    if dicom:
        volumes = yield from _dicom(dicom, directory.parent)
    else:
        notes.append(f"{directory.name} names no file that is there; its folder was searched.")
        volumes = yield from _folder(directory.parent)
    return [volume.replace(volume.data, notes=[*notes, *volume.notes]) for volume in volumes]


def _dicom(files: Sequence[Path], place: Path, strays: Sequence[Path] = ()) -> Opening:
    from hushpore.io.dicom.reader import open_dicom

    return (yield from open_dicom(files, place, strays))


def _npy(path: Path) -> Volume:
    try:
        values: Any = np.load(path, allow_pickle=False, mmap_mode="r")
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


def _some(names: Sequence[str], limit: int = 3) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
