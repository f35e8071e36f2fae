"""One pass over labelled voxels: the sums over each basin, and its contacts with others.

A kernel is kept on the disk by the date of its own file, so that all that call each other are here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from hushpore.pores.parallel import kernel
from hushpore.pores.sums import SUMS
from hushpore.pores.surface import DIRECTIONS
from hushpore.pores.void import CLOSED

if TYPE_CHECKING:
    import numpy.typing as npt

# rows (z, y) after a voxel's own, and which directions lead there with x - 1, x and x + 1
_ROWS = np.array([(0, 1, 4, 1, 3), (1, 0, 6, 0, 5), (1, 1, 10, 7, 9), (1, -1, 12, 8, 11)], np.int64)
_ALONG_X = 2
_ALONG_X_ONLY = np.array([0, 0, -1, -1, _ALONG_X], np.int64)

# how far along x the voxels lie in each of these rows, and last in a voxel's own, to which a way
# leads; -1 for none
_WAYS = np.array([1, 1, 1, 1, 1], np.int64)
_WAYS_OVER_FACES = np.array([0, 0, -1, -1, 1], np.int64)

N_DIRECTIONS = len(DIRECTIONS)


class Slab(NamedTuple):
    """Some slices of a stack."""

    shape: tuple[int, int, int]  # of the stack
    offset: int  # slices of the stack that lie before
    basins: npt.NDArray[np.int32]  # of all voxels
    heights: npt.NDArray[np.float32]  # squared distances
    ways: npt.NDArray[np.int64]
    low: int  # the lowest basin: tables begin with it


class Sums(NamedTuple):
    """The sums of `hushpore.pores.sums.SUMS` over some basins, as they are added up.

    What a stretch of voxels along x adds to a sum is a product: of powers of z and y, which are
    those of its row, and of a sum along it. Sums share these, so that each is worked out once.
    """

    totals: npt.NDArray[np.int64]  # (basins, sums)
    bounds: npt.NDArray[np.int32]  # (basins, 6)
    grey: npt.NDArray[np.int32]  # of all voxels, as whole numbers; empty where no sum takes any
    in_row: npt.NDArray[np.int64]  # (sums, 2): powers of z and y
    along: npt.NDArray[np.int64]  # (sums along x, 2): powers of x and grey; first 1, x and x**2
    which: npt.NDArray[np.uint64]  # (sums,): which of the sums along x
    row_factor: npt.NDArray[np.int64]  # (sums,): room for what is of the row
    run_factor: npt.NDArray[np.int64]  # (sums along x,): room for what is of the stretch


def _no_sums(count: int, grey: npt.NDArray[np.int32] | None) -> Sums:
    """Return the sums over some basins before any voxel is added, for one thread."""
    bounds = np.zeros((count, 6), np.int32)
    bounds[:, :3] = np.iinfo(np.int32).max
    along = list(dict.fromkeys([(0, 0), (1, 0), (2, 0), *((each.x, each.grey) for each in SUMS)]))
    return Sums(
        np.zeros((count, len(SUMS)), np.int64),
        bounds,
        np.zeros(0, np.int32) if grey is None else grey.reshape(-1),
        np.array([(each.z, each.y) for each in SUMS], np.int64),
        np.array(along, np.int64),
        np.array([along.index((each.x, each.grey)) for each in SUMS], np.uint64),
        np.zeros(len(SUMS), np.int64),
        np.zeros(len(along), np.int64),
    )


class Edges(NamedTuple):
    """Edges as they are found: an open-addressed table of indices, and a column for each value."""

    table: npt.NDArray[np.int32]
    keys: npt.NDArray[np.int64]  # a << 32 | b
    saddle: npt.NDArray[np.float32]
    place: npt.NDArray[np.int64]
    contacts: npt.NDArray[np.int32]

    @property
    def columns(self) -> tuple[Any, ...]:
        """All but the table."""
        return self[1:]

    def first(self, used: int) -> Edges:
        """Return a copy of the edges in use, without the table and the room for more."""
        return Edges(self.table[:0].copy(), *(column[:used].copy() for column in self.columns))


#: The lowest basin of a piece; sums, bounds and crossings from there on; border crossings; edges.
Piece: TypeAlias = tuple[
    int,
    "npt.NDArray[np.int64]",
    "npt.NDArray[np.int32]",
    "npt.NDArray[np.int64]",
    "npt.NDArray[np.int64]",
    Edges,
]


def scan_slices(
    basins: npt.NDArray[np.int32],
    distance: npt.NDArray[np.float32],
    grey: npt.NDArray[np.int32] | None,
    shape: tuple[int, int, int],
    faces_only: bool,
    offset: int,
    first: int,
    last: int,
) -> Piece:
    """Sum up the basins in a range of slices, and find the contacts of its voxels.

    The slices are those from `offset` on of a stack of the given shape. `grey` are grey values as
    whole numbers, where there is a sum that takes them.
    """
    low, high = span(basins, first, last)
    sums = _no_sums(high - low, grey)
    crossings = np.zeros((high - low, N_DIRECTIONS), np.int64)
    border_crossings = np.zeros(N_DIRECTIONS, np.int64)
    tables = (sums, crossings, border_crossings)
    ways = _WAYS_OVER_FACES if faces_only else _WAYS
    slab = Slab(shape, offset, basins.reshape(-1), distance.reshape(-1), ways, low)
    edges, used = _no_edges(1 << 10), 0
    row, end = first * shape[1], last * shape[1]
    while row < end:
        used, row = _scan_rows(slab, *tables, edges, used, row, end)
        if row < end:
            edges = _with_more_room(edges, used)
    edges = edges.first(used)
    edges.place[:] += offset * shape[1] * shape[2]
    return low, sums.totals, sums.bounds, crossings, border_crossings, edges


@kernel
def _scan_rows(
    slab: Slab,
    sums: Sums,
    crossings: npt.NDArray[np.int64],
    border_crossings: npt.NDArray[np.int64],
    edges: Edges,
    used: int,
    row: int,
    end: int,
) -> tuple[int, int]:
    """Go through rows as long as there is room; returns the number of edges, and the next row.

    Zeros come in as arguments or from arrays: for a literal one numba would compile what takes it
    a second time.
    """
    _, height, width = slab.shape
    # a row cannot find more edges than its voxels have contacts
    while row < end and edges.keys.size - used >= N_DIRECTIONS * width:
        z, y = row // height, row % height
        used = _scan_row(slab, z, y, sums, crossings, border_crossings, edges, used)
        row += 1
    return used, row


@kernel
def _scan_row(
    slab: Slab,
    z: int,
    y: int,
    sums: Sums,
    crossings: npt.NDArray[np.int64],
    border_crossings: npt.NDArray[np.int64],
    edges: Edges,
    used: int,
) -> int:
    """Go through the runs of a row, stretches of one basin along x; returns the number of edges.

    In another row the neighbours with x - 1, x and x + 1 are the same voxels but for the outermost,
    so that one count of equal voxels does for three directions; and only where some are of a third
    kind, neither solid nor of this basin, there are contacts to look for.
    """
    shape, offset, flat, heights, ways, low = slab
    depth, height, width = shape
    at_z = z + offset
    start = (z * height + y) * width
    stop = start + width
    for k in range(sums.row_factor.size):
        sums.row_factor[k] = _power(at_z, sums.in_row[k, 0]) * _power(y, sums.in_row[k, 1])
    i = start
    while i < stop:
        a = flat[i]
        begin = i
        while i < stop and flat[i] == a:
            i += 1
        if a == 0:
            continue
        own = a - low
        length = i - begin
        _add_run(sums, own, at_z, y, begin - start, i - start, start)
        _add_border_crossings(border_crossings, shape, at_z, y, begin - start, i - start)
        crossings[own, _ALONG_X] += 1
        if i < stop and flat[i] != 0:
            step, row = _ALONG_X_ONLY[0], _ALONG_X_ONLY
            used = _join_runs(flat, heights, begin, i, i, i + 1, step, row, ways[4], edges, used)
        for r in range(len(_ROWS)):
            same_before, same, same_after = 0, 0, 0
            dz = _ROWS[r, 0]
            dy = _ROWS[r, 1]
            if at_z + dz < depth and 0 <= y + dy < height:
                step = (dz * height + dy) * width
                same, void = _count(flat[begin + step : i + step], a)
                first = max(begin - 1, start)
                last = min(i + 1, stop)
                before = (first < begin) & (flat[first + step] == a)
                after = (last > i) & (flat[last - 1 + step] == a)
                same_before = same + before - (flat[i - 1 + step] == a)
                same_after = same + after - (flat[begin + step] == a)
                void += (first < begin) & (flat[first + step] != 0)
                void += (last > i) & (flat[last - 1 + step] != 0)
                if void > same + before + after:
                    used = _join_runs(
                        flat, heights, begin, i, first, last, step, _ROWS[r], ways[r], edges, used
                    )
            crossings[own, _ROWS[r, 2]] += length - same_before
            crossings[own, _ROWS[r, 3]] += length - same
            crossings[own, _ROWS[r, 4]] += length - same_after
    return used


@kernel
def _count(line: npt.NDArray[np.int32], a: int) -> tuple[int, int]:
    """Return how many voxels are of basin `a`, and how many are void."""
    same = np.int32(0)
    void = np.int32(0)
    for x in range(line.size):
        same += np.int32(line[x] == a)
        void += np.int32(line[x] != 0)
    return int(same), int(void)


@kernel
def _join_runs(
    flat: npt.NDArray[np.int32],
    heights: npt.NDArray[np.float32],
    begin: int,
    end: int,
    first: int,
    last: int,
    step: int,
    row: npt.NDArray[np.int64],
    reach: int,
    edges: Edges,
    used: int,
) -> int:
    """Add the contacts of a run with the runs of other basins beside it in another row.

    The run is ``begin`` to ``end``; the others lie ``step`` on from ``first`` to ``last``. Ways
    lead ``reach`` voxels along x, and none where that is below 0.
    """
    a = flat[begin]
    i = first
    while i < last:
        b = flat[i + step]
        other = i
        while i < last and flat[i + step] == b:
            i += 1
        if (b == 0) | (b == a):
            continue
        key = (int(min(a, b)) << 32) | int(max(a, b))
        slot = _find(edges.table, edges.keys, key)
        if edges.table[slot] < 0:
            edges.table[slot] = used
            edges.keys[used] = key
            used += 1
        edge = edges.table[slot]
        for dx in range(-1, 2):
            k = row[3 + dx]
            if k >= 0:
                edges.contacts[edge, k] += max(0, min(end, i - dx) - max(begin, other - dx))
        best = np.float32(0.0)
        if reach >= 0:
            for at in range(max(begin, other - reach), min(end, i + reach)):
                way = _way_across(heights, at, other + step, i - 1 + step, step, reach)
                best = max(best, way)
        # in the void all heights are above 0
        if best > 0 and best >= edges.saddle[edge]:
            _raise_saddle(heights, begin, end, other, i, step, reach, best, edges, edge)
    return used


@kernel
def _way_across(
    heights: npt.NDArray[np.float32], at: int, first: int, last: int, step: int, reach: int
) -> np.float32:
    """Return the highest way from a voxel to those beside it, ``first`` to ``last``, in a row."""
    across: np.float32 = max(
        heights[max(first, at + step - reach)],
        heights[min(max(first, at + step), last)],
        heights[min(last, at + step + reach)],
    )
    return min(heights[at], across)


@kernel
def _raise_saddle(
    heights: npt.NDArray[np.float32],
    begin: int,
    end: int,
    other: int,
    other_end: int,
    step: int,
    reach: int,
    best: np.float32,
    edges: Edges,
    edge: int,
) -> None:
    """Keep a way across an edge that is at least as high as all before, and of these the first."""
    place = edges.place[edge] if best == edges.saddle[edge] else heights.size
    for at in range(begin, end):
        for beside in range(max(other, at - reach), min(other_end, at + reach + 1)):
            across = beside + step
            if min(heights[at], heights[across]) == best:
                place = min(place, at if heights[at] == best else across)
    edges.saddle[edge] = best
    edges.place[edge] = place


def _no_edges(room: int) -> Edges:
    """Return a table with room for some edges, and for as many again before it is slow."""
    return Edges(
        np.full(4 * room, -1, np.int32),
        np.full(room, -1, np.int64),
        np.full(room, -1.0, np.float32),
        np.zeros(room, np.int64),
        np.zeros((room, N_DIRECTIONS), np.int32),
    )


def _with_more_room(edges: Edges, used: int) -> Edges:
    """Return the edges in use in twice the room."""
    wider = _no_edges(2 * edges.keys.size)
    for column, known in zip(wider.columns, edges.columns, strict=True):
        column[:used] = known[:used]
    _enter(wider.table, wider.keys, used)
    return wider


@kernel
def _enter(table: npt.NDArray[np.int32], keys: npt.NDArray[np.int64], used: int) -> None:
    """Enter all edges in use into a table that has none."""
    for i in range(used):
        table[_find(table, keys, keys[i])] = i


@kernel
def _add_border_crossings(
    border_crossings: npt.NDArray[np.int64],
    shape: tuple[int, int, int],
    z: int,
    y: int,
    begin: int,
    end: int,
) -> None:
    """Count the ways out of the volume from the voxels of a run."""
    depth, height, width = shape
    inner_row = 0 < z < depth - 1 and 0 < y < height - 1
    if inner_row and begin > 0 and end < width:
        return
    for x in range(begin, end):
        if not inner_row or x in (0, width - 1):
            for k in range(N_DIRECTIONS):
                for sense in (-1, 1):
                    zk = z + sense * DIRECTIONS[k, 0]
                    yk = y + sense * DIRECTIONS[k, 1]
                    xk = x + sense * DIRECTIONS[k, 2]
                    if not (0 <= zk < depth and 0 <= yk < height and 0 <= xk < width):
                        border_crossings[k] += 1


@kernel
def count_closed(
    basins: npt.NDArray[np.int32], phase: npt.NDArray[np.uint8], first: int, last: int
) -> tuple[int, npt.NDArray[np.int64]]:
    """Return the lowest basin of closed void in a range of slices, and the voxels from it on."""
    width = basins.shape[2]
    rows = basins[first:last].reshape(-1, width)
    phases = phase[first:last].reshape(-1, width)
    closed = np.zeros(len(rows), np.int32)
    low, high = np.int32(0x7FFFFFFF), np.int32(0)
    for row in range(len(rows)):
        # most rows have none, which is told without a branch a voxel
        for x in range(width):
            closed[row] += np.int32(phases[row, x] == CLOSED)
        if closed[row]:
            for x in range(width):
                if phases[row, x] == CLOSED:
                    low, high = min(low, rows[row, x]), max(high, rows[row, x])
    if high == 0:
        return 0, np.zeros(0, np.int64)
    counts = np.zeros(high - low + 1, np.int64)
    for row in range(len(rows)):
        if closed[row]:
            for x in range(width):
                if phases[row, x] == CLOSED:
                    counts[rows[row, x] - low] += 1
    return int(low), counts


@kernel
def span(basins: npt.NDArray[np.int32], first: int, last: int) -> tuple[int, int]:
    """Return the lowest basin in a range of slices, and one more than the highest."""
    # without a sign one less than 0 is above all, so that no voxel has to be asked what it is
    flat = basins[first:last].reshape(-1).view(np.uint32)
    low, high = np.uint32(0xFFFFFFFF), np.uint32(0)
    for basin in flat:
        high = max(high, basin)
        low = min(low, np.uint32(basin - np.uint32(1)))
    if high == 0:
        return 1, 1
    return int(low) + 1, int(high) + 1


@kernel
def _power(base: int, exponent: int) -> int:
    value = 1
    for _ in range(exponent):
        value *= base
    return value


@kernel
def _add_run(sums: Sums, own: int, z: int, y: int, begin: int, end: int, start: int) -> None:
    """Add the voxels ``begin`` to ``end`` of the row from ``start`` to the sums of their basin."""
    n = end - begin
    factor = sums.run_factor
    factor[0] = n
    factor[1] = (begin + end - 1) * n // 2
    factor[2] = ((end - 1) * end * (2 * end - 1) - (begin - 1) * begin * (2 * begin - 1)) // 6
    for i in range(3, factor.size):
        value_sum = 0
        for x in range(begin, end):
            value = int(sums.grey[start + x])
            value_sum += _power(x, sums.along[i, 0]) * _power(value, sums.along[i, 1])
        factor[i] = value_sum
    total = sums.totals[own]
    which = sums.which
    row = sums.row_factor
    for k in range(which.size):
        total[k] += row[k] * factor[which[k]]
    bounds = sums.bounds
    bounds[own, 0] = min(bounds[own, 0], z)
    bounds[own, 1] = min(bounds[own, 1], y)
    bounds[own, 2] = min(bounds[own, 2], begin)
    bounds[own, 3] = max(bounds[own, 3], z + 1)
    bounds[own, 4] = max(bounds[own, 4], y + 1)
    bounds[own, 5] = max(bounds[own, 5], end)


@kernel
def _find(table: npt.NDArray[np.int32], keys: npt.NDArray[np.int64], key: int) -> int:
    """Return the slot of a key in an open-addressed table, or the free slot where it belongs."""
    mask = table.size - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = int(mixed >> np.uint64(24)) & mask
    while table[slot] >= 0 and keys[table[slot]] != key:
        slot = (slot + 1) & mask
    return slot
