"""Pores of 1300^3 voxels from OME-Zarr to labelled OME-Zarr, on two workers of 3 GiB each.

Both are processes of one thread on this machine, which has two cores; dask kills a process that
exceeds 95 % of its memory. The truth is that of `benchmarks._tiles`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks._cluster import Run, foam
from benchmarks._tiles import compare
from hushpore.cluster.connection import connect
from hushpore.io.zarr.reader import open_zarr

SIZE, MEMORY = 1300, 3 * 2**30 / 1e9


def measure() -> dict[str, Any]:
    """Run it once; some minutes, and about 20 GB of disk."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = foam(Path(folder), SIZE)
        with connect("local:2", MEMORY) as client:
            run = Run(path, client)
        stages = run.runner.timing().stages
        scan, labels = (open_zarr(each)[0].data for each in (path, run.folder / "labels.ome.zarr"))
        tables = (pd.read_csv(run.folder / f"{name}.csv") for name in ("pores", "throats"))
        return {
            "voxels": SIZE**3,
            "memory of a worker, GiB": 3,
            **run.figures(),
            **compare(scan, labels, *tables),
            "summary": run.written.summary,
            "worker seconds by stage": {
                name: round(stage.seconds, 1) for name, stage in stages.items()
            },
        }
