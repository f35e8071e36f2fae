from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def test_the_performance_page_holds_what_the_result_files_hold() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "performance.py"))["performance_page"]()
    written = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert written == page, "run docs/performance.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_result_that_a_page_cites_is_kept(page: Path) -> None:
    for cited in re.findall(r"\]\(([^()\s]*results/\w+\.json)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / cited).is_file(), f"{page.name} cites {cited}"


@pytest.mark.parametrize("result", RESULTS, ids=lambda path: path.stem)
def test_every_result_says_what_it_depends_on(result: Path) -> None:
    kept = json.loads(result.read_text(encoding="utf-8"))
    assert {"date", "commit", "device", "processor", "versions", "figures"} <= set(kept)
    assert (ROOT / "benchmarks" / f"{result.stem}.py").is_file()
