"""Connected components of the void: open if connected to a face of the volume, else closed.

Components are 6-connected. They are labelled on runs (stretches of void along x), which are far
fewer than voxels.

References
----------
L. He, Y. Chao and K. Suzuki (2008), "A run-based two-scan labeling algorithm".
https://doi.org/10.1109/TIP.2008.919369
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.parallel import inlined, kernel
from hushpore.pores.slabs import Slabs

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.pores.parallel import KernelThreads


#: Void states of a voxel. Void is open until found to be closed. From `AIR` on, voxels are outside
#: the sample: air, where the sample ends, or padding, beyond which the sample may continue.
SOLID, OPEN, CLOSED, AIR, PADDING = 0, 1, 2, 3, 4


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of void along x in a slab, and the 6-connected part of the slab that each belongs to."""

    shape: tuple[int, int, int]  # (z, y, x) of the slab
    row_start: npt.NDArray[np.int64]  # (z * y + 1,), int64: first run of each row
    # (runs,), int32: first voxel of a run, and the voxel after its last
    begin: npt.NDArray[np.int32]
    end: npt.NDArray[np.int32]
    part: npt.NDArray[np.int32]  # (runs,), int32: from 0
    count: int  # number of parts
    # (parts,), int32: voxels of each part; None for the runs of a face
    voxels: npt.NDArray[np.int32] | None = None

    def face(self, last: bool) -> Runs:
        """Return the runs of the first or last slice, with the parts of the slab."""
        height = self.shape[1]
        rows = self.row_start[-height - 1 :] if last else self.row_start[: height + 1]
        own = slice(rows[0], rows[-1])
        begin, end, part = (each[own].copy() for each in (self.begin, self.end, self.part))
        return Runs((1, *self.shape[1:]), rows - rows[0], begin, end, part, self.count)

    def paint(
        self,
        void_state: npt.NDArray[np.uint8],
        state_of: npt.NDArray[np.uint8],
        threads: KernelThreads,
    ) -> None:
        """Write the void state of each part, in place; `OPEN`, the initial state, is skipped."""
        if (state_of == OPEN).all():
            return
        rows = void_state.reshape(-1, void_state.shape[-1])
        where = (rows, self.row_start, self.begin, self.end, self.part, state_of)
        threads.over(len(rows), _paint_runs, *where, smallest=256)

    def holding(self, strict: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which parts contain a voxel of `strict` (z, y, x), one bool per part."""
        rows = strict.view(np.uint8).reshape(-1, strict.shape[-1])
        marked = np.zeros(self.count, np.bool_)
        _mark_parts(rows, self.row_start, self.begin, self.end, self.part, marked)
        return marked


class Components:
    """The 6-connected components of a void that is processed slab by slab.

    `faces`: for each axis, whether its two faces count as openings (in 2D, those of z do not).
    `slabs`: partition of the stack. Runs are kept if stacks are in memory, else found again.
    `voxels`: (components,), int64. `is_open`: (components,), bool: whether a component touches a
    face of the volume or contains a marked part.
    """

    def __init__(self, faces: tuple[bool, bool, bool], slabs: Slabs) -> None:
        self.faces = faces
        self.slabs = slabs
        self.voxels = np.zeros(0, np.int64)
        self.is_open = np.zeros(0, np.bool_)
        self._runs: list[Runs] = []  # of all slabs so far, or of the last one
        self._counts: list[int] = []
        self._found: list[tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]] = []
        self._pairs: list[npt.NDArray[np.int64]] = []
        self._component: npt.NDArray[np.int32] = np.zeros(0, np.int32)

    @property
    def totals(self) -> tuple[int, int, int]:
        """Number of open voxels, of closed voxels, and of components."""
        opened = int(self.voxels.sum(where=self.is_open))
        return opened, int(self.voxels.sum()) - opened, int(self.voxels.size)

    def add(self, runs: Runs, marked: npt.NDArray[np.bool_] | None = None) -> None:
        """Add the next slab; `marked` parts, (parts,), bool, count as open."""
        first, last = self.slabs[len(self._counts)]
        faces = (self.faces[0] and first == 0, self.faces[0] and last == self.slabs.depth)
        touches = touching(runs, (faces, self.faces[1:]))
        if marked is not None:
            touches |= marked
        assert runs.voxels is not None, "runs of a whole slab"
        if self._runs:
            offsets = np.cumsum([0, *self._counts])[-2:]
            self._pairs.append(pairs_across(self._runs[-1], runs) + offsets)
        self._found.append((runs.voxels, touches))
        self._counts.append(runs.count)
        if self.slabs.on_disk:
            self._runs.clear()
        self._runs.append(runs)

    def join(self) -> None:
        """Join parts that are connected across slabs, after the last slab."""
        if len(self._found) == 1:
            voxels, self.is_open = self._found.pop()
            self.voxels = voxels.astype(np.int64)
            self._component = np.arange(self.voxels.size, dtype=np.int32)
            return
        pairs = np.concatenate([*self._pairs, np.zeros((0, 2), np.int64)])
        self._component, count = join_pairs(sum(self._counts), pairs[:, 0], pairs[:, 1])
        self._pairs.clear()
        self.voxels, self.is_open = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        first = 0
        while self._found:
            # freed one by one: in noise, parts take more memory than voxels
            voxels, touches = self._found.pop(0)
            own = self._component[first : first + voxels.size]
            first += voxels.size
            np.add.at(self.voxels, own, voxels)
            self.is_open[own[touches]] = True
        if self.slabs.on_disk:
            self._runs.clear()

    def paint(
        self,
        slab: int,
        void_state: npt.NDArray[np.uint8],
        state_of: npt.NDArray[np.uint8],
        threads: KernelThreads,
    ) -> None:
        """Write the void state of each component into a slab, in place; see `Runs.paint`."""
        runs = self._runs[slab] if self._runs else find_runs(void_state, threads)
        first = sum(self._counts[:slab])
        runs.paint(void_state, state_of[self._component[first : first + runs.count]], threads)


def find_runs(void_state: npt.NDArray[Any], threads: KernelThreads) -> Runs:
    """Find the 6-connected parts of the void in a slab.

    `void_state`: (z, y, x), bool or uint8, C order: void is `OPEN` or True.
    """
    depth, height, width = void_state.shape
    rows = void_state.view(np.uint8).reshape(-1, width)
    row_start = np.zeros(len(rows) + 1, np.int64)
    threads.over(len(rows), _count_runs, rows, row_start[1:], smallest=256)
    np.cumsum(row_start, out=row_start)
    # first written by the threads, so that they and not the caller wait for the pages
    begin, end, part = (np.empty(row_start[-1], np.int32) for _ in range(3))
    where = (row_start, begin, end)

    def fill(first: int, last: int) -> None:
        line = np.zeros(width // 8 * 8 + 8, np.uint8)  # ends with solid
        found = np.empty(line.size + 1, np.int32)
        _find_runs(rows, *where, line, line.view(np.uint64), found, first, last)

    threads.over(len(rows), fill, smallest=256)
    starts = threads.over(depth, _connect, height, *where, part)
    # unwritten memory is not committed
    voxels = np.empty(part.size, np.int32)
    count = _connect_across(height, *where, part, np.array(starts), voxels)
    return Runs((depth, height, width), *where, part, count, voxels[:count].copy())


def closed_bits(
    void_state: npt.NDArray[np.uint8],
    threads: KernelThreads,
    out: npt.NDArray[np.uint8] | None = None,
) -> npt.NDArray[np.uint8]:
    """Return the closed void as bits: (z, y, x / 8), uint8, eight voxels along x per byte.

    `void_state`: (z, y, x), uint8. The first of eight voxels is the highest bit, as in
    `numpy.packbits`.
    """
    depth, height, width = void_state.shape
    bits = np.empty((depth, height, -(-width // 8)), np.uint8) if out is None else out

    def pack(first: int, last: int) -> None:
        for z in range(first, last):
            bits[z] = np.packbits(void_state[z] == CLOSED, axis=-1)

    threads.over(depth, pack)
    return bits


def find_components(
    void: npt.NDArray[Any], faces: tuple[bool, bool, bool], threads: KernelThreads
) -> Components:
    """Find the 6-connected components of a void in memory.

    `void`: as for `find_runs`. `faces`: see `Components`.
    """
    components = Components(faces, Slabs(len(void), len(void)))
    components.add(find_runs(void, threads))
    components.join()
    return components


def find_padding(
    values: npt.NDArray[Any], padding: float, threads: KernelThreads
) -> npt.NDArray[np.bool_]:
    """Return the padding around a scan: voxels of one value connected to the rim of their slice.

    `values`: (z, y, x). `padding`: the value, which may also be an ordinary grey value elsewhere.
    """
    found: npt.NDArray[np.uint8] = np.equal(values, padding).view(np.uint8)
    for plane in found:
        runs = find_runs(plane[None], threads)
        reach_rim = touching(runs, ((False, False), (True, True)))
        runs.paint(plane[None], reach_rim.view(np.uint8), threads)
    return found.view(np.bool_)


def touching(
    runs: Runs, faces: tuple[tuple[bool, bool], tuple[bool, ...]]
) -> npt.NDArray[np.bool_]:
    """Return which parts touch the first or last slice, or the faces along y or x."""
    ends, (along_y, along_x) = faces
    touches = np.zeros(runs.count, np.bool_)
    rows = np.zeros(runs.shape[:2], np.bool_)
    rows[0] = ends[0]
    rows[-1] |= ends[1]
    rows[:, [0, -1]] |= along_y
    row = np.flatnonzero(rows)
    start, end = runs.row_start[row], runs.row_start[row + 1]
    where = np.repeat(end - np.cumsum(end - start), end - start)
    touches[runs.part[where + np.arange(where.size)]] = True
    if along_x:
        full = runs.row_start[1:] > runs.row_start[:-1]
        at_first, at_last = runs.row_start[:-1][full], runs.row_start[1:][full] - 1
        touches[runs.part[at_first[runs.begin[at_first] == 0]]] = True
        touches[runs.part[at_last[runs.end[at_last] == runs.shape[2]]]] = True
    return touches


def join_pairs(
    count: int, first: npt.NDArray[np.integer[Any]], second: npt.NDArray[np.integer[Any]]
) -> tuple[npt.NDArray[np.int32], int]:
    """Return the component of each part, from 0, and the number of components.

    `first`, `second`: (n,): the two parts of each connected pair.
    """
    component = np.arange(count, dtype=np.int32)
    pairs = (np.ascontiguousarray(each, np.int64) for each in (first, second))
    return component, _join_pairs(component, *pairs)


def pairs_across(before: Runs, after: Runs) -> npt.NDArray[np.int64]:
    """Return the connected pairs of parts (n, 2) of two neighbouring slabs."""
    last, first = before.face(last=True), after.face(last=False)
    keys = np.empty(last.part.size + first.part.size, np.int64)
    count = _overlaps(
        *(last.row_start, last.begin, last.end, last.part),
        *(first.row_start, first.begin, first.end, first.part),
        keys,
    )
    # one number per pair: sorting rows of two takes several times as long
    keys = np.unique(keys[:count])
    return np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1)


@kernel
def _mark_parts(
    rows: npt.NDArray[np.uint8],
    start: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int32],
    end: npt.NDArray[np.int32],
    part: npt.NDArray[np.int32],
    marked: npt.NDArray[np.bool_],
) -> None:
    """Mark the parts with a run that contains a voxel above zero."""
    for row in range(len(rows)):
        for run in range(start[row], start[row + 1]):
            for x in range(begin[run], end[run]):
                if rows[row, x]:
                    marked[part[run]] = True
                    break


@kernel
def _count_runs(
    rows: npt.NDArray[np.uint8], counts: npt.NDArray[np.int64], first: int, last: int
) -> None:
    """Write the number of runs of each row, for a range of rows."""
    for row in range(first, last):
        line = rows[row]
        count = np.int32(line[0] == 1)
        for x in range(1, line.size):
            count += np.int32((line[x] == 1) & (line[x - 1] != 1))
        counts[row] = count


@kernel
def _find_runs(
    rows: npt.NDArray[np.uint8],
    start: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int32],
    end: npt.NDArray[np.int32],
    line: npt.NDArray[np.uint8],
    words: npt.NDArray[np.uint64],
    found: npt.NDArray[np.int32],
    first: int,
    last: int,
) -> None:
    """Write the start and end of each run, for a range of rows.

    Eight voxels are compared at once, as most are equal. Otherwise each change between neighbours
    starts or ends a run, which is recorded without a branch. `line`, `words`, `found`: buffers for
    a row, the same row as words, and the positions of changes.
    """
    width = rows.shape[1]
    for row in range(first, last):
        source = rows[row]
        for x in range(width):
            line[x] = np.uint8(source[x] == 1)
        used, previous = 0, np.uint8(0)
        for word in range(words.size):
            if words[word] != np.uint64(previous) * np.uint64(0x0101010101010101):
                for x in range(8 * word, 8 * word + 8):
                    found[used] = x
                    used += int(line[x] != previous)
                    previous = line[x]
        for run in range(used // 2):
            begin[start[row] + run] = found[2 * run]
            end[start[row] + run] = found[2 * run + 1]


@kernel
def _connect(
    height: int,
    start: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int32],
    end: npt.NDArray[np.int32],
    parent: npt.NDArray[np.int32],
    first: int,
    last: int,
) -> int:
    """Join the runs of a range of slices by union-find; returns the first slice.

    Initially, each run is its own parent. Parents stay within the range.
    """
    for run in range(start[first * height], start[last * height]):
        parent[run] = run
    for row in range(first * height, last * height):
        if row % height:
            _union_rows(parent, start, begin, end, row, row - 1)
        if row >= (first + 1) * height:
            _union_rows(parent, start, begin, end, row, row - height)
    return first


@kernel
def _connect_across(
    height: int,
    start: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int32],
    end: npt.NDArray[np.int32],
    parent: npt.NDArray[np.int32],
    starts: npt.NDArray[np.int64],
    voxels: npt.NDArray[np.int32],
) -> int:
    """Join ranges of slices, and number the parts from 0, in the order of their first runs.

    `starts`: first slice of each range. The numbers replace the parents. `voxels`: output, voxels
    of each part. Returns the number of parts.
    """
    for piece in range(1, starts.size):
        for row in range(starts[piece] * height, (starts[piece] + 1) * height):
            _union_rows(parent, start, begin, end, row, row - height)
    count = _compact(parent)
    for part in range(count):
        voxels[part] = 0
    for run in range(parent.size):
        voxels[parent[run]] += end[run] - begin[run]
    return count


@inlined
def _union_rows(
    parent: npt.NDArray[np.int32],
    start: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int32],
    end: npt.NDArray[np.int32],
    row: int,
    other: int,
) -> None:
    """Join all runs of two rows that overlap in x."""
    # unsigned indices skip the check for negative ones
    a, last = np.uint64(start[row]), np.uint64(start[row + 1])
    b, other_last = np.uint64(start[other]), np.uint64(start[other + 1])
    while a < last and b < other_last:
        end_a, end_b = end[a], end[b]
        if begin[a] < end_b and begin[b] < end_a:
            _union(parent, np.int64(a), np.int64(b))
        # branch-free: in noise, half of the predictions would be wrong
        a += np.uint64(end_a < end_b)
        b += np.uint64(end_a >= end_b)


@inlined
def _union(parent: npt.NDArray[np.int32], a: int | np.int64, b: int | np.int64) -> None:
    """Join the trees of `a` and `b` under the smaller root, with path halving."""
    while parent[a] != a:
        parent[a] = parent[parent[a]]
        a = parent[a]
    while parent[b] != b:
        parent[b] = parent[parent[b]]
        b = parent[b]
    if a < b:
        parent[b] = a
    else:
        parent[a] = b


@kernel
def _join_pairs(
    parent: npt.NDArray[np.int32], first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]
) -> int:
    """Write the component of each part, given connected pairs; returns their number."""
    for i in range(first.size):
        _union(parent, first[i], second[i])
    return _compact(parent)


@inlined
def _compact(parent: npt.NDArray[np.int32]) -> int:
    """Replace parents by consecutive numbers of their trees; returns the number of trees."""
    count = 0
    for i in range(parent.size):
        if parent[i] == i:
            parent[i] = count
            count += 1
        else:
            parent[i] = parent[parent[i]]
    return count


@kernel
def _overlaps(
    start_a: npt.NDArray[np.int64],
    begin_a: npt.NDArray[np.int32],
    end_a: npt.NDArray[np.int32],
    part_a: npt.NDArray[np.int32],
    start_b: npt.NDArray[np.int64],
    begin_b: npt.NDArray[np.int32],
    end_b: npt.NDArray[np.int32],
    part_b: npt.NDArray[np.int32],
    pairs: npt.NDArray[np.int64],
) -> int:
    """Write pairs of parts with runs that overlap in x, ``a << 32 | b``; returns their number."""
    count = 0
    for row in range(start_a.size - 1):
        a = start_a[row]
        b = start_b[row]
        while a < start_a[row + 1] and b < start_b[row + 1]:
            if begin_a[a] < end_b[b] and begin_b[b] < end_a[a]:
                pairs[count] = np.int64(part_a[a]) << 32 | np.int64(part_b[b])
                count += 1
            if end_a[a] < end_b[b]:
                a += 1
            else:
                b += 1
    return count


@kernel
def _paint_runs(
    rows: npt.NDArray[np.uint8],
    start: npt.NDArray[np.int64],
    begin: npt.NDArray[np.int32],
    end: npt.NDArray[np.int32],
    part: npt.NDArray[np.int32],
    state_of: npt.NDArray[np.uint8],
    first: int,
    last: int,
) -> None:
    """Write the void state of the part of each run, unless it is `OPEN`."""
    for row in range(first, last):
        for run in range(start[row], start[row + 1]):
            void_state = state_of[part[run]]
            if void_state != 1:
                rows[row, begin[run] : end[run]] = void_state
