"""Stokes flow in voxels: against formulas and published permeabilities, and what it costs.

Ducts and tubes have formulas, and simple cubic arrays of spheres published drags (Zick and
Homsy 1982). With a folder of images (``--images``), permeabilities are compared with those that
Mosser, Dubrule and Blunt published for 27 pieces of a bead pack and of Berea sandstone
(``stokes.npz``). Time and memory are of artificial rocks with 20 % of void.
"""

from __future__ import annotations

import math
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

from hushpore.base.events import result_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.transport.stokes import solve_flow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hushpore.pores.transport.result import Solution

DUCTS = ((1, 1), (1, 3), (2, 2), (2, 5), (3, 3), (4, 4), (4, 24), (8, 8), (10, 20))  # voxels
TUBES = (5, 10, 15)  # radius, voxels
#: Volume of the spheres, and their drag over that of Stokes.
SPHERES = ((0.027, 2.008), (0.125, 4.292), (0.343, 15.4), (0.45, 28.1))
CELL, CELLS = 32, 3  # edge of a cell of an array in voxels, and cells along the flow
EDGES = (100, 128, 200, 256, 320)  # of artificial rocks
POROSITY, SMOOTHING = 0.2, 3.0


def flow_through(void: np.ndarray, axis: int = 0, *, periodic: bool = False) -> Solution:
    """Solve flow in voxels of edge 1."""
    with KernelThreads() as threads:
        return result_of(solve_flow(void, (1.0,) * 3, axis, threads, periodic=periodic))


def of_duct(a: int, b: int) -> float:
    """Return the permeability of a rectangular duct, a <= b, by its series."""
    odd = np.arange(1, 400, 2)
    series = np.sum(np.tanh(odd * math.pi * b / (2 * a)) / odd**5)
    return float(a**2 / 12 * (1 - 192 * a / (math.pi**5 * b) * series))


def against_formulas() -> dict[str, float]:
    """Return permeabilities over those of formulas."""
    found = {}
    for a, b in DUCTS:
        ratio = flow_through(np.ones((6, a, b), np.bool_)).value / of_duct(a, b)
        found[f"duct of {a} x {b}"] = ratio
    for radius in TUBES:
        across = np.arange(2 * radius + 2) - (radius + 0.5)
        disc = across[:, None] ** 2 + across**2 < radius**2
        flow = flow_through(np.repeat(disc[None], 6, axis=0))
        found[f"tube of radius {radius}"] = flow.value / (math.pi * radius**4 / 8 / disc.size)
    for volume, drag in SPHERES:
        radius = CELL * (3 * volume / (4 * math.pi)) ** (1 / 3)
        across = (np.arange(CELL) + 0.5 - CELL / 2) ** 2
        cell = across[:, None, None] + across[:, None] + across > radius**2
        flow = flow_through(np.concatenate([cell] * CELLS), periodic=True)
        expected = CELL**3 / (6 * math.pi * radius * drag)
        found[f"cubic array with {volume:.1%} of spheres"] = flow.value / expected
    return {name: round(ratio, 3) for name, ratio in found.items()}


def against_published(images: Path) -> list[dict[str, Any]]:
    """Return permeabilities over those published, of all pieces along all axes."""
    with np.load(images / "stokes.npz") as stored:
        shape, rocks, published = stored["shape"], stored["rock"], stored["k"]
        voids = np.unpackbits(stored["void"], count=int(np.prod(shape))).reshape(shape)
    ratios = np.empty(published.shape)
    for piece, axis in np.ndindex(ratios.shape):
        found = flow_through(voids[piece].astype(bool), axis).value
        ratios[piece, axis] = found / published[piece, axis]
    kinds = {"all": np.ones(len(rocks), bool)}
    kinds |= {str(rock): rocks == rock for rock in np.unique(rocks)}
    return [
        {
            "rock": name,
            "median": round(float(np.median(ratios[own])), 3),
            "least and most": [round(float(end(ratios[own])), 3) for end in (np.min, np.max)],
            "within 0.85 and 1.15, %": round(100 * float(np.mean(abs(ratios[own] - 1) < 0.15)), 1),
        }
        for name, own in kinds.items()
    ]


def cost(edge: int) -> dict[str, float]:
    """Return time and memory of an artificial rock."""
    noise = np.random.default_rng(0).standard_normal((edge,) * 3, np.float32)
    smooth = ndimage.gaussian_filter(noise, SMOOTHING, mode="wrap")
    void = smooth < np.quantile(smooth[::2, ::2, ::2], POROSITY)
    del noise, smooth
    tracemalloc.start()
    start, began = time.process_time(), time.perf_counter()
    flow = flow_through(void)
    used, took = time.process_time() - start, time.perf_counter() - began
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    voxels = int(np.count_nonzero(flow.flux))
    return {
        "void voxels": voxels,
        "iterations": flow.iterations,
        "cpu s": round(used, 1),
        "s": round(took, 1),
        "bytes a void voxel": round(most / voxels),
    }


def measure(images: Path | None = None) -> Iterator[dict[str, Any]]:
    """Run all of it; about ten minutes, and six more for the published pieces."""
    figures: dict[str, Any] = {
        "over formulas": against_formulas(),
        "artificial rocks": {},
        "over published": [],
    }
    for edge in EDGES:
        figures["artificial rocks"][f"{edge}^3"] = cost(edge)
        yield figures
    if images is not None:
        figures["over published"] = against_published(images)
        yield figures
