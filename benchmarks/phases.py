"""Phases against plates and nested balls of which all is known, multi-Otsu beside scikit-image's.

Shares, contact areas and thickness of plates along an axis and of a ball within a ball, as grey
values with noise that parts nowhere. What a whole run costs with and without thickness and regions,
in processor time, the smallest of the rounds, which go in turn. Thresholds of both multi-Otsu are
taken from one histogram, and agree where they part the values of its bins alike.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from skimage.filters import threshold_multiotsu

import hushpore
from hushpore import Volume
from hushpore.pores.phases.multi_otsu import find_thresholds
from hushpore.pores.void.threshold import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

BALLS = 96  # edge of the cube around nested balls
PLATES = 60  # edge of the cube of plates
SCAN = 128  # edge of what costs are measured of
BINS = 128
PHASES = (2, 3, 4, 5)  # of multi-Otsu
ROUNDS = 3


def _with_noise(grey: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(0).integers(-20, 21, grey.shape)
    return (grey + noise).astype(np.int16)


def balls(size: int) -> np.ndarray:
    """Return a ball of grey 40 within one of 120, in 200, their centre between voxels."""
    grid = np.indices((size,) * 3) - (size - 1) / 2 - 0.3
    radius = np.sqrt((grid**2).sum(axis=0))
    return _with_noise(
        np.select([radius <= _INNER * size, radius <= _OUTER * size], [40, 120], 200)
    )


def plates(size: int) -> np.ndarray:
    """Return plates of a fifth, three tenths, a third and what is left, along z."""
    edges = np.array([0, size // 5, size // 2, size * 5 // 6, size])
    grey = np.repeat([30, 100, 170, 240], np.diff(edges))
    return _with_noise(np.broadcast_to(grey[:, None, None], (size,) * 3))


#: Radii of the balls, as shares of the edge.
_INNER, _OUTER = 0.22, 0.4


def _of_balls(size: int) -> dict[str, Any]:
    found = _measure(balls(size), 3, thickness=True)
    inner, outer = _INNER * size, _OUTER * size
    volumes = [4 / 3 * math.pi * radius**3 for radius in (inner, outer)]
    phases = found.phases
    expected = {
        "inner ball, volume": (volumes[0], phases["volume"][0]),
        "shell, volume": (volumes[1] - volumes[0], phases["volume"][1]),
        "inner ball, contact area": (4 * math.pi * inner**2, found.contacts["area"][0]),
        "shell, outer contact area": (4 * math.pi * outer**2, found.contacts["area"][1]),
        "inner ball, thickness": (2 * inner, phases["thickness"][0]),
        "shell, thickness": (outer - inner, phases["thickness"][1]),
    }
    return {name: _beside(*pair) for name, pair in expected.items()}


def _of_plates(size: int) -> dict[str, Any]:
    found = _measure(plates(size), 4, thickness=True)
    edges = [0, size // 5, size // 2, size * 5 // 6, size]
    widths = np.diff(edges)
    phases, expected = found.phases, {}
    for number, width in enumerate(widths):
        expected[f"plate {number + 1}, share"] = width / size, phases["share"][number]
    for number, width in list(enumerate(widths))[1:-1]:
        # those at the faces go on beyond them
        expected[f"plate {number + 1}, thickness"] = width, phases["thickness"][number]
    for number, area in enumerate(found.contacts["area"], 1):
        expected[f"contact {number}, area"] = size**2, area
    return {name: _beside(*pair) for name, pair in expected.items()}


def _beside(expected: float, found: float) -> dict[str, float]:
    error = 100 * (float(found) / float(expected) - 1)
    return {
        "expected": round(float(expected), 4),
        "found": round(float(found), 4),
        "error_percent": round(error, 2),
    }


def _measure(image: np.ndarray, phases: int, **settings: Any) -> Any:
    return hushpore.measure_phases(Volume(image), phases=phases, outside="keep", **settings)


def _cheapest(contestants: dict[str, Callable[[], Any]]) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the processor time of each, in seconds, and what it made."""
    used: dict[str, list[float]] = {name: [] for name in contestants}
    made: dict[str, Any] = {}
    for _ in range(ROUNDS):
        for name, run in contestants.items():
            before = time.process_time()
            made[name] = run()
            used[name].append(time.process_time() - before)
    return {name: min(each) for name, each in used.items()}, made


def _multi_otsu(bins: int, phases: int) -> dict[str, Any]:
    rng = np.random.default_rng(phases)
    means = np.linspace(40, 200, phases)
    values = np.concatenate([rng.normal(mean, 15, rng.integers(20000, 90000)) for mean in means])
    counts, edges = np.histogram(values, bins)
    centers = (edges[1:] + edges[:-1]) / 2
    spent, made = _cheapest({
        "hushpore": lambda: find_thresholds(Histogram(counts, centers), phases),
        "scikit-image": lambda: threshold_multiotsu(hist=(counts, centers), classes=phases),
    })  # fmt: skip
    full = centers[counts > 0]
    parted = [np.searchsorted(made[name], full) for name in ("hushpore", "scikit-image")]
    return {
        "parted_alike": bool(np.array_equal(*parted)),
        **{f"{name}_ms": round(1e3 * seconds, 3) for name, seconds in spent.items()},
    }


def measure() -> dict[str, Any]:
    """Run all of it; a minute."""
    figures: dict[str, Any] = {
        f"nested balls, {BALLS}": _of_balls(BALLS),
        f"plates, {PLATES}": _of_plates(PLATES),
        f"multi-Otsu, {BINS} bins": {f"{n} phases": _multi_otsu(BINS, n) for n in PHASES},
    }
    scan = plates(SCAN)
    spent, _ = _cheapest({
        "shares and contacts": lambda: _measure(scan, 4),
        "with regions": lambda: _measure(scan, 4, regions=True),
        "with thickness": lambda: _measure(scan, 4, thickness=True),
    })  # fmt: skip
    figures[f"processor ns a voxel, four phases, {SCAN}"] = {
        name: round(1e9 * seconds / scan.size, 1) for name, seconds in spent.items()
    }
    return figures
