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

from hushpore.base.errors import InputError
from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from hushpore.pores.parallel import Workers

_MOST = 2**31 - 2  # basins that int32 can number
_ROWS = 64  # rows that are worked on at a time, so that the buffers of a thread stay in its cache


def find_basins(
    distance: npt.NDArray[np.float32], workers: Workers, *, faces_only: bool = False
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Assign every void voxel to a summit of the distance map.

    Parameters
    ----------
    distance : numpy.ndarray
        (z, y, x), float32, C order, fewer than 2**31 voxels: squared distance, 0 in the solid.
    workers : Workers
        Threads to run on.
    faces_only : bool, optional
        Whether voxels climb to the 6 neighbours that they share a face with only.

    Returns
    -------
    basins : numpy.ndarray
        (z, y, x), int32: 1 to n in the order in which their summits lie in memory, 0 in the solid.
    summits : numpy.ndarray
        (n,), int64: flat index of the summit of each basin.
    """
    basins = np.empty(distance.shape, np.int32)
    return basins, Basins(len(distance), faces_only=faces_only).add(distance, basins, workers)


class Basins:
    """Basins of a distance map that is met slab by slab.

    Within a slab every pointer is followed to a summit, or to where it leaves the slab, an exit:
    a voxel of the slice before or after. Exits are few; once all slabs are met, following them from
    slab to slab leads to the summits of all voxels.

    Parameters
    ----------
    depth : int
        Slices of the stack.
    faces_only : bool, optional
        As for `find_basins`.

    Attributes
    ----------
    count : int
        Number of basins so far.
    """

    def __init__(self, depth: int, *, faces_only: bool = False) -> None:
        self.depth = depth
        self._point = _point_to_faces if faces_only else _point
        self.count = 0
        self._done = 0  # slices
        self._exits = [0]  # how many there are before each slab
        # where exits lead: to a basin, or with -1 - n on to exit n; first those back, then ahead
        self._leads: list[npt.NDArray[np.int64]] = []
        self._ahead = np.zeros(0, np.int64)  # places in the next slice, of the last slab's exits
        self._last_slice = np.zeros(0, np.int64)  # where its voxels lead
        self._settled = np.zeros(0, np.int32)

    def slices(self, first: int, last: int) -> tuple[int, int]:
        """Return the slices of the distance map that are needed for those of a slab."""
        return max(first - 2, 0), min(last + 2, self.depth)

    def add(
        self,
        distance: npt.NDArray[np.float32],
        pointers: npt.NDArray[np.int32],
        workers: Workers,
        first: int = 0,
        last: int | None = None,
    ) -> npt.NDArray[np.int64]:
        """Find the basins in the next slab.

        Parameters
        ----------
        distance : numpy.ndarray
            (z, y, x), float32, C order: the `slices` around the slab.
        pointers : numpy.ndarray
            int32, of the same shape. In its slices `first` to `last`, those of the slab, basins are
            written; where a voxel leaves the slab, what `settle` looks up.
        first, last : int
            See `pointers`; by default all.

        Returns
        -------
        numpy.ndarray
            (n,), int64: flat index, in the slab, of the summit of each basin that is new.

        Raises
        ------
        InputError
            If there are more basins than int32 can number.
        """
        last = len(distance) if last is None else last
        _, height, width = distance.shape
        size = height * width
        for row in range(0, height, _ROWS):
            rows = (row, min(row + _ROWS, height))
            where = (self._point, distance, distance.view(np.int32), pointers, *rows, first)
            workers.over(last - first, _point_range, *where, smallest=4)
        flat = pointers.reshape(-1)
        begin, end = first * size, last * size
        # what lies beside the slab leads nowhere else
        flat[max(begin - size, 0) : begin] = np.arange(max(begin - size, 0), begin)
        flat[end : end + size] = np.arange(end, min(end + size, flat.size))
        # a thread may read pointers that another one is writing: old or new, they lead the same way
        workers.over(end - begin, _climb, flat, begin, smallest=1 << 14)
        found = workers.over(end - begin, _summits, flat, begin, smallest=1 << 14)
        summits: npt.NDArray[np.int64] = np.concatenate(found)
        if self.count + summits.size > _MOST:
            raise InputError(
                f"There are more than {_MOST:,} basins, which cannot be numbered. Crop the volume, "
                "or denoise it first."
            )
        exits = self._find_exits(flat, begin, end, size, workers)
        flat[exits] = np.arange(exits.size, dtype=np.int32)
        numbers = np.arange(self.count + 1, self.count + 1 + summits.size, dtype=np.int32)
        flat[summits] = -1 - numbers
        workers.over(end - begin, _number, flat, begin, smallest=1 << 14)
        flat[summits] = numbers
        self.count += summits.size
        self._connect(exits, flat[begin:end], begin, end, size)
        summits -= begin
        return summits

    def settle(self, slab: int, basins: npt.NDArray[np.int32], workers: Workers) -> None:
        """Look up in place, in slices of a slab, where exits lead; once all slabs are added."""
        if self._exits[slab + 1] > self._exits[slab]:
            table = self._settled[self._exits[slab] : self._exits[slab + 1]]
            workers.over(basins.size, _settle, basins.reshape(-1), table, smallest=1 << 14)

    def join(self) -> None:
        """Follow all exits to their basins, once all slabs are added."""
        leads = np.concatenate([*self._leads, np.zeros(0, np.int64)])
        self._leads.clear()
        self._settled = _follow(leads)

    def _find_exits(
        self, flat: npt.NDArray[np.int32], begin: int, end: int, size: int, workers: Workers
    ) -> npt.NDArray[np.int64]:
        """Return the voxels beside the slab to which voxels of it lead."""
        if begin == 0 and end == flat.size:
            return np.zeros(0, np.int64)
        marked = np.zeros(2 * size, np.bool_)
        workers.over(end - begin, _mark_exits, flat, begin, end, size, marked, smallest=1 << 14)
        place = np.flatnonzero(marked)
        return np.where(place < size, begin - size + place, end - size + place)

    def _connect(
        self,
        exits: npt.NDArray[np.int64],
        slab: npt.NDArray[np.int32],
        begin: int,
        end: int,
        size: int,
    ) -> None:
        """Note where the exits between this slab and the last one lead."""
        before = self._exits[-1]
        back = exits[exits < begin] - (begin - size)
        if self._ahead.size or back.size:
            # of the last slab ahead into this one
            self._leads.append(_numbered(slab[self._ahead], before))
            self._leads.append(self._last_slice[back])
        self._ahead = exits[exits >= end] - end
        self._exits.append(before + exits.size)
        self._last_slice = _numbered(slab[slab.size - size :], before)


def _numbered(codes: npt.NDArray[np.int32], before: int) -> npt.NDArray[np.int64]:
    """Number exits throughout, of a slab that `before` exits come before."""
    return np.where(codes < 0, codes.astype(np.int64) - before, codes)


def _point_range(
    point: Callable[..., None],
    distance: npt.NDArray[np.float32],
    bits: npt.NDArray[np.int32],
    pointers: npt.NDArray[np.int32],
    row_first: int,
    row_last: int,
    offset: int,
    first: int,
    last: int,
) -> None:
    """Call `_point` or `_point_to_faces` with buffers of this thread's own."""
    rows, width = row_last - row_first, distance.shape[2]
    sums = np.zeros((3, rows + 2, width), np.float32)
    # the second has keys of the rows before and after as well
    tops = np.zeros((3, rows + 2, width), np.int64)
    lines = np.zeros((3, width), np.float32)
    key_tops = np.zeros((3, width), np.int64)
    where = (row_first, row_last, offset + first, offset + last)
    point(distance, bits, pointers, sums, tops, lines, key_tops, *where)


@kernel
def _point(
    distance: npt.NDArray[np.float32],
    bits: npt.NDArray[np.int32],
    pointers: npt.NDArray[np.int32],
    sums: npt.NDArray[np.float32],
    tops: npt.NDArray[np.int64],
    lines: npt.NDArray[np.float32],
    key_tops: npt.NDArray[np.int64],
    row_first: int,
    row_last: int,
    begin: int,
    end: int,
) -> None:
    """Point every void voxel of a range of slices and rows to its highest neighbour; solid to -1.

    Box sum and maximum are both taken one dimension at a time, on three planes of each that are
    carried along z. A key of 63 bits holds the bits of the squared distance (those of floats above
    zero are in order as integers), the leading 27 bits of the box sum, and 5 bits that say which of
    the 27 voxels it is of, the lowest index highest.
    """
    for z in range(begin - 2, end + 2):
        _sum_plane(distance, z, row_first - 1, row_last + 1, lines, sums[z % 3])
        if z >= begin:
            _top_plane(bits, z - 1, row_first, row_last, sums, key_tops, tops[(z - 1) % 3])
        if z >= begin + 2:
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
def _point_to_faces(
    distance: npt.NDArray[np.float32],
    bits: npt.NDArray[np.int32],
    pointers: npt.NDArray[np.int32],
    sums: npt.NDArray[np.float32],
    keys: npt.NDArray[np.int64],
    lines: npt.NDArray[np.float32],
    totals: npt.NDArray[np.int64],
    row_first: int,
    row_last: int,
    begin: int,
    end: int,
) -> None:
    """Do what `_point` does, but to the highest of the 6 neighbours that share a face.

    The keys are the same but for their last bits, which are added for the comparison.
    """
    for z in range(begin - 2, end + 2):
        _sum_plane(distance, z, row_first - 1, row_last + 1, lines, sums[z % 3])
        if z >= begin:
            _key_plane(bits, z - 1, row_first, row_last, sums, totals[0], keys[(z - 1) % 3])
        if z >= begin + 2:
            _point_plane_to_faces(bits, z - 2, row_first, row_last, keys, pointers)


@kernel
def _key_plane(
    bits: npt.NDArray[np.int32],
    z: int,
    row_first: int,
    row_last: int,
    sums: npt.NDArray[np.float32],
    total: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
) -> None:
    """Write the keys of the voxels of some rows of slice `z`, and of the rows beside them."""
    depth, height, width = bits.shape
    sum_bits = total.view(np.int32)
    sum_floats = total.view(np.float32)
    for y in range(row_first - 1, row_last + 1):
        target = out[y - row_first + 1]
        if z < 0 or z >= depth or y < 0 or y >= height:
            target[:] = 0
            continue
        before = sums[(z - 1) % 3, y - row_first + 1]
        here = sums[z % 3, y - row_first + 1]
        after = sums[(z + 1) % 3, y - row_first + 1]
        for x in range(width):
            sum_floats[x] = (before[x] + after[x]) + here[x]
        for x in range(width):
            target[x] = (np.int64(bits[z, y, x]) << 32) | ((np.int64(sum_bits[x]) >> 4) << 5)


@kernel
def _point_plane_to_faces(
    bits: npt.NDArray[np.int32],
    z: int,
    row_first: int,
    row_last: int,
    keys: npt.NDArray[np.int64],
    pointers: npt.NDArray[np.int32],
) -> None:
    """Write the pointers of some rows of slice `z` from the keys of three planes."""
    _, height, width = bits.shape
    step = np.array([height * width, width, 1, 0, -1, -width, -height * width])
    for y in range(row_first, row_last):
        row = y - row_first + 1
        start = (z * height + y) * width
        for x in range(width):
            if bits[z, y, x] == 0:
                pointers[z, y, x] = -1
                continue
            here = keys[z % 3, row, x] + 3
            best = max(here, keys[(z - 1) % 3, row, x] + 6, keys[(z + 1) % 3, row, x])
            best = max(best, keys[z % 3, row - 1, x] + 5, keys[z % 3, row + 1, x] + 1)
            if x > 0:
                best = max(best, keys[z % 3, row, x - 1] + 4)
            if x < width - 1:
                best = max(best, keys[z % 3, row, x + 1] + 2)
            pointers[z, y, x] = start + x + step[best & 31]


@kernel
def _climb(pointers: npt.NDArray[np.int32], offset: int, first: int, last: int) -> None:
    """Make every pointer of a range lead straight to its end, by path compression in place."""
    for start in range(offset + first, offset + last):
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
def _summits(
    pointers: npt.NDArray[np.int32], offset: int, first: int, last: int
) -> npt.NDArray[np.int64]:
    """Return the indices in a range that point to themselves."""
    count = 0
    for i in range(offset + first, offset + last):
        if pointers[i] == i:
            count += 1
    found = np.empty(count, np.int64)
    count = 0
    for i in range(offset + first, offset + last):
        if pointers[i] == i:
            found[count] = i
            count += 1
    return found


@kernel
def _mark_exits(
    pointers: npt.NDArray[np.int32],
    begin: int,
    end: int,
    size: int,
    marked: npt.NDArray[np.bool_],
    first: int,
    last: int,
) -> None:
    """Mark the voxels of the slice before and of the one after a slab that are pointed to."""
    for i in range(begin + first, begin + last):
        target = pointers[i]
        if target >= end:
            marked[size + target - end] = True
        elif 0 <= target < begin:
            marked[size + target - begin] = True


@kernel
def _number(pointers: npt.NDArray[np.int32], offset: int, first: int, last: int) -> None:
    """Replace pointers by basin numbers, and by -1 - n where they lead to exit n.

    Summits hold ``-1 - number`` and are left as they are; exits hold theirs.
    """
    for i in range(offset + first, offset + last):
        target = pointers[i]
        if target >= 0:
            pointers[i] = -1 - pointers[target]
        elif target == -1:
            pointers[i] = 0


@kernel
def _follow(leads: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the basins that exits lead to, from one to the next, by path compression."""
    for start in range(leads.size):
        lead = leads[start]
        while lead < 0:
            lead = leads[-1 - lead]
        at = start
        while leads[at] < 0:
            onward = -1 - leads[at]
            leads[at] = lead
            at = onward
    return leads.astype(np.int32)


@kernel
def _settle(
    basins: npt.NDArray[np.int32], table: npt.NDArray[np.int32], first: int, last: int
) -> None:
    """Replace exits, ``-1 - n``, by the basins that they lead to."""
    for i in range(first, last):
        if basins[i] < 0:
            basins[i] = table[-1 - basins[i]]


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
    basins: npt.NDArray[np.int32],
    label_of: npt.NDArray[Any],
    workers: Workers,
    out: npt.NDArray[np.int32] | None = None,
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
    out : numpy.ndarray, optional
        Where to write them.

    Returns
    -------
    numpy.ndarray
        int32, of the same shape.
    """
    labels = np.empty(basins.shape, np.int32) if out is None else out
    table = np.ascontiguousarray(label_of, np.int32)
    flat = basins.reshape(-1)
    workers.over(flat.size, relabel, flat, table, labels.reshape(-1), smallest=1 << 16)
    return labels
