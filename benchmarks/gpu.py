"""Everything on a GPU in one go: pores, training, whole jobs, its tests, copies, every switch.

What tells most comes first, and what there is is written after each part: to a file of its own for
each day and device, ``results/gpu/DATE_DEVICE.json``, or into a folder. What fails or hangs is kept
as what it says, and the rest goes on. It takes no more than NumPy, SciPy, scikit-image, pandas,
numba, psutil, safetensors, tifffile, PyTorch, CuPy, pytest and hypothesis::

    PYTHONPATH=src python -m benchmarks gpu --out FOLDER --limit 520
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import _parts
from benchmarks.gpu_jobs import SWITCHES
from hushpore.device.backend import choose_backend

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds that all of it may take where nothing else is asked for.
LIMIT = 520.0

ROOT = Path(__file__).parents[1]


class Part(NamedTuple):
    """Some functions of a part, or the tests; and the seconds that they may take."""

    module: str
    names: tuple[str, ...]
    seconds: float


#: Those who meet a GPU for the first time compile kernels: the first has time for that.
PARTS = (
    Part("pores_gpu", ("copies of its own memory", "512^3", "512^3, kernel by kernel"), 90),
    Part(
        "gpu_steps",
        tuple(f"training{more}" for more in ("", ", first layer", ", by the batch")),
        45,
    ),
    Part("tests", (), 95),
    Part("ndimage", ("on a GPU",), 30),
    Part("gpu_jobs", ("pores, as it comes", "denoise, as it comes"), 35),
    Part("pores_gpu", ("1024^3", "1024^3, from disk"), 75),
    Part(
        "gpu_steps",
        (
            *("tiles", "slabs"),
            *(f"training, {more}" for more in ("several steps in a graph", "float32")),
            *(f"training, {more}" for more in ("by the profiler", "timed and not")),
        ),
        40,
    ),
    Part("gpu_transfers", (), 15),
    Part("gpu_jobs", tuple(f"denoise, {name}" for name in SWITCHES), 25),
    Part("pores_gpu", ("256^3", "256^3, in slabs", "512^3, plain uint16"), 25),
    Part("gpu_search", (), 45),
)


def measure(limit: float = LIMIT, out: Path | None = None) -> Iterator[dict[str, Any]]:
    """Run all parts; yields what there is so far.

    `limit`: seconds that all may take. `out`: where what the tests say is written while they run;
    by default nowhere.
    """
    choose_backend("cuda")
    end = time.monotonic() + limit
    with tempfile.TemporaryDirectory() as folder:
        # what somebody prefers on this machine is not what is measured
        os.environ["HUSHPORE_CONFIG"] = folder
        figures: dict[str, Any] = {}
        samples: dict[str, Any] = {}
        for part in PARTS:
            # what the parts before did not need is for those after
            left = end - time.monotonic()
            planned = sum(each.seconds for each in PARTS[PARTS.index(part) + 1 :])
            seconds = min(left, max(part.seconds, left - planned))
            if seconds < 1:
                figures.setdefault(part.module, {})["failed"] = {"failed": "no time was left"}
                continue
            print(f"{part.module} {', '.join(part.names)} ...", flush=True)
            found = _run(part, seconds, out)
            samples.setdefault(part.module, {}).update(found.pop("samples", {}))
            figures.setdefault(part.module, {}).update(found)
            yield {**figures, "samples": samples}
        yield {**figures, "samples": samples}


def result_name(surroundings: dict[str, Any]) -> str:
    """Return the name of the result file, below ``results``."""
    device = re.sub(r"[^a-z0-9]+", "-", str(surroundings["device"]).lower()).strip("-")
    return f"gpu/{str(surroundings['date'])[:10]}_{device}.json"


def _run(part: Part, seconds: float, out: Path | None) -> dict[str, Any]:
    if part.module == "tests":
        return _tests(seconds, out)
    return _parts.apart(part.module, seconds, part.names)


def _tests(seconds: float, out: Path | None) -> dict[str, Any]:
    """Run the tests; returns what pytest says last, and which failed."""
    # these alone, for others need what need not be here; a warning of a library is no failure
    paths = sorted(ROOT.glob("tests/**/test_*.py"))
    tests = [str(path) for path in paths if "mark.gpu" in path.read_text("utf-8")]
    # what only a GPU can show comes first
    tests.sort(key=lambda path: "/gpu/" not in path)
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-v", "-p", "no:cacheprovider"]
    # a hang is told before it is killed
    command += ["-o", "filterwarnings=default", "-o", "faulthandler_timeout=40", *tests]
    with tempfile.TemporaryDirectory() as folder:
        # what they said until then is there where they hang, too
        said = (out or Path(folder)) / "tests.txt"
        problem = ""
        with said.open("w", encoding="utf-8") as file:
            try:
                subprocess.run(
                    command, check=False, cwd=ROOT, stdout=file, stderr=file, timeout=seconds
                )
            except subprocess.TimeoutExpired:
                problem = f"not done after {seconds:.0f} s"
        lines = said.read_text("utf-8", errors="replace").strip().splitlines()
    print("\n".join(lines[-40:]), flush=True)
    passed = sum(" PASSED" in line for line in lines)
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR")) or " FAILED" in line]
    result = {"result": lines[-1] if lines else "nothing was said", "passed": passed}
    numbered = {f"{number}": line for number, line in enumerate(failed, 1)}
    return {**result, **numbered, **({"failed": problem} if problem else {})}
