"""The parts of the void: open, connected to a face of the volume, and closed, which is not.

Components are 6-connected. They are found on runs, stretches of void along x, of which there are
far fewer than voxels.

The air around a sample is void but no pore. A ball is rolled over the sample from outside, as in
the definition of the solvent-excluded surface of a molecule: the exterior is all air that the ball
covers on its way in from beyond the volume without touching solid. Everything else is the sample:
its solid, its closed voids, and open pores whose mouths are too narrow for the ball, which dents
them in by a small cap. There is air beyond the faces of the volume, so that the exterior is also
found where the sample almost touches a face.

References
----------
L. He, Y. Chao and K. Suzuki (2008), "A run-based two-scan labeling algorithm".
https://doi.org/10.1109/TIP.2008.919369

M. L. Connolly (1983), "Solvent-accessible surfaces of proteins and nucleic acids".
https://doi.org/10.1126/science.6879170
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.pores.geometry.sums import DIRECTIONS
from hushpore.pores.parallel import inlined, kernel
from hushpore.pores.slabs import Slabs
from hushpore.pores.watershed.distance import squared_distance

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Int32s, Int64s, Mask, UInt8s
    from hushpore.pores.parallel import KernelThreads


#: What a voxel is: solid; void, open until it is known to be closed; or not of the sample, which is
#: all from `AIR` on: air around it, where solid ends, or filled in, where it may go on.
SOLID, OPEN, CLOSED, AIR, FILLED_IN = 0, 1, 2, 3, 4


@dataclass(frozen=True, eq=False)
class Runs:
    """Stretches of void along x in a slab, and which of its 6-connected parts each belongs to."""

    shape: tuple[int, int, int]  # (z, y, x) of the slab
    row_start: Int64s  # (z * y + 1,), int64: first run of each row
    # (runs,), int32: first voxel of a run, and the one after its last
    begin: Int32s
    end: Int32s
    part: Int32s  # (runs,), int32: from 0
    count: int  # number of parts
    # (parts,), int32: voxels of each, where it is not of a face alone
    voxels: Int32s | None = None

    def face(self, last: bool) -> Runs:
        """Return the runs of the first slice, or of the last one, with the parts of the slab."""
        height = self.shape[1]
        rows = self.row_start[-height - 1 :] if last else self.row_start[: height + 1]
        own = slice(rows[0], rows[-1])
        begin, end, part = (each[own].copy() for each in (self.begin, self.end, self.part))
        return Runs((1, *self.shape[1:]), rows - rows[0], begin, end, part, self.count)

    def paint(self, phase: UInt8s, phase_of: UInt8s, threads: KernelThreads) -> None:
        """Write the phase of each part, in place, but where it is `OPEN`, as all void is first."""
        if (phase_of == OPEN).all():
            return
        rows = phase.reshape(-1, phase.shape[-1])
        where = (rows, self.row_start, self.begin, self.end, self.part, phase_of)
        threads.over(len(rows), _paint_runs, *where, smallest=256)

    def holding(self, strict: Mask) -> Mask:
        """Return which parts hold a voxel of `strict` (z, y, x), one bool a part."""
        rows = strict.view(np.uint8).reshape(-1, strict.shape[-1])
        marked = np.zeros(self.count, np.bool_)
        _mark_parts(rows, self.row_start, self.begin, self.end, self.part, marked)
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
        self._found: list[tuple[Int32s, Mask]] = []
        self._pairs: list[Int64s] = []
        self._component: Int32s = np.zeros(0, np.int32)

    @property
    def totals(self) -> tuple[int, int, int]:
        """Void voxels that are open, those that are not, and the number of components."""
        opened = int(self.voxels.sum(where=self.is_open))
        return opened, int(self.voxels.sum()) - opened, int(self.voxels.size)

    def add(self, runs: Runs, marked: Mask | None = None) -> None:
        """Add the next slab; parts that are `marked`, (parts,), bool, count as open."""
        first, last = self.slabs[len(self._counts)]
        faces = (self.faces[0] and first == 0, self.faces[0] and last == self.slabs.depth)
        touches = touching(runs, (faces, self.faces[1:]))
        if marked is not None:
            touches |= marked
        assert runs.voxels is not None, "it is not of a face"
        if self._runs:
            offsets = np.cumsum([0, *self._counts])[-2:]
            self._pairs.append(pairs_across(self._runs[-1], runs) + offsets)
        self._found.append((runs.voxels, touches))
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
        pairs = np.concatenate([*self._pairs, np.zeros((0, 2), np.int64)])
        self._component, count = join_pairs(sum(self._counts), pairs[:, 0], pairs[:, 1])
        self._pairs.clear()
        self.voxels, self.is_open = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        first = 0
        while self._found:
            # in noise parts take more room than voxels
            voxels, touches = self._found.pop(0)
            own = self._component[first : first + voxels.size]
            first += voxels.size
            np.add.at(self.voxels, own, voxels)
            self.is_open[own[touches]] = True
        if self.slabs.on_disk:
            self._runs.clear()

    def paint(self, slab: int, phase: UInt8s, phase_of: UInt8s, threads: KernelThreads) -> None:
        """Write the phase of each component into a slab, in place; see `Runs.paint`."""
        runs = self._runs[slab] if self._runs else find_runs(phase, threads)
        first = sum(self._counts[:slab])
        runs.paint(phase, phase_of[self._component[first : first + runs.count]], threads)


def find_runs(phase: Array, threads: KernelThreads, *, full: bool = False) -> Runs:
    """Find the 6-connected parts of the void in a slab.

    `phase`: (z, y, x), bool or uint8, C order: void is what is `OPEN`, or true. `full`: whether
    voxels that share an edge or a corner are connected too.
    """
    depth, height, width = phase.shape
    rows = phase.view(np.uint8).reshape(-1, width)
    row_start = np.zeros(len(rows) + 1, np.int64)
    threads.over(len(rows), _count_runs, rows, row_start[1:], smallest=256)
    np.cumsum(row_start, out=row_start)
    # what is made here is filled by the threads, who so wait for its memory, and not the caller
    begin, end, part = (np.empty(row_start[-1], np.int32) for _ in range(3))
    where = (row_start, begin, end)

    def fill(first: int, last: int) -> None:
        line = np.zeros(width // 8 * 8 + 8, np.uint8)  # ends with solid
        found = np.empty(line.size + 1, np.int32)
        _find_runs(rows, *where, line, line.view(np.uint64), found, first, last)

    threads.over(len(rows), fill, smallest=256)
    begun = threads.over(depth, _connect, height, *where, part, int(full))
    # memory that is not written to is not taken
    voxels = np.empty(part.size, np.int32)
    count = _connect_across(height, *where, part, int(full), np.array(begun), voxels)
    return Runs((depth, height, width), *where, part, count, voxels[:count].copy())


def closed_bits(phase: UInt8s, threads: KernelThreads, out: UInt8s | None = None) -> UInt8s:
    """Return where void is closed: (z, y, x / 8), uint8, eight voxels along x in a byte.

    `phase`: (z, y, x), uint8. The first of eight is the highest bit, as of `numpy.packbits`.
    """
    depth, height, width = phase.shape
    bits = np.empty((depth, height, -(-width // 8)), np.uint8) if out is None else out

    def pack(first: int, last: int) -> None:
        for z in range(first, last):
            bits[z] = np.packbits(phase[z] == CLOSED, axis=-1)

    threads.over(depth, pack)
    return bits


def find_components(
    void: Array, faces: tuple[bool, bool, bool], threads: KernelThreads, *, full: bool = False
) -> Components:
    """Find the 6-connected components of a void in one piece.

    `void`, `full`: as for `find_runs`. `faces`: see `Components`.
    """
    components = Components(faces, Slabs(len(void), len(void)))
    components.add(find_runs(void, threads, full=full))
    components.join()
    return components


def find_filled_in(values: Array, padding: float, threads: KernelThreads) -> Mask:
    """Return what is filled in around a scan: voxels of one value up to the rim of their slice.

    `values`: (z, y, x). `padding`: that value. Elsewhere it may be a grey value like any other.
    """
    found: UInt8s = np.equal(values, padding).view(np.uint8)
    for plane in found:
        runs = find_runs(plane[None], threads)
        reach_rim = touching(runs, ((False, False), (True, True)))
        runs.paint(plane[None], reach_rim.view(np.uint8), threads)
    return found.view(np.bool_)


def touching(runs: Runs, faces: tuple[tuple[bool, bool], tuple[bool, ...]]) -> Mask:
    """Return which parts touch the first or last slice, or both faces in y, or in x."""
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
) -> tuple[Int32s, int]:
    """Return the component, from 0, of each of some parts, and how many components there are.

    `first`, `second`: (n,): the two parts of each pair that is connected.
    """
    component = np.arange(count, dtype=np.int32)
    pairs = (np.ascontiguousarray(each, np.int64) for each in (first, second))
    return component, _join_pairs(component, *pairs)


def pairs_across(before: Runs, after: Runs) -> Int64s:
    """Return the parts (n, 2) of two slabs that are connected, of the first and of the second."""
    last, first = before.face(last=True), after.face(last=False)
    keys = np.empty(last.part.size + first.part.size, np.int64)
    count = _overlaps(
        *(last.row_start, last.begin, last.end, last.part),
        *(first.row_start, first.begin, first.end, first.part),
        keys,
    )
    # as one number each: rows of two take several times as long to sort
    keys = np.unique(keys[:count])
    return np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1)


@kernel
def _mark_parts(
    rows: UInt8s, start: Int64s, begin: Int32s, end: Int32s, part: Int32s, marked: Mask
) -> None:
    """Mark the parts of runs that hold a voxel above zero."""
    for row in range(len(rows)):
        for run in range(start[row], start[row + 1]):
            for x in range(begin[run], end[run]):
                if rows[row, x]:
                    marked[part[run]] = True
                    break


@kernel
def _count_runs(rows: UInt8s, counts: Int64s, first: int, last: int) -> None:
    """Write how many runs each of a range of rows has."""
    for row in range(first, last):
        line = rows[row]
        count = np.int32(line[0] == 1)
        for x in range(1, line.size):
            count += np.int32((line[x] == 1) & (line[x - 1] != 1))
        counts[row] = count


@kernel
def _find_runs(
    rows: UInt8s,
    start: Int64s,
    begin: Int32s,
    end: Int32s,
    line: UInt8s,
    words: npt.NDArray[np.uint64],
    found: Int32s,
    first: int,
    last: int,
) -> None:
    """Write where runs begin and end, for a range of rows.

    Eight voxels are looked at at once: most are alike. Of others each that is not like the one
    before is where a run begins or ends, which is noted without a branch. `line`, `words`, `found`:
    room for a row, for the same in words, and for these places.
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
    start: Int64s,
    begin: Int32s,
    end: Int32s,
    parent: Int32s,
    gap: int,
    first: int,
    last: int,
) -> int:
    """Join the runs of a range of slices by union-find; returns the first slice.

    At first every run is its own parent. No parent lies outside the range. `gap`: 1 if voxels that
    share an edge or a corner are connected, else 0.
    """
    for run in range(start[first * height], start[last * height]):
        parent[run] = run
    for row in range(first * height, last * height):
        if row % height:
            _union_rows(parent, start, begin, end, row, row - 1, gap)
        if row >= (first + 1) * height:
            _union_with_slice_before(parent, start, begin, end, row, height, gap)
    return first


@kernel
def _connect_across(
    height: int,
    start: Int64s,
    begin: Int32s,
    end: Int32s,
    parent: Int32s,
    gap: int,
    begun: Int64s,
    voxels: Int32s,
) -> int:
    """Join ranges of slices, and number the parts from 0, in the order of their first runs.

    `gap`: see `_connect`. `begun`: the first slice of each range. The numbers take the place of the
    parents. `voxels`: room for how many each part has. Returns how many parts there are.
    """
    for piece in range(1, begun.size):
        for row in range(begun[piece] * height, (begun[piece] + 1) * height):
            _union_with_slice_before(parent, start, begin, end, row, height, gap)
    count = _compact(parent)
    for part in range(count):
        voxels[part] = 0
    for run in range(parent.size):
        voxels[parent[run]] += end[run] - begin[run]
    return count


@inlined
def _union_with_slice_before(
    parent: Int32s, start: Int64s, begin: Int32s, end: Int32s, row: int, height: int, gap: int
) -> None:
    """Join the runs of a row with those of the slice before it; see `_connect`."""
    for other in range(
        row - height - gap * (row % height > 0), row - height + gap * ((row + 1) % height > 0) + 1
    ):
        _union_rows(parent, start, begin, end, row, other, gap)


@inlined
def _union_rows(
    parent: Int32s, start: Int64s, begin: Int32s, end: Int32s, row: int, other: int, gap: int
) -> None:
    """Join all runs of two rows that overlap in x, or with a `gap` of 1 touch across a corner."""
    # without a sign indices are not asked whether they count from the end
    a, last = np.uint64(start[row]), np.uint64(start[row + 1])
    b, other_last = np.uint64(start[other]), np.uint64(start[other + 1])
    while a < last and b < other_last:
        end_a, end_b = end[a], end[b]
        if begin[a] < end_b + gap and begin[b] < end_a + gap:
            _union(parent, np.int64(a), np.int64(b))
        # without a branch, which in noise would be mistaken half of the time
        a += np.uint64(end_a < end_b)
        b += np.uint64(end_a >= end_b)


@inlined
def _union(parent: Int32s, a: int | np.int64, b: int | np.int64) -> None:
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
def _join_pairs(parent: Int32s, first: Int64s, second: Int64s) -> int:
    """Write the component of each part, of which some pairs are connected; returns how many."""
    for i in range(first.size):
        _union(parent, first[i], second[i])
    return _compact(parent)


@inlined
def _compact(parent: Int32s) -> int:
    """Replace parents, which come first in their trees, by numbers of trees; returns how many."""
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
    start_a: Int64s,
    begin_a: Int32s,
    end_a: Int32s,
    part_a: Int32s,
    start_b: Int64s,
    begin_b: Int32s,
    end_b: Int32s,
    part_b: Int32s,
    pairs: Int64s,
) -> int:
    """Write the parts of all runs of two slices that overlap in x, ``a << 32 | b``; count them."""
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
    rows: UInt8s,
    start: Int64s,
    begin: Int32s,
    end: Int32s,
    part: Int32s,
    phase_of: UInt8s,
    first: int,
    last: int,
) -> None:
    """Write the phase of the part of each run, but where it is `OPEN`."""
    for row in range(first, last):
        for run in range(start[row], start[row + 1]):
            phase = phase_of[part[run]]
            if phase != 1:
                rows[row, begin[run] : end[run]] = phase


# so far apart, in voxels of a slice, that slices have no part in each other's distances
_APART = 1e6


class Ball(NamedTuple):
    """A ball (slice by slice: a disc), and the volume in which it moves freely around another."""

    shape: tuple[int, ...]  # of that volume, (z, y, x)
    inner: tuple[slice, ...]  # where the other lies in it
    spacing: tuple[float, ...]  # by which distances are measured
    limit: float  # the ball fits where the squared distance to solid is larger
    slicewise: bool


def ball_around(
    shape: Sequence[int], spacing: Sequence[float], radius: float, slicewise: bool
) -> Ball:
    """Return the ball for a volume of a shape, with the parameters of `mark_outside`."""
    # layers of air, before and after the volume, in which the ball moves freely around it
    before = [math.floor(radius * min(spacing) / step) + 1 for step in spacing]
    after = before.copy()
    if slicewise:
        before[0] = after[0] = 0
        # the row that parts one slice from the next
        after[1] += 1
    around = tuple(sum(lengths) for lengths in zip(before, shape, after, strict=True))
    inner = tuple(slice(b, b + n) for b, n in zip(before, shape, strict=True))
    if slicewise:
        in_slice = min(spacing[1:])
        steps = (_APART * in_slice, *spacing[1:])
        return Ball(around, inner, steps, (radius * min(spacing) / in_slice) ** 2, slicewise)
    return Ball(around, inner, tuple(spacing), radius**2, slicewise)


def outside_of_slices(
    void: Mask, spacing: Sequence[float], radius: float, threads: KernelThreads
) -> Mask:
    """Return the air around the sample in slices, each of them taken for itself."""
    ball = ball_around(void.shape, spacing, radius, slicewise=True)
    padded = np.ones(ball.shape, np.bool_)
    padded[ball.inner] = void
    no_walls = (False, False, False)
    distance = squared_distance(padded, ball.spacing, no_walls, threads, ball.limit)
    centres = np.greater(distance, ball.limit, out=padded)
    del distance
    # a row of solid between slices, and one below the other they are an image
    centres[:, -1] = False
    parted = centres.view(np.uint8).reshape(1, -1, centres.shape[2])
    parts = find_components(parted, (False, False, True), threads)
    parts.paint(0, parted, parts.is_open.view(np.uint8), threads)
    unreached = np.logical_not(centres, out=centres)
    distance = squared_distance(unreached, ball.spacing, no_walls, threads, ball.limit)
    return (distance[ball.inner] <= ball.limit) & void


def outside_bytes(
    shape: Sequence[int], spacing: Sequence[float], radius: float, slicewise: bool
) -> int:
    """Return how much memory `mark_outside` takes at most, with the void before and after."""
    ball = ball_around(shape, spacing, radius, slicewise)
    return 3 * math.prod(shape) + 5 * math.prod(ball.shape)


def face_neighbours(air: Mask) -> Mask:
    """Return the voxels that share a face with a voxel of `air`, (z, y, x), bool."""
    found = np.zeros_like(air)
    for direction in DIRECTIONS[:3]:
        near, far = _pairs(direction)
        found[near] |= air[far]
        found[far] |= air[near]
    return found


def count_crossings(void: Mask, air: Mask) -> Int64s:
    """Count the neighbours of which one is `void` and one is `air`, by direction.

    `void`, `air`: (z, y, x), bool.
    Returns: (13,), int64, in the order of `hushpore.pores.geometry.sums.DIRECTIONS`.
    """
    found = np.zeros(len(DIRECTIONS), np.int64)
    for k, direction in enumerate(DIRECTIONS):
        near, far = _pairs(direction)
        found[k] = np.count_nonzero(void[near] & air[far])
        found[k] += np.count_nonzero(air[near] & void[far])
    return found


def _pairs(direction: Int64s) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return where the voxels lie that have a neighbour in a direction, and where these do."""
    near = tuple(slice(max(0, -step), min(0, -step) or None) for step in direction.tolist())
    far = tuple(slice(max(0, step), min(0, step) or None) for step in direction.tolist())
    return near, far
