"""Settings of the training compared at equal numbers of steps: what the defaults were chosen by.

One seed each: differences below 0.1 dB are chance. The figures do not depend on what else the
machine does, so that they can be made beside other work.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import hushpore
from benchmarks._photos import psnr, test_photos, training_photos

#: Steps of training.
STEPS = 600

#: What differs from the defaults, by name.
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "3 % masked, rate 2e-3": {"masked_share": 0.03, "learning_rate": 2e-3},
    "15 % masked": {"masked_share": 0.15},
    "rate 8e-3": {"learning_rate": 8e-3},
    "4 patches of 128 pixels": {"patch_size": 128, "batch_size": 4},
}


def measure() -> dict[str, object]:
    """PSNR on Set12 of each."""
    photos, pairs = training_photos(), test_photos()
    figures: dict[str, object] = {"steps": STEPS}
    for name, changes in VARIANTS.items():
        model = hushpore.denoise(photos, steps=STEPS, **changes).model
        figures[name] = {
            how: round(
                float(
                    np.mean(
                        [
                            psnr(model.predict(noisy, symmetries=how == "symmetries").data, clean)
                            for clean, noisy in pairs
                        ]
                    )
                ),
                2,
            )
            for how in ("plain", "symmetries")
        }
        print(name, figures[name], flush=True)
    return figures
