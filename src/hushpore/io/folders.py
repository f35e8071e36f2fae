"""Listing of folders, format of a file by its signature, and stacks of slices by file name."""

from __future__ import annotations

import itertools
import math
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from hushpore.base.formatting import readable_count

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
GZIP = b"\x1f\x8b"
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
    if start[:2] == GZIP:
        return path.name.lower().endswith((".nii", ".nii.gz"))
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


#: A date, else a number with a sign, decimals and an exponent.
_NUMBER = re.compile(
    r"(?<!\d)-?(?:19|20)\d\d-[01]\d-[0-3]\d(?!\d)|[-+]?\d+(?:[.,]\d+(?:e[-+]\d+)?)?", re.IGNORECASE
)
_DATE = re.compile(r"(?:19|20)\d\d-?[01]\d-?[0-3]\d")
_SEPARATORS = "_-. ()[]"
#: Number of slices from which a single file with another name is not taken as a slice.
_LEAST = 3
#: The same for a single file with another shape or data type.
_LEAST_OTHER_SHAPE = 8
_NO_ORDER = (
    "The names of the slices have no numbers; they were stacked in alphabetical order. Rename them "
    "with running numbers if that is wrong."
)


@dataclass(frozen=True)
class SliceStack:
    """Files of one stack, in order."""

    files: tuple[Path, ...]
    prefix: str  # part of the names before the running number
    notes: tuple[str, ...] = ()
    suffix: str = ""  # part of the names after the running number

    @property
    def name(self) -> str:
        """The common part of the file names, without separators at the ends."""
        return (self.prefix.rstrip(_SEPARATORS) + self.suffix).strip(_SEPARATORS) or self.prefix


def stacks_by_name(files: Sequence[Path]) -> list[SliceStack]:
    """Group files of one shape and data type into stacks, by their names.

    Files whose names differ only in a running number form a stack. Numbers may have a minus sign,
    decimals, or no zero padding.

    `files`: image files with one slice each, in any order.
    Returns: stacks with each file in one of them; a file whose name matches no other is a stack of
    its own. If no name has a running number, all files are one stack in alphabetical order, with a
    note.

    >>> from pathlib import Path
    >>> found = stacks_by_name([Path(f"z{z:g}mm.tif") for z in (1, 0.5, 0, 1.5)])
    >>> [path.stem for path in found[0].files]
    ['z0mm', 'z0.5mm', 'z1mm', 'z1.5mm']
    """
    files = sorted(files, key=natural_key)
    if len(files) == 1:
        return [SliceStack((files[0],), files[0].stem)]
    groups: dict[tuple[Path, str], list[Path]] = {}
    for path in files:
        groups.setdefault((path.parent, _NUMBER.sub("#", path.stem.lower())), []).append(path)
    if len(groups) == len(files):
        return [SliceStack(tuple(files), "", (_NO_ORDER,))]
    stacks = [stack for group in groups.values() for stack in _numbered(group)]
    return _with_unnumbered_first(stacks)


def without_strays(by_shape: Sequence[Sequence[SliceStack]]) -> tuple[list[SliceStack], list[str]]:
    """Exclude single files beside a stack: flat fields, previews, thumbnails.

    `by_shape`: the stacks of a folder, grouped by shape and data type.
    Returns: the remaining stacks; and a note with the names of the excluded files.
    """
    most = max(len(stack.files) for group in by_shape for stack in group)
    kept: list[SliceStack] = []
    strays: list[str] = []
    for group in by_shape:
        alike = max(len(stack.files) for stack in group)
        for stack in group:
            is_single = len(stack.files) == 1
            if is_single and (alike >= _LEAST or most >= _LEAST_OTHER_SHAPE):
                strays.append(stack.files[0].name)
            else:
                kept.append(stack)
    if not strays:
        return kept, []
    count = readable_count(len(strays), "file")
    return kept, [f"{count} skipped (name or shape differs from the slices): {shortened(strays)}."]


def note_on_damaged(files: Sequence[Path], others: Sequence[Path]) -> list[str]:
    """Return a note on files that are named like the slices, but contain no image.

    `files`: the slices. `others`: the other files of the folder.

    >>> from pathlib import Path
    >>> note_on_damaged([Path("s1.tif"), Path("s2.tif")], [Path("s3.tif"), Path("s.log")])
    ['1 slice skipped (empty or damaged): s3.tif. Copy or export it again.']
    """
    patterns = {_pattern(path) for path in files}
    lost = [path.name for path in others if _pattern(path) in patterns]
    if not lost:
        return []
    count, them = readable_count(len(lost), "slice"), "it" if len(lost) == 1 else "them"
    return [f"{count} skipped (empty or damaged): {shortened(lost)}. Copy or export {them} again."]


def _pattern(path: Path) -> tuple[Path, str]:
    return path.parent, re.sub(r"\d+", "#", path.name.lower())


def _numbered(group: list[Path]) -> list[SliceStack]:
    """Sort files whose names differ only in numbers; split them where that number repeats."""
    texts = [_NUMBER.findall(path.stem) for path in group]
    stem = group[0].stem
    # after a separator, a minus sign is not another one
    signed = [stem[: found.start()].endswith(("_", " ", "=")) for found in _NUMBER.finditer(stem)]
    columns = [
        _values(column, is_signed)
        for column, is_signed in zip(zip(*texts, strict=True), signed, strict=True)
    ]
    varying = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    if not varying:
        return [SliceStack((path,), path.stem) for path in group]
    # the running number has the most values; in a tie, prefer one with even steps, then the last
    running = max(varying, key=lambda i: (len(set(columns[i])), _counts_evenly(columns[i]), i))
    others = [i for i in varying if i != running]
    parts: dict[tuple[tuple[float, ...], ...], list[int]] = {}
    for row in range(len(group)):
        parts.setdefault(tuple(columns[i][row] for i in others), []).append(row)
    seen = [{columns[running][row] for row in rows} for rows in parts.values()]
    if len(parts) > 1 and sum(map(len, seen)) == len(set.union(*seen)):
        # one stack if the number continues from part to part: dates, or folders of one scan
        dates = [i for i in others if all(_DATE.fullmatch(row[i].lstrip("-")) for row in texts)]
        keys = [*dates, running]
        rows = sorted(range(len(group)), key=lambda row: [columns[i][row] for i in keys])
        in_order = [rows]
    else:
        in_order = [
            sorted(rows, key=columns[running].__getitem__) for _, rows in sorted(parts.items())
        ]
    return [
        _stack([group[row] for row in rows], [columns[running][row] for row in rows], running)
        for rows in in_order
    ]


def _counts_evenly(numbers: Sequence[tuple[float, ...]]) -> bool:
    """Whether numbers have a constant step, unlike dates or times."""
    ordered = sorted({number[0] for number in numbers if len(number) == 1})
    steps = [after - before for before, after in itertools.pairwise(ordered)]
    return bool(steps) and math.isclose(min(steps), max(steps), rel_tol=1e-6)


def _stack(files: Sequence[Path], numbers: Sequence[tuple[float, ...]], running: int) -> SliceStack:
    stem = files[0].stem
    number = list(_NUMBER.finditer(stem))[running]
    whole = [value[0] for value in numbers if len(value) == 1]
    notes = _missing(whole) if len(whole) == len(numbers) else []
    return SliceStack(tuple(files), stem[: number.start()], tuple(notes), stem[number.end() :])


def _number(text: str) -> float:
    """Return the value of a number in a name; of a date, with its digits in order."""
    if _DATE.fullmatch(text.lstrip("-")):
        return float(text.replace("-", ""))
    return float(text.replace(",", "."))


def _values(column: Sequence[str], is_signed: bool) -> list[tuple[float, ...]]:
    """Return the numbers at one position in all names, as sort keys.

    `is_signed`: whether a minus sign in all names is a sign, and not a separator.
    """
    is_separator = not is_signed and all(text.startswith("-") for text in column)
    texts = [text.lstrip("-") if is_separator else text for text in column]
    texts = [text.replace(",", ".") for text in texts]
    decimals = [text.partition(".")[2] for text in texts]
    if all(decimals) and len({len(each) for each in decimals}) > 1:
        numbers = sorted({_number(text) for text in texts})
        steps = [after - before for before, after in itertools.pairwise(numbers)]
        if steps and not math.isclose(min(steps), max(steps), rel_tol=1e-6):
            # 1.9 and 1.10: two numbers separated by a point
            return [tuple(float(part) for part in text.split(".")) for text in texts]
    return [(_number(text),) for text in texts]


def _with_unnumbered_first(stacks: list[SliceStack]) -> list[SliceStack]:
    """Join ``slice.tif`` to the stack of ``slice1.tif``, as its first slice."""
    singles = {
        (each.files[0].parent, each.files[0].stem.lower()): each
        for each in stacks
        if len(each.files) == 1
    }
    found: list[SliceStack] = []
    taken: list[SliceStack] = []
    for stack in stacks:
        first = singles.get((stack.files[0].parent, stack.name.lower()))
        if first is None or len(stack.files) == 1:
            found.append(stack)
        else:
            taken.append(first)
            found.append(replace(stack, files=(*first.files, *stack.files)))
    return [stack for stack in found if not any(stack is each for each in taken)]


def _missing(numbers: list[float]) -> list[str]:
    """Return a note on missing whole numbers in a sequence with even steps."""
    if len(numbers) < 2 or not all(number.is_integer() for number in numbers):
        return []
    values = [int(number) for number in numbers]
    if values != sorted(set(values)):
        return []
    step = min(after - before for before, after in itertools.pairwise(values))
    # numbers far apart, such as dates, do not number slices
    if (values[-1] - values[0]) // step > 2 * len(values):
        return []
    missing = sorted(set(range(values[0], values[-1], step)) - set(values))
    if not missing or any((value - values[0]) % step for value in values):
        return []
    shown = ", ".join(str(n) for n in missing[:5]) + (", ..." if len(missing) > 5 else "")
    return [
        f"{readable_count(len(missing), 'slice')} missing, judging by the file names: {shown}. "
        "The gap was closed."
    ]
