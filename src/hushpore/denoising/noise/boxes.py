"""Many small boxes read from a volume: one by one, or from a few chunks of chunked data.

Decoding a chunk takes milliseconds. Boxes at random positions in a large volume would need
thousands of chunks, and use a thousandth of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.rescaled import Scaled, rescale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Array, Float64s, Int64s

#: Number of chunks that are read of each array, spread over the volume.
_WINDOWS = 64


def move_into_chunks(corners: Int64s, size: Sequence[int], data: Any) -> Int64s:
    """Return the corners of boxes; for chunked data they are moved into a few chunks.

    `corners`: shape (n, ndim), drawn at random from the whole volume.
    """
    if _chunk(data) is None or not len(corners):
        return corners
    # the windows are at the first corners, which are as random as all others
    start, stop = _window(corners[np.arange(len(corners)) % _WINDOWS], size, data)
    moved: Int64s = start + corners % (stop - start - np.asarray(size) + 1)
    return moved


def read_boxes(data: Any, corners: Int64s, size: Sequence[int]) -> Float64s:
    """Return the boxes at some corners, (n, *size).

    `corners`: shape (n, ndim); for chunked data as from `move_into_chunks`.
    """
    # all at once: cutting out single boxes takes longer than processing them
    cut = cut_boxes(data, corners, size)
    if cut is not None:
        return cut.astype(np.float64)
    boxes = np.empty((len(corners), *size))
    if _chunk(data) is None:
        for box, corner in zip(boxes, corners, strict=True):
            box[:] = np.asarray(data[_box(corner, size)])
        return boxes
    starts, _ = _window(corners, size, data)
    windows, which = np.unique(starts, axis=0, return_inverse=True)
    for number, start in enumerate(windows):
        members = np.flatnonzero(which.ravel() == number)
        stop = corners[members].max(0) + size
        values = np.asarray(data[_box(start, stop - start)])
        for index in members:
            boxes[index] = values[_box(corners[index] - start, size)]
    return boxes


def cut_boxes(data: Any, corners: Int64s, size: Sequence[int]) -> Array | None:
    """Return boxes of data in memory, all at once; None for other data.

    Arrays of calculated values have a method ``boxes`` for this purpose.
    """
    if type(data) is np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(data, tuple(size))
        cut: Array = windows[tuple(corners.T)]
        return cut
    if isinstance(data, Scaled):
        stored = cut_boxes(data.stored, corners, size)
        if stored is None:
            return None
        # one for all values, or one for each position along the first axis
        lines = (np.broadcast_to(each, data.shape) for each in (data.slope, data.intercept))
        slope, intercept = (
            np.lib.stride_tricks.sliding_window_view(each, tuple(size))[tuple(corners.T)]
            for each in lines
        )
        return rescale(stored, slope, intercept)
    boxes: Array | None = data.boxes(corners, size) if hasattr(data, "boxes") else None
    return boxes


def _chunk(data: Any) -> Int64s | None:
    """Return the chunk shape of a chunked array on disk or a dask array; otherwise None."""
    chunks = getattr(data, "chunks", None)
    if not chunks:
        return None
    # dask has the length of each chunk along an axis
    return np.array([max(each) if isinstance(each, tuple) else each for each in chunks])


def _window(corners: Int64s, size: Sequence[int], data: Any) -> tuple[Int64s, Int64s]:
    """Return start and end of the chunk of each corner, within which a box fits."""
    chunk, shape = _chunk(data), np.asarray(data.shape)
    assert chunk is not None
    edge = np.minimum(np.maximum(chunk, size), shape)
    start = np.minimum(corners // edge * edge, shape - edge)
    return start, start + edge


def _box(corner: Int64s, size: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(int(c), int(c) + int(n)) for c, n in zip(corner, size, strict=True))
