"""Measures of phases and of their contacts.

Each entry of `PHASES` and `CONTACTS` is a column; tables, the report, the viewer and the
documentation are generated from these lists, as from those of `hushpore.pores.tables.measures`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.events import part_of
from hushpore.pores.geometry.sums import surface_area
from hushpore.pores.numbering import number_basins
from hushpore.pores.slab_steps import find_basins, find_closed, find_distance, measure_basins
from hushpore.pores.tables.measures import Measure, pore_columns, summarised, throat_columns
from hushpore.pores.watershed.basins import apply_labels
from hushpore.pores.watershed.graph import Tables
from hushpore.pores.watershed.merging import Numbering

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hushpore.base.arrays import Array, Float64s, Int32s, Int64s
    from hushpore.base.volume import Volume
    from hushpore.pores.engine import Pass
    from hushpore.pores.slabs import Stack
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.work import Work


@dataclass(frozen=True, eq=False)
class PhaseSums:
    """Sums from which phases are measured; row i belongs to phase i + 1.

    Attributes
    ----------
    graph : BasinGraph
        Graph with one basin per phase: their voxel counts and contacts.
    limits : numpy.ndarray
        (phases, 2), float64: lower and upper grey value of each phase.
    volume : Volume
        The input, for its spacing.
    thickness : numpy.ndarray
        (phases, 2), float64: mean local thickness and its standard deviation; NaN if not
        measured.
    regions : numpy.ndarray
        (phases, 2), float64: number of regions and their median diameter; NaN if not
        measured.
    """

    graph: BasinGraph
    limits: Float64s
    volume: Volume
    thickness: Float64s
    regions: Float64s

    @property
    def count(self) -> int:
        """Number of phases."""
        return len(self.limits)

    @property
    def voxels(self) -> Int64s:
        """Voxels of each phase (phases,)."""
        return self.graph.voxels[1:]

    @property
    def sample_size(self) -> float:
        """Volume (in 2D: area) of all phases."""
        return float(self.voxels.sum() * self.volume.voxel_size)

    @cached_property
    def areas(self) -> Float64s:
        """Area of each contact (contacts,); see `hushpore.pores.geometry.sums`."""
        return surface_area(self.graph.contacts, self.volume.spacing)

    @cached_property
    def surface(self) -> Float64s:
        """Contact area of each phase with all others within the sample (phases,)."""
        surface = np.zeros(self.count + 1)
        np.add.at(surface, self.graph.a, self.areas)
        np.add.at(surface, self.graph.b, self.areas)
        return surface[1:]


#: Columns of the table of phases; the name is inserted after the first.
PHASES: list[Measure[PhaseSums]] = [
    Measure(
        "phase",
        0,
        "Number of the phase in the labels, from the darkest.",
        lambda phases: np.arange(1, phases.count + 1),
        is_summarised=False,
    ),
    Measure(
        "grey_from",
        0,
        "Lower grey-value limit (exclusive); for the first phase the lowest grey value. For "
        "labels, the label.",
        lambda phases: phases.limits[:, 0],
        is_summarised=False,
    ),
    Measure(
        "grey_to",
        0,
        "Upper grey-value limit (inclusive). For labels, the label.",
        lambda phases: phases.limits[:, 1],
        is_summarised=False,
    ),
    Measure("num_voxels", 0, "Size in voxels.", lambda phases: phases.voxels, is_summarised=False),
    Measure(
        "volume",
        3,
        "Volume; in 2D area.",
        lambda phases: phases.voxels * phases.volume.voxel_size,
        is_summarised=False,
    ),
    Measure(
        "share",
        0,
        "Volume fraction: share of the sample.",
        lambda phases: phases.voxels / phases.voxels.sum(),
    ),
    Measure(
        "surface_area",
        2,
        "Area of the contacts with all other phases; in 2D length. Cuts by the faces of the volume "
        "or of the sample do not count.",
        lambda phases: phases.surface,
    ),
    Measure(
        "specific_surface",
        -1,
        "Surface area per volume of the sample.",
        lambda phases: phases.surface / phases.sample_size,
    ),
    Measure(
        "thickness",
        1,
        "Volume-weighted mean local thickness; empty if not measured or unbounded.",
        lambda phases: phases.thickness[:, 0],
    ),
    Measure(
        "thickness_deviation",
        1,
        "Standard deviation of the local thickness.",
        lambda phases: phases.thickness[:, 1],
    ),
    Measure(
        "num_regions",
        0,
        "Number of regions (pores, grains); empty if the phase was not split.",
        lambda phases: phases.regions[:, 0],
    ),
    Measure(
        "median_diameter",
        1,
        "Median equivalent diameter of the regions.",
        lambda phases: phases.regions[:, 1],
    ),
]

#: Columns of the table of contacts, one row per pair of touching phases; the names are inserted
#: after the first two.
CONTACTS: list[Measure[PhaseSums]] = [
    Measure(
        "phase_1",
        0,
        "Label of the darker of the two phases.",
        lambda phases: phases.graph.a,
        is_summarised=False,
    ),
    Measure(
        "phase_2",
        0,
        "Label of the brighter phase.",
        lambda phases: phases.graph.b,
        is_summarised=False,
    ),
    Measure(
        "area",
        2,
        "Contact area, estimated like the surface area of pores; in 2D length.",
        lambda phases: phases.areas,
        is_summarised=False,
    ),
    Measure(
        "specific_area",
        -1,
        "Contact area per volume of the sample.",
        lambda phases: phases.areas / phases.sample_size,
    ),
    Measure(
        "share",
        0,
        "Share of the total contact area.",
        lambda phases: phases.areas / max(phases.areas.sum(), np.finfo(np.float64).tiny),
    ),
]


def phase_columns(phases: PhaseSums, names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of the table of phases, including their names."""
    columns: dict[str, Any] = {each.name: each.compute(phases) for each in PHASES}
    number = columns.pop("phase")
    return {"phase": number, "name": list(names), **columns}


def contact_columns(phases: PhaseSums, names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of the table of contacts, including the names of the phases."""
    columns: dict[str, Any] = {each.name: each.compute(phases) for each in CONTACTS}
    pair = {end: columns.pop(f"phase_{end}") for end in (1, 2)}
    words = {f"name_{end}": [names[number - 1] for number in pair[end]] for end in pair}
    return {"phase_1": pair[1], "phase_2": pair[2], **words, **columns}


def figures_of(result: Mapping[str, Any]) -> dict[str, float]:
    """Return the measures of phases and contacts by their names in comparisons.

    `result`: the result of a record. Names are ``share of clay`` or ``specific_area of contact clay
    - quartz``; measures without a value are missing.
    """
    found = {}
    for row in result.get("phases", ()):
        for name in summarised(PHASES):
            found[f"{name} of {row['name']}"] = row[name]
    for row in result.get("contacts", ()):
        pair = " - ".join(sorted((row["name_1"], row["name_2"])))
        for name in summarised(CONTACTS):
            found[f"{name} of contact {pair}"] = row[name]
    return {name: value for name, value in found.items() if value is not None}


def rows_of(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a table as plain values, with None for NaN."""
    plain = [np.asarray(values).tolist() for values in columns.values()]
    return [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in zip(columns, row, strict=True)
        }
        for row in zip(*plain, strict=True)
    ]


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
