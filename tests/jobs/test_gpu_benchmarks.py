"""The benchmark of a GPU keeps to its limit; that it runs is tested with the pores."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.device.backend import Backend

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(
    pretended_gpu: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Any]:
    """Import one for the pretended GPU."""
    monkeypatch.syspath_prepend(str(ROOT))

    def load(name: str) -> Any:
        module = import_module(f"benchmarks.{name}")
        monkeypatch.setattr(module, "choose_backend", lambda device: pretended_gpu())
        return module

    return load


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


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("cudaStreamSynchronize", "waits"), ("cudaMemcpy", "waits"),
        ("cudaMemcpyAsync", "copies"), ("cudaLaunchKernel", "launches"),
        ("cudaGraphLaunch", "launches"), ("cudaEventRecord", ""), ("aten::copy_", ""),
    ],
)  # fmt: skip
def test_what_the_driver_is_asked_for_is_told_by_its_name(
    call: str, kind: str, benchmark: Callable[[str], Any]
) -> None:
    assert benchmark("gpu_steps")._kind_of(call) == kind
