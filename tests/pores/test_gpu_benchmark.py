"""The benchmark of pores on a GPU runs to its end on an emulated one."""

from __future__ import annotations

from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hushpore.device.transfers import Transfers
from hushpore.pores.gpu.engine import SOURCES, Gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.device.backend import Backend

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(emulated: Any, gpu_backend: type[Backend], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    module = import_module("benchmarks.pores_gpu")

    class Watched(module.Watched):  # type: ignore[misc, name-defined]
        timer, clock = gpu_backend.timer, gpu_backend.clock

        @cached_property
        def transfers(self) -> Transfers:
            return Transfers("cpu", None, self.choices)

        def free_memory(self) -> int:
            return self.free or 10**9

        def release(self) -> None:
            self.held.append(0)

    kernels = dict(zip(SOURCES, emulated.sources(), strict=True))
    monkeypatch.setattr(
        Gpu, "of", lambda backend: Gpu(emulated.xp, lambda source, _: kernels[source], backend)
    )
    monkeypatch.setattr(module, "Watched", Watched)
    monkeypatch.setattr(module, "choose_backend", lambda device: gpu_backend())
    monkeypatch.setattr(module, "_copy_rate", lambda: 1e10)
    monkeypatch.setattr(module, "_TILE", 32)
    monkeypatch.setattr(module, "REPEATS", {32: (2, 1), 64: (1, 1)})
    return module


def test_labels_are_the_same_and_what_crosses_is_counted(benchmark: Any) -> None:
    for size in (32, 64):
        found = benchmark._whole(size)
        assert found["labels are the same"]
        assert found["tables are the same"]
        assert found["uploads of a value a voxel"] == found["downloads of a value a voxel"] == 1
        assert found["bytes up a voxel"] == 2
        assert found["decided, void"] == "on, uint16 values cross as they are"


def test_every_part_runs_to_its_end(benchmark: Any) -> None:
    def smaller(part: Callable[..., Any]) -> Callable[..., Any]:
        if not isinstance(part, partial):
            return part
        return partial(part.func, 32, *part.args[1:], **part.keywords)

    parts = {name: smaller(part) for name, part in benchmark.PARTS.items() if "1024" not in name}
    found = import_module("benchmarks._parts").in_one(parts)
    assert set(found) == {*parts, "samples"}
    assert found["256^3, in slabs"]["labels are the same"]
    assert found["512^3, plain uint16"]["labels are the same"]
    kernels = found["512^3, kernel by kernel"]
    assert {"union_parts, 1 times", "steepest_ascent, 1 times"} <= set(kernels)
    assert kernels["steepest_ascent, 1 times"]["GB/s"] > 0
