from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "benchmarks" / "results"
RESULTS = sorted(KEPT.rglob("*.json"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CITED = re.compile(r"\]\(([^()\s]*results/[^()\s]*)\)")


def figures_page(results: Path = KEPT) -> str:
    return str(runpy.run_path(str(ROOT / "docs" / "figures.py"))["figures_page"](results))


def test_the_site_has_a_table_of_every_result_file() -> None:
    page = figures_page()
    for result in RESULTS:
        kept = json.loads(result.read_text(encoding="utf-8"))
        assert (
            f"[{result.name}](../benchmarks/results/{result.relative_to(KEPT).as_posix()})" in page
        )
        assert kept["commit"] in page


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_result_that_a_page_cites_is_kept(page: Path) -> None:
    for cited in CITED.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / cited).is_file(), f"{page.name} cites {cited}"


@pytest.mark.parametrize("result", RESULTS, ids=lambda path: path.stem)
def test_every_result_says_what_it_depends_on(result: Path) -> None:
    kept = json.loads(result.read_text(encoding="utf-8"))
    assert {"date", "commit", "device", "processor", "versions", "figures"} <= set(kept)
    benchmark = "gpu" if result.parent.name == "gpu" else result.stem
    assert (ROOT / "benchmarks" / f"{benchmark}.py").is_file()


def test_what_no_gpu_has_measured_is_said_to_be_unverified(tmp_path: Path) -> None:
    measured = any((KEPT / "gpu").glob("*.json"))
    howto = (ROOT / "docs" / "howto" / "gpu.md").read_text(encoding="utf-8")
    assert ("**None of this has run on a GPU yet.**" in howto) != measured
    assert ("unverified on one" in figures_page()) != measured
    known = json.loads((KEPT / "waiting.json").read_text(encoding="utf-8"))
    (tmp_path / "gpu").mkdir()
    one = {**known, "device": "A GPU", "figures": {"part": {"copies": {"up, GB/s": 21.5}}}}
    (tmp_path / "gpu" / "2031-02-03_a-gpu.json").write_text(json.dumps(one), encoding="utf-8")
    page = figures_page(tmp_path)
    assert "unverified" not in page
    assert "A GPU" in page
    assert "| copies | 21.5 |" in page


@pytest.mark.parametrize("page", ["howto/gpu.md", "security.md"])
def test_the_tests_that_a_page_names_are_there(page: str) -> None:
    told = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)+test_\w+\.py)`", told)
    assert len(named) > 10
    for name in named:
        assert (ROOT / "tests" / name).is_file(), name
