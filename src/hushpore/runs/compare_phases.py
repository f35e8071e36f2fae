"""Comparison of two phase results: shares, thickness and contacts of each phase."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.safe_text import in_figure
from hushpore.figures.drawing import add_legend, add_plots, frame, new_figure
from hushpore.pores.phases.measures import CONTACTS, PHASES
from hushpore.pores.tables.measures import summarised
from hushpore.runs.pore_result import read_result_table
from hushpore.runs.result_folder import read_provenance
from hushpore.runs.two_samples import compare_samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hushpore.base.arrays import Float64s
    from hushpore.pores.phases.result import Phases
    from hushpore.runs.pore_result import ResultLike

    #: Quantity, power of the unit, the two values, and the tests of the distributions.
    Row: TypeAlias = tuple[str, int, float, float, tuple[float, float, float, float]]


@dataclass(frozen=True, eq=False)
class PhaseTables:
    """The tables of a phase result that are compared."""

    name: str
    unit: str
    n_spatial: int
    phases: pd.DataFrame
    contacts: pd.DataFrame
    regions: pd.DataFrame | None  # None: measured without regions


def is_of_phases(given: ResultLike | Phases) -> bool:
    """Whether a result, or the record in its folder, is a phase result."""
    if isinstance(given, str | os.PathLike):
        made: dict[str, Any] = (read_provenance(given).get("jobs") or [{}])[-1]
    else:
        made = given.provenance
    return made.get("job") == "phases"


def open_phases(given: ResultLike | Phases) -> PhaseTables:
    """Return the tables of a phase result, read from its folder if a path is given.

    Raises InputError if it is not a complete phase result.
    """
    if not is_of_phases(given):
        name = given if isinstance(given, str | os.PathLike) else "one of the two"
        raise InputError(
            f"{name} is not a phase result, but the other one is. Compare two pore results or two "
            "phase results; create one with: hushpore phases SCAN -o FOLDER"
        )
    if not isinstance(given, str | os.PathLike):
        found = cast("Phases", given)
        regions = None if found.regions is None else found.region_table
        volume = found.volume
        about = volume.name, volume.unit, volume.n_spatial
        return PhaseTables(*about, found.phases, found.contacts, regions)
    path = Path(given).expanduser()
    folder = path if path.is_dir() else path.parent
    measured = read_provenance(path)["jobs"][-1]["input"]
    phases, contacts = (
        read_result_table(folder / f"{name}.csv") for name in ("phases", "contacts")
    )
    file = folder / "regions.csv"
    regions = read_result_table(file) if file.is_file() else None
    if not {"phase", "name"} <= set(phases) or not {"name_1", "name_2"} <= set(contacts):
        raise InputError(
            f"The tables in {folder} lack the columns of phase names. Run hushpore phases again."
        )
    about = folder.resolve().name, measured["unit"], len(measured["spacing"])
    return PhaseTables(*about, phases, contacts, regions)


def phase_rows(first: PhaseTables, second: PhaseTables, scale: float) -> Iterator[Row]:
    """Compare phases and contacts by name.

    `scale`: converts lengths of the second into the unit of the first.
    Yields: a row for each measure, with NaN for phases and contacts that one result lacks.
    Raises InputError if no phase is in both.
    """
    names = _in_either(first.phases["name"], second.phases["name"])
    if not set(first.phases["name"]) & set(second.phases["name"]):
        one, other = (", ".join(each.phases["name"].astype(str)) for each in (first, second))
        raise InputError(
            f"{first.name} (phases {one}) and {second.name} (phases {other}) have no phase name in "
            "common. Measure both with the same names."
        )
    tables = [each.phases.set_index("name") for each in (first, second)]
    for column, measure in summarised(PHASES, *tables).items():
        power = measure.power(first.n_spatial)
        for name in names:
            a, b = (_value(table, name, column) for table in tables)
            if np.isnan([a, b]).all():
                continue
            sizes = column == "median_diameter"
            tests = _regions(first, second, name, scale) if sizes else (np.nan,) * 4
            yield f"{column} of {name}", power, a, b * scale**power, tests
    pairs = [_by_pair(each.contacts) for each in (first, second)]
    for column, measure in summarised(CONTACTS, *pairs).items():
        power = measure.power(first.n_spatial)
        for pair in _in_either(*(table.index for table in pairs)):
            a, b = (_value(table, pair, column) for table in pairs)
            yield f"{column} of contact {pair}", power, a, b * scale**power, (np.nan,) * 4


def _regions(
    first: PhaseTables, second: PhaseTables, name: str, scale: float
) -> tuple[float, float, float, float]:
    """Compare the sizes of the regions of a phase."""
    sizes: list[Float64s] = []
    for tables, factor in ((first, 1.0), (second, scale)):
        number = tables.phases.set_index("name")["phase"].get(name)
        if tables.regions is None or number is None:
            return (np.nan,) * 4
        of_phase = tables.regions[tables.regions["phase"] == number]
        sizes.append(of_phase["equivalent_diameter"].to_numpy(np.float64) * factor)
    return compare_samples(*sizes)


def _by_pair(contacts: pd.DataFrame) -> pd.DataFrame:
    """Return the contacts indexed by both phase names in alphabetical order."""
    pairs = [" - ".join(sorted(map(str, pair))) for pair in contacts[["name_1", "name_2"]].values]
    return contacts.assign(pair=pairs).set_index("pair")


def _in_either(one: Any, other: Any) -> list[str]:
    return list(dict.fromkeys([*one, *other]))


def _value(table: pd.DataFrame, name: str, column: str) -> float:
    return float(table.at[name, column]) if name in table.index else np.nan


def kind_of(quantity: str) -> str:
    """Return the measure of a quantity: ``share of``, or ``share of contact``."""
    measure, of, name = quantity.partition(" of ")
    return f"{measure}{of}contact" if name.startswith("contact ") else f"{measure}{of}".rstrip()


def kind_in_words(kind: str, unit: str) -> str:
    """Return the title of an axis: 'mean local thickness (µm)'; shares have no unit."""
    names = {"share of": "share of the sample", "share of contact": "share of all contacts",
             "thickness of": "mean local thickness",
             "specific_area of contact": "contact area by volume"}  # fmt: skip
    title = names.get(kind) or kind.removesuffix(" of").replace("_", " ")
    return f"{title} ({unit})" if unit else title


def phases_figure(table: pd.DataFrame, names: tuple[str, str], colours: tuple[str, ...]) -> Figure:
    """Draw shares, thickness and contacts of the phases of two results as bars.

    `table`: from `hushpore.runs.compare.compare`. `names`, `colours`: of the two results.
    """
    kinds = table["quantity"].map(kind_of)
    wanted = ("share of", "thickness of", "specific_area of contact")
    drawn = [kind for kind in wanted if (kinds == kind).any()]
    figure = new_figure(4.2 * len(drawn), 4)
    panels = add_plots(figure, len(drawn))
    for axes, kind in zip(panels, drawn, strict=True):
        draw_bars(axes, table[kinds == kind], names, colours)
    add_legend(panels[0])
    return figure


def draw_bars(
    axes: Axes, rows: pd.DataFrame, names: tuple[str, str], colours: tuple[str, ...]
) -> None:
    """Draw one measure of all phases or contacts of two results.

    `rows`: those of one measure, with readable units. `names`, `colours`: see `phases_figure`.
    """
    kind = kind_of(rows["quantity"].iloc[0])
    frame(axes, kind_in_words(kind, rows["unit"].iloc[0]))
    place = np.arange(len(rows))
    for shift, name, label, colour in zip((-0.2, 0.2), "ab", names, colours, strict=False):
        axes.barh(place + shift, rows[name], 0.4, label=in_figure(label), color=colour)
    words = [in_figure(each.removeprefix(f"{kind} ")) for each in rows["quantity"]]
    axes.set_yticks(place, words)
    axes.invert_yaxis()
    axes.locator_params(axis="x", nbins=6)
