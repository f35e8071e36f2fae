"""Two results side by side: a table of what differs, and a picture of both."""

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
from hushpore.runs.compare_phases import (
    is_of_phases,
    open_phases,
    phase_rows,
    phases_figure,
)
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
    """Return how two results of pores differ, or two of phases.

    Parameters
    ----------
    a, b : Pores, Phases, str or path-like
        What `hushpore.segment_pores` or `hushpore.measure_phases` returns, or result folders.

    Returns
    -------
    pandas.DataFrame
        One row a quantity: totals first, then the median of each column of the tables. Columns
        ``quantity``, ``unit``, ``a``, ``b``, ``difference`` (b - a) and ``relative`` (a share of
        a). For distributions ``ks``, the Kolmogorov-Smirnov distance: the largest difference of
        the two cumulative shares, 0 (alike) to 1; ``p`` of the two-sided test of Mann and Whitney;
        ``low`` and ``high``, a 95 % bootstrap interval of the difference of medians. The last three
        take pores for independent samples, which those of one scan are not: they look surer than
        they are. Lengths of `b` are in the unit of `a`.

        Of phases: what is measured of each, and of their contacts, by their names; ``share of
        quartz``, ``thickness of quartz``, ``specific_area of contact clay - quartz``. Distributions
        are compared of regions, where both have them.

    Raises
    ------
    InputError
        If one is not a result, one is of pores and one of phases, phases have no name in common,
        lengths cannot be compared, or one is of a 2D image and one of a 3D volume.
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
    """Return which share of the pores of two results, or of their volume, is of which size.

    Parameters
    ----------
    a, b : Pores, str or path-like
        As for `compare`.
    column : str, optional
        Of the table of pores: one of those that `compare` compares.
    by_volume : bool, optional
        Shares of the volume of the pores, not of their number.
    log : bool, optional
        Bins of equal width on a logarithmic axis; what is not above zero is left out.
    bins : int, optional
        How many.

    Returns
    -------
    pandas.DataFrame
        ``from`` and ``to`` of each bin, the same for both, in the unit of `a`; ``a``, ``b``:
        shares; ``a_cumulative``, ``b_cumulative``: shares up to the end of the bin.

    Raises
    ------
    InputError
        As for `compare`; or if the column is another.
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
    """Draw the pore sizes of two results over each other, or what phases have beside each other.

    Parameters
    ----------
    a, b : Pores, Phases, str or path-like
        As for `compare`.
    dpi : int, optional
        Resolution.

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

    `table`: that of `compare`.
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


def shift_in_words(table: pd.DataFrame, column: str) -> str:
    """Return in a sentence how far the median of a column of the table of pores shifted.

    `table`: that of `compare`. Empty where one of the results has no pores.
    """
    row = table.set_index("quantity").loc[f"median {column} of pores"]
    if not np.isfinite(row["p"]):
        return ""
    unit = f" {words}" if (words := unit_in_words(row["unit"])) else ""
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
    """Return what converts lengths of the second into the unit of the first.

    Raises InputError if there is nothing that does, or one is of an image and one of a volume.
    """
    if first.n_spatial != second.n_spatial:
        raise InputError(
            f"{first.name} has {first.n_spatial} dimensions and {second.name} {second.n_spatial}: "
            "areas cannot be compared with volumes, nor lines with surfaces. Compare two results "
            "of images, or two of volumes."
        )
    a, b = first.unit, second.unit
    if a == b:
        return 1.0
    if a not in METRES or b not in METRES:
        raise InputError(
            f"{first.name} is measured in {readable_unit(a)} and {second.name} in "
            f"{readable_unit(b)}; these lengths cannot be compared. Measure both with their voxel "
            "size."
        )
    return METRES[b] / METRES[a]


def unit_in_words(unit: str) -> str:
    """Write the unit of a quantity as people do: µm² for ``um^2``, which files have."""
    length, _, power = unit.removeprefix("1/").partition("^")
    sign = -1 if unit.startswith("1/") else 1
    return readable_unit(length, sign * int(power or 1)) if length else ""


def _names(first: str, second: str) -> tuple[str, str]:
    return (first, second) if first != second else (f"{first}, first", f"{second}, second")


def _unit(unit: str, power: int) -> str:
    return {0: "", 1: unit, -1: f"1/{unit}", -3: f"1/{unit}^3"}.get(power, f"{unit}^{power}")
