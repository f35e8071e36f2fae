"""Pores in blocks on a cluster: the same labels, time and traffic, and what reaches the root.

Workers are processes of one thread on this machine, which has two cores. Traffic is what tasks read
and write of their folder, of the scan and of the labels before they are packed; nothing
else passes between workers. The root of merging is the last node of the tree of blocks: there the
halves of the volume meet.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._cluster import BEREA, Run, foam, is_same, warmed
from hushpore import Volume
from hushpore.device.backend import Backend
from hushpore.io import read
from hushpore.io.zarr import write_zarr
from hushpore.jobs import segment_pores

SIZES = (128, 256, 512, 768)
THICKNESS = 32  # slices of a block, the same for all sizes, for the law of the root


def measure() -> dict[str, Any]:
    """Run all; some minutes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = {size: foam(folder, size) for size in SIZES}
        small = paths[SIZES[0]]
        expected = {size: segment_pores(read(paths[size]), device=Backend()) for size in SIZES[:3]}
        grown: dict[str, Any] = {}
        same: dict[str, Any] = {}
        with warmed(2, 4, small) as client:
            for size, path in paths.items():
                run = Run(path, client, thickness=THICKNESS)
                grown[f"{size}^3"] = run.figures()
                if size in expected:
                    same[f"{size}^3, 2 workers, {THICKNESS} slices"] = is_same(
                        run.folder, expected[size]
                    )
        largest = SIZES[:3][-1]
        for count in (1, 4):
            with warmed(count, 2, small) as client:
                run = Run(paths[largest], client, thickness=50)
                same[f"{largest}^3, {count} workers, 50 slices"] = is_same(
                    run.folder, expected[largest]
                )
        same |= _berea(folder)
        return {
            "the same as on one machine, bit for bit": same,
            "2 workers, blocks of 32 slices": grown,
            "law of the root": _law(SIZES, grown),
        }


def _berea(folder: Path) -> dict[str, bool]:
    """Whether blocks change nothing of a sandstone of 200^3 voxels."""
    with np.load(BEREA) as file:
        shape = tuple(file["shape"])
        void = np.unpackbits(file["void"])[: np.prod(shape)].reshape(shape).astype(np.bool_)
    path = write_zarr(folder / "berea.ome.zarr", Volume(void, name="Berea"))
    expected = segment_pores(read(path), device=Backend())
    same = {}
    for count in (2, 4):
        with warmed(count, 2, path) as client:
            for thickness in (100, 37, 8):
                run = Run(path, client, thickness=thickness)
                name = f"Berea 200^3, {count} workers, {thickness} slices"
                same[name] = is_same(run.folder, expected)
    return same


def _law(sizes: tuple[int, ...], grown: dict[str, Any]) -> dict[str, float]:
    """Fit a power of the edge to what reaches the root, to all pores, and to the voxels."""
    edge = np.log(sizes)
    law = {}
    for name in ("bytes that reach the root of merging", "pores"):
        values = [grown[f"{size}^3"][name] for size in sizes]
        slope, base = np.polyfit(edge, np.log(np.maximum(values, 1)), 1)
        law[f"{name}: exponent of the edge"] = round(float(slope), 2)
        law[f"{name}: factor"] = float(f"{np.exp(base):.3g}")
    return law
