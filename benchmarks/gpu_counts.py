"""How many pointers the kernels of a GPU follow in a large volume, in every order of threads.

Counted on the CPU, for which g++ compiles the same kernels, as the tests do at 64^3.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage as ndi

from hushpore.pores.gpu.engine import SOURCES, Gpu, definitions
from hushpore.pores.gpu.engines import MOVED
from hushpore.pores.gpu.void import GpuParts
from hushpore.pores.void.components import OPEN

#: Side of the volume.
SIZE = 256

SHIM = Path(__file__).parents[1] / "tests" / "cuda_shim" / "shim.py"


class OnCpu(Gpu):
    """A GPU whose arrays are NumPy's."""

    def put(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Leave an array where it is."""
        return values

    def get(
        self, values: npt.NDArray[Any], out: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any]:
        """Return a copy."""
        return np.array(values)


def measure() -> dict[str, object]:
    """Pointers a voxel that are followed, and bytes a voxel that are moved."""
    shim = _shim()
    built = shim.build_together(SOURCES, definitions())
    gpu = OnCpu(np, lambda source, _: built[source])
    noise = np.random.default_rng(0).normal(size=(SIZE,) * 3).astype(np.float32)
    void = (ndi.gaussian_filter(noise, 3, mode="wrap") > 0).view(np.uint8)
    orders = {order: counted(gpu, void, order) for order in shim.ORDERS}
    return {
        f"pointers a voxel, {SIZE}^3": orders,
        "bytes a voxel": {**MOVED, "all": sum(MOVED.values())},
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


def _shim() -> Any:
    spec = importlib.util.spec_from_file_location(SHIM.stem, SHIM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
