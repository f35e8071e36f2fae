"""Pores on a GPU against the CPU: the same labels, and how long upload, compute and download take.

The floor of the computation is what its kernels move at the least, 57 bytes a voxel, at the rate at
which the GPU copies its own memory.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy import ndimage as ndi

from hushpore.device.backend import Backend, choose_backend
from hushpore.jobs import run
from hushpore.pores.gpu_passes import BYTES_A_VOXEL

SIZES = (128, 256, 512)
REPEATS = 3
MOVED = 57  # bytes a voxel: each array of each kernel read or written once


def measure() -> dict[str, Any]:
    """Run both on a random void of several sizes, in turn."""
    gpu = choose_backend("cuda")
    xp = gpu.cupy()
    copied = _copy_rate(xp)
    figures: dict[str, Any] = {"copies of its own memory, GB/s": round(copied / 1e9, 1)}
    for size in SIZES:
        figures[f"{size}^3"] = _compare(_void(size), gpu, copied)
    figures["256^3, in slabs"] = _in_slabs(_void(256), gpu)
    return figures


class _Small(Backend):
    """A GPU of which a quarter of a volume of 256^3 is left free."""

    def free_memory(self) -> int:
        return (256 // 4 + 4) * 256**2 * BYTES_A_VOXEL


def _in_slabs(void: np.ndarray, gpu: Backend) -> dict[str, Any]:
    """What a GPU makes of a volume that it does not hold."""
    small = _Small(gpu.device, gpu.name)
    whole, _ = _timed(void, gpu)
    parts, seconds = min((_timed(void, small) for _ in range(REPEATS)), key=lambda each: each[1])
    return {
        "labels are the same": bool(np.array_equal(whole.labels, parts.labels)),
        "whole job, s": round(seconds, 4),
        **{f"{name}, s": round(value, 5) for name, value in parts.timings.items()},
        "said": "; ".join(parts.notes),
    }


def _compare(void: np.ndarray, gpu: Backend, copied: float) -> dict[str, Any]:
    run("pores", void[:32], None, gpu)  # compiles the kernels
    stages: list[dict[str, float]] = []
    seconds: dict[str, list[float]] = {"gpu": [], "cpu": []}
    for _ in range(REPEATS):
        there, seconds_there = _timed(void, gpu)
        here, seconds_here = _timed(void, Backend())
        seconds["gpu"].append(seconds_there)
        seconds["cpu"].append(seconds_here)
        stages.append(there.timings)
    best = min(stages, key=lambda each: sum(each.values()))
    computing = best["distance"] + best["basins"] + best["measuring"]
    return {
        "labels are the same": bool(np.array_equal(there.labels, here.labels)),
        "tables are the same": there.pores.equals(here.pores)
        and there.throats.equals(here.throats),
        "gpu, whole job, s": round(min(seconds["gpu"]), 4),
        "cpu, whole job, s": round(min(seconds["cpu"]), 4),
        **{f"gpu, {name}, s": round(value, 5) for name, value in best.items()},
        "gpu, floor of computing, s": round(void.size * MOVED / copied, 5),
        "computing over its floor": round(computing / (void.size * MOVED / copied), 2),
    }


def _timed(void: np.ndarray, backend: Backend) -> tuple[Any, float]:
    start = time.perf_counter()
    found = run("pores", void, None, backend)
    return found, time.perf_counter() - start


def _copy_rate(xp: Any) -> float:
    """Bytes a second that are read and written when an array of 1 GB is copied."""
    source = xp.zeros(1 << 30, np.uint8)
    target = xp.empty_like(source)
    times = []
    for _ in range(5):
        xp.cuda.Device().synchronize()
        start = time.perf_counter()
        target[...] = source
        xp.cuda.Device().synchronize()
        times.append(time.perf_counter() - start)
    return 2 * source.nbytes / min(times)


def _void(size: int) -> np.ndarray:
    """A random void of half the volume, of structures of some ten voxels."""
    noise = np.random.default_rng(0).standard_normal((size,) * 3, np.float32)
    return np.asarray(ndi.gaussian_filter(noise, 4, mode="wrap") > 0)
