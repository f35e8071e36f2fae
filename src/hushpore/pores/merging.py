"""Merging basins into pores, on their graph alone.

The edges are taken from the widest neck to the narrowest. Two basins become one pore where the
lower of their peaks rises above the neck by no more than a height h; radii are compared, in
voxels of the smallest spacing. The higher peak stands for the merged pore.

References
----------
P. Soille (2003), "Morphological Image Analysis", section 6.3.3 (h-maxima), Springer.
https://doi.org/10.1007/978-3-662-05088-0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.pores.graph import BasinGraph


def merge_by_height(graph: BasinGraph, h: float) -> npt.NDArray[np.int32]:
    """Merge basins that stand out from each other by at most `h`.

    `graph`: basins 1 to n and their edges. `h`: merge height in voxels of the smallest spacing,
    compared with radii.
    Returns: (n + 1,), int32: for each basin, the basin that stands for its pore; 0 for 0.

    Among equally wide necks those with more contacts come first, then those of the lower basins,
    so that the result is one and the same whatever order the edges were found in.
    """
    radius = np.sqrt(graph.peak_squared_distance.astype(np.float64))
    neck = np.sqrt(np.maximum(graph.saddle, 0).astype(np.float64))
    return _merge(radius, graph.a, graph.b, neck, graph.by_neck, float(h))


def merge_to_markers(graph: BasinGraph, marked: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Merge basins so that every pore holds one marker: a watershed flooded from markers.

    `graph`: basins 1 to n and their edges. `marked`: (n + 1,), int32: number of the marker in each
    basin, 0 where there is none.
    Returns: (n + 1,), int32: number of the marker whose pore each basin belongs to; 0 where no
    marker can be reached.

    References
    ----------
    F. Meyer (1994), "Minimum spanning forests for morphological segmentation".
    https://doi.org/10.1007/978-94-011-1040-2_11
    """
    return _spread(marked.astype(np.int32), graph.a, graph.b, graph.by_neck)


@kernel
def _merge(
    radius: npt.NDArray[np.float64],
    a: npt.NDArray[np.int32],
    b: npt.NDArray[np.int32],
    neck: npt.NDArray[np.float64],
    order: npt.NDArray[np.int64],
    h: float,
) -> npt.NDArray[np.int32]:
    parent = np.arange(radius.size).astype(np.int32)
    for edge in order:
        high = _root(parent, a[edge])
        low = _root(parent, b[edge])
        if high == low:
            continue
        if radius[low] > radius[high] or (radius[low] == radius[high] and low < high):
            high, low = low, high
        if radius[low] - neck[edge] <= h:
            parent[low] = high
    for i in range(parent.size):
        parent[i] = _root(parent, i)
    return parent


@kernel
def _spread(
    marked: npt.NDArray[np.int32],
    a: npt.NDArray[np.int32],
    b: npt.NDArray[np.int32],
    order: npt.NDArray[np.int64],
) -> npt.NDArray[np.int32]:
    parent = np.arange(marked.size).astype(np.int32)
    for edge in order:
        first = _root(parent, a[edge])
        second = _root(parent, b[edge])
        if first == second or (marked[first] != 0 and marked[second] != 0):
            continue
        if marked[first] == 0:
            first, second = second, first
        parent[second] = first
    for i in range(marked.size):
        marked[i] = marked[_root(parent, i)]
    return marked


@kernel
def _root(parent: npt.NDArray[np.int32], i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
