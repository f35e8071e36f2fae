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

_REACH = 48  # voxels up to which looking at all of them is faster than an envelope
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
    edge_y = np.float32(0.0) if solid_outside_y else np.float32(np.inf)
    edge_x = np.float32(0.0) if solid_outside_x else np.float32(np.inf)
    scale = np.float32(weight_z)
    scratch = np.empty((height, width), np.float32)
    line = np.full(width + 2 * _REACH, np.inf, np.float32)
    line[_REACH - 1] = edge_x
    line[_REACH + width] = edge_x
    for z in range(first, last):
        plane = distance[z]
        for y in range(height):
            row = plane[y]
            for x in range(width):
                row[x] = row[x] * row[x] * scale
        if not _near_in_y(plane, weight_y, edge_y, scratch):
            _far_in_y(plane, weight_y, edge_y, scratch)
        for y in range(height):
            line[_REACH : _REACH + width] = scratch[y]
            if not _near_in_x(line, weight_x, plane[y]):
                _lower_envelope(line[_REACH - 1 : _REACH + width + 1], weight_x, plane[y])


@kernel
def _near_in_y(
    plane: npt.NDArray[np.float32],
    weight: float,
    edge: np.float32,
    out: npt.NDArray[np.float32],
) -> bool:
    """Take the minimum along y over near rows, whole rows at a time.

    Returns whether that was far enough: in most slices of most volumes it is, and then it takes a
    fraction of the time of an envelope.
    """
    height, width = plane.shape
    for y in range(height):
        best = out[y]
        best[:] = plane[y]
        for away in range(1, _REACH):
            rise = np.float32(weight * away * away)
            if not _any_above(best, rise):
                break
            for beside in (y - away, y + away):
                if 0 <= beside < height:
                    row = plane[beside]
                    for x in range(width):
                        best[x] = min(best[x], row[x] + rise)
                elif beside in (-1, height):
                    for x in range(width):
                        best[x] = min(best[x], edge + rise)
        if _any_above(best, np.float32(weight * _REACH * _REACH)):
            return False
    return True


@kernel
def _near_in_x(line: npt.NDArray[np.float32], weight: float, best: npt.NDArray[np.float32]) -> bool:
    """Take the minimum along x over near voxels of a line that is padded on both sides.

    Returns whether that was far enough.
    """
    width = best.size
    best[:] = line[_REACH : _REACH + width]
    for away in range(1, _REACH):
        rise = np.float32(weight * away * away)
        if not _any_above(best, rise):
            return True
        before = line[_REACH - away : _REACH - away + width]
        after = line[_REACH + away : _REACH + away + width]
        for x in range(width):
            best[x] = min(best[x], min(before[x], after[x]) + rise)
    return not _any_above(best, np.float32(weight * _REACH * _REACH))


@kernel
def _any_above(values: npt.NDArray[np.float32], limit: np.float32) -> bool:
    """Whether any value is above a limit, without stopping early: eight times as fast."""
    found = np.int32(0)
    for x in range(values.size):
        found |= np.int32(values[x] > limit)
    return bool(found > 0)


@kernel
def _far_in_y(
    plane: npt.NDArray[np.float32],
    weight: float,
    edge: np.float32,
    out: npt.NDArray[np.float32],
) -> None:
    """Take the minimum along y over all rows, some columns at a time."""
    height, width = plane.shape
    columns = np.empty((_COLUMNS, height + 2), np.float32)
    result = np.empty(height, np.float32)
    columns[:, 0] = edge
    columns[:, height + 1] = edge
    for x0 in range(0, width, _COLUMNS):
        count = min(_COLUMNS, width - x0)
        for y in range(height):
            for k in range(count):
                columns[k, y + 1] = plane[y, x0 + k]
        for k in range(count):
            _lower_envelope(columns[k], weight, result)
            for y in range(height):
                out[y, x0 + k] = result[y]


@kernel
def _lower_envelope(
    line: npt.NDArray[np.float32], weight: float, out: npt.NDArray[np.float32]
) -> None:
    """Write ``min over i of line[i] + weight * (x - i)**2``, one run above zero at a time.

    The first and last value of `line` stand for what lies outside and have no place in `out`.
    Within a run only its own voxels and the two zeros beside it count: every other parabola is
    higher there.
    """
    size = line.size
    site = np.empty(size, np.int64)
    begin = np.empty(size, np.int64)
    start = 1
    while start < size - 1:
        if line[start] == 0:
            out[start - 1] = np.float32(0.0)
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
                out[x - 1] = np.float32(np.inf)
        end = stop
        while top >= 0:
            j = site[top]
            base = np.float64(line[j])
            for x in range(begin[top], end):
                out[x - 1] = np.float32(base + weight * ((x - j) * (x - j)))
            end = begin[top]
            top -= 1
        start = stop
