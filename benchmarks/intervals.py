"""Whether intervals hold the truth: 50 scans with noise, of materials of which it is known.

A material is balls at random in a cube that goes on beyond its faces, that lie apart or open into
each other; a scan is a part of it, blurred, with noise of neighbouring voxels that are correlated.
The truth is the material's: the mean porosity and number of pores, and the median of their
diameters, of many such parts of many such cubes, counted in the drawing itself. Each scan is
segmented without intervals, too, for what they cost: processor time, as a multiple.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

import hushpore

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

#: Voxels along an edge of a cube of material, and of a scan.
CUBE, SCAN = 120, 80

#: Radii of balls, in voxels.
RADII = (4.0, 8.0)

#: Balls in a cube, and how near their centres may be, as a share of the sum of their radii: those
#: that lie apart, and those that open into each other.
MATERIALS = {"apart": (360, 1.25), "open": (420, 0.85)}

#: Standard deviation of the noise, as a share of the contrast.
NOISE = (0.05, 0.1, 0.15)

#: Scans in all, and parts of each cube of which the truth is made.
SCANS, PARTS = 50, 4

FIGURES = ("porosity", "count", "median_diameter")

#: Pores of fewer voxels are left out, of the truth as well.
_SPECK = 8


def measure() -> Iterator[dict[str, object]]:
    """How often the truth lies inside, and how wide intervals are."""
    drawn = [(name, seed) for seed in range(SCANS // len(MATERIALS)) for name in MATERIALS]
    truth = {name: _truth(name) for name in MATERIALS}
    rows: list[dict[str, Any]] = []
    multiples: list[float] = []
    for number, (name, seed) in enumerate(drawn):
        noise = NOISE[number % len(NOISE)]
        scan = scan_of(material(name, seed), noise, seed)
        _, alone = _segmented(scan, intervals=False)
        found, used = _segmented(scan, intervals=True)
        multiples.append(used / alone)
        rows.append({"material": name, "noise": noise, **_row(found, truth[name])})
        cost = {"processor time as a multiple": round(float(np.median(multiples)), 2)}
        yield {"truth": truth, "level": 0.9, "cost": cost, **summed_up(rows)}


def _segmented(scan: Any, *, intervals: bool) -> tuple[dict[str, Any], float]:
    """Return what is known of the pores of a scan, and the seconds of processor time it took."""
    before = time.process_time()
    found = hushpore.segment_pores(
        scan, intervals=intervals, minimum_voxels=_SPECK, outside="keep", device="cpu"
    )
    return found.provenance["result"], time.process_time() - before


def summed_up(rows: list[dict[str, Any]]) -> dict[str, object]:
    """Return how often the truth lies inside, of all and of each kind, and the width."""
    groups = {"all": rows}
    for kind in ("material", "noise"):
        for value in dict.fromkeys(row[kind] for row in rows):
            groups[f"{kind} {value}"] = [row for row in rows if row[kind] == value]
    return {
        name: {
            "scans": len(own),
            **{
                figure: {
                    "inside": sum(row[figure]["inside"] for row in own),
                    **{
                        key: round(float(np.median([row[figure][key] for row in own])), 4)
                        for key in ("error", "width")
                    },
                }
                for figure in FIGURES
            },
        }
        for name, own in groups.items()
    }


def _row(found: dict[str, Any], truth: dict[str, float]) -> dict[str, Any]:
    """Return of each figure whether the truth is inside; error and width as shares of the truth."""
    return {
        name: {
            "inside": bool(found[f"{name}_low"] <= truth[name] <= found[f"{name}_high"]),
            "error": abs(found[name] / truth[name] - 1),
            "width": (found[f"{name}_high"] - found[f"{name}_low"]) / truth[name],
        }
        for name in FIGURES
    }


def material(name: str, seed: int) -> npt.NDArray[np.int32]:
    """Return which ball each voxel of a cube is of, 0 in the solid."""
    count, near = MATERIALS[name]
    rng = np.random.default_rng([seed, count])
    # the largest first, else there is no room
    radii = np.linspace(RADII[1], RADII[0], count)
    centres = np.zeros((0, 3))
    depth = np.full((CUBE,) * 3, 0.0, np.float32)
    owner = np.zeros(depth.shape, np.int32)
    for number, radius in enumerate(radii, start=1):
        while True:
            one = rng.uniform(0, CUBE, 3)
            away = np.abs(centres - one)
            away = np.linalg.norm(np.minimum(away, CUBE - away), axis=1)
            if (away >= near * (radius + radii[: len(centres)])).all():
                break
        centres = np.vstack([centres, one])
        sides = [np.arange(int(c - radius) - 1, int(c + radius) + 3) for c in one]
        grid = np.stack(np.meshgrid(*sides, indexing="ij"), -1) - one
        here = (radius - np.linalg.norm(grid, axis=-1)).astype(np.float32)
        at = np.ix_(*(side % CUBE for side in sides))
        deeper = here > depth[at]
        depth[at] = np.where(deeper, here, depth[at])
        owner[at] = np.where(deeper, number, owner[at])
    return owner


def scan_of(owner: npt.NDArray[np.int32], noise: float, seed: int) -> npt.NDArray[np.float32]:
    """Return a scan of a part of a material: dark pores of 0 in a solid of 1."""
    rng = np.random.default_rng(seed)
    grey = ndimage.gaussian_filter((owner == 0).astype(np.float32), 0.7, mode="wrap")
    grain = ndimage.gaussian_filter(rng.normal(size=grey.shape), 0.6)
    part = (slice(SCAN),) * 3
    return np.asarray(grey + noise * grain / grain.std(), np.float32)[part]


def _truth(name: str) -> dict[str, float]:
    """Return what parts of the material have on average."""
    rng = np.random.default_rng(1)
    shares, counts, sizes = [], [], []
    for seed in range(SCANS // len(MATERIALS)):
        whole = material(name, seed)
        for _ in range(PARTS):
            moved = np.roll(whole, rng.integers(0, CUBE, 3), axis=(0, 1, 2))[(slice(SCAN),) * 3]
            voxels = np.bincount(moved.ravel())[1:]
            kept = voxels[voxels >= _SPECK]
            shares.append(np.count_nonzero(moved) / moved.size)
            counts.append(kept.size)
            sizes.append(kept)
    diameter = np.cbrt(6 * np.median(np.concatenate(sizes)) / np.pi)
    return {
        "porosity": round(float(np.mean(shares)), 5),
        "count": round(float(np.mean(counts)), 2),
        "median_diameter": round(float(diameter), 4),
    }
