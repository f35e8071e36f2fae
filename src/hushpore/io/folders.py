"""Listing of folders, and detection of each format by its signature or accompanying files."""

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

#: Number of files and folders examined to detect the format of a folder.
PEEK = 24
#: Files that operating systems add to folders.
_OF_SYSTEMS = ("thumbs.db", "ehthumbs.db", "desktop.ini")
_DIGITS = re.compile(r"(\d+)")
_BEGINNING = 1 << 16  # bytes of a file for its signature and the header of a slice
#: Bytes at the beginning of a file that are searched for a signature.
START = 348
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
NUMPY = b"\x93NUMPY"
_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
# lengths of the BMP header after the 14 bytes of the file header
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)
# first group of a data set without preamble: 0002 or 0008, in either byte order
_BARE_DICOM = (b"\x02\x00\x00\x00", b"\x08\x00\x00\x00", b"\x08\x00\x05\x00", b"\x08\x00\x08\x00")
_BARE_DICOM_BIG = (b"\x00\x08\x00\x00", b"\x00\x08\x00\x05", b"\x00\x08\x00\x08")
_ZARR = ("zarr.json", ".zgroup", ".zarray")
# text header of MetaImage, used by ITK and many others
META_IMAGE = re.compile(rb"\s*(ObjectType\s*=\s*Image|NDims\s*=|Comment\s*=)")
#: Extensions of raw files.
RAW = (".raw", ".bin", ".vol", ".dat")
#: Extensions of the header files that scanners write for raw files.
HEADERS = (".vgi", ".xtekct", ".xtekvolume", ".pcr", ".vol.info", ".raw.info")
# spellings of programs, for file systems that distinguish capitals
_SPELLINGS = {".xtekct": ".xtekCT", ".xtekvolume": ".xtekVolume"}


def files_below(folder: Path) -> list[Path]:
    """Return all files of a folder and its subfolders, in natural order, without hidden ones."""
    found: list[tuple[_Key, Path]] = []
    folders = [(natural_key(folder), folder)]
    while folders:
        above, place = folders.pop()
        with os.scandir(place) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith("."):
                    continue
                # compute the sort key of a folder once, not for each of its files
                if entry.is_dir(follow_symlinks=False):
                    folders.append(((*above, _part_key(name)), place / name))
                # for circular links `entry.is_file` raises, and `Path.is_file` returns False
                elif name.lower() not in _OF_SYSTEMS and (
                    entry.is_file(follow_symlinks=False) or (place / name).is_file()
                ):
                    found.append(((*above, _part_key(name)), place / name))
    return [path for _, path in sorted(found, key=itemgetter(0))]


def first_files(folder: Path) -> Iterator[Path]:
    """Yield some files breadth first and lazily, without listing a folder of a million files."""
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
    """Ask the system to prefetch the beginnings of all files at once (Linux only).

    The files are opened one after the other later; without prefetching, each waits for the disk.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    for path in files:
        # the reader reports any error when it opens the file
        with suppress(OSError):
            # opening a pipe would wait for its writer
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                os.posix_fadvise(descriptor, 0, _BEGINNING, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)


def natural_key(path: Path) -> _Key:
    """Return a sort key that places img2 before img10.

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
    """Return the first names of a sequence, and the number of the others.

    >>> shortened(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def is_dicom(start: bytes, path: Path) -> bool:
    """Return whether a file is DICOM, with or without preamble and signature."""
    # a raw file described by another file may begin with any bytes
    return start[128:132] == b"DICM" or (
        _is_bare_dicom(start) and sidecar_of(path) is None and header_beside(path) is None
    )


def is_nifti(start: bytes, path: Path) -> bool:
    """Return whether a file is NIfTI 1 or 2; for a gzip file the name decides."""
    if start[:2] == b"\x1f\x8b":
        return path.name.lower().endswith(".nii.gz")
    return start[344:348] == b"n+1\0" or start[4:8] == b"n+2\0"


def is_picture(start: bytes, path: Path) -> bool:
    """Return whether a file is PNG, JPEG or BMP; for BMP two letters alone are too weak."""
    if start[:2] == b"BM":
        return int.from_bytes(start[14:18], "little") in _BMP_HEADERS
    return start.startswith(_PICTURES)


def is_zarr(start: bytes, path: Path) -> bool:
    """Return whether a folder is a Zarr group or array, by its metadata file."""
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
    """Return the scanner's header file for a raw file, or the path itself if it is one."""
    if path.name.lower().endswith(HEADERS):
        return path
    if path.suffix.lower() not in RAW:
        return None
    for ending in HEADERS:
        for each in (ending, ending.upper(), _SPELLINGS.get(ending, ending)):
            header = path.with_name(path.stem + each)
            # PyHST appends its ending to the whole name of the raw file
            is_own = not ending.endswith(".info") or header.stem.lower() == path.name.lower()
            if is_own and header.is_file():
                return header
    return None


def _is_bare_dicom(start: bytes) -> bool:
    """Return whether a file looks like a DICOM data set without preamble.

    A tag of group 0002 or 0008 alone is too weak: a value representation, or a plausible length of
    the element, must follow.
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
