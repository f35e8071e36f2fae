"""Basins of the distance map: every void voxel leads to the peak that it belongs to.

Each voxel points to the highest of its 26 neighbours, or to itself (`steepest_ascent.py`);
following the pointers leads to a peak, and all voxels that end at the same one are its basin: a
watershed without a flood and without an order of visits. "Highest" is a total order, so that the
result does not depend on threads or on cuts.

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
from hushpore.pores.steepest_ascent import steepest_ascent

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from hushpore.pores.parallel import KernelThreads

_MOST = 2**31 - 2  # basins that int32 can number


class Watershed:
    """Basins of a distance map that is met slab by slab.

    Within a slab every pointer is followed to a peak, or to where it leaves the slab, an exit:
    a voxel of the slice before or after. Exits are few; once all slabs are met, following them from
    slab to slab leads to the peaks of all voxels.

    `faces_only`: whether voxels lead to the 6 neighbours that they share a face with only.
    `watershed`: does what `watershed_slab` does, elsewhere.
    """

    def __init__(
        self,
        depth: int,
        *,
        faces_only: bool = False,
        watershed: Callable[..., SlabWatershed] | None = None,
    ) -> None:
        self.depth = depth
        self._watershed = watershed or watershed_slab
        self._faces_only = faces_only
        self.count = 0
        self._done = 0  # slices
        self._exits = [0]  # how many there are before each slab
        # where exits lead: to a basin, or with -1 - n on to exit n; first those back, then ahead
        self._leads: list[npt.NDArray[np.int64]] = []
        self._ahead = np.zeros(0, np.int64)  # places in the next slice, of the last slab's exits
        self._last_slice = np.zeros(0, np.int32)  # where its voxels lead
        self._basin_of_exit = np.zeros(0, np.int32)

    def slices(self, first: int, last: int) -> tuple[int, int]:
        """Return the slices of the distance map that are needed for those of a slab."""
        return max(first - 2, 0), min(last + 2, self.depth)

    def add(
        self,
        distance: npt.NDArray[np.float32],
        pointers: npt.NDArray[np.int32],
        threads: KernelThreads,
        first: int = 0,
        last: int | None = None,
    ) -> npt.NDArray[np.int64]:
        """Find the basins in the next slab.

        `distance`: (z, y, x), float32, C order, fewer than 2**31 voxels: the squared distance, 0 in
        the solid, of the `slices` around the slab. `pointers`: int32, of the same shape. In its
        slices `first` to `last`, those of the slab, basins are written, 1 to n in the order in
        which their peaks lie in memory, 0 in the solid; where a voxel leaves the slab, what
        `relabel_exits` looks up. `first`, `last`: see `pointers`; by default all.
        Returns: (n,), int64: flat index, in the slab, of the peak of each basin that is new.
        Raises InputError if there are more basins than int32 can number.
        """
        last = len(distance) if last is None else last
        found = self.find(distance, pointers, threads, first, last)
        self.connect(found, pointers[first:last])
        return found.peaks

    def find(
        self,
        distance: npt.NDArray[np.float32],
        pointers: npt.NDArray[np.int32],
        threads: KernelThreads,
        first: int,
        last: int,
    ) -> SlabWatershed:
        """Do the first half of `add`: find basins, which may not be written yet."""
        found = self._watershed(
            distance, pointers, threads, first, last, self.count, faces_only=self._faces_only
        )
        self.count += found.peaks.size
        return found

    def relabel_exits(
        self, slab: int, basins: npt.NDArray[np.int32], threads: KernelThreads
    ) -> None:
        """Look up in place, in slices of a slab, where exits lead; once all slabs are added."""
        if self._exits[slab + 1] > self._exits[slab]:
            table = self._basin_of_exit[self._exits[slab] : self._exits[slab + 1]]
            threads.over(basins.size, _relabel_exits, basins.reshape(-1), table, smallest=1 << 14)

    def join(self) -> None:
        """Follow all exits to their basins, once all slabs are added."""
        leads = np.concatenate([*self._leads, np.zeros(0, np.int64)])
        self._leads.clear()
        self._basin_of_exit = _follow_exits(leads)

    def connect(self, found: SlabWatershed, basins: npt.NDArray[np.int32]) -> None:
        """Do the second half of `add`: note where exits between this slab and the last one lead.

        `found`: what `find` has returned, slab after slab. `basins`: (z, y, x), int32: the slab.
        """
        slab, size = basins.reshape(-1), math.prod(basins.shape[1:])
        before, back = self._exits[-1], found.back
        if self._ahead.size or back.size:
            # of the last slab ahead into this one
            self._leads.append(_numbered(slab[self._ahead], before))
            self._leads.append(_numbered(self._last_slice[back], self._exits[-2]))
        self._ahead = found.ahead
        self._exits.append(before + back.size + found.ahead.size)
        self._done += len(basins)
        if self._done < self.depth:
            self._last_slice = slab[slab.size - size :].copy()


class SlabWatershed(NamedTuple):
    """Where the voxels of one slab lead."""

    # (n,), int64: flat index, in the slab, of the peak of each of its basins
    peaks: npt.NDArray[np.int64]
    # int64: exits, the first of them in the slice before the slab and the others in the one after
    # it, as flat indices in that slice
    back: npt.NDArray[np.int64]
    ahead: npt.NDArray[np.int64]


def watershed_slab(
    distance: npt.NDArray[np.float32],
    pointers: npt.NDArray[np.int32],
    threads: KernelThreads,
    first: int,
    last: int,
    count: int = 0,
    *,
    faces_only: bool = False,
) -> SlabWatershed:
    """Find the basins of a slab, as far as they can be told from it alone.

    `distance`, `pointers`, `first`, `last`: as for `Watershed.add`. Where a voxel leaves the slab
    by its exit n, ``-1 - n`` is written. `count`: basins that come before this slab's.
    `faces_only`: as for `Watershed`.
    Raises InputError if there are more basins than int32 can number.
    """
    _, height, width = distance.shape
    size = height * width
    steepest_ascent(distance, pointers, first, last, threads, faces_only=faces_only)
    flat = pointers.reshape(-1)
    begin, end = first * size, last * size
    # what lies beside the slab leads nowhere else
    for beside, beyond in ((max(begin - size, 0), begin), (end, min(end + size, flat.size))):
        threads.over(beyond - beside, _stay, flat, beside, smallest=1 << 14)
    # a thread may read pointers that another one is writing: old or new, they lead the same way
    found = threads.over(end - begin, _compress_paths, flat, begin, smallest=1 << 14)
    peaks: npt.NDArray[np.int64] = np.concatenate(found)
    require_numbers(count + peaks.size)
    exits = _find_exits(flat, begin, end, size, threads)
    flat[exits] = np.arange(exits.size, dtype=np.int32)
    numbers = np.arange(count + 1, count + 1 + peaks.size, dtype=np.int32)
    flat[peaks] = -1 - numbers
    threads.over(end - begin, _number, flat, begin, smallest=1 << 14)
    flat[peaks] = numbers
    back = exits < begin
    return SlabWatershed(peaks - begin, exits[back] - (begin - size), exits[~back] - end)


def require_numbers(count: int) -> None:
    """Raise `InputError` if there are more basins than int32 can number."""
    if count > _MOST:
        raise InputError(
            f"There are more than {_MOST:,} basins, which cannot be numbered. Crop the volume, "
            "or denoise it first."
        )


def _find_exits(
    flat: npt.NDArray[np.int32], begin: int, end: int, size: int, threads: KernelThreads
) -> npt.NDArray[np.int64]:
    """Return the voxels beside the slab to which voxels of it lead."""
    if begin == 0 and end == flat.size:
        return np.zeros(0, np.int64)
    marked = np.zeros(2 * size, np.bool_)
    # a way out leads over the first slice or the last, whose voxels then end where it does
    for slice_begin in {begin, end - size}:
        where = (flat, slice_begin, begin, end, size, marked)
        threads.over(size, _mark_exits, *where, smallest=1 << 14)
    place = np.flatnonzero(marked)
    return np.where(place < size, begin - size + place, end - size + place)


def _numbered(found: npt.NDArray[np.int32], before: int) -> npt.NDArray[np.int64]:
    """Number exits throughout, of a slab that `before` exits come before."""
    return np.where(found < 0, found.astype(np.int64) - before, found)


@kernel
def _stay(pointers: npt.NDArray[np.int32], offset: int, first: int, last: int) -> None:
    """Make every pointer of a range lead to itself."""
    for i in range(offset + first, offset + last):
        pointers[i] = i


@kernel
def _compress_paths(
    pointers: npt.NDArray[np.int32], offset: int, first: int, last: int
) -> npt.NDArray[np.int64]:
    """Make every pointer of a range lead straight to its end, by path compression in place.

    Returns the peaks in the range, which lead to themselves.
    """
    peaks, count = np.empty(1 << 10, np.int64), 0
    for start in range(offset + first, offset + last):
        peak = pointers[start]
        if peak < 0:
            continue
        if peak == start:
            if count == peaks.size:
                wider = np.empty(2 * count, np.int64)
                wider[:count] = peaks
                peaks = wider
            peaks[count] = start
            count += 1
            continue
        while pointers[peak] != peak:
            peak = pointers[peak]
        at = start
        while pointers[at] != peak:
            onward = pointers[at]
            pointers[at] = peak
            at = onward
    return peaks[:count].copy()


@kernel
def _mark_exits(
    pointers: npt.NDArray[np.int32],
    offset: int,
    begin: int,
    end: int,
    size: int,
    marked: npt.NDArray[np.bool_],
    first: int,
    last: int,
) -> None:
    """Mark the voxels beside a slab, of both slices, that those of a range point to.

    `begin`, `end`: of the slab. `offset`: where the range is counted from.
    """
    for i in range(offset + first, offset + last):
        target = pointers[i]
        if target >= end:
            marked[size + target - end] = True
        elif 0 <= target < begin:
            marked[size + target - begin] = True


@kernel
def _number(pointers: npt.NDArray[np.int32], offset: int, first: int, last: int) -> None:
    """Replace pointers by basin numbers, and by -1 - n where they lead to exit n.

    Peaks hold ``-1 - number`` and are left as they are; exits hold theirs.
    """
    for i in range(offset + first, offset + last):
        target = pointers[i]
        if target >= 0:
            pointers[i] = -1 - pointers[target]
        elif target == -1:
            pointers[i] = 0


@kernel
def _follow_exits(leads: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
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
def _relabel_exits(
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
    threads: KernelThreads,
    out: npt.NDArray[np.int32] | None = None,
) -> npt.NDArray[np.int32]:
    """Return the label of every voxel: int32, of the shape of `basins`, which are in C order.

    `label_of`: (n + 1,): label of each basin, 0 for what is not a pore.
    """
    labels = np.empty(basins.shape, np.int32) if out is None else out
    table = np.ascontiguousarray(label_of, np.int32)
    flat = basins.reshape(-1)
    threads.over(flat.size, relabel, flat, table, labels.reshape(-1), smallest=1 << 16)
    return labels
