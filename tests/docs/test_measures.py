"""The reference pages of columns and totals are complete, and their links lead somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from hushpore.pores.tables.totals import TOTALS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_columns_page_has_the_columns_of_the_tables() -> None:
    page = runpy.run_path(str(DOCS / "measures.py"))["columns_page"]()
    written = (DOCS / "reference" / "columns.md").read_text(encoding="utf-8")
    assert written == page, "run docs/measures.py"


def test_the_totals_page_explains_every_total_and_links_to_a_page_that_names_it() -> None:
    page = (DOCS / "reference" / "totals.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    listed = [name.strip("|` ") for names, *_ in rows for name in names.split(",")]
    assert sorted(listed) == sorted(total.name for total in TOTALS)
    for *_, link in rows:
        title, target = re.search(r"\[(.+)\]\(\.\./(\w+\.md)\)", link).groups()  # type: ignore[union-attr]
        linked = (DOCS / target).read_text(encoding="utf-8")
        assert title in linked.splitlines()[0]
