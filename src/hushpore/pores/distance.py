"""Exact squared Euclidean distance from every pore voxel to the nearest solid voxel.

One dimension after the other: first the distance along z, one carried plane at a time, then in
each slice the lower envelope of the parabolas that the voxels of a line put up. Distances are
measured in voxels of the smallest spacing, so that for cubic voxels every squared distance is a
whole number and float32 holds it exactly below 2**24.

References
----------
P. Felzenszwalb and D. Huttenlocher (2012), "Distance transforms of sampled functions",
Theory of Computing 8, 415-428. https://doi.org/10.4086/toc.2012.v008a019

A. Meijster, J. Roerdink and W. Hesselink (2000), "A general algorithm for computing distance
transforms in linear time". https://doi.org/10.1007/0-306-47025-X_36
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.pores.parallel import Workers

_COLUMNS = 16  # columns of a slice that are turned into lines at a time: one cache line of them


def squared_distance(
    void: npt.NDArray[np.bool_],
    spacing: Sequence[float],
    solid_outside: Sequence[bool],
    workers: Workers,
) -> npt.NDArray[np.float32]:
    """Return the squared distance from each void voxel to the nearest solid voxel's centre.

    Parameters
    ----------
    void : numpy.ndarray
        (z, y, x), bool, C order.
    spacing : sequence of float
        Voxel size in z, y, x order.
    solid_outside : sequence of bool
        For each axis, whether a layer of solid is taken to lie before its first and after its
        last voxel.
    workers : Workers
        Threads to run on.

    Returns
    -------
    numpy.ndarray
        (z, y, x), float32, in squared voxels of the smallest spacing; 0 in the solid, infinite
        everywhere where there is no solid at all.

    Notes
    -----
    Linear in the number of voxels; needs no memory besides the result and one slice a thread.
    """
    smallest = min(spacing)
    weight_z, weight_y, weight_x = ((step / smallest) ** 2 for step in spacing)
    distance = np.empty(void.shape, np.float32)
    depth, height, _ = void.shape
    workers.over(height, _along_z, void.view(np.uint8), distance, solid_outside[0])
    workers.over(
        depth,
        _in_slices,
        distance,
        weight_z,
        weight_y,
        weight_x,
        solid_outside[1],
        solid_outside[2],
    )
    return distance


@kernel
def _along_z(
    void: npt.NDArray[np.uint8],
    distance: npt.NDArray[np.float32],
    solid_outside: bool,
    first: int,
    last: int,
) -> None:
    """Write the plain distance along z of rows `first` to `last` of every slice."""
    depth, _, width = void.shape
    outside = np.float32(0.0) if solid_outside else np.float32(np.inf)
    zero = np.float32(0.0)
    one = np.float32(1.0)
    carried = np.empty(width, np.float32)
    for y in range(first, last):
        carried[:] = outside
        for z in range(depth):
            pores = void[z, y]
            line = distance[z, y]
            for x in range(width):
                value = carried[x] + one if pores[x] else zero
                carried[x] = value
                line[x] = value
        carried[:] = outside
        for z in range(depth - 1, -1, -1):
            line = distance[z, y]
            for x in range(width):
                value = min(line[x], carried[x] + one)
                carried[x] = value
                line[x] = value


@kernel
def _in_slices(
    distance: npt.NDArray[np.float32],
    weight_z: float,
    weight_y: float,
    weight_x: float,
    solid_outside_y: bool,
    solid_outside_x: bool,
    first: int,
    last: int,
) -> None:
    """Turn distances along z into squared distances in space, in slices `first` to `last`."""
    _, height, width = distance.shape
    longest = max(height, width) + 2
    site = np.empty(longest, np.int64)
    begin = np.empty(longest, np.int64)
    columns = np.empty((_COLUMNS, height + 2), np.float32)
    line = np.empty(width + 2, np.float32)
    out = np.empty(longest, np.float32)
    edge_y = np.float32(0.0) if solid_outside_y else np.float32(np.inf)
    edge_x = np.float32(0.0) if solid_outside_x else np.float32(np.inf)
    columns[:, 0] = edge_y
    columns[:, height + 1] = edge_y
    line[0] = edge_x
    line[width + 1] = edge_x
    scale = np.float32(weight_z)
    for z in range(first, last):
        plane = distance[z]
        for x0 in range(0, width, _COLUMNS):
            count = min(_COLUMNS, width - x0)
            for y in range(height):
                for k in range(count):
                    along = plane[y, x0 + k]
                    columns[k, y + 1] = along * along * scale
            for k in range(count):
                _lower_envelope(columns[k], weight_y, site, begin, out)
                for y in range(height):
                    columns[k, y + 1] = out[y + 1]
            for y in range(height):
                for k in range(count):
                    plane[y, x0 + k] = columns[k, y + 1]
        for y in range(height):
            row = plane[y]
            for x in range(width):
                line[x + 1] = row[x]
            _lower_envelope(line, weight_x, site, begin, out)
            for x in range(width):
                row[x] = out[x + 1]


@kernel
def _lower_envelope(
    line: npt.NDArray[np.float32],
    weight: float,
    site: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int64],
    out: npt.NDArray[np.float32],
) -> None:
    """Write ``min over i of line[i] + weight * (x - i)**2``, one run above zero at a time.

    The ends of `line` stand for what lies outside and are not written. Within a run only its own
    voxels and the two zeros beside it count: every other parabola is higher there.
    """
    size = line.size
    start = 1
    while start < size - 1:
        if line[start] == 0:
            out[start] = np.float32(0.0)
            start += 1
            continue
        stop = start + 1
        while stop < size - 1 and line[stop] != 0:
            stop += 1
        top = -1
        for i in range(start - 1, stop + 1):
            height = np.float64(line[i])
            if height == np.inf:
                continue
            after = start
            while top >= 0:
                j = site[top]
                cut = (height - line[j] + weight * (i * i - j * j)) / (2.0 * weight * (i - j))
                # the first voxel at which parabola i lies below parabola j
                after = start if cut < start else int(np.floor(min(cut, stop * 1.0))) + 1
                if after > begin[top]:
                    break
                top -= 1
                after = start
            if after < stop:
                top += 1
                site[top] = i
                begin[top] = after
        if top < 0:
            for x in range(start, stop):
                out[x] = np.float32(np.inf)
        end = stop
        while top >= 0:
            j = site[top]
            base = np.float64(line[j])
            for x in range(begin[top], end):
                out[x] = np.float32(base + weight * ((x - j) * (x - j)))
            end = begin[top]
            top -= 1
        start = stop
