"""The sheets of a workbook, from the tables and the record of a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from hushpore.base.formatting import readable_unit
from hushpore.pores.phases.measures import CONTACTS, PHASES
from hushpore.pores.tables.measures import FURTHER, PORES, THROATS
from hushpore.pores.tables.totals import totals_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hushpore.io.export import PoreResult
    from hushpore.pores.tables.measures import Measure

#: Powers of the unit of length of columns that are no measures of a pore or phase.
_POWERS = {
    **dict.fromkeys(("position", "edge", "diameter", "d10", "d50", "d90", "lognormal_median"), 1),
    **{f"{what}_{end}": 1 for what in ("depth", "diameter", "radius", "thickness")
       for end in ("from", "to")},
    **dict.fromkeys(("density", "density_low", "density_high"), -3),
}  # fmt: skip


def sheets_of(
    tables: Mapping[str, pd.DataFrame], jobs: Sequence[Mapping[str, Any]], unit: str, n_spatial: int
) -> dict[str, pd.DataFrame]:
    """Return the sheets by name: totals, tables with units in their headings, and settings.

    `tables`: by name, as in a result folder. `jobs`: the records of the jobs. `unit`: of lengths.
    """
    measures: list[Measure[Any]] = [*PHASES, *CONTACTS, *PORES, *FURTHER.values(), *THROATS]
    units = {each.name: each.unit(unit, n_spatial) for each in measures}
    units |= {name: readable_unit(unit, max(power, -n_spatial)) for name, power in _POWERS.items()}
    units["mercury_pressure"] = "Pa"
    first = {"totals": tables["totals"]} if "totals" in tables else {}
    sheets = {
        name.replace("_", " ").capitalize(): table.rename(
            columns=lambda name: f"{name} ({units[name]})" if units.get(name) else name
        )
        for name, table in {**first, **tables}.items()
    }
    settings = [
        (job["job"], name, value if isinstance(value, (bool, int, float, str)) else str(value))
        for job in jobs
        for name, value in job["settings"].items()
        if value is not None
    ]
    return {**sheets, "Settings": pd.DataFrame(settings, columns=["job", "setting", "value"])}


def sheets_of_result(result: PoreResult) -> dict[str, pd.DataFrame]:
    """Return the sheets of a pore result: totals, pores, throats, form and settings."""
    record = result.provenance
    tables = {"pores": result.pores, "throats": result.throats}
    if record["job"] != "phases":
        tables = {"totals": pd.DataFrame(totals_columns(record["result"])), **tables}
    if result.form is not None:
        tables["form"] = result.form
    return sheets_of(tables, [record], result.unit, result.n_spatial)
