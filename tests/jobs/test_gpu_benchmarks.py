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
    assert len(found["training, compiled"]["samples"]["s"]["compiled"]) == 1


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
    monkeypatch.setattr(jobs, "BLOCK", (64, 32, 32))
    monkeypatch.setattr(jobs, "TIMES", (1, 1, 1))
    monkeypatch.setattr(jobs, "REPEATS", 1)
    little = {"steps": 1, "batch_size": 1, "patch_size": 16, "denoise_memory": 0.001}
    little |= {"method": "n2v2", "context": 0}
    monkeypatch.setattr(jobs, "DENOISE", {**little, "precision": "float32"})
    parts = {name: work for name, work in jobs.PARTS.items() if not name.startswith("pores")}
    monkeypatch.setattr(jobs, "PARTS", parts)
    found = run(jobs, tmp_path / "found.json")
    assert found["denoise, graphs"]["results differ by"] == 0
    assert found["denoise, as it comes"]["decided"].count("read_ahead: on") == 1


class Day:
    """Seconds that pass where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize("takes", [3.0, 90.0, 10_000.0])
def test_all_of_it_stays_within_its_limit_and_is_written_after_each_part(
    takes: float, benchmark: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, main = benchmark("gpu"), import_module("benchmarks.__main__")
    day, written, given = Day(), [], []
    monkeypatch.setattr(gpu, "time", day)
    monkeypatch.setattr(main, "choose_backend", lambda: gpu.choose_backend("cuda"))
    monkeypatch.setenv("HUSHPORE_CONFIG", str(tmp_path / "config"))

    def run_part(part: Any, seconds: float, out: Path) -> dict[str, Any]:
        written.append(len(list(out.glob("*.json"))))
        given.append(seconds)
        day.now += min(takes, seconds)
        return {name: {"s": seconds} for name in part.names or ["all"]}

    monkeypatch.setattr(gpu, "_run", run_part)
    main.main(["gpu", "--out", str(tmp_path / "out"), "--limit", "520"])
    assert day.now <= 520
    assert written == [0] + [1] * (len(written) - 1)
    # what others leave is for those that need more
    assert all(one >= part.seconds for one, part in zip(given, gpu.PARTS, strict=True))
    (file,) = (tmp_path / "out").glob("*.json")
    found = json.loads(file.read_text("utf-8"))["figures"]
    assert set(found) == {part.module for part in gpu.PARTS}


def test_its_parts_are_there_and_add_up_to_the_limit(benchmark: Callable[[str], Any]) -> None:
    gpu = benchmark("gpu")
    assert sum(part.seconds for part in gpu.PARTS) <= gpu.LIMIT < 570
    for part in gpu.PARTS:
        if part.module != "tests":
            assert set(part.names) <= set(import_module(f"benchmarks.{part.module}").PARTS)


def test_a_dry_run_of_all_but_pores_on_a_pretended_gpu_is_kept(
    benchmark: Callable[[str], Any], pretended_gpu: Callable[..., Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    gpu, transfers = benchmark("gpu"), benchmark("gpu_transfers")
    monkeypatch.setattr(transfers, "CudaBus", lambda device: pretended_gpu().bus())
    monkeypatch.setattr(transfers, "PARTS", {"1 MB": lambda: transfers._copies(1)})
    monkeypatch.setattr(gpu, "PARTS", [gpu.Part("gpu_transfers", (), 3), gpu.Part("lost", (), 3)])
    monkeypatch.setenv("HUSHPORE_CONFIG", str(tmp_path / "config"))

    def apart(module: str, seconds: float, names: Any = ()) -> dict[str, Any]:
        assert 0 < seconds <= 10
        target = tmp_path / "figures.json"
        parts = {"gpu_transfers": transfers.PARTS, "lost": {"a": lambda: 1 / 0}}[module]
        import_module("benchmarks._parts").run(parts, target)
        found: dict[str, Any] = json.loads(target.read_text("utf-8"))
        return found

    monkeypatch.setattr(gpu._parts, "apart", apart)
    *_, found = gpu.measure(10.0, tmp_path)
    assert found["gpu_transfers"]["1 MB"]["what comes back is the same"]
    assert found["lost"]["a"]["failed"].startswith("ZeroDivisionError")
