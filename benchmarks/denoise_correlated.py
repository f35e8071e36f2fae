"""Denoising of scans whose noise is correlated: by default and as N2V2, beside a Gaussian.

The half of the grid of simulated scans that is for tuning (see `_scans`). PSNR is over the
contrast, inside the core, against the reconstruction without noise; pores are counted in what is
below the middle of the contrast, against those of the phantom. The Gaussian's width is the best of
several, chosen with the truth. Needs ``../shared/data``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

import hushpore
from benchmarks._scans import AIR, CONTRAST, cases, made, solid_share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from benchmarks._scans import Case, Scan

    Image = npt.NDArray[np.float32]

#: Seconds of training.
BUDGET = 90

#: Widths of the Gaussian, in voxels.
WIDTHS = (0.4, 0.5, 0.7, 0.9, 1.1, 1.4, 1.8)

#: Slices to either side in 2.5D.
CONTEXT = 2


def measure() -> Iterator[dict[str, object]]:
    """Every way of denoising on every scan."""
    figures: dict[str, object] = {"budget": BUDGET}
    for case in cases("tuning"):
        figures[case.name] = compared(case)
        yield figures


def compared(case: Case, names: tuple[str, ...] = ()) -> dict[str, object]:
    """Denoise one scan in every way, or in those of some names."""
    scan = made(case)
    core = np.broadcast_to(scan.core, scan.scan.shape)
    void = (solid_share(case.structure, case.seed) < 0.5) & core
    found: dict[str, object] = {
        "pores": pores_in(void),
        "pores without noise": pores_in(below_middle(scan.reference) & core),
    }
    for name, way in ways(scan).items():
        if names and name not in names:
            continue
        began = time.perf_counter()
        image = way()
        seconds = time.perf_counter() - began
        own = below_middle(image) & core
        found[name] = {
            "psnr": round(psnr(image, scan), 2),
            "pores": pores_in(own),
            "voxels right": round(float((own == void)[core].mean()), 4),
            "seconds": round(seconds),
        }
    return found


def ways(scan: Scan) -> dict[str, Callable[[], Image]]:
    """Return the ways of denoising a scan, by name."""
    values = scan.scan
    return {
        "noisy": lambda: values,
        "gaussian": lambda: max(
            (ndimage.gaussian_filter(values, width) for width in WIDTHS),
            key=lambda image: psnr(image, scan),
        ),
        "n2v2": lambda: denoised(values, method="n2v2", context=CONTEXT),
        "hushpore": lambda: denoised(values),
    }


def denoised(values: Image, **settings: Any) -> Image:
    """Denoise for as long as the budget allows, by default in all else."""
    volume = hushpore.Volume(values, axes="zyx")
    result = hushpore.denoise(volume, time_budget=BUDGET, seed=0, **settings)
    return np.asarray(result.volume.data)


def psnr(image: Image, scan: Scan) -> float:
    """Return the signal-to-noise ratio of the core, in dB over the contrast."""
    error = float(((image - scan.reference)[:, scan.core].astype(np.float64) ** 2).mean())
    return float(10 * np.log10(CONTRAST**2 / error))


def below_middle(image: Image) -> npt.NDArray[np.bool_]:
    """Return what is void, by a threshold in the middle of the contrast."""
    below: npt.NDArray[np.bool_] = image < AIR + CONTRAST / 2
    return below


def pores_in(void: npt.NDArray[np.bool_]) -> int:
    """Return how many pores a void has."""
    return len(hushpore.segment_pores(void).pores)
