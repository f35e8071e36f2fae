"""Tables of a result as one workbook for spreadsheet programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

    from hushpore.io.export import PoreResult

#: Rows of a sheet in Excel and LibreOffice, with that of the headings.
_ROWS = 1 << 20


def write_xlsx(path: Path, result: PoreResult) -> None:
    """Write the tables of a pore result; see `write_sheets`."""
    assert result.sheets is not None  # results are opened with them
    write_sheets(path, result.sheets(result))


def require_rows(sheets: Mapping[str, pd.DataFrame]) -> None:
    """Raise InputError if a table has more rows than a sheet."""
    for name, table in sheets.items():
        if len(table) >= _ROWS:
            raise InputError(
                f"The table {name} has {len(table):,} rows, but a sheet of a workbook has at most "
                f"{_ROWS:,}. Export to Parquet, or exclude small pores."
            )


def write_sheets(path: Path, sheets: Mapping[str, pd.DataFrame]) -> None:
    """Write tables as the sheets of a workbook, by their names.

    Numbers are cells of numbers in full precision, whatever the decimal sign of the country; text
    is never a formula.

    Raises InputError if a table has more rows than a sheet.
    """
    import pandas as pd

    require_rows(sheets)
    options = {"strings_to_formulas": False, "strings_to_urls": False}
    with (
        path.open("wb") as file,
        pd.ExcelWriter(file, engine="xlsxwriter", engine_kwargs={"options": options}) as writer,
    ):
        for name, table in sheets.items():
            table.to_excel(writer, sheet_name=name, index=False, freeze_panes=(1, 0))
            writer.sheets[name].autofit(300)
