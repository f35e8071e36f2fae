from __future__ import annotations

import runpy
from pathlib import Path

from hushpore.pores.tables.totals import TOTALS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_columns_on_the_science_page_are_those_of_the_tables() -> None:
    page = runpy.run_path(str(DOCS / "measures.py"))["science_page"]()
    assert (DOCS / "science.md").read_text(encoding="utf-8") == page, "run docs/measures.py"


def test_the_science_page_says_of_every_total_what_it_is_and_in_which_section() -> None:
    page = (DOCS / "science.md").read_text(encoding="utf-8")
    section = page.partition("## Totals of a volume")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    told = [name.strip("|` ") for names, *_ in rows for name in names.split(",")]
    assert sorted(told) == sorted(total.name for total in TOTALS)
    for *_, of in rows:
        assert f"\n## {of.strip('|* ')}\n" in page
