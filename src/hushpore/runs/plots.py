"""Plots of a pore result for publications, with their data as CSV."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from hushpore.base.atomic import explained_writing, new_file
from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_unit
from hushpore.figures.drawing import (
    COLUMNS,
    FORMATS,
    PAPER,
    draw_rev,
    draw_transport,
    frame,
    new_figure,
    publication_file,
    publication_size,
)
from hushpore.figures.size_plots import (
    azimuth_table,
    distribution_table,
    draw_distribution,
    draw_inclination,
    draw_rose,
    draw_thickness,
    inclination_table,
)
from hushpore.io.output_target import check_target, require_apart
from hushpore.io.results import as_csv
from hushpore.pores.forms.tables import size_statistics
from hushpore.pores.result import Pores
from hushpore.pores.tables.measures import PORES, measure_of, summarised
from hushpore.pores.tables.totals import major_axes
from hushpore.runs.pore_result import open_result, read_result_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from matplotlib.axes import Axes

    from hushpore.base.arrays import Float64s
    from hushpore.io.export import PoreResult
    from hushpore.runs.pore_result import ResultLike

#: Largest number of bins.
_MOST_BINS = 1000

#: Titles of the profiles that some forms have, by the names of their tables.
DEPTHS = {"profile_depth": "depth below the surface", "profile_radius": "distance from the axis"}

#: Tables of a result that are plotted as they are.
_TABLES = ("profile", *DEPTHS, "thickness", "rev", "drainage", "transport")

#: Colours of a size distribution, of its fit, and of the lines at D10, D50 and D90.
SIZE_COLOURS = (PAPER[0], PAPER[1], PAPER[5])


class _Plot(NamedTuple):
    """A plot, by the name of its files."""

    name: str
    table: pd.DataFrame
    draw: Callable[[Axes], None]
    is_polar: bool = False


def export_plots(
    result: ResultLike,
    folder: str | os.PathLike[str],
    *,
    column: str = "equivalent_diameter",
    bins: int | None = None,
    log: bool = False,
    fitted: bool = True,
    width: str = "single",
    formats: Sequence[str] = FORMATS,
    overwrite: bool = False,
) -> list[Path]:
    """Write the plots of a pore result in the sizes of a publication, with their data as CSV.

    Parameters
    ----------
    result : Pores, str or path-like
        Result of `hushpore.segment_pores`, or a result folder.
    folder : str or path-like
        Where to write; created if needed.
    column : str, optional
        Size of the distributions: a column of the table of pores.
    bins : int, optional
        Number of bins of the distributions; by default from the number of pores.
    log : bool, optional
        Logarithmic size axis, with bins of equal width on it.
    fitted : bool, optional
        Draw log-normal fits.
    width : str, optional
        ``"single"``: a column of 90 mm; ``"double"``: two columns, 190 mm.
    formats : sequence of str, optional
        Of ``"png"`` (300 dpi), ``"svg"`` and ``"pdf"``.
    overwrite : bool, optional
        Replace existing files.

    Returns
    -------
    list of pathlib.Path
        The files: ``sizes_number``, ``sizes_volume``, the same with ``_cumulative``,
        ``orientation_rose``, ``orientation_inclination``, ``size_statistics.csv`` (D10, D50, D90,
        fit), and as far as measured ``profile``, ``profile_depth``, ``profile_radius``,
        ``thickness``, ``rev``, ``drainage`` and ``transport``.

    Raises
    ------
    InputError
        If the result is not complete, or an option is not one of those above.
    OutputError
        If a file exists already or cannot be written.

    Examples
    --------
    >>> import tempfile, hushpore
    >>> void = np.zeros((20, 20, 20), bool)
    >>> void[3:6, 3:6, 3:6] = void[9:14, 9:14, 9:14] = True
    >>> found = hushpore.segment_pores(void)
    >>> files = hushpore.export_plots(found, tempfile.mkdtemp(), formats=["pdf"])
    >>> files[0].name, files[1].name
    ('sizes_number.pdf', 'sizes_number.csv')
    """
    if width not in COLUMNS:
        raise InputError(f"width must be {' or '.join(COLUMNS)}; got {width!r}.")
    unknown = [each for each in formats if each not in FORMATS]
    if unknown or not formats:
        raise InputError(f"formats must be of {', '.join(FORMATS)}; got {list(formats)}.")
    is_count = isinstance(bins, int | np.integer) and not isinstance(bins, bool)
    if bins is not None and not (is_count and 1 <= bins <= _MOST_BINS):
        raise InputError(f"bins must be a whole number from 1 to {_MOST_BINS:,}; got {bins!r}.")
    found = open_result(result)
    columns = summarised(PORES, found.pores)
    if column not in columns:
        raise InputError(f"{column!r} is not a size. Available: {', '.join(columns)}.")
    plots = [
        *_size_plots(found, column, bins, log=log, fitted=fitted),
        *_orientation_plots(found),
        *_other_plots(found, _tables_of(result)),
    ]
    tables = {plot.name: plot.table for plot in plots}
    tables["size_statistics"] = pd.DataFrame(size_statistics(found.pores, column))
    place = Path(folder).expanduser()
    if not place.exists():
        check_target(place)
        with explained_writing(place):
            place.mkdir()
    write: dict[Path, Callable[[Path], object]] = {}
    for plot in plots:
        for kind in formats:
            target = check_target(place / f"{plot.name}.{kind}", overwrite, suffixes=(f".{kind}",))
            write[target] = partial(_draw, plot, width, kind)
        # the data of a plot follow it
        write |= _csv(place, plot.name, tables.pop(plot.name), overwrite)
    for name, table in tables.items():
        write |= _csv(place, name, table, overwrite)
    if isinstance(result, str | os.PathLike):
        require_apart(write, [result], "plotted")
    for target, into in write.items():
        with new_file(target, overwrite) as part:
            into(part)
    return list(write)


def _csv(
    place: Path, name: str, table: pd.DataFrame, overwrite: bool
) -> dict[Path, Callable[[Path], object]]:
    target = check_target(place / f"{name}.csv", overwrite, suffixes=(".csv",))
    return {target: partial(as_csv, table)}


def _draw(plot: _Plot, width: str, kind: str, part: Path) -> None:
    figure = new_figure(*publication_size(width))
    plot.draw(figure.add_subplot(projection="polar" if plot.is_polar else None))
    part.write_bytes(publication_file(figure, kind))


def _tables_of(result: ResultLike) -> Mapping[str, pd.DataFrame]:
    """Return the tables of a result beside those of pores and throats, by name."""
    if not isinstance(result, str | os.PathLike):
        tables = result.files().tables if isinstance(result, Pores) else {}
        return {name: tables[name] for name in _TABLES if name in tables}
    path = Path(result).expanduser()
    folder = path if path.is_dir() else path.parent
    files = {name: folder / f"{name}.csv" for name in _TABLES}
    return {name: read_result_table(file) for name, file in files.items() if file.is_file()}


def _size_plots(
    found: PoreResult, column: str, bins: int | None, *, log: bool, fitted: bool
) -> Iterator[_Plot]:
    sizes = found.pores[column].to_numpy(np.float64)
    volume = found.pores["volume"].to_numpy(np.float64)
    measure = measure_of(column)
    unit = measure.unit(found.unit, found.n_spatial)
    across = measure.titled(found.unit, found.n_spatial)
    for is_cumulative in (False, True):
        for name, what, weights in (
            ("number", "pores", np.ones_like(volume)),
            ("volume", "pore volume", volume),
        ):
            table = distribution_table(
                sizes, weights, is_cumulative=is_cumulative, log=log, bins=bins
            )
            up = f"{what} up to this size (%)" if is_cumulative else f"share of {what} (%)"

            def draw(
                axes: Axes, table: pd.DataFrame = table, weights: Float64s = weights, up: str = up
            ) -> None:
                draw_distribution(
                    axes, sizes, weights, table, unit, SIZE_COLOURS, log=log, fitted=fitted
                )
                frame(axes, across, up)

            yield _Plot(f"sizes_{name}{'_cumulative' * is_cumulative}", table, draw)


def _orientation_plots(found: PoreResult) -> Iterator[_Plot]:
    units = major_axes(found.pores, found.n_spatial)
    rose = azimuth_table(units)
    yield _Plot("orientation_rose", rose, lambda axes: draw_rose(axes, rose, PAPER[0]), True)
    if found.n_spatial == 3:
        inclined = inclination_table(units)
        yield _Plot(
            "orientation_inclination",
            inclined,
            lambda axes: draw_inclination(axes, inclined, PAPER),
        )


def _draw_profile(name: str, table: pd.DataFrame, unit: str, axes: Axes) -> None:
    """Draw the porosity by depth or radius as steps."""
    along = name.removeprefix("profile_")
    edges = [*table[f"{along}_from"], table[f"{along}_to"].iloc[-1]]
    axes.stairs(100 * table["porosity"], edges, color=PAPER[0])
    frame(axes, f"{DEPTHS[name]} ({unit})", "porosity (%)")


def _other_plots(found: PoreResult, tables: Mapping[str, pd.DataFrame]) -> Iterator[_Plot]:
    unit = readable_unit(found.unit)
    draw: Callable[[Axes], None]
    for name, table in tables.items():
        if name == "profile":

            def draw(axes: Axes, table: pd.DataFrame = table) -> None:
                axes.plot(table["position"], 100 * table["porosity"], color=PAPER[0])
                frame(axes, f"position ({unit})", "porosity (%)")

        elif name in DEPTHS:
            draw = partial(_draw_profile, name, table, unit)

        elif name == "thickness":

            def draw(axes: Axes, table: pd.DataFrame = table) -> None:
                draw_thickness(axes, table, unit, PAPER, is_cumulative=False)

        elif name == "transport":

            def draw(axes: Axes, table: pd.DataFrame = table) -> None:
                draw_transport(axes, table, unit, PAPER)

        elif name == "rev":

            def draw(axes: Axes, table: pd.DataFrame = table) -> None:
                settled = found.provenance["result"].get("rev_edge_length")
                draw_rev(axes, table, "porosity", "porosity (%)", unit, settled, PAPER)

        else:

            def draw(axes: Axes, table: pd.DataFrame = table) -> None:
                axes.plot(table["diameter"], 100 * table["saturation"], color=PAPER[0])
                axes.set_xscale("log")
                frame(axes, f"throat diameter ({unit})", "void entered from all faces (%)")

        yield _Plot(name, table, draw)
