"""Which neighbour every void voxel points to: the highest one, in a total order without plateaus.

"Highest" is the squared distance first; then the sum of the squared distances in the 3x3x3 box
around the voxel, which lets equal distances lead towards the wider side whichever way the volume
is turned; then the lower index.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hushpore.pores.parallel import inlined, kernel, ranges

if TYPE_CHECKING:
    from hushpore.base.arrays import Float32s, Int32s, Int64s
    from hushpore.pores.parallel import KernelThreads

_ROWS = 64  # rows that are worked on at a time, so that the buffers of a thread stay in its cache


def steepest_ascent(
    distance: Float32s,
    pointers: Int32s,
    first: int,
    last: int,
    threads: KernelThreads,
    *,
    faces_only: bool,
) -> Int64s:
    """Point the void voxels of some slices to their highest neighbour, the solid to -1.

    Returns: (n,), int64: flat index of the voxels that are highest themselves, the peaks, sorted.

    `faces_only`: whether only the 6 neighbours that share a face count, or all 26. `distance`: (z,
    y, x), float32, C order: squared distance, 0 in the solid. `pointers`: (z, y, x), int32: where
    to write the flat index of the neighbour. `first`, `last`: the slices.
    """
    height, width = distance.shape[1:]
    in_rows = -(-height // _ROWS)
    # slices beside those of a piece are gone through twice, so that they are cut only for threads
    in_slices = 1 if threads.count == 1 else -(-4 * threads.count // in_rows)
    slices = [(first + a, first + b) for a, b in ranges(last - first, in_slices)]
    pieces = [(*rows, *each) for rows in ranges(height, in_rows) for each in slices]
    ascend = _ascend_over_faces if faces_only else _ascend
    bits = distance.view(np.int32)
    places = np.array(list(itertools.product((1, 0, -1), repeat=3)))
    if faces_only:
        places = places[np.abs(places).sum(axis=1) <= 1]
    steps = (places @ (height * width, width, 1)).astype(np.int32)

    def point(first: int, last: int) -> list[Int64s]:
        found = []
        for row_first, row_last, begin, end in pieces[first:last]:
            room = _room(row_last - row_first, width, steps)
            z, count = begin - 2, 0
            while z < end + 2:
                z, count = ascend(
                    distance, bits, pointers, room, row_first, row_last, begin, end, z, count
                )
                if z < end + 2:
                    peaks = np.concatenate([room.peaks, np.empty_like(room.peaks)])
                    room = room._replace(peaks=peaks)
            found.append(room.peaks[:count].copy())
        return found

    found = itertools.chain.from_iterable(threads.over(len(pieces), point))
    return np.sort(np.concatenate(list(found)))


class Room(NamedTuple):
    """The arrays of one thread: lines by y modulo 3, planes by z modulo 3."""

    steps: Int32s  # to the neighbour, by the last bits of its key
    peaks: Int64s  # those found so far, with room for more
    line_sums: Float32s
    sums: Float32s  # of some rows, and of those before and after
    line_keys: Int64s
    # the highest keys around the voxels of these rows; over faces their own, and of the rows beside
    keys: Int64s
    row_keys: Int64s  # of one row, with solid on both sides
    total: Float32s  # the sums of the boxes around the voxels of a row
    total_bits: Int32s


def _room(rows: int, width: int, steps: Int32s) -> Room:
    """Return the arrays with which one thread goes through some rows."""
    total = np.empty(width, np.float32)
    return Room(
        steps,
        np.empty(2 * rows * width, np.int64),
        np.zeros((3, width), np.float32),
        np.zeros((3, rows + 2, width), np.float32),
        np.zeros((3, width), np.int64),
        np.zeros((3, rows + 2, width), np.int64),
        np.zeros(width + 2, np.int64),
        total,
        total.view(np.int32),
    )


@kernel
def _ascend(
    distance: Float32s,
    bits: Int32s,
    pointers: Int32s,
    room: Room,
    row_first: int,
    row_last: int,
    begin: int,
    end: int,
    z: int,
    count: int,
) -> tuple[int, int]:
    """Point every void voxel of a range of slices and rows to its highest neighbour; solid to -1.

    Goes on from slice `z` as long as there is room for peaks, `count` of which are known; returns
    both.

    Box sum and maximum are both taken one dimension at a time, on three planes of each that are
    carried along z. A key of 63 bits holds the bits of the squared distance (those of floats above
    zero are in order as integers), the leading 27 bits of the box sum, and 5 bits that say which of
    the 27 voxels it is of, the lowest index highest.
    """
    steps, peaks, line_sums, sums, line_keys, keys, row_keys, total, total_bits = room
    most = (row_last - row_first) * distance.shape[2]
    while z < end + 2 and peaks.size - count >= most:
        _sum_plane(distance, z, row_first, row_last, line_sums, sums)
        if z >= begin:
            _highest_plane(
                bits, z - 1, row_first, row_last, sums, line_keys, keys, row_keys, total, total_bits
            )
        if z >= begin + 2:
            _ascend_plane(bits, z - 2, row_first, row_last, keys, steps, pointers)
            count = _add_peaks(pointers, z - 2, row_first, row_last, peaks, count)
        z += 1
    return z, count


@inlined
def _sum_plane(
    distance: Float32s, z: int, row_first: int, row_last: int, lines: Float32s, sums: Float32s
) -> None:
    """Write the 3x3 sums around the voxels of some rows of slice `z`; outside all is 0.

    The two sides are added first, so that the sum is the same when the volume is flipped.
    """
    depth, height, width = distance.shape
    out = sums[z % 3]
    if z < 0 or z >= depth:
        out[:] = 0
    else:
        for y in range(row_first - 2, row_last + 2):
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
            if y >= row_first:
                oldest = lines[(y - 1) % 3]
                middle = lines[y % 3]
                target = out[y - row_first]
                for x in range(width):
                    target[x] = (oldest[x] + newest[x]) + middle[x]


@inlined
def _highest_plane(
    bits: Int32s,
    z: int,
    row_first: int,
    row_last: int,
    sums: Float32s,
    lines: Int64s,
    keys: Int64s,
    row_keys: Int64s,
    total: Float32s,
    total_bits: Int32s,
) -> None:
    """Write the highest key among the 3x3 voxels around those of some rows of slice `z`."""
    depth, height, width = bits.shape
    out = keys[z % 3]
    if z < 0 or z >= depth:
        out[:] = 0
    else:
        for y in range(row_first - 1, row_last + 1):
            newest = lines[(y + 1) % 3]
            if y < 0 or y >= height:
                newest[:] = 0
            else:
                before = sums[(z - 1) % 3, y - row_first + 1]
                level = sums[z % 3, y - row_first + 1]
                after = sums[(z + 1) % 3, y - row_first + 1]
                line = bits[z, y]
                for x in range(width):
                    total[x] = (before[x] + after[x]) + level[x]
                for x in range(width):
                    key = (np.int64(line[x]) << 32) | ((np.int64(total_bits[x]) >> 4) << 5)
                    row_keys[x + 1] = key
                for x in range(width):
                    newest[x] = max(row_keys[x] + 2, row_keys[x + 1] + 1, row_keys[x + 2])
            if y > row_first:
                oldest = lines[(y - 1) % 3]
                middle = lines[y % 3]
                target = out[y - 1 - row_first]
                for x in range(width):
                    target[x] = max(oldest[x] + 6, middle[x] + 3, newest[x])


@inlined
def _ascend_plane(
    bits: Int32s,
    z: int,
    row_first: int,
    row_last: int,
    keys: Int64s,
    steps: Int32s,
    pointers: Int32s,
) -> None:
    """Write the pointers of some rows of slice `z` from the highest keys of three planes."""
    _, height, width = bits.shape
    for y in range(row_first, row_last):
        above = keys[(z - 1) % 3, y - row_first]
        level = keys[z % 3, y - row_first]
        below = keys[(z + 1) % 3, y - row_first]
        line = bits[z, y]
        target = pointers[z, y]
        start = (z * height + y) * width
        for x in range(width):
            if line[x] == 0:
                target[x] = -1
            else:
                which = max(above[x] + 18, level[x] + 9, below[x]) & 31
                target[x] = start + x + steps[which]


@inlined
def _add_peaks(
    pointers: Int32s, z: int, row_first: int, row_last: int, peaks: Int64s, count: int
) -> int:
    """Append the voxels of some rows of slice `z` that point to themselves; returns the count."""
    _, height, width = pointers.shape
    for y in range(row_first, row_last):
        line, start = pointers[z, y], (z * height + y) * width
        # most rows have none, which is told without a branch a voxel
        found = np.int32(0)
        for x in range(width):
            found += np.int32(line[x] == np.int32(start + x))
        if found > 0:
            for x in range(width):
                peaks[count] = start + x
                count += int(line[x] == start + x)
    return count


@kernel
def _ascend_over_faces(
    distance: Float32s,
    bits: Int32s,
    pointers: Int32s,
    room: Room,
    row_first: int,
    row_last: int,
    begin: int,
    end: int,
    z: int,
    count: int,
) -> tuple[int, int]:
    """Do what `_ascend` does, but to the highest of the 6 neighbours that share a face.

    The keys are the same but for their last bits, which are added for the comparison.
    """
    steps, peaks, line_sums, sums, _, keys, _, total, total_bits = room
    most = (row_last - row_first) * distance.shape[2]
    while z < end + 2 and peaks.size - count >= most:
        _sum_plane(distance, z, row_first, row_last, line_sums, sums)
        if z >= begin:
            _key_plane(bits, z - 1, row_first, row_last, sums, keys, total, total_bits)
        if z >= begin + 2:
            _ascend_plane_over_faces(bits, z - 2, row_first, row_last, keys, steps, pointers)
            count = _add_peaks(pointers, z - 2, row_first, row_last, peaks, count)
        z += 1
    return z, count


@inlined
def _key_plane(
    bits: Int32s,
    z: int,
    row_first: int,
    row_last: int,
    sums: Float32s,
    keys: Int64s,
    total: Float32s,
    total_bits: Int32s,
) -> None:
    """Write the keys of the voxels of some rows of slice `z`, and of the rows beside them."""
    depth, height, width = bits.shape
    for y in range(row_first - 1, row_last + 1):
        target = keys[z % 3, y - row_first + 1]
        if z < 0 or z >= depth or y < 0 or y >= height:
            target[:] = 0
        else:
            before = sums[(z - 1) % 3, y - row_first + 1]
            level = sums[z % 3, y - row_first + 1]
            after = sums[(z + 1) % 3, y - row_first + 1]
            line = bits[z, y]
            for x in range(width):
                total[x] = (before[x] + after[x]) + level[x]
            for x in range(width):
                target[x] = (np.int64(line[x]) << 32) | ((np.int64(total_bits[x]) >> 4) << 5)


@inlined
def _ascend_plane_over_faces(
    bits: Int32s,
    z: int,
    row_first: int,
    row_last: int,
    keys: Int64s,
    steps: Int32s,
    pointers: Int32s,
) -> None:
    """Write the pointers of some rows of slice `z` from the keys of three planes."""
    _, height, width = bits.shape
    for y in range(row_first, row_last):
        row = y - row_first + 1
        start = (z * height + y) * width
        for x in range(width):
            if bits[z, y, x] == 0:
                pointers[z, y, x] = -1
            else:
                own = keys[z % 3, row, x] + 3
                best = max(own, keys[(z - 1) % 3, row, x] + 6, keys[(z + 1) % 3, row, x])
                best = max(best, keys[z % 3, row - 1, x] + 5, keys[z % 3, row + 1, x] + 1)
                if x > 0:
                    best = max(best, keys[z % 3, row, x - 1] + 4)
                if x < width - 1:
                    best = max(best, keys[z % 3, row, x + 1] + 2)
                pointers[z, y, x] = start + x + steps[best & 31]
