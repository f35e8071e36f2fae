"""A pore result as one workbook for spreadsheet programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.pores.tables.measures import FURTHER, PORES, THROATS
from hushpore.pores.tables.totals import totals_columns

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pandas as pd

    from hushpore.io.export import PoreResult
    from hushpore.pores.tables.measures import Measure

#: Rows of a sheet in Excel and LibreOffice, with that of the headings.
_ROWS = 1 << 20


def write_xlsx(path: Path, result: PoreResult) -> None:
    """Write totals, tables, form and settings as the sheets of a workbook.

    Numbers are cells of numbers in full precision, whatever the decimal sign of the country; text
    is never a formula. Headings of lengths have their unit.

    Raises InputError if a table has more rows than a sheet.
    """
    import pandas as pd

    record = result.provenance
    settings = {
        name: value if isinstance(value, (bool, int, float, str)) else str(value)
        for name, value in record["settings"].items()
        if value is not None
    }
    sheets = {
        "Totals": pd.DataFrame(totals_columns(record["result"])),
        "Pores": _with_units(result.pores, (*PORES, *FURTHER.values()), result),
        "Throats": _with_units(result.throats, THROATS, result),
        "Form": result.form,
        "Settings": pd.DataFrame({"setting": settings.keys(), "value": settings.values()}),
    }
    options = {"strings_to_formulas": False, "strings_to_urls": False}
    with (
        path.open("wb") as file,
        pd.ExcelWriter(file, engine="xlsxwriter", engine_kwargs={"options": options}) as writer,
    ):
        for name, table in sheets.items():
            if table is None:
                continue
            if len(table) >= _ROWS:
                raise InputError(
                    f"The table {name} of {result.name} has {len(table):,} rows, but a sheet has "
                    f"at most {_ROWS:,}. Export to Parquet, or exclude small pores."
                )
            table.to_excel(writer, sheet_name=name, index=False, freeze_panes=(1, 0))
            writer.sheets[name].autofit(300)


def _with_units(
    table: pd.DataFrame, measures: Iterable[Measure[Any]], result: PoreResult
) -> pd.DataFrame:
    """Return a table whose headings have units."""
    units = {each.name: each.unit(result.unit, result.n_spatial) for each in measures}
    return table.rename(
        columns=lambda name: f"{name} ({unit})" if (unit := units.get(name)) else name
    )
