"""A single DICOM file: an image, or the directory of a disc and what of its files may be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpore.base.readable import readable_count
from hushpore.io.dicom.header import is_dicomdir
from hushpore.io.dicom.reader import open_dicom
from hushpore.io.folders import files_below, shortened
from hushpore.io.log_capture import captured_warnings
from hushpore.io.marks import START, is_dicom

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from hushpore.base.volume import Volume


def open_dicom_file(path: Path) -> Generator[float, None, list[Volume]]:
    """Open a DICOM file, or all that the directory file of a disc names; as `open_dicom`.

    Of a single file its own pixels are read, never those of its neighbours.
    """
    if not is_dicomdir(path):
        return (yield from open_dicom([path], path))
    files, notes = files_of(path)
    dicom = [file for file in files if _is_dicom(file)]
    others: list[Path] = []
    unnamed = _unnamed(dicom, path)
    if unnamed:
        notes.append(
            f"{path.name} does not name {readable_count(len(unnamed), 'DICOM file')} that "
            f"lie beside those it names ({shortened(unnamed)}); they were not read."
        )
    if not dicom:
        notes.append(f"{path.name} names no file that is there; its folder was searched.")
        root = path.parent.resolve()
        for file in files_below(path.parent):
            # a link that leads out of the folder is no more read here than by its name
            if file.resolve().is_relative_to(root):
                (dicom if _is_dicom(file) else others).append(file)
    volumes = yield from open_dicom(dicom, path.parent, others)
    return [volume.replace(volume.data, notes=[*notes, *volume.notes]) for volume in volumes]


def _unnamed(named: list[Path], directory: Path) -> list[str]:
    """Return the DICOM files that lie in the folders of those that a directory names."""
    known = {*named, directory.resolve()}
    return [
        file.name
        for folder in sorted({file.parent for file in named})
        for file in sorted(folder.iterdir())
        if file not in known and not file.is_symlink() and file.is_file() and _is_dicom(file)
    ]


def _is_dicom(path: Path) -> bool:
    with path.open("rb") as file:
        return is_dicom(file.read(START), path)


def files_of(directory: Path) -> tuple[list[Path], list[str]]:
    """Return the files that a DICOMDIR names.

    Returns: those that are there. None lies outside the folder of the directory file, whatever it
    says: names that lead elsewhere, also by links, are refused; what was refused or is missing.
    """
    root = directory.parent.resolve()
    files: list[Path] = []
    outside, missing = [], []
    for name in _names(directory):
        # the resolved path decides, so that neither '..' nor a link leads out
        path = root.joinpath(*name).resolve()
        if not path.is_relative_to(root):
            outside.append("/".join(name))
        elif not path.is_file():
            missing.append("/".join(name))
        else:
            files.append(path)
    notes = [
        f"{directory.name} names {readable_count(len(names), 'file')} {where} "
        f"({shortened(names)}){end}."
        for names, where, end in (
            (outside, "outside its own folder", "; they were not read"),
            (missing, "not found", ""),
        )
        if names
    ]
    return list(dict.fromkeys(files)), notes


def _names(directory: Path) -> list[list[str]]:
    import pydicom

    names = []
    with captured_warnings("pydicom"):
        try:
            records = pydicom.dcmread(directory, force=True).get("DirectoryRecordSequence") or []
            for record in records:
                name = record.get("ReferencedFileID")
                if name:
                    parts = [name] if isinstance(name, str) else [str(part) for part in name]
                    names.append([part for part in parts if "\0" not in part])
        except OSError:
            raise
        except Exception:
            # a damaged directory names nothing; the folder itself is searched then
            return names
    return names
