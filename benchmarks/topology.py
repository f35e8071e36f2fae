"""Euler numbers and tortuosities against shapes of which they are known, and what a voxel costs.

Euler numbers of a ball, a hollow ball, a torus and one of two holes, and of a random void beside
``skimage.measure.euler_number`` for both ways of connecting voxels. Tortuosities of straight and
inclined channels, and of a diagonal of single voxels. Costs are processor time, the smallest of the
rounds, which go in turn.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage
from skimage.measure import euler_number

from hushpore.base.events import result_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.slabs import Slabs, Stack
from hushpore.pores.topology.euler import find_euler_number
from hushpore.pores.topology.tortuosity import find_tortuosity

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = 48  # edge of the cubes that they lie in
VOID = 128  # edge of the random void
CHANNEL = 60  # slices along a channel
ROUNDS = 3


def shapes(size: int) -> dict[str, tuple[np.ndarray, int]]:
    """Return shapes in a cube, and their Euler numbers."""
    z, y, x = np.indices((size,) * 3) / size - 0.5

    def ring(at: float) -> np.ndarray:
        void: np.ndarray = np.hypot(np.hypot(y, x - at) - 0.2, z) < 0.08
        return void

    radius = np.sqrt(z**2 + y**2 + x**2)
    return {
        "ball": (radius < 0.4, 1),
        "hollow ball": ((radius < 0.4) & (radius > 0.2), 2),
        "torus": (ring(0), 0),
        "torus of two holes": (ring(-0.2) | ring(0.2), -1),
    }


def random_void(size: int) -> np.ndarray:
    """Return a void of half the volume, its parts some 8 voxels wide."""
    noise = np.random.default_rng(0).normal(size=(size,) * 3).astype(np.float32)
    void: np.ndarray = ndimage.gaussian_filter(noise, 2, mode="wrap") > 0
    return void


def channels(slices: int) -> dict[str, tuple[np.ndarray, float]]:
    """Return channels along z, and how much longer than straight the shortest ways through are."""
    found: dict[str, tuple[np.ndarray, float]] = {}
    tube = np.zeros((slices, 20, 20), bool)
    tube[:, 5:9, 5:9] = True
    found["straight"] = tube, 1.0
    for slope in (0.25, 0.5, 1.0):
        z, y, _ = np.indices((slices, slices + 30, 3))
        # to each voxel of the last slice a straight way, which bends round no wall
        slack = np.linspace(0, 10, 1001) / (slices - 1)
        expected = np.hypot(1, np.maximum(slope - slack, 0)).mean()
        found[f"inclined by {slope:g}"] = np.abs(y - 10 - slope * z) < 5, float(expected)
    diagonal = np.zeros((slices, slices, 3), bool)
    diagonal[np.arange(slices), np.arange(slices), 1] = True
    found["diagonal of single voxels"] = diagonal, float(np.sqrt(2))
    return found


def _euler(void: np.ndarray, faces_only: bool) -> int:
    with KernelThreads() as threads:
        slabs = Slabs(len(void), 16)
        return result_of(
            find_euler_number(Stack.of(void), slabs, threads, faces_only=faces_only)
        )  # fmt: skip


def _tortuosity(void: np.ndarray) -> dict[str, float | None]:
    found: dict[str, float | None] = result_of(
        find_tortuosity(void, (1, 1, 1), 3, faces_only=False)
    )
    return found


def _costs(contestants: dict[str, Callable[[], Any]], voxels: int) -> dict[str, float]:
    """Return the processor time of each, in nanoseconds a voxel."""
    used: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, run in contestants.items():
            before = time.process_time()
            run()
            used[name].append(time.process_time() - before)
    return {name: round(1e9 * min(each) / voxels, 1) for name, each in used.items()}


def measure() -> dict[str, Any]:
    """Run all of it; a minute."""
    figures: dict[str, Any] = {"euler numbers": {}, "tortuosity of channels": {}}
    for name, (void, expected) in shapes(SHAPES).items():
        figures["euler numbers"][name] = {
            "expected": expected,
            **{key: _euler(void, faces) for key, faces in (("faces", True), ("corners", False))},
        }
    void = random_void(VOID)
    for key, faces_only in (("faces", True), ("corners", False)):
        expected = int(euler_number(void, connectivity=1 if faces_only else 3))
        figures.setdefault("random void", {})[key] = {
            "scikit-image": expected,
            "hushpore": _euler(void, faces_only),
        }
    for name, (channel, longer) in channels(CHANNEL).items():
        measured = _tortuosity(channel)["tortuosity_z"]
        assert measured is not None, f"there is a way through: {name}"
        figures["tortuosity of channels"][name] = {
            "expected": round(longer, 4),
            "found": round(measured, 4),
            "error_percent": round(100 * (measured / longer - 1), 2),
        }
    contestants: dict[str, Callable[[], Any]] = {
        "euler number, hushpore": lambda: _euler(void, False),
        "euler number, scikit-image": lambda: euler_number(void, connectivity=3),
        "tortuosity along three axes": lambda: _tortuosity(void),
    }
    figures[f"processor ns a voxel, random void {VOID}"] = _costs(contestants, void.size)
    return figures
