"""The regions of phases: each phase parted as pores are, and where all of them touch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.events import part_of
from hushpore.pores.numbering import (
    number_basins,
)
from hushpore.pores.slab_steps import (
    find_basins,
    find_closed,
    find_distance,
    measure_basins,
)
from hushpore.pores.tables.measures import pore_columns, throat_columns
from hushpore.pores.watershed.basins import apply_labels
from hushpore.pores.watershed.graph import Tables
from hushpore.pores.watershed.merging import Numbering

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.pores.engine import Pass
    from hushpore.pores.slabs import Stack
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.work import Work

#: Columns of the table of pores that say nothing of regions of several phases.
_OF_PORES = ("is_open", "closed_voxels")


class Regions:
    """Regions of phases as they are found, phase after phase.

    `work`: its settings say how basins are merged.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._stack = work.scratch.stack("regions", work.shape, np.int32)
        self._distance = work.scratch.stack("distances", work.shape, np.float32)
        self._stack.array()[...] = 0
        self._distance.array()[...] = 0
        self._peaks: list[npt.NDArray[np.int64]] = []
        self._phases: list[npt.NDArray[np.int64]] = []

    def add(self, number: int, phase: Stack) -> Pass[None]:
        """Part a phase, given as a void whose walls all others are."""
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
            # elsewhere they are 0
            self._stack.array()[first:last] += own
            self._distance.array()[first:last] += distance.read(first, last)
            yield 0.9 + 0.1 * last / work.slabs.depth
        unstitched.stack.close()
        distance.close()
        self._peaks.append(graph.peak[numbering.root])
        self._phases.append(np.full(numbering.root.size, number))

    def measure(self) -> Pass[FoundRegions]:
        """Number all regions by where their peaks lie, and measure them and where they touch."""
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
        int32, of the shape of the volume: 1 to n, in the order in which their peaks lie in memory.
    columns : dict of str to numpy.ndarray
        Of the table of regions: ``label``, ``phase``, and what is measured of pores.
    contacts : dict of str to numpy.ndarray
        Of the table of region contacts, as of throats: ``pore_1`` and ``pore_2`` are regions,
        ``phase_1`` and ``phase_2`` their phases. Between two phases there is no way through, and
        ``inscribed_diameter`` is NaN.
    """

    labels: npt.NDArray[np.int32]
    columns: dict[str, npt.NDArray[Any]]
    contacts: dict[str, npt.NDArray[Any]]

    @classmethod
    def of(
        cls,
        labels: npt.NDArray[np.int32],
        graph: BasinGraph,
        phases: npt.NDArray[np.int64],
        volume: Volume,
        minimum_shape_voxels: int,
    ) -> FoundRegions:
        """Measure regions that are the basins of a graph."""
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

    def of_phases(self, count: int) -> npt.NDArray[np.float64]:
        """Return how many regions each phase has, and their median diameter (count, 2)."""
        found = np.full((count, 2), np.nan)
        for row in range(count):
            sizes = self.columns["equivalent_diameter"][self.columns["phase"] == row + 1]
            found[row] = sizes.size, np.median(sizes) if sizes.size else np.nan
        return found
