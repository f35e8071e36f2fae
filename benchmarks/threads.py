"""How far more threads help pores: what only the calling thread does, and what follows from it.

Kernels run on a pool of threads while the calling thread waits, so that its own processor time is
the serial part. From that share of each stage Amdahl's law (1967, doi:10.1145/1465482.1465560)
gives the speed-up at more threads than a machine has; at 1 and 2 threads it is measured too. The
model knows nothing of the memory's rate, which all threads share.

What a job does once, however large its volume is, weighs less in volumes of eight times as many
voxels: the rock with its mirror images, and a smooth void.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import pores
from benchmarks._processor import seconds_of_stages, threads

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 9
ROUNDS_OF_LARGE = 3
BLOBS, LARGE_BLOBS = 200, 400  # edge of a smooth void
MODELLED = (2, 4, 8, 16, 64)


def measure() -> dict[str, Any]:
    """Run all; five minutes."""
    rock = pores.berea()
    mirrored = np.pad(rock, [(0, length) for length in rock.shape], mode="symmetric")
    return {
        "berea": _scaling(rock, ROUNDS),
        "blobs": _scaling(pores.blobs(BLOBS), ROUNDS),
        "berea, mirrored along each axis": _scaling(mirrored, ROUNDS_OF_LARGE),
        "large blobs": _scaling(pores.blobs(LARGE_BLOBS), ROUNDS_OF_LARGE),
    }


def _scaling(void: np.ndarray, rounds: int) -> dict[str, Any]:
    """Return serial share by stage, modelled speed-ups, and the one measured at two threads."""
    clocks: dict[str, tuple[int, Callable[[], int]]] = {
        "one": (1, time.perf_counter_ns),
        "two": (2, time.perf_counter_ns),
        "all": (2, time.process_time_ns),
        "caller": (2, time.thread_time_ns),
    }
    seconds: dict[str, dict[str, list[float]]] = {name: {} for name in clocks}
    seconds_of_stages(void)
    for _ in range(rounds):
        for name, (count, clock) in clocks.items():
            with threads(count):
                stages = seconds_of_stages(void, clock)
            for stage, each in {**stages, "whole": sum(stages.values())}.items():
                seconds[name].setdefault(stage, []).append(each)
    took = {
        name: {stage: statistics.median(each) for stage, each in stages.items()}
        for name, stages in seconds.items()
    }
    whole = took["all"]["whole"]
    serial = took["caller"]["whole"] / whole
    return {
        "voxels": void.size,
        "processor time, ns a voxel": round(whole / void.size * 1e9, 1),
        "of it serial, %": {
            stage: round(100 * each / whole, 2) for stage, each in took["caller"].items()
        },
        "speed-up by Amdahl's law, by threads": {
            str(count): round(1 / (serial + (1 - serial) / count), 2) for count in MODELLED
        },
        "speed-up from one thread to two": {
            stage: round(each / max(took["two"][stage], 1e-9), 2)
            for stage, each in took["one"].items()
        },
    }
