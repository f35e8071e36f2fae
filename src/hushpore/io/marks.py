"""What marks a file of each format: its first bytes, or the files beside or in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: Bytes of the beginning of a file that a mark is looked for in.
START = 348

TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
NUMPY = b"\x93NUMPY"
# the first group of a data set without preamble: 0002 or 0008, either byte order
_BARE_DICOM = (b"\x02\x00\x00\x00", b"\x08\x00\x00\x00", b"\x08\x00\x05\x00", b"\x08\x00\x08\x00")
_BARE_DICOM_BIG = (b"\x00\x08\x00\x00", b"\x00\x08\x00\x05", b"\x00\x08\x00\x08")
_ZARR = ("zarr.json", ".zgroup", ".zarray")
# a header in text, of ITK and many others
META_IMAGE = re.compile(rb"\s*(ObjectType\s*=\s*Image|NDims\s*=|Comment\s*=)")
#: How the names of raw files end.
RAW = (".raw", ".bin", ".vol", ".dat")


def is_dicom(start: bytes, path: Path) -> bool:
    """Whether it is DICOM, with its mark or without the 128 bytes and the mark before the data."""
    # what a JSON file beside it describes may begin with any bytes
    return start[128:132] == b"DICM" or (_is_bare_dicom(start) and sidecar_of(path) is None)


def is_nifti(start: bytes, path: Path) -> bool:
    """Whether it is NIfTI 1 or 2; compressed, its name decides."""
    if start[:2] == b"\x1f\x8b":
        return path.name.lower().endswith(".nii.gz")
    return start[344:348] == b"n+1\0" or start[4:8] == b"n+2\0"


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
