"""Everything on a GPU in one go: transfers, training, prediction, pores, and the GPU's tests.

The result goes to a file of its own for each day and device, ``results/gpu/DATE_DEVICE.json``. What
fails is kept as what it says, and the rest goes on. It takes some minutes, and no more than NumPy,
SciPy, scikit-image, pandas, numba, psutil, safetensors, tifffile, PyTorch, CuPy, pytest and
hypothesis::

    PYTHONPATH=src python -m benchmarks gpu
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from hushpore.device.backend import choose_backend

PARTS = ("gpu_transfers", "gpu_steps", "pores_gpu")
ROOT = Path(__file__).parents[1]


def measure() -> dict[str, Any]:
    """Run all parts, and the tests that are marked `gpu`."""
    choose_backend("cuda")
    figures: dict[str, Any] = {"tests that need a GPU": _tests()}
    with tempfile.TemporaryDirectory() as folder:
        # what somebody prefers on this machine is not what is measured
        os.environ["HUSHPORE_CONFIG"] = folder
        for name in PARTS:
            figures[name] = _part(name)
    return figures


def result_name(surroundings: dict[str, Any]) -> str:
    """Return the name of the result file, below ``results``."""
    device = re.sub(r"[^a-z0-9]+", "-", str(surroundings["device"]).lower()).strip("-")
    return f"gpu/{str(surroundings['date'])[:10]}_{device}.json"


def _part(name: str) -> dict[str, Any]:
    print(f"{name} ...", flush=True)
    start = time.perf_counter()
    try:
        figures: dict[str, Any] = import_module(f"benchmarks.{name}").measure()
    except Exception as error:
        # code that was never run on this device: what else there is should not be lost
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
    print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    return figures


def _tests() -> dict[str, Any]:
    """Run the tests; returns what pytest says last, and which failed."""
    # these alone, for others need what need not be here; a warning of a library is no failure
    tests = [
        path for path in ROOT.glob("tests/*/test_*.py") if "mark.gpu" in path.read_text("utf-8")
    ]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider"]
    command += ["-o", "filterwarnings=default", *map(str, tests)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    print(done.stdout[-4000:], done.stderr[-2000:], flush=True)
    lines = done.stdout.strip().splitlines() or ["nothing was said"]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return {"result": lines[-1], **{f"{number}": line for number, line in enumerate(failed, 1)}}
