"""Clocks of devices: marks on a time line that are read only once they have happened."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, TypeAlias


class HostClock:
    """Marks are readings of the host's clock."""

    device = "cpu"

    def mark(self) -> int:
        """Read the clock."""
        return time.perf_counter_ns()

    def has_reached(self, mark: int) -> bool:
        """Always: the host is never ahead of itself."""
        return True

    def seconds(self, start: int, end: int) -> float:
        """Time between two readings."""
        return (end - start) * 1e-9

    def at(self, mark: int) -> float:
        """Return the reading in seconds."""
        return mark * 1e-9

    def release(self, mark: int) -> None:
        """Nothing to give back."""


class CudaClock:
    """Marks are CUDA events in the current stream of a device, from a bounded supply.

    Work of CuPy is timed by the same events where it is in the same stream. It is without doing
    anything: both libraries work in the device's default stream unless told otherwise.

    `device`: ``"cuda:0"`` and so on.
    """

    def __init__(self, device: str = "cuda:0", supply: int = 512) -> None:
        import torch

        self.device = device
        self._stream = torch.cuda.current_stream(device)
        self._free: deque[Any] = deque(
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(supply)
        )
        # ties the device's time line to the host's: exact while the device is idle, as it is now
        self._origin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._origin.record(self._stream)
        self._start = time.perf_counter()

    def mark(self) -> Any:
        """Record an event, or return None where all are in use."""
        if not self._free:
            return None
        event = self._free.popleft()
        event.record(self._stream)
        return event

    def has_reached(self, mark: Any) -> bool:
        """Ask the event, without waiting."""
        return bool(mark.query())

    def seconds(self, start: Any, end: Any) -> float:
        """Time between two events that have both happened."""
        return float(start.elapsed_time(end)) * 1e-3

    def at(self, mark: Any) -> float:
        """Time of an event that has happened, and so has the one before all others."""
        return self._start + self.seconds(self._origin, mark)

    def release(self, mark: Any) -> None:
        """Put the event back."""
        self._free.append(mark)


#: A source of marks on a device's time line; `at` tells when as `time.perf_counter` counts.
Clock: TypeAlias = HostClock | CudaClock
