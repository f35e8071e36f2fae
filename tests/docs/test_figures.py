from __future__ import annotations

import json
import re
import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "benchmarks" / "results"
RESULTS = sorted(KEPT.rglob("*.json"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CITED = re.compile(r"\]\(([^()\s]*results/[^()\s]*)\)")


def figures_page(results: Path = KEPT) -> str:
    return str(runpy.run_path(str(ROOT / "docs" / "figures.py"))["figures_page"](results))


def test_the_page_of_validation_has_the_figures_of_the_last_run() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "validation.py"))["validation_page"]()
    written = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    assert written == page, "run docs/validation.py"


def test_the_site_has_a_table_of_every_result_file() -> None:
    page = figures_page()
    for result in RESULTS:
        kept = json.loads(result.read_text(encoding="utf-8"))
        assert (
            f"[{result.name}](../benchmarks/results/{result.relative_to(KEPT).as_posix()})" in page
        )
        assert kept["commit"] in page


def test_a_result_is_old_once_a_package_that_its_benchmark_runs_was_changed(tmp_path: Path) -> None:
    figures = runpy.run_path(str(ROOT / "docs" / "figures.py"))

    def git(*words: str) -> str:
        identity = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        command = ["git", *identity, *words]
        return subprocess.check_output(command, cwd=tmp_path, text=True).strip()

    def commit(name: str, content: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        git("add", ".")
        git("commit", "-qm", name)
        return git("rev-parse", "--short", "HEAD")

    def age(commit: str) -> str:
        figures["_commits_since"].cache_clear()
        return str(figures["_age"](commit, packages, tmp_path))

    git("init", "-q")
    commit("benchmarks/_part.py", "from hushpore.device.memory import free")
    commit("benchmarks/one.py", "from benchmarks._part import a\nhushpore.denoise(a)")
    for name in ("denoising", "device", "pores"):
        measured = commit(f"src/hushpore/{name}/a.py", "")
    packages = figures["packages_of"]("one", tmp_path)
    assert packages == ["src/hushpore/denoising", "src/hushpore/device"]
    commit("src/hushpore/pores/a.py", "another")
    assert age(measured) == age(f"{measured}-dirty") == ""
    commit("src/hushpore/device/a.py", "another")
    assert age(measured).startswith(
        "**Old**: since then one commit has changed `src/hushpore/denoising`"
    )
    commit("src/hushpore/denoising/a.py", "another")
    assert "2 commits have" in age(f"{measured}-dirty")
    assert age("unknown") == ""


def test_without_a_history_no_result_is_called_old(tmp_path: Path) -> None:
    age = runpy.run_path(str(ROOT / "docs" / "figures.py"))["_age"]
    assert age("HEAD", ["src"], tmp_path) == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_result_that_a_page_cites_is_kept(page: Path) -> None:
    for cited in CITED.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / cited).is_file(), f"{page.name} cites {cited}"


@pytest.mark.parametrize("result", RESULTS, ids=lambda path: path.stem)
def test_every_result_says_what_it_depends_on(result: Path) -> None:
    kept = json.loads(result.read_text(encoding="utf-8"))
    assert {"date", "commit", "device", "processor", "versions", "figures"} <= set(kept)
    benchmark = "gpu" if result.parent.name == "gpu" else result.stem
    is_decided = result.parent.name == "decided"
    assert (ROOT / "benchmarks" / f"{benchmark}.py").is_file() != is_decided


def test_what_no_gpu_has_measured_is_said_to_be_unverified(tmp_path: Path) -> None:
    measured = any((KEPT / "gpu").glob("*.json"))
    note = (ROOT / "docs" / "notes" / "gpu.md").read_text(encoding="utf-8")
    assert ("**None of this has run on a GPU yet.**" in note) != measured
    assert ("unverified on one" in figures_page()) != measured
    known = json.loads((KEPT / "waiting.json").read_text(encoding="utf-8"))
    (tmp_path / "gpu").mkdir()
    one = {**known, "device": "A GPU", "figures": {"part": {"copies": {"up, GB/s": 21.5}}}}
    (tmp_path / "gpu" / "2031-02-03_a-gpu.json").write_text(json.dumps(one), encoding="utf-8")
    page = figures_page(tmp_path)
    assert "unverified" not in page
    assert "A GPU" in page
    assert "| copies | 21.5 |" in page


@pytest.mark.parametrize("page", ["notes/gpu.md", "failures.md"])
def test_the_tests_that_a_page_names_are_there(page: str) -> None:
    told = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)+test_\w+\.py)`", told)
    assert len(named) > 10
    for name in named:
        assert (ROOT / "tests" / name).is_file(), name
