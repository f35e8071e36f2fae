"""One pass over labelled voxels: the sums over each basin, and its contacts with others.

A kernel is kept on the disk by the date of its own file, so that all that call each other are here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from hushpore.pores.geometry.sums import DIRECTIONS, SUMS, index_of, narrowest
from hushpore.pores.parallel import inlined, kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.arrays import Float32s, Int32s, Int64s, UInt8s

_ALONG_X = 2

# rows (z, y) after a voxel's own, and last its own, where only what comes next counts
_ROWS = np.array([(0, 1), (1, 0), (1, 1), (1, -1), (0, 0)], np.int64)

# which directions lead to each of them with x - 1, x and x + 1
_LEADING = np.array(
    [(4, 1, 3), (6, 0, 5), (10, 7, 9), (12, 8, 11), (_ALONG_X, _ALONG_X, _ALONG_X)], np.uint64
)

# how far along x the voxels lie in each of them to which a way leads; -1 for none
_WAYS = np.array([1, 1, 1, 1, 1], np.int64)
_WAYS_OVER_FACES = np.array([0, 0, -1, -1, 1], np.int64)

N_DIRECTIONS = len(DIRECTIONS)

# without a sign indices are not asked whether they count from the end
_ONE, _TWO = np.uint64(1), np.uint64(2)

_NEAR = 4  # slots of a table that are looked at beside each other


class Slab(NamedTuple):
    """Some slices of a stack."""

    shape: tuple[int, int, int]  # of the stack
    offset: int  # slices of the stack that lie before
    basins: Int32s  # of all voxels
    heights: Float32s  # squared distances
    ways: Int64s
    low: int  # the lowest basin: tables begin with it


class Sums(NamedTuple):
    """The sums of `hushpore.pores.geometry.sums.SUMS` over some basins, as they are added up.

    What a stretch of voxels along x adds to a sum is a product: of powers of z and y, which are
    those of its row, and of a sum along it. Sums share these, so that each is worked out once.
    """

    totals: Int64s  # (basins, sums)
    bounds: Int32s  # (basins, 6)
    grey: Int32s  # of all voxels, as whole numbers; empty where they are not known
    in_row: Int64s  # (sums, 2): powers of z and y
    # (sums along x, 2): powers of x and grey; first 1, x, x**2, grey and grey**2
    along: Int64s
    which: npt.NDArray[np.uint64]  # (sums,): which of the sums along x
    row_factor: Int64s  # (sums,): room for what is of the row
    run_factor: Int64s  # (sums along x,): room for what is of the stretch


def _no_sums(count: int, grey: Int32s | None) -> Sums:
    """Return the sums over some basins before any voxel is added, for one thread."""
    bounds = np.zeros((count, 6), np.int32)
    bounds[:, :3] = np.iinfo(np.int32).max
    known = [(0, 0), (1, 0), (2, 0), (0, 1), (0, 2)]
    along = list(dict.fromkeys([*known, *((each.x, each.grey) for each in SUMS)]))
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


class SliceRuns(NamedTuple):
    """The runs of the slice that a walk is in and of the next one, stretches of one basin along x.

    Slices take turns in two rooms, by z modulo 2.
    """

    held: Int64s  # (2, 3): of each room its slice, first row, and the one after last
    start: npt.NDArray[np.uint64]  # (2, rows + 1): the first run of each row that is held
    # (2 * rows * x,): of both rooms
    begin: Int32s
    end: Int32s  # the voxel after the last
    basin: Int32s
    # room, with eight voxels at once in words: whether the next voxel is of another basin, and
    # where such voxels are
    differs: UInt8s
    words: npt.NDArray[np.uint64]
    places: Int32s
    # (5,): of each of the rows beside, the first run not passed yet, and the one after the last
    first: npt.NDArray[np.uint64]
    last: npt.NDArray[np.uint64]


def _no_runs(rows: int, width: int) -> SliceRuns:
    """Return room for the runs of some rows of two slices, for one thread."""
    differs = np.zeros(width // 8 * 8 + 8, np.uint8)
    begin, end, basin = np.empty((3, 2 * rows * width), np.int32)
    return SliceRuns(
        np.full((2, 3), -1, np.int64),
        np.zeros((2, rows + 1), np.uint64),
        begin,
        end,
        basin,
        differs,
        differs.view(np.uint64),
        np.zeros(width + 9, np.int32),
        *np.zeros((2, len(_ROWS)), np.uint64),
    )


class Edges(NamedTuple):
    """Edges as they are found: an open-addressed table of indices, and a column for each value."""

    table: Int32s
    keys: Int64s  # a << 32 | b
    saddle: Float32s
    place: Int64s
    contacts: npt.NDArray[np.signedinteger[Any]]

    @property
    def columns(self) -> tuple[Any, ...]:
        """The columns of the edges, without the hash table."""
        return self[1:]

    def first(self, used: int) -> Edges:
        """Return a copy of the edges in use, without the table and the room for more.

        Contacts are kept in as few bits as they fit into: in noise they are most of what is kept.
        """
        contacts = self.contacts[:used]
        kind = narrowest(int(contacts.max(initial=0)))
        kept = {name: getattr(self, name)[:used].copy() for name in ("keys", "saddle", "place")}
        return Edges(table=self.table[:0].copy(), contacts=contacts.astype(kind), **kept)

    def clear(self, used: int) -> None:
        """Clear the buffers for reuse by another range of rows."""
        self.table.fill(-1)
        self.place[:used] = 0
        self.contacts[:used] = 0


#: The lowest basin of a piece; sums, bounds and crossings from there on; border crossings; edges.
Piece: TypeAlias = tuple[int, "Int64s", "Int32s", "Int64s", "Int64s", Edges]


def scan_rows(
    basins: Int32s,
    distance: Float32s,
    grey: Int32s | None,
    shape: tuple[int, int, int],
    faces_only: bool,
    offset: int,
    rooms: list[Edges],
    first: int,
    last: int,
) -> Piece:
    """Sum up the basins in a range of rows along x, and find the contacts of its voxels.

    The rows are those of the slices from `offset` on of a stack of the given shape. `grey` are grey
    values as whole numbers; None: sums of them are 0. `rooms`: for edges, which others have left
    and this one leaves.
    """
    low, high = span(basins.reshape(-1, shape[2]), first, last)
    sums = _no_sums(high - low, grey)
    crossings = np.zeros((high - low, N_DIRECTIONS), np.int64)
    border_crossings = np.zeros(N_DIRECTIONS, np.int64)
    tables = (sums, crossings, border_crossings)
    ways = _WAYS_OVER_FACES if faces_only else _WAYS
    slab = Slab(shape, offset, basins.reshape(-1), distance.reshape(-1), ways, low)
    # for all that a row can find
    edges = rooms.pop() if rooms else _no_edges(1 << (N_DIRECTIONS * shape[2] - 1).bit_length())
    used = 0
    runs = _no_runs(min(last - first, shape[1]) + 2, shape[2])
    row = first
    while row < last:
        used, row = _scan_rows(slab, runs, *tables, edges, used, row, last)
        if row < last:
            edges = _with_more_room(edges, used)
    found = edges.first(used)
    found.place[:] += offset * shape[1] * shape[2]
    edges.clear(used)
    rooms.append(edges)
    # all voxels but those that were found beside the same basin
    crossings += sums.totals[:, [index_of("voxels")]]
    return low, sums.totals, sums.bounds, crossings, border_crossings, found


@kernel
def _scan_rows(  # noqa: PLR0912, PLR0915 - see below
    slab: Slab,
    runs: SliceRuns,
    sums: Sums,
    crossings: Int64s,
    border_crossings: Int64s,
    edges: Edges,
    used: int,
    row: int,
    end_row: int,
) -> tuple[int, int]:
    """Go through rows as long as there is room; returns the number of edges, and the next row.

    How many voxels of a run have a neighbour of a run beside it follows from where both begin and
    end, for all three directions that lead to the other row.

    In one piece, because numba counts a reference to each array of a tuple that is handed on or
    looked into: that takes longer than the work on a run. What is called is given arrays.
    """
    shape, offset, flat, heights, ways, low = slab
    held, starts, begins, ends, basins, differs, words, places, firsts, lasts = runs
    totals, bounds, grey, in_row, along, which, row_factor, factor = sums
    table, keys, saddle, place, contacts = edges
    depth, height, width = shape
    # a row cannot find more edges than its voxels have contacts
    while row < end_row and keys.size - used >= N_DIRECTIONS * width:
        z, y = row // height, row % height
        at_z = z + offset
        start = row * width
        for ahead in range(2):
            # of a slice all rows that the walk comes to before the next, and those beside them
            room, low_row = (z + ahead) % 2, max(y - ahead, 0)
            high_row = min(y + end_row - row + 1, height)
            is_held = held[room, 0] == at_z + ahead
            if at_z + ahead == depth or (
                is_held and held[room, 1] <= low_row and held[room, 2] >= high_row
            ):
                continue
            held[room, 0], held[room, 1], held[room, 2] = at_z + ahead, low_row, high_row
            found = np.uint64(room * begins.size // 2)
            for at_y in range(low_row, high_row):
                starts[room, at_y - low_row] = found
                at = ((z + ahead) * height + at_y) * width
                line, all_but_last = flat[at : at + width], flat[at : at + width - 1]
                found = _find_runs(
                    line, all_but_last, differs, words, places, begins, ends, basins, found
                )
            starts[room, high_row - low_row] = found
        for r in range(len(_ROWS)):
            at_y, ahead = y + _ROWS[r, 1], _ROWS[r, 0]
            firsts[r] = lasts[r] = 0
            if 0 <= at_y < height and at_z + ahead < depth:
                room = (z + ahead) % 2
                firsts[r] = starts[room, at_y - held[room, 1]]
                lasts[r] = starts[room, at_y - held[room, 1] + 1]
        for k in range(row_factor.size):
            row_factor[k] = _power(at_z, in_row[k, 0]) * _power(y, in_row[k, 1])
        inner = 0 < at_z < depth - 1 and 0 < y < height - 1
        known, edge = -1, np.uint64(0)
        own_first, own_last = firsts[len(_ROWS) - 1], lasts[len(_ROWS) - 1]
        for run in range(own_first, own_last):
            begin, end = int(begins[run]), int(ends[run])
            a = basins[run]
            own = np.uint64(a - low)
            length = end - begin
            factor[0] = length
            factor[1] = (begin + end - 1) * length // 2
            factor[2] = (
                (end - 1) * end * (2 * end - 1) - (begin - 1) * begin * (2 * begin - 1)
            ) // 6
            if grey.size:
                value_sum = square_sum = 0
                for x in range(begin, end):
                    value = int(grey[np.uint64(start + x)])
                    value_sum += value
                    square_sum += value * value
                factor[3], factor[4] = value_sum, square_sum
                for i in range(5, factor.size):
                    value_sum = 0
                    for x in range(begin, end):
                        value = int(grey[start + x])
                        value_sum += _power(x, along[i, 0]) * _power(value, along[i, 1])
                    factor[i] = value_sum
            for k in range(which.size):
                totals[own, k] += row_factor[k] * factor[which[k]]
            bounds[own, 0] = min(bounds[own, 0], at_z)
            bounds[own, 1] = min(bounds[own, 1], y)
            bounds[own, 2] = min(bounds[own, 2], begin)
            bounds[own, 3] = max(bounds[own, 3], at_z + 1)
            bounds[own, 4] = max(bounds[own, 4], y + 1)
            bounds[own, 5] = max(bounds[own, 5], end)
            if not inner or begin == 0 or end == width:
                _add_border_crossings(border_crossings, shape, at_z, y, begin, end)
            # in its own row no basin is beside itself, so that each run is crossed once
            crossings[own, _ALONG_X] -= length - 1
            firsts[len(_ROWS) - 1], lasts[len(_ROWS) - 1] = run + _ONE, min(run + _TWO, own_last)
            for r in range(len(_ROWS)):
                reach = ways[r]
                beside = start + (_ROWS[r, 0] * height + _ROWS[r, 1]) * width
                other, beyond = firsts[r], lasts[r]
                before, level, after = _LEADING[r, 0], _LEADING[r, 1], _LEADING[r, 2]
                while other < beyond and ends[other] < begin:
                    other += _ONE
                firsts[r] = other
                while other < beyond and begins[other] <= end:
                    b = basins[other]
                    first, last = int(begins[other]), int(ends[other])
                    other += _ONE
                    at_before = max(0, min(end, last + 1) - max(begin, first + 1))
                    at_level = max(0, min(end, last) - max(begin, first))
                    at_after = max(0, min(end, last - 1) - max(begin, first - 1))
                    if b == a:
                        crossings[own, before] -= at_before
                        crossings[own, level] -= at_level
                        crossings[own, after] -= at_after
                        continue
                    key = (int(min(a, b)) << 32) | int(max(a, b))
                    if key != known:
                        slot = _find(table, keys, key)
                        if table[slot] < 0:
                            table[slot] = used
                            keys[used], saddle[used] = key, -1
                            used += 1
                        edge, known = np.uint64(table[slot]), key
                    contacts[edge, before] += at_before
                    contacts[edge, level] += at_level
                    contacts[edge, after] += at_after
                    if reach < 0:
                        continue
                    # most ways are lower than one that is known
                    x = start + max(begin, first - reach)
                    stop = start + min(end, last + reach)
                    while x < stop and heights[np.uint64(x)] < saddle[edge]:
                        x += 1
                    if x < stop:
                        saddle[edge], place[edge] = _highest_way(
                            heights, start, beside, (x - start, stop - start), (first, last), reach,
                            saddle[edge], place[edge],
                        )  # fmt: skip
        row += 1
    return used, row


@inlined
def _find_runs(
    line: Int32s,
    all_but_last: Int32s,
    differs: UInt8s,
    words: npt.NDArray[np.uint64],
    places: Int32s,
    begins: Int32s,
    ends: Int32s,
    basins: Int32s,
    found: np.uint64,
) -> np.uint64:
    """Write the runs of a row from place `found` on; returns the place after them.

    `all_but_last`: of its voxels. The other arrays are those of `SliceRuns`.
    """
    for x in range(all_but_last.size):
        differs[x] = np.uint8(line[x + 1] != all_but_last[x])
    count = 0
    for word in range(words.size):
        if words[word] != 0:
            for x in range(8 * word, 8 * word + 8):
                places[count] = x + 1
                count += int(differs[x])
    places[count] = line.size
    begin = 0
    for i in range(count + 1):
        begins[found] = begin
        ends[found] = places[i]
        basins[found] = line[begin]
        found += np.uint64(line[begin] != 0)
        begin = int(places[i])
    return found


@inlined
def _highest_way(
    heights: Float32s,
    start: int,
    beside: int,
    run: tuple[int, int],
    other: tuple[int, int],
    reach: int,
    highest: np.float32,
    earliest: int,
) -> tuple[np.float32, int]:
    """Return the highest way between two runs and where it is, or that given; of equals the first.

    `run`: the first of its voxels that count, and the one after the last, in the row from `start`
    on; `other`: the same of all of the other, in the row from `beside` on. Ways lead `reach` voxels
    along x.
    """
    first, last = other
    for x in range(run[0], run[1]):
        here = heights[start + x]
        # no way from here on lies before it
        if here < highest or (here == highest and earliest <= start + x):
            continue
        for to in range(max(first, x - reach), min(last, x + reach + 1)):
            way = min(here, heights[beside + to])
            if way >= highest:
                at = start + x if here == way else beside + to
                earliest = at if way > highest else min(earliest, at)
                highest = way
    return highest, earliest


def _no_edges(room: int) -> Edges:
    """Return a table with room for some edges, a power of two, and for as many again when it fills.

    What is not filled here takes no memory until there is an edge.
    """
    return Edges(
        np.full(4 * room, -1, np.int32),
        np.empty(room, np.int64),
        np.empty(room, np.float32),
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
def _enter(table: Int32s, keys: Int64s, used: int) -> None:
    """Enter all edges in use into a table that has none."""
    for i in range(used):
        table[_find(table, keys, keys[i])] = i


@inlined
def _add_border_crossings(
    border_crossings: Int64s, shape: tuple[int, int, int], z: int, y: int, begin: int, end: int
) -> None:
    """Count the ways out of the volume from the voxels of a run."""
    depth, height, width = shape
    for k in range(N_DIRECTIONS):
        for sense in (-1, 1):
            zk = z + sense * DIRECTIONS[k, 0]
            yk = y + sense * DIRECTIONS[k, 1]
            along_x = sense * DIRECTIONS[k, 2]
            if not (0 <= zk < depth and 0 <= yk < height):
                border_crossings[k] += end - begin
            elif (along_x < 0 and begin == 0) or (along_x > 0 and end == width):
                border_crossings[k] += 1


def span(rows: Int32s, first: int, last: int) -> tuple[int, int]:
    """Return the lowest basin in a range of rows, (rows, x), and one more than the highest."""
    low, high = _span(rows[first:last].reshape(-1).view(np.uint32))
    return int(low) + 1, int(high) + 1


@kernel
def _span(basins: npt.NDArray[np.uint32]) -> tuple[int, int]:
    """Return one less than the lowest basin, and the highest; 0 where there is none."""
    # without a sign one less than 0 is above all, so that no voxel has to be asked what it is
    low, high = np.uint32(0xFFFFFFFF), np.uint32(0)
    for i in range(basins.size):
        basin = basins[i]
        before = np.uint32(basin - np.uint32(1))
        high = basin if basin > high else high
        low = before if before < low else low
    return (int(low) if high else 0), int(high)


@inlined
def _power(base: int, exponent: int) -> int:
    value = 1
    for _ in range(exponent):
        value *= base
    return value


@inlined
def _find(table: Int32s, keys: Int64s, key: int) -> np.uint64:
    """Return the slot of a key in an open-addressed table, or the free slot where it belongs."""
    # basins near each other have numbers near each other, and so have the slots of what touches at
    # a time, which stay in the cache; where many are taken steps that mix the key lead far away
    mask, mixed = np.uint64(table.size - 1), np.uint64(key)
    lower, higher = mixed >> np.uint64(32), mixed & np.uint64(0xFFFFFFFF)
    slot = (lower * np.uint64(8) + higher * np.uint64(3)) & mask
    step, tries = _ONE, 0
    while table[slot] >= 0 and keys[np.uint64(table[slot])] != key:
        if tries == _NEAR:
            step = (mixed * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(24) | _ONE
        slot, tries = (slot + step) & mask, tries + 1
    return slot
