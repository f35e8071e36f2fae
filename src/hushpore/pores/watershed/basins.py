"""Watershed basins of the distance map: every void voxel ascends to a peak.

Each voxel points to the highest of its 26 neighbours, or to itself. Following the pointers leads to
a peak, and all voxels that lead to the same peak are its basin: a watershed without flooding.
"Highest" is a total order without plateaus, so that the result does not depend on the number of
threads or slabs: the squared distance first; then the sum of the squared distances in the 3x3x3 box
around the voxel, which leads equal distances towards the wider side however the volume is turned;
then the lower index.

References
----------
J. Cousty, G. Bertrand, L. Najman and M. Couprie (2009), "Watershed cuts: minimum spanning forests
and the drop of water principle". https://doi.org/10.1109/TPAMI.2008.173
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.pores.parallel import inlined, kernel, ranges

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.arrays import Array, Float32s, Int32s, Int64s
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


_MOST = 2**31 - 2  # limit of int32 basin numbers
_AT_A_TIME = 1 << 12  # voxels that are numbered at once, before exits among them are looked up


class Watershed:
    """Basins of a distance map that is processed slab by slab.

    Within a slab every pointer is followed to a peak, or to an exit, the voxel of the slice before
    or after at which it leaves the slab. Exits are few; after the last slab, following them from
    slab to slab leads to the peaks of all voxels.

    `watershed`: finds the basins of a slab; see `hushpore.pores.engine.Engine.watershed_slab`.
    `faces_only`: whether voxels can only point to the 6 neighbours that share a face.
    """

    def __init__(
        self, depth: int, watershed: Callable[..., SlabWatershed], *, faces_only: bool = False
    ) -> None:
        self.depth = depth
        self._watershed = watershed
        self._faces_only = faces_only
        self.count = 0
        self._done = 0  # slices
        self._exits = [0]  # number of exits before each slab
        # target of each exit: a basin, or -1 - n for exit n; first backward exits, then forward
        self._leads: list[Int64s] = []
        self._ahead = np.zeros(0, np.int64)  # forward exits of the last slab, in the next slice
        self._last_slice = np.zeros(0, np.int32)  # targets of the voxels of the last slice
        self._basin_of_exit = np.zeros(0, np.int32)

    def slices(self, first: int, last: int) -> tuple[int, int]:
        """Return the slices of the distance map that a slab needs."""
        return max(first - 2, 0), min(last + 2, self.depth)

    def find(self, distance: Any, pointers: Any, first: int, last: int) -> SlabWatershed:
        """Find the basins of the next slab, and connect its exits with those of the previous one.

        `distance`: (z, y, x), float32, C order, fewer than 2**31 voxels: the squared distance, 0 in
        the solid, of the `slices` around the slab. `pointers`: int32, of the same shape. Basins are
        written to its slices `first` to `last`, those of the slab: 1 to n in the order of their
        peaks in memory, 0 in the solid, and for a voxel that leaves the slab a negative number,
        which `relabel_exits` replaces.
        Raises InputError if there are more basins than int32 can number.
        """
        found = self._watershed(
            distance, pointers, first, last, self.count, faces_only=self._faces_only
        )
        self.count += found.peaks.size
        self._connect(found)
        return found

    def relabel_exits(self, slab: int, basins: Int32s, threads: KernelThreads) -> None:
        """Replace exits by their basins in slices of a slab, in place, after `join`."""
        if self._exits[slab + 1] > self._exits[slab]:
            table = self._basin_of_exit[self._exits[slab] : self._exits[slab + 1]]
            flat = basins.reshape(-1)

            def look_up(first: int, last: int) -> None:
                part = flat[first:last]
                exits = np.flatnonzero(part < 0)
                part[exits] = table[-1 - part[exits]]

            threads.over(flat.size, look_up, smallest=1 << 14, largest=1 << 20)

    def join(self) -> None:
        """Follow all exits to their basins, after the last slab."""
        leads = np.concatenate([*self._leads, np.zeros(0, np.int64)])
        self._leads.clear()
        # each round follows them twice as far
        while (onward := np.flatnonzero(leads < 0)).size:
            leads[onward] = leads[-1 - leads[onward]]
        self._basin_of_exit = leads.astype(np.int32)

    def _connect(self, found: SlabWatershed) -> None:
        """Connect the exits between a slab and the previous one."""
        basins = found.basins
        slab, size = basins.reshape(-1), math.prod(basins.shape[1:])
        before, back = self._exits[-1], found.back
        if self._ahead.size or back.size:
            # forward exits of the previous slab, then backward exits of this one
            self._leads.append(_numbered(slab[self._ahead], before))
            self._leads.append(_numbered(self._last_slice[back], self._exits[-2]))
        self._ahead = found.ahead
        self._exits.append(before + back.size + found.ahead.size)
        self._done += len(basins)
        if self._done < self.depth:
            self._last_slice = slab[slab.size - size :].copy()


class SlabWatershed(NamedTuple):
    """Basins and exits of one slab."""

    # (n,), int64: flat index, in the slab, of the peak of each of its basins
    peaks: Int64s
    # int64: backward and forward exits, as flat indices in the slice before and after the slab
    back: Int64s
    ahead: Int64s
    basins: Any  # (z, y, x), int32: the slab itself


def watershed_slab(
    distance: Float32s,
    pointers: Int32s,
    threads: KernelThreads,
    first: int,
    last: int,
    count: int = 0,
    *,
    faces_only: bool = False,
    further: Int64s | None = None,
) -> SlabWatershed:
    """Find the basins of a slab, with exits for voxels that ascend beyond it.

    `distance`, `pointers`, `first`, `last`: as for `Watershed.find`. A voxel that leaves the slab
    at its exit n gets ``-1 - n``. `count`: number of basins before this slab.
    `faces_only`: as for `Watershed`. `further`: flat indices of voxels that are made peaks.
    Raises InputError if there are more basins than int32 can number.
    """
    _, height, width = distance.shape
    size = height * width
    peaks = steepest_ascent(distance, pointers, first, last, threads, faces_only=faces_only)
    if further is not None:
        peaks = np.union1d(peaks, further)
    require_numbers(count + peaks.size)
    flat = pointers.reshape(-1)
    begin, end = first * size, last * size
    # ends of paths are negative: -1 in the solid, -1 - n at the peak of basin n of the slab, and
    # lower numbers in the slices beside it, whose voxels are ends, too
    flat[peaks] = -2 - np.arange(peaks.size, dtype=np.int32)
    lowest = -2 - peaks.size
    for beside, beyond, place in (
        (max(begin - size, 0), begin, 0),
        (end, min(end + size, flat.size), size),
    ):
        flat[beside:beyond] = np.arange(lowest - place, lowest - place - (beyond - beside), -1)
    # a thread may read pointers while another writes them: old and new ones have the same end
    threads.over(end - begin, _compress_paths, flat, begin, smallest=1 << 14)
    exits = _find_exits(flat, begin, end, size, lowest)
    exit_at = np.zeros(2 * size if exits.size else 0, np.int32)
    exit_at[exits] = -1 - np.arange(exits.size)
    numbering = (flat, begin, count, peaks.size, exit_at)
    threads.over(end - begin, _number, *numbering, smallest=1 << 14)
    back = exits < size
    return SlabWatershed(peaks - begin, exits[back], exits[~back] - size, pointers[first:last])


def require_numbers(count: int) -> None:
    """Raise InputError if there are more basins than int32 can number."""
    if count > _MOST:
        raise InputError(
            f"There are more than {_MOST:,} basins, which cannot be numbered. Crop the volume, "
            "or denoise it first."
        )


def _find_exits(flat: Int32s, begin: int, end: int, size: int, lowest: int) -> Int64s:
    """Return the exits of a slab: voxels of the slices beside it to which its voxels lead.

    `lowest`: number written in the first voxel of these slices.
    """
    if begin == 0 and end == flat.size:
        return np.zeros(0, np.int64)
    marked = np.zeros(2 * size, np.bool_)
    # every path out passes the first or last slice of the slab, whose voxels have the same end
    for slice_begin in {begin, end - size}:
        ends = flat[slice_begin : slice_begin + size]
        marked[lowest - ends[ends <= lowest]] = True
    return np.flatnonzero(marked)


def _numbered(found: Int32s, before: int) -> Int64s:
    """Number the exits of a slab across all slabs; `before`: number of exits before the slab."""
    return np.where(found < 0, found.astype(np.int64) - before, found)


@kernel
def _compress_paths(pointers: Int32s, offset: int, first: int, last: int) -> None:
    """Replace the pointers of a range and along their paths by the ends, by path compression."""
    for start in range(np.uint64(offset + first), np.uint64(offset + last)):
        onward = pointers[start]
        if onward < 0:
            continue
        end = pointers[np.uint64(onward)]
        while end >= 0:
            end = pointers[np.uint64(end)]
        at = np.uint64(start)
        while onward >= 0:
            pointers[at] = end
            at = np.uint64(onward)
            onward = pointers[at]


@kernel
def _number(
    pointers: Int32s, offset: int, before: int, count: int, exit_at: Int32s, first: int, last: int
) -> None:
    """Replace ends of paths by basin numbers, or by -1 - n for exit n.

    `before`, `count`: number of basins before this slab, and in it. `exit_at`: value for each voxel
    of the slices beside the slab.
    """
    none, most = np.int32(0), np.int32(count)
    for begin in range(offset + first, offset + last, _AT_A_TIME):
        part = pointers[begin : min(begin + _AT_A_TIME, offset + last)]
        lowest = none
        for i in range(part.size):
            basin = np.int32(-1 - part[i])
            number = np.int32(basin + before) if basin > none else none
            number = np.int32(most - basin) if basin > most else number
            part[i] = number
            lowest = min(lowest, number)
        if lowest < none:
            for i in range(part.size):
                if part[i] < none:
                    part[i] = exit_at[-1 - part[i]]


@kernel
def relabel(basins: Int32s, label_of: Int32s, labels: Int32s, first: int, last: int) -> None:
    """Write ``label_of[basins]`` for a range of a flat array."""
    # unsigned indices save the check for negative ones, which count from the end
    for i in range(np.uint64(first), np.uint64(last)):
        labels[i] = label_of[np.uint64(basins[i])]


def apply_labels(
    basins: Int32s, label_of: Array, threads: KernelThreads, out: Int32s | None = None
) -> Int32s:
    """Return the label of every voxel, int32, in the shape of `basins` (C order).

    `label_of`: (n + 1,): label of each basin; 0 for the solid and for excluded pores.
    """
    labels = np.empty(basins.shape, np.int32) if out is None else out
    table = np.ascontiguousarray(label_of, np.int32)
    flat = basins.reshape(-1)
    threads.over(flat.size, relabel, flat, table, labels.reshape(-1), smallest=1 << 16)
    return labels
