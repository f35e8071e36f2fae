"""The files of a folder, and what marks a file of each format: its first bytes, or others by it."""

from __future__ import annotations

import itertools
import os
import re
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    #: A part of a path, and a path, as they are sorted.
    _PartKey = tuple[tuple[int, int | str], ...]
    _Key = tuple[_PartKey, ...]

#: Files and folders that are looked at to tell what a folder holds.
PEEK = 24
#: What systems put into folders.
_OF_SYSTEMS = ("thumbs.db", "ehthumbs.db", "desktop.ini")
_DIGITS = re.compile(r"(\d+)")
_BEGINNING = 1 << 16  # bytes of a file that tell what it is, and hold the header of a slice
#: Bytes of the beginning of a file that a mark is looked for in.
START = 348
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
NUMPY = b"\x93NUMPY"
_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
# lengths of the header of a BMP, which follows the 14 bytes of the file's
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)
# the first group of a data set without preamble: 0002 or 0008, either byte order
_BARE_DICOM = (b"\x02\x00\x00\x00", b"\x08\x00\x00\x00", b"\x08\x00\x05\x00", b"\x08\x00\x08\x00")
_BARE_DICOM_BIG = (b"\x00\x08\x00\x00", b"\x00\x08\x00\x05", b"\x00\x08\x00\x08")
_ZARR = ("zarr.json", ".zgroup", ".zarray")
# a header in text, of ITK and many others
META_IMAGE = re.compile(rb"\s*(ObjectType\s*=\s*Image|NDims\s*=|Comment\s*=)")
#: How the names of raw files end.
RAW = (".raw", ".bin", ".vol", ".dat")
#: How the names of the headers end that scanners put beside raw files.
HEADERS = (".vgi", ".xtekct", ".pcr", ".vol.info")


def files_below(folder: Path) -> list[Path]:
    """Return all files of a folder and its folders, hidden ones left out, in natural order."""
    found: list[tuple[_Key, Path]] = []
    folders = [(natural_key(folder), folder)]
    while folders:
        above, place = folders.pop()
        with os.scandir(place) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith("."):
                    continue
                # the key of a folder is made once, not for each of its files
                if entry.is_dir(follow_symlinks=False):
                    folders.append(((*above, _part_key(name)), place / name))
                # links in a circle raise in an entry, and are no file to a path
                elif name.lower() not in _OF_SYSTEMS and (
                    entry.is_file(follow_symlinks=False) or (place / name).is_file()
                ):
                    found.append(((*above, _part_key(name)), place / name))
    return [path for _, path in sorted(found, key=itemgetter(0))]


def first_files(folder: Path) -> Iterator[Path]:
    """Yield some files breadth first, lazily: a folder of a million files is not listed."""
    queue = [folder]
    for _ in range(PEEK):
        if not queue:
            return
        with os.scandir(queue.pop(0)) as entries:
            for entry in itertools.islice(entries, 2 * PEEK):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    queue.append(Path(entry.path))
                elif entry.is_file():
                    yield Path(entry.path)


def read_beginnings_ahead(files: Sequence[Path]) -> None:
    """Have the system read the beginnings of files all at once, where it takes such advice (Linux).

    They are opened one after the other; without it each waits for the disk anew.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    for path in files:
        # whoever opens it next says what is wrong
        with suppress(OSError):
            # a pipe would wait for its writer
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                os.posix_fadvise(descriptor, 0, _BEGINNING, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)


def natural_key(path: Path) -> _Key:
    """Key that sorts img2 before img10.

    >>> sorted(map(Path, ["img10.tif", "img2.tif"]), key=natural_key)[0].name
    'img2.tif'
    """
    return tuple(map(_part_key, path.parts))


def _part_key(name: str) -> _PartKey:
    return tuple(
        (0, int(piece)) if piece.isdecimal() else (1, piece.lower())
        for piece in _DIGITS.split(name)
        if piece
    )


def shortened(names: Sequence[str], limit: int = 3) -> str:
    """Return the first of some names, and how many more there are.

    >>> shortened(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def is_dicom(start: bytes, path: Path) -> bool:
    """Whether it is DICOM, with its mark or without the 128 bytes and the mark before the data."""
    # what a JSON file beside it describes may begin with any bytes
    return start[128:132] == b"DICM" or (
        _is_bare_dicom(start) and sidecar_of(path) is None and header_beside(path) is None
    )


def is_nifti(start: bytes, path: Path) -> bool:
    """Whether it is NIfTI 1 or 2; compressed, its name decides."""
    if start[:2] == b"\x1f\x8b":
        return path.name.lower().endswith(".nii.gz")
    return start[344:348] == b"n+1\0" or start[4:8] == b"n+2\0"


def is_picture(start: bytes, path: Path) -> bool:
    """Whether it is PNG, JPEG or BMP; of the last the two letters alone are too weak."""
    if start[:2] == b"BM":
        return int.from_bytes(start[14:18], "little") in _BMP_HEADERS
    return start.startswith(_PICTURES)


def is_zarr(start: bytes, path: Path) -> bool:
    """Whether a folder is a Zarr group or array, by the file that marks one."""
    return any((path / mark).is_file() for mark in _ZARR)


def sidecar_of(path: Path) -> Path | None:
    """Return the JSON file that describes a raw file: ``scan.json`` or ``scan.raw.json``."""
    if path.suffix.lower() not in RAW:
        return None
    for sidecar in (path.with_suffix(".json"), path.with_name(path.name + ".json")):
        if sidecar.is_file():
            return sidecar
    return None


def header_beside(path: Path) -> Path | None:
    """Return the scanner's header of a raw file, or the path itself if it is such a header."""
    if path.name.lower().endswith(HEADERS):
        return path
    if path.suffix.lower() not in RAW:
        return None
    for ending in HEADERS:
        for each in (ending, ending.upper()):
            header = path.with_name(path.stem + each)
            if header.is_file():
                return header
    return None


def _is_bare_dicom(start: bytes) -> bool:
    """Whether it looks like a data set without preamble.

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
