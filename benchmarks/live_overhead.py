"""What timing a step and telling of it costs the job: with both and with neither, in turn.

With: the step is a timed stage, its progress goes through the box that the window empties and
into the trace, and every 25th step the timings are told. Without: the bare step. Blocks of steps
take turns in one process; a ratio is the median over pairs of neighbouring blocks.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.denoise_step import training_step
from hushpore.base.events import Metric, Progress
from hushpore.device.backend import Backend
from hushpore.device.timing import StageTimer
from hushpore.device.trace import Trace
from hushpore.viewer.worker import Update

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH = 25


def measure() -> dict[str, object]:
    """Milliseconds of a step and the ratio, for a training step and a short one."""
    values = np.random.default_rng(0).normal(size=560_000)
    train = training_step(Backend().device, torch.float32)
    steps: dict[str, tuple[Callable[[], object], int, int]] = {
        "training step": (train, 3, 10),
        "short step": (lambda: np.sort(values[:70_000]), 50, 20),
    }
    figures: dict[str, object] = {}
    for name, (step, count, pairs) in steps.items():
        step()
        told, bare = [], []
        for _ in range(pairs):
            told.append(_told(step, count))
            bare.append(_bare(step, count))
        ratios = [a / b for a, b in zip(told, bare, strict=True)]
        figures[name] = {
            "bare_ms": round(1e3 * statistics.median(bare), 3),
            "told_ms": round(1e3 * statistics.median(told), 3),
            "ratio": round(statistics.median(ratios), 4),
        }
    empty = min(_told(lambda: None, 1000) for _ in range(5))
    figures["cost of telling, in microseconds a step"] = round(1e6 * empty, 1)
    return figures


def _bare(step: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count


def _told(step: Callable[[], object], count: int) -> float:
    timer, box, trace = StageTimer(), Update(), Trace("overhead")
    start = time.perf_counter()
    for number in range(1, count + 1):
        with timer.stage("training", voxels=65_536):
            step()
        events = [Progress("training", number, count, "steps", number / count)]
        if number % EPOCH == 0:
            events += [Metric("loss", number, 0.5), timer.timing()]
        for event in events:
            trace.add(event)
            box.add(event)
    return (time.perf_counter() - start) / count
