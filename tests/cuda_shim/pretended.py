"""A CPU that has all that a GPU has, and counts what is used of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from hushpore.device.backend import Backend
from hushpore.device.timing import HostClock, StageTimer

if TYPE_CHECKING:
    from collections.abc import Callable


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

    def record_event(self) -> StreamEvent:
        return StreamEvent()


class StreamEvent:
    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


@dataclass
class GraphCapture:
    used: Used

    def room(self) -> tuple[int, int]:
        return 0, 1

    def capture(self, work: Callable[[], torch.Tensor], generator: object) -> Again:
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

    def limit_memory(self) -> None:
        pass

    def bus(self) -> Bus:
        return Bus(self.used)

    def graph_capture(self) -> GraphCapture:
        return GraphCapture(self.used)

    def free_memory(self) -> int:
        return 10**9
