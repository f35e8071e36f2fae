from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_columns_on_the_science_page_are_those_of_the_tables() -> None:
    page = runpy.run_path(str(DOCS / "measures.py"))["science_page"]()
    assert (DOCS / "science.md").read_text(encoding="utf-8") == page, "run docs/measures.py"
