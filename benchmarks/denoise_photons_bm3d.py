"""BM3D on the counts of photons that `denoise_photons` denoises by default.

The counts are stabilised (Anscombe), denoised by the authors' package, which is told that the noise
has deviation 1, and taken back without bias. Its licence (Tampere University) allows what is
informational and not commercial alone, so that nothing here installs it. Half a minute for each
photograph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks._photos import psnr, test_photos
from benchmarks.denoise_bm4d import required
from benchmarks.denoise_photons import (
    COUNTS,
    PHOTOS,
    anscombe,
    best_gaussian,
    counted,
    inverse_anscombe,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def measure() -> Iterator[dict[str, object]]:
    """PSNR of each photograph at each number of counts."""
    figures: dict[str, object] = {"bm3d": required("bm3d")}
    from bm3d import bm3d

    photos = test_photos()
    for counts in COUNTS:
        for number in PHOTOS:
            clean = photos[number - 1][0]
            noisy, grey = counted(clean, counts)
            denoised = inverse_anscombe(bm3d(anscombe(noisy), 1.0))
            reached = psnr(denoised * grey, clean)
            figures[f"{counts} counts, photograph {number}"] = {
                "psnr": round(reached, 2),
                "above the best Gaussian": round(reached - best_gaussian(noisy * grey, clean), 2),
            }
            yield figures
