"""Every optimisation is reached from a job, does what its switch says, and changes no result."""

from __future__ import annotations

import dataclasses
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import hushpore
from hushpore import Volume
from hushpore.device.backend import Backend
from hushpore.device.clocks import HostClock
from hushpore.device.prefetch import ReadAhead
from hushpore.device.switches import Switches
from hushpore.device.timing import StageTimer

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hushpore.device.graphs import Work

# those of the pores alone are reached in tests/pores/test_gpu_labels.py
OF_PORES = {"void", "labels"}
NAMES = [each.name for each in dataclasses.fields(Switches) if each.name not in OF_PORES]
STEPS = 12


@dataclass
class Used:
    """What a job used of each optimisation."""

    times: Counter[str] = field(default_factory=Counter)


class Bus:
    """Copies at once, in memory of the CPU."""

    def __init__(self, used: Used) -> None:
        self.used = used

    def pinned(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        # what is small comes back by itself: losses, previews
        self.used.times["pinned"] += target.dtype == torch.uint8
        target.copy_(source)

    def moment(self) -> Moment:
        return Moment()

    def aside(self) -> AbstractContextManager[None]:
        self.used.times["stream"] += 1
        return nullcontext()

    def join(self, values: torch.Tensor, moment: object) -> None:
        pass


class Moment:
    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


@dataclass
class Recorder:
    used: Used

    def room(self) -> tuple[int, int]:
        return 0, 1

    def record(self, work: Callable[[], torch.Tensor], draws: object) -> Again:
        return Again(work, self.used)


@dataclass
class Again:
    work: Callable[[], torch.Tensor]
    used: Used

    def replay(self) -> torch.Tensor:
        self.used.times["graphs"] += 1
        return self.work()

    def release(self) -> None:
        pass


@dataclass(frozen=True)
class PretendedGpu(Backend):
    """A CPU that has all that a GPU has."""

    used: Used = field(default_factory=Used)

    @property
    def is_cuda(self) -> bool:
        return True

    def timer(self) -> StageTimer:
        return StageTimer(HostClock(), choices=self.choices)

    def clock(self) -> HostClock:
        return HostClock()

    def bound(self) -> None:
        pass

    def bus(self) -> Bus:
        return Bus(self.used)

    def recorder(self) -> Recorder:
        return Recorder(self.used)

    def free_memory(self) -> int:
        return 10**9


@pytest.fixture
def scan(tmp_path: Path) -> Volume:
    """A scan in a file, that does not fit into the memory that the jobs below allow."""
    values = np.random.default_rng(0).normal(100, 10, (40, 48, 48)).astype(np.float32)
    np.save(tmp_path / "scan.npy", values)
    return Volume(np.load(tmp_path / "scan.npy", mmap_mode="r"))


def denoised(scan: Volume, used: Used, **switches: str) -> Any:
    how = {
        "steps": STEPS,
        "batch_size": 2,
        "patch_size": 16,
        "precision": "float32",
        "denoise_memory": 0.001,
    }
    backend = PretendedGpu(switches=Switches(**switches), used=used)
    return hushpore.run("denoise", scan, how, backend)


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Used:
    """What a job uses; nothing is really compiled, and reading ahead is counted."""
    used = Used()

    def compiled(network: Work, **options: object) -> Work:
        def call(batch: torch.Tensor) -> torch.Tensor:
            used.times["compile"] += 1
            return network(batch)

        return call

    begin = ReadAhead.__init__

    def counted(self: ReadAhead[Any], *args: Any, **options: Any) -> None:
        used.times["read_ahead"] += 1
        begin(self, *args, **options)

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(ReadAhead, "__init__", counted)
    return used


@pytest.mark.parametrize("name", NAMES)
def test_an_optimisation_is_used_where_it_is_switched_on_and_nowhere_else(
    name: str, scan: Volume, compiling: Used
) -> None:
    others = dict.fromkeys(NAMES, "off")
    plain = denoised(scan, compiling, **others)
    assert not +compiling.times
    used = {**others, name: "on"}
    found = denoised(scan, compiling, **used)
    assert set(+compiling.times) == {name}
    lines = found.provenance["optimisations"]
    assert {lines.pop(each) for each in OF_PORES} == {"off, nothing to use it for"}
    told = {line for key, line in lines.items() if key.partition(" ")[0] == name}
    assert told == {"on, as asked"}
    assert {line for key, line in lines.items() if key.partition(" ")[0] != name} == {
        "off, as asked"
    }
    np.testing.assert_array_equal(found.volume.data, plain.volume.data)


def test_left_to_themselves_they_say_why_they_are_used_or_not(
    scan: Volume, compiling: Used
) -> None:
    lines = denoised(scan, compiling).provenance["optimisations"]
    assert lines["compile"] == "off, no GPU is on record on which it wins"
    assert lines["read_ahead"] == "on, the next piece is read meanwhile"
    assert lines["pinned"].endswith("MB are too little to win by it")
    # graphs were tried, on tiles
    assert set(+compiling.times) <= {"read_ahead", "graphs"}


def test_the_preference_and_the_environment_set_switches(
    scan: Volume, compiling: Used, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSHPORE_SWITCHES", "graphs=on, compile=off")
    backend = PretendedGpu(used=compiling)
    assert backend.choices.asked("graphs") is True
    assert backend.choices.asked("compile") is False
    assert backend.choices.asked("pinned") is None
    assert Backend(switches=Switches(graphs="off")).choices.asked("graphs") is False
