"""Many small boxes out of a volume: each by itself, or of what lies in chunks out of a few of them.

To decode a chunk takes milliseconds. Boxes drawn anywhere in a large volume would be thousands of
them, of each of which a thousandth is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.rescaled import Scaled, rescale

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

#: Chunks that are read of each array, all over the volume.
_WINDOWS = 64


def move_into_chunks(
    corners: npt.NDArray[np.int64], size: Sequence[int], data: Any
) -> npt.NDArray[np.int64]:
    """Return the corners of boxes, moved into a few chunks where the data lies in chunks.

    `corners`: shape (n, ndim), drawn at random from the whole volume.
    """
    if _chunk(data) is None or not len(corners):
        return corners
    # the first corners, drawn like all, say where the windows are
    start, stop = _window(corners[np.arange(len(corners)) % _WINDOWS], size, data)
    moved: npt.NDArray[np.int64] = start + corners % (stop - start - np.asarray(size) + 1)
    return moved


def read_boxes(
    data: Any, corners: npt.NDArray[np.int64], size: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Return the boxes at some corners, (n, *size).

    `corners`: shape (n, ndim); where the data lies in chunks as `move_into_chunks` returns them.
    """
    # all at once: by itself each takes longer to cut out than all that is made of it
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


def cut_boxes(
    data: Any, corners: npt.NDArray[np.int64], size: Sequence[int]
) -> npt.NDArray[Any] | None:
    """Return the boxes of what lies in memory, all at once; None of what does not.

    An array whose values are worked out from others has a method ``boxes`` that does it for it.
    """
    if type(data) is np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(data, tuple(size))
        cut: npt.NDArray[Any] = windows[tuple(corners.T)]
        return cut
    if isinstance(data, Scaled):
        stored = cut_boxes(data.stored, corners, size)
        if stored is None:
            return None
        # one for all, or one for each position of the first axis
        lines = (np.broadcast_to(each, data.shape) for each in (data.slope, data.intercept))
        slope, intercept = (
            np.lib.stride_tricks.sliding_window_view(each, tuple(size))[tuple(corners.T)]
            for each in lines
        )
        return rescale(stored, slope, intercept)
    boxes: npt.NDArray[Any] | None = data.boxes(corners, size) if hasattr(data, "boxes") else None
    return boxes


def _chunk(data: Any) -> npt.NDArray[np.int64] | None:
    """Return the shape of the chunks of an array that lies in chunks on disk, or is dask's."""
    chunks = getattr(data, "chunks", None)
    if not chunks:
        return None
    # along an axis dask has the length of each
    return np.array([max(each) if isinstance(each, tuple) else each for each in chunks])


def _window(
    corners: npt.NDArray[np.int64], size: Sequence[int], data: Any
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the chunk of each corner, as far as it has room for a box: its start and its end."""
    chunk, shape = _chunk(data), np.asarray(data.shape)
    assert chunk is not None
    edge = np.minimum(np.maximum(chunk, size), shape)
    start = np.minimum(corners // edge * edge, shape - edge)
    return start, start + edge


def _box(corner: npt.NDArray[np.int64], size: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(int(c), int(c) + int(n)) for c, n in zip(corner, size, strict=True))
