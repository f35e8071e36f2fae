"""Restoring detail, on photographs that had no part in how it was made.

Its one number was chosen on Set12. Here it is tried on photographs of Train400, of which only the
noisy ones were seen, by the training that `denoise_quality` has.
"""

from __future__ import annotations

import numpy as np

import hushpore
from benchmarks._photos import clean_training_photos, psnr, training_photos
from benchmarks.denoise_quality import BUDGETS, VARIANTS, trained

#: Every so many photographs one is looked at.
EVERY = 10


def measure() -> dict[str, object]:
    """PSNR in every variant."""
    model = str(trained(max(BUDGETS)) / "model.safetensors")
    pairs = list(zip(training_photos(), clean_training_photos(), strict=True))[::EVERY]
    # one by one, as each has a noise of its own to be found
    values = {
        name: np.array(
            [psnr(hushpore.denoise(n, model=model, **more).volume.data, c) for n, c in pairs]
        )
        for name, more in VARIANTS.items()
    }
    gained = values["symmetries and detail"] - values["symmetries"]
    return {
        "photographs": len(pairs),
        "psnr": {name: round(float(each.mean()), 2) for name, each in values.items()},
        "gained by detail": {
            "in": f"{(gained > 0).sum()} of {len(pairs)}",
            "least": round(float(gained.min()), 2),
            "most": round(float(gained.max()), 2),
        },
    }
