"""Pores of 1024^3 voxels from OME-Zarr to labelled OME-Zarr, on two workers of 3 GiB each.

Both are processes of one thread on this machine, which has two cores; dask kills a process that
exceeds 95 % of its memory.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks._cluster import Run, foam
from hushpore.cluster.connection import connect

SIZE, MEMORY = 1024, 3 * 2**30 / 1e9


def measure() -> dict[str, Any]:
    """Run it once; some minutes, and about 9 GB of disk."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = foam(Path(folder), SIZE)
        with connect("local:2", MEMORY) as client:
            run = Run(path, client)
        stages = run.runner.timing().stages
        return {
            "voxels": SIZE**3,
            "memory of a worker, GiB": 3,
            **run.figures(),
            "summary": run.written.summary,
            "worker seconds by stage": {
                name: round(stage.seconds, 1) for name, stage in stages.items()
            },
        }
