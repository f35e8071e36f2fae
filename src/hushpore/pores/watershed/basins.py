"""Watershed basins of the distance map: every void voxel ascends to a peak.

Each voxel points to the highest of its 26 neighbours, or to itself (`steepest_ascent.py`).
Following the pointers leads to a peak, and all voxels that lead to the same peak are its basin: a
watershed without flooding. "Highest" is a total order, so that the result does not depend on the
number of threads or slabs.

References
----------
J. Cousty, G. Bertrand, L. Najman and M. Couprie (2009), "Watershed cuts: minimum spanning forests
and the drop of water principle". https://doi.org/10.1109/TPAMI.2008.173
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.pores.parallel import kernel
from hushpore.pores.watershed.steepest_ascent import steepest_ascent

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.arrays import Array, Float32s, Int32s, Int64s
    from hushpore.pores.parallel import KernelThreads

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
        """Find the basins of the next slab; call `connect` once a GPU has written them.

        `distance`: (z, y, x), float32, C order, fewer than 2**31 voxels: the squared distance, 0 in
        the solid, of the `slices` around the slab. `pointers`: int32, of the same shape. Basins are
        written to its slices `first` to `last`, those of the slab: 1 to n in the order of their
        peaks in memory, 0 in the solid, and for a voxel that leaves the slab a negative number,
        which `relabel_exits` replaces.
        Raises InputError if there are more basins than int32 can number.
        """
        how = {"faces_only": self._faces_only}
        found = self._watershed(distance, pointers, first, last, self.count, **how)
        self.count += found.peaks.size
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

    def connect(self, found: SlabWatershed) -> None:
        """Connect the exits between a slab and the previous one, once its basins are written."""
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
) -> SlabWatershed:
    """Find the basins of a slab, with exits for voxels that ascend beyond it.

    `distance`, `pointers`, `first`, `last`: as for `Watershed.find`. A voxel that leaves the slab
    at its exit n gets ``-1 - n``. `count`: number of basins before this slab.
    `faces_only`: as for `Watershed`.
    Raises InputError if there are more basins than int32 can number.
    """
    _, height, width = distance.shape
    size = height * width
    peaks = steepest_ascent(distance, pointers, first, last, threads, faces_only=faces_only)
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
