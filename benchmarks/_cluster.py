"""What benchmarks of work on a cluster share: volumes as OME-Zarr, runs, what is the same."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._tiles import write_volume
from hushpore import Volume
from hushpore.base.events import result_of
from hushpore.cluster import setup
from hushpore.cluster.connection import connect
from hushpore.cluster.segmenting import segment_pores
from hushpore.cluster.setup import StageRunner
from hushpore.io.zarr import write_zarr
from hushpore.io.zarr_reader import open_zarr
from hushpore.pores.settings import PoreSettings

if TYPE_CHECKING:
    from hushpore.pores.result import Pores

BEREA = Path(__file__).parents[1] / "tests" / "data" / "rocks" / "berea_200.npz"


def foam(folder: Path, size: int) -> Path:
    """Write a noisy scan of a foam, uint8, as OME-Zarr."""
    raw = folder / f"{size}.raw"
    write_volume(raw, size)
    values = np.memmap(raw, np.uint8, "r", shape=(size,) * 3)
    path = write_zarr(folder / f"{size}.ome.zarr", Volume(values, name=f"foam {size}"))
    raw.unlink()
    return path


def is_same(folder: Path, expected: Pores) -> bool:
    """Whether labels and tables are those of a run on one machine, bit for bit."""
    labels = open_zarr(folder / "labels.ome.zarr")[0].data
    step = 64
    alike = all(
        np.array_equal(labels[z : z + step], expected.labels[z : z + step])
        for z in range(0, labels.shape[0], step)
    )
    for name in ("pores", "throats"):
        table = getattr(expected, name).to_csv(index=False, lineterminator="\n")
        alike &= (folder / f"{name}.csv").read_text(encoding="utf-8") == table
    return bool(alike)


class Run:
    """One segmentation on a cluster that is there already, and what its tasks have reported."""

    def __init__(self, path: Path, client: Any, **options: Any) -> None:
        runners: list[StageRunner] = []

        class Watched(StageRunner):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                runners.append(self)

        self.folder = path.with_name("result")
        setup.StageRunner, kept = Watched, setup.StageRunner  # type: ignore[misc]
        try:
            start = time.perf_counter()
            job = segment_pores(
                path, self.folder, PoreSettings(), where=client, overwrite=True, **options
            )
            self.written = result_of(job)
            self.wall = time.perf_counter() - start
        finally:
            setup.StageRunner = kept  # type: ignore[misc]
        # none where one task does all
        for runner in runners:
            self.runner, self.slabs = runner, len(runner.plan.slabs)
            self.tasks = [each for tasks in runner.finished.values() for each in tasks]

    def figures(self) -> dict[str, Any]:
        """Time, traffic and memory."""
        voxels = int(np.prod(self.runner.plan.shape))
        roots = [each.report for each in self.tasks if "received_bytes" in each.report]
        sizes = [int(each["received_bytes"]) for each in roots]
        result = self.written.provenance["result"]
        return {
            "blocks": self.slabs,
            "wall, s": round(self.wall, 2),
            "worker seconds": round(sum(each.seconds for each in self.tasks), 2),
            "pores": result["count"],
            "throats": result["throats"],
            "bytes read and written a voxel": round(
                sum(each.moved for each in self.tasks) / voxels, 2
            ),
            "bytes that reach the root of merging": sizes[-1] if sizes else 0,
            "most bytes that reach a node": max(sizes, default=0),
            "most memory of a worker, MB": round(max(each.memory for each in self.tasks) / 1e6),
        }


def warmed(count: int, memory: float, path: Path) -> Any:
    """Return a context of workers that have done a job before, so that libraries are loaded."""
    from contextlib import contextmanager

    @contextmanager
    def start() -> Any:
        with connect(f"local:{count}", memory) as client:
            Run(path, client)
            yield client

    return start()
