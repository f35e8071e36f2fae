"""The peaks of the distance map by the rule of SNOW, one of which makes a pore.

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

The borders between pores are those of basins (`hushpore.pores.merging.merge_to_markers`), and not
of a flood, which leaks through the solid there.

References
----------
J. T. Gostick (2017), "Versatile and efficient pore network extraction method using marker-based
watershed segmentation". https://doi.org/10.1103/PhysRevE.96.023307
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hushpore.pores.merging import merge_by_height

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.pores.graph import BasinGraph
    from hushpore.pores.parallel import Workers

#: Standard deviation of the smoothing and radius of the ball, in voxels: SNOW's defaults.
SIGMA, RADIUS = 0.4, 4

# what the solid counts as, so that there are no peaks right beside it
_SOLID = np.float32(2.0)


def find_peaks(
    distance: npt.NDArray[np.float32],
    basins: npt.NDArray[np.int32],
    graph: BasinGraph,
    spacing: Sequence[float],
    workers: Workers,
) -> npt.NDArray[np.bool_]:
    """Return which basins hold a peak by the rule of SNOW.

    Parameters
    ----------
    distance : numpy.ndarray
        (z, y, x), float32: squared distance in squared voxels of the smallest spacing.
    basins : numpy.ndarray
        (z, y, x), int32: 1 to n, 0 in the solid.
    graph : BasinGraph
        The graph of these basins.
    spacing : sequence of float
        Voxel size in z, y, x order; distances between peaks honour it, smoothing and ball are the
        same number of voxels along every axis.
    workers : Workers
        Threads to run on.

    Returns
    -------
    numpy.ndarray
        (n + 1,), bool. Void that is narrower than 4 voxels everywhere has no peak.

    Notes
    -----
    Several peaks in one basin count as one, in the middle between them. Takes 4 bytes a voxel.
    """
    from scipy import ndimage

    place = _summit_plateaus(distance, basins, graph, workers)
    smooth = np.sqrt(distance)
    ndimage.gaussian_filter(smooth, SIGMA, output=smooth)
    place = _highest_around(place, smooth, distance)
    basin, which = np.unique(basins[tuple(place.T)], return_inverse=True)
    middle = np.zeros((basin.size, 3))
    np.add.at(middle, which, place)
    middle = np.floor(middle / np.bincount(which, minlength=basin.size)[:, None]).astype(np.int64)
    radius = np.sqrt(distance[tuple(middle.T)].astype(np.float64))
    kept = _widest(middle * (np.asarray(spacing) / min(spacing)), radius)
    is_peak = np.zeros(graph.count + 1, np.bool_)
    is_peak[basin[kept]] = True
    return is_peak


def _summit_plateaus(
    distance: npt.NDArray[np.float32],
    basins: npt.NDArray[np.int32],
    graph: BasinGraph,
    workers: Workers,
) -> npt.NDArray[np.int64]:
    """Return the voxels (m, 3) from which no way leads up, also not along a plateau."""
    # basins merge at height 0 where a plateau leads from one summit up to another
    level = graph.peak[merge_by_height(graph, 0.0)]
    level[0] = -1

    def find(first: int, last: int) -> npt.NDArray[np.int64]:
        found = []
        for z in range(first, last):
            y, x = np.nonzero(distance[z] == level[basins[z]])
            found.append(np.stack([np.full(y.size, z), y, x], axis=-1))
        return np.concatenate(found)

    return np.concatenate(workers.over(len(basins), find))


def _highest_around(
    place: npt.NDArray[np.int64],
    smooth: npt.NDArray[np.float32],
    distance: npt.NDArray[np.float32],
) -> npt.NDArray[np.int64]:
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


def _widest(
    position: npt.NDArray[np.float64], radius: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Of each peak that is as near to its nearest one as to the solid, and that, keep the wider."""
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
