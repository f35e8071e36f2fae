"""Stages of pores in processor time, and what NumPy takes for work of the same kind.

Processor time is that of all threads of this process unless another clock is asked for, so that
other programs change it little; and what they do change, a slower clock or a cache that is shared,
is as much for both of two that run in turn.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

import hushpore
from hushpore.device.backend import Backend
from hushpore.device.timing import HostClock, StageTimer
from hushpore.pores import parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hushpore.device.timing import Clock

#: What is in no stage: tables, totals and the record.
REST = "tables and record"

#: Bytes a voxel that each stage reads and writes at the least, of 1 a voxel of the volume: phase 1,
#: distance 4, basins 4, labels 4, each once.
LEAST_BYTES = {"void": 2, "distance": 5, "basins": 8, "measuring": 9, "labels": 8}


class _Clock(HostClock):
    def __init__(self, nanoseconds: Callable[[], int]) -> None:
        self.mark = nanoseconds  # type: ignore[method-assign]


class _Timer(StageTimer):
    """Times stages by a clock that it keeps, whatever the work moves to."""

    def __init__(self, clock: HostClock) -> None:
        super().__init__(clock)
        self._kept = clock

    def run_on(self, clock: Clock) -> None:
        """Take no other clock."""
        super().run_on(self._kept)


class _TimedCPU(Backend):
    """The CPU, on which jobs are timed by a clock of one's choice."""

    def __init__(self, nanoseconds: Callable[[], int]) -> None:
        super().__init__()
        self._nanoseconds = nanoseconds

    def timer(self) -> StageTimer:
        """Return a timer by that clock."""
        return _Timer(_Clock(self._nanoseconds))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Have jobs of pores run on so many threads."""
    kept, parallel.cpu_threads = parallel.cpu_threads, lambda: count
    try:
        yield
    finally:
        parallel.cpu_threads = kept


def seconds_of_stages(
    void: np.ndarray, clock: Callable[[], int] = time.process_time_ns
) -> dict[str, float]:
    """Segment and measure a void; returns seconds by stage, and of `REST`.

    `clock`: tells the nanoseconds; `time.thread_time_ns` those of the calling thread alone.
    """
    start = clock()
    found = hushpore.segment_pores(void, device=_TimedCPU(clock))
    whole = (clock() - start) * 1e-9
    stages = {name: seconds for name, seconds in found.timings.items() if name != "preparing"}
    return {**stages, REST: max(whole - sum(found.timings.values()), 0.0)}


def numpy_work(void: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return work of NumPy, of the kind that each stage does most, on arrays of the same size."""
    phase = void.view(np.uint8)
    heights = np.where(void, np.float32(2), np.float32(0))
    keys = heights.astype(np.int64)
    basins = np.cumsum(void, dtype=np.int32).reshape(void.shape) // 500
    label_of = np.arange(int(basins.max()) + 1, dtype=np.int32)
    labels, lower, higher = (np.empty_like(each) for each in (basins, heights, keys))
    both, flat = np.empty_like(phase[1:]), basins.reshape(-1)
    return {
        "sample": lambda: void.sum(axis=0, dtype=np.int64),
        "void": lambda: np.bitwise_and(phase[1:], phase[:-1], out=both),
        "distance": lambda: np.minimum(heights[1:], heights[:-1], out=lower[1:]),
        "basins": lambda: np.maximum(keys[1:], keys[:-1], out=higher[1:]),
        "measuring": lambda: np.bincount(flat, minlength=label_of.size),
        "labels": lambda: np.take(label_of, basins, out=labels, mode="clip"),
    }
