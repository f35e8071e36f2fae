"""Photographs with noise of known strength, as papers on denoising use them.

Set12 and Train400 with white noise of deviation 25, drawn in the order of the files' names. Needs
their PNG files in ``../shared/data/photos`` and ``photos_train``: they come with DnCNN
(https://github.com/cszn/DnCNN) under no licence that lets them be passed on.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from skimage.io import imread

from benchmarks._missing import require_files

if TYPE_CHECKING:
    import numpy.typing as npt

DATA = Path(__file__).parents[2] / "shared" / "data"

#: N2V2 on single images, for noise that is independent: what figures on photographs are of.
N2V2: dict[str, Any] = {"method": "n2v2", "context": 0}

#: Deviation of the noise; grey values run from 0 to 255.
SIGMA = 25.0


def clean_training_photos() -> npt.NDArray[np.uint8]:
    """Return the 400 photographs to train on, without their noise."""
    return np.stack([imread(path) for path in _files("photos_train")])


def training_photos() -> npt.NDArray[np.float32]:
    """Return the 400 noisy photographs to train on, (400, 180, 180)."""
    clean = clean_training_photos()
    noise = np.random.default_rng(25).normal(0, SIGMA, clean.shape)
    return (clean + noise).astype(np.float32)


def test_photos() -> list[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]]:
    """Return the 12 photographs of Set12, each clean and noisy."""
    rng = np.random.default_rng(25)
    pairs = []
    for path in _files("photos"):
        clean = imread(path).astype(np.float32)
        noisy = clean + rng.normal(0, SIGMA, clean.shape)
        pairs.append((clean, noisy.astype(np.float32)))
    return pairs


def _files(name: str) -> list[Path]:
    return require_files(DATA / name, "*.png", "they come with https://github.com/cszn/DnCNN")


def psnr(image: npt.NDArray[np.floating], clean: npt.NDArray[np.floating]) -> float:
    """Peak signal-to-noise ratio in dB over a range of 255."""
    error = np.mean((image.astype(np.float64) - clean) ** 2)
    return 10 * math.log10(255**2 / error)
