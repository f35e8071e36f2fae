"""Denoising of scans whose noise is correlated: by default, beside classical filters.

The half of the grid of simulated scans that nothing was tuned on (see `_scans`). PSNR is over the
contrast, inside the core, against the reconstruction without noise; pores are counted in what is
below the middle of the contrast, against those of the phantom. Parameters of the classical filters
are the best of several, chosen with the truth: that is generous to them.

Some of the scans, by a part of their name, are put beside those that the same commit has done
already::

    python -m benchmarks denoise_correlated --only small-pores
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage, stats
from skimage.metrics import structural_similarity
from skimage.restoration import denoise_nl_means, denoise_tv_chambolle

import hushpore
from benchmarks._scans import AIR, CONTRAST, cases, made, solid_share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy.typing as npt

    from benchmarks._scans import Case, Scan

    Image = npt.NDArray[np.float32]

#: Steps of a training: as many as 90 s of two cores allow, so that figures do not depend on what
#: else the machine does (an AMD EPYC without AVX512: 0.17 s of processor time each).
STEPS = 900

#: Widths of the Gaussian, in voxels.
WIDTHS = (0.4, 0.5, 0.7, 0.9, 1.1, 1.4, 1.8)

#: Edges of the median, weights of total variation (contrast 1), and strengths of non-local means in
#: deviations of the noise, which it is told.
MEDIANS, WEIGHTS, STRENGTHS = (2, 3, 5), (0.02, 0.05, 0.1, 0.2, 0.4), (0.4, 0.7, 1.0)


def measure(only: str = "", kept: dict[str, Any] | None = None) -> Iterator[dict[str, object]]:
    """Every way of denoising on every scan.

    `only`: part of the names of the scans that are done. `kept`: figures that there are already.
    """
    figures: dict[str, object] = {**(kept or {}), "steps": STEPS}
    for case in cases("held out"):
        if only in case.name:
            scan = made(case)
            figures[case.name] = compared(case, scan, ways(scan))
            yield figures


def compared(case: Case, scan: Scan, every: dict[str, Callable[[], Image]]) -> dict[str, object]:
    """Denoise one scan in every way."""
    core = np.broadcast_to(scan.core, scan.scan.shape)
    solid = solid_share(case.structure, case.seed)[tuple(map(slice, scan.scan.shape))]
    void = (solid < 0.5) & core
    without = diameters_in(below_middle(scan.reference) & core)
    found: dict[str, object] = {
        "pores": len(diameters_in(void)),
        "pores without noise": len(without),
    }
    for name, way in every.items():
        began = time.process_time()
        image = way()
        seconds = time.process_time() - began
        own = below_middle(image) & core
        diameters = diameters_in(own)
        found[name] = {
            "psnr": round(psnr(image, scan), 2),
            "ssim": round(similarity(image, scan), 4),
            "pores": len(diameters),
            "diameters off": distance(diameters, without),
            "voxels right": round(float((own == void)[core].mean()), 4),
            "seconds": round(seconds),
        }
    return found


def ways(scan: Scan) -> dict[str, Callable[[], Image]]:
    """Return the ways of denoising a scan, by name."""
    values = scan.scan
    return {
        "noisy": lambda: values,
        "gaussian": lambda: best(
            (ndimage.gaussian_filter(values, width) for width in WIDTHS), scan
        ),
        "median": lambda: best((ndimage.median_filter(values, size) for size in MEDIANS), scan),
        "total variation": lambda: best(
            (denoise_tv_chambolle(values / CONTRAST, w) * CONTRAST for w in WEIGHTS), scan
        ),
        "non-local means": lambda: best(
            (non_local_means(values, h * scan.noise.std()) for h in STRENGTHS), scan
        ),
        "hushpore": lambda: denoised(values),
    }


def best(images: Iterable[Image], scan: Scan) -> Image:
    """Return the image that is nearest to the truth."""
    return max(images, key=lambda image: psnr(image, scan))


def non_local_means(values: Image, h: float) -> Image:
    """Denoise slice by slice."""
    slices = [
        denoise_nl_means(each, 5, 7, h, fast_mode=True, sigma=h, preserve_range=True)
        for each in values
    ]
    return np.stack(slices).astype(np.float32)


def denoised(values: Image, **settings: Any) -> Image:
    """Denoise for so many steps, by default in all else."""
    volume = hushpore.Volume(values, axes="zyx")
    result = hushpore.denoise(volume, steps=STEPS, seed=0, **settings)
    return np.asarray(result.volume.data)


def psnr(image: Image, scan: Scan) -> float:
    """Return the signal-to-noise ratio of the core, in dB over the contrast."""
    error = float(((image - scan.reference)[:, scan.core].astype(np.float64) ** 2).mean())
    return float(10 * np.log10(CONTRAST**2 / error))


def below_middle(image: Image) -> npt.NDArray[np.bool_]:
    """Return what is void, by a threshold in the middle of the contrast."""
    below: npt.NDArray[np.bool_] = image < AIR + CONTRAST / 2
    return below


def similarity(image: Image, scan: Scan) -> float:
    """Return the structural similarity (SSIM) of the core, over the contrast."""
    _, each = structural_similarity(scan.reference, image, data_range=CONTRAST, full=True)
    return float(each[:, scan.core].mean())


def diameters_in(void: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return the equivalent diameters of the pores of a void, in voxels."""
    return np.asarray(hushpore.segment_pores(void).pores["equivalent_diameter"])


def distance(some: npt.NDArray[np.float64], others: npt.NDArray[np.float64]) -> float | None:
    """Return the Wasserstein distance of two distributions; None where one has no values."""
    if not len(some) or not len(others):
        return None
    return round(float(stats.wasserstein_distance(some, others)), 3)


def pores_in(void: npt.NDArray[np.bool_]) -> int:
    """Return how many pores a void has."""
    return len(hushpore.segment_pores(void).pores)
