"""Copies to a GPU and back: plain, through pinned buffers, and what a job decides by itself."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.device.backend import choose_backend
from hushpore.device.switches import Choices, Switches
from hushpore.device.transfers import CudaBus, Transfers

if TYPE_CHECKING:
    from collections.abc import Callable

MEGABYTES = (16, 128, 1024)
REPEATS = 7


def measure() -> dict[str, Any]:
    """Median GB/s of both ways in both directions, in turn; and the decision with its reason."""
    device = choose_backend("cuda").device
    figures: dict[str, Any] = {}
    for megabytes in MEGABYTES:
        values = np.random.default_rng(0).integers(0, 2**16, megabytes << 19).astype(np.uint16)
        ways = {name: _transfers(device, state) for name, state in _STATES.items()}
        there = torch.from_numpy(values).to(device)
        rates: dict[str, list[float]] = {}
        for _ in range(REPEATS):
            for name, way in ways.items():
                for direction, seconds in (
                    ("up", _timed(device, way.up, values)),
                    ("down", _timed(device, way.down, there)),
                ):
                    rate = values.nbytes / seconds / 1e9
                    rates.setdefault(f"{direction}, {name}, GB/s", []).append(rate)
        auto = _transfers(device, "auto")
        same = np.array_equal(auto.down(auto.up(values)), values)
        figures[f"{megabytes} MB"] = {
            # the first copies make the buffers
            **{name: round(statistics.median(each[1:]), 2) for name, each in rates.items()},
            "what comes back is the same": bool(same),
            "a job decides": auto.choices.lines()["pinned"],
        }
        for way in (*ways.values(), auto):
            way.release()
    return figures


_STATES = {"plain": "off", "pinned": "on"}


def _transfers(device: str, state: str) -> Transfers:
    return Transfers(device, CudaBus(device), Choices(Switches(pinned=state)))


def _timed(device: str, copy: Callable[[Any], object], values: object) -> float:
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    copy(values)
    torch.cuda.synchronize(device)
    return time.perf_counter() - start
