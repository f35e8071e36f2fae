"""What blocks cost: one worker of one thread against the plain run on one thread.

Both read OME-Zarr, and write labels as OME-Zarr and tables as CSV; in one process, and alternately.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks._cluster import Run, foam, warmed
from hushpore.device.backend import Backend
from hushpore.io import read
from hushpore.io.ome_zarr import write_zarr
from hushpore.jobs import segment_pores
from hushpore.pores import parallel

SIZES = (256, 512, 768)


def measure(sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    """Run each once, the smallest twice; about two minutes."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        paths = {size: foam(Path(name), size) for size in sizes}
        small = paths[sizes[0]]
        _plain(small)
        with warmed(1, 10, small) as client:
            for size, path in paths.items():
                turns = [(*_plain(path), Run(path, client).wall) for _ in range(1 + (size < 512))]
                computed, plain, blocks = (min(each) for each in zip(*turns, strict=True))
                found[f"{size}^3"] = {
                    "plain, s": round(plain, 2),
                    "of it without writing, s": round(computed, 2),
                    "in blocks, s": round(blocks, 2),
                    "factor": round(blocks / plain, 2),
                }
    return found


def _plain(path: Path) -> tuple[float, float]:
    """Return the seconds of a plain run on one thread until it has its result, and with writing."""
    kept, parallel.cpu_threads = parallel.cpu_threads, lambda: 1
    try:
        start = time.perf_counter()
        result = segment_pores(read(path), device=Backend())
        computed = time.perf_counter() - start
        write_zarr(path.with_name("plain.ome.zarr"), result.labels_volume, overwrite=True)
        for table in ("pores", "throats"):
            getattr(result, table).to_csv(path.with_name(f"{table}.csv"), index=False)
        return computed, time.perf_counter() - start
    finally:
        parallel.cpu_threads = kept
