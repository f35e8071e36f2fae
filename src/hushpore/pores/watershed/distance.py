"""Exact squared Euclidean distance from every pore voxel to the nearest solid voxel.

The dimensions are processed one after the other: first the distance along z, carried plane by
plane, then in each slice the lower envelope of the parabolas of the voxels in a line. Distances are
in voxels of the smallest spacing, so that for cubic voxels every squared distance is an integer,
exact in float32 below 2**24. Close to the solid, a search of all near voxels takes a fraction of
the time of an envelope; for cubic voxels it needs 16 bits per voxel.

References
----------
P. Felzenszwalb and D. Huttenlocher (2012), "Distance transforms of sampled functions",
Theory of Computing 8, 415-428. https://doi.org/10.4086/toc.2012.v008a019

A. Meijster, J. Roerdink and W. Hesselink (2000), "A general algorithm for computing distance
transforms in linear time". https://doi.org/10.1007/0-306-47025-X_36
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.pores.parallel import inlined, kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Array, Float32s, Int64s, Mask, UInt8s
    from hushpore.pores.parallel import KernelThreads

_REACH = 48  # distance in voxels up to which a search is faster than an envelope
_FAR = 61440  # fits 16 bits even with the square of the reach added
_COLUMNS = 16  # columns of a slice that are transposed at once: one cache line


def squared_distance(
    void: Mask,
    spacing: Sequence[float],
    solid_outside: Sequence[bool],
    threads: KernelThreads,
    within: float = math.inf,
) -> Float32s:
    """Return the squared distance from each void voxel to the nearest solid voxel's centre.

    `void`: (z, y, x), bool, C order. `spacing`: voxel size in z, y, x order. `solid_outside`: for
    each axis, whether solid is assumed before its first and after its last voxel. `within`: squared
    distance above which any larger value may be returned.
    Returns: (z, y, x), float32, in squared voxels of the smallest spacing; 0 in the solid, infinite
    everywhere if there is no solid.

    Linear in the number of voxels; needs memory for the result and one slice per thread.
    """
    distance = np.empty(void.shape, np.float32)
    edge = edge_plane(void.shape, solid_outside[0])
    fill_distance(
        void.view(np.uint8), distance, edge, edge, spacing, solid_outside, threads, within=within
    )
    return distance


def edge_plane(shape: Sequence[int], solid_outside: bool) -> Float32s:
    """Return the initial distance along z, (y, x), at the first and last slice of a stack."""
    return np.full(shape[1:], 0.0 if solid_outside else np.inf, np.float32)


def carry(
    phase: UInt8s, plane: Float32s, threads: KernelThreads, highest: int = 1, *, back: bool = False
) -> Float32s:
    """Carry the distance along z (not squared) through a slab, from its first slice to its last.

    `phase`, `highest`: as for `fill_distance`. `plane`: (y, x), float32: distance to the nearest
    solid before the slab, in its adjacent slice. `back`: whether to go from the last slice to the
    first.
    """
    carried = plane.copy()
    threads.over(carried.shape[0], _carry, phase, carried, highest, back)
    return carried


def fill_distance(
    phase: UInt8s,
    distance: Float32s,
    before: Float32s,
    after: Float32s,
    spacing: Sequence[float],
    solid_outside: Sequence[bool],
    threads: KernelThreads,
    highest: int = 1,
    within: float = math.inf,
) -> None:
    """Write the squared distance of every voxel of a slab, see `squared_distance`.

    `phase`: (z, y, x), uint8, C order: 1 to `highest` is void, all else is solid. `distance`: (z,
    y, x), float32: output. `before`, `after`: (y, x), float32: the distance along z in the slices
    before and after the slab, to solid before the slab and to solid after it, respectively. The
    result does not depend on the division into slabs.
    """
    smallest = min(spacing)
    weight_z, weight_y, weight_x = weights = [(step / smallest) ** 2 for step in spacing]
    if not all(weight.is_integer() for weight in weights[1:]):
        # search and envelope round differently, so that the result would depend on the limit
        within = math.inf
    most_y, most_x = (int(min(math.sqrt(within / weight) + 1, _REACH)) for weight in weights[1:])
    edge_y, edge_x = (np.float32(0.0 if solid else np.inf) for solid in solid_outside[1:])
    depth, height, width = phase.shape

    def along_z(first: int, last: int) -> None:
        carried = np.empty(width, np.float32)
        _along_z(phase, distance, before, after, highest, carried, first, last)

    threads.over(height, along_z)
    # 16 bits are enough near the solid if voxels are square in the slices and weights are integers
    is_short = weight_z.is_integer() and weight_y == weight_x == 1
    far = np.array([_FAR], np.uint16) if is_short else np.array([np.inf], np.float32)

    def in_slices(first: int, last: int) -> None:
        room = _room(height, width, far)
        limits = (edge_y, edge_x, most_y, most_x)
        _in_slices(distance, room, weight_z, weight_y, weight_x, limits, first, last)

    threads.over(depth, in_slices)


class _Room(NamedTuple):
    """The work arrays of one thread for the distances in slices.

    The first five have the type in which near voxels are compared.
    """

    far: Array  # (1,): upper limit of the values
    along_z: Array  # (y, x): squared distances along z
    in_plane: Array  # (y, x): squared distances in the plane of z and y
    line: Array  # one line of `in_plane` along x, padded with `far` on both sides
    best: Array  # (x,)
    exact: Float32s  # one line along x, padded with the value outside
    columns: Float32s  # some lines along y, padded likewise
    result: Float32s  # (y,)
    site: Int64s  # vertex of each parabola of an envelope
    begin: Int64s  # first voxel at which each is the lowest


def _room(height: int, width: int, far: Array) -> _Room:
    """Return the work arrays of one thread."""
    return _Room(
        far,
        np.empty((height, width), far.dtype),
        np.empty((height, width), far.dtype),
        np.full(width + 2 * _REACH, far[0]),
        np.empty(width, far.dtype),
        np.empty(width + 2, np.float32),
        np.empty((_COLUMNS, height + 2), np.float32),
        np.empty(height, np.float32),
        *np.empty((2, max(height, width) + 2), np.int64),
    )


@kernel
def _carry(
    phase: UInt8s, carried: Float32s, highest: int, back: bool, first: int, last: int
) -> None:
    """Carry the distance along z (not squared) through rows `first` to `last` of every slice."""
    depth, _, width = phase.shape
    for y in range(first, last):
        line = carried[y]
        for step in range(depth):
            row = phase[depth - 1 - step if back else step, y]
            for x in range(width):
                is_void = np.uint8(row[x] - np.uint8(1)) < np.uint8(highest)
                line[x] = line[x] + np.float32(1.0) if is_void else np.float32(0.0)


@kernel
def _along_z(
    phase: UInt8s,
    distance: Float32s,
    before: Float32s,
    after: Float32s,
    highest: int,
    carried: Float32s,
    first: int,
    last: int,
) -> None:
    """Write the distance along z (not squared) in rows `first` to `last` of every slice.

    `carried`: buffer for a row.
    """
    depth, _, width = phase.shape
    one = np.float32(1.0)
    for y in range(first, last):
        _copy(before[y], carried)
        for z in range(depth):
            row = phase[z, y]
            line = distance[z, y]
            for x in range(width):
                is_void = np.uint8(row[x] - np.uint8(1)) < np.uint8(highest)
                value = carried[x] + one if is_void else np.float32(0.0)
                carried[x] = value
                line[x] = value
        _copy(after[y], carried)
        for z in range(depth - 1, -1, -1):
            line = distance[z, y]
            for x in range(width):
                value = min(line[x], carried[x] + one)
                carried[x] = value
                line[x] = value


@kernel
def _in_slices(
    distance: Float32s,
    room: _Room,
    weight_z: float,
    weight_y: float,
    weight_x: float,
    limits: tuple[np.float32, np.float32, int, int],
    first: int,
    last: int,
) -> None:
    """Turn distances along z into squared distances in space, in slices `first` to `last`.

    `limits`: along y and x, the value outside the volume; along y and x, the reach of the search in
    voxels.
    """
    edge_y, edge_x, most_y, most_x = limits
    far, along_z, in_plane, line, best, exact, columns, result, site, begin = room
    _, height, width = distance.shape
    scale = np.float32(weight_z)
    exact[0] = exact[width + 1] = edge_x
    kind, farthest = far.dtype.type, np.float32(far[0])
    line[_REACH - 1] = line[_REACH + width] = kind(min(edge_x, farthest))
    for z in range(first, last):
        plane = distance[z]
        for y in range(height):
            row, short = plane[y], along_z[y]
            for x in range(width):
                row[x] = row[x] * row[x] * scale
                short[x] = kind(min(row[x], farthest))
        is_near = _near_in_y(along_z, weight_y, kind(min(edge_y, farthest)), most_y, in_plane)
        if not is_near:
            _far_in_y(plane, weight_y, edge_y, columns, result, site, begin)
        for y in range(height):
            row, short = plane[y], in_plane[y]
            if not is_near:
                for x in range(width):
                    short[x] = kind(min(row[x], farthest))
            _copy(short, line[_REACH : _REACH + width])
            if _near_in_x(line, weight_x, most_x, best):
                _copy(best, row)
            else:
                for x in range(width):
                    exact[x + 1] = np.float32(short[x]) if is_near else row[x]
                _lower_envelope(exact, weight_x, row, site, begin)


@inlined
def _near_in_y(plane: Array, weight: float, edge: Any, most: int, out: Array) -> bool:
    """Take the minimum along y over rows up to `most` away, whole rows at a time.

    Returns whether that was far enough. In most slices of most volumes it is, and then takes a
    fraction of the time of an envelope.
    """
    height, width = plane.shape
    kind = plane.dtype.type
    is_near, y = True, 0
    while is_near and y < height:
        best = out[y]
        _copy(plane[y], best)
        away, goes_on = 0, True
        while goes_on:
            # if one of the two rows is outside, the other is used twice
            before = y - away if y >= away else (y + away if y + away < height else y)
            after = y + away if y + away < height else (y - away if y >= away else y)
            rise = kind(weight * away * away)
            highest = _lower_to(plane[before], plane[after], rise, best)
            if y - away == -1 or y + away == height:
                beyond = kind(edge + rise)
                for x in range(width):
                    best[x] = min(best[x], beyond)
            goes_on = highest > kind(weight * (away + 1) * (away + 1)) and away < most
            away += 1
            is_near = not goes_on or away < _REACH
            goes_on = goes_on and is_near
        y += 1
    return is_near


@inlined
def _near_in_x(line: Array, weight: float, most: int, best: Array) -> bool:
    """Take the minimum along x over voxels up to `most` away, of a line padded on both sides.

    Returns whether that was far enough.
    """
    width = best.size
    kind = line.dtype.type
    _copy(line[_REACH : _REACH + width], best)
    away, is_near, goes_on = 0, True, True
    while goes_on:
        before = line[_REACH - away : _REACH - away + width]
        after = line[_REACH + away : _REACH + away + width]
        highest = _lower_to(before, after, kind(weight * away * away), best)
        goes_on = highest > kind(weight * (away + 1) * (away + 1)) and away < most
        away += 1
        is_near = not goes_on or away < _REACH
        goes_on = goes_on and is_near
    return is_near


@inlined
def _lower_to(before: Array, after: Array, rise: Any, best: Array) -> Any:
    """Lower `best` to the minimum of two lines plus a rise; returns the highest value left."""
    kind = best.dtype.type
    highest = kind(0)
    for x in range(best.size):
        lower = min(best[x], kind(min(before[x], after[x]) + rise))
        best[x] = lower
        highest = max(highest, lower)
    return highest


@inlined
def _copy(values: Array, out: Array) -> None:
    """Copy values in a loop, since ``out[:] = values`` takes numba seconds to compile."""
    for x in range(values.size):
        out[x] = values[x]


@inlined
def _far_in_y(
    plane: Float32s,
    weight: float,
    edge: np.float32,
    columns: Float32s,
    result: Float32s,
    site: Int64s,
    begin: Int64s,
) -> None:
    """Take the minimum along y over all rows in place, some columns at a time."""
    height, width = plane.shape
    for k in range(_COLUMNS):
        columns[k, 0] = columns[k, height + 1] = edge
    for x0 in range(0, width, _COLUMNS):
        count = min(_COLUMNS, width - x0)
        for y in range(height):
            for k in range(count):
                columns[k, y + 1] = plane[y, x0 + k]
        for k in range(count):
            _lower_envelope(columns[k], weight, result, site, begin)
            for y in range(height):
                plane[y, x0 + k] = result[y]


@kernel
def _lower_envelope(
    line: Float32s, weight: float, out: Float32s, site: Int64s, begin: Int64s
) -> None:
    """Write ``min over i of line[i] + weight * (x - i)**2``, one run above zero at a time.

    The first and last value of `line` are those outside the volume and have no place in `out`.
    Within a run only its own voxels and the two zeros beside it count: every other parabola is
    higher there. `site`, `begin`: buffers of the length of `line`.
    """
    size = line.size
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
