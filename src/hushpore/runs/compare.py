"""Comparison of two results: a table of differences, a figure, and a headline."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import (
    METRES,
    in_figure,
    percent_digits,
    readable_number,
    readable_unit,
)
from hushpore.figures.drawing import (
    BINS,
    DPI,
    PAPER,
    add_legend,
    add_plots,
    add_title,
    draw_rising,
    draw_sizes,
    edges_of,
    frame,
    new_figure,
    png,
    size_table,
)
from hushpore.pores.phases.measures import CONTACTS, PHASES
from hushpore.pores.tables.measures import PORES, THROATS, measure_of, summarised
from hushpore.pores.tables.totals import TOTALS, total_of
from hushpore.runs.pore_result import open_result, read_result_table
from hushpore.runs.result_folder import read_provenance

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hushpore.base.arrays import Float64s
    from hushpore.io.export import PoreResult
    from hushpore.pores.phases.result import Phases
    from hushpore.runs.pore_result import ResultLike

    #: Quantity, power of the unit, the two values, and the tests of the distributions.
    Row: TypeAlias = tuple[str, int, float, float, tuple[float, float, float, float]]


#: Around the name of a measure in a quantity.
MEDIAN, OF_PORES, OF_THROATS = "median ", " of pores", " of throats"

#: Titles of counts.
COUNTS = {"count": "number of pores", "throats": "number of throats"}

#: Remark on every comparison of pores that has tests.
NOT_INDEPENDENT = (
    "Pores of one scan are not independent samples, so p and the interval are too optimistic. To "
    "compare materials, compare several scans of each."
)

_SAMPLES = 2000  # bootstrap samples: interval ends then vary by about 3 % of its length
_LEVEL = 0.95  # share of the bootstrap samples within the interval


def compare_samples(a: Float64s, b: Float64s) -> tuple[float, float, float, float]:
    """Compare two samples; four NaN if one is empty.

    Returns: the Kolmogorov-Smirnov distance; p of the two-sided Mann-Whitney test; both ends of the
    95 % bootstrap interval of the median of `b` minus that of `a` (fixed seed).
    """
    if not a.size or not b.size:
        return (float("nan"),) * 4
    from scipy.stats import mannwhitneyu

    rng = np.random.default_rng(0)
    medians = [_medians(each, rng) for each in (a, b)]
    low, high = np.quantile(medians[1] - medians[0], [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    # values that differ only by the rounding of a change of unit are ties
    a, b = a.astype(np.float32), b.astype(np.float32)
    places = np.concatenate([a, b])
    shares = [np.searchsorted(np.sort(each), places, "right") / each.size for each in (a, b)]
    distance = np.abs(shares[0] - shares[1]).max()
    are_one = min(a.min(), b.min()) == max(a.max(), b.max())
    p = 1.0 if are_one else mannwhitneyu(a, b, method="asymptotic").pvalue
    return float(distance), float(p), float(low), float(high)


def _medians(values: Float64s, rng: np.random.Generator) -> Float64s:
    """Return the medians of samples drawn from `values`, as many from each, with replacement.

    The ranks of the middle values follow from order statistics of a uniform sample, so that the
    samples themselves need not be drawn. Of 5,000
    pores that takes 0.003 s a column, and `scipy.stats.bootstrap` 0.8 s; of 100,000 0.06 and 8 s.
    """
    ordered, count = np.sort(values), values.size
    middle = (count + 1) // 2
    place = rng.beta(middle, count - middle + 1, _SAMPLES)
    lower: Float64s = ordered[np.minimum((place * count).astype(int), count - 1)]
    if count % 2:
        return lower
    place += (1 - place) * rng.beta(1, count - middle, _SAMPLES)
    upper = ordered[np.minimum((place * count).astype(int), count - 1)]
    middles: Float64s = (lower + upper) / 2
    return middles


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


def compare(a: ResultLike | Phases, b: ResultLike | Phases) -> pd.DataFrame:
    """Compare two pore results or two phase results.

    Parameters
    ----------
    a, b : Pores, Phases, str or path-like
        Results of `hushpore.segment_pores` or `hushpore.measure_phases`, or result folders.

    Returns
    -------
    pandas.DataFrame
        One row per quantity: totals first, then the median of each column of the tables. Columns
        ``quantity``, ``unit``, ``a``, ``b``, ``difference`` (b - a) and ``relative`` (difference
        divided by a). For distributions also ``ks``, the Kolmogorov-Smirnov distance from 0
        (identical) to 1; ``p`` of the two-sided Mann-Whitney test; ``low`` and ``high``, a 95 %
        bootstrap interval of the difference of the medians. Pores of one scan are not independent
        samples, so ``p`` and the interval are too optimistic. Lengths of `b` are in the unit of
        `a`.

        Phases and contacts are matched by name: ``share of quartz``, ``thickness of quartz``,
        ``specific_area of contact clay - quartz``. Size distributions are those of the regions, if
        both results have them.

    Raises
    ------
    InputError
        If one is not a result, one is of pores and one of phases, no phase has the same name in
        both, units cannot be converted, or one is 2D and one 3D.

    Examples
    --------
    >>> import numpy as np
    >>> import hushpore
    >>> void = np.zeros((2, 9, 9, 9), bool)
    >>> void[0, 3:6, 3:6, 3:6] = void[1, 3:6, 3:6, 2:7] = True
    >>> small, large = (hushpore.segment_pores(each, device="cpu") for each in void)
    >>> rows = hushpore.compare(small, large).set_index("quantity")
    >>> rows.loc["porosity", ["a", "b", "relative"]].round(3).tolist()
    [0.037, 0.062, 0.667]
    """
    import pandas as pd

    table = pd.DataFrame(
        list(_rows_of_phases(a, b) if _are_phases(a, b) else _rows_of_pores(a, b)),
        columns=["quantity", "unit", "a", "b", "ks", "p", "low", "high"],
    )
    table.insert(4, "difference", table["b"] - table["a"])
    table.insert(5, "relative", table["difference"] / table["a"].where(table["a"] != 0).abs())
    return table


def distributions(
    a: ResultLike,
    b: ResultLike,
    column: str = "equivalent_diameter",
    *,
    by_volume: bool = False,
    log: bool = False,
    bins: int = BINS,
) -> pd.DataFrame:
    """Return the size distributions of the pores of two results, by number or by volume.

    Parameters
    ----------
    a, b : Pores, str or path-like
        As for `compare`.
    column : str, optional
        A column of the table of pores, see `columns_compared`.
    by_volume : bool, optional
        Shares of the pore volume instead of the number of pores.
    log : bool, optional
        Bins of equal width on a logarithmic axis; values of zero or below are excluded.
    bins : int, optional
        Number of bins.

    Returns
    -------
    pandas.DataFrame
        ``from`` and ``to`` of each bin in the unit of `a`; ``a``, ``b``: shares; ``a_cumulative``,
        ``b_cumulative``: cumulative shares up to the end of the bin.

    Raises
    ------
    InputError
        As for `compare`, or if the column is not compared.
    """
    first, second = open_result(a), open_result(b)
    columns = summarised(PORES, first.pores, second.pores)
    if column not in columns:
        raise InputError(f"{column!r} is not compared. Available: {', '.join(columns)}.")
    scale = _scale(first, second) ** columns[column].power(first.n_spatial)
    samples = {}
    for name, found, factor in (("a", first, 1.0), ("b", second, scale)):
        sizes = found.pores[column].to_numpy(np.float64) * factor
        volume = found.pores["volume"].to_numpy(np.float64)
        samples[name] = sizes, volume if by_volume else np.ones(volume.size)
    return size_table(samples, log=log, bins=bins)


def columns_compared() -> list[str]:
    """Return the columns of the table of pores that `compare` and `distributions` compare."""
    return list(summarised(PORES))


def comparison_figure(a: ResultLike | Phases, b: ResultLike | Phases, dpi: int = DPI) -> bytes:
    """Draw the pore size distributions of two results, or their phases side by side.

    Parameters
    ----------
    a, b : Pores, Phases, str or path-like
        As for `compare`.
    dpi : int, optional
        Resolution in dots per inch.

    Returns
    -------
    bytes
        A PNG file: share of the pores by size, cumulative share by number, and by volume; of phases
        shares, thickness and areas of contacts.

    Raises
    ------
    InputError
        As for `compare`.
    """
    figure = _figure_of_phases(a, b) if _are_phases(a, b) else _figure_of_pores(a, b)
    return png(figure, dpi)


def _are_phases(a: ResultLike | Phases, b: ResultLike | Phases) -> bool:
    return is_of_phases(a) or is_of_phases(b)


def _figure_of_phases(a: ResultLike | Phases, b: ResultLike | Phases) -> Figure:
    first, second = open_phases(a), open_phases(b)
    table = compare(a, b)
    table["unit"] = [unit_in_words(unit) for unit in table["unit"]]
    return phases_figure(table, _names(first.name, second.name), PAPER)


def _figure_of_pores(a: ResultLike | Phases, b: ResultLike | Phases) -> Figure:
    both = open_result(a), open_result(b)
    figure = new_figure(12, 3.8)
    axes = add_plots(figure, 3)
    across = f"equivalent diameter ({readable_unit(both[0].unit)})"
    titles = ("share of pores (%)", "pores up to this size (%)", "pore volume up to this size (%)")
    for ax, title in zip(axes, titles, strict=True):
        frame(ax, across, title)
    table = distributions(*both)
    names = _names(both[0].name, both[1].name)
    scales = 1.0, _scale(*both)
    for key, found, name, scale, colour in zip("ab", both, names, scales, PAPER, strict=False):
        sizes = found.pores["equivalent_diameter"].to_numpy(np.float64) * scale
        volume = found.pores["volume"].to_numpy(np.float64)
        label = f"{name} ({sizes.size:,} pores)"
        draw_sizes(axes[0], edges_of(table), table[key], colour, label)
        draw_rising(axes[1], sizes, np.ones_like(volume), colour, name)
        draw_rising(axes[2], sizes, volume, colour, name)
    if shift := shift_in_words(compare(*both), "equivalent_diameter"):
        add_title(figure, shift)
    for ax in axes:
        add_legend(ax)
    return figure


def comparison_headline(table: pd.DataFrame) -> str:
    """Return the main figures of two results in one line: ``Porosity 36.5 → 34.2 % · ...``.

    `table`: from `compare`.
    """
    rows = table.set_index("quantity").T
    if "porosity" not in rows:
        names = [quantity for quantity in rows if quantity.startswith("share of ")]
        changes = [f"{name[9:]} {_change(rows[name], as_percent=True)}" for name in names]
        return " · ".join(changes)
    sizes = {
        "median equivalent_diameter of pores": "by number",
        "median_diameter_by_volume": "by volume",
    }
    medians = [f"{_change(rows[name])} {by}" for name, by in sizes.items() if name in rows]
    count = rows["count"]
    return (
        f"Porosity {_change(rows['porosity'], as_percent=True)} · "
        f"{count['a']:,.0f} → {count['b']:,.0f} pores · D50 {', '.join(medians)}"
    )


def _change(row: pd.Series[Any], as_percent: bool = False) -> str:
    if as_percent:
        return f"{percent_digits(row['a'])} → {percent_digits(row['b'])} %"
    unit = f" {words}" if (words := unit_in_words(row["unit"])) else ""
    ends = (readable_number(row[end]) if np.isfinite(row[end]) else "–" for end in "ab")
    return f"{' → '.join(ends)}{unit}"


def shift_in_words(table: pd.DataFrame, column: str, same_scan: bool = False) -> str:
    """Return a sentence on the shift of the median of a column of the table of pores.

    `table`: from `compare`. `same_scan`: whether both results are of one scan; its pores are no
    independent samples, so interval and p are left out. Empty if one of the results has no pores.
    """
    row = table.set_index("quantity").loc[f"median {column} of pores"]
    if not np.isfinite(row["p"]):
        return ""
    unit = f" {words}" if (words := unit_in_words(row["unit"])) else ""
    if same_scan:
        return (
            f"Median shifted by {_signed(row['difference'])}{unit}. Both results are of one scan, "
            "so a significance test does not apply"
        )
    low, high = (_signed(row[name]) for name in ("low", "high"))
    p = "p < 0.001" if row["p"] < 0.001 else f"p = {row['p']:.2g}"
    return (
        f"Median shifted by {_signed(row['difference'])}{unit} (95 % interval {low} to {high}); "
        f"Mann-Whitney {p}"
    )


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "\N{MINUS SIGN}") if value else "0"


def _rows_of_phases(a: ResultLike | Phases, b: ResultLike | Phases) -> Iterator[tuple[Any, ...]]:
    first, second = open_phases(a), open_phases(b)
    scale = _scale(first, second)
    for quantity, power, one, other, tests in phase_rows(first, second, scale):
        yield quantity, _unit(first.unit, power), one, other, *tests


def _rows_of_pores(a: ResultLike | Phases, b: ResultLike | Phases) -> Iterator[tuple[Any, ...]]:
    first, second = open_result(a), open_result(b)
    scale, unit = _scale(first, second), first.unit
    for total in (each for each in TOTALS if each.is_compared):
        name, power = total.name, total.unit_power
        one, other = (found.provenance["result"].get(name) for found in (first, second))
        if one is not None and other is not None:
            yield name, _unit(unit, power), float(one), float(other) * scale**power, *[np.nan] * 4
    for table, measures in (("pores", PORES), ("throats", THROATS)):
        tables = getattr(first, table), getattr(second, table)
        for column, measure in summarised(measures, *tables).items():
            power = measure.power(first.n_spatial)
            values = [each[column].dropna().to_numpy(np.float64) for each in tables]
            values[1] = values[1] * scale**power
            medians = [np.median(each) if each.size else np.nan for each in values]
            title = f"median {column} of {table}"
            yield title, _unit(unit, power), *medians, *compare_samples(*values)


def _scale(first: PoreResult | PhaseTables, second: PoreResult | PhaseTables) -> float:
    """Return the factor that converts lengths of the second into the unit of the first.

    Raises InputError if units cannot be converted, or one is of an image and one of a volume.
    """
    if first.n_spatial != second.n_spatial:
        raise InputError(
            f"{first.name} is {first.n_spatial}D and {second.name} is {second.n_spatial}D. Only "
            "results of the same dimension can be compared."
        )
    a, b = first.unit, second.unit
    if a == b:
        return 1.0
    if a not in METRES or b not in METRES:
        raise InputError(
            f"{first.name} is measured in {readable_unit(a)} and {second.name} in "
            f"{readable_unit(b)}, which cannot be converted. Measure both with their voxel size."
        )
    return METRES[b] / METRES[a]


def quantity_in_words(quantity: str, unit: str) -> str:
    """Return the title of a quantity: 'equivalent diameter (µm)', 'throats: area (µm²)'."""
    total = total_of(quantity)
    if total is not None and quantity not in COUNTS:
        unit = "%" if total.is_share else unit_in_words(unit)
        return f"{total.phrase} ({unit})" if unit else total.phrase
    if " of " in quantity and not quantity.startswith(MEDIAN):
        # of a phase
        measure, _, name = quantity.partition(" of ")
        unit = "%" if measure == "share" else unit_in_words(unit)
        title = f"{measure.replace('_', ' ')} of {name}"
        return f"{title} ({unit})" if unit else title
    name, is_of_throats = quantity.removeprefix(MEDIAN), quantity.endswith(OF_THROATS)
    name = name.removesuffix(OF_THROATS).removesuffix(OF_PORES)
    title = COUNTS.get(name) or measure_of(name, THROATS if is_of_throats else PORES).title
    title = f"throats: {title}" if is_of_throats else title
    return f"{title} ({unit_in_words(unit)})" if unit else title


def unit_in_words(unit: str) -> str:
    """Return the unit of a quantity for display: µm² for ``um^2``."""
    length, _, power = unit.removeprefix("1/").partition("^")
    sign = -1 if unit.startswith("1/") else 1
    return readable_unit(length, sign * int(power or 1)) if length else ""


def _names(first: str, second: str) -> tuple[str, str]:
    return (first, second) if first != second else (f"{first}, first", f"{second}, second")


def _unit(unit: str, power: int) -> str:
    return {0: "", 1: unit, -1: f"1/{unit}", -3: f"1/{unit}^3"}.get(power, f"{unit}^{power}")
