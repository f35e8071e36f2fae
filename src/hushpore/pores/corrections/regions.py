"""Pores as regions of voxels whose measures are updated where voxels change.

Every sum, contact and distance of a region depends on its own voxels and on the void around them.
So after a change the regions that it touches are scanned again, with the kernels of a segmentation,
and all others keep their measures.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.corrections.boxes import box_of, grown, moved
from hushpore.pores.geometry.contacts import N_DIRECTIONS
from hushpore.pores.geometry.sums import SUMS, index_of
from hushpore.pores.geometry.surface import DIRECTIONS
from hushpore.pores.slabs import Slabs
from hushpore.pores.topology.euler import euler_of_slab
from hushpore.pores.void.components import AIR, CLOSED, OPEN, SOLID, Components, find_runs
from hushpore.pores.void.rolling_ball import face_neighbours
from hushpore.pores.watershed.distance import edge_plane, fill_distance
from hushpore.pores.watershed.graph import BasinGraph, Tables
from hushpore.pores.watershed.merging import Numbering

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float32s, Int32s, Int64s, Mask, UInt8s
    from hushpore.pores.corrections.boxes import Box
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.void.grey import RoundedGrey

#: Voxels by which a region of changed distances is searched at first.
_REACH = 8

#: Names of the columns of `BasinGraph` with one row per basin that `Regions` keeps per region.
_ROWS = ("sums", "crossings", "bounds", "closed_voxels", "peak_squared_distance", "peak")

#: Names of the columns of `BasinGraph` with one row per edge.
_EDGES = ("a", "b", "saddle", "saddle_at", "contacts")


class Regions:
    """The pores of a volume, the excluded void, and their measures.

    Parameters
    ----------
    labels : numpy.ndarray
        (z, y, x), int32: labels of the pores; copied.
    basins : numpy.ndarray
        (z, y, x), int32: basins of the void, of which pores consist.
    graph : BasinGraph
        Graph of the basins.
    numbering : Numbering
        Assignment of the basins to the pores of `labels`.
    phase : numpy.ndarray
        (z, y, x), uint8: the void is `OPEN`; 0 is solid, `AIR` and above the exterior. Kept.
    grey : RoundedGrey, optional
        Grey values; None if they are not known.
    spacing : tuple of float
        Voxel size (z, y, x).
    faces : tuple of bool
        Whether the volume has faces along each axis; an image has none along z.
    solid_beyond : tuple of bool
        Whether there is solid beyond the faces along each axis.
    highest_void : int
        Highest value of `phase` that counts as void when distances are measured.
    threads : KernelThreads
        Threads that scan; open while voxels change.
    faces_only : bool
        Whether only voxels that share a face are connected.

    Attributes
    ----------
    values : numpy.ndarray
        (z, y, x), int32: labels of the pores from 1; excluded void is numbered from -1 down, one
        number per basin; 0 is everything else.
    """

    def __init__(
        self,
        labels: Int32s,
        basins: Int32s,
        graph: BasinGraph,
        numbering: Numbering,
        phase: UInt8s,
        grey: RoundedGrey | None,
        spacing: tuple[float, ...],
        faces: tuple[bool, bool, bool],
        solid_beyond: tuple[bool, ...],
        highest_void: int,
        threads: KernelThreads,
        *,
        faces_only: bool,
    ) -> None:
        self.phase, self.spacing, self._faces = phase, spacing, faces
        self._solid_beyond, self._highest, self._faces_only = solid_beyond, highest_void, faces_only
        self._grey, self._threads = grey, threads
        self._rounding = graph.rounding
        # excluded basins get numbers below 0, which index their rows from the end of the tables
        region_of = numbering.names[numbering.label_of]
        excluded = np.flatnonzero(region_of[1:] == 0) + 1
        region_of[excluded] = -np.arange(1, excluded.size + 1)
        self.values: Int32s = np.array(labels, np.int32)
        if excluded.size:
            rest = (labels == 0) & (basins != 0)
            self.values[rest] = region_of[basins[rest]]
        highest = int(numbering.names.max(initial=0))
        self._excluded = excluded.size
        self._rows: dict[str, Array] = {}
        self._highest_label = -1
        self._make_rows(highest)
        self._sum_up(graph, region_of)
        self._border_crossings = graph.border_crossings.astype(np.int64)
        self._beside_air: Mask | None = None
        self._closed: Mask | None = None  # closed void, if there is any
        self.has_air = bool((phase >= AIR).any())

    # ---- what is known

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the volume (z, y, x)."""
        depth, height, width = self.values.shape
        return depth, height, width

    @property
    def has_excluded(self) -> bool:
        """Whether some void belongs to no pore."""
        return self._excluded > 0

    @property
    def pores(self) -> Int64s:
        """Labels of the pores, ascending."""
        voxels = self._rows["sums"][: self._highest_label + 1, index_of("voxels")]
        return np.flatnonzero(voxels)

    def voxels(self, label: int) -> int:
        """Return the number of voxels of a pore; 0 if there is no such pore."""
        if not 0 < label <= self._highest_label:
            return 0
        return int(self._rows["sums"][label, index_of("voxels")])

    def bounding_box(self, label: int) -> Box:
        """Return the bounding box of a pore."""
        return box_of(self._rows["bounds"][label])

    def distance_in(self, box: Box) -> Float32s:
        """Return the squared distance to the solid in a box, in squared smallest voxels."""
        flags = np.zeros(len(self._rows["peak"]), np.bool_)
        flags[self.values[box]] = True
        flags[0] = False
        guess = self._rows["peak_squared_distance"][flags].max(initial=0)
        return self._distance(box, math.sqrt(guess))

    def graph(self) -> tuple[BasinGraph, Numbering]:
        """Return the regions as basins of a graph, and their assignment to pores."""
        pores = self.pores
        regions = np.concatenate([pores, self._excluded_left()])
        node_of = self.node_of()
        rows: dict[str, Any] = {
            name: np.concatenate([np.zeros_like(table[:1]), table[regions]])
            for name, table in self._rows.items()
        }
        rows["peak"][0] = -1
        edges = dict(self._edges)
        a, b = node_of[edges["a"]], node_of[edges["b"]]
        edges["a"], edges["b"] = np.minimum(a, b), np.maximum(a, b)
        order = np.lexsort((edges["b"], edges["a"]))
        graph = BasinGraph(
            **rows,
            **{name: column[order] for name, column in edges.items()},
            border_crossings=self._border_crossings.copy(),
            rounding=self._rounding,
        )
        label_of = np.zeros(regions.size + 1, np.int32)
        label_of[1 : pores.size + 1] = np.arange(1, pores.size + 1)
        root = np.arange(1, pores.size + 1, dtype=np.int32)
        return graph, Numbering(label_of, root, np.append(0, pores).astype(np.int32))

    def node_of(self) -> Int32s:
        """Return the basin of `graph` of each value of a voxel."""
        pores, excluded = self.pores, self._excluded_left()
        found = np.zeros(len(self._rows["peak"]), np.int32)
        found[pores] = np.arange(1, pores.size + 1)
        found[excluded] = pores.size + np.arange(1, excluded.size + 1)
        return found

    def _excluded_left(self) -> Int64s:
        """Return the numbers of the excluded void that is left."""
        voxels = self._rows["sums"][-1 : -self._excluded - 1 : -1, index_of("voxels")]
        return -1 - np.flatnonzero(voxels)

    # ---- changing voxels

    def write(self, at: Int64s, values: Int32s) -> tuple[Int32s, int]:
        """Change voxels and measure the regions again that the change touches.

        Parameters
        ----------
        at : numpy.ndarray
            (n,), int64: flat indices of the voxels, each once; none in the exterior.
        values : numpy.ndarray
            (n,), int32: their new values, as in `values`.

        Returns
        -------
        tuple
            The values before, and by how much the Euler number of the void has changed.
        """
        self._make_rows(int(values.max(initial=0)))
        flat, phase = self.values.reshape(-1), self.phase.reshape(-1)
        before = flat[at]
        touched = self._flags(np.concatenate([before, values]))
        is_void = values != 0
        changes_void = is_void != (before != 0)
        bounds = self._bounds_of(at)
        euler = 0
        if changes_void.any():
            near = self._near(self._bounds_of(at[changes_void]))
            distance = self._distance(near, _REACH)
            around = grown(box_of(self._bounds_of(at[changes_void])), (1, 1, 1), self.shape)
            euler = -self._euler_number(around)
        if self._closed is not None:
            is_closed = self._closed.reshape(-1)[at]
            np.subtract.at(self._rows["closed_voxels"], before[is_closed], 1)
            np.add.at(self._rows["closed_voxels"], values[is_closed], 1)
            self._rows["closed_voxels"][0] = 0
        flat[at] = values
        phase[at] = np.where(is_void, np.uint8(OPEN), np.uint8(SOLID))
        if changes_void.any():
            changed = self._distance(near, _REACH) != distance
            touched |= self._flags(self.values[near][changed])
            euler += self._euler_number(around)
            for sign, voxels in (
                (1, at[changes_void & is_void]),
                (-1, at[changes_void & ~is_void]),
            ):
                self._border_crossings += sign * self._crossings_out(voxels)
        self._measure(touched, bounds)
        return before, euler

    def count_open(self) -> tuple[int, int, int]:
        """Find which void is open and count the closed voxels of each region.

        Call it at first, and when the void has changed.

        Returns
        -------
        tuple of int
            Open voxels, closed voxels, and connected components of the void.
        """
        runs = find_runs(self.phase, self._threads)
        marked = None
        if self.has_air:
            if self._beside_air is None:
                self._beside_air = face_neighbours(self.phase >= AIR)
            marked = runs.holding(self._beside_air)
        components = Components(self._faces, Slabs(len(self.phase), len(self.phase)))
        components.add(runs, marked)
        components.join()
        closed = self._rows["closed_voxels"]
        closed.fill(0)
        self._closed = None
        if not components.is_open.all():
            painted = self.phase.copy()
            phase_of = np.where(components.is_open, OPEN, CLOSED).astype(np.uint8)
            components.paint(0, painted, phase_of, self._threads)
            self._closed = painted == CLOSED
            np.add.at(closed, self.values[self._closed], 1)
        return components.totals

    # ---- tables

    def _make_rows(self, highest: int) -> None:
        """Make room for labels up to `highest` in the tables of regions."""
        known, before = self._rows, self._highest_label
        if known and highest <= before:
            return
        # room for more labels, so that rows are seldom copied
        self._highest_label = highest + 256 if known else highest
        size = self._highest_label + 1 + self._excluded
        kinds: dict[str, tuple[tuple[int, ...], npt.DTypeLike]] = {
            "sums": ((len(SUMS),), np.int64),
            "crossings": ((N_DIRECTIONS,), np.int64),
            "bounds": ((6,), np.int32),
            "closed_voxels": ((), np.int64),
            "peak_squared_distance": ((), np.float32),
            "peak": ((), np.int64),
        }
        self._rows = {}
        for name, (shape, dtype) in kinds.items():
            table = np.zeros((size, *shape), dtype)
            if known:
                table[: before + 1] = known[name][: before + 1]
                table[self._highest_label + 1 :] = known[name][before + 1 :]
            self._rows[name] = table

    def _sum_up(self, graph: BasinGraph, region_of: Int32s) -> None:
        """Add up the basins of each region, and the edges between each pair of regions."""
        rows, region = self._rows, region_of.astype(np.int64)
        np.add.at(rows["sums"], region[1:], graph.sums[1:])
        np.add.at(rows["crossings"], region[1:], graph.crossings[1:].astype(np.int64))
        np.add.at(rows["closed_voxels"], region[1:], graph.closed_voxels[1:])
        rows["bounds"][:, :3] = np.iinfo(np.int32).max
        for k in range(3):
            np.minimum.at(rows["bounds"][:, k], region[1:], graph.bounds[1:, k])
            np.maximum.at(rows["bounds"][:, 3 + k], region[1:], graph.bounds[1:, 3 + k])
        order = np.argsort(graph.peak_squared_distance[1:], kind="stable") + 1
        # of several assignments the last one counts: the highest peak
        for name in ("peak_squared_distance", "peak"):
            rows[name][region[order]] = getattr(graph, name)[order]
        rows["sums"][0] = 0
        a, b = region[graph.a], region[graph.b]
        inner = a == b
        np.subtract.at(rows["crossings"], a[inner], graph.contacts[inner].astype(np.int64))
        low, high = np.minimum(a, b)[~inner], np.maximum(a, b)[~inner]
        saddle, place = graph.saddle[~inner], graph.saddle_at[~inner]
        # the widest edge of each pair first; of equal ones the first in memory
        order = np.lexsort((place, -saddle, high, low))
        is_first = np.ones(order.size, np.bool_)
        is_first[1:] = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
        contacts = np.zeros((int(is_first.sum()), N_DIRECTIONS), np.int32)
        np.add.at(contacts, np.cumsum(is_first) - 1, graph.contacts[~inner][order])
        first = order[is_first]
        columns = low[first], high[first], saddle[first], place[first], contacts
        self._edges: dict[str, Array] = dict(zip(_EDGES, columns, strict=True))
        self._edges["saddle_at"] = np.where(self._edges["saddle"] < 0, 0, self._edges["saddle_at"])

    def _measure(self, touched: Mask, changed: Int64s) -> None:
        """Measure the touched regions again.

        `touched`: one flag per row. `changed`: (6,): bounds of the changed voxels.
        """
        known = self._rows["bounds"][touched & (self._rows["sums"][:, 0] > 0)]
        known = np.concatenate([known, changed[None]])
        whole = box_of(np.concatenate([known[:, :3].min(axis=0), known[:, 3:].max(axis=0)]))
        box = grown(whole, (1, 1, 1), self.shape)
        part = self.values[box]
        flags = np.zeros(len(touched), np.bool_)
        flags[part] = True
        flags[0] = False
        regions = np.flatnonzero(flags)
        node_of = np.zeros(len(touched), np.int32)
        node_of[regions] = np.arange(1, regions.size + 1)
        nodes = node_of[part]
        guess = self._rows["peak_squared_distance"][touched].max(initial=0)
        distance = self._distance(box, math.sqrt(guess))
        tables = Tables(part.shape, np.full(regions.size, -1), faces_only=self._faces_only)
        grey = None
        if self._grey is not None:
            planes = self._grey.read(box[0].start, box[0].stop, self._threads)
            grey = np.ascontiguousarray(planes[:, box[1], box[2]])
        tables.add(nodes, distance, self._threads, grey=grey)
        found = tables.graph()
        offset = np.array([each.start for each in box])
        kept = touched[regions]
        rows = np.flatnonzero(touched)
        for name in _ROWS:
            if name != "closed_voxels":
                self._rows[name][rows] = 0
        rows, own = regions[kept], np.flatnonzero(kept) + 1
        self._rows["sums"][rows] = moved(found.sums[own], offset)
        self._rows["crossings"][rows] = found.crossings[own]
        self._rows["bounds"][rows] = found.bounds[own] + np.tile(offset, 2)
        for row, node in zip(rows, own, strict=True):
            inside = box_of(found.bounds[node])
            heights = np.where(nodes[inside] == node, distance[inside], -1)
            place = np.unravel_index(int(heights.argmax()), heights.shape)
            self._rows["peak_squared_distance"][row] = heights[place]
            at = [p + s.start + o for p, s, o in zip(place, inside, offset, strict=True)]
            self._rows["peak"][row] = np.ravel_multi_index(at, self.shape)
        self._replace_edges(touched, found, regions, offset, part.shape)

    def _replace_edges(
        self,
        touched: Mask,
        found: BasinGraph,
        regions: Int64s,
        offset: Int64s,
        shape: tuple[int, ...],
    ) -> None:
        """Replace the edges of touched regions by those found in a box."""
        # rows count from 0; labels of excluded void below 0
        labels = np.where(regions > self._highest_label, regions - len(touched), regions)
        new: dict[str, Array] = {name: getattr(found, name) for name in _EDGES}
        a, b = labels[found.a - 1], labels[found.b - 1]
        is_new = touched[a] | touched[b]
        new["a"], new["b"] = np.minimum(a, b), np.maximum(a, b)
        place = np.stack(np.unravel_index(found.saddle_at, shape), axis=-1) + offset
        at = np.ravel_multi_index(tuple(place.T), self.shape)
        new["saddle_at"] = np.where(found.saddle < 0, 0, at)
        edges = self._edges
        stays = ~(touched[edges["a"]] | touched[edges["b"]])
        self._edges = {
            name: np.concatenate([edges[name][stays], new[name][is_new]]) for name in _EDGES
        }

    # ---- space

    def _flags(self, values: Int32s) -> Mask:
        """Return which rows of the tables are among some values of voxels."""
        flags = np.zeros(len(self._rows["peak"]), np.bool_)
        flags[values] = True
        flags[0] = False
        return flags

    def _bounds_of(self, at: Int64s) -> Int64s:
        """Return the bounds (6,) of voxels given by flat indices."""
        place = np.stack(np.unravel_index(at, self.shape), axis=-1)
        return np.concatenate([place.min(axis=0), place.max(axis=0) + 1])

    def _near(self, bounds: Int64s) -> Box:
        """Return a box beyond which distances stay the same if solid changes within bounds."""
        reach = _REACH
        while True:
            box = grown(box_of(bounds), self._margin(reach), self.shape)
            distance = self._distance(box, reach)
            farthest = 0.0
            for axis, (part, length) in enumerate(zip(box, self.shape, strict=True)):
                for end, is_inner in ((0, part.start > 0), (-1, part.stop < length)):
                    if is_inner:
                        face = distance.take(end, axis)
                        farthest = max(farthest, float(face.max()))
            # the path from a changed distance to the changed solid has void all around
            if math.sqrt(farthest) <= reach - 2:
                return box
            if all(p.start == 0 and p.stop == n for p, n in zip(box, self.shape, strict=True)):
                return box
            reach *= 2

    def _margin(self, reach: float) -> tuple[int, ...]:
        """Return a distance in smallest voxels as voxels along each axis, rounded up."""
        smallest = min(self.spacing)
        return tuple(
            min(math.ceil(min(reach, 1e9) * smallest / step), length)
            for step, length in zip(self.spacing, self.shape, strict=True)
        )

    def _distance(self, box: Box, guess: float) -> Float32s:
        """Return the squared distance in a box exactly; `guess`: how large it is about."""
        reach = max(guess, 2.0) + 1
        while True:
            wide = grown(box, self._margin(reach), self.shape)
            is_whole = all(
                p.start == 0 and p.stop == n for p, n in zip(wide, self.shape, strict=True)
            )
            # solid beyond a face is a layer of solid there
            before = [
                int(solid and p.start == 0)
                for p, solid in zip(wide, self._solid_beyond, strict=True)
            ]
            after = [
                int(solid and p.stop == n)
                for p, n, solid in zip(wide, self.shape, self._solid_beyond, strict=True)
            ]
            phase = np.pad(self.phase[wide], list(zip(before, after, strict=True)))
            distance = np.empty(phase.shape, np.float32)
            edge = edge_plane(phase.shape, solid_outside=False)
            how = edge, edge, self.spacing, (False,) * 3, self._threads, self._highest
            fill_distance(np.ascontiguousarray(phase), distance, *how)
            inner = tuple(
                slice(p.start - w.start + extra, p.stop - w.start + extra)
                for p, w, extra in zip(box, wide, before, strict=True)
            )
            found = np.where(self.phase[box] >= AIR, np.float32(0), distance[inner])
            # solid beyond the wider box is farther away than `reach`
            if is_whole or found.max(initial=0) <= reach**2:
                return found
            reach *= 2

    def _euler_number(self, box: Box) -> int:
        """Return the Euler number of the void in a box."""
        part = np.ascontiguousarray(self.values[box])
        return euler_of_slab(part, len(part), self._threads, self._faces_only)

    def _crossings_out(self, at: Int64s) -> Int64s:
        """Return the steps from voxels out of the volume or into the exterior, by direction."""
        place = np.stack(np.unravel_index(at, self.shape), axis=-1)
        found = np.zeros(N_DIRECTIONS, np.int64)
        for k, direction in enumerate(DIRECTIONS):
            for sense in (-1, 1):
                to = place + sense * direction
                inside = ((to >= 0) & (to < self.shape)).all(axis=1)
                found[k] += np.count_nonzero(~inside)
                found[k] += np.count_nonzero(self.phase[tuple(to[inside].T)] >= AIR)
        return found
