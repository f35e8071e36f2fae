"""What N2V2 mends of N2V, and structN2V of N2V2: checkerboards, and lines of a detector.

Checkerboards: both are trained alike on noisy photographs; told is the energy of the results at the
Nyquist frequencies, as a multiple of that of the clean photographs. Lines: a foam phantom with
white noise, and an offset to each row of each slice as a detector's lines give it; told is what the
diagnosis said beforehand, and how much of the lines is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import hushpore
from benchmarks._photos import psnr, test_photos, training_photos
from hushpore.samples import foam_phantom

if TYPE_CHECKING:
    import numpy.typing as npt

#: Steps of training; enough for either to have learnt what it is about.
STEPS = 300


def measure() -> dict[str, object]:
    """Figures of both."""
    return {"checkerboard": _checkerboard(), "lines": _lines()}


def _checkerboard() -> dict[str, object]:
    photos = training_photos()
    pairs = test_photos()[:7]
    clean_energy = _nyquist([clean for clean, _ in pairs])
    figures: dict[str, object] = {"steps": STEPS}
    for share in ("paper", 0.15):
        for method in ("n2v", "n2v2"):
            model = hushpore.denoise(photos, method=method, masked_share=share, steps=STEPS).model
            results = [model.predict(noisy).data for _, noisy in pairs]
            values = [psnr(r, clean) for r, (clean, _) in zip(results, pairs, strict=True)]
            figures[f"{method}, masked {share}"] = {
                "nyquist_energy": round(_nyquist(results) / clean_energy, 3),
                "psnr": round(float(np.mean(values)), 2),
            }
    return figures


def _nyquist(images: list[npt.NDArray[Any]]) -> float:
    """Energy at the Nyquist frequencies along y and x, in blocks of 16 pixels."""
    window = np.hanning(18)[1:-1]
    found = []
    for image in images:
        blocks = image.reshape(image.shape[0] // 16, 16, -1, 16).swapaxes(1, 2).reshape(-1, 16, 16)
        centred = blocks - blocks.mean((1, 2), keepdims=True)
        power = np.abs(np.fft.fft2(centred * np.outer(window, window))) ** 2
        found.append(power[:, 8].mean() + power[:, :, 8].mean())
    return float(np.mean(found))


def _lines() -> dict[str, object]:
    clean = foam_phantom((24, 128, 128), seed=1).clean.array().astype(np.float32)
    rng = np.random.default_rng(0)
    contrast = float(np.ptp(clean))
    lines = rng.normal(0, 0.1 * contrast, (*clean.shape[:2], 1)).astype(np.float32)
    noisy = clean + lines + rng.normal(0, 0.1 * contrast, clean.shape).astype(np.float32)
    figures: dict[str, object] = {"steps": STEPS, "noisy": {"psnr": _psnr(noisy, clean)}}
    for name, along in (("n2v2", "none"), ("structn2v", "x")):
        result = hushpore.denoise(noisy, correlated_along=along, correlated_reach=16, steps=STEPS)
        if along == "none":
            figures["said_beforehand"] = result.provenance["noise"]["summary"]
        error = result.volume.data - clean
        figures[name] = {
            "psnr": _psnr(result.volume.data, clean),
            # the share of the lines that is in the result still
            "lines_left": round(float((error * lines).mean() / (lines**2).mean()), 3),
        }
    return figures


def _psnr(image: npt.NDArray[Any], clean: npt.NDArray[Any]) -> float:
    error = np.mean((image.astype(np.float64) - clean) ** 2)
    return round(float(10 * np.log10(np.ptp(clean) ** 2 / error)), 2)
