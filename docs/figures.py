"""Write the page of all benchmark results; conf.py calls it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BENCHMARKS = HERE.parent / "benchmarks"

HEAD = """# All figures

*What exactly did each benchmark measure?*

Each table holds one run of `python -m benchmarks NAME`, with device, versions, commit and date.
Variants were run alternately in one process. A commit ending in `-dirty` had uncommitted changes. A
table is marked as old if later commits changed a package that its benchmark runs.
[Performance](performance.md) is the summary.
"""

NO_GPU = """
No file here comes from a GPU yet, so the CUDA code is unverified on one. With a GPU,
`python -m benchmarks gpu` measures it in some minutes and writes a file for this page
([what is tested without one](notes/gpu.md)).
"""

#: Pictures drawn from result files, by benchmark: caption and file.
PICTURES = {"denoise_quality": ("PSNR on Set12 against training time", "denoising-curve.png")}

#: Packages of hushpore that a function or job name stands for.
BEHIND = {
    "denoise": ("denoising",),
    "segment_pores": ("pores",),
    "pores": ("pores",),
    "measure_labels": ("pores",),
    "measure_phases": ("pores",),
    "sample_patches": ("patches",),
    "run_demo": ("denoising", "pores"),
    "open_page": ("viewer",),
}

Figures = dict[str, Any]


def figures_page(results: Path = BENCHMARKS / "results") -> str:
    """Return the page as Markdown, of the result files in a folder."""
    on_gpus = sorted((results / "gpu").glob("*.json"))
    head = HEAD if on_gpus else HEAD + NO_GPU
    pages = [_section(path, path.stem, results) for path in sorted(results.glob("*.json"))]
    pages += [_section(path, "gpu", results) for path in on_gpus]
    decided = sorted((results / "decided").glob("*.json"))
    return "".join([head, *pages, *(_section(path, "", results) for path in decided)])


def _section(path: Path, benchmark: str, results: Path) -> str:
    """Return the section of a result file; `benchmark` is empty if its code was removed."""
    result = json.loads(path.read_text(encoding="utf-8"))
    purpose = "No longer run: it supported a decision. Its code is in the history, at its commit."
    if benchmark:
        module = ast.parse((BENCHMARKS / f"{benchmark}.py").read_text(encoding="utf-8"))
        purpose = (ast.get_docstring(module) or "").partition("\n\n")[0].replace("\n", " ")
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    where = f"../benchmarks/results/{path.relative_to(results).as_posix()}"
    lines = [
        f"\n## {path.stem.replace('_', ' ').capitalize()}\n",
        f"{purpose}\n",
        f"{result['device']} ({result['processor']}), {result['date'][:10]}, commit "
        f"`{result['commit']}`, {versions}. [{path.name}]({where})\n",
    ]
    if benchmark and (age := _age(result["commit"], packages_of(benchmark))):
        lines.append(f"{age}\n")
    if benchmark in PICTURES:
        shows, picture = PICTURES[benchmark]
        lines.append(f"![{shows}](images/{picture})\n")
    return "\n".join([*lines, *_tables(result["figures"], "")])


def packages_of(benchmark: str, root: Path = HERE.parent) -> list[str]:
    """Return the packages of hushpore that a benchmark and the modules that it imports name.

    `base` is omitted, because everything uses it.
    """
    names, seen, found = [benchmark], set(), set()
    while names:
        path = root / "benchmarks" / f"{names.pop()}.py"
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        code = path.read_text(encoding="utf-8")
        names += re.findall(r"\bbenchmarks(?:\.| import )(\w+)", code)
        found |= set(re.findall(r"\bhushpore\.(\w+)", code)) - {"base"}
        called = re.findall(r"\b(\w+)\(|\"(\w+)\"", code)
        found.update(*(BEHIND.get(name, ()) for pair in called for name in pair))
    packages = sorted(f"src/hushpore/{name}" for name in found)
    return [each for each in packages if (root / each).is_dir()]


@cache
def _commits_since(commit: str, packages: tuple[str, ...], root: Path) -> list[str]:
    """Return the commits after one that changed some packages; empty without git history."""
    command = ["git", "log", "--format=%h", f"{commit}..HEAD", "--", *packages]
    try:
        found = subprocess.run(command, check=True, cwd=root, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        # no git, no history, or not enough of it
        return []
    return found.stdout.split()


def _age(commit: str, packages: list[str], root: Path = HERE.parent) -> str:
    """Return the remark on a result older than its code; empty if that is unknown."""
    since = _commits_since(commit.removesuffix("-dirty"), tuple(packages), root) if packages else []
    if not since:
        return ""
    many = f"{len(since)} commits have" if len(since) > 1 else "one commit has"
    return f"**Old**: since then {many} changed {', '.join(f'`{each}`' for each in packages)}."


def _tables(figures: Figures, title: str) -> list[str]:
    """Return a table of the rows with equal columns, then nested groups under their own titles."""
    single = {name: value for name, value in figures.items() if not isinstance(value, dict)}
    groups = {name: value for name, value in figures.items() if isinstance(value, dict)}
    rows = {name: value for name, value in groups.items() if _is_row(value)}
    lines = [f"### {title}\n"] if title else []
    if single:
        lines += _table([["", "value"], *([name, _text(value)] for name, value in single.items())])
    for columns in _alike(rows):
        alike = {name: row for name, row in rows.items() if tuple(row) == columns}
        body = [[name, *map(_text, row.values())] for name, row in alike.items()]
        whole = [["", *(column.replace("_", " ") for column in columns)], *body]
        # a table of many columns and few rows is easier to read transposed
        turned = len(whole) < 4 < len(columns)
        lines += _table([list(row) for row in zip(*whole, strict=True)] if turned else whole)
    for name, value in groups.items():
        if name not in rows:
            lines += _tables(value, f"{title}: {name}" if title else name)
    return lines


def _is_row(value: Figures) -> bool:
    return not any(isinstance(each, dict) for each in value.values())


def _alike(rows: dict[str, Figures]) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(tuple(row) for row in rows.values()))


def _table(rows: list[list[str]]) -> list[str]:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return [head, "|" + "---|" * len(rows[0]), *body, ""]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
