"""Parts of a benchmark of which one that fails or hangs does not take the others with it.

A part is a module of this package with ``PARTS``: functions by name, each of which returns figures,
or yields what there is so far, and under ``"samples"`` what they were made of; or with ``measure``
alone. It runs in a process of
its own, because code that went wrong on a GPU often leaves the process unable to use it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Work = Callable[[], "Figures | Iterator[Figures]"]

ROOT = Path(__file__).parents[1]

Figures = dict[str, Any]


def in_one(parts: Mapping[str, Work]) -> Figures:
    """Run the functions of a part here, all of them or none; see `without_samples`."""
    return without_samples({name: list(_so_far(work))[-1] for name, work in parts.items()})


def _so_far(work: Work) -> Iterator[Figures]:
    found = work()
    yield from [found] if isinstance(found, dict) else found


def without_samples(found: Figures) -> Figures:
    """Put the samples of several sets of figures together, beside them."""
    samples = {name: each["samples"] for name, each in found.items() if "samples" in each}
    figures = {
        name: {key: value for key, value in each.items() if key != "samples"}
        for name, each in found.items()
    }
    return {**figures, "samples": samples} if samples else figures


def apart(module: str, seconds: float, names: Sequence[str] = ()) -> Figures:
    """Run a part in a process of its own, for so many seconds at most.

    `names`: of its functions; by default all.
    Returns what its functions returned, as far as they came; ``"failed"`` says what went wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "benchmarks._parts", module, str(target), *names]
        problem = ""
        try:
            done = subprocess.run(command, check=False, cwd=ROOT, timeout=max(seconds, 1))
            if done.returncode:
                problem = f"its process ended with {done.returncode}"
        except subprocess.TimeoutExpired:
            problem = f"not done after {seconds:.0f} s"
        found: Figures = json.loads(target.read_text("utf-8")) if target.is_file() else {}
    found = without_samples(found)
    return {**found, "failed": {"failed": problem}} if problem else found


def run(parts: Mapping[str, Work], target: Path) -> None:
    """Run the functions of a part one after the other, and write after each what there is."""
    found: Figures = {}
    for name, work in parts.items():
        print(f"  {name} ...", flush=True)
        start = time.perf_counter()
        try:
            for figures in _so_far(work):
                found[name] = figures
                target.write_text(json.dumps(found), encoding="utf-8")
        except Exception as error:
            # code that was never run on this device: what else there is should not be lost
            traceback.print_exc()
            line = str(error).partition("\n")[0]
            failed = {"failed": f"{type(error).__name__}: {line}"}
            found[name] = found.get(name, {}) | failed
        print(f"  {name}: {time.perf_counter() - start:.0f} s", flush=True)
        target.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    part = import_module(f"benchmarks.{sys.argv[1]}")
    parts = part.PARTS if hasattr(part, "PARTS") else {"all": part.measure}
    run({name: parts[name] for name in sys.argv[3:] or parts}, Path(sys.argv[2]))
