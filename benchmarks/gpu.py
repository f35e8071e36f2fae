"""Everything on a GPU in one go: its tests, pores, training, tiles, copies, and every switch.

The result goes to a file of its own for each day and device, ``results/gpu/DATE_DEVICE.json``,
which is written anew after each part; nothing takes longer than ten minutes. What fails or hangs is
kept as what it says, and the rest goes on. It takes no more than NumPy, SciPy, scikit-image,
pandas, numba, psutil, safetensors, tifffile, PyTorch, CuPy, pytest and hypothesis::

    PYTHONPATH=src python -m benchmarks gpu
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import _parts
from hushpore.device.backend import choose_backend

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds that all of it, and each part, may take at the most. What matters most comes first.
LIMIT = 570
PARTS = {"pores_gpu": 240, "gpu_steps": 240, "gpu_transfers": 90, "gpu_jobs": 180}
TESTS = 180
ROOT = Path(__file__).parents[1]


def measure() -> Iterator[dict[str, Any]]:
    """Run the tests that are marked `gpu`, and all parts; yields what there is so far."""
    choose_backend("cuda")
    end = time.monotonic() + LIMIT
    with tempfile.TemporaryDirectory() as folder:
        # what somebody prefers on this machine is not what is measured
        os.environ["HUSHPORE_CONFIG"] = folder
        figures: dict[str, Any] = {"tests that need a GPU": _tests(TESTS)}
        samples: dict[str, Any] = {}
        yield figures
        for name, seconds in PARTS.items():
            print(f"{name} ...", flush=True)
            found = _parts.apart(name, min(seconds, end - time.monotonic()))
            samples[name] = found.pop("samples", {})
            figures[name] = found
            yield {**figures, "samples": samples}


def result_name(surroundings: dict[str, Any]) -> str:
    """Return the name of the result file, below ``results``."""
    device = re.sub(r"[^a-z0-9]+", "-", str(surroundings["device"]).lower()).strip("-")
    return f"gpu/{str(surroundings['date'])[:10]}_{device}.json"


def _tests(seconds: float) -> dict[str, Any]:
    """Run the tests; returns what pytest says last, and which failed."""
    # these alone, for others need what need not be here; a warning of a library is no failure
    tests = [
        path for path in ROOT.glob("tests/**/test_*.py") if "mark.gpu" in path.read_text("utf-8")
    ]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider"]
    command += ["-o", "filterwarnings=default", *map(str, tests)]
    try:
        done = subprocess.run(
            command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {seconds:.0f} s"}
    print(done.stdout[-4000:], done.stderr[-2000:], flush=True)
    lines = done.stdout.strip().splitlines() or ["nothing was said"]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return {"result": lines[-1], **{f"{number}": line for number, line in enumerate(failed, 1)}}
