"""The one entry point of the benchmarks.

Every other module of this package is a benchmark: its ``measure()`` returns a dict of figures,
which is written with device, versions, commit and date to ``results/NAME.json``; or it yields what
there is so far, which is written each time. Under ``"samples"`` it may have what figures were made
of, and that is kept beside them. One that needs what is not there, a GPU for example, says so and
is passed over.

Results of benchmarks that proved a decision, and are not run any more, are in ``results/decided``;
their code is in the history, at the commit that each of them names.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._missing import MissingError
from hushpore import __version__
from hushpore.base.errors import DeviceError, MissingPackageError
from hushpore.device.backend import choose_backend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

HERE = Path(__file__).parent
PACKAGES = (
    "numpy", "scipy", "scikit-image", "numba", "torch", "cupy-cuda12x", "cupy-cuda13x",
    "porespy", "openpnm", "taufactor",
)  # fmt: skip


def names() -> list[str]:
    """All benchmarks, by module name."""
    return sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def surroundings() -> dict[str, object]:
    """What a figure depends on beside the code."""
    always = {"python": platform.python_version(), "hushpore": __version__}
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "commit": _commit(),
        "device": choose_backend().name,
        "processor": _processor(),
        "platform": platform.platform(),
        "versions": {**always, **versions},
    }


def main(words: list[str]) -> None:
    """Run benchmarks and write their results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", help="which; by default all")
    parser.add_argument("--out", type=Path, help="folder of the results; default: results/")
    parser.add_argument("--limit", type=float, help="seconds that it may take, of gpu")
    parser.add_argument("--only", help="part of the names of scans, of denoise_correlated")
    parser.add_argument("--images", type=Path, help="folder of published images, of stokes")
    given = parser.parse_args(words)
    for name in given.names or names():
        module = import_module(f"benchmarks.{name}")
        try:
            for result, target in results(module, given.out, given.limit, given.only, given.images):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        except (DeviceError, MissingPackageError, MissingError) as error:
            print(f"{name} was not run: {error}")
            continue
        print(name, json.dumps(result["figures"], indent=2))


def results(
    module: ModuleType,
    out: Path | None = None,
    limit: float | None = None,
    only: str | None = None,
    images: Path | None = None,
) -> Iterator[tuple[dict[str, Any], Path]]:
    """Run a benchmark; yields what is to be written, and where, each time that there is more.

    `out`: folder of the results; by default the one beside this file. `limit`: seconds that it may
    take, where it takes a limit. `only`: which of its parts are done, where it takes that: beside
    those that the same commit has done already. `images`: folder of published images,
    where it takes one.
    """
    given = {"limit": limit, "out": out, "only": only, "images": images}
    taken = inspect.signature(module.measure).parameters
    if only is not None and "kept" in taken:
        given["kept"] = _figures_of_same_commit((out or HERE / "results") / f"{_name(module)}.json")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    measured = module.measure(
        **{name: value for name, value in given.items() if name in taken and value is not None}
    )
    for figures in [measured] if isinstance(measured, dict) else measured:
        around = surroundings()
        result = {**around, "figures": figures}
        if "samples" in figures:
            result["samples"] = figures["samples"]
            result["figures"] = {k: v for k, v in figures.items() if k != "samples"}
        # those of a GPU are kept for each
        named = getattr(module, "result_name", None)
        file = named(around) if named else f"{_name(module)}.json"
        yield result, out / Path(file).name if out else HERE / "results" / file


def _name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def _figures_of_same_commit(file: Path) -> dict[str, Any] | None:
    """Return the figures of an earlier run of the same commit, or None."""
    if not file.is_file():
        return None
    earlier = json.loads(file.read_text(encoding="utf-8"))
    return earlier["figures"] if earlier["commit"] == _commit() else None


def _commit() -> str:
    """Return the commit: HUSHPORE_COMMIT where a copy has no history of its own, else git's."""
    if "HUSHPORE_COMMIT" in os.environ:
        return os.environ["HUSHPORE_COMMIT"]
    describe = ["git", "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(describe, check=False, cwd=HERE, capture_output=True, text=True)
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))


if __name__ == "__main__":
    main(sys.argv[1:])
