"""N2V2, trained on the twelve noisy photographs of Set12 alone, which are then denoised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import hushpore
from benchmarks._photos import N2V2, test_photos
from benchmarks.denoise_quality import on_set12

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Steps of the trainings.
STEPS = (1300, 2200)


def measure() -> Iterator[dict[str, object]]:
    """PSNR on Set12, which does not depend on what else the machine does; after each training."""
    # the larger ones in four pieces, for a stack has slices of one size
    pieces = [
        noisy[y : y + 256, x : x + 256]
        for _, noisy in test_photos()
        for y in range(0, noisy.shape[0], 256)
        for x in range(0, noisy.shape[1], 256)
    ]
    figures: dict[str, object] = {}
    for steps in STEPS:
        found = on_set12(hushpore.denoise(np.stack(pieces), steps=steps, **N2V2))
        figures[f"{steps} steps"] = {k: v for k, v in found.items() if k != "seconds"}
        yield dict(figures)
