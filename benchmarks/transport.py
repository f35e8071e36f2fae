"""Diffusion in voxels: how near it comes to analytic values, and its time by size.

Cubic arrays of spheres are compared with Rayleigh's formula, blobs of 20 % void with TauFactor
(`pip install taufactor`) where it is installed, in the same process.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

from hushpore.base.events import result_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.transport.diffusion import solve_diffusion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hushpore.pores.transport.result import Solution

SIZES = (100, 200, 300, 400)
SHARE = 0.2  # of void in the blobs
BLUR = 4.0  # voxels
CELL = 64  # voxels of the half edge of a cubic cell, with an eighth of a sphere
EDGE = 200  # voxels, of a block with parallel tubes
PEER = 200  # largest edge that TauFactor is given


def blobs(edge: int) -> Any:
    """Return a random void of connected blobs."""
    field = np.random.default_rng(0).normal(size=(edge,) * 3).astype(np.float32)
    field = ndimage.gaussian_filter(field, BLUR, mode="wrap")
    return (field < np.quantile(field, SHARE)).astype(np.uint8)


def solve(void: Any, axis: int = 0, threads: int | None = None) -> Solution:
    """Solve diffusion along an axis."""
    with KernelThreads(threads) as pool:
        return result_of(solve_diffusion(void, (0.0, 1.0), (1.0,) * 3, axis, pool))


def analytic() -> dict[str, Any]:
    """Return effective diffusivities beside their formulas."""
    found = {}
    place = (np.arange(CELL) + 0.5) / CELL
    square = place[:, None, None] ** 2 + place[:, None] ** 2 + place**2
    for radius in (0.5, 0.7, 0.9):
        void = (square > radius**2).astype(np.uint8)
        share = 1 - void.mean()
        expected = 1 - 3 * share / (2 + share - 1.1775 * share ** (10 / 3))
        found[f"cubic array of spheres, {share:.2f} solid"] = solve(void).value / expected
    y, x = np.mgrid[:EDGE, :EDGE]
    tubes = np.zeros((EDGE, EDGE), bool)
    for column in range(20, EDGE, 40):
        tubes |= ((x % 40) - 20) ** 2 + (y - column) ** 2 <= 12**2
    void = np.ascontiguousarray(np.broadcast_to(tubes, (EDGE // 2, EDGE, EDGE)), np.uint8)
    found["parallel tubes"] = solve(void).value / void.mean()
    return found


def timed(edge: int) -> dict[str, Any]:
    """Return time and iterations of diffusion along three axes."""
    void = blobs(edge)
    start, used = time.perf_counter(), time.process_time()
    # without the maps of the flux
    found = [solve(void, axis)._replace(flux=np.zeros(0, np.float32)) for axis in range(3)]
    row: dict[str, Any] = {
        "seconds": time.perf_counter() - start,
        "processor seconds": time.process_time() - used,
        "iterations": [each.iterations for each in found],
        "tortuosity factor": [float(void.mean()) / each.value for each in found],
        "void voxels": int(void.sum()),
    }
    if edge <= PEER and find_spec("taufactor"):
        import taufactor

        start, used = time.perf_counter(), time.process_time()
        solver = taufactor.Solver(void, device="cpu")
        solver.solve(verbose=False)
        row["TauFactor, one axis"] = {
            "seconds": time.perf_counter() - start,
            "processor seconds": time.process_time() - used,
            "tortuosity factor": float(np.ravel(solver.tau)[0]),
        }
    return row


def measure() -> Iterator[dict[str, Any]]:
    """Run all of it; some five minutes."""
    solve(blobs(SIZES[0] // 2))  # compiles
    found: dict[str, Any] = {"blobs, three axes": {}}
    for edge in SIZES:
        found["blobs, three axes"][f"{edge}^3"] = timed(edge)
        yield found
    found["over analytic"] = analytic()
    yield found
