"""Two scans of the same thing, each learnt from the other, beside one scan by itself.

Scans of the simulator, of the half that nothing was tuned on (see `_scans`): one of each structure
and each filter. Each as two: reconstructed from its even and its odd projections, which costs no
dose; and scanned a second time. One thread and as many steps for all. PSNR as in
`denoise_correlated`.

    OMP_NUM_THREADS=1 python -m benchmarks denoise_pair
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hushpore
from benchmarks._scans import cases, halves_of, repeated, simulate, sinogram_of
from benchmarks.denoise_correlated import below_middle, pores_in, psnr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks._scans import Case, Image

#: Steps of every training.
STEPS = 300

#: Structure and filter of the scans.
SCANS = {"foam": "cosine", "rock": "hann", "fibres": "shepp-logan", "small pores": "ramp"}


def measure() -> Iterator[dict[str, object]]:
    """Every scan alone and as two."""
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"steps": STEPS, "threads": 1}
    for case in cases("held out"):
        if SCANS.get(case.structure) != case.filter:
            continue
        figures[case.name] = compared(case)
        scans = [each for each in figures.values() if isinstance(each, dict)]
        gains = {
            f"{way} over {one}": [each[way]["psnr"] - each[one]["psnr"] for each in scans]
            for way, one in (("halves", "half alone"), ("halves", "alone"), ("repeated", "alone"))
        }
        summary = {
            name: {"least": round(min(each), 2), "median": round(statistics.median(each), 2)}
            for name, each in gains.items()
        }
        yield {**figures, "gains, dB": summary}


def compared(case: Case) -> dict[str, Any]:
    """Denoise one scan alone, by its halves, and with a second one."""
    scan = simulate(
        sinogram_of(case.structure, case.seed), case.blur, case.filter, case.noise, case.seed
    )
    even, odd = halves_of(case, scan.photons)
    second = repeated(case, scan.photons)
    images = {
        "noisy": scan.scan,
        "alone": denoised(scan.scan),
        "half alone": denoised(even),
        "halves": denoised(even, odd),
        "mean of two": (scan.scan + second) / 2,
        "repeated": denoised(scan.scan, second),
    }
    core = np.broadcast_to(scan.core, scan.scan.shape)
    found: dict[str, Any] = {"pores without noise": pores_in(below_middle(scan.reference) & core)}
    for name, image in images.items():
        pores = pores_in(below_middle(image) & core)
        found[name] = {"psnr": round(psnr(image, scan), 2), "pores": pores}
    return found


def denoised(values: Image, pair: Image | None = None) -> Image:
    """Denoise by default, with a second scan where there is one."""
    volume = hushpore.Volume(values, axes="zyx")
    more = {} if pair is None else {"pair": hushpore.Volume(pair, axes="zyx", name="second")}
    result = hushpore.denoise(volume, steps=STEPS, seed=0, device="cpu", **more)
    return np.asarray(result.volume.data)
