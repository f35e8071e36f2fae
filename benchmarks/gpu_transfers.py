"""Copies to a GPU and back: plain, through pinned buffers, and what a job decides by itself."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks._parts import Figures, in_one
from hushpore.device.backend import choose_backend
from hushpore.device.switches import Choices, Switches
from hushpore.device.transfers import CudaBus, Transfers

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTES = (16, 128, 1024)
REPEATS = 7


def measure() -> Figures:
    """Median GB/s of both ways in both directions, in turn; and the decision with its reason."""
    return in_one(PARTS)


def _copies(megabytes: int) -> Figures:
    device = choose_backend("cuda").device
    values = np.random.default_rng(0).integers(0, 2**16, megabytes << 19).astype(np.uint16)
    ways = {name: _transfers(device, state) for name, state in _STATES.items()}
    there = torch.from_numpy(values).to(device)
    seconds: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        for name, way in ways.items():
            for direction, copy, given in (
                ("up", way.upload, values),
                ("down", way.download, there),
            ):
                taken = seconds.setdefault(f"{direction}, {name}", [])
                taken.append(round(_timed(device, copy, given), 6))
    auto = _transfers(device, "auto")
    same = np.array_equal(auto.download(auto.upload(values)), values)
    for way in (*ways.values(), auto):
        way.release()
    return {
        # the first copies make the buffers
        **{
            f"{name}, GB/s": round(values.nbytes / statistics.median(each[1:]) / 1e9, 2)
            for name, each in seconds.items()
        },
        "what comes back is the same": bool(same),
        "a job decides": auto.choices.lines()["pinned"],
        "samples": {"s": seconds},
    }


_STATES = {"plain": "off", "pinned": "on"}


def _transfers(device: str, state: str) -> Transfers:
    return Transfers(device, CudaBus(device), Choices(Switches(pinned=state)))


def _timed(device: str, copy: Callable[[Any], object], values: object) -> float:
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    copy(values)
    torch.cuda.synchronize(device)
    return time.perf_counter() - start


PARTS = {f"{megabytes} MB": partial(_copies, megabytes) for megabytes in MEGABYTES}
