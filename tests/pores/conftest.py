from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from hushpore.device.backend import Backend
from hushpore.device.timing import HostClock, StageTimer
from hushpore.pores.gpu import engines
from hushpore.pores.gpu.engine import SOURCES, Gpu, definitions
from hushpore.pores.parallel import KernelThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def threads() -> Iterator[KernelThreads]:
    with KernelThreads(2) as pool:
        yield pool


@pytest.fixture(scope="session")
def balls() -> Callable[..., np.ndarray]:
    """Make a void of balls: all voxels nearer to a centre than its radius (or as near)."""

    def make(
        shape: tuple[int, ...], centres: object, radii: object, *, strict: bool = False
    ) -> np.ndarray:
        grid = np.indices(shape)
        centres = np.atleast_2d(np.asarray(centres, float))
        void = np.zeros(shape, bool)
        for centre, radius in zip(centres, np.broadcast_to(radii, len(centres)), strict=True):
            square = sum((g - c) ** 2 for g, c in zip(grid, centre, strict=True))
            void |= square < radius**2 if strict else square <= radius**2
        return void

    return make


@pytest.fixture(scope="session")
def berea(data_folder: Path) -> np.ndarray:
    with np.load(data_folder / "rocks" / "berea_200.npz") as stored:
        shape = tuple(stored["shape"])
        return np.unpackbits(stored["void"], count=int(np.prod(shape))).reshape(shape).astype(bool)


@pytest.fixture(scope="session")
def rand_index() -> Callable[[np.ndarray, np.ndarray], float]:
    """Adjusted Rand index of two labellings (Hubert and Arabie, 1985)."""

    def index(first: np.ndarray, second: np.ndarray) -> float:
        first, second = first.ravel().astype(np.int64), second.ravel().astype(np.int64)
        _, both = np.unique(first * (second.max() + 1) + second, return_counts=True)
        rows, columns = np.bincount(first), np.bincount(second)

        def pairs(counts: np.ndarray) -> float:
            counts = counts.astype(float)
            return float((counts * (counts - 1) / 2).sum())

        expected = pairs(rows) * pairs(columns) / pairs(np.array([first.size]))
        most = (pairs(rows) + pairs(columns)) / 2
        return (pairs(both) - expected) / (most - expected)

    return index


class Emulated(Gpu):
    """A GPU whose kernels run on the CPU, in an order of one's choice.

    Its array library refuses what would make the host wait: values are read by `Gpu.get` alone.
    """

    def run_threads(self, order: str) -> None:
        for kernels in self.sources():
            kernels.order = order

    def watch(self, patch: pytest.MonkeyPatch, see: Callable[..., None]) -> None:
        """Tell of every launch before it: its name, how many blocks, its arguments."""
        for kernels in self.sources():

            def noted(name: str, *rest: Any, launch: Any = kernels.launch_blocks) -> None:
                see(name, *rest)
                launch(name, *rest)

            patch.setattr(kernels, "launch_blocks", noted)


@pytest.fixture(scope="session")
def emulated(cuda_shim: Any, strict: Any) -> Emulated:
    kernels = cuda_shim.build_together(SOURCES, definitions())
    return Emulated(strict.StrictCupy(), lambda source, _: kernels[source])


@dataclass(frozen=True)
class EmulatedBackend(Backend):
    """What a job takes for a GPU."""

    device: str = "cuda:0"
    name: str = "a GPU"
    free: int = 10**12

    def timer(self) -> StageTimer:
        return StageTimer(choices=self.choices)

    def clock(self) -> HostClock:
        return HostClock()

    def free_memory(self) -> int:
        return self.free

    def release(self) -> None:
        pass


@pytest.fixture(scope="session")
def emulated_backend() -> type[EmulatedBackend]:
    return EmulatedBackend


@pytest.fixture
def gpu_backend(emulated: Emulated, monkeypatch: pytest.MonkeyPatch) -> type[EmulatedBackend]:
    """Makes backends of which jobs get the emulated GPU, with its kernels compiled."""
    emulated.run_threads("parallel")
    monkeypatch.setattr(Gpu, "of", lambda backend: emulated)
    monkeypatch.setattr(engines, "_WARMED_UP", {"cuda:0"})
    return EmulatedBackend


@pytest.fixture(scope="session")
def assert_same_pores() -> Callable[[Any, Any], None]:
    """Compare two segmentations: labels, tables and totals, bit for bit."""

    def compare(found: Any, expected: Any) -> None:
        np.testing.assert_array_equal(found.labels, expected.labels)
        pd.testing.assert_frame_equal(found.pores, expected.pores)
        pd.testing.assert_frame_equal(found.throats, expected.throats)
        assert found.provenance["result"] == expected.provenance["result"]

    return compare
