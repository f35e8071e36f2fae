"""Pores on a GPU against the CPU: the same labels, and how long upload, compute and download take.

Volumes are the integers of a scanner, on a line. The floor of the computation is what its kernels
move at the least (`hushpore.pores.gpu.engines.MOVED`), at the rate at which the GPU copies its own
memory. What crosses is counted where it crosses.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
from scipy import ndimage as ndi

from benchmarks._parts import Figures, in_one
from hushpore import Volume
from hushpore.base.rescaled import Scaled
from hushpore.device.backend import Backend, choose_backend
from hushpore.device.memory import scratch_folder
from hushpore.device.switches import Switches
from hushpore.jobs import run
from hushpore.pores.gpu.engine import Gpu
from hushpore.pores.gpu.engines import BYTES_A_VOXEL, MOVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hushpore.device.transfers import Transfers

#: Sides of the volumes, and how often each is segmented on the GPU and on the CPU.
REPEATS = {256: (5, 2), 512: (5, 2), 1024: (3, 1)}

#: Memory that the host's passes may count on, GB: so much that nothing is worked on in slabs.
BUDGET = 60.0

#: Bytes of the GPU, and GB of the host, for a volume from disk.
FROM_DISK, HOST = 8 * 10**9, 6.0

COMPUTING = tuple(MOVED)
_TABLES = ("pores", "throats")
_TILE = 256  # voxels after which the void is the same again


def measure() -> Figures:
    """Run all of it in turn."""
    return in_one(PARTS)


@dataclass(frozen=True)
class Watched(Backend):
    """A GPU of which is known what crossed, and how much memory was in use at most."""

    free: int = 0  # bytes that are said to be; 0: what there is
    crossed: dict[str, list[int]] = field(default_factory=lambda: {"upload": [], "download": []})
    held: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, free: int = 0, **switches: str) -> Watched:
        """Return the GPU that there is."""
        gpu = choose_backend("cuda")
        watched = cls(gpu.device, gpu.name, gpu.reason, Switches(**switches), free=free)
        for way in watched.crossed:
            _count(watched.transfers, way, watched.crossed[way])
        return watched

    def free_memory(self) -> int:
        """Return what a job may take."""
        return self.free or super().free_memory()

    def release(self) -> None:
        """See what both libraries hold, before they give it back."""
        import cupy
        import torch

        most = torch.cuda.max_memory_reserved(self.device)
        self.held.append(int(most + cupy.get_default_memory_pool().total_bytes()))
        super().release()


def _count(transfers: Transfers, way: str, sizes: list[int]) -> None:
    cross: Callable[..., Any] = getattr(transfers, way)

    def counted(values: Any, *rest: Any) -> Any:
        sizes.append(int(values.nbytes))
        return cross(values, *rest)

    setattr(transfers, way, counted)


def _whole(size: int, *, on_line: bool = True) -> Iterator[Figures]:
    """A volume that the GPU holds: yields the GPU's own figures, then how the CPU compares."""
    volume = _scan(size, on_line=on_line)
    voxels = size**3
    few = slice(0, 32)
    part = volume.data.part(few) if on_line else volume.data[few]
    run("pores", volume.replace(part), None, Watched.of())
    repeats, here_repeats = REPEATS[size]
    jobs = [_job(volume, Watched.of()) for _ in range(repeats)]
    found, backend = jobs[-1].found, jobs[-1].backend
    large = {
        way: [each for each in sizes if each >= voxels] for way, sizes in backend.crossed.items()
    }
    names = found.timings
    stages = {name: [each.found.timings.get(name, 0.0) for each in jobs] for name in names}
    medians = {name: statistics.median(each) for name, each in stages.items()}
    computing = sum(medians.get(name, 0.0) for name in COMPUTING)
    floor = voxels * sum(MOVED.values()) / _copy_rate()
    seconds = {"gpu": [each.seconds for each in jobs]}
    figures: Figures = {
        "ran on": found.provenance["device"],
        "said": "; ".join(found.notes),
        "pores": len(found.pores),
        "gpu, whole job, s": round(statistics.median(seconds["gpu"]), 4),
        **{f"gpu, {name}, s": round(medians.get(name, 0.0), 5) for name in ("upload", "download")},
        "gpu, computing, s": round(computing, 5),
        **{f"gpu, {name}, s": round(medians.get(name, 0.0), 5) for name in COMPUTING},
        "gpu, labels and tables, s": round(medians.get("labels", 0.0), 5),
        "floor of computing, s": round(floor, 5),
        "computing over its floor": round(computing / floor, 2),
        "uploads of a value a voxel": len(large["upload"]),
        "bytes up a voxel": round(sum(backend.crossed["upload"]) / voxels, 3),
        "bytes down a voxel": round(sum(backend.crossed["download"]) / voxels, 3),
        "peak device memory, bytes a voxel": round(max(backend.held) / voxels, 2),
        **{f"decided, {name}": line for name, line in backend.choices.lines().items()},
    }
    samples = {"whole jobs, s": seconds, "stages, s": stages}
    yield {**figures, "samples": samples}
    expected, *others = [_job(volume, Backend()) for _ in range(here_repeats)]
    seconds["cpu"] = [each.seconds for each in (expected, *others)]
    labels = np.array_equal(found.labels, expected.found.labels)
    tables = [getattr(found, each).equals(getattr(expected.found, each)) for each in _TABLES]
    yield {
        "labels are the same": bool(labels),
        "tables are the same": all(tables),
        "cpu, whole job, s": round(statistics.median(seconds["cpu"]), 4),
        **figures,
        "samples": samples,
    }


def _kernel_by_kernel(size: int) -> Figures:
    """How long each kernel takes, with an event before and after each, and at what rate it moves.

    What is moved is what its arrays of a value a voxel come to, each once.
    """
    volume, voxels = _scan(size), size**3
    _job(volume, Watched.of())
    backend = Watched.of()
    gpu = Gpu.of(backend)
    clock = backend.clock()
    marks: list[tuple[str, int, Any, Any]] = []
    with ExitStack() as stack:
        for kernels in {id(each): each for each in gpu.sources()}.values():
            # every launch goes through it
            launch = kernels.launch_blocks

            def timed(name: str, *rest: Any, launch: Any = launch) -> None:
                begin = clock.mark()
                launch(name, *rest)
                sizes = [int(getattr(each, "nbytes", 0)) for each in rest]
                nbytes = sum(each for each in sizes if each >= voxels)
                marks.append((name, nbytes, begin, clock.mark()))

            stack.enter_context(mock.patch.object(kernels, "launch_blocks", timed))
        _job(volume, backend)
    found: dict[str, list[float]] = {}
    for name, nbytes, begin, end in marks:
        taken = found.setdefault(name, [0.0, 0.0, 0.0])
        taken[0] += clock.seconds(begin, end)
        taken[1] += nbytes
        taken[2] += 1
    slowest = sorted(found.items(), key=lambda each: -each[1][0])
    return {
        "all kernels, ms": round(1e3 * sum(each[0] for each in found.values()), 3),
        **{
            f"{name}, {int(times)} times": {
                "ms": round(1e3 * seconds, 4),
                "MB": round(nbytes / 1e6, 1),
                "GB/s": round(nbytes / max(seconds, 1e-9) / 1e9, 3),
            }
            for name, (seconds, nbytes, times) in slowest
        },
    }


def _in_slabs(size: int) -> Figures:
    """A volume of which the GPU holds a quarter."""
    volume = _scan(size)
    expected = _job(volume, Backend()).found
    free = (size // 4 + 4) * size**2 * BYTES_A_VOXEL
    jobs = [_job(volume, Watched.of(free)) for _ in range(3)]
    best = min(jobs, key=lambda each: each.seconds)
    return {
        "labels are the same": bool(np.array_equal(best.found.labels, expected.labels)),
        "whole job, s": round(best.seconds, 4),
        **{f"{name}, s": round(value, 5) for name, value in best.found.timings.items()},
        "said": "; ".join(best.found.notes),
        "samples": {"whole jobs, s": [each.seconds for each in jobs]},
    }


def _from_disk(size: int) -> Figures:
    """A volume in a file that neither the GPU nor the host may hold, and how fast the disk is.

    2048^3 voxels take 112 GB of temporary files; with 1024^3 and the same memory on the GPU there
    are slabs as well.
    """
    voxels = size**3
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as folder:
        path = Path(folder) / "scan.npy"
        np.save(path, _scan(size, on_line=False).data)
        volume = Volume(np.load(path, mmap_mode="r"), name=f"{size}^3")
        start = time.perf_counter()
        read = sum(int(part.max()) >= 0 for part in volume.data)
        disk = time.perf_counter() - start
        backend = Watched.of(FROM_DISK)
        job = _job(volume, backend, HOST)
    stages = {name: round(value, 4) for name, value in job.found.timings.items()}
    return {
        "whole job, s": round(job.seconds, 2),
        "reading the file, s": round(disk, 2),
        "slices": read,
        "whole job over reading": round(job.seconds / disk, 2),
        "ns a voxel": round(job.seconds / voxels * 1e9, 2),
        "said": "; ".join(job.found.notes),
        "peak device memory, GB": round(max(backend.held) / 1e9, 2),
        **{f"{name}, s": value for name, value in stages.items()},
    }


@dataclass
class _Job:
    found: Any
    seconds: float
    backend: Any


def _job(volume: Volume, backend: Backend, budget: float = BUDGET) -> _Job:
    start = time.perf_counter()
    found = run("pores", volume, {"memory_budget": budget}, backend)
    return _Job(found, round(time.perf_counter() - start, 5), backend)


@cache
def _copy_rate() -> float:
    """Bytes a second that are read and written when an array of 1 GB is copied."""
    xp = choose_backend("cuda").cupy()
    source = xp.zeros(1 << 30, np.uint8)
    target = xp.empty_like(source)
    times = []
    for _ in range(7):
        xp.cuda.Device().synchronize()
        start = time.perf_counter()
        target[...] = source
        xp.cuda.Device().synchronize()
        times.append(time.perf_counter() - start)
    return 2 * int(source.nbytes) / min(times)


def _scan(size: int, *, on_line: bool = True) -> Volume:
    """A volume half of which is void, of structures of some ten voxels, as a scanner stores it.

    `on_line`: whether its integers are on a line, or the grey values themselves.
    """
    rng = np.random.default_rng(0)
    smooth = ndi.gaussian_filter(rng.standard_normal((_TILE,) * 3, np.float32), 4, mode="wrap")
    stored = np.clip(smooth / smooth.std() * 400 + 2000, 0, 4095).astype(np.uint16)
    whole = np.tile(stored, (size // _TILE,) * 3)
    return Volume(Scaled(whole, 1.0, -1024.0) if on_line else whole, name=f"{size}^3")


PARTS = {
    "copies of its own memory": lambda: {"GB/s": round(_copy_rate() / 1e9, 1)},
    **{f"{size}^3": partial(_whole, size) for size in (256, 512)},
    "512^3, kernel by kernel": partial(_kernel_by_kernel, 512),
    "512^3, plain uint16": partial(_whole, 512, on_line=False),
    "256^3, in slabs": partial(_in_slabs, 256),
    "1024^3": partial(_whole, 1024),
    "1024^3, from disk": partial(_from_disk, 1024),
}
