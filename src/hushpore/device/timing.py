"""Stage timing that never makes a device wait.

On the CPU a stage lasts from one reading of the clock to the next. On a CUDA device its ends are
events in the stream; they are read only once they have happened, and where the supply of events
is used up the sample is dropped rather than waited for.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from hushpore.base.events import StageTime, Timing

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock(Protocol):
    """A source of marks on a device's time line."""

    def mark(self) -> Any:
        """Return a mark for now, or None where none is to be had."""

    def happened(self, mark: Any) -> bool:
        """Whether the device has reached the mark; never waits."""

    def seconds(self, start: Any, end: Any) -> float:
        """Time between two marks that have both happened."""

    def release(self, mark: Any) -> None:
        """Give the mark back for later use."""


class HostClock:
    """Marks are readings of the host's clock."""

    def mark(self) -> int:
        """Read the clock."""
        return time.perf_counter_ns()

    def happened(self, mark: int) -> bool:
        """Always: the host is never ahead of itself."""
        return True

    def seconds(self, start: int, end: int) -> float:
        """Time between two readings."""
        return (end - start) * 1e-9

    def release(self, mark: int) -> None:
        """Nothing to give back."""


class CudaClock:
    """Marks are CUDA events in the current stream, from a bounded supply."""

    def __init__(self, supply: int = 512) -> None:
        import torch

        self._free: deque[Any] = deque(
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(supply)
        )

    def mark(self) -> Any:
        """Record an event, or return None where all are in use."""
        if not self._free:
            return None
        event = self._free.popleft()
        event.record()
        return event

    def happened(self, mark: Any) -> bool:
        """Ask the event, without waiting."""
        return bool(mark.query())

    def seconds(self, start: Any, end: Any) -> float:
        """Time between two events that have both happened."""
        return float(start.elapsed_time(end)) * 1e-3

    def release(self, mark: Any) -> None:
        """Put the event back."""
        self._free.append(mark)


class StageTimer:
    """Accumulates the time of named stages.

    Attributes
    ----------
    dropped : int
        Samples not taken because the clock had no mark to give.

    Examples
    --------
    >>> timer = StageTimer()
    >>> with timer.stage("threshold"):
    ...     pass
    >>> timer.timing().stages["threshold"].count
    1
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or HostClock()
        self._pending: deque[tuple[str, Any, Any]] = deque()
        self._stages: dict[str, StageTime] = {}
        self.dropped = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the block as one run of the stage `name`, also when it raises."""
        start = self._clock.mark()
        try:
            yield
        finally:
            self._close(name, start, self._clock.mark())

    def timing(self) -> Timing:
        """Return what is known by now, without waiting for the device."""
        clock, pending = self._clock, self._pending
        while pending and clock.happened(pending[0][2]):
            name, start, end = pending.popleft()
            self._add(name, clock.seconds(start, end))
            clock.release(start)
            clock.release(end)
        return Timing(dict(self._stages))

    def _close(self, name: str, start: Any, end: Any) -> None:
        if start is None or end is None:
            self.dropped += 1
            for mark in (start, end):
                if mark is not None:
                    self._clock.release(mark)
            return
        self._pending.append((name, start, end))
        if len(self._pending) > 128:
            self.timing()

    def _add(self, name: str, seconds: float) -> None:
        before = self._stages.get(name, StageTime(0, 0.0, 0.0))
        self._stages[name] = StageTime(
            before.count + 1, before.seconds + seconds, max(before.worst, seconds)
        )
