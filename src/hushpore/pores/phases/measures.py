"""What is measured of phases and of where they touch: each measure declared once.

`PHASES` and `CONTACTS` make a column each; tables, the report, the viewer and the documentation
take from these lists what columns there are, as from those of `hushpore.pores.tables.measures`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.geometry.surface import surface_area
from hushpore.pores.tables.measures import Measure, summarised

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.pores.watershed.graph import BasinGraph


@dataclass(frozen=True, eq=False)
class PhaseSums:
    """What phases are measured by; row i is that of phase i + 1.

    Attributes
    ----------
    graph : BasinGraph
        Of the phases as if each were one basin: how many voxels they have, and their contacts.
    limits : numpy.ndarray
        (phases, 2), float64: between which grey values each lies.
    volume : Volume
        What was measured, for its spacing.
    thickness : numpy.ndarray
        (phases, 2), float64: mean local thickness and its standard deviation; NaN where it is not
        known.
    regions : numpy.ndarray
        (phases, 2), float64: number of regions and their median diameter; NaN where they are not
        known.
    """

    graph: BasinGraph
    limits: npt.NDArray[np.float64]
    volume: Volume
    thickness: npt.NDArray[np.float64]
    regions: npt.NDArray[np.float64]

    @property
    def count(self) -> int:
        """Number of phases."""
        return len(self.limits)

    @property
    def voxels(self) -> npt.NDArray[np.int64]:
        """(phases,): of each."""
        return self.graph.voxels[1:]

    @property
    def sample_size(self) -> float:
        """Volume (in 2D area) of all phases together."""
        return float(self.voxels.sum() * self.volume.voxel_size)

    @cached_property
    def areas(self) -> npt.NDArray[np.float64]:
        """(contacts,): of each two that touch; see `hushpore.pores.geometry.surface`."""
        return surface_area(self.graph.contacts, self.volume.spacing)

    @cached_property
    def surface(self) -> npt.NDArray[np.float64]:
        """(phases,): of each with all others, within the sample."""
        surface = np.zeros(self.count + 1)
        np.add.at(surface, self.graph.a, self.areas)
        np.add.at(surface, self.graph.b, self.areas)
        return surface[1:]


#: Columns of the table of phases; behind the first stands the name.
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
        "Grey value above which voxels are of the phase; of the first the lowest that there is. Of "
        "labels the label.",
        lambda phases: phases.limits[:, 0],
        is_summarised=False,
    ),
    Measure(
        "grey_to",
        0,
        "Grey value up to which they are.",
        lambda phases: phases.limits[:, 1],
        is_summarised=False,
    ),
    Measure("num_voxels", 0, "Size in voxels.", lambda phases: phases.voxels, is_summarised=False),
    Measure(
        "volume",
        3,
        "Volume; in 2D the area.",
        lambda phases: phases.voxels * phases.volume.voxel_size,
        is_summarised=False,
    ),
    Measure(
        "share",
        0,
        "Share of the sample that it takes up (volume fraction).",
        lambda phases: phases.voxels / phases.voxels.sum(),
    ),
    Measure(
        "surface_area",
        2,
        "Area of its contacts with all other phases; in 2D their length. What the faces of the "
        "volume or of the sample cut is none.",
        lambda phases: phases.surface,
    ),
    Measure(
        "specific_surface",
        -1,
        "That area over the volume of the sample.",
        lambda phases: phases.surface / phases.sample_size,
    ),
    Measure(
        "thickness",
        1,
        "Mean local thickness, by volume; empty where it was not measured, or nothing ends it.",
        lambda phases: phases.thickness[:, 0],
    ),
    Measure(
        "thickness_deviation",
        1,
        "Its standard deviation.",
        lambda phases: phases.thickness[:, 1],
    ),
    Measure(
        "num_regions",
        0,
        "Number of its regions (pores, grains); empty where it was not split.",
        lambda phases: phases.regions[:, 0],
    ),
    Measure(
        "median_diameter",
        1,
        "Median equivalent diameter of its regions.",
        lambda phases: phases.regions[:, 1],
    ),
]

#: Columns of the table of contacts, a row for each two phases that touch; names stand behind the
#: first two.
CONTACTS: list[Measure[PhaseSums]] = [
    Measure(
        "phase_1",
        0,
        "One of the two phases, the darker.",
        lambda phases: phases.graph.a,
        is_summarised=False,
    ),
    Measure("phase_2", 0, "The other phase.", lambda phases: phases.graph.b, is_summarised=False),
    Measure(
        "area",
        2,
        "Area of the contact, estimated as surfaces of pores are; in 2D its length.",
        lambda phases: phases.areas,
        is_summarised=False,
    ),
    Measure(
        "specific_area",
        -1,
        "That area over the volume of the sample.",
        lambda phases: phases.areas / phases.sample_size,
    ),
    Measure(
        "share",
        0,
        "Share of it in the area of all contacts.",
        lambda phases: phases.areas / max(phases.areas.sum(), np.finfo(np.float64).tiny),
    ),
]


def phase_columns(phases: PhaseSums, names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of the table of phases, with their names."""
    columns: dict[str, Any] = {each.name: each.compute(phases) for each in PHASES}
    number = columns.pop("phase")
    return {"phase": number, "name": list(names), **columns}


def contact_columns(phases: PhaseSums, names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of the table of contacts, with the names of phases."""
    columns: dict[str, Any] = {each.name: each.compute(phases) for each in CONTACTS}
    pair = {end: columns.pop(f"phase_{end}") for end in (1, 2)}
    words = {f"name_{end}": [names[number - 1] for number in pair[end]] for end in pair}
    return {"phase_1": pair[1], "phase_2": pair[2], **words, **columns}


def figures_of(result: Mapping[str, Any]) -> dict[str, float]:
    """Return what is measured of phases and contacts in one row, as comparisons call it.

    `result`: that of a record. ``share of clay``, ``specific_area of contact clay - quartz``;
    without what was not measured.
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
    """Return the rows of a table as plain values; None where there is no number."""
    plain = [np.asarray(values).tolist() for values in columns.values()]
    return [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in zip(columns, row, strict=True)
        }
        for row in zip(*plain, strict=True)
    ]
