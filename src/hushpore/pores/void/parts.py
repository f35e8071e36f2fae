"""The void and its parts: open, connected to a face of the volume, and closed, which is not.

Components are 6-connected. They are found on runs, stretches of void along x, of which there are
far fewer than voxels.

References
----------
L. He, Y. Chao and K. Suzuki (2008), "A run-based two-scan labeling algorithm".
https://doi.org/10.1109/TIP.2008.919369
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.pores.parallel import kernel
from hushpore.pores.slabs import Slabs

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.pores.parallel import KernelThreads


#: What a voxel is: solid; void, open until it is known to be closed; or not of the sample, which is
#: all from `AIR` on: air around it, where solid ends, or filled in, where it may go on.
SOLID, OPEN, CLOSED, AIR, FILLED_IN = 0, 1, 2, 3, 4


class Lines(NamedTuple):
    """Where runs lie in lines along x."""

    start: npt.NDArray[np.int64]  # first run of each line
    # as in `Runs`
    begin: npt.NDArray[np.int32]
    end: npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Runs:
    """Stretches of void along x in a slab, and which of its 6-connected parts each belongs to."""

    shape: tuple[int, int, int]  # (z, y, x) of the slab
    row_start: npt.NDArray[np.int64]  # (z * y + 1,), int64: first run of each row
    # (runs,), int32: first voxel of a run, and the one after its last
    begin: npt.NDArray[np.int32]
    end: npt.NDArray[np.int32]
    part: npt.NDArray[np.int32]  # (runs,), int32: from 0
    count: int  # number of parts

    @property
    def lines(self) -> Lines:
        """Where they lie."""
        return Lines(self.row_start, self.begin, self.end)

    def face(self, last: bool) -> Runs:
        """Return the runs of the first slice, or of the last one, with the parts of the slab."""
        height = self.shape[1]
        rows = self.row_start[-height - 1 :] if last else self.row_start[: height + 1]
        own = slice(rows[0], rows[-1])
        begin, end, part = (each[own].copy() for each in (self.begin, self.end, self.part))
        return Runs((1, *self.shape[1:]), rows - rows[0], begin, end, part, self.count)

    def paint(
        self,
        phase: npt.NDArray[np.uint8],
        phase_of: npt.NDArray[np.uint8],
        threads: KernelThreads,
    ) -> None:
        """Write the phase of each part, in place, but where it is `OPEN`, as all void is first."""
        if (phase_of == OPEN).all():
            return
        rows = phase.reshape(-1, phase.shape[-1])
        where = (rows, self.lines, self.part, phase_of)
        threads.over(len(rows), _paint_runs, *where, smallest=256)

    def holding(self, strict: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which parts hold a voxel of `strict` (z, y, x), one bool a part."""
        rows = strict.view(np.uint8).reshape(-1, strict.shape[-1])
        marked = np.zeros(self.count, np.bool_)
        marked[self.part[_marked(rows, self.lines)]] = True
        return marked


class Components:
    """The 6-connected components of a void that is met slab by slab.

    `faces`: for each axis, whether its two faces count as an opening (in a 2D image those of z do
    not). `slabs`: how the stack is cut. Runs are kept where stacks are in memory, and else found
    anew.
    `voxels`: (components,), int64. `is_open`: (components,), bool: whether it touches a face of the
    volume, or what was marked.
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
        """Void voxels that are open, those that are not, and the number of components."""
        opened = int(self.voxels.sum(where=self.is_open))
        return opened, int(self.voxels.sum()) - opened, int(self.voxels.size)

    def add(self, runs: Runs, marked: npt.NDArray[np.bool_] | None = None) -> None:
        """Add the next slab; parts that are `marked`, (parts,), bool, count as open."""
        first, last = self.slabs[len(self._counts)]
        faces = (self.faces[0] and first == 0, self.faces[0] and last == self.slabs.depth)
        touches = touching(runs, (faces, self.faces[1:]))
        if marked is not None:
            touches |= marked
        voxels = _voxels_of_parts(runs.lines, runs.part, runs.count)
        if self._runs:
            offsets = np.cumsum([0, *self._counts])[-2:]
            self._pairs.append(pairs_across(self._runs[-1], runs) + offsets)
        self._found.append((voxels, touches))
        self._counts.append(runs.count)
        if self.slabs.on_disk:
            self._runs.clear()
        self._runs.append(runs)

    def join(self) -> None:
        """Join what is connected across slabs, once all are added."""
        if len(self._found) == 1:
            voxels, self.is_open = self._found.pop()
            self.voxels = voxels.astype(np.int64)
            self._component = np.arange(self.voxels.size, dtype=np.int32)
            return
        pairs = np.concatenate(self._pairs) if self._pairs else np.zeros((0, 2), np.int64)
        ends = pairs[:, 0].copy(), pairs[:, 1].copy()
        self._component, count = join_pairs(np.zeros(sum(self._counts), np.int32), *ends)
        self._pairs.clear()
        self.voxels, self.is_open = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        first = 0
        while self._found:
            # in noise parts take more room than voxels
            voxels, touches = self._found.pop(0)
            own = self._component[first : first + voxels.size]
            first += voxels.size
            _add_voxels(voxels, own, self.voxels)
            self.is_open[own[touches]] = True
        if self.slabs.on_disk:
            self._runs.clear()

    def paint(
        self,
        slab: int,
        phase: npt.NDArray[np.uint8],
        phase_of: npt.NDArray[np.uint8],
        threads: KernelThreads,
    ) -> None:
        """Write the phase of each component into a slab, in place; see `Runs.paint`."""
        runs = self._runs[slab] if self._runs else find_runs(phase, threads)
        first = sum(self._counts[:slab])
        runs.paint(phase, phase_of[self._component[first : first + runs.count]], threads)


def make_void(
    values: npt.NDArray[Any],
    threshold: float | None,
    bright: bool,
    threads: KernelThreads,
    out: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.bool_]:
    """Return where the pores are: (z, y, x), bool, C order, owned by the caller.

    `values`: (z, y, x), any real dtype. `threshold`: dark pores are at or below it, bright ones
    above; None: `values` is the void itself. `bright`: whether the pores are the bright phase.
    """
    void = np.empty(values.shape, np.bool_) if out is None else out
    if threshold is None:
        threads.over(
            len(values), lambda first, last: np.copyto(void[first:last], values[first:last])
        )
        return void
    limit: Any = np.float64(threshold)
    if values.dtype.kind in "iu":
        # whole numbers are compared as such: exact at any size, and no conversion
        info = np.iinfo(values.dtype)
        if threshold < info.min or threshold >= info.max:
            void[...] = (threshold < info.min) == bright
            return void
        limit = values.dtype.type(np.floor(threshold))
    compare = np.greater if bright else np.less_equal

    def compare_slices(first: int, last: int) -> None:
        compare(values[first:last], limit, out=void[first:last])

    threads.over(len(values), compare_slices)
    return void


def find_runs(phase: npt.NDArray[Any], threads: KernelThreads) -> Runs:
    """Find the 6-connected parts of the void in a slab.

    `phase`: (z, y, x), bool or uint8, C order: void is what is `OPEN`, or true.
    """
    depth, height, width = phase.shape
    rows = phase.view(np.uint8).reshape(-1, width)
    row_start = np.zeros(len(rows) + 1, np.int64)
    threads.over(len(rows), _count_runs, rows, row_start[1:], smallest=256)
    np.cumsum(row_start, out=row_start)
    # what is made here is filled by the threads, who so wait for its memory, and not the caller
    begin, end, part = (np.empty(row_start[-1], np.int32) for _ in range(3))
    lines = Lines(row_start, begin, end)
    threads.over(len(rows), _find_runs, rows, lines, smallest=256)
    begun = threads.over(depth, _connect, height, lines, part)
    count = _connect_across(height, lines, part, np.array(begun))
    return Runs((depth, height, width), row_start, begin, end, part, count)


def closed_bits(
    phase: npt.NDArray[np.uint8],
    threads: KernelThreads,
    out: npt.NDArray[np.uint8] | None = None,
) -> npt.NDArray[np.uint8]:
    """Return where void is closed: (z, y, x / 8), uint8, eight voxels along x in a byte.

    `phase`: (z, y, x), uint8. The first of eight is the highest bit, as of `numpy.packbits`.
    """
    depth, height, width = phase.shape
    bits = np.empty((depth, height, -(-width // 8)), np.uint8) if out is None else out
    rows = phase.reshape(-1, width), bits.reshape(depth * height, -1)
    threads.over(depth * height, _pack_closed, *rows, smallest=256)
    return bits


def find_components(
    void: npt.NDArray[Any], faces: tuple[bool, bool, bool], threads: KernelThreads
) -> Components:
    """Find the 6-connected components of a void in one piece.

    `void`: as for `find_runs`. `faces`: see `Components`.
    """
    components = Components(faces, Slabs(len(void), len(void)))
    components.add(find_runs(void, threads))
    components.join()
    return components


def find_filled_in(
    values: npt.NDArray[Any], padding: float, threads: KernelThreads
) -> npt.NDArray[np.bool_]:
    """Return what is filled in around a scan: voxels of one value up to the rim of their slice.

    `values`: (z, y, x). `padding`: that value. Elsewhere it may be a grey value like any other.
    """
    found: npt.NDArray[np.uint8] = np.equal(values, padding).view(np.uint8)
    for plane in found:
        runs = find_runs(plane[None], threads)
        reach_rim = touching(runs, ((False, False), (True, True)))
        runs.paint(plane[None], reach_rim.view(np.uint8), threads)
    return found.view(np.bool_)


@kernel
def _pack_closed(
    phase: npt.NDArray[np.uint8], bits: npt.NDArray[np.uint8], first: int, last: int
) -> None:
    """Write the bits of a range of rows; see `closed_bits`."""
    width = phase.shape[1]
    closed = np.zeros(width // 8 * 8 + 8, np.uint8)
    words = closed.view(np.uint64)
    for row in range(first, last):
        voxels, target = phase[row], bits[row]
        for x in range(width):
            closed[x] = np.uint8(voxels[x] == CLOSED)
        for byte in range(target.size):
            # moves the lowest bit of each byte of a word to its place in the highest byte
            packed = words[byte] * np.uint64(0x8040201008040201)
            target[byte] = np.uint8(packed >> np.uint64(56))


@kernel
def _marked(rows: npt.NDArray[np.uint8], lines: Lines) -> npt.NDArray[np.bool_]:
    """Return which runs hold a voxel above zero."""
    start, begin, end = lines
    found = np.zeros(begin.size, np.bool_)
    for row in range(len(rows)):
        for run in range(start[row], start[row + 1]):
            found[run] = rows[row, begin[run] : end[run]].any()
    return found


@kernel
def _count_runs(
    rows: npt.NDArray[np.uint8], counts: npt.NDArray[np.int64], first: int, last: int
) -> None:
    """Write how many runs each of a range of rows has."""
    for row in range(first, last):
        line = rows[row]
        count = np.int32(line[0] == 1)
        for x in range(1, line.size):
            count += np.int32((line[x] == 1) & (line[x - 1] != 1))
        counts[row] = count


@kernel
def _find_runs(rows: npt.NDArray[np.uint8], lines: Lines, first: int, last: int) -> None:
    """Write where runs begin and end, for a range of rows.

    Eight voxels are looked at at once: most are alike. Of others each that is not like the one
    before is where a run begins or ends, which is noted without a branch.
    """
    start, begin, end = lines
    width = rows.shape[1]
    line = np.zeros(width // 8 * 8 + 8, np.uint8)  # ends with solid
    words = line.view(np.uint64)
    found = np.empty(line.size + 1, np.int32)
    for row in range(first, last):
        source = rows[row]
        for x in range(width):
            line[x] = np.uint8(source[x] == 1)
        used, previous = 0, np.uint8(0)
        for word in range(words.size):
            if words[word] == np.uint64(previous) * np.uint64(0x0101010101010101):
                continue
            for x in range(8 * word, 8 * word + 8):
                found[used] = x
                used += int(line[x] != previous)
                previous = line[x]
        for run in range(used // 2):
            begin[start[row] + run] = found[2 * run]
            end[start[row] + run] = found[2 * run + 1]


@kernel
def _connect(
    height: int, lines: Lines, parent: npt.NDArray[np.int32], first: int, last: int
) -> int:
    """Join the runs of a range of slices by union-find; returns the first slice.

    At first every run is its own parent. No parent lies outside the range.
    """
    start = lines.start
    for run in range(start[first * height], start[last * height]):
        parent[run] = run
    for row in range(first * height, last * height):
        if row % height:
            _union_rows(parent, lines, row, row - 1)
        if row >= (first + 1) * height:
            _union_rows(parent, lines, row, row - height)
    return first


@kernel
def _connect_across(
    height: int, lines: Lines, parent: npt.NDArray[np.int32], begun: npt.NDArray[np.int64]
) -> int:
    """Join ranges of slices, and number the components from 0, in the order of their first runs.

    `begun`: the first slice of each range. The numbers take the place of the parents.
    """
    for piece in begun[1:]:
        for row in range(piece * height, (piece + 1) * height):
            _union_rows(parent, lines, row, row - height)
    return _compact(parent)


@kernel
def _union_rows(parent: npt.NDArray[np.int32], lines: Lines, row: int, other: int) -> None:
    """Join all runs of two rows that overlap in x."""
    start, begin, end = lines
    # without a sign indices are not asked whether they count from the end
    a, last = np.uint64(start[row]), np.uint64(start[row + 1])
    b, other_last = np.uint64(start[other]), np.uint64(start[other + 1])
    while a < last and b < other_last:
        end_a, end_b = end[a], end[b]
        if begin[a] < end_b and begin[b] < end_a:
            _union(parent, np.int64(a), np.int64(b))
        # without a branch, which in noise would be mistaken half of the time
        a += np.uint64(end_a < end_b)
        b += np.uint64(end_a >= end_b)


@kernel
def _union(parent: npt.NDArray[np.int32], a: int | np.int64, b: int | np.int64) -> None:
    """Join the trees of `a` and `b` under the smaller root, halving the paths on the way."""
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
def join_pairs(
    parent: npt.NDArray[np.int32], first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], int]:
    """Number components from 0, of parts of which some pairs are connected.

    `parent`: (parts,), int32, of any values, where their components are written; returned with how
    many there are. `first`, `second`: (n,), int64: the two parts of each pair.
    """
    for i in range(parent.size):
        parent[i] = i
    for i in range(first.size):
        _union(parent, first[i], second[i])
    return parent, _compact(parent)


@kernel
def _compact(parent: npt.NDArray[np.int32]) -> int:
    """Replace parents, which come first in their trees, by numbers of trees; returns how many."""
    count = 0
    for i in range(parent.size):
        if parent[i] == i:
            parent[i] = count
            count += 1
        else:
            parent[i] = parent[parent[i]]
    return count


def pairs_across(before: Runs, after: Runs) -> npt.NDArray[np.int64]:
    """Return the parts (n, 2) of two slabs that are connected, of the first and of the second."""
    last, first = before.face(last=True), after.face(last=False)
    # as one number each: rows of two take several times as long to sort
    keys = np.unique(_overlaps(last.lines, last.part, first.lines, first.part))
    return np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1)


@kernel
def _overlaps(
    lines_a: Lines,
    part_a: npt.NDArray[np.int32],
    lines_b: Lines,
    part_b: npt.NDArray[np.int32],
) -> npt.NDArray[np.int64]:
    """Return the parts of all runs of two slices that overlap in x, (n,): ``a << 32 | b``."""
    start_a, begin_a, end_a = lines_a
    start_b, begin_b, end_b = lines_b
    pairs = np.empty(begin_a.size + begin_b.size, np.int64)
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
    return pairs[:count].copy()


@kernel
def _voxels_of_parts(
    lines: Lines, part: npt.NDArray[np.int32], count: int
) -> npt.NDArray[np.int32]:
    """Return how many voxels each of `count` parts has; of a slab, whose voxels int32 can count."""
    _, begin, end = lines
    voxels = np.zeros(count, np.int32)
    for run in range(part.size):
        voxels[part[run]] += end[run] - begin[run]
    return voxels


@kernel
def _add_voxels(
    voxels: npt.NDArray[np.int32],
    component: npt.NDArray[np.int32],
    out: npt.NDArray[np.int64],
) -> None:
    """Add the voxels of each part to those of its component."""
    for part in range(voxels.size):
        out[component[part]] += voxels[part]


def touching(
    runs: Runs, faces: tuple[tuple[bool, bool], tuple[bool, ...]]
) -> npt.NDArray[np.bool_]:
    """Return which parts touch the first or last slice, or both faces in y, or in x."""
    ends, (along_y, along_x) = faces
    touches = np.zeros(runs.count, np.bool_)
    _mark_touching(runs.shape, runs.lines, runs.part, (*ends, along_y, along_x), touches)
    return touches


@kernel
def _mark_touching(
    shape: tuple[int, int, int],
    lines: Lines,
    part: npt.NDArray[np.int32],
    faces: tuple[bool, bool, bool, bool],
    touches: npt.NDArray[np.bool_],
) -> None:
    depth, height, width = shape
    start, begin, end = lines
    at_first, at_last, along_y, along_x = faces
    for row in range(depth * height):
        first, last = start[row], start[row + 1] - 1
        z, y = row // height, row % height
        is_edge = (at_first and z == 0) or (at_last and z == depth - 1)
        if is_edge or (along_y and y in (0, height - 1)):
            for run in range(first, last + 1):
                touches[part[run]] = True
        elif along_x and first <= last:
            touches[part[first]] |= begin[first] == 0
            touches[part[last]] |= end[last] == width


@kernel
def _paint_runs(
    rows: npt.NDArray[np.uint8],
    lines: Lines,
    part: npt.NDArray[np.int32],
    phase_of: npt.NDArray[np.uint8],
    first: int,
    last: int,
) -> None:
    start, begin, end = lines
    for row in range(first, last):
        for run in range(start[row], start[row + 1]):
            phase = phase_of[part[run]]
            if phase != 1:
                rows[row, begin[run] : end[run]] = phase
