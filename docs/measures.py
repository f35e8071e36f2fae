"""Write the tables of docs/reference/columns.md from the measures: python docs/measures.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpore.pores.phases.measures import CONTACTS, PHASES
from hushpore.pores.tables.measures import FURTHER, PORES, THROATS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.pores.tables.measures import Measure

PAGE = Path(__file__).with_name("reference") / "columns.md"
UNITS = {-1: "1 / length", 0: "", 1: "length", 2: "area", 3: "volume"}
TABLES = {
    "pores": PORES, "further": tuple(FURTHER.values()), "phases": PHASES, "contacts": CONTACTS,
    "throats": THROATS,
}  # fmt: skip
EMPTY = (
    "are empty for pores of fewer than `minimum_shape_voxels` (by default 8), whose shape only "
    "reflects the voxel grid."
)


def columns_table(measures: Sequence[Measure[Any]]) -> str:
    """Return a table of columns as Markdown."""
    rows = [f"| `{each.name}` | {UNITS[each.unit_power]} | {each.meaning} |" for each in measures]
    table = "\n".join(["| column | unit | meaning |", "|---|---|---|", *rows]) + "\n"
    shapes = ", ".join(f"`{each.name}`" for each in measures if each.is_shape)
    return f"{table}\n{shapes} {EMPTY}\n" if shapes else table


def columns_page() -> str:
    """Return the page with its tables renewed."""
    text = PAGE.read_text(encoding="utf-8")
    for name, measures in TABLES.items():
        before, head, rest = text.partition(f"<!-- {name}: made by docs/measures.py -->\n")
        _, end, after = rest.partition("<!-- end -->\n")
        assert end, f"the page has no marks for the table of {name}"
        text = f"{before}{head}\n{columns_table(measures)}\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(columns_page(), encoding="utf-8")
