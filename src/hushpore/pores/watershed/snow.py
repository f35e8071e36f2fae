"""Peaks of the distance map by the rules of SNOW; each becomes a pore.

A voxel is a peak where the distance map, smoothed a little, is as high as anywhere in a ball around
it; where it does not lie on the slope of, or on a saddle to, a higher place; and where no wider
peak is nearer to it than the solid. PoreSpy's `snow_partitioning` has this rule; on these images it
finds as many regions as there are peaks here (PoreSpy 3.2.0; images of its `generators`, and Berea
sandstone, 200^3 voxels):

=====================================================  =======  ====
image                                                  PoreSpy  here
=====================================================  =======  ====
``~lattice_spheres([110]*3, 15, 27, 20)``                   64    64
``~lattice_spheres([100]*3, 15, 28, 22)``                   27    27
``blobs([100]*3, 0.5, 1, seed=1)``                         582   582
``blobs([120]*3, 0.6, 1.5, seed=2)``                      1338  1338
``blobs([200]*2, 0.6, 1, seed=3)``                          49    49
Berea                                                     1240  1240
=====================================================  =======  ====

The borders between pores are those of basins (`hushpore.pores.watershed.merging.merge_to_markers`),
and not of a flood, which leaks through the solid there.

References
----------
J. T. Gostick (2017), "Versatile and efficient pore network extraction method using marker-based
watershed segmentation". https://doi.org/10.1103/PhysRevE.96.023307
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from hushpore.pores.watershed.merging import merge_by_height

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hushpore.base.arrays import Array, Float32s, Float64s, Int32s, Int64s, Mask
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Slabs, Stack
    from hushpore.pores.watershed.graph import BasinGraph


class Slices(Protocol):
    """Stack that returns slices clipped to its range."""

    def read(self, first: int, last: int, /) -> Array:
        """Return slices `first` to `last`."""


#: Standard deviation of the smoothing and radius of the ball, in voxels (defaults of SNOW).
SIGMA, RADIUS = 0.4, 4

# slices beside a slab that its peaks depend on: those of the ball, and of the smoothing there
_HALO = 5

# what the solid counts as, so that there are no peaks right beside it
_SOLID = np.float32(2.0)


def find_peaks(
    distance: Stack,
    basins: Stack,
    slabs: Slabs,
    graph: BasinGraph,
    spacing: Sequence[float],
    threads: KernelThreads,
) -> Generator[float, None, Mask]:
    """Find the basins that contain a peak by the rules of SNOW.

    `distance`: (z, y, x), float32: squared distance in squared voxels of the smallest spacing.
    `basins`: (z, y, x), int32: 1 to n, 0 in the solid. `spacing`: voxel size in z, y, x order;
    distances between peaks honour it, smoothing and ball are the same number of voxels along every
    axis.
    Yields: the share that is done.
    Returns: (n + 1,), bool. Void that is narrower than 4 voxels everywhere has no peak.

    Several peaks in one basin count as one, in the middle between them. Takes 4 bytes a voxel.
    """
    # basins merge at height 0 where a plateau leads from one peak up to another
    level = graph.peak_squared_distance[merge_by_height(graph, 0.0)]
    level[0] = -1
    places, owners = [], []
    for first, last in slabs:
        labels = basins.read(first, last)
        place, owner = find_in_slab(distance, first, labels, level, threads)
        places.append(place)
        owners.append(owner)
        yield last / slabs.depth
    basin, middle = middle_of(np.concatenate(places), np.concatenate(owners))
    is_peak = np.zeros(graph.count + 1, np.bool_)
    is_peak[basin[widest(middle, _values_at(distance, slabs, middle), spacing)]] = True
    return is_peak


def find_in_slab(
    distance: Slices, first: int, basins: Int32s, level: Float32s, threads: KernelThreads
) -> tuple[Int64s, Int32s]:
    """Find the voxels of a slab that are peaks, if no other is near them.

    `distance`: as for `find_peaks`, of which slices beside the slab are read too. `basins`: those
    of the slab, from slice `first` on. `level`: (n + 1,): how high each leads; -1 for 0.
    Returns: (m, 3) voxels of the stack; (m,) their basins.
    """
    from scipy import ndimage

    low = max(first - _HALO, 0)
    heights = distance.read(low, first + len(basins) + _HALO)
    place = _peak_plateaus(heights[first - low :], basins, level, threads)
    place[:, 0] += first - low
    smooth = np.sqrt(heights)
    ndimage.gaussian_filter(smooth, SIGMA, output=smooth)
    place = _highest_around(place, smooth, heights)
    place[:, 0] += low
    return place, basins[place[:, 0] - first, place[:, 1], place[:, 2]]


def middle_of(place: Int64s, basin: Array) -> tuple[Array, Int64s]:
    """Return the basins in which voxels (m, 3) lie, sorted, and the middle of those in each."""
    found, which = np.unique(basin, return_inverse=True)
    total = np.zeros((found.size, 3))
    np.add.at(total, which, place)
    middle = np.floor(total / np.bincount(which, minlength=found.size)[:, None])
    return found, middle.astype(np.int64)


def widest(middle: Int64s, squared_distance: Float32s, spacing: Sequence[float]) -> Mask:
    """Return which of the peaks at some voxels (m, 3) no wider one is too near to."""
    radius = np.sqrt(squared_distance.astype(np.float64))
    return _widest(middle * (np.asarray(spacing) / min(spacing)), radius)


def _values_at(stack: Stack, slabs: Slabs, place: Int64s) -> Float32s:
    """Return the values of a stack at voxels (m, 3)."""
    values = np.empty(len(place), np.float32)
    for first, last in slabs:
        inside = (place[:, 0] >= first) & (place[:, 0] < last)
        if inside.any():
            z, y, x = place[inside].T
            values[inside] = stack.read(first, last)[z - first, y, x]
    return values


def _peak_plateaus(
    heights: Float32s, basins: Int32s, level: Float32s, threads: KernelThreads
) -> Int64s:
    """Return the voxels (m, 3) of a slab that are as high as their basin leads, (n + 1,)."""

    def find(first: int, last: int) -> Int64s:
        found = []
        for z in range(first, last):
            y, x = np.nonzero(heights[z] == level[basins[z]])
            found.append(np.stack([np.full(y.size, z), y, x], axis=-1))
        return np.concatenate(found)

    return np.concatenate(threads.over(len(basins), find))


def _highest_around(place: Int64s, smooth: Float32s, distance: Float32s) -> Int64s:
    """Return those voxels (m, 3) that are nowhere exceeded in the ball around them."""
    steps = np.argwhere(np.ones((2 * RADIUS + 1,) * 3)) - RADIUS
    square = (steps**2).sum(axis=1)
    # the nearest first: they rule out most
    order = np.argsort(square, kind="stable")
    for step in steps[order[(square[order] > 0) & (square[order] < RADIUS**2)]]:
        other = place + step
        inside = ((other >= 0) & (other < smooth.shape)).all(axis=1)
        at = tuple(other[inside].T)
        exceeded = np.zeros(len(place), np.bool_)
        height = np.where(distance[at] > 0, smooth[at], _SOLID)
        exceeded[inside] = height > smooth[tuple(place[inside].T)]
        place = place[~exceeded]
    return place


def _widest(position: Float64s, radius: Float64s) -> Mask:
    """Keep the wider of two peaks that are no farther from each other than from the solid."""
    from scipy.spatial import KDTree

    kept = np.ones(len(position), np.bool_)
    if len(position) < 2:
        return kept
    away, nearest = KDTree(position).query(position, k=2)
    near = np.flatnonzero(away[:, 1] <= radius)
    other = nearest[near, 1]
    # of equally wide ones the later
    wider = (radius[other] > radius[near]) | ((radius[other] == radius[near]) & (other > near))
    kept[np.where(wider, near, other)] = False
    return kept
