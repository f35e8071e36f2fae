"""Clocks of devices: marks on a timeline that are read only after they have been reached."""

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
        """Always True on the host."""
        return True

    def seconds(self, start: int, end: int) -> float:
        """Return the time between two readings, in seconds."""
        return (end - start) * 1e-9

    def at(self, mark: int) -> float:
        """Return the reading in seconds."""
        return mark * 1e-9

    def release(self, mark: int) -> None:
        """Do nothing: readings need no resources."""


class CudaClock:
    """Marks are CUDA events in the current stream of a device, from a limited supply.

    The events also time work of CuPy: by default both libraries use the default stream.

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
        # links the timelines of device and host; exact, because the device is idle now
        self._origin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._origin.record(self._stream)
        self._start = time.perf_counter()

    def mark(self) -> Any:
        """Record an event, or return None if all are in use."""
        if not self._free:
            return None
        event = self._free.popleft()
        event.record(self._stream)
        return event

    def has_reached(self, mark: Any) -> bool:
        """Return whether the event has been reached, without waiting."""
        return bool(mark.query())

    def seconds(self, start: Any, end: Any) -> float:
        """Return the time between two events that were reached, in seconds."""
        return float(start.elapsed_time(end)) * 1e-3

    def at(self, mark: Any) -> float:
        """Return the time of an event that was reached, in seconds of the host's clock."""
        return self._start + self.seconds(self._origin, mark)

    def release(self, mark: Any) -> None:
        """Put the event back."""
        self._free.append(mark)


#: A clock of a device; `at` returns the time of a mark on the scale of `time.perf_counter`.
Clock: TypeAlias = HostClock | CudaClock
