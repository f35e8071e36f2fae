"""Regions of phases: each phase split by the watershed, with the contacts of all regions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.events import part_of
from hushpore.pores.numbering import number_basins
from hushpore.pores.slab_steps import find_basins, find_closed, find_distance, measure_basins
from hushpore.pores.tables.measures import pore_columns, throat_columns
from hushpore.pores.watershed.basins import apply_labels
from hushpore.pores.watershed.graph import Tables
from hushpore.pores.watershed.merging import Numbering

if TYPE_CHECKING:
    from hushpore.base.arrays import Array, Float64s, Int32s, Int64s
    from hushpore.base.volume import Volume
    from hushpore.pores.engine import Pass
    from hushpore.pores.slabs import Stack
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.work import Work

#: Columns of the table of pores that have no meaning for regions of several phases.
_OF_PORES = ("is_open", "closed_voxels")


class Regions:
    """Accumulator of regions, one phase after another.

    `work`: its settings control the merging of basins.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._stack = work.scratch.stack("regions", work.shape, np.int32)
        self._distance = work.scratch.stack("distances", work.shape, np.float32)
        self._stack.array()[...] = 0
        self._distance.array()[...] = 0
        self._peaks: list[Int64s] = []
        self._phases: list[Int64s] = []

    def add(self, number: int, phase: Stack) -> Pass[None]:
        """Split a phase, given as a void with all other phases as its walls."""
        work = self._work
        before = sum(peaks.size for peaks in self._peaks)
        closed = yield from part_of(find_closed(work, phase), 0.0, 0.1)
        distance = yield from part_of(find_distance(work, phase), 0.1, 0.4)
        unstitched = yield from part_of(find_basins(work, distance), 0.4, 0.6)
        measuring = measure_basins(work, unstitched, closed, distance, None)
        graph = (yield from part_of(measuring, 0.6, 0.9)).graph()
        closed.close()
        numbering = number_basins(graph, work.settings, work.volume)
        label_of = np.where(numbering.label_of > 0, numbering.label_of + before, 0).astype(np.int32)
        for first, last in work.slabs:
            own = apply_labels(unstitched.stack.read(first, last), label_of, work.threads)
            # zero outside this phase
            self._stack.array()[first:last] += own
            self._distance.array()[first:last] += distance.read(first, last)
            yield 0.9 + 0.1 * last / work.slabs.depth
        unstitched.stack.close()
        distance.close()
        self._peaks.append(graph.peak[numbering.root])
        self._phases.append(np.full(numbering.root.size, number))

    def measure(self) -> Pass[FoundRegions]:
        """Number all regions by the flat index of their peaks, and measure regions and contacts."""
        work = self._work
        peaks, phases = np.concatenate(self._peaks), np.concatenate(self._phases)
        order = np.argsort(peaks)
        rank = np.zeros(peaks.size + 1, np.int32)
        rank[order + 1] = np.arange(1, peaks.size + 1)
        for first, last in work.slabs:
            part = self._stack.read(first, last)
            part[...] = apply_labels(part, rank, work.threads)
        tables = Tables(work.shape, peaks[order])
        for first, last in work.slabs:
            part, distance = (each.read(first, last + 1) for each in (self._stack, self._distance))
            tables.add(part, distance, work.threads, first, last)
            yield last / work.slabs.depth
        self._distance.close()
        labels = self._stack.array().reshape(work.volume.shape)
        how = work.volume, work.settings.minimum_shape_voxels
        return FoundRegions.of(labels, tables.graph(), phases[order], *how)


@dataclass(frozen=True, eq=False)
class FoundRegions:
    """Regions of all phases.

    Attributes
    ----------
    labels : numpy.ndarray
        int32, in the shape of the volume: 1 to n, ordered by the flat index of their peaks.
    columns : dict of str to numpy.ndarray
        Columns of the table of regions: ``label``, ``phase``, and the measures of pores.
    contacts : dict of str to numpy.ndarray
        Columns of the table of region contacts, as of throats: ``pore_1`` and ``pore_2`` are
        regions, ``phase_1`` and ``phase_2`` their phases. Between two different phases there is no
        passage, and ``inscribed_diameter`` is NaN.
    """

    labels: Int32s
    columns: dict[str, Array]
    contacts: dict[str, Array]

    @classmethod
    def of(
        cls,
        labels: Int32s,
        graph: BasinGraph,
        phases: Int64s,
        volume: Volume,
        minimum_shape_voxels: int,
    ) -> FoundRegions:
        """Measure regions, given as the basins of a graph."""
        each = np.arange(graph.count + 1, dtype=np.int32)
        numbering = Numbering(each, each[1:])
        touching = throat_columns(graph, numbering, volume)
        columns = pore_columns(graph, numbering, volume, touching, minimum_shape_voxels)
        kept = {name: column for name, column in columns.items() if name not in _OF_PORES}
        ends = {end: phases[touching[f"pore_{end}"] - 1] for end in (1, 2)}
        width = touching["inscribed_diameter"]
        touching["inscribed_diameter"] = np.where(ends[1] == ends[2], width, np.nan)
        label = kept.pop("label")
        pair = {name: touching.pop(name) for name in ("pore_1", "pore_2")}
        sides = {f"phase_{end}": ends[end] for end in ends}
        return cls(labels, {"label": label, "phase": phases, **kept}, {**pair, **sides, **touching})

    def of_phases(self, count: int) -> Float64s:
        """Return the number of regions of each phase and their median diameter (count, 2)."""
        found = np.full((count, 2), np.nan)
        for row in range(count):
            sizes = self.columns["equivalent_diameter"][self.columns["phase"] == row + 1]
            found[row] = sizes.size, np.median(sizes) if sizes.size else np.nan
        return found
