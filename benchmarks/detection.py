"""The detection limit of simulated scans against the share of known pores that was found in them.

Each scan holds large pores and, apart from them, balls around the detection limit, all known. It is
segmented with the detection limit, and the balls that have a pore at their place give the truth. A
pore is at the place of a ball if its centroid lies in it and it is at least half as wide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

import hushpore
from benchmarks.pores import CPU
from hushpore import Volume
from hushpore.pores.detection import Tried, limit_of

if TYPE_CHECKING:
    from collections.abc import Iterator

EDGE, SEEDS, BALLS = 100, 2, 130
FINE = 4  # points of a voxel along an axis, for the share of void in it
VOID, SOLID = 60.0, 200.0

#: By kind: blur in voxels; noise over the contrast, and its correlation length in voxels; number of
#: large pores and their radii; grey levels; settings; and about where the limit is.
KINDS: dict[str, dict[str, Any]] = {
    "sharp": {"blur": 0.7, "noise": 0.03, "near": 3.1},
    "casting": {"near": 3.5},
    "blurred": {"blur": 2.0, "near": 6.0},
    "noisy": {"noise": 0.25, "settings": {"threshold": 13_000}, "near": 4.0},
    "correlated noise": {"noise": 0.2, "length": 0.8, "settings": {"threshold": 13_000},
                         "near": 4.5},
    "40 grey levels": {"levels": 40, "near": 3.5},
    "small pores": {"pores": 60, "radii": (1.5, 3.0), "near": 3.3},
    "porous": {"pores": 90, "near": 3.6},
    "minimum of 27 voxels": {"settings": {"minimum_voxels": 27}, "near": 4.4},
    "local threshold": {"settings": {"threshold": "sauvola", "local_window": 31}, "near": 2.8},
    "hysteresis": {"settings": {"threshold": 15_000, "hysteresis": 9_000}, "near": 4.6},
}  # fmt: skip


def scan(kind: dict[str, Any], seed: int) -> tuple[Volume, np.ndarray, np.ndarray]:
    """Return a scan of a kind, and the centres and diameters of the balls in it."""
    rng = np.random.default_rng(seed)
    blur, gap = kind.get("blur", 1.0), 3 * kind.get("blur", 1.0) + 1.5
    large = rng.uniform(*kind.get("radii", (4, 9)), kind.get("pores", 25))
    small = np.geomspace(0.55 * kind["near"], 1.8 * kind["near"], BALLS) / 2
    centres, radii, are_known = np.empty((0, 3)), np.empty(0), np.empty(0, bool)
    for radius, is_known in [*((r, False) for r in np.sort(large)[::-1]),
                             *((r, True) for r in small[::-1])]:  # fmt: skip
        margin = radius + (5 if is_known else 1)
        for _ in range(200):
            centre = rng.uniform(margin, EDGE - 1 - margin, 3)
            away = np.linalg.norm(centres - centre, axis=1) - radii - radius
            if (away > (gap if is_known else 2)).all():
                centres = np.vstack([centres, centre])
                radii, are_known = np.append(radii, radius), np.append(are_known, is_known)
                break
    share = np.zeros((EDGE,) * 3)
    for centre, radius in zip(centres, radii, strict=True):
        first = np.maximum(np.floor(centre - radius - 1), 0).astype(int)
        last = np.minimum(np.ceil(centre + radius) + 2, EDGE).astype(int)
        ends = zip(first, last, centre, strict=True)
        lines = [(np.arange(a * FINE, b * FINE) + 0.5) / FINE - 0.5 - c for a, b, c in ends]
        ball = sum(line**2 for line in np.ix_(*lines)) < radius**2
        sides = [side for n in last - first for side in (n, FINE)]
        part = tuple(slice(a, b) for a, b in zip(first, last, strict=True))
        share[part] += ball.reshape(sides).mean(axis=(1, 3, 5))
    noise = rng.standard_normal(share.shape)
    if "length" in kind:
        noise = ndimage.gaussian_filter(noise, kind["length"], mode="wrap")
    noise *= kind.get("noise", 0.1) * (SOLID - VOID) / noise.std()
    grey = SOLID + (VOID - SOLID) * ndimage.gaussian_filter(np.minimum(share, 1), blur) + noise
    if "levels" in kind:
        step = 256 // kind["levels"]
        values = (np.clip(grey, 0, 255) // step * step).astype(np.uint8)
    else:
        values = np.clip(np.rint(100 * grey), 0, 65535).astype(np.uint16)
    return Volume(values), centres[are_known], 2 * radii[are_known]


def hits(pores: Any, centres: np.ndarray, diameters: np.ndarray) -> list[float]:
    """Return the diameter of the pore at the place of each ball; 0 for none."""
    places = pores[[f"centroid_{axis}" for axis in "zyx"]].to_numpy()
    sizes = pores["equivalent_diameter"].to_numpy()
    found = []
    for centre, diameter in zip(centres, diameters, strict=True):
        away = np.linalg.norm(places - centre, axis=1)
        nearest = int(away.argmin())
        is_ball = away[nearest] < diameter / 2 and sizes[nearest] > diameter / 2
        found.append(float(sizes[nearest]) if is_ball else 0.0)
    return found


def measure() -> Iterator[dict[str, Any]]:
    """Run all of it; some five minutes."""
    figures: dict[str, Any] = {}
    for name, kind in KINDS.items():
        limits, errors, tried, found = [], [], [], []
        for seed in range(SEEDS):
            volume, centres, diameters = scan(kind, seed)
            how = {"exterior": "keep", "device": CPU, "detection_limit": True}
            result = hushpore.segment_pores(volume, **how | kind.get("settings", {}))
            tried += diameters.tolist()
            found += hits(result.pores, centres, diameters)
            totals = result.provenance["result"]
            limits.append(totals.get("detection_limit"))
            errors.append(totals.get("detection_size_error"))
        truth = limit_of(Tried(np.array(tried), np.array(found)))
        known = [each for each in limits if each is not None]
        if known and not isinstance(truth, str):
            figures[name] = {
                "a90 in voxels": [round(each, 2) for each in known],
                "truth": round(truth.a90, 2),
                "over truth": [round(each / truth.a90, 3) for each in known],
                "scans without": len(limits) - len(known),
                "size error": [round(each, 3) for each in errors if each is not None],
                "size error, truth": round(truth.size_error, 3),
                "known balls": len(tried),
            }
        yield {"by kind": figures, "scans": SEEDS * len(KINDS)}
