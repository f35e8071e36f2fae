"""What a GPU does in a job: launches, waits, bytes, atomics, and pointers that are followed.

Counted on the CPU, for which g++ compiles the same kernels, as the tests do at 64^3.
"""

from __future__ import annotations

import importlib.util
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from scipy import ndimage as ndi

from hushpore import Volume
from hushpore.device.backend import Backend
from hushpore.device.timing import HostClock, StageTimer
from hushpore.jobs import run
from hushpore.pores.gpu import engines
from hushpore.pores.gpu.engine import SOURCES, Gpu, definitions
from hushpore.pores.gpu.engines import MOVED
from hushpore.pores.gpu.void import GpuParts
from hushpore.pores.void.components import OPEN

#: Side of the volume in which pointers are counted, and of that of the jobs.
SIZE, JOB = 256, 96

#: Where the tests have a GPU on the CPU.
SHIM = Path(__file__).parents[1] / "tests" / "cuda_shim"


class OnCpu(Gpu):
    """A GPU that the CPU stands in for; keeps the sizes of all copies."""

    crossed: dict[str, list[int]]

    def put(self, values: npt.NDArray[Any]) -> Any:
        """Copy an array there."""
        self.crossed["up"].append(values.nbytes)
        return super().put(values)

    def get(self, values: Any, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Copy an array back."""
        self.crossed["down"].append(values.nbytes)
        return super().get(values, out)

    def fetch(self, values: Any, *rest: Any) -> Any:
        """Copy an array back beside other work."""
        self.crossed["beside"].append(values.nbytes)
        return super().fetch(values, *rest)


@dataclass(frozen=True)
class OnCpuBackend(Backend):
    """The backend of this GPU, with as much memory as wanted."""

    device: str = "cuda:0"
    name: str = "an emulated GPU"

    def timer(self) -> StageTimer:
        """Return a timer of the host."""
        return StageTimer(choices=self.choices)

    def clock(self) -> HostClock:
        """Return the clock of the host."""
        return HostClock()

    def free_memory(self) -> int:
        """Return a terabyte."""
        return 10**12

    def release(self) -> None:
        """Do nothing."""


@dataclass
class Launched:
    """What the launches of one kernel came to."""

    launches: int = 0
    nbytes: int = 0  # of its arrays of a byte a voxel and more, each once
    atomics: int = 0  # on memory of the GPU


def measure() -> dict[str, object]:
    """Pointers a voxel that are followed, bytes a voxel that are moved, and the counts of jobs."""
    shim = _loaded("shim")
    built = shim.build_together(SOURCES, definitions())
    gpu = OnCpu(_loaded("strict").StrictCupy(), lambda source, _: built[source])
    gpu.crossed = {"up": [], "down": [], "beside": []}
    noise = np.random.default_rng(0).normal(size=(SIZE,) * 3).astype(np.float32)
    void = (ndi.gaussian_filter(noise, 3, mode="wrap") > 0).view(np.uint8)
    orders = {order: counted(gpu, gpu.put(void), order) for order in shim.ORDERS}
    return {
        f"pointers a voxel, {SIZE}^3": orders,
        "bytes a voxel": {**MOVED, "all": sum(MOVED.values())},
        **{
            f"job, {name}, {JOB}^3": job_counts(gpu, volume)
            for name, volume in (("structures", structures()), ("noise", structures(0.7)))
        },
    }


def structures(blur: float = 4.0) -> Volume:
    """A scan half of which is void, of structures of a width, as a scanner stores it."""
    noise = np.random.default_rng(0).standard_normal((JOB,) * 3, np.float32)
    grey = ndi.gaussian_filter(noise, blur, mode="wrap")
    return Volume((grey / grey.std() * 400 + 2000).clip(0, 4095).astype(np.uint16))


def job_counts(gpu: OnCpu, volume: Volume) -> dict[str, Any]:
    """Return what a whole job does on the GPU, whose threads run in warps."""
    voxels = volume.array().size
    found: dict[str, Launched] = {}
    for way in gpu.crossed.values():
        way.clear()
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Gpu, "of", return_value=gpu))
        stack.enter_context(mock.patch.object(engines, "_WARMED_UP", {"cuda:0"}))
        for kernels in gpu.sources():
            kernels.order = "warps"  # type: ignore[attr-defined]
            launch = kernels.launch_blocks

            def noted(name: str, *rest: Any, kernels: Any = kernels, launch: Any = launch) -> None:
                before = kernels.atomics
                launch(name, *rest)
                each = found.setdefault(name, Launched())
                each.launches += 1
                each.atomics += kernels.atomics - before
                sizes = [getattr(argument, "nbytes", 0) for argument in rest]
                each.nbytes += sum(size for size in sizes if size >= voxels)

            stack.enter_context(mock.patch.object(kernels, "launch_blocks", noted))
        result = run("pores", volume, {"threshold": "otsu"}, OnCpuBackend())
    return {
        "basins": result.graph.count,
        "launches": sum(each.launches for each in found.values()),
        "waits": len(gpu.crossed["down"]),
        "bytes up a voxel": round(sum(gpu.crossed["up"]) / voxels, 3),
        "bytes down a voxel": round(sum(gpu.crossed["down"]) / voxels, 3),
        "bytes down beside other work": round(sum(gpu.crossed["beside"]) / voxels, 3),
        "bytes of kernels a voxel": round(sum(each.nbytes for each in found.values()) / voxels, 2),
        "atomics a voxel": round(sum(each.atomics for each in found.values()) / voxels, 4),
        "by kernel": {
            name: {
                "launches": each.launches,
                "bytes a voxel": round(each.nbytes / voxels, 3),
                "atomics a voxel": round(each.atomics / voxels, 5),
            }
            for name, each in sorted(found.items())
        },
    }


def counted(gpu: Gpu, void: Any, order: str) -> dict[str, float]:
    """Return the pointers a voxel that are followed in one order of threads.

    `void`: (z, y, x), uint8: 1 is void.
    """
    for kernels in gpu.sources():
        kernels.order = order  # type: ignore[attr-defined]
    at = [_followed(gpu)]
    parts = GpuParts(gpu, void)
    parts.mark_faces(along_z=(True, True), along_y=True)
    parts.classify(void, OPEN, OPEN)
    at.append(_followed(gpu))
    distance = gpu.squared_distance(void, (1.0, 1.0, 1.0), (False, False, False))
    gpu.watershed(distance)
    at.append(_followed(gpu))
    of_parts, of_basins = (np.diff(at) / void.size).round(2)
    return {"parts, with voxels that are looked at": of_parts, "basins": of_basins}


def _followed(gpu: Gpu) -> int:
    # one count for the kernels of all files
    return int(gpu.void.hops)  # type: ignore[attr-defined]


def _loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, SHIM / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
