"""Pores by one worker of one thread, in one piece and in four blocks, against one thread alone.

All read the same OME-Zarr and write labels and tables in the same formats, in turn.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks._cluster import Run, foam, warmed
from hushpore.device.backend import Backend
from hushpore.io import read
from hushpore.io.zarr import write_zarr
from hushpore.jobs.functions import segment_pores
from hushpore.pores import parallel

SIZES = (256, 512, 768)
BLOCKS = 4
WARMED = 128  # edge of what workers do before, so that libraries are loaded


def measure() -> dict[str, Any]:
    """Run all; some three minutes."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = foam(folder, WARMED)
        with warmed(1, 6, small) as client:
            for size in SIZES:
                path = foam(folder, size)
                rounds = [
                    _in_turn(path, client, -(-size // BLOCKS)) for _ in range(1 + (size < 512))
                ]
                without, plain, whole, blocks = (min(each) for each in zip(*rounds, strict=True))
                found[f"{size}^3"] = {
                    "plain, s": round(plain, 2),
                    "of it without writing, s": round(without, 2),
                    "in one piece, s": round(whole, 2),
                    "in blocks, s": round(blocks, 2),
                    "factor in one piece": round(whole / plain, 3),
                    "factor": round(blocks / plain, 3),
                }
    return found


def _in_turn(path: Path, client: Any, thickness: int) -> tuple[float, float, float, float]:
    """Return the seconds of a run on one thread, without and with writing, and of two by a worker.

    `thickness`: of the blocks of the second.
    """
    alone = _plain(path, path.parent)
    whole, blocks = (Run(path, client, thickness=each).wall for each in (None, thickness))
    return *alone, whole, blocks


def _plain(path: Path, folder: Path) -> tuple[float, float]:
    """Return the seconds of a run on one thread, without and with writing."""
    kept, parallel.cpu_threads = parallel.cpu_threads, lambda: 1
    try:
        start = time.perf_counter()
        result = segment_pores(read(path), device=Backend())
        found_in = time.perf_counter() - start
        write_zarr(folder / "plain.ome.zarr", result.labels_volume, overwrite=True)
        for table in ("pores", "throats"):
            getattr(result, table).to_csv(folder / f"{table}.csv", index=False)
        return found_in, time.perf_counter() - start
    finally:
        parallel.cpu_threads = kept
