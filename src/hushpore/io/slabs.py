"""The values of a volume a slab at a time, so that what lies on disk is never read whole."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

#: Bytes of a slab, where one slice is not larger: what is freed of up to 32 MB the C library gives
#: again, and larger arrays it takes from the system anew, page by page.
SLAB = 32_000_000


def slabs(
    data: Any, depth: int | None = None
) -> Iterator[tuple[tuple[int | slice, ...], npt.NDArray[Any]]]:
    """Yield the values of an array slab by slab, in order and each voxel once.

    `data`: NumPy, dask, Zarr, a memory map, or planes on disk: has a shape and takes slices.
    `depth`: length of a slab along the axis before those of a plane; by default as many as `SLAB`
    bytes hold, and whole chunks where the array has chunks.
    Yields: where the slab lies: ``data[index]``; in native byte order. All axes before the one that
    is cut are dropped; an array without such an axis comes whole.

    >>> [values.shape for _, values in slabs(np.zeros((2, 5, 4, 3)), depth=2)]
    [(2, 4, 3), (2, 4, 3), (1, 4, 3), (2, 4, 3), (2, 4, 3), (1, 4, 3)]
    """
    shape = tuple(int(n) for n in data.shape)
    cut = len(shape) - 3
    if cut < 0:
        yield (), in_native_order(data[...])
        return
    if depth is None:
        size = math.prod(shape[cut + 1 :]) * np.dtype(data.dtype).itemsize
        depth = max(1, SLAB // max(size, 1))
        chunk = chunk_depth(data, cut)
        depth = max(chunk, depth // chunk * chunk)
    for leading in np.ndindex(shape[:cut]):
        for start in range(0, shape[cut], depth):
            index = (*leading, slice(start, min(start + depth, shape[cut])))
            yield index, in_native_order(data[index])


def in_native_order(values: Any) -> npt.NDArray[Any]:
    """Return values as a C-contiguous array in native byte order, uncopied where they are one."""
    array = np.asarray(values)
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def chunk_depth(data: Any, axis: int) -> int:
    """Return the length of the chunks along an axis, 1 where there are none."""
    chunks = getattr(data, "chunks", None)
    if not chunks or len(chunks) <= axis:
        return 1
    own = chunks[axis]
    return int(own if isinstance(own, int | np.integer) else max(own))
