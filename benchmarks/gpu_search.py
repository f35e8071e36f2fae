"""Which batch and how many features denoise best after some seconds of training on a device.

Those that the package takes were chosen so on a CPU, where a step takes longest of all: by what is
best after as many seconds (``denoise_correlated``, ``denoise_quality``). A GPU that is hardly busy
with a small step may have others. It runs on the device that ``auto`` takes.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np

from benchmarks._parts import Figures, in_one
from hushpore.denoising import automatic
from hushpore.device.backend import choose_backend
from hushpore.jobs import run
from hushpore.sample_data import foam_phantom

if TYPE_CHECKING:
    from hushpore.sample_data import Phantom

#: How long each is trained.
TRAINED = {"time_budget": 4.0}

#: A foam with noise, of which the truth is known.
SHAPE = (48, 160, 160)

#: Features of the top level and patches of a batch, those of the package first.
WAYS = ((16, 16), (16, 64), (32, 16), (32, 64), (64, 16), (64, 64))


def measure() -> Figures:
    """Steps and PSNR after so many seconds, by features and batch."""
    return in_one(PARTS)


def _trained(features: int, batch: int) -> Figures:
    phantom = _phantom()
    of_all = dict.fromkeys(automatic.FEATURES, features)
    how = {**TRAINED, "batch_size": batch}
    with mock.patch.dict(automatic.FEATURES, of_all):
        found = run("denoise", phantom.volume, how, choose_backend())
    truth = np.asarray(phantom.clean.data, np.float64)
    error = float(np.square(found.volume.data - truth).mean())
    result = found.provenance["result"]
    return {
        "PSNR, dB": round(10 * np.log10(np.ptp(truth) ** 2 / error), 3),
        "steps": result["steps"],
        "steps a second": round(result["steps"] / result["training_seconds"], 1),
    }


@cache
def _phantom() -> Phantom:
    return foam_phantom(SHAPE)


PARTS = {
    f"{features} features, {batch} patches": partial(_trained, features, batch)
    for features, batch in WAYS
}
