"""Rings taken out of slices: how much of them stays, and what it costs where there are none.

A foam phantom with white noise and an offset to every circle of every slice, as in
`denoise_artefacts`; then scans of the simulator whose detector has pixels that are off by half a
per cent of what they count, and the same with none off. Nothing was tuned on the latter. PSNR is
over the contrast.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

import hushpore
from benchmarks._ring_phantom import ring_phantom
from benchmarks._scans import CONTRAST, cases, reconstructed, simulate, sinogram_of
from hushpore.base.events import result_of
from hushpore.n2v2.rings import RingFree, without_rings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from benchmarks._scans import Case

#: Steps of training, as for the rings of `denoise_artefacts`.
STEPS = 150

#: Deviation of the sensitivity of a detector's pixels, and which scans are made with it.
GAIN, SCANS = 0.005, {"foam": 0.4, "rock": 0.6, "fibres": 0.0}


def measure() -> Iterator[dict[str, object]]:
    """Figures of the phantom, and of each scan."""
    figures: dict[str, object] = {"steps": STEPS, "phantom": _phantom()}
    yield dict(figures)
    for case in cases("held out"):
        if SCANS.get(case.structure) == case.blur:
            figures[case.name] = _simulated(case)
            yield dict(figures)


def _phantom() -> dict[str, object]:
    clean, rings, noise = ring_phantom()
    contrast = float(np.ptp(clean))
    figures: dict[str, object] = {}
    for name, values in (("with rings", clean + rings + noise), ("without", clean + noise)):
        scan = hushpore.Volume(values.astype(np.float32))
        figures[name] = {
            way: _compared(image, clean, rings, contrast) for way, image in _ways(scan).items()
        }
    return figures


def _ways(scan: hushpore.Volume) -> dict[str, npt.NDArray[Any]]:
    denoised = {
        f"denoised{', corrected' if corrected else ''}": hushpore.denoise(
            scan, steps=STEPS, correct_rings=corrected, device="cpu"
        ).volume.array()
        for corrected in (False, True)
    }
    corrected = np.asarray(result_of(without_rings(scan)).data)
    return {"noisy": scan.array(), "corrected": corrected, **denoised}


def _simulated(case: Case) -> dict[str, object]:
    sinogram = sinogram_of(case.structure, case.seed)
    scan = simulate(sinogram, case.blur, case.filter, case.noise, case.seed)
    rng = np.random.default_rng(case.seed)
    counts = rng.poisson(scan.photons * np.exp(-sinogram.astype(np.float64))).astype(float)
    gain = 1 + rng.normal(0, GAIN, (*counts.shape[:2], 1))
    free, ringed = (
        reconstructed(each, scan.photons, case.blur, case.filter)
        for each in (counts, counts * gain)
    )
    rings = (ringed - free)[:, scan.core]
    found: dict[str, object] = {"rings": round(float(rings.std() / CONTRAST), 4)}
    for name, values in (("with rings", ringed), ("without", scan.scan)):
        began = time.perf_counter()
        corrected = result_of(without_rings(hushpore.Volume(values)))
        seconds = time.perf_counter() - began
        images = {"noisy": values, "corrected": np.asarray(corrected.data)}
        found[name] = {
            "rings were found": isinstance(corrected.data, RingFree),
            "seconds": round(seconds, 1),
            **{
                way: _compared(image[:, scan.core], scan.reference[:, scan.core], rings, CONTRAST)
                for way, image in images.items()
            },
        }
    return found


def _compared(
    image: npt.NDArray[Any], clean: npt.NDArray[Any], rings: npt.NDArray[Any], contrast: float
) -> dict[str, float]:
    error = image - clean
    return {
        "psnr": round(float(10 * np.log10(contrast**2 / (error**2).mean())), 2),
        # the share of the rings that is in the image still
        "rings_left": round(float((error * rings).mean() / (rings**2).mean()), 3),
    }
