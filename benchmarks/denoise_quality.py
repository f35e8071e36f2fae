"""How good the denoiser is after a given time of training on noisy photographs alone.

Trained by the job itself, as anybody would, on the noisy Train400; tested on Set12. The time is
that of the training; ``symmetries`` and ``detail`` are settings of the job.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import hushpore
from benchmarks._photos import psnr, test_photos, training_photos

if TYPE_CHECKING:
    from hushpore.n2v2.result import Denoised

#: Seconds of training.
BUDGETS = (30.0, 180.0)

#: What can be added to the plain prediction.
VARIANTS = {
    "plain": {},
    "symmetries": {"symmetries": True},
    "symmetries and detail": {"symmetries": True, "detail": True},
}


def measure() -> dict[str, object]:
    """PSNR on Set12 by training time."""
    photos = training_photos()
    noisy = [psnr(noisy, clean) for clean, noisy in test_photos()]
    figures: dict[str, object] = {"noisy": round(float(np.mean(noisy)), 2)}
    for budget in BUDGETS:
        result = hushpore.denoise(photos, time_budget=budget, steps=100_000)
        figures[f"{budget:.0f} s"] = on_set12(result)
    return figures


def on_set12(result: Denoised) -> dict[str, object]:
    """Apply what was trained to Set12, in every variant."""
    settings = result.provenance["settings"]
    with tempfile.TemporaryDirectory() as scratch:
        path = result.model.save(Path(scratch) / "model.safetensors")
        values = {
            name: [
                psnr(hushpore.denoise(noisy, model=str(path), **more).volume.data, clean)
                for clean, noisy in test_photos()
            ]
            for name, more in VARIANTS.items()
        }
    return {
        "steps": result.provenance["result"]["steps"],
        "seconds": round(result.provenance["result"]["training_seconds"], 1),
        "masked_share": settings["masked_share"],
        "learning_rate": settings["learning_rate"],
        "precision": result.provenance["result"]["precision"],
        "psnr": {name: round(float(np.mean(each)), 2) for name, each in values.items()},
        "images": {name: [round(v, 2) for v in each] for name, each in values.items()},
    }
