"""Small scans by default and as larger ones are trained: decibels and processor time.

Parts of 40 x 64 x 64 voxels of simulated scans (see `_scans`) and of real ones to which blurred
noise was added, and single images: photographs with blurred noise, and FDA's low-contrast CT
phantom (DIDSR/LCD_CT), judged inside it. The folder of images has ``lcd_ct.npz``, ``cement.tif``
and ``bone.tif`` (of qim3d)::

    python -m benchmarks denoise_small_scans --images FOLDER --only fibres
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage
from skimage.io import imread

import hushpore
from benchmarks._missing import MissingError
from benchmarks._photos import test_photos
from benchmarks._scans import CONTRAST, cases, made
from hushpore.denoising.settings import BATCH, STEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    # noisy and clean image, where it is judged, and its contrast
    Kind = tuple[np.ndarray, np.ndarray, np.ndarray | bool, float]

#: What is compared: the default, and the training of larger scans without early stopping.
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "longest": {"steps": STEPS, "batch_size": BATCH[2]},
}


def measure(
    only: str = "", kept: dict[str, Any] | None = None, images: Path | None = None
) -> Iterator[dict[str, object]]:
    """Every way on every kind of scan.

    `only`: part of the names of the kinds that are done. `kept`: figures that there are already.
    `images`: folder of the real scans.
    """
    if images is None:
        raise MissingError("give the folder of the real scans: --images FOLDER")
    figures: dict[str, object] = dict(kept or {})
    for name, make in kinds(images).items():
        if only in name:
            noisy, clean, where, contrast = make()
            decibels = partial(psnr, clean=clean, where=where, contrast=contrast)
            found: dict[str, object] = {"noisy": decibels(noisy)}
            for way, settings in WAYS.items():
                began = time.process_time()
                volume = hushpore.Volume(noisy, axes="zyx"[-noisy.ndim :])
                result = hushpore.denoise(volume, seed=0, device="cpu", **settings)
                seconds = round(time.process_time() - began, 1)
                image = np.asarray(result.volume.data)
                steps = result.provenance["result"]["steps"]
                found[way] = {"psnr": decibels(image), "steps": steps, "seconds": seconds}
            figures[name] = found
            yield figures


def kinds(images: Path) -> dict[str, Callable[[], Kind]]:
    """Return the scans, by name: those that the default was chosen on, and the unseen ones."""
    return {
        "seen: foam, blur 0.6, noise 0.4": partial(simulated, "tuning", "foam", 0.6),
        "seen: small pores, blur 0.4, noise 0.05": partial(simulated, "tuning", "small pores", 0.4),
        "seen: cement, added noise 0.15": partial(real, images / "cement.tif", 0.15, 0.7),
        "seen: phantom, dose 100 %": partial(phantom, images / "lcd_ct.npz", "fbp_100", 0),
        "seen: photograph 09, noise 0.1": partial(photograph, 8, 0.1, 0.5),
        "unseen: fibres, blur 0.4, noise 0.08": partial(simulated, "held out", "fibres", 0.4),
        "unseen: rock, blur 0.4, noise 0.2": partial(simulated, "held out", "rock", 0.4),
        "unseen: bone, added noise 0.1": partial(real, images / "bone.tif", 0.1, 0.8),
        "unseen: phantom, dose 55 %": partial(phantom, images / "lcd_ct.npz", "fbp_055", 1),
        "unseen: photograph 11, white noise 0.2": partial(photograph, 10, 0.2, 0.0),
    }


def simulated(half: str, structure: str, blur: float) -> Kind:
    """Return a part of a simulated scan."""
    (case,) = (c for c in cases(half) if (c.structure, c.blur) == (structure, blur))
    scan, part = made(case), np.s_[4:44, 48:112, 48:112]
    return scan.scan[part], scan.reference[part].astype(np.float64), True, CONTRAST


def real(path: Path, level: float, blur: float) -> Kind:
    """Return a part of a real scan with more noise, blurred less along z."""
    clean = np.asarray(imread(path), np.float64)[40:80, 30:94, 30:94]
    contrast = float(np.ptp(np.percentile(clean, (2, 98))))
    return with_noise(clean, contrast, level, (blur / 2, blur, blur))


def photograph(number: int, level: float, blur: float) -> Kind:
    """Return a photograph of 512 x 512 pixels with blurred noise."""
    return with_noise(test_photos()[number][0].astype(np.float64), 255.0, level, (blur, blur))


def with_noise(clean: np.ndarray, contrast: float, level: float, blur: tuple[float, ...]) -> Kind:
    """Return a clean image with blurred noise of a level, as a share of its contrast."""
    noise = ndimage.gaussian_filter(
        np.random.default_rng(1).standard_normal(clean.shape), blur, mode="wrap"
    )
    noisy = clean + level * contrast * noise / noise.std()
    return noisy.astype(np.float32), clean, True, contrast


def phantom(path: Path, dose: str, repeat: int) -> Kind:
    """Return an image of FDA's phantom, judged inside it."""
    with np.load(path) as kept:
        clean, noisy = kept["truth"].astype(np.float64), kept[dose][repeat].astype(np.float32)
    radius = np.hypot(*(np.indices(clean.shape) - (len(clean) - 1) / 2))
    return noisy, clean, radius < 90, 100.0


def psnr(image: np.ndarray, clean: np.ndarray, where: Any, contrast: float) -> float:
    """Return the signal-to-noise ratio over the contrast, in dB."""
    error = np.mean((image - clean) ** 2, where=where)
    return round(float(10 * np.log10(contrast**2 / error)), 2)
