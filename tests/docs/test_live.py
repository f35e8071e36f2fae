"""The table of faults in docs/live.md: every row is tried."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_row_of_the_fault_table_names_tests_that_there_are() -> None:
    sources = [path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py")]
    there = {name for text in sources for name in re.findall(r"^def (test_\w+)", text, re.M)}
    page = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
    table = page.split("## When something goes wrong")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert set(named) <= there, row
