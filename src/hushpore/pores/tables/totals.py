"""Totals of a segmentation: figures of a whole volume, each declared once.

The record of a segmentation (``provenance["result"]``) holds them by name, and a result folder as
``totals.csv``; the report, comparisons, the summary of a batch and the viewer take names, titles
and units from `TOTALS`. Totals that were not measured are missing in the record, or None.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import percent_digits, readable_count, readable_number, readable_unit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from hushpore.base.arrays import Array, Float64s
    from hushpore.base.volume import Volume
    from hushpore.pores.geometry.thickness import LocalThickness
    from hushpore.pores.settings import PoreSettings


@dataclass(frozen=True)
class Total:
    """A figure of a whole volume.

    Attributes
    ----------
    name : str
        Name in the record.
    title : str
        Title in tables and reports.
    unit_power : int
        Power of the unit of length: 0 none, 1 length, 2 area, -1 one over a length, -3 one over a
        volume.
    is_share : bool
        Whether it is a fraction, shown in per cent.
    is_compared : bool
        Whether comparisons show it; medians of columns are compared through their columns.
    """

    name: str
    title: str
    unit_power: int = 0
    is_share: bool = False
    is_compared: bool = True

    @property
    def phrase(self) -> str:
        """Title within a line: with a small first letter, except for names and acronyms."""
        is_name = self.title.startswith(("Euler", "REV"))
        return self.title if is_name else f"{self.title[:1].lower()}{self.title[1:]}"

    def in_words(self, value: float, unit: str) -> str:
        """Return a value as text, with its unit; a fraction in per cent.

        `unit`: unit of length of the volume.

        >>> total_of("specific_surface").in_words(2.59928, "mm")
        '2.599 mm⁻¹'
        """
        if self.is_share:
            return f"{percent_digits(value)} %"
        if math.isnan(value):
            return "–"
        is_whole = math.isfinite(value) and value == int(value)
        number = f"{int(value):,}" if is_whole else readable_number(value, 4)
        return f"{number} {readable_unit(unit, self.unit_power) if self.unit_power else ''}".strip()


#: Smallest pore, in voxels, whose shape is meaningful; below, it only reflects the voxel grid.
RELIABLE = 8

#: Totals with an uncertainty interval, if requested.
INTERVALS = ("porosity", "count", "median_diameter")

#: Diameter of the largest pore among the parts of the intervals, of which the record has no total.
LARGEST = "largest_diameter"

#: Totals of flow by axis, with an interval from the segmentation alone, if requested.
FLOW = tuple(
    f"{figure}_{axis}"
    for figure in ("permeability", "formation_factor", "breakthrough_diameter")
    for axis in "zyx"
)

#: All totals, in the order in which they are shown.
TOTALS: list[Total] = [
    Total("porosity", "Porosity", is_share=True),
    Total("open_porosity", "Open porosity", is_share=True),
    Total("closed_porosity", "Closed porosity", is_share=True),
    Total("subvoxel_porosity", "Sub-voxel porosity (from grey values)", is_share=True),
    Total("count", "Pores"),
    Total("throats", "Throats"),
    Total("cut_pores", "Pores cut by the faces of the volume"),
    Total("diameter_10", "Equivalent diameter, D10", 1, is_compared=False),
    Total("median_diameter", "Median equivalent diameter (D50)", 1, is_compared=False),
    Total("diameter_90", "Equivalent diameter, D90", 1, is_compared=False),
    Total(
        "median_diameter_large",
        "Median equivalent diameter without small pores (D50)",
        1,
        is_compared=False,
    ),
    Total("diameter_10_by_volume", "Equivalent diameter by volume, D10", 1, is_compared=False),
    Total("median_diameter_by_volume", "Median equivalent diameter by volume (D50)", 1),
    Total("diameter_90_by_volume", "Equivalent diameter by volume, D90", 1, is_compared=False),
    Total("specific_surface", "Specific surface", -1),
    *(
        Total(f"{phase}_chord_length_{axis}", f"Mean chord length of the {of} along {axis}", 1)
        for phase, of in (("void", "pores"), ("solid", "solid"))
        for axis in "zyx"
    ),
    Total("anisotropy", "Degree of anisotropy (mean intercept length)"),
    Total("euler_number", "Euler number of the pores"),
    *(
        Total(f"percolating_fraction_{axis}", f"Percolating void along {axis}", is_share=True)
        for axis in "zyx"
    ),
    *(Total(f"tortuosity_{axis}", f"Geodesic tortuosity along {axis}") for axis in "zyx"),
    *(
        Total(f"{name}_{axis}", f"{title} along {axis}, in voxels", power)
        for name, title, power in (
            ("effective_diffusivity", "Effective diffusivity", 0),
            ("voxel_tortuosity_factor", "Tortuosity factor", 0),
            ("voxel_formation_factor", "Formation factor", 0),
            ("voxel_permeability", "Permeability", 2),
        )
        for axis in "zyx"
    ),
    Total("void_thickness", "Mean local thickness of the pores", 1),
    Total("void_thickness_deviation", "Local thickness of the pores, standard deviation", 1),
    Total("solid_thickness", "Mean local thickness of the solid", 1),
    Total("solid_thickness_deviation", "Local thickness of the solid, standard deviation", 1),
    Total("pore_density", "Pore number density", -3),
    Total("solid_specific_surface", "Specific surface of the solid (per solid volume)", -1),
    Total("plate_number", "Wall number (plate model)", -1),
    Total("wall_number", "Wall number (local thickness)", -1),
    *(
        Total(f"{phase}_shape_index", f"Plate-rod index of the {of} (plates 2, rods 4, balls 6)")
        for phase, of in (("void", "pores"), ("solid", "solid"))
    ),
    *(
        Total(
            f"orientation_{number}{end}",
            f"Orientation tensor, {what} {number}{along}",
            is_compared=not end,
        )
        for number in (1, 2, 3)
        for end, what, along in (
            ("", "eigenvalue", ""),
            *((f"_{axis}", "eigenvector", f", {axis}") for axis in "zyx"),
        )
    ),
    Total("merge_height", "Merge height (voxels)", is_compared=False),
    Total("minimum_voxels", "Minimum pore size (voxels)", is_compared=False),
    Total("small_pores", "Pores below the minimum size", is_compared=False),
    Total(
        "small_pore_share", "Void in pores below the minimum size", is_share=True, is_compared=False
    ),
    Total("threshold", "Threshold (grey value)", is_compared=False),
    Total("void_grey", "Grey value of void", is_compared=False),
    Total("solid_grey", "Grey value of solid", is_compared=False),
    *(
        Total(f"{name}_{end}", f"{title}, 90 % interval {word}", power, share, is_compared=False)
        for name, title, power, share in (
            ("porosity", "Porosity", 0, True),
            ("count", "Pores", 0, False),
            ("median_diameter", "Median equivalent diameter", 1, False),
        )
        for end, word in (("low", "from"), ("high", "to"))
    ),
    *(
        Total(f"{name}_{axis}{end}", f"{title} along {axis}{words}", power, is_compared=not end)
        for name, title, power in (
            ("permeability", "Permeability", 2),
            ("formation_factor", "Formation factor", 0),
            ("breakthrough_diameter", "Breakthrough diameter", 1),
        )
        for axis in "zyx"
        for end, words in (
            ("", ""),
            ("_low", ", 90 % interval of segmentation from"),
            ("_high", ", 90 % interval of segmentation to"),
        )
    ),
    Total("threshold_low", "Plausible thresholds, from", is_compared=False),
    Total("threshold_high", "Plausible thresholds, to", is_compared=False),
    Total("detection_limit", "Detection limit (a90), diameter", 1),
    Total(
        "detection_limit_high", "Detection limit, upper 95 % confidence limit", 1, is_compared=False
    ),
    Total(
        "detection_size_error",
        "Error of the diameter at the detection limit",
        is_share=True,
        is_compared=False,
    ),
    Total(
        "detection_size_deviation",
        "Error of the diameter, standard deviation",
        is_share=True,
        is_compared=False,
    ),
    Total("rev_edge_length", "REV edge length", 1, is_compared=False),
]


def total_of(name: str) -> Total | None:
    """Return the total of this name; None if there is none."""
    return next((each for each in TOTALS if each.name == name), None)


def totals_in_words(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return title and value, as text, of all totals in a record."""
    unit = str(result.get("unit", "pixel"))
    return [
        (total.title, total.in_words(value, unit))
        for total in TOTALS
        if (value := result.get(total.name)) is not None
    ]


def totals_columns(result: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the totals of a record as the columns of ``totals.csv``.

    Columns: ``name``, as in the record; ``title``; ``value``, with percentages as fractions of 1;
    ``unit``, empty if it has none.

    >>> totals_columns({"porosity": 0.25, "specific_surface": 2.5, "unit": "um"})["unit"]
    ['', 'um^-1']
    """
    unit = str(result.get("unit", "pixel"))
    units = {0: "", 1: unit, 2: f"{unit}^2", -1: f"{unit}^-1", -3: f"{unit}^-3"}
    held = [total for total in TOTALS if result.get(total.name) is not None]
    return {
        "name": [total.name for total in held],
        "title": [total.title for total in held],
        "value": [float(result[total.name]) for total in held],
        "unit": [units[total.unit_power] for total in held],
    }


def is_proportional(spacing: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether two voxel sizes have the same aspect ratio, so that pores split alike."""
    ratio = np.asarray(other) / np.asarray(spacing)
    return bool(np.allclose(ratio, ratio[0], rtol=1e-9))


def resized_totals(totals: Mapping[str, Any], ratio: float, unit: str) -> dict[str, Any]:
    """Return the totals of a record for another voxel size of the same shape."""
    resized = {**totals, "unit": unit}
    for total in TOTALS:
        if total.unit_power and resized.get(total.name) is not None:
            resized[total.name] = resized[total.name] * ratio**total.unit_power
    return resized


def resized_curve(
    curve: Mapping[str, Float64s], ratio: float, n_spatial: int
) -> dict[str, Float64s]:
    """Return the REV curve for another voxel size."""
    powers = {"edge": 1, **dict.fromkeys(("density", "density_low", "density_high"), -n_spatial)}
    return {name: each * ratio ** powers.get(name, 0) for name, each in curve.items()}


def is_of_interval(name: str) -> bool:
    """Return whether an entry of a record belongs to an interval, as all of flow do, or to a90."""
    ends = {f"{figure}_{end}" for figure in (*INTERVALS, *FLOW) for end in ("low", "high")}
    is_other = name in FLOW or name == "interval_parts" or name.startswith("detection_")
    return name in ends or is_other


def intervals_in_words(result: Mapping[str, Any]) -> str:
    """Return the intervals of a record as a sentence; empty if there are none."""
    if "porosity_low" not in result:
        return ""
    share, count, size = (
        tuple(result[f"{name}_{end}"] for end in ("low", "high"))
        for name in ("porosity", "count", "median_diameter")
    )
    unit = readable_unit(result["unit"])
    low, high = (readable_number(each) for each in size)
    return (
        f"90 % intervals: porosity {100 * share[0]:.1f} to {100 * share[1]:.1f} %, "
        f"{count[0]:,.0f} to {count[1]:,.0f} pores, median diameter {low} to {high} {unit}"
    )


def detection_in_words(result: Mapping[str, Any]) -> str:
    """Return the detection limit of a record in a sentence or two; empty if it has none."""
    if "detection_limit" not in result:
        return ""
    limit, high = (readable_number(result[f"detection_limit{end}"]) for end in ("", "_high"))
    unit, error = readable_unit(result["unit"]), result["detection_size_error"]
    text = (
        f"Pores with a diameter of {limit} {unit} are found in 9 of 10 cases (a90; at most {high} "
        f"{unit} with 95 % confidence); smaller ones may be missing"
    )
    if error is None or math.isnan(error):
        return text
    side = "small" if error < 0 else "large"
    spread = f"{100 * result['detection_size_deviation']:.0f} %"
    return (
        f"{text}. Near this size, diameters are {100 * abs(error):.0f} % too {side} (SD {spread})"
    )


def headline_of(result: Mapping[str, Any], settings: PoreSettings) -> str:
    """Return porosity, number of pores and D10, D50 and D90 of a record in one line."""
    count, porosity = result["count"], result["porosity"]
    is_open, is_closed = result["open_porosity"], result["closed_porosity"]
    parts = f"open {percent_digits(is_open)} %, closed {percent_digits(is_closed)} %"
    void = percent_digits(is_open + is_closed)
    if settings.pore_type == "all" and void != percent_digits(porosity):
        # pores that are excluded are void all the same
        parts = f"all void {void} %: {parts}"
    facts = [f"Porosity {percent_digits(porosity)} % ({parts})", readable_count(count, "pore")]
    unit = readable_unit(result["unit"])
    by = []
    for end in ("", "_by_volume"):
        names = ("diameter_10", "median_diameter", "diameter_90")
        sizes = [result.get(f"{name}{end}") for name in names]
        if sizes[1] is not None:
            # results of another version may have the median alone
            words = "/".join(readable_number(size) for size in sizes if size is not None)
            by.append(f"{words} {unit} by {'volume' if end else 'number'}")
    if by:
        facts.append(f"D10/D50/D90 {', '.join(by)}")
    return " · ".join(facts)


def size_distribution(pores: pd.DataFrame, bins: int) -> pd.DataFrame:
    """Return the pore size distribution; see `hushpore.pores.result.Pores.size_distribution`.

    `pores`: table of pores.
    Raises InputError if `bins` is not a whole number of at least 1.
    """
    import pandas as pd

    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 1:
        raise InputError(f"bins must be a whole number of at least 1; got {bins!r}.")
    diameter, size = (pores[name].to_numpy() for name in ("equivalent_diameter", "volume"))
    edges = np.linspace(0, diameter.max(initial=0) or 1, bins + 1)
    number = np.histogram(diameter, edges)[0]
    volume = np.histogram(diameter, edges, weights=size)[0]
    return pd.DataFrame(
        {
            "diameter_from": edges[:-1],
            "diameter_to": edges[1:],
            "number": number,
            "volume": volume,
            "number_share": number / max(number.sum(), 1),
            "volume_share": volume / (volume.sum() or 1),
        }
    )


def thickness_distribution(
    thickness: Mapping[str, LocalThickness], voxel_size: float
) -> pd.DataFrame:
    """Return the distribution of local thickness, in the columns of the result.

    `thickness`: by phase. `voxel_size`: volume of a voxel.
    """
    import pandas as pd

    columns = ["phase", "thickness_from", "thickness_to", "volume", "volume_share"]
    rows = [
        (phase, low, high, count * voxel_size, count / found.counts.sum())
        for phase, found in thickness.items()
        for low, high, count in zip(found.edges[:-1], found.edges[1:], found.counts, strict=True)
    ]
    return pd.DataFrame(rows, columns=columns)


def material_totals(
    totals: Mapping[str, Any], pores: Mapping[str, Array], volume: Volume
) -> dict[str, Any]:
    """Return the totals that follow from others and from the columns of pores, by name.

    `totals`: shares of open and closed void, specific surface, and local thickness if measured.
    Totals that are not defined or were not measured are None. Wall numbers and the plate-rod index
    are those of A. M. Parfitt and others (1983), "Relationships between surface, volume, and
    thickness of iliac trabecular bone in aging and in osteoporosis", Journal of Clinical
    Investigation 72, 1396-1409. https://doi.org/10.1172/JCI111096
    """
    void = totals["open_porosity"] + totals["closed_porosity"]
    per_sample = totals["specific_surface"]
    surfaces = {"void": per_sample / void if void else None}
    surfaces["solid"] = per_sample / (1 - void) if void < 1 else None
    thickness = {phase: totals.get(f"{phase}_thickness") for phase in surfaces}
    sample = totals["sample_voxels"] * volume.voxel_size
    known: dict[str, Any] = {
        "pore_density": len(pores["label"]) / sample if volume.n_spatial == 3 else None,
        "solid_specific_surface": surfaces["solid"],
        "plate_number": per_sample / 2,
        "wall_number": None,
    }
    if thickness["void"] is not None and thickness["solid"] is not None:
        known["wall_number"] = 1 / (thickness["void"] + thickness["solid"])
    for phase, surface in surfaces.items():
        own = thickness[phase]
        index = own * surface if own is not None and surface is not None else None
        known[f"{phase}_shape_index"] = index if volume.n_spatial == 3 else None
    return known | orientation_totals(pores, volume.n_spatial)


def orientation_totals(pores: Mapping[str, Array], n_spatial: int) -> dict[str, float | None]:
    """Return eigenvalues and eigenvectors of the orientation tensor of the major axes of pores.

    The tensor is the mean of ``n n'`` over the unit vectors n of the pores that have a shape. Its
    eigenvalues, largest first, add up to 1: three of 1/3 if no direction is preferred, 1, 0, 0 if
    all axes are parallel; None if no pore has a shape. S. G. Advani and C. L. Tucker (1987), "The
    use of tensors to describe and predict fiber orientation in short fiber composites", Journal of
    Rheology 31, 751-784. https://doi.org/10.1122/1.549945
    """
    axes = "zyx"[-n_spatial:]
    names = [f"orientation_{number}" for number in range(1, n_spatial + 1)]
    units = major_axes(pores, n_spatial)
    units = units[~np.isnan(units).any(axis=1)]
    if not len(units):
        return dict.fromkeys([*names, *(f"{name}_{axis}" for name in names for axis in axes)])
    # a product of matrices would be rounded by how many threads BLAS has
    tensor = np.array([[(a * b).mean() for b in units.T] for a in units.T])
    values, vectors = np.linalg.eigh(tensor)
    found: dict[str, float | None] = {}
    for name, place in zip(names, reversed(range(n_spatial)), strict=True):
        vector = vectors[:, place]
        # of the two senses the one whose last component that is not 0 is above it
        vector = vector * np.sign(vector[np.flatnonzero(np.abs(vector) > 1e-9)[-1]])
        found[name] = float(max(values[place], 0.0))
        found |= {f"{name}_{axis}": float(each) for axis, each in zip(axes, vector, strict=True)}
    return found


def major_axes(pores: Mapping[str, Array] | pd.DataFrame, n_spatial: int) -> Float64s:
    """Return the unit vectors of the major axes of pores, (pores, axes); NaN without a shape."""
    names = [f"axis_direction_{axis}" for axis in "zyx"[-n_spatial:]]
    return np.stack([np.asarray(pores[name], np.float64) for name in names], axis=-1)
