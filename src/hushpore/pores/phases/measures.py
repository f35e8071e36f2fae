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

from hushpore.pores.geometry.sums import surface_area
from hushpore.pores.tables.measures import Measure, summarised

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hushpore.base.arrays import Float64s, Int64s
    from hushpore.base.volume import Volume
    from hushpore.pores.watershed.graph import BasinGraph


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
