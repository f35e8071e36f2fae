"""What timing a step and telling of it costs the job: with both and with neither, in turn.

With: the step is a timed stage, its progress goes through the box that the window empties and
into the trace, and every 25th step the timings are told. Without: the bare step. Single steps take
turns in one process, the order changing from pair to pair, for steps differ by more than what is
measured; the ratio is that of the medians, between the bounds that hold 95 of 100 ratios of pairs
drawn anew. What telling takes is also measured by itself, with a step that does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks._clock import seconds_of
from benchmarks.denoise_step import training_step
from hushpore.base.events import Metric, Progress
from hushpore.device.backend import Backend
from hushpore.device.timing import StageTimer, Trace
from hushpore.viewer.running.worker import Update

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Event

LOG_INTERVAL = 25

#: How often pairs are drawn anew.
DRAWN = 2000

#: Pairs of steps, and how many steps that do nothing are told of at once.
PAIRS, TOLD = {"training step": 150, "short step": 3000}, 5000


def measure() -> dict[str, object]:
    """Milliseconds of a step and the ratio, for a training step and a short one."""
    values = np.random.default_rng(0).normal(size=130_000)
    train = training_step(Backend().device, torch.float32)
    steps: dict[str, Callable[[], object]] = {
        "training step": train,
        "short step": lambda: np.sort(values),
    }
    figures: dict[str, object] = {name: _compare(step, PAIRS[name]) for name, step in steps.items()}
    empty = min(_seconds_told(TOLD) for _ in range(5))
    figures["cost of telling, in microseconds a step"] = round(1e6 * empty, 1)
    return figures


def _compare(step: Callable[[], object], pairs: int) -> dict[str, object]:
    told = Told(step)
    for _ in range(3):
        step(), told()
    spent = np.array([_pair(step, told, number % 2 == 0) for number in range(pairs)])
    drawn = np.random.default_rng(0).integers(0, pairs, (DRAWN, pairs))
    bare_ms, told_ms = 1e3 * np.median(spent, axis=0)
    ratios = np.median(spent[drawn, 1], axis=1) / np.median(spent[drawn, 0], axis=1)
    return {
        "pairs": pairs,
        "bare_ms": round(float(bare_ms), 3),
        "told_ms": round(float(told_ms), 3),
        "ratio": round(float(told_ms / bare_ms), 4),
        "ratio, bounds": [round(float(each), 4) for each in np.percentile(ratios, (2.5, 97.5))],
    }


def _pair(step: Callable[[], object], told: Told, is_bare_first: bool) -> tuple[float, float]:
    """Seconds of a bare step and of one that is told of."""
    if is_bare_first:
        return seconds_of(step), seconds_of(told)
    first = seconds_of(told)
    return seconds_of(step), first


def _seconds_told(count: int) -> float:
    """Seconds for telling of one step, of many that do nothing."""
    told = Told(lambda: None)
    return seconds_of(lambda: [told() for _ in range(count)]) / count


class Told:
    """A step that is timed and told of, as a job does it."""

    def __init__(self, step: Callable[[], object]) -> None:
        self._step, self._number = step, 0
        self._timer, self._box, self._trace = StageTimer(), Update(), Trace("overhead")

    def __call__(self) -> None:
        """Do a step, and say what a job says after it."""
        with self._timer.stage("training", voxels=65_536):
            self._step()
        self._number += 1
        self._say(Progress("training", self._number, 0, "steps", 0.5))
        if self._number % LOG_INTERVAL == 0:
            self._say(Metric("loss", self._number, 0.5))
            self._say(self._timer.timing())

    def _say(self, event: Event) -> None:
        self._trace.add(event)
        self._box.add(event)
