"""The phantom with rings about the middle of its slices, and noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.sample_data import foam_phantom

if TYPE_CHECKING:
    import numpy.typing as npt

#: Slices, rows and columns.
SHAPE = (24, 128, 128)


def ring_phantom() -> tuple[npt.NDArray[np.float32], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return slices without noise, their rings and their noise, each a tenth of the contrast."""
    clean = foam_phantom(SHAPE, seed=1).clean.array().astype(np.float32)
    rng = np.random.default_rng(0)
    contrast = float(np.ptp(clean))
    edge = SHAPE[-1]
    radius = np.hypot(*(np.mgrid[:edge, :edge] - (edge - 1) / 2))
    # one more than the distance of a corner
    circles = np.arange(int(np.ceil(edge / np.sqrt(2))) + 1)
    offsets = rng.normal(0, 0.1 * contrast, (len(clean), len(circles)))
    rings = np.stack([np.interp(radius, circles, each) for each in offsets])
    return clean, rings, rng.normal(0, 0.1 * contrast, clean.shape)
