"""What the demonstration prints: the phantom before and after denoising, against its truth."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from hushpore.cli.demo import run_demo

#: Seconds of training, as `hushpore demo` gives by default.
TIME_BUDGET = 70.0


def measure() -> dict[str, object]:
    """Accuracy on the noisy and the denoised phantom, its truth, and seconds by stage."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "demo"
        start = time.perf_counter()
        run_demo(None, folder, overwrite=False, time_budget=TIME_BUDGET, device="auto")
        seconds = time.perf_counter() - start
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return {
        **result["accuracy"],
        "steps": result["jobs"][0]["result"]["steps"],
        "precision": result["jobs"][0]["result"]["precision"],
        "seconds": round(seconds, 1),
        "stages": {job["job"]: job["timings"] for job in result["jobs"]},
    }
