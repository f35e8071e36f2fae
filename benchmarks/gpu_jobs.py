"""Whole jobs on a GPU, as they come; and denoising with each optimisation on and off, in turn.

All others are left to themselves meanwhile. The scan is denoised from a file, in slabs; pores are
segmented in memory. What a job says of itself is kept: where its time went, how often the host
waited, the most memory in use, and what it decided about each optimisation.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import ndimage as ndi

from benchmarks._parts import Figures, in_one
from hushpore.base.events import Timing
from hushpore.base.preferences import SWITCHES
from hushpore.base.volume import Volume
from hushpore.device.backend import choose_backend
from hushpore.device.switches import Switches
from hushpore.device.timing import timing_record
from hushpore.jobs import run

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Of a periodic block, which is repeated: shape, and how often along each axis.
BLOCK, TIMES = (64, 256, 256), (3, 2, 2)
REPEATS = 2
#: So little memory that the scan is read in slabs.
DENOISE = {"steps": 150, "batch_size": 16, "denoise_memory": 0.25}


def measure() -> Figures:
    """Run both jobs as they come, and then denoise with each switch on and off."""
    return in_one(PARTS)


def _as_it_comes(job: str) -> Figures:
    """What a job says of itself, when it runs the second time."""
    with tempfile.TemporaryDirectory() as folder:
        scan = _scan(Path(folder), job)
        _, first, _ = _run(job, scan, {})
        found, seconds, timing = _run(job, scan, {})
    record = timing_record(timing)
    return {
        "ran on": found.provenance["device"],
        "said": "; ".join(found.provenance["notes"]),
        "first, s": round(first, 3),
        "second, s": round(seconds, 3),
        "host waits": record["syncs"],
        "uploads": timing.stages["upload"].count if "upload" in timing.stages else 0,
        "downloads": timing.stages["download"].count if "download" in timing.stages else 0,
        "peak on the GPU, GB": round(record["peak_memory"]["device"] / 1e9, 2),
        "peak on the host, GB": round(record["peak_memory"]["host"] / 1e9, 2),
        "limited by": record["bottleneck"],
        **{f"{kind}, s": round(each, 3) for kind, each in record["by_kind"].items()},
        "decided": "; ".join(f"{name}: {line}" for name, line in record["choices"].items()),
    }


def _switched(name: str) -> Figures:
    seconds: dict[str, list[float]] = {"off": [], "on": []}
    found: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        scan = _scan(Path(folder), "denoise")
        for _ in range(REPEATS):
            for state, taken in seconds.items():
                result, once, _ = _run("denoise", scan, {name: state})
                taken.append(round(once, 4))
                found[state] = result.volume.data
    medians = {state: statistics.median(taken) for state, taken in seconds.items()}
    # of two values the first warms up
    best = {state: min(taken) for state, taken in seconds.items()}
    return {
        "off, s": round(medians["off"], 3),
        "on, s": round(medians["on"], 3),
        "best off / best on": round(best["off"] / best["on"], 3),
        "results differ by": float(np.abs(found["on"] - found["off"]).max()),
        "samples": {"s": seconds},
    }


def _run(job: str, scan: Volume, switches: Mapping[str, str]) -> tuple[np.ndarray, float, Timing]:
    backend = choose_backend("cuda", Switches(**switches))
    timings: list[Timing] = []

    def heed(event: object) -> None:
        if isinstance(event, Timing):
            timings[:] = [event]

    start = time.perf_counter()
    found = run(job, scan, DENOISE if job == "denoise" else {}, backend, heed)
    return found, time.perf_counter() - start, timings[-1]


def _scan(folder: Path, job: str) -> Volume:
    """A noisy rock of 16 bit, in a file for denoising."""
    rng = np.random.default_rng(0)
    rock = ndi.gaussian_filter(rng.standard_normal(BLOCK, np.float32), 4, mode="wrap") > 0
    grey = np.tile(np.where(rock, 300, 900), TIMES)
    grey = (grey + rng.normal(0, 60, grey.shape)).clip(0, 4095).astype(np.uint16)
    if job == "pores":
        return Volume(grey)
    np.save(folder / "scan.npy", grey)
    return Volume(np.load(folder / "scan.npy", mmap_mode="r"))


PARTS = {
    **{f"{job}, as it comes": partial(_as_it_comes, job) for job in ("denoise", "pores")},
    **{f"denoise, {name}": partial(_switched, name) for name in SWITCHES},
}
