"""What the network could come to at most on photographs: taught by those without noise.

As `denoise_bound`, for photographs: Train400 with noise as input, and without as target. White
noise of deviation 25, for as long as `denoise_quality` trains, tested on Set12. And two counts
where a photograph is white, tested on those of `denoise_photons`, averaged over orientations as by
default: there the default has each photograph alone to learn from, and here are 400 others.
"""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._photos import clean_training_photos, psnr, test_photos, training_photos
from benchmarks.denoise_bound import trained_without_noise
from benchmarks.denoise_photons import PHOTOS, best_gaussian, counted

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.n2v2.trained import Model

#: Seconds of training with white noise, and steps with counts.
SECONDS, STEPS = 180, 1000

#: Counts where a photograph is white.
COUNTS = 2


def measure() -> dict[str, object]:
    """PSNR on Set12, and of each photograph of few counts, beside the best Gaussian."""
    model = taught(training_photos(), time_budget=SECONDS)
    found: dict[str, object] = {"seconds": SECONDS}
    for name, averaged in (("plain", False), ("averaged", True)):
        values = [
            psnr(model.predict(noisy, test_time_augmentation=averaged).data, clean)
            for clean, noisy in test_photos()
        ]
        found[name] = round(mean(values), 2)
    grey = 255 / COUNTS
    rng = np.random.default_rng(5)
    counts = rng.poisson(clean_training_photos() / grey).astype(np.float32)
    model = taught(grey * counts, steps=STEPS)
    of_counts: dict[str, object] = {"steps": STEPS}
    for number in PHOTOS:
        clean = test_photos()[number - 1][0]
        noisy = grey * counted(clean, COUNTS)[0]
        above = psnr(model.predict(noisy).data, clean) - best_gaussian(noisy, clean)
        of_counts[f"photograph {number}, above the best Gaussian"] = round(above, 2)
    return {"Set12": found, f"{COUNTS} counts": of_counts}


def taught(noisy: npt.NDArray[np.float32], **how: Any) -> Model:
    """Train on photographs, whose targets are those without noise."""
    clean = clean_training_photos().astype(np.float32)
    return trained_without_noise(noisy, clean, context=0, **how)
