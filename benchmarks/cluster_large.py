"""Pores of 1300^3 voxels from OME-Zarr to labelled OME-Zarr, on two workers of 4 GiB each.

Both are processes of one thread on this machine, which has two cores; dask kills a process that
exceeds 95 % of its memory. The truth is that of `benchmarks._tiles`. What lies beside the result
while the work goes on is looked at five times a second.
"""

from __future__ import annotations

import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from benchmarks._cluster import Run, foam
from benchmarks._tiles import compare
from hushpore.cluster.connection import connect
from hushpore.io.zarr.reader import open_zarr

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE, MEMORY = 1300, 4 * 2**30 / 1e9
_LOOK = 0.2  # seconds


def measure() -> dict[str, Any]:
    """Run it once; some ten minutes, and about 20 GB of disk."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = foam(Path(folder), SIZE)
        with connect("local:2", MEMORY) as client, _watched(Path(folder)) as most:
            run = Run(path, client)
        stages = run.runner.timing().stages
        scan, labels = (open_zarr(each)[0].data for each in (path, run.folder / "labels.ome.zarr"))
        tables = (pd.read_csv(run.folder / f"{name}.csv") for name in ("pores", "throats"))
        return {
            "voxels": SIZE**3,
            "memory of a worker, GiB": round(MEMORY * 1e9 / 2**30, 1),
            **run.figures(),
            "temporary files, bytes a voxel at most": round(most["scratch"] / SIZE**3, 2),
            "and the labels, bytes a voxel": round(most["content"] / SIZE**3, 2),
            **compare(scan, labels, *tables),
            "summary": run.written.summary,
            "worker seconds by stage": {
                name: round(stage.seconds, 1) for name, stage in stages.items()
            },
        }


@contextmanager
def _watched(folder: Path) -> Iterator[dict[str, int]]:
    """Yield the most bytes of each folder in which a result is made, known at the end."""
    most, over = {"scratch": 0, "content": 0}, threading.Event()

    def look() -> None:
        while not over.wait(_LOOK):
            for name, known in most.items():
                found = folder.glob(f".result.*.unfinished/{name}/**/*")
                most[name] = max(known, sum(_bytes_of(each) for each in found))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def _bytes_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        # gone meanwhile
        return 0
