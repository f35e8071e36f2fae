"""Graph of neighbouring basins, and the sums over each basin from which it is measured.

One pass over the labels finds both. Everything in the graph is additive when basins merge (voxels,
moments, bounds, contacts), so another merging is measured from the graph without another pass over
the volume.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, fields
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.geometry.contacts import N_DIRECTIONS, scan_rows
from hushpore.pores.geometry.sums import (
    SUMS,
    counting,
    in_64_bits,
    index_of,
    mark_grey_unknown,
    narrowest,
    order_of,
)
from hushpore.pores.parallel import kernel
from hushpore.pores.void.threshold import AS_IS, Rounding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float32s, Int32s, Int64s, UInt8s
    from hushpore.pores.geometry.contacts import Edges, Piece
    from hushpore.pores.parallel import KernelThreads

    #: Distinct squared peak distances, number of basins with each, and of isolated ones among them.
    Peaks = tuple[Float32s, Int64s, Int64s]


#: Voxels processed at once, so that results stay in the cache of a thread.
_AT_A_TIME = 1 << 20

#: Prefix of the names of its arrays in a file.
_PREFIX = "graph_"


@dataclass(frozen=True, eq=False)
class BasinGraph:
    """Basins 1 to n and their contacts; row 0 of the tables of basins is unused."""

    peak: Int64s  # (n + 1,), int64: flat index of the peak
    peak_squared_distance: Float32s  # (n + 1,), float32: squared distance there
    # (n + 1, sums), int64: `hushpore.pores.geometry.sums.SUMS`; coordinates in voxels
    sums: Int64s
    # (n + 1, 13), int32, of 2**31 voxels or more int64: voxels whose neighbour in a direction
    # (`surface.DIRECTIONS`) is not of the same basin; in that direction the basin's surface is
    # crossed twice as often
    crossings: npt.NDArray[np.signedinteger[Any]]
    # (n + 1, 6), int32: first voxel and the one after the last, in z, y and x
    bounds: Int32s
    # (n + 1,), int64: voxels of void that is closed; where corners touch, basins hold both kinds
    closed_voxels: Int64s
    # (13,), int64: crossings, by direction, that are where a face of the volume cuts a basin, or
    # where one opens into the air outside the sample
    border_crossings: Int64s
    # (edges,), int32: two basins that touch, ``a < b``; sorted
    a: Int32s
    b: Int32s
    # (edges,), float32: the highest squared distance at which one can cross between them; -1 where
    # they touch over edges and corners of voxels, and only faces are ways
    saddle: Float32s
    saddle_at: Int64s  # (edges,), int64: flat index of the voxel there
    # (edges, 13), int8, int16 or int32, as all fit: pairs of neighbouring voxels across, by
    # direction; the first three are shared faces
    contacts: npt.NDArray[np.signedinteger[Any]]
    rounding: Rounding = AS_IS  # of grey values to the whole numbers that are summed up

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array]) -> BasinGraph:
        """Return the graph that is stored in `arrays`.

        Raises KeyError if one of them is missing.
        """
        parts: dict[str, Any] = {each.name: arrays[_PREFIX + each.name] for each in fields(cls)}
        return cls(**parts | {"rounding": Rounding(*map(float, parts["rounding"]))})

    @property
    def arrays(self) -> dict[str, Array]:
        """All arrays by name, for storage."""
        return {_PREFIX + each.name: np.asarray(getattr(self, each.name)) for each in fields(self)}

    @property
    def count(self) -> int:
        """Number of basins."""
        return int(self.peak_squared_distance.size) - 1

    @property
    def voxels(self) -> Int64s:
        """Voxels of each basin (n + 1,)."""
        voxels: Int64s = self.sums[:, index_of("voxels")]
        return voxels

    @cached_property
    def peaks(self) -> Peaks:
        """Distinct squared peak distances, ascending, with their counts.

        Returns: (n,), float32: distinct values; (n,), int64: number of basins with each; (n,),
        int64: number of isolated basins among them.
        """
        touches = np.zeros(self.count + 1, np.bool_)
        for ends in self.ends_of_ways:
            touches[ends] = True
        return count_peaks(self.peak_squared_distance[1:], ~touches[1:])

    @property
    def ends_of_ways(self) -> tuple[Int32s, Int32s]:
        """`a` and `b` of the edges with a passage."""
        is_way = self.saddle >= 0
        if is_way.all():
            return self.a, self.b
        return self.a[is_way], self.b[is_way]

    @cached_property
    def by_neck(self) -> Int64s:
        """Edges with a passage from the widest neck to the narrowest, in a unique order."""
        # the bits of floats from 0 on are in order as integers, and those below 0 below all
        key = self.saddle.view(np.int32).astype(np.int64)
        key <<= 32
        np.negative(key, out=key)
        # of equally wide ones those with more contacts come first
        for along in self.contacts.T:
            key -= along
        # edges are sorted, so that of equal ones the first come first: those of the lower basins
        is_way = self.saddle >= 0
        if is_way.all():
            return order_of(key)
        ways = np.flatnonzero(is_way)
        return ways[order_of(key[ways])]


def number_keys(keys: Int64s) -> tuple[Int64s, Int64s]:
    """Return the distinct keys, sorted, and the index of each key among them, both int64.

    Like `numpy.unique` with ``return_inverse``, but faster.
    """
    order = order_of(keys)
    in_order = keys[order]
    is_new = np.ones(keys.size, np.bool_)
    np.not_equal(in_order[1:], in_order[:-1], out=is_new[1:])
    place = np.empty(keys.size, np.int64)
    place[order] = np.cumsum(is_new) - 1
    return in_order[is_new], place


def count_peaks(squared_distance: Float32s, isolated: Array) -> Peaks:
    """Return the distinct squared peak distances and their counts; see `BasinGraph.peaks`.

    `squared_distance`: (peaks,), float32. `isolated`: (peaks,), bool: basins without contacts.
    """
    values, counts = np.unique(squared_distance, return_counts=True)
    some, how_many = np.unique(squared_distance[isolated], return_counts=True)
    isolated_counts = np.zeros_like(counts)
    isolated_counts[np.searchsorted(values, some)] = how_many
    return values, counts, isolated_counts


class Tables:
    """Accumulator of basin measures and edges for a stack that is processed slab by slab.

    `shape`: (z, y, x) of the stack. `peaks`: (n,), int64: flat index of each basin's peak.
    `faces_only`: whether one crosses between basins over the faces of voxels only. `scan`: does
    what `contacts.scan_rows` does to all slices of a slab in one piece, elsewhere.
    """

    def __init__(
        self,
        shape: Sequence[int],
        peaks: Int64s,
        *,
        faces_only: bool = False,
        scan: Callable[..., Piece] | None = None,
    ) -> None:
        count = peaks.size
        self._scan = scan
        self._faces_only = faces_only
        self._shape = (int(shape[0]), int(shape[1]), int(shape[2]))
        self._peaks = peaks
        self._closed_voxels = np.zeros(count + 1, np.int64)
        self._peak_squared_distance = np.zeros(count + 1, np.float32)
        self._sums = np.zeros((count + 1, len(SUMS)), np.int64)
        # along a direction a basin is left no more often than it has voxels
        counts = counting(math.prod(self._shape))
        self._crossings = np.zeros((count + 1, N_DIRECTIONS), counts)
        self._bounds = np.zeros((count + 1, 6), np.int32)
        self._bounds[:, :3] = np.iinfo(np.int32).max
        self._border_crossings = np.zeros(N_DIRECTIONS, np.int64)
        self._has_grey = True
        self._edges: list[Edges] = []
        self._rooms: list[Edges] = []  # one for each thread, as wide as it has needed

    def add(
        self,
        basins: Int32s,
        distance: Float32s,
        threads: KernelThreads,
        first: int = 0,
        last: int | None = None,
        grey: Int32s | None = None,
    ) -> None:
        """Add the slices `first` to `last` of the stack, by default all.

        `basins`: (z, y, x), int32: 1 to n, 0 in the solid; of these slices, and of the one after
        them where there is one. `distance`: (z, y, x), float32: squared distance, of the same
        slices. `grey`: (z, y, x), int32: grey values of these slices as whole numbers
        (`RoundedGrey`), where they are known.
        """
        slices, height, width = basins.shape
        own = slices if last is None else last - first
        self._has_grey &= grey is not None
        where = (basins, distance, grey, self._shape, self._faces_only, first)
        lock = Lock()

        def scan(first: int, last: int) -> None:
            # a piece has tables of all basins between the lowest and the highest in it, in wide
            # slices most of the slab's: each is added, and let go, before its thread has another
            piece = scan_rows(*where, self._rooms, first, last)
            with lock:
                self._add(*piece)

        if self._scan is None:
            most = max(1, _AT_A_TIME // width)
            threads.over(own * height, scan, smallest=min(8 * height, most), largest=most)
        else:
            self._add(*self._scan(*where, own))
        start = first * height * width
        own_peaks = slice(*np.searchsorted(self._peaks, [start, start + own * height * width]))
        self._peak_squared_distance[1:][own_peaks] = distance.reshape(-1)[
            self._peaks[own_peaks] - start
        ]

    def _add(
        self,
        low: int,
        sums: Int64s,
        bounds: Int32s,
        crossings: Int64s,
        border_crossings: Int64s,
        edges: Edges,
    ) -> None:
        """Add what a `Piece` holds."""
        part = slice(low, low + len(sums))
        self._border_crossings += border_crossings
        self._sums[part] += sums
        self._crossings[part] += crossings
        np.minimum(self._bounds[part, :3], bounds[:, :3], out=self._bounds[part, :3])
        np.maximum(self._bounds[part, 3:], bounds[:, 3:], out=self._bounds[part, 3:])
        self._edges.append(edges)

    def add_closed(self, basins: Int32s, closed: UInt8s, threads: KernelThreads) -> None:
        """Count the voxels of closed void in some slices.

        `basins`: (z, y, x), int32. `closed`: of the same slices, see
        `hushpore.pores.void.components.closed_bits`.
        """
        found = threads.over(len(basins), _count_closed, basins, closed, smallest=8)
        for low, counts in itertools.chain.from_iterable(found):
            self._closed_voxels[low : low + counts.size] += counts

    def graph(self, rounding: Rounding = AS_IS, air_crossings: Int64s | int = 0) -> BasinGraph:
        """Return the graph, after the last slab is added.

        `rounding`: of grey values. `air_crossings`: (13,), int64: crossings into the air outside
        the sample, by direction.
        """
        self._rooms.clear()
        if not self._has_grey:
            mark_grey_unknown(self._sums)
        return BasinGraph(
            peak=np.concatenate([[-1], self._peaks]),
            peak_squared_distance=self._peak_squared_distance,
            sums=self._sums,
            crossings=self._crossings,
            bounds=self._bounds,
            closed_voxels=self._closed_voxels,
            border_crossings=self._border_crossings + air_crossings,
            **_join_edges(self._edges),
            rounding=rounding,
        )


def _count_closed(
    basins: Int32s, closed: UInt8s, first: int, last: int
) -> list[tuple[int, Int64s]]:
    """Return, of slices that have closed void, its lowest basin, and the voxels from it on.

    `closed`: see `hushpore.pores.void.components.closed_bits`.
    """
    found = []
    for plane, bits in zip(basins[first:last], closed[first:last], strict=True):
        if bits.any():
            is_closed = np.unpackbits(bits, axis=-1, count=plane.shape[1])
            own = plane[is_closed.view(np.bool_)]
            low = int(own.min())
            found.append((low, np.bincount(own - low)))
    return found


def _join_edges(pieces: list[Edges]) -> dict[str, Array]:
    """Join the edges of all pieces of the volume; empties the list.

    Pieces are freed one by one, since in noise edges take more memory than voxels.
    """
    keys, which = number_keys(np.concatenate([piece.keys for piece in pieces]))
    saddle = np.full(keys.size, -1, np.float32)
    place = np.zeros(keys.size, np.int64)
    contacts = np.zeros((keys.size, N_DIRECTIONS), np.int8)
    first = 0
    while pieces:
        piece = pieces.pop(0)
        # within a piece every edge is there once
        at = which[first : first + piece.keys.size]
        first += piece.keys.size
        for start, part in in_64_bits(piece.contacts):
            rows = at[start : start + len(part)]
            total = contacts[rows] + part
            # what does not fit into the type needs a wider one
            kind = narrowest(int(total.max(initial=0)))
            contacts = contacts.astype(np.promote_types(kind, contacts.dtype), copy=False)
            contacts[rows] = total
        widest_ways(piece.saddle, piece.place, at, saddle, place)
    a = (keys >> 32).astype(np.int32)
    b = (keys & 0xFFFFFFFF).astype(np.int32)
    return {"a": a, "b": b, "saddle": saddle, "saddle_at": place, "contacts": contacts}


@kernel
def widest_ways(
    saddle: Float32s, place: Int64s, to: Int64s, highest: Float32s, earliest: Int64s
) -> None:
    """Take over, for each edge, its saddle into a row of another table where it is the highest.

    `saddle`, `place`, `to`: (n,): squared distance, where it is, and the row. `highest`,
    `earliest`: (m,): those so far, -1 and 0 at first. Of equal ones the first in memory counts.
    """
    for i in range(saddle.size):
        at = to[i]
        if saddle[i] > highest[at] or (saddle[i] == highest[at] and place[i] < earliest[at]):
            highest[at] = saddle[i]
            earliest[at] = place[i]
