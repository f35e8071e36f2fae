"""What kind of file is this? Answered from its first bytes, not from its name."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind: TypeAlias = Literal["tiff", "dicom", "npy", "zarr", "nifti", "raw"]

#: Pictures that people drop by mistake.
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")

_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
# the first group of a data set without preamble: 0002 or 0008, either byte order
_BARE_DICOM = (b"\x02\x00\x00\x00", b"\x08\x00\x00\x00", b"\x08\x00\x05\x00", b"\x08\x00\x08\x00")
_BARE_DICOM_BIG = (b"\x00\x08\x00\x00", b"\x00\x08\x00\x05", b"\x00\x08\x00\x08")
_ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray")
# a header in text, of ITK and many others
_META_IMAGE = re.compile(rb"\s*(ObjectType\s*=\s*Image|NDims\s*=|Comment\s*=)")
_RAW = (".raw", ".bin", ".vol", ".dat")
_PEEK = 24  # files and folders looked at in a folder before giving up


def kind_of(path: str | os.PathLike[str]) -> Kind | None:
    """Say quickly whether a file or folder can be read, and as what.

    Reads a few bytes of a file, or of the first files in a folder; never raises.

    Parameters
    ----------
    path : str or path-like
        A file or folder, existing or not.

    Returns
    -------
    {"tiff", "dicom", "npy", "zarr", "nifti", "raw"} or None
        None where it is not for `hushpore.read`.

    Examples
    --------
    >>> kind_of("no such file") is None
    True
    """
    place = Path(path).expanduser()
    try:
        if not place.is_dir():
            return kind_of_file(place)
        if is_zarr(place):
            return "zarr"
        kinds = {kind_of_file(file) for file in itertools.islice(_walk(place), _PEEK)}
    except (OSError, ValueError):
        return None
    if "dicom" in kinds:
        return "dicom"
    return "tiff" if "tiff" in kinds and _holds_tiff(place) else None


def kind_of_file(path: Path) -> Kind | None:
    """Return the kind of one file by its first bytes; by its name too where they say nothing.

    Raises
    ------
    OSError
        If it cannot be opened.
    """
    if not path.is_file():
        # a pipe or device would block or never end; a missing file is told by `open`
        if path.exists():
            return None
        raise FileNotFoundError(2, "No such file", str(path))
    with path.open("rb") as file:
        start = file.read(348)
    gzip = start[:2] == b"\x1f\x8b"
    marks: tuple[tuple[Kind, bool], ...] = (
        # first this one, because the 128 bytes before it are free and may look like a TIFF
        ("dicom", start[128:132] == b"DICM"),
        ("tiff", start[:4] in _TIFF),
        ("npy", start[:6] == b"\x93NUMPY"),
        ("nifti", start[344:348] == b"n+1\0" or start[4:8] == b"n+2\0"),
        ("nifti", gzip and path.name.lower().endswith(".nii.gz")),
        ("raw", _META_IMAGE.match(start) is not None or sidecar_of(path) is not None),
        ("dicom", _is_bare_dicom(start)),
    )
    return next((kind for kind, fits in marks if fits), None)


def sidecar_of(path: Path) -> Path | None:
    """Return the JSON file that describes a raw file: ``scan.json`` or ``scan.raw.json``."""
    if path.suffix.lower() not in _RAW:
        return None
    for sidecar in (path.with_suffix(".json"), path.with_name(path.name + ".json")):
        if sidecar.is_file():
            return sidecar
    return None


def is_zarr(folder: Path) -> bool:
    """Whether a folder is a Zarr group or array, by the file that marks one."""
    return any((folder / mark).is_file() for mark in _ZARR_MARKS)


def files_below(folder: Path) -> list[Path]:
    """Return all files of a folder and its folders, hidden ones left out, in natural order."""
    found = []
    for place, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if not _is_hidden(name)]
    return sorted((path for path in found if path.is_file()), key=natural_key)


def natural_key(path: Path) -> tuple[tuple[tuple[int, int | str], ...], ...]:
    """Key that sorts img2 before img10.

    >>> sorted(map(Path, ["img10.tif", "img2.tif"]), key=natural_key)[0].name
    'img2.tif'
    """
    return tuple(
        tuple(
            (0, int(piece)) if piece.isdecimal() else (1, piece.lower())
            for piece in re.split(r"(\d+)", part)
            if piece
        )
        for part in path.parts
    )


def _is_bare_dicom(start: bytes) -> bool:
    """Whether it looks like a data set without the 128 bytes and the mark before it.

    A tag of group 0002 or 0008 alone is too weak: a value representation, or the length that
    belongs to the element, must follow.
    """
    if len(start) < 12:
        return False
    group = start[:2]
    if group not in (b"\x08\x00", b"\x02\x00", b"\x00\x08"):
        return False
    explicit = start[4:6].isalpha() and start[4:6].isupper()
    if start[:4] in _BARE_DICOM_BIG:
        return explicit
    if start[:4] not in _BARE_DICOM and not explicit:
        return False
    return explicit or int.from_bytes(start[4:8], "little") < 128


def _walk(folder: Path) -> Iterator[Path]:
    """Yield files breadth first, lazily: a folder of a million files is not listed."""
    queue = [folder]
    for _ in range(_PEEK):
        if not queue:
            return
        with os.scandir(queue.pop(0)) as entries:
            for entry in itertools.islice(entries, 2 * _PEEK):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    queue.append(Path(entry.path))
                elif entry.is_file():
                    yield Path(entry.path)


def _holds_tiff(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        files = (Path(entry.path) for entry in entries if entry.is_file())
        return any(kind_of_file(path) == "tiff" for path in itertools.islice(files, _PEEK))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in ("thumbs.db", "desktop.ini")


def _raise(error: OSError) -> None:
    raise error
