"""Planes of a TIFF series, read lazily; and checks of the files of an OME-TIFF."""

from __future__ import annotations

import html
import math
import os
import re
import weakref
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tifffile

from hushpore.base.errors import InputError, MissingPackageError, NotTrustedError
from hushpore.io.folders import shortened
from hushpore.io.guards import (
    CONSENT,
    SMALL,
    InputLimits,
    captured_log,
    damaged,
    explained_damage,
    limits_for,
    stated_bytes,
)
from hushpore.io.lazy_arrays import PlaneStack, uncompressed_planes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Int64s


# TIFF compression codes: those decoded into a buffer of known size; and those that declare the
# size of the image again: JPEG, JPEG 2000, JPEG-LS and PNG
_BOUNDED = (1, 2, 3, 4, 5, 8, 32773, 32946, 34925, 34926, 48124, 50000, 65000, 65001, 65002)
_STATING = (6, 7, 33003, 33004, 33005, 33007, 34712, 34892, 34933)
_LARGE = 2**30  # file size in bytes above which the number of pages is not limited
_START = 65536  # bytes that contain the declared size of an image
_MOST_TIMES = 16  # largest ratio of decoder memory to image size
_UNCOMPRESSED = 1
_OF_ONE_BIT = (2, 3, 4)  # fax compressions
_BITS = 258  # tag for the bits per sample
_PARTS = (273, 279, 324, 325)  # tags for the offsets and byte counts of strips and tiles
_MOST_COPIES = 16  # directories of smaller copies of a page that are examined
_SLACK = 512  # tolerated unused bytes of a file
_ALIGNMENT = 16  # tolerated unused bytes per page, as writers align strips and tiles


def planes_of(
    level: tifffile.TiffPageSeries,
    leading: npt.NDArray[np.integer[Any]],
    plane_shape: tuple[int, ...],
    path: Path,
) -> PlaneStack | None:
    """Return the lazy planes of a series, or None if its pages are not planes.

    `level`: the series, or one level of a pyramid. `leading`: number of the plane in the file at
    each position on the leading axes.
    """
    native = level.dtype.newbyteorder("=")
    if level.dataoffset is not None:
        if not isinstance(level.dataoffset, int):
            raise explained(path, TypeError(f"pixel data at byte {level.dataoffset}"))
        stored = level.dtype.newbyteorder(level.keyframe.parent.byteorder)
        return uncompressed_planes(path, level.dataoffset, stored, leading, plane_shape)
    pages: list[Any] = list(level.pages)
    if level.is_multifile or len(pages) != leading.size:
        return None
    if any(page is None or math.prod(page.shape) != math.prod(plane_shape) for page in pages):
        return None
    limits = limits_for(path)
    handle: Any = pages[0].parent.filehandle
    handle.set_lock(True)

    def read(number: int, out: Array) -> None:
        with explained_damage(partial(explained, path)), captured_log("tifffile"):
            with handle.lock:
                if handle.closed:
                    handle.open()
            _require_size(pages[number], handle, limits)
            # several threads read planes already
            values = pages[number].asarray(maxworkers=1)
            out[...] = values.reshape(out.shape)

    # close the file together with the stack
    weakref.finalize(read, handle.close)
    return PlaneStack(leading, plane_shape, native, read)


def explained(path: Path, error: Exception) -> InputError | MissingPackageError:
    """Return the error for the user that explains an error of tifffile."""
    if "imagecodecs" in str(error):
        match = re.search(r"<COMPRESSION\.(\w+)", str(error))
        method = match.group(1) if match else "this method"
        return MissingPackageError(
            f"{path.name} is compressed with {method}, which needs another package: "
            "pip install imagecodecs"
        )
    return damaged(path, "TIFF", error)


def require_few_pages(path: Path) -> None:
    """Raise NotTrustedError for a small file with very many pages, which takes minutes to open.

    Raises InputError if the pages form a loop.
    """
    limits = limits_for(path)
    if limits.is_trusted or limits.stored > _LARGE:
        return
    with path.open("rb") as file:
        start = file.read(16)
        order: Literal["little", "big"] = "little" if start[:2] == b"II" else "big"
        is_big = int.from_bytes(start[2:4], order) == 43
        # sizes in a directory: of the entry count, of an entry, and of the next offset
        n_count, n_entry, n_next = (8, 20, 8) if is_big else (2, 12, 4)
        at = int.from_bytes(start[8:16] if is_big else start[4:8], order)
        count, seen = 0, set[int]()
        while 0 < at < limits.stored and count <= limits.most_parts:
            if at in seen:
                raise InputError(
                    f"{path.name} is damaged: its pages form a loop. Copy or export it again."
                )
            seen.add(at)
            count += 1
            file.seek(at)
            entries = int.from_bytes(file.read(n_count), order)
            if entries * n_entry > limits.stored:
                break
            file.seek(at + n_count + entries * n_entry)
            at = int.from_bytes(file.read(n_next), order)
    limits.require_few(count, "pages")


def require_parts(page: Any, limits: InputLimits) -> None:
    """Raise NotTrustedError for oversized strips or tiles, or an unknown compression."""
    if limits.is_trusted:
        return
    keyframe = page.keyframe
    part = _part_bytes(keyframe)
    whole = math.prod(keyframe.shape) * keyframe.dtype.itemsize
    if part > 4 * whole + SMALL:
        raise NotTrustedError(
            f"{limits.name} is damaged, or crafted to fill the memory: its tiles ({part:,} bytes) "
            f"are larger than its images ({whole:,} bytes). {CONSENT}"
        )
    compression = int(keyframe.compression)
    if compression not in _BOUNDED + _STATING:
        raise NotTrustedError(
            f"{limits.name} uses compression {compression}, for which the memory needed is "
            f"unknown. {CONSENT}"
        )


def _part_bytes(keyframe: Any) -> int:
    """Return the decoded size of a strip or tile, in bytes."""
    samples = keyframe.samplesperpixel if keyframe.planarconfig == 1 else 1
    if keyframe.is_tiled:
        pixels = keyframe.tilelength * keyframe.tilewidth * max(keyframe.tiledepth, 1)
    else:
        pixels = min(keyframe.rowsperstrip, keyframe.imagelength) * keyframe.imagewidth
    return int(pixels * samples * keyframe.dtype.itemsize)


def _require_size(page: Any, handle: Any, limits: InputLimits) -> None:
    """Raise ValueError, before decoding, if compressed tiles declare a larger image."""
    keyframe = page.keyframe
    if limits.is_trusted or int(keyframe.compression) not in _STATING:
        return
    room = _MOST_TIMES * _part_bytes(keyframe) + SMALL
    for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
        if not count:
            continue
        with handle.lock:
            handle.seek(offset)
            start = handle.read(min(count, _START))
        stated = stated_bytes(start)
        if stated is None or stated > room:
            raise ValueError(f"a tile of at most {room:,} bytes declares {stated or 'no size'}")


def layout_notes(tif: tifffile.TiffFile, all_series: Iterable[Any]) -> list[str]:
    """Return notes on an irregular layout of the pixel data in a file.

    Images in other files are not checked.
    """
    pieces: list[Int64s] = []
    directories: list[int] = []
    smallest, sizes_fit = math.inf, True
    for page, size, places in _pages(tif, all_series):
        pieces.append(places)
        smallest = min(smallest, size)
        if page is not None:
            directories.append(page.offset)
            sizes_fit = sizes_fit and _is_of_its_size(page, places)
    if not pieces:
        return []
    # identical ranges are shared by two images on purpose
    begin, length = np.unique(np.concatenate(pieces, axis=1), axis=1)
    notes = []
    if _BITS not in tif.pages.first.tags:
        notes.append("The bits per pixel are not stated; 1 bit was assumed.")
    if not sizes_fit:
        notes.append(
            "The byte counts in the file do not match the sizes of its images; it may be damaged."
        )
    if any(int(each.keyframe.compression) in _OF_ONE_BIT and each.dtype != np.bool_
           for each in all_series):  # fmt: skip
        notes.append(
            "The compression is for 1-bit images, but the pixels have more bits; check the image."
        )
    first, beside, of_parts = _directory(tif.pages.first)
    beyond = np.maximum.accumulate(begin + length)
    # metadata must not overlap pixel data
    is_shared = bool((begin[1:] < beyond[:-1]).any()) or begin[0] < tif.tiff.offsetsize
    for start, end in (first, *beside):
        is_shared = is_shared or bool(((begin < end) & (begin + length > start)).any())
    # for each directory, the last range of pixel data that begins before it
    part = np.searchsorted(begin, directories, side="right") - 1
    if is_shared or (np.asarray(directories)[part >= 0] < beyond[part[part >= 0]]).any():
        notes.append("Images in the file overlap; its directories may be damaged.")
    count = max(len(pieces), len(tif.pages))
    metadata = sum(end - start for start, end in beside) + (count - 1) * of_parts
    rest = tif.filehandle.size - int(length.sum()) - metadata - count * (first[1] - first[0])
    least = max(smallest, _SLACK + count * _ALIGNMENT)
    if rest >= least:
        # each page may have a colour table, or directories of its own
        pages = len(tif.pages)
        sizes = [_metadata_bytes(tif.pages.get(i), begin) for i in range(min(pages, 2))]
        rest = tif.filehandle.size - int(length.sum()) - sizes[0] - (pages - 1) * sizes[-1]
    if rest >= least:
        notes.append(f"{rest:,} bytes of the file belong to no image; slices may be missing.")
    return notes


def _pages(tif: tifffile.TiffFile, all_series: Iterable[Any]) -> Iterator[tuple[Any, int, Int64s]]:
    """Yield each page, its stored size, and the offsets and lengths of its strips or tiles.

    For contiguous images the page is None and the size that of one image.
    """
    for series in all_series:
        for level in series.levels:
            if level.is_multifile:
                continue
            if level.dataoffset is not None:
                size = math.prod(level.shape) * level.dtype.itemsize
                places = np.array([[level.dataoffset], [size]], np.int64)
                yield None, min(size, int(level.keyframe.nbytes)), places
                continue
            for page in level.pages:
                if page is not None and page.parent is tif:
                    count = min(len(page.dataoffsets), len(page.databytecounts))
                    parts = [page.dataoffsets[:count], page.databytecounts[:count]]
                    places = np.array(parts, np.int64)
                    yield page, int(places[1].sum()), places[:, places[1] > 0]


def _is_of_its_size(page: Any, places: Int64s) -> bool:
    """Return whether the number of tiles and the uncompressed size match the page."""
    form = page.keyframe
    if form.is_tiled:
        if places.shape[1] > math.prod(form.chunked):
            return False
        part = math.prod(form.chunks) * form.bitspersample
        return form.compression != _UNCOMPRESSED or bool((8 * places[1] == part).all())
    if form.compression != _UNCOMPRESSED:
        return True
    samples = form.imagewidth * form.samplesperpixel
    rows = form.imagelength * max(form.imagedepth, 1)
    return bool(places[1].sum() == rows * -(-samples * form.bitspersample // 8))


def _directory(page: Any) -> tuple[tuple[int, int], list[tuple[int, int]], int]:
    """Return the byte ranges of the directory of a page and of its separately stored values.

    The last item is the number of these bytes that hold strip and tile offsets, as in each page.
    """
    form = page.parent.tiff
    size = form.tagnosize + len(page.tags) * form.tagsize + form.offsetsize
    tags = [tag for tag in page.tags.values() if tag.valuebytecount > form.tagoffsetthreshold]
    beside = [(tag.valueoffset, tag.valueoffset + tag.valuebytecount) for tag in tags]
    of_parts = sum(int(tag.valuebytecount) for tag in tags if tag.code in _PARTS)
    return (page.offset, page.offset + size), beside, of_parts


def _metadata_bytes(page: Any, pixels: Int64s) -> int:
    """Return the bytes of a page and of its smaller copies beside the pixel data at some offsets.

    `pixels`: offsets of the pixel data that are counted elsewhere.
    """
    directory, beside, _ = _directory(page)
    total = sum(end - start for start, end in (directory, *beside))
    for i in range(min(len(page.subifds or ()), _MOST_COPIES)):
        copy = page.pages.get(i)
        total += _metadata_bytes(copy, pixels)
        if not np.isin(copy.dataoffsets, pixels).any():
            total += sum(copy.databytecounts)
    return total


_REMEDY = "Copy all files of this OME-TIFF into one folder, with their original names."


def files_of_image(tif: tifffile.TiffFile) -> set[Path]:
    """Return the existing files of an OME-TIFF of several files; empty for any other TIFF."""
    folder = Path(tif.filehandle.path).parent
    names = {name for name, _ in _named(tif)} if tif.is_ome else set()
    return {(folder / name).resolve() for name in names} if len(names) > 1 else set()


def require_own_folder(tif: tifffile.TiffFile, path: Path) -> None:
    """Raise InputError if an OME-TIFF refers to anything but regular files in its own folder."""
    own = _own_uuid(tif)
    for name, uuid in _named(tif):
        if own and uuid == own:
            continue  # this file itself, under an earlier name
        other = path.parent / name
        is_there = os.path.lexists(other)
        real = Path(os.path.realpath(other))
        if (
            real.parent != Path(os.path.realpath(path.parent))
            or Path(name).name != name
            or (is_there and not real.is_file())
        ):
            raise InputError(
                f"{path.name} refers to {name[:200]!r}, but the files of an OME-TIFF must be "
                "regular files in the same folder. Put all of them into one folder."
            )


def require_distinct(tif: tifffile.TiffFile, path: Path) -> None:
    """Raise InputError if several files have one UUID, since one would be read for all of them."""
    names: dict[str, set[str]] = {}
    for name, uuid in _named(tif):
        names.setdefault(uuid, set()).add(name)
    for alike in names.values():
        if len(alike) > 1:
            raise InputError(
                f"The OME metadata of {path.name} give {len(alike)} files the same UUID "
                f"({shortened(sorted(alike))}), so their slices cannot be distinguished. Save "
                "the stack again as one file, for example in ImageJ."
            )


def require_files(tif: tifffile.TiffFile, path: Path) -> None:
    """Raise InputError if files of an incomplete OME-TIFF are missing or damaged; names these."""
    named = Counter(name for name, _ in _named(tif))
    missing = [name for name in named if not (path.parent / name).is_file()]
    others = [path.parent / name for name in named if name not in missing]
    is_named = any(other.samefile(path) for other in others)
    if missing and is_named:
        raise InputError(
            f"{path.name} is one file of {len(named)}, and {shortened(missing)} is not beside it. "
            + _REMEDY
        )
    if missing:
        raise InputError(
            f"{path.name} refers to {shortened(missing)}, which is not beside it. {_REMEDY}"
        )
    damaged = [
        other.name
        for other in others
        if not other.samefile(path) and _is_damaged(other, named[other.name])
    ]
    if damaged:
        raise InputError(
            f"{path.name} is one file of {len(named)}, and {shortened(damaged)} is damaged or "
            "incomplete. Copy or export it again."
        )


def _is_damaged(path: Path, planes: int) -> bool:
    """Whether a file cannot be opened, or has fewer planes or values than its pages state."""
    with captured_log("tifffile"):
        try:
            with tifffile.TiffFile(path) as tif:
                pages: list[Any] = list(tif.pages)
                ends = [
                    offset + count
                    for page in pages
                    for offset, count in zip(page.dataoffsets, page.databytecounts, strict=False)
                ]
                return len(pages) < planes or max(ends, default=0) > tif.filehandle.size
        except (tifffile.TiffFileError, OSError, ValueError, IndexError, KeyError):
            return True


def _named(tif: tifffile.TiffFile) -> Iterator[tuple[str, str]]:
    """Yield file name and UUID of each plane in the OME metadata."""
    xml = str(tif.ome_metadata)
    for written, uuid in re.findall(r"\bFileName=[\"']([^\"']*)[\"'][^>]*>\s*([^<\s]*)", xml):
        yield html.unescape(written), uuid.lower()


def _own_uuid(tif: tifffile.TiffFile) -> str:
    found = re.search(r"<(?:\w+:)?OME\b[^>]*\bUUID=[\"']([^\"']*)", str(tif.ome_metadata))
    return found[1].lower() if found else ""
