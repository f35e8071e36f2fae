"""Where the bytes of a TIFF file belong: what shows that its directories are damaged.

A directory of which some numbers have changed may still make an image, of other bytes than before.
Pages that nothing leads to any more, and images that share bytes, are told by that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt
    import tifffile

_UNCOMPRESSED = 1
_OF_ONE_BIT = (2, 3, 4)  # the compressions of facsimiles
_BITS = 258  # the tag of the number of bits of a pixel
_PARTS = (273, 279, 324, 325)  # the tags of where the parts of a page lie, and of their bytes
_SLACK = 512  # bytes of a file that mean nothing
_ALIGNMENT = 16  # the same for each page: writers begin a part at a multiple of it


def layout_notes(tif: tifffile.TiffFile, all_series: Iterable[Any]) -> list[str]:
    """Return what is odd about the places of the pixels in a file, in words.

    Those of images in other files are not looked at.
    """
    pieces: list[npt.NDArray[np.int64]] = []
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
    # the same bytes twice are one part that two images share on purpose
    begin, length = np.unique(np.concatenate(pieces, axis=1), axis=1)
    notes = []
    if _BITS not in tif.pages.first.tags:
        notes.append("The file does not state how many bits a pixel has; one is taken.")
    if not sizes_fit:
        notes.append("The file states other numbers of bytes for its images than these take.")
    if any(int(each.keyframe.compression) in _OF_ONE_BIT and each.dtype != np.bool_
           for each in all_series):  # fmt: skip
        notes.append("The file states a compression of pixels of one bit, and more bits for them.")
    first, beside, of_parts = _directory(tif)
    beyond = np.maximum.accumulate(begin + length)
    # none of what is told lies within a part
    is_shared = bool((begin[1:] < beyond[:-1]).any()) or begin[0] < tif.tiff.offsetsize
    for start, end in (first, *beside):
        is_shared = is_shared or bool(((begin < end) & (begin + length > start)).any())
    # of each directory, the last part that begins before it
    part = np.searchsorted(begin, directories, side="right") - 1
    if is_shared or (np.asarray(directories)[part >= 0] < beyond[part[part >= 0]]).any():
        notes.append("Images of the file share bytes: its directories may be damaged.")
    count = max(len(pieces), len(tif.pages))
    told = sum(end - start for start, end in beside) + (count - 1) * of_parts
    rest = tif.filehandle.size - int(length.sum()) - told - count * (first[1] - first[0])
    if rest >= max(smallest, _SLACK + count * _ALIGNMENT):
        notes.append(
            f"{rest:,} bytes of the file belong to none of its images: slices may be missing."
        )
    return notes


def _pages(
    tif: tifffile.TiffFile, all_series: Iterable[Any]
) -> Iterator[tuple[Any, int, npt.NDArray[np.int64]]]:
    """Yield each page, its stored bytes, and the begins and lengths of its parts.

    Of images that lie as one piece there is no page, and the bytes are those of one of them.
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


def _is_of_its_size(page: Any, places: npt.NDArray[np.int64]) -> bool:
    """Whether a page has as many tiles, and, uncompressed, as many bytes as its pixels take."""
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


def _directory(tif: tifffile.TiffFile) -> tuple[tuple[int, int], list[tuple[int, int]], int]:
    """Return where the first directory lies, and where its texts and numbers that lie beside it.

    The last is how many bytes of these say where its parts are, as each page does.
    """
    first: Any = tif.pages.first
    form = tif.tiff
    size = form.tagnosize + len(first.tags) * form.tagsize + form.offsetsize
    tags = [tag for tag in first.tags.values() if tag.valuebytecount > form.tagoffsetthreshold]
    beside = [(tag.valueoffset, tag.valueoffset + tag.valuebytecount) for tag in tags]
    of_parts = sum(int(tag.valuebytecount) for tag in tags if tag.code in _PARTS)
    return (first.offset, first.offset + size), beside, of_parts
