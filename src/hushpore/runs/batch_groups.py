"""The scans of a batch by groups: a table of means and deviations, and a plot of all of them."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import (
    METRES,
    in_figure,
    on_one_line,
    read_table,
    readable_count,
    readable_unit,
)
from hushpore.figures.drawing import PAPER, add_plots, frame, new_figure, png
from hushpore.pores.tables.totals import total_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.figure import Figure

    from hushpore.base.arrays import Float64s
    from hushpore.pores.tables.totals import Total

#: Groups are the folders in which scans lie.
FOLDER = "folder"

#: What is told of each group, of the totals; of phases it is the share of each.
FIGURES = ("porosity", "count", "median_diameter")

#: Characters of the name of a group in a plot; longer ones are cut.
_LONGEST = 40

#: Characters in a line of the title of an axis.
_LONGEST_TITLE = 28


def groups_of(paths: Sequence[str], names: Sequence[str], groups: str) -> list[str]:
    """Return the group of each scan of a batch.

    Parameters
    ----------
    paths, names : sequence of str
        Where scans lie, and what they are called in the summary.
    groups : str
        ``"folder"``: the name of the folder that a scan lies in. Else a CSV file with a column
        ``group``, and ``name``: what a scan is called in the summary, or its file.

    Returns
    -------
    list of str
        Empty for a scan that the file does not name.

    Raises
    ------
    InputError
        If the file cannot be read, has not these columns, or gives a scan two groups.
    """
    if groups == FOLDER:
        return [Path(path).parent.name for path in paths]
    file = Path(groups).expanduser()
    try:
        # "001" is a name, and no number
        table = read_table(file, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"The groups cannot be read from {file}: {error}. Name a CSV file with the columns "
            "name and group, or 'folder'."
        ) from error
    table.columns = [str(column).strip().lower() for column in table]
    if not {"name", "group"} <= set(table):
        raise InputError(
            f"Groups need a table with the columns name and group; {file} has {', '.join(table)}."
        )
    known: dict[str, str] = {}
    for name, group in zip(table["name"].str.strip(), table["group"].str.strip(), strict=True):
        if known.setdefault(name, group) != group:
            raise InputError(
                f"{file} gives {name} two groups, {known[name]} and {group}. Keep one of them."
            )
    return [
        next((known[key] for key in (name, Path(path).name) if key in known), "")
        for path, name in zip(paths, names, strict=True)
    ]


def group_table(summary: pd.DataFrame) -> pd.DataFrame:
    """Return what scans of a group have in common: one row a group.

    `summary`: that of a batch, with a column ``group``. Columns: ``group``, ``scans`` with a
    result, and of each of `FIGURES`, or of the shares of phases, ``_mean``, ``_deviation`` (of a
    sample, empty for one scan) and ``_scans``, of how many these are; ``unit``, in which all
    lengths are. Lengths that cannot be converted to it, as of scans whose voxel size is not known,
    are in no mean.
    """
    import pandas as pd

    rows = []
    told = _told(summary)
    values = _figures(summary)
    for group in dict.fromkeys(values["group"]):
        own = values[values["group"] == group]
        row: dict[str, Any] = {"group": group, "scans": len(own)}
        for name in told:
            row[f"{name}_mean"] = own[name].mean()
            row[f"{name}_deviation"] = own[name].std(ddof=1)
            row[f"{name}_scans"] = int(own[name].count())
        rows.append({**row, "unit": _unit(summary)})
    columns = [f"{name}_{end}" for name in told for end in ("mean", "deviation", "scans")]
    return pd.DataFrame(rows, columns=["group", "scans", *columns, "unit"])


def scan_figures(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the numbers of each scan of a batch in one unit, for a list of scans.

    Parameters
    ----------
    summary : pandas.DataFrame
        The table of a batch.

    Returns
    -------
    pandas.DataFrame
        One row per scan with a result, indexed by its name. Columns: porosity in %, number of pores
        and median diameter (D50), or the share of each phase in %; the titles name the units. With
        acceptance limits also the verdict.
    """
    values = _figures(summary.assign(group=""))
    unit = readable_unit(_unit(summary))
    short = {"porosity": "Porosity (%)", "count": "Pores", "median_diameter": f"D50 ({unit})"}
    titles = {name: short.get(name, f"{name} (%)") for name in _told(summary)}
    for name, total in _told(summary).items():
        values[name] *= 100 if total is None or total.is_share else 1
    values.index = summary.loc[values.index, "name"]
    found = values[list(titles)].rename(columns=titles)
    if "limits" in summary and summary["limits"].notna().any():
        verdicts = summary.set_index("name")["limits"]
        found["Limits"] = verdicts.where(verdicts.notna(), float("nan"))
    return found


def note_on_units(summary: pd.DataFrame) -> str:
    """Say of which scans lengths cannot be compared by groups; empty where all can be."""
    if not any(total is not None and total.unit_power for total in _told(summary).values()):
        return ""
    units = [str(unit) for unit in summary.loc[_has_result(summary), "unit"]]
    to = _unit(summary)
    if to == "pixel" and len(units) > 1:
        return (
            f"None of the {len(units)} scans has a voxel size: lengths are in pixels, and means of "
            "groups are right only if all voxels have the same size. If so, set it (--voxel-size); "
            "otherwise write it into the files."
        )
    others = [unit for unit in units if math.isnan(_ratio(unit, to))]
    if not others:
        return ""
    return (
        f"The lengths of {len(others)} of {len(units)} scans are in {', '.join(sorted({*others}))} "
        f"and not in {readable_unit(to)}, as where a voxel size is not known: they are in no mean "
        "by groups. Write the voxel size into these files, or give it in a batch of these alone "
        "(--voxel-size, on the command line)."
    )


def draw_groups(figure: Figure, summary: pd.DataFrame) -> None:
    """Draw each scan as a dot in its group, and the mean of the group as a line."""
    values = _figures(summary)
    groups = list(dict.fromkeys(values["group"]))
    unit = readable_unit(_unit(summary))
    told = _told(summary)
    panels = add_plots(figure, len(told))
    for axes, (name, total) in zip(panels, told.items(), strict=True):
        for place, group in enumerate(groups):
            own = values.loc[values["group"] == group, name].dropna().to_numpy(np.float64)
            own = own * (100 if total is None or total.is_share else 1)
            # beside each other, so that equal ones are all seen
            aside = place + 0.24 * _spread(own.size)
            colour = PAPER[place % len(PAPER)]
            axes.plot(aside, own, "o", color=colour, ms=5, alpha=0.8)
            if own.size:
                axes.hlines(own.mean(), place - 0.3, place + 0.3, color=colour, linewidth=2)
        if total is None:
            of, title = "%", on_one_line(name[0].upper() + name[1:], _LONGEST)
        else:
            of = "%" if total.is_share else unit if total.unit_power else ""
            title = "Number of pores" if name == "count" else total.title
        left_out = len(values) - int(values[name].count())
        if left_out and total is not None and total.unit_power:
            axes.set_title(f"without {readable_count(left_out, 'scan')} in other units", fontsize=8)
        # in two lines where it is longer than the axis of a low window
        frame(axes, "", textwrap.fill(f"{title}{f' ({of})' if of else ''}", _LONGEST_TITLE))
        if name == "count":
            axes.locator_params(axis="y", integer=True)
        labels = [in_figure(on_one_line(group or "no group", _LONGEST)) for group in groups]
        turned: dict[str, Any] = (
            {"rotation": 30, "ha": "right"} if len("".join(labels)) > 24 else {}
        )
        axes.set_xticks(range(len(groups)), labels, fontsize=8, **turned)
        axes.set_xlim(-0.6, max(len(groups), 1) - 0.4)
        axes.margins(y=0.15)


def groups_picture(summary: pd.DataFrame) -> bytes:
    """Return the plot of all scans as a PNG file."""
    figure = new_figure(10, 3.6)
    draw_groups(figure, summary)
    return png(figure)


def has_figures(summary: pd.DataFrame) -> bool:
    """Whether any scan has a result of which there is something to tell by groups."""
    return "group" in summary and bool(_has_result(summary).any())


def _told(summary: pd.DataFrame) -> dict[str, Total | None]:
    """Return the columns that are told of; of totals what they are."""
    if set(FIGURES) <= set(summary):
        return {name: total_of(name) for name in FIGURES}
    shares = [str(name) for name in summary if str(name).startswith("share of ")]
    return {name: None for name in shares if not name.startswith("share of contact ")}


def _has_result(summary: pd.DataFrame) -> pd.Series:
    """Return which scans have any of what is told."""
    return summary[list(_told(summary))].notna().any(axis=1)


def _figures(summary: pd.DataFrame) -> pd.DataFrame:
    """Return the figures of scans with a result, lengths in one unit; NaN where they cannot be."""
    import pandas as pd

    found = summary[_has_result(summary)]
    table = pd.DataFrame({"group": found["group"]})
    to = _unit(summary)
    for name, total in _told(summary).items():
        table[name] = pd.to_numeric(found[name])
        if total is not None and total.unit_power:
            ratio = [_ratio(unit, to) ** total.unit_power for unit in found["unit"]]
            table[name] *= np.array(ratio, np.float64)
    return table


def _unit(summary: pd.DataFrame) -> str:
    """Return the unit of the first scan whose lengths others can be converted to."""
    units = [str(unit) for unit in summary.loc[_has_result(summary), "unit"]]
    return next((unit for unit in units if unit in METRES), units[0] if units else "pixel")


def _ratio(unit: str, to: str) -> float:
    if unit == to:
        return 1.0
    return METRES[unit] / METRES[to] if unit in METRES and to in METRES else float("nan")


def _spread(count: int) -> Float64s:
    return np.linspace(-1, 1, count) if count > 1 else np.zeros(count)
