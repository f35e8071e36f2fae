"""Photon noise, down to two counts: photographs one by one, by default, beside filters.

Poisson counts of three photographs of Set12 (512 x 512) that nothing was tuned on. Of the filters
the best of several is taken for each photograph, chosen with the truth: that is generous to them.
Counted in steps, the figures do not depend on what else the machine does. Some of them, by a part
of their name, are put beside those that the same commit has done already::

    python -m benchmarks denoise_photons --only "2 counts"
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.ndimage import gaussian_filter, median_filter

import hushpore
from benchmarks._photos import psnr, test_photos

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Image = npt.NDArray[np.float32]

#: Counts where a photograph is white, and the photographs by their names: those of 512 x 512 but
#: for two, which were looked at in the making.
COUNTS, PHOTOS = (2, 5, 10, 30), (10, 11, 12)

#: Steps of a training: 90 s of two cores that do nothing else have room for more.
STEPS = 800

#: Deviations of Gaussians and edges of medians.
DEVIATIONS, EDGES = np.arange(0.5, 5, 0.25), (3, 5, 7)


def measure(only: str = "", kept: dict[str, Any] | None = None) -> Iterator[dict[str, object]]:
    """PSNR of each photograph at each number of counts, and how far its mean grey value shifted.

    `only`: part of the names of what is done. `kept`: figures that there are already.
    """
    figures: dict[str, object] = {**(kept or {}), "steps": STEPS}
    photos = test_photos()
    for counts in COUNTS:
        for number in PHOTOS:
            name = f"{counts} counts, photograph {number}"
            if only in name:
                figures[name] = compared(photos[number - 1][0], counts)
                yield figures


def compared(clean: Image, counts: int) -> dict[str, object]:
    """Denoise the counts of one photograph in every way."""
    noisy, grey = counted(clean, counts)
    began = time.process_time()
    result = hushpore.denoise(noisy, steps=STEPS, seed=0)
    seconds = time.process_time() - began
    denoised = np.asarray(result.volume.data)
    found = {
        "noisy": psnr(noisy * grey, clean),
        "best Gaussian": best_gaussian(noisy * grey, clean),
        "best Gaussian, stabilised": max(
            psnr(inverse_anscombe(gaussian_filter(anscombe(noisy), s)) * grey, clean)
            for s in DEVIATIONS
        ),
        "best median": max(psnr(median_filter(noisy, n) * grey, clean) for n in EDGES),
        "hushpore": psnr(denoised * grey, clean),
    }
    return {
        "psnr": {name: round(each, 2) for name, each in found.items()},
        "above the best Gaussian": round(found["hushpore"] - found["best Gaussian"], 2),
        "shift of the mean in %": round(float(100 * (denoised.mean() / noisy.mean() - 1)), 2),
        "method": result.model.network.architecture.method,
        "shared out": "count" in (result.provenance.get("noise_model") or {}),
        "processor seconds": round(seconds),
    }


def counted(clean: Image, counts: int) -> tuple[Image, float]:
    """Return counts of a photograph, so many where it is white, and the grey value of one."""
    grey = 255 / counts
    return np.random.default_rng(counts).poisson(clean / grey).astype(np.float32), grey


def best_gaussian(noisy: Image, clean: Image) -> float:
    """Return the PSNR of the best of several Gaussians, chosen with the truth."""
    return max(psnr(gaussian_filter(noisy, s), clean) for s in DEVIATIONS)


def anscombe(counts: Image) -> Image:
    """Return counts so transformed that their variance is about one."""
    return (2 * np.sqrt(counts + 3 / 8)).astype(np.float32)


def inverse_anscombe(mean: Image) -> npt.NDArray[np.float64]:
    """Return the mean of counts of which the mean of the transformed ones is known.

    Of that of the formula it would be too dark: https://doi.org/10.1109/TIP.2011.2121085.
    """
    d = np.maximum(mean.astype(np.float64), 2 * np.sqrt(3 / 8))
    root = np.sqrt(3 / 2)
    result: npt.NDArray[np.float64] = (
        d**2 / 4 + root / (4 * d) - 11 / (8 * d**2) + 5 * root / (8 * d**3) - 1 / 8
    )
    return np.maximum(result, 0)
