"""How often the intervals of flow hold the permeability of tubes that are known.

Nine parallel round tubes with blurred walls and noise are segmented with intervals. Poiseuille's
law gives their permeability, and the share of their sections the formation factor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import ndimage

import hushpore
from benchmarks.pores import CPU
from hushpore import Volume

RADII = (2.6, 3.3, 4.1, 5.2, 6.6, 8.1, 10.3, 12.6)  # voxels
NOISES = (0.03, 0.05, 0.08, 0.12)  # standard deviation over the contrast
LENGTH, BLUR = 40, 0.8  # voxels
FINE = 5  # points of a voxel along an axis, for the share of void in it


def tubes(radius: float, noise: float, seed: int) -> tuple[Volume, dict[str, float]]:
    """Return a scan of nine tubes along z, and their flow."""
    rng = np.random.default_rng(seed)
    pitch = int(2 * radius + 8)
    edge = 3 * pitch
    y, x = (np.mgrid[: edge * FINE, : edge * FINE] + 0.5) / FINE
    void = np.zeros(y.shape, bool)
    for place in np.ndindex(3, 3):
        middle = (np.array(place) + 0.5) * pitch + rng.uniform(-0.5, 0.5, 2)
        void |= (y - middle[0]) ** 2 + (x - middle[1]) ** 2 < radius**2
    share = void.reshape(edge, FINE, edge, FINE).mean(axis=(1, 3))
    plane = ndimage.gaussian_filter(200 - 150 * share, BLUR)
    grey = plane + rng.normal(0, 150 * noise, (LENGTH, edge, edge))
    section = 9 * np.pi * radius**2 / edge**2
    truth = {
        "permeability_z": section * radius**2 / 8,
        "formation_factor_z": 1 / section,
        "breakthrough_diameter_z": 2 * radius,
    }
    return Volume(grey.astype(np.float32)), truth


def measure() -> dict[str, Any]:
    """Run all of it; about half a minute."""
    names = tubes(RADII[0], NOISES[0], 0)[1]
    held = dict.fromkeys(names, 0)
    ratios: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    misses = []
    for radius in RADII:
        for seed, noise in enumerate(NOISES):
            volume, truth = tubes(radius, noise, seed)
            how = {"exterior": "keep", "intervals": True, "report_form": "rock", "device": CPU}
            totals = hushpore.segment_pores(volume, **how).provenance["result"]
            for name, value in truth.items():
                low, high = totals[f"{name}_low"], totals[f"{name}_high"]
                ratios[name].append((totals[name] / value, low / value, high / value))
                held[name] += low <= value <= high
                if not low <= value <= high:
                    misses.append(f"{name}: radius {radius:g}, noise {100 * noise:g} %")
    medians = {
        name: dict(
            zip(("value", "low", "high"), np.median(each, axis=0).round(3).tolist(), strict=True)
        )
        for name, each in ratios.items()
    }
    return {
        "scans": len(RADII) * len(NOISES),
        "interval holds the analytic value": held,
        "misses": misses,
        "median over the analytic value": medians,
    }
