"""The benchmarks of a GPU run to their end on a pretended one."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from hushpore.device.switches import Switches
from hushpore.n2v2.model import Architecture, build_network

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.device.backend import Backend

pytestmark = pytest.mark.usefixtures("small_network")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(
    used: Any, pretended_gpu: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Any]:
    """Import one for the pretended GPU."""
    monkeypatch.syspath_prepend(str(ROOT))
    for name in ("synchronize", "set_sync_debug_mode"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch, "compile", lambda network, **_: network)

    def choose(device: str, switches: Switches | None = None) -> Backend:
        assert device == "cuda"
        return pretended_gpu(**vars(switches or Switches()))

    def load(name: str) -> Any:
        module = import_module(f"benchmarks.{name}")
        monkeypatch.setattr(module, "choose_backend", choose)
        return module

    return load


def run(part: Any, target: Path) -> dict[str, Any]:
    """Run the functions of a part; returns what was written, all of which has to be there."""
    import_module("benchmarks._parts").run(part.PARTS, target)
    found: dict[str, Any] = json.loads(target.read_text("utf-8"))
    assert set(found) == set(part.PARTS)
    assert [each["failed"] for each in found.values() if "failed" in each] == []
    return found


def test_training_tiles_and_slabs(
    benchmark: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = benchmark("gpu_steps")
    network = build_network(Architecture(2, features=4), torch.Generator().manual_seed(0))
    monkeypatch.setattr(steps, "_network", lambda device: network)
    small = {"ROUNDS": 1, "STEPS": 1, "WARM_UP": 1, "DECIDED": 1, "WAITS": 1}
    small |= {"PATCHES": 2, "SIZE": 16, "TILES": (16,), "SLABS": (3, 64, 64)}
    for name, value in small.items():
        monkeypatch.setattr(steps, name, value)
    found = run(steps, tmp_path / "found.json")
    assert found["training"]["graphs"]["host waits"] == "none in 1 steps"
    assert len(found["training"]["samples"]["s"]["compiled"]) == 1


def test_copies(
    benchmark: Callable[[str], Any], pretended_gpu: Callable[..., Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    transfers = benchmark("gpu_transfers")
    monkeypatch.setattr(transfers, "CudaBus", lambda device: pretended_gpu().bus())
    monkeypatch.setattr(transfers, "MEGABYTES", (1,))
    monkeypatch.setattr(transfers, "PARTS", {"1 MB": lambda: transfers._copies(1)})
    found = run(transfers, tmp_path / "found.json")
    assert found["1 MB"]["what comes back is the same"]


def test_whole_jobs(
    benchmark: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = benchmark("gpu_jobs")
    monkeypatch.setattr(jobs, "BLOCK", (40, 48, 48))
    monkeypatch.setattr(jobs, "TIMES", (1, 1, 1))
    monkeypatch.setattr(jobs, "REPEATS", 1)
    little = {"steps": 1, "batch_size": 1, "patch_size": 16, "denoise_memory": 0.002}
    monkeypatch.setattr(jobs, "DENOISE", {**little, "precision": "float32"})
    parts = {name: work for name, work in jobs.PARTS.items() if not name.startswith("pores")}
    monkeypatch.setattr(jobs, "PARTS", parts)
    found = run(jobs, tmp_path / "found.json")
    assert found["denoise, graphs"]["results differ by"] == 0
    assert found["denoise, as it comes"]["decided"].count("read_ahead: on") == 1
