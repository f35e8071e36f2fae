"""Each stage of pores, in processor time against NumPy work of the same kind in the same process.

For every change to a kernel: it takes a few minutes, and other programs that run at the same time
change its ratios little. All runs on one thread, job and NumPy in turn, as often as `ROUNDS` says;
the median counts. Beside each stage is what it has changed by since the file that is kept, by its
ratio to NumPy, and the share of the memory's rate, which a copy of an array tells, that the bytes
come to which it has to move at the least.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import pores
from benchmarks._processor import LEAST_BYTES, REST, numpy_work, seconds_of_stages, threads

ROUNDS = 15
BLOBS, NOISE = 160, 96  # edges of a smooth void, and of one that is noise
KEPT = Path(__file__).parent / "results" / "regression.json"


def measure() -> dict[str, Any]:
    """Run all; two minutes."""
    noise = np.random.default_rng(0).random((NOISE,) * 3) < 0.5
    voids = {"berea": pores.berea(), "blobs": pores.blobs(BLOBS), "half noise": noise}
    before = json.loads(KEPT.read_text(encoding="utf-8"))["figures"] if KEPT.is_file() else {}
    with threads(1):
        return {name: _compare(void, before.get(name, {})) for name, void in voids.items()}


def _compare(void: np.ndarray, before: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of each stage, and of all of them; `before`: those of an earlier run."""
    work = numpy_work(void)
    seconds_of_stages(void)
    times: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    rates = []
    for _ in range(ROUNDS):
        by_numpy = {name: _seconds(each) for name, each in work.items()}
        # what is a boolean array needs no threshold
        stages = {n: each for n, each in seconds_of_stages(void).items() if n != "threshold"}
        mean = sum(by_numpy.values()) / len(by_numpy)
        rates.append(_copied_bytes_a_second(void.size))
        for name, seconds in {**stages, "all": sum(stages.values())}.items():
            times.setdefault(name, []).append(seconds)
            ratios.setdefault(name, []).append(seconds / by_numpy.get(name, mean))
    found: dict[str, Any] = {}
    for name, seconds in times.items():
        each = statistics.median(seconds)
        found[name] = {
            "ns a voxel": round(each / void.size * 1e9, 2),
            "times NumPy": round(statistics.median(ratios[name]), 2),
        }
        if name in before and name != REST and before[name]["times NumPy"] > 0:
            change = found[name]["times NumPy"] / before[name]["times NumPy"] - 1
            found[name]["change since the kept file, %"] = round(100 * change, 1)
        if name in LEAST_BYTES:
            needed = LEAST_BYTES[name] * void.size / statistics.median(rates)
            found[name]["share of the memory's rate"] = round(needed / max(each, 1e-9), 3)
    return found


def _seconds(work: Any) -> float:
    """Return the processor time of work that is warm."""
    work()
    start = time.process_time()
    for _ in range(3):
        work()
    return max(time.process_time() - start, 1e-7) / 3


def _copied_bytes_a_second(voxels: int) -> float:
    """Return at which rate bytes are read and written where nothing is done with them."""
    values = np.ones(voxels, np.float32)
    copy = np.empty_like(values)
    return 2 * values.nbytes / _seconds(lambda: np.copyto(copy, values))
