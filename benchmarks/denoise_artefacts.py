"""What N2V2 mends of N2V, and structN2V of N2V2: checkerboards, and lines of a detector.

Checkerboards: both are trained alike on noisy photographs; told is the energy of the results at the
Nyquist frequencies, as a multiple of that of the clean photographs. Lines: a foam phantom with
white noise, and an offset to each row of each slice as a detector's lines give it; told is what the
diagnosis said beforehand, and how much of the lines is left. Rings: the same with an offset to each
circle about the middle of each slice; no axis runs along them, so that slices are unrolled about
the middle, denoised with the angle as the axis of the noise, and rolled up again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.ndimage import map_coordinates

import hushpore
from benchmarks import _ring_phantom
from benchmarks._photos import N2V2, psnr, test_photos, training_photos
from hushpore.sample_data import foam_phantom

if TYPE_CHECKING:
    import numpy.typing as npt

#: Steps of training; enough for either to have learnt what it is about.
STEPS = 300

#: Those for rings, where five trainings are compared.
RING_STEPS = 150


def measure() -> dict[str, object]:
    """Figures of both."""
    return {"checkerboard": _checkerboard(), "lines": _lines(), "rings": _rings()}


def _checkerboard() -> dict[str, object]:
    photos = training_photos()
    pairs = test_photos()[:7]
    clean_energy = _nyquist([clean for clean, _ in pairs])
    figures: dict[str, object] = {"steps": STEPS}
    for share in ("paper", 0.15):
        for method in ("n2v", "n2v2"):
            model = hushpore.denoise(
                photos, method=method, context=0, masked_share=share, steps=STEPS
            ).model
            results = [
                model.predict(noisy, test_time_augmentation=False).data for _, noisy in pairs
            ]
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
    clean = foam_phantom(_ring_phantom.SHAPE, seed=1).clean.array().astype(np.float32)
    rng = np.random.default_rng(0)
    contrast = float(np.ptp(clean))
    lines = rng.normal(0, 0.1 * contrast, (*clean.shape[:2], 1)).astype(np.float32)
    noisy = clean + lines + rng.normal(0, 0.1 * contrast, clean.shape).astype(np.float32)
    figures: dict[str, object] = {"steps": STEPS, "noisy": {"psnr": _psnr(noisy, clean)}}
    for name, along in (("n2v2", "none"), ("structn2v", "x")):
        result = hushpore.denoise(
            noisy, correlated_along=along, correlated_reach=16, steps=STEPS, **N2V2
        )
        if along == "none":
            figures["said_beforehand"] = result.provenance["noise"]["summary"]
        error = result.volume.data - clean
        figures[name] = {
            "psnr": _psnr(result.volume.data, clean),
            # the share of the lines that is in the result still
            "lines_left": round(float((error * lines).mean() / (lines**2).mean()), 3),
        }
    return figures


def _rings() -> dict[str, object]:
    clean, rings, noise = _ring_phantom.ring_phantom()
    noisy = (clean + rings + noise).astype(np.float32)
    figures: dict[str, object] = {"steps": RING_STEPS, "noisy": _with_rings(noisy, clean, rings)}
    ways: dict[str, dict[str, Any]] = {
        "n2v2": {},
        "structn2v along x": {"correlated_along": "x", "correlated_reach": 16},
    }
    for name, how in ways.items():
        result = hushpore.denoise(noisy, steps=RING_STEPS, **N2V2, **how)
        figures.setdefault("said_beforehand", result.provenance["noise"]["summary"])
        figures[name] = _with_rings(result.volume.data, clean, rings)
    there, back = _unrolling(clean.shape[-1])
    figures["unrolled and rolled up again, no more"] = _with_rings(
        _resampled(_resampled(noisy, there), back), clean, rings
    )
    for name, how in (
        ("n2v2, unrolled", {}),
        ("structn2v, unrolled", {"correlated_along": "y", "correlated_reach": 16}),
    ):
        result = hushpore.denoise(_resampled(noisy, there), steps=RING_STEPS, **N2V2, **how)
        figures[name] = _with_rings(_resampled(result.volume.data, back), clean, rings)
    return figures


def _unrolling(edge: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return where in a slice the unrolled one is read, and where in that the slice is again.

    Unrolled, y is the angle, in steps of a pixel half way out, and x the distance from the middle.
    """
    middle = (edge - 1) / 2
    n_angles, n_radii = 4 * round(np.pi * edge / 8), round(edge / np.sqrt(2) / 4 + 1) * 4
    angle, radius = np.mgrid[:n_angles, :n_radii]
    turn = 2 * np.pi * angle / n_angles
    there = middle + radius * np.stack([np.sin(turn), np.cos(turn)])
    y, x = np.mgrid[:edge, :edge] - middle
    back = np.stack([np.arctan2(y, x) % (2 * np.pi) * n_angles / (2 * np.pi), np.hypot(y, x)])
    return there, back


def _resampled(slices: npt.NDArray[Any], where: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    # beyond the end of the angles they start anew, and so does a slice, mirrored, beyond its border
    mode = "grid-wrap" if slices.shape[-1] != slices.shape[-2] else "reflect"
    found = [map_coordinates(each, where, order=1, mode=mode) for each in slices]
    return np.stack(found).astype(np.float32)


def _with_rings(
    image: npt.NDArray[Any], clean: npt.NDArray[Any], rings: npt.NDArray[Any]
) -> dict[str, float]:
    # where circles are whole
    edge = clean.shape[-1]
    inside = np.hypot(*(np.mgrid[:edge, :edge] - (edge - 1) / 2)) < edge / 2
    error = (image - clean)[:, inside]
    left = (error * rings[:, inside]).mean() / (rings[:, inside] ** 2).mean()
    return {
        "psnr": round(float(10 * np.log10(np.ptp(clean) ** 2 / (error**2).mean())), 2),
        "rings_left": round(float(left), 3),
    }


def _psnr(image: npt.NDArray[Any], clean: npt.NDArray[Any]) -> float:
    error = np.mean((image.astype(np.float64) - clean) ** 2)
    return round(float(10 * np.log10(np.ptp(clean) ** 2 / error)), 2)
