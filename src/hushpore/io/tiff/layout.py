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
_BITS = 258  # the tag of the number of bits of a pixel
_SLACK = 512  # bytes of a file that mean nothing
_ALIGNMENT = 16  # the same for each page: writers begin a part at a multiple of it


def layout_notes(tif: tifffile.TiffFile, all_series: Iterable[Any]) -> list[str]:
    """Return what is odd about the places of the pixels in a file, in words.

    Those of images in other files are not looked at.
    """
    pieces: list[npt.NDArray[np.int64]] = []
    smallest, sizes_fit = math.inf, True
    for page, size, places in _pages(tif, all_series):
        pieces.append(places)
        smallest = min(smallest, size)
        sizes_fit = sizes_fit and _is_of_its_size(page, size)
    if not pieces:
        return []
    # the same bytes twice are one part that two images share on purpose
    begin, length = np.unique(np.concatenate(pieces, axis=1), axis=1)
    notes = []
    if _BITS not in tif.pages.first.tags:
        notes.append("The file does not state how many bits a pixel has; one is taken.")
    if not sizes_fit:
        notes.append("The file states other numbers of bytes for its images than these take.")
    first, told = _directory(tif)
    beyond = np.maximum.accumulate(begin + length)
    in_first = (begin < first[1]) & (begin + length > first[0])
    if (begin[1:] < beyond[:-1]).any() or in_first.any() or begin[0] < tif.tiff.offsetsize:
        notes.append("Images of the file share bytes: its directories may be damaged.")
    count = max(len(pieces), len(tif.pages))
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


def _is_of_its_size(page: Any, stored: int) -> bool:
    """Whether an uncompressed page has as many bytes as its rows take."""
    keyframe = None if page is None else page.keyframe
    if keyframe is None or keyframe.compression != _UNCOMPRESSED or keyframe.is_tiled:
        return True
    samples = keyframe.imagewidth * keyframe.samplesperpixel
    rows = keyframe.imagelength * max(keyframe.imagedepth, 1)
    return bool(stored == rows * -(-samples * keyframe.bitspersample // 8))


def _directory(tif: tifffile.TiffFile) -> tuple[tuple[int, int], int]:
    """Return where the first directory lies, and how many bytes its texts and numbers take."""
    first: Any = tif.pages.first
    form = tif.tiff
    size = form.tagnosize + len(first.tags) * form.tagsize + form.offsetsize
    beside = [int(tag.valuebytecount) for tag in first.tags.values()]
    return (first.offset, first.offset + size), sum(
        n for n in beside if n > form.tagoffsetthreshold
    )
