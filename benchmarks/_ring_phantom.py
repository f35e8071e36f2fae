"""The phantom with rings about the middle of its slices, and noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.sample_data import foam_phantom

if TYPE_CHECKING:
    import numpy.typing as npt


def ring_phantom() -> tuple[npt.NDArray[np.float32], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return 24 slices without noise, their rings and their noise, each a tenth of the contrast."""
    clean = foam_phantom((24, 128, 128), seed=1).clean.array().astype(np.float32)
    rng = np.random.default_rng(0)
    contrast = float(np.ptp(clean))
    radius = np.hypot(*(np.mgrid[:128, :128] - 63.5))
    offsets = rng.normal(0, 0.1 * contrast, (len(clean), 92))
    rings = np.stack([np.interp(radius, np.arange(92), each) for each in offsets])
    return clean, rings, rng.normal(0, 0.1 * contrast, clean.shape)
