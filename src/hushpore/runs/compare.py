"""Comparison of two results: a table of differences, a figure, and a headline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import METRES, percent_digits, readable_number, readable_unit
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
from hushpore.pores.tables.measures import PORES, THROATS, summarised
from hushpore.pores.tables.totals import TOTALS
from hushpore.runs.compare_phases import is_of_phases, open_phases, phase_rows, phases_figure
from hushpore.runs.pore_result import open_result
from hushpore.runs.two_samples import compare_samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from matplotlib.figure import Figure

    from hushpore.io.export import PoreResult
    from hushpore.pores.phases.result import Phases
    from hushpore.runs.compare_phases import PhaseTables
    from hushpore.runs.pore_result import ResultLike


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


def unit_in_words(unit: str) -> str:
    """Return the unit of a quantity for display: µm² for ``um^2``."""
    length, _, power = unit.removeprefix("1/").partition("^")
    sign = -1 if unit.startswith("1/") else 1
    return readable_unit(length, sign * int(power or 1)) if length else ""


def _names(first: str, second: str) -> tuple[str, str]:
    return (first, second) if first != second else (f"{first}, first", f"{second}, second")


def _unit(unit: str, power: int) -> str:
    return {0: "", 1: unit, -1: f"1/{unit}", -3: f"1/{unit}^3"}.get(power, f"{unit}^{power}")
