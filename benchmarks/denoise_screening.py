"""Settings of the training compared at equal numbers of steps: what the defaults were chosen by.

One seed each: differences below 0.1 dB are chance. Takes half an hour on two cores; not run with
the other benchmarks' time limits in mind.
"""

from __future__ import annotations

import hushpore
from benchmarks._photos import training_photos
from benchmarks.denoise_quality import on_set12

#: What differs from the defaults, by name.
VARIANTS: dict[str, dict[str, object]] = {
    "3 % masked, rate 2e-3": {"masked_share": 0.03, "learning_rate": 2e-3},
    "8 % masked, rate 4e-3": {"masked_share": 0.08, "learning_rate": 4e-3},
    "8 % masked, rate 8e-3": {"masked_share": 0.08, "learning_rate": 8e-3},
    "15 % masked, rate 4e-3": {"masked_share": 0.15, "learning_rate": 4e-3},
    "15 % masked, rate 2e-3": {"masked_share": 0.15, "learning_rate": 2e-3},
    "20 % masked, rate 4e-3": {"masked_share": 0.2, "learning_rate": 4e-3},
    "8 patches a step, twice the steps": {"batch_size": 8, "steps": 1200},
}


def measure() -> dict[str, object]:
    """PSNR on Set12 of each."""
    photos = training_photos()
    return {
        name: on_set12(hushpore.denoise(photos, **{"steps": 600, **changes}))["psnr"]
        for name, changes in VARIANTS.items()
    }
