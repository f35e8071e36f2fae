"""The graph of neighbouring basins, and the sums over each basin that its measures come from.

One pass over the labels finds both. Everything in it adds up when basins merge: voxels, moments,
bounds, contacts. So the basins are measured once, and a different merging of them is measured from
this graph without going through the volume again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.pores.parallel import Workers

#: Steps (z, y, x) to the half of the 26 neighbours that come later; the three axes first.
DIRECTIONS = np.array(
    [
        *((1, 0, 0), (0, 1, 0), (0, 0, 1)),
        *((0, 1, 1), (0, 1, -1), (1, 0, 1), (1, 0, -1), (1, 1, 0), (1, -1, 0)),
        *((1, 1, 1), (1, 1, -1), (1, -1, 1), (1, -1, -1)),
    ],
    np.int64,
)

#: Columns of `BasinGraph.sums`: voxels, coordinates, their products.
SUMS = ("n", "z", "y", "x", "zz", "yy", "xx", "zy", "zx", "yx")
_N_SUMS = len(SUMS)
_N_DIRECTIONS = len(DIRECTIONS)


@dataclass(frozen=True, eq=False)
class BasinGraph:
    """Basins, 1 to n, and where they touch. Row 0 of the tables of basins is not used.

    Attributes
    ----------
    summit : numpy.ndarray
        (n + 1,), int64: flat index of the summit.
    peak : numpy.ndarray
        (n + 1,), float32: squared distance there.
    sums : numpy.ndarray
        (n + 1, 10), int64: see `SUMS`; coordinates in voxels.
    ends : numpy.ndarray
        (n + 1, 13), int64: voxels whose neighbour in a direction (`DIRECTIONS`) is not of the
        same basin; in that direction the basin's surface is crossed twice as often.
    bounds : numpy.ndarray
        (n + 1, 6), int32: first voxel and the one after the last, in z, y and x.
    is_open : numpy.ndarray
        (n + 1,), bool: whether the void at the summit is connected to a face of the volume.
    cuts : numpy.ndarray
        (13,), int64: crossings, by direction, that are where a face of the volume cuts a basin.
    a, b : numpy.ndarray
        (edges,), int32: two basins that touch, ``a < b``; sorted.
    saddle : numpy.ndarray
        (edges,), float32: the highest squared distance at which one can cross between them.
    saddle_at : numpy.ndarray
        (edges,), int64: flat index of the voxel there.
    contacts : numpy.ndarray
        (edges, 13), int32: pairs of neighbouring voxels across, by direction; the first three are
        shared faces.
    """

    summit: npt.NDArray[np.int64]
    peak: npt.NDArray[np.float32]
    sums: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.int32]
    is_open: npt.NDArray[np.bool_]
    cuts: npt.NDArray[np.int64]
    a: npt.NDArray[np.int32]
    b: npt.NDArray[np.int32]
    saddle: npt.NDArray[np.float32]
    saddle_at: npt.NDArray[np.int64]
    contacts: npt.NDArray[np.int32]

    @property
    def count(self) -> int:
        """Number of basins."""
        return int(self.peak.size) - 1


def build_graph(
    basins: npt.NDArray[np.int32],
    summits: npt.NDArray[np.int64],
    distance: npt.NDArray[np.float32],
    summit_is_open: npt.NDArray[np.bool_],
    workers: Workers,
) -> BasinGraph:
    """Measure all basins and find where they touch.

    Parameters
    ----------
    basins : numpy.ndarray
        (z, y, x), int32: 1 to n, 0 in the solid.
    summits : numpy.ndarray
        (n,), int64: flat index of each basin's summit.
    distance : numpy.ndarray
        (z, y, x), float32: squared distance.
    summit_is_open : numpy.ndarray
        (n,), bool: whether the void at each summit is connected to a face of the volume.
    workers : Workers
        Threads to run on.
    """
    count = summits.size
    sums = np.zeros((count + 1, _N_SUMS), np.int64)
    ends = np.zeros((count + 1, _N_DIRECTIONS), np.int64)
    bounds = np.zeros((count + 1, 6), np.int32)
    bounds[:, :3] = np.iinfo(np.int32).max
    pieces = workers.over(len(basins), _scan, basins, distance, smallest=8)
    cuts = np.zeros(_N_DIRECTIONS, np.int64)
    for low, piece_sums, piece_bounds, piece_ends, piece_cuts, _ in pieces:
        cuts += piece_cuts
        part = slice(low, low + len(piece_sums))
        sums[part] += piece_sums
        ends[part] += piece_ends
        np.minimum(bounds[part, :3], piece_bounds[:, :3], out=bounds[part, :3])
        np.maximum(bounds[part, 3:], piece_bounds[:, 3:], out=bounds[part, 3:])
    peak = np.zeros(count + 1, np.float32)
    peak[1:] = distance.reshape(-1)[summits]
    summit = np.full(count + 1, -1, np.int64)
    summit[1:] = summits
    is_open = np.zeros(count + 1, np.bool_)
    is_open[1:] = summit_is_open
    edges = _join_edges([piece_edges for *_, piece_edges in pieces])
    return BasinGraph(summit, peak, sums, ends, bounds, is_open, cuts, *edges)


class _Edges(NamedTuple):
    """Edges as they are found: an open-addressed table of indices, and a column for each value."""

    table: npt.NDArray[np.int32]
    keys: npt.NDArray[np.int64]  # a << 32 | b
    saddle: npt.NDArray[np.float32]
    place: npt.NDArray[np.int64]
    contacts: npt.NDArray[np.int32]

    def first(self, used: int) -> _Edges:
        """Return the edges in use, without the room for more."""
        return self._replace(
            keys=self.keys[:used],
            saddle=self.saddle[:used],
            place=self.place[:used],
            contacts=self.contacts[:used],
        )


def _join_edges(
    pieces: list[_Edges],
) -> tuple[
    npt.NDArray[np.int32],
    npt.NDArray[np.int32],
    npt.NDArray[np.float32],
    npt.NDArray[np.int64],
    npt.NDArray[np.int32],
]:
    """Join the edges that more than one piece of the volume has found."""
    keys = np.concatenate([piece.keys for piece in pieces])
    saddle = np.concatenate([piece.saddle for piece in pieces])
    place = np.concatenate([piece.place for piece in pieces])
    contacts = np.concatenate([piece.contacts for piece in pieces])
    order = np.lexsort((place, -saddle, keys))
    keys, saddle, place = keys[order], saddle[order], place[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    if first.size:
        contacts = np.add.reduceat(contacts[order], first, axis=0, dtype=np.int32)
    keys = keys[first]
    a = (keys >> 32).astype(np.int32)
    b = (keys & 0xFFFFFFFF).astype(np.int32)
    return a, b, saddle[first], place[first], contacts


def _scan(
    basins: npt.NDArray[np.int32], distance: npt.NDArray[np.float32], first: int, last: int
) -> tuple[
    int,
    npt.NDArray[np.int64],
    npt.NDArray[np.int32],
    npt.NDArray[np.int64],
    npt.NDArray[np.int64],
    _Edges,
]:
    """Sum up the basins in a range of slices, and find the contacts of its voxels.

    Returns the lowest basin met; sums, bounds and ends of the basins from there on; and the cuts
    and edges.
    """
    low, high = _span(basins, first, last)
    sums = np.zeros((high - low, _N_SUMS), np.int64)
    bounds = np.zeros((high - low, 6), np.int32)
    bounds[:, :3] = np.iinfo(np.int32).max
    _sum_up(basins, low, sums, bounds, first, last)
    ends = np.zeros((high - low, _N_DIRECTIONS), np.int64)
    cuts = np.zeros(_N_DIRECTIONS, np.int64)
    empty = _no_edges(1 << 10)
    used, edges = _find_contacts(basins, distance, low, ends, cuts, empty, first, last)
    return low, sums, bounds, ends, cuts, edges.first(used)


@kernel
def _find_contacts(
    basins: npt.NDArray[np.int32],
    distance: npt.NDArray[np.float32],
    low: int,
    ends: npt.NDArray[np.int64],
    cuts: npt.NDArray[np.int64],
    edges: _Edges,
    first: int,
    last: int,
) -> tuple[int, _Edges]:
    """Count the ends of basins and collect the edges between them; returns how many, and them."""
    depth, height, width = basins.shape
    flat = basins.reshape(-1)
    heights = distance.reshape(-1)
    steps = (DIRECTIONS[:, 0] * height + DIRECTIONS[:, 1]) * width + DIRECTIONS[:, 2]
    used = 0
    edge = 0
    for z in range(first, last):
        for y in range(height):
            inner_row = 0 < z < depth - 1 and 0 < y < height - 1
            for x in range(width):
                voxel = (z * height + y) * width + x
                a = flat[voxel]
                inside = inner_row and 0 < x < width - 1
                if a == 0 or (inside and _is_alone(flat, voxel, steps, a)):
                    continue
                if not inside:
                    _add_cuts(cuts, basins.shape, z, y, x)
                for k in range(_N_DIRECTIONS):
                    other = voxel + steps[k]
                    b = flat[other] if inside or _within(basins.shape, z, y, x, k, 1) else 0
                    if b == a:
                        continue
                    ends[a - low, k] += 1
                    if b == 0:
                        continue
                    key = (int(min(a, b)) << 32) | int(max(a, b))
                    if used == 0 or edges.keys[edge] != key:
                        if used == edges.keys.size:
                            edges = _with_more_room(edges)
                        slot = _find(edges.table, edges.keys, key)
                        if edges.table[slot] < 0:
                            edges.table[slot] = used
                            edges.keys[used] = key
                            used += 1
                        edge = edges.table[slot]
                    _add_contact(edges, edge, k, voxel, other, heights)
    return used, edges


@kernel
def _add_contact(
    edges: _Edges,
    edge: int,
    k: int,
    voxel: int,
    other: int,
    heights: npt.NDArray[np.float32],
) -> None:
    """Count a pair of voxels in direction `k`, and keep the highest way across an edge."""
    lower = min(heights[voxel], heights[other])
    place = voxel if heights[voxel] == lower else other
    highest = edges.saddle[edge]
    if lower > highest or (lower == highest and place < edges.place[edge]):
        edges.saddle[edge] = lower
        edges.place[edge] = place
    edges.contacts[edge, k] += 1


@kernel
def _no_edges(room: int) -> _Edges:
    """Return a table with room for some edges, and for as many again before it is slow."""
    return _Edges(
        np.full(4 * room, -1, np.int32),
        np.full(room, -1, np.int64),
        np.full(room, -1.0, np.float32),
        np.zeros(room, np.int64),
        np.zeros((room, _N_DIRECTIONS), np.int32),
    )


@kernel
def _with_more_room(edges: _Edges) -> _Edges:
    """Return a full table in twice its room."""
    used = edges.keys.size
    wider = _no_edges(2 * used)
    wider.keys[:used] = edges.keys
    wider.saddle[:used] = edges.saddle
    wider.place[:used] = edges.place
    wider.contacts[:used] = edges.contacts
    for i in range(used):
        wider.table[_find(wider.table, wider.keys, wider.keys[i])] = i
    return wider


@kernel
def _is_alone(
    flat: npt.NDArray[np.int32], voxel: int, steps: npt.NDArray[np.int64], a: int
) -> bool:
    """Whether all the later neighbours of a voxel are of its own basin."""
    different = np.int32(0)
    for k in range(_N_DIRECTIONS):
        different |= flat[voxel + steps[k]] ^ a
    return bool(different == 0)


@kernel
def _within(shape: tuple[int, int, int], z: int, y: int, x: int, k: int, sense: int) -> bool:
    """Whether the neighbour of a voxel in direction `k`, or against it, is in the volume."""
    z += sense * DIRECTIONS[k, 0]
    y += sense * DIRECTIONS[k, 1]
    x += sense * DIRECTIONS[k, 2]
    return 0 <= z < shape[0] and 0 <= y < shape[1] and 0 <= x < shape[2]


@kernel
def _add_cuts(
    cuts: npt.NDArray[np.int64], shape: tuple[int, int, int], z: int, y: int, x: int
) -> None:
    """Count the ways out of the volume from a voxel on one of its faces."""
    for k in range(_N_DIRECTIONS):
        for sense in (-1, 1):
            if not _within(shape, z, y, x, k, sense):
                cuts[k] += 1


@kernel
def _span(basins: npt.NDArray[np.int32], first: int, last: int) -> tuple[int, int]:
    """Return the lowest basin in a range of slices, and one more than the highest."""
    low = 2147483647
    high = 0
    for basin in basins[first:last].reshape(-1):
        high = max(high, int(basin))
        if basin > 0:
            low = min(low, int(basin))
    if high == 0:
        return 1, 1
    return low, high + 1


@kernel
def _sum_up(
    basins: npt.NDArray[np.int32],
    low: int,
    sums: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int32],
    first: int,
    last: int,
) -> None:
    """Add the voxels of a range of slices to the sums and bounds of their basins, run by run."""
    _, height, width = basins.shape
    for z in range(first, last):
        for y in range(height):
            line = basins[z, y]
            x = 0
            while x < width:
                basin = line[x]
                begin = x
                while x < width and line[x] == basin:
                    x += 1
                if basin > 0:
                    _add_run(sums[basin - low], bounds[basin - low], z, y, begin, x)


@kernel
def _add_run(
    sums: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int32],
    z: int,
    y: int,
    begin: int,
    end: int,
) -> None:
    """Add the voxels ``begin`` to ``end`` of a row to the sums of their basin."""
    n = end - begin
    sum_x = (begin + end - 1) * n // 2
    sum_xx = 0
    for x in range(begin, end):
        sum_xx += x * x
    sums[0] += n
    sums[1] += n * z
    sums[2] += n * y
    sums[3] += sum_x
    sums[4] += n * z * z
    sums[5] += n * y * y
    sums[6] += sum_xx
    sums[7] += n * z * y
    sums[8] += z * sum_x
    sums[9] += y * sum_x
    bounds[0] = min(bounds[0], z)
    bounds[1] = min(bounds[1], y)
    bounds[2] = min(bounds[2], begin)
    bounds[3] = max(bounds[3], z + 1)
    bounds[4] = max(bounds[4], y + 1)
    bounds[5] = max(bounds[5], end)


@kernel
def _find(table: npt.NDArray[np.int32], keys: npt.NDArray[np.int64], key: int) -> int:
    """Return the slot of a key in an open-addressed table, or the free slot where it belongs."""
    mask = table.size - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = int(mixed >> np.uint64(24)) & mask
    while table[slot] >= 0 and keys[table[slot]] != key:
        slot = (slot + 1) & mask
    return slot
