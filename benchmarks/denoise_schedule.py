"""How the learning rate should go: what ours was chosen by.

The same training with each, from one seed: differences below 0.1 dB are chance. Counted in steps,
the figures do not depend on what else the machine does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

import hushpore
from benchmarks._photos import N2V2, psnr, test_photos, training_photos
from hushpore.n2v2.training import loop
from hushpore.n2v2.training.schedule import WARM_UP, learning_rate

if TYPE_CHECKING:
    from collections.abc import Callable

#: Steps of training.
STEPS = 700


def measure() -> dict[str, object]:
    """PSNR on Set12, predicted plainly, by schedule."""
    schedules: dict[str, Callable[[float, float], float]] = {
        "one cycle": _one_cycle,
        "held to the end": lambda fraction, peak: learning_rate(min(fraction, WARM_UP), peak),
        "held, then down": learning_rate,
    }
    return {"steps": STEPS, "psnr": {name: _psnr(each) for name, each in schedules.items()}}


def _psnr(schedule: Callable[[float, float], float]) -> float:
    loop.learning_rate = schedule
    try:
        model = hushpore.denoise(training_photos(), steps=STEPS, **N2V2).model
    finally:
        loop.learning_rate = learning_rate
    values = [
        psnr(model.predict(noisy, test_time_augmentation=False).data, clean)
        for clean, noisy in test_photos()
    ]
    return round(float(np.mean(values)), 2)


def _one_cycle(fraction: float, peak: float) -> float:
    """Rise as ours does, then go down by a half cosine (https://doi.org/10.1117/12.2520589)."""
    if fraction < WARM_UP:
        return learning_rate(fraction, peak)
    return peak * (1 + math.cos(math.pi * (fraction - WARM_UP) / (1 - WARM_UP))) / 2
