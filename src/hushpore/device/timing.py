"""Stage timing that never makes a device wait.

On the CPU a stage lasts from one reading of the clock to the next. On a CUDA device its ends are
events in the stream; they are read only once they have happened, and where the supply of events
is used up the sample is dropped rather than waited for. `timing_table`, `timing_record` and
`bottleneck` say what was found.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from hushpore.base.events import Span, StageTime, Timing

if TYPE_CHECKING:
    from collections.abc import Iterator


#: Bins of the lengths of runs: 16 to a factor of e from 100 ns on, each 6 % wide.
_BINS, _SHORTEST = 16, 1e-7

#: Runs kept between two looks, for a trace.
_SPANS = 4096

#: What a stage does, where it is not computing.
KINDS = {"reading": "reading", "upload": "transfer", "download": "transfer"}


class Clock(Protocol):
    """A source of marks on a device's time line."""

    def mark(self) -> Any:
        """Return a mark for now, or None where none is to be had."""

    def happened(self, mark: Any) -> bool:
        """Whether the device has reached the mark; never waits."""

    def seconds(self, start: Any, end: Any) -> float:
        """Time between two marks that have both happened."""

    def at(self, mark: Any) -> float:
        """Return when a mark happened, in seconds, as `time.perf_counter` counts."""

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

    def at(self, mark: int) -> float:
        """Return the reading in seconds."""
        return mark * 1e-9

    def release(self, mark: int) -> None:
        """Nothing to give back."""


class CudaClock:
    """Marks are CUDA events in the current stream of a device, from a bounded supply.

    Parameters
    ----------
    device : str, optional
        ``"cuda:0"`` and so on.
    supply : int, optional
        How many events there are.
    """

    def __init__(self, device: str = "cuda:0", supply: int = 512) -> None:
        import torch

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

    def happened(self, mark: Any) -> bool:
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
        self._pending: deque[tuple[str, Any, Any, float]] = deque()
        self._stages: dict[str, _Stage] = {}
        self._spans: deque[Span] = deque(maxlen=_SPANS)
        self._start = time.perf_counter()
        self.dropped = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the block as one run of the stage `name`, also when it raises."""
        begun = time.perf_counter()
        start = self._clock.mark()
        try:
            yield
        finally:
            self._close(name, start, self._clock.mark(), time.perf_counter() - begun)

    def timing(self) -> Timing:
        """Return what is known by now, without waiting for the device.

        The value can be read in any thread; this method belongs to the thread of the stages.
        """
        self._collect()
        spans = tuple(self._spans)
        self._spans.clear()
        stages = {name: stage.snapshot() for name, stage in self._stages.items()}
        return Timing(stages, time.perf_counter() - self._start, spans, self.dropped)

    def _collect(self) -> None:
        clock, pending = self._clock, self._pending
        while pending and clock.happened(pending[0][2]):
            name, start, end, host = pending.popleft()
            seconds = clock.seconds(start, end)
            self._stages.setdefault(name, _Stage()).add(seconds, host)
            self._spans.append(Span(name, clock.at(start), seconds))
            clock.release(start)
            clock.release(end)

    def _close(self, name: str, start: Any, end: Any, host: float) -> None:
        if start is None or end is None:
            self.dropped += 1
            for mark in (start, end):
                if mark is not None:
                    self._clock.release(mark)
            return
        self._pending.append((name, start, end, host))
        if len(self._pending) > 128:
            self._collect()


class _Stage:
    """What is known of one stage; of fixed size however often it runs."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = self.worst = self.first = self.last = self.host = 0.0
        self.bins: Counter[int] = Counter()

    def add(self, seconds: float, host: float) -> None:
        if not self.count:
            self.first = seconds
        else:
            ratio = max(seconds / _SHORTEST, 1.0)
            self.bins[int(_BINS * math.log(ratio))] += 1
        self.count += 1
        self.seconds += seconds
        self.host += host
        self.last = seconds
        self.worst = max(self.worst, seconds)

    def snapshot(self) -> StageTime:
        return StageTime(
            self.count,
            self.seconds,
            self.worst,
            self.first,
            self.last,
            self._percentile(0.5),
            self._percentile(0.95),
            self.host,
        )

    def _percentile(self, share: float) -> float:
        if not self.bins:
            return self.first
        wanted, passed = share * self.bins.total(), 0
        for number in sorted(self.bins):
            passed += self.bins[number]
            if passed >= wanted:
                break
        # the middle of the bin, which no run was longer than where it is the last
        return min(_SHORTEST * math.exp((number + 0.5) / _BINS), self.worst)


def bottleneck(timing: Timing) -> str:
    """Say in one sentence what takes most of the time: reading, transfer, compute or host."""
    spent = _by_kind(timing)
    total = sum(spent.values())
    if total <= 0:
        return ""
    kind = max(spent, key=lambda name: spent[name])
    share = f"{100 * spent[kind] / total:.0f} %"
    match kind:
        case "reading":
            return f"Reading takes {share} of the time: a faster disk helps most."
        case "transfer":
            return f"Moving data to and from the device takes {share} of the time."
        case "host":
            return f"{share} of the time is spent between the stages, on the host."
    computing = [name for name in timing.stages if KINDS.get(name, "compute") == "compute"]
    longest = max(computing, key=lambda name: timing.stages[name].seconds)
    return f"Computing takes {share} of the time, most of it {longest}: a faster device helps most."


def timing_record(timing: Timing) -> dict[str, Any]:
    """Return everything that was measured as plain JSON values, in seconds."""
    total = sum(stage.seconds for stage in timing.stages.values()) or 1.0
    return {
        "elapsed": timing.elapsed,
        "bottleneck": bottleneck(timing),
        "by_kind": _by_kind(timing),
        "dropped": timing.dropped,
        "stages": {
            name: {**dataclasses.asdict(stage), "mean": stage.mean, "share": stage.seconds / total}
            for name, stage in timing.stages.items()
        },
    }


def timing_table(timing: Timing) -> str:
    """Return the stages as a table of plain text, with the bottleneck under it.

    All times but the total leave out the first run, which warms up, where there are more.
    """
    if not timing.stages:
        return "Nothing was timed."
    total = sum(stage.seconds for stage in timing.stages.values()) or 1.0
    wide = max(len("stage"), *map(len, timing.stages))
    names = ("runs", "total s", "share", "first ms", "p50 ms", "p95 ms", "worst ms")
    lines = [f"{'stage':{wide}}" + "".join(f"{name:>10}" for name in names)]
    for name, stage in timing.stages.items():
        times = (stage.first, stage.p50, stage.p95, stage.worst)
        lines.append(
            f"{name:{wide}}{stage.count:>10,}{stage.seconds:>10.3f}"
            f"{stage.seconds / total:>10.1%}" + "".join(f"{1e3 * t:>10.2f}" for t in times)
        )
    return "\n".join([*lines, bottleneck(timing)])


def _by_kind(timing: Timing) -> dict[str, float]:
    spent = dict.fromkeys(("reading", "transfer", "compute", "host"), 0.0)
    for name, stage in timing.stages.items():
        spent[KINDS.get(name, "compute")] += stage.seconds
    spent["host"] = max(timing.elapsed - sum(spent.values()), 0.0)
    return spent
