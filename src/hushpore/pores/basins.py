"""Basins of the distance map: every void voxel climbs to the summit that it belongs to.

Each voxel points to the highest of its 26 neighbours, or to itself; following the pointers leads
to a summit, and all voxels that end at the same one are its basin: a watershed without a flood and
without an order of visits. "Highest" is a total order, so that there are no plateaus and the result
does not depend on threads or on cuts: squared distance first; then the sum of the squared
distances in the 3x3x3 box around the voxel, which lets equal distances climb towards the wider
side whichever way the volume is turned; then the lower index.

References
----------
J. Cousty, G. Bertrand, L. Najman and M. Couprie (2009), "Watershed cuts: minimum spanning forests
and the drop of water principle". https://doi.org/10.1109/TPAMI.2008.173
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.pores.parallel import Workers

_ROWS = 64  # rows that are worked on at a time, so that the buffers of a thread stay in its cache


def find_basins(
    distance: npt.NDArray[np.float32], workers: Workers
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Assign every void voxel to a summit of the distance map.

    Parameters
    ----------
    distance : numpy.ndarray
        (z, y, x), float32, C order, fewer than 2**31 voxels: squared distance, 0 in the solid.
    workers : Workers
        Threads to run on.

    Returns
    -------
    basins : numpy.ndarray
        (z, y, x), int32: 1 to n in the order in which their summits lie in memory, 0 in the solid.
    summits : numpy.ndarray
        (n,), int64: flat index of the summit of each basin.
    """
    pointers = np.empty(distance.shape, np.int32)
    depth, height, _ = distance.shape
    for row in range(0, height, _ROWS):
        rows = (row, min(row + _ROWS, height))
        workers.over(depth, _point, distance, distance.view(np.int32), pointers, *rows, smallest=4)
    flat = pointers.reshape(-1)
    # a thread may read pointers that another one is writing: old or new, they lead the same way
    workers.over(flat.size, _climb, flat, smallest=1 << 14)
    summits = np.concatenate(workers.over(flat.size, _summits, flat, smallest=1 << 14))
    flat[summits] = -2 - np.arange(summits.size, dtype=np.int32)
    workers.over(flat.size, _number, flat, smallest=1 << 14)
    flat[summits] = np.arange(1, summits.size + 1, dtype=np.int32)
    return pointers, summits


@kernel
def _point(
    distance: npt.NDArray[np.float32],
    bits: npt.NDArray[np.int32],
    pointers: npt.NDArray[np.int32],
    row_first: int,
    row_last: int,
    first: int,
    last: int,
) -> None:
    """Point every void voxel of a range of slices and rows to its highest neighbour; solid to -1.

    Box sum and maximum are both taken one dimension at a time, on three planes of each that are
    carried along z. A key of 63 bits holds the bits of the squared distance (those of floats above
    zero are in order as integers), the leading 27 bits of the box sum, and 5 bits that say which of
    the 27 voxels it is of, the lowest index highest.
    """
    width = distance.shape[2]
    rows = row_last - row_first
    sums = np.zeros((3, rows + 2, width), np.float32)
    tops = np.zeros((3, rows, width), np.int64)
    lines = np.zeros((3, width), np.float32)
    key_tops = np.zeros((3, width), np.int64)
    for z in range(first - 2, last + 2):
        _sum_plane(distance, z, row_first - 1, row_last + 1, lines, sums[z % 3])
        if z >= first:
            _top_plane(bits, z - 1, row_first, row_last, sums, key_tops, tops[(z - 1) % 3])
        if z >= first + 2:
            _point_plane(bits, z - 2, row_first, row_last, tops, pointers)


@kernel
def _sum_plane(
    distance: npt.NDArray[np.float32],
    z: int,
    row_first: int,
    row_last: int,
    lines: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None:
    """Write the 3x3 sums around the voxels of some rows of slice `z`; outside all is 0.

    The two sides are added first, so that the sum is the same when the volume is flipped.
    """
    depth, height, width = distance.shape
    if z < 0 or z >= depth:
        out[:] = 0
        return
    for y in range(row_first - 1, row_last + 1):
        newest = lines[(y + 1) % 3]
        if y < 0 or y >= height:
            newest[:] = 0
        else:
            line = distance[z, y]
            for x in range(1, width - 1):
                newest[x] = (line[x - 1] + line[x + 1]) + line[x]
            if width == 1:
                newest[0] = line[0]
            else:
                newest[0] = line[1] + line[0]
                newest[width - 1] = line[width - 2] + line[width - 1]
        if y > row_first:
            oldest = lines[(y - 1) % 3]
            middle = lines[y % 3]
            target = out[y - 1 - row_first]
            for x in range(width):
                target[x] = (oldest[x] + newest[x]) + middle[x]


@kernel
def _top_plane(
    bits: npt.NDArray[np.int32],
    z: int,
    row_first: int,
    row_last: int,
    sums: npt.NDArray[np.float32],
    key_tops: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
) -> None:
    """Write the highest key among the 3x3 voxels around those of some rows of slice `z`."""
    depth, height, width = bits.shape
    if z < 0 or z >= depth:
        out[:] = 0
        return
    total = np.empty(width, np.float32)
    total_bits = total.view(np.int32)
    keys = np.zeros(width + 2, np.int64)
    for y in range(row_first - 1, row_last + 1):
        newest = key_tops[(y + 1) % 3]
        if y < 0 or y >= height:
            newest[:] = 0
        else:
            before = sums[(z - 1) % 3, y - row_first + 1]
            here = sums[z % 3, y - row_first + 1]
            after = sums[(z + 1) % 3, y - row_first + 1]
            line = bits[z, y]
            for x in range(width):
                total[x] = (before[x] + after[x]) + here[x]
            for x in range(width):
                keys[x + 1] = (np.int64(line[x]) << 32) | ((np.int64(total_bits[x]) >> 4) << 5)
            for x in range(width):
                newest[x] = max(keys[x] + 2, keys[x + 1] + 1, keys[x + 2])
        if y > row_first:
            oldest = key_tops[(y - 1) % 3]
            middle = key_tops[y % 3]
            target = out[y - 1 - row_first]
            for x in range(width):
                target[x] = max(oldest[x] + 6, middle[x] + 3, newest[x])


@kernel
def _point_plane(
    bits: npt.NDArray[np.int32],
    z: int,
    row_first: int,
    row_last: int,
    tops: npt.NDArray[np.int64],
    pointers: npt.NDArray[np.int32],
) -> None:
    """Write the pointers of some rows of slice `z` from the highest keys of three planes."""
    _, height, width = bits.shape
    step = np.empty(27, np.int32)
    for dz in range(-1, 2):
        for dy in range(-1, 2):
            for dx in range(-1, 2):
                step[13 - 9 * dz - 3 * dy - dx] = (dz * height + dy) * width + dx
    for y in range(row_first, row_last):
        above = tops[(z - 1) % 3, y - row_first]
        level = tops[z % 3, y - row_first]
        below = tops[(z + 1) % 3, y - row_first]
        line = bits[z, y]
        target = pointers[z, y]
        start = (z * height + y) * width
        for x in range(width):
            if line[x] == 0:
                target[x] = -1
            else:
                which = max(above[x] + 18, level[x] + 9, below[x]) & 31
                target[x] = start + x + step[which]


@kernel
def _climb(pointers: npt.NDArray[np.int32], first: int, last: int) -> None:
    """Make every pointer of a range lead straight to its summit, by path compression in place."""
    for start in range(first, last):
        summit = pointers[start]
        if summit < 0:
            continue
        while pointers[summit] != summit:
            summit = pointers[summit]
        at = start
        while pointers[at] != summit:
            onward = pointers[at]
            pointers[at] = summit
            at = onward


@kernel
def _summits(pointers: npt.NDArray[np.int32], first: int, last: int) -> npt.NDArray[np.int64]:
    """Return the indices in a range that point to themselves."""
    count = 0
    for i in range(first, last):
        if pointers[i] == i:
            count += 1
    found = np.empty(count, np.int64)
    count = 0
    for i in range(first, last):
        if pointers[i] == i:
            found[count] = i
            count += 1
    return found


@kernel
def _number(pointers: npt.NDArray[np.int32], first: int, last: int) -> None:
    """Replace pointers by basin numbers; summits hold ``-1 - number`` and are left as they are."""
    for i in range(first, last):
        target = pointers[i]
        if target >= 0:
            pointers[i] = -1 - pointers[target]
        elif target == -1:
            pointers[i] = 0


@kernel
def relabel(
    basins: npt.NDArray[np.int32],
    label_of: npt.NDArray[np.int32],
    labels: npt.NDArray[np.int32],
    first: int,
    last: int,
) -> None:
    """Write ``label_of[basins]`` for a range of a flat array."""
    for i in range(first, last):
        labels[i] = label_of[basins[i]]


def apply_labels(
    basins: npt.NDArray[np.int32], label_of: npt.NDArray[Any], workers: Workers
) -> npt.NDArray[np.int32]:
    """Return the label of every voxel.

    Parameters
    ----------
    basins : numpy.ndarray
        int32, any shape, C order.
    label_of : numpy.ndarray
        (n + 1,): label of each basin, 0 for what is not a pore.
    workers : Workers
        Threads to run on.

    Returns
    -------
    numpy.ndarray
        int32, of the same shape.
    """
    labels = np.empty(basins.shape, np.int32)
    table = np.ascontiguousarray(label_of, np.int32)
    flat = basins.reshape(-1)
    workers.over(flat.size, relabel, flat, table, labels.reshape(-1), smallest=1 << 16)
    return labels
