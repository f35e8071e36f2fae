"""All parts of the benchmark of a GPU run to their end on a pretended one, in one go."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy
import torch

from hushpore.denoising.model import Architecture, build_network
from hushpore.device.backend import Backend
from hushpore.device.switches import Switches
from hushpore.device.transfers import Transfers
from hushpore.pores.gpu import engines
from hushpore.pores.gpu.engine import SOURCES, Gpu
from hushpore.sample_data import foam_phantom

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.usefixtures("small_network")

ROOT = Path(__file__).parents[2]
LIMIT = 120.0

#: What makes each part tiny.
TINY: dict[str, dict[str, Any]] = {
    "gpu_steps": {
        "ROUNDS": 1,
        "STEPS": 1,
        "WARM_UP": 1,
        "DECIDED": 1,
        "WAITS": 1,
        "PATCHES": 2,
        "SIZE": 16,
        "TOGETHER": 2,
        "BATCHES": (2, 4),
        "TILES": (16,),
        "SLABS": (3, 64, 64),
    },
    "gpu_jobs": {
        "BLOCK": (64, 32, 32),
        "TIMES": (1, 1, 1),
        "REPEATS": 1,
        "DENOISE": {
            "steps": 1,
            "batch_size": 1,
            "patch_size": 16,
            "denoise_memory": 0.001,
            "method": "n2v2",
            "context": 0,
            "precision": "float32",
        },
    },
    "ndimage": {"ON_GPU": 16, "REPEATS": 1},
    "gpu_search": {"TRAINED": {"steps": 1, "patch_size": 16}},
    "pores_gpu": {"_TILE": 32, "REPEATS": {32: (2, 1)}, "FROM_DISK": 300_000, "HOST": 0.001},
}


@pytest.fixture
def _pretended(
    emulated: Any,
    gpu_backend: type[Backend],
    pretended_gpu: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Have all parts meet a pretended GPU, and be tiny."""
    monkeypatch.syspath_prepend(str(ROOT))
    for name in ("synchronize", "set_sync_debug_mode"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(engines, "_WARMED_UP", {"cpu", "cuda:0"})

    def choose(device: str = "cuda", switches: Switches | None = None) -> Any:
        return pretended_gpu(**vars(switches or Switches()))

    modules = {
        name: import_module(f"benchmarks.{name}")
        for name in ("__main__", "gpu", "gpu_transfers", *TINY)
    }
    for name, module in modules.items():
        monkeypatch.setattr(module, "choose_backend", choose)
        for constant, value in TINY.get(name, {}).items():
            monkeypatch.setattr(module, constant, value)
    # CuPy's functions are those of NumPy and SciPy here
    synchronized = SimpleNamespace(Device=lambda: SimpleNamespace(synchronize=lambda: None))
    library = SimpleNamespace(
        asarray=np.asarray, asnumpy=np.asarray, where=np.where, cuda=synchronized
    )
    monkeypatch.setattr(Backend, "cupy", lambda self: library)
    monkeypatch.setitem(sys.modules, "cupyx", SimpleNamespace(scipy=scipy))
    monkeypatch.setitem(sys.modules, "cupyx.scipy", scipy)
    steps, transfers, pores = (modules[f"{n}"] for n in ("gpu_steps", "gpu_transfers", "pores_gpu"))
    network = build_network(Architecture(2, features=4), torch.Generator().manual_seed(0))
    monkeypatch.setattr(steps, "_network", lambda device: network)
    monkeypatch.setattr(transfers, "CudaBus", lambda device: pretended_gpu().bus())
    phantom = foam_phantom((16, 64, 64))
    search = modules["gpu_search"]
    monkeypatch.setattr(search, "_phantom", lambda: phantom)
    monkeypatch.setattr(search, "PARTS", dict([*search.PARTS.items()][:2]))

    class Watched(pores.Watched):  # type: ignore[misc, name-defined]
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
        Gpu,
        "of",
        lambda backend: Gpu(emulated.xp, lambda source, _: kernels[source], backend.transfers),
    )
    monkeypatch.setattr(pores, "Watched", Watched)
    monkeypatch.setattr(pores, "choose_backend", lambda device: gpu_backend())
    monkeypatch.setattr(pores, "_copy_rate", lambda: 1e10)

    def smaller(part: Callable[..., Any], size: int) -> Callable[..., Any]:
        if isinstance(part, partial) and isinstance((part.args or [None])[0], int):
            return partial(part.func, size, *part.args[1:], **part.keywords)
        return part

    for module, size in ((pores, 32), (transfers, 1)):
        parts = {name: smaller(part, size) for name, part in module.PARTS.items()}
        monkeypatch.setattr(module, "PARTS", parts)
    monkeypatch.setattr(subprocess, "run", in_this_process)


started = subprocess.run


def in_this_process(command: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run what a part's process would do, and pretend that the tests have run."""
    words = [*map(str, command)]
    if words[:3] == [sys.executable, "-m", "benchmarks._parts"]:
        assert 1 <= more["timeout"] <= LIMIT
        module, target, *names = words[3:]
        parts = import_module(f"benchmarks.{module}").PARTS
        import_module("benchmarks._parts").run(
            {name: parts[name] for name in names or parts}, Path(target)
        )
        return subprocess.CompletedProcess(command, 0)
    if "pytest" in words:
        assert all(Path(path).is_file() for path in words if path.endswith(".py"))
        more["stdout"].write("tests/a.py::test_a PASSED\n== 1 passed in 1.00s ==\n")
        return subprocess.CompletedProcess(command, 0)
    return started(command, **more)


@pytest.mark.long
@pytest.mark.usefixtures("_pretended")
def test_a_dry_run_of_all_parts_stays_within_its_limit(tmp_path: Path) -> None:
    begun = time.monotonic()
    import_module("benchmarks.__main__").main(
        ["gpu", "--out", str(tmp_path), "--limit", str(LIMIT)]
    )
    assert time.monotonic() - begun < LIMIT
    (file,) = tmp_path.glob("*.json")
    found = json.loads(file.read_text(encoding="utf-8"))["figures"]
    failed = {
        name: part
        for parts in found.values()
        for name, part in parts.items()
        if "failed" in name or (isinstance(part, dict) and "failed" in part)
    }
    assert failed == {}
    gpu = import_module("benchmarks.gpu")
    for part in gpu.PARTS:
        assert set(part.names) <= set(found[part.module])

    pores = found["pores_gpu"]
    for name in ("512^3", "512^3, plain uint16", "256^3, in slabs", "1024^3"):
        assert pores[name]["labels are the same"]
    assert "slabs" in pores["1024^3, from disk"]["said"]
    whole = pores["512^3"]
    assert whole["tables are the same"]
    assert whole["uploads of a value a voxel"] == 1
    assert whole["bytes up a voxel"] == 2
    assert whole["decided, void on GPU"] == "on, uint16 values cross as they are"
    kernels = pores["512^3, kernel by kernel"]
    assert {"union_parts, 1 times", "steepest_ascent, 1 times"} <= set(kernels)
    assert kernels["steepest_ascent, 1 times"]["GB/s"] > 0

    training = found["gpu_steps"]["training"]["graphs"]
    assert training["host waits"] == "none in 1 steps"
    assert found["gpu_steps"]["training, by the profiler"]["waits a step"] == 0
    assert found["gpu_steps"]["training, timed and not"]["timed over not timed"] > 0
    layers = found["gpu_steps"]["training, first layer"]
    # in the same precision, the same to rounding
    assert all(each["weights differ by"] < 1e-3 for each in layers.values())
    assert found["gpu_steps"]["training, by the batch"]["4 patches"]["patches a second"] > 0
    assert found["gpu_jobs"]["denoise, graphs"]["results differ by"] == 0
    assert found["gpu_transfers"]["16 MB"]["what comes back is the same"]
    assert found["tests"]["passed"] == 1
    assert all(each["steps"] >= 1 for each in found["gpu_search"].values())
