"""The directory file of a DICOM disc: which files it names, and which of them may be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpore.io.dicom.header import import_pydicom
from hushpore.io.messages import captured

if TYPE_CHECKING:
    from pathlib import Path

_MOST_NAMED = 3


def files_of(directory: Path) -> tuple[list[Path], list[str]]:
    """Return the files that a DICOMDIR names.

    Parameters
    ----------
    directory : Path
        The file itself.

    Returns
    -------
    files : list of Path
        Those that are there. None lies outside the folder of the directory file, whatever it
        says: names that lead elsewhere, also by links, are refused.
    notes : list of str
        What was refused or is missing.
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
    notes = []
    if outside:
        notes.append(
            f"{directory.name} names {len(outside)} file(s) outside its own folder "
            f"({', '.join(outside[:_MOST_NAMED])}); they were not read."
        )
    if missing:
        notes.append(
            f"{directory.name} names {len(missing)} file(s) that are not there "
            f"({', '.join(missing[:_MOST_NAMED])})."
        )
    return list(dict.fromkeys(files)), notes


def _names(directory: Path) -> list[list[str]]:
    pydicom = import_pydicom()
    names = []
    with captured("pydicom"):
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
