"""Stage timing that never makes a device wait, and the clocks of devices.

On the CPU, a stage is timed by two readings of the clock. On a CUDA device it is timed by two
events in the stream, which are read only after they were reached; if no event is free, the run is
not timed. The time spent in stages is presented as a sentence, a table, JSON values and a timeline.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from hushpore._version import __version__
from hushpore.base.events import Driver, Metric, Note, Span, StageTime, Timing
from hushpore.device.memory import PeakMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hushpore.base.events import Event
    from hushpore.device.switches import Choices


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


T = TypeVar("T")

#: Bins of the histogram of durations: 16 to a factor of e from 100 ns on, each 6 % wide.
_BINS, _SHORTEST = 16, 1e-7

#: Number of runs kept for a trace between two calls of `StageTimer.timing`.
_SPANS = 4096

#: Number of unfinished runs from which their events are checked.
_MAX_PENDING = 128

#: Seconds between two measurements of the memory, which take some 20 us each.
_MEMORY_INTERVAL = 0.05


class StageTimer:
    """Accumulates the time of named stages.

    Stages may be nested: the time of an inner stage is not counted again for the outer one. They
    may be timed in several threads.

    `choices`: decisions on optimisations, reported with the times.
    `dropped`: number of runs that were not timed because the clock had no free mark.

    >>> timer = StageTimer()
    >>> with timer.stage("upload", nbytes=4_000_000):
    ...     pass
    >>> timer.timing().stages["upload"].count
    1
    """

    def __init__(
        self,
        clock: Clock | None = None,
        memory: PeakMemory | None = None,
        choices: Choices | None = None,
    ) -> None:
        self._clock: Clock = clock or HostClock()
        self._memory = memory or PeakMemory()
        self._choices = choices
        self._next_memory_check = 0.0
        self._lock = threading.Lock()
        self._open = threading.local()
        self._pending: deque[_Run] = deque()
        self._stages: dict[str, _Stage] = {}
        self._spans: deque[Span] = deque(maxlen=_SPANS)
        self._start = time.perf_counter()
        self.dropped = 0

    def stage(self, name: str, *, nbytes: int = 0, voxels: int = 0, syncs: int = 0) -> _Run:
        """Time the block of a ``with`` statement as one run of a stage, even if it raises.

        `name`: of the stage. ``"reading ..."``, ``"upload"`` and ``"download"`` do not count as
        computing, and ``"preparing"`` is warm-up. `syncs`: number of times that the host waits for
        the device; ignored on the CPU.
        Returns: the run; its ``nbytes`` and ``voxels`` may be set inside the block.
        """
        # without a device there are no waits
        return _Run(self, name, nbytes, voxels, 0 if type(self._clock) is HostClock else syncs)

    def timed(
        self, stage: str, work: Generator[float, Any, T], nbytes: int = 0, voxels: int = 0
    ) -> Generator[float, None, T]:
        """Run work that yields its completed share, and time each step as one run of a stage.

        `nbytes`, `voxels`: totals of the work.
        """
        share = 0.0
        with Driver(work) as driver:
            while True:
                with self.stage(stage) as run:
                    reached = next(driver, None)
                    if reached is None:
                        return driver.result
                    run.nbytes = round((reached - share) * nbytes)
                    run.voxels = round((reached - share) * voxels)
                share = reached
                yield share

    def run_on(self, clock: Clock) -> None:
        """Use another clock from now on, because the work has moved to another device."""
        self._clock = clock
        self._memory.follow(clock.device)

    def merge(self, timing: Timing) -> None:
        """Add the timing of another process or computer.

        Since clocks of computers differ, its last run is assumed to end now. Bytes and voxels are
        divided evenly among the runs of a stage.

        `timing`: with the spans of all runs.
        """
        last = max((span.start + span.seconds for span in timing.spans), default=0.0)
        shift = time.perf_counter() - last
        with self._lock:
            for span in timing.spans:
                total = timing.stages[span.stage]
                share = 1 / total.count
                run = _Run(
                    self, span.stage, round(total.nbytes * share), round(total.voxels * share),
                    round(total.syncs * share),
                )  # fmt: skip
                run.host = total.host * share
                self._stages.setdefault(span.stage, _Stage()).add(run, span.seconds)
                self._spans.append(Span(span.stage, span.start + shift, span.seconds))
            self.dropped += timing.dropped
            self._memory.host = max(self._memory.host, timing.host_memory)
            self._memory.device = max(self._memory.device, timing.device_memory)

    def timing(self) -> Timing:
        """Return the timing so far, without waiting for the device; may be called in any thread."""
        with self._lock:
            self._collect()
            spans = tuple(self._spans)
            self._spans.clear()
            stages = {name: stage.snapshot() for name, stage in self._stages.items()}
            self._memory.update()
        elapsed = time.perf_counter() - self._start
        memory = self._memory
        choices = {} if self._choices is None else self._choices.lines()
        return Timing(stages, elapsed, spans, self.dropped, memory.host, memory.device, choices)

    def _begin(self, run: _Run) -> None:
        inside = self._open.__dict__.setdefault("runs", [])
        run.outer = inside[-1] if inside else None
        inside.append(run)
        run.clock = self._clock
        run.started = time.perf_counter()
        run.start = run.clock.mark()

    def _end(self, run: _Run) -> None:
        run.end = run.clock.mark()
        now = time.perf_counter()
        run.host = now - run.started
        self._open.runs.pop()
        if run.outer is not None:
            run.outer.host_inside += run.host
        with self._lock:
            if now >= self._next_memory_check:
                self._next_memory_check = now + _MEMORY_INTERVAL
                self._memory.update()
            if run.start is None or run.end is None:
                self.dropped += 1
                for mark in (run.start, run.end):
                    if mark is not None:
                        run.clock.release(mark)
                return
            self._pending.append(run)
            if len(self._pending) > _MAX_PENDING:
                self._collect()

    def _collect(self) -> None:
        pending = self._pending
        while pending and pending[0].clock.has_reached(pending[0].end):
            run = pending.popleft()
            seconds = run.clock.seconds(run.start, run.end)
            if run.outer is not None:
                run.outer.inside += seconds
            self._stages.setdefault(run.name, _Stage()).add(run, max(seconds - run.inside, 0.0))
            self._spans.append(Span(run.name, run.clock.at(run.start), seconds))
            run.clock.release(run.start)
            run.clock.release(run.end)


@dataclass(slots=True, eq=False)
class _Run:
    """One run of a stage, from its start until its duration is known."""

    timer: StageTimer
    name: str
    nbytes: int
    voxels: int
    syncs: int
    outer: _Run | None = None
    clock: Any = None
    start: Any = None
    end: Any = None
    started: float = 0.0
    host: float = 0.0
    # seconds of nested stages, on the clock of the device and on that of the host
    inside: float = 0.0
    host_inside: float = 0.0

    def __enter__(self) -> _Run:
        self.timer._begin(self)
        return self

    def __exit__(self, *raised: object) -> None:
        self.timer._end(self)


class _Stage:
    """Statistics of one stage, of constant size."""

    def __init__(self) -> None:
        self.count = self.nbytes = self.voxels = self.syncs = 0
        self.first_nbytes = self.first_voxels = 0
        self.seconds = self.worst = self.first = self.last = self.host = 0.0
        self.bins: Counter[int] = Counter()

    def add(self, run: _Run, seconds: float) -> None:
        if not self.count:
            self.first, self.first_nbytes, self.first_voxels = seconds, run.nbytes, run.voxels
        else:
            ratio = max(seconds / _SHORTEST, 1.0)
            self.bins[int(_BINS * math.log(ratio))] += 1
        self.count += 1
        self.seconds += seconds
        self.host += max(run.host - run.host_inside, 0.0)
        self.nbytes += run.nbytes
        self.voxels += run.voxels
        self.syncs += run.syncs
        self.last = seconds
        self.worst = max(self.worst, seconds)

    def snapshot(self) -> StageTime:
        return StageTime(
            self.count, self.seconds, self.worst, self.first, self.last, self._percentile(0.5),
            self._percentile(0.95), self.host, self.nbytes, self.voxels, self.syncs,
            self._rate(self.nbytes, self.first_nbytes), self._rate(self.voxels, self.first_voxels),
        )  # fmt: skip

    def _rate(self, amount: int, first: int) -> float:
        """Return the amount per second, without the first run if there are more."""
        seconds = self.seconds
        if self.count > 1 and amount > first:
            amount, seconds = amount - first, seconds - self.first
        return amount / seconds if seconds > 0 else 0.0

    def _percentile(self, share: float) -> float:
        if not self.bins:
            return self.first
        wanted, passed = share * self.bins.total(), 0
        for number in sorted(self.bins):
            passed += self.bins[number]
            if passed >= wanted:
                break
        # the middle of the bin, but at most the longest run
        return min(_SHORTEST * math.exp((number + 0.5) / _BINS), self.worst)


#: Kind of a stage by the first word of its name; all others are computing.
KINDS = {"reading": "reading", "upload": "transfer", "download": "transfer", "preparing": "warm-up"}

#: Decisions left out of the table: no GPU, or no use for the optimisation.
_NOT_SHOWN = ("off, no CUDA device", "off, not needed")


def bottleneck(timing: Timing) -> str:
    """Return the bottleneck in one sentence: reading, transfer, computing or overhead.

    Warm-up is excluded: it happens only once.
    """
    spent = by_kind(timing)
    del spent["warm-up"]
    total = sum(spent.values())
    if total <= 0:
        return ""
    kind = max(spent, key=lambda name: spent[name])
    share = f"{100 * spent[kind] / total:.0f} %"
    stages = {name: stage for name, stage in timing.stages.items() if _kind(name) == kind}
    of_time = f"{share} of the time{_rate(stages)}"
    match kind:
        case "reading":
            return f"Limited by reading ({of_time}). A faster disk would help most."
        case "transfer":
            return f"Limited by data transfer to and from the GPU ({of_time})."
        case "host":
            return f"Limited by overhead between the stages ({of_time})."
    longest = max(stages, key=lambda name: stages[name].seconds)
    return f"Limited by computing ({share}, mostly {longest}). A faster GPU or CPU would help most."


def by_kind(timing: Timing) -> dict[str, float]:
    """Return the seconds of reading, transfers, computing, warm-up and time outside stages."""
    spent = dict.fromkeys(("reading", "transfer", "compute", "warm-up", "host"), 0.0)
    for name, stage in timing.stages.items():
        spent[_kind(name)] += stage.seconds
    spent["host"] = max(timing.elapsed - sum(spent.values()), 0.0)
    return spent


def throughput(stage: StageTime) -> str:
    """Return the throughput of a stage: '2.1 GB/s', '14 M voxels/s', or an empty string."""
    if stage.bytes_per_second > 0:
        return f"{_short(stage.bytes_per_second / 1e9)} GB/s"
    if stage.voxels_per_second > 0:
        return f"{_short(stage.voxels_per_second / 1e6)} M voxels/s"
    return ""


def memory_and_syncs(timing: Timing) -> str:
    """Return the peak memory, and the number of waits for the device, as text."""
    parts = []
    if timing.host_memory:
        parts.append(f"peak memory {_short(timing.host_memory / 1e9)} GB")
    if timing.device_memory:
        parts.append(f"peak GPU memory {_short(timing.device_memory / 1e9)} GB")
    if timing.syncs:
        times = "once" if timing.syncs == 1 else f"{timing.syncs:,} times"
        parts.append(f"the CPU waited for the GPU {times}")
    return ", ".join(parts)


def choices_line(timing: Timing) -> str:
    """Return the optimisations that were on or off, each with the reason."""
    shown = {name: line for name, line in timing.choices.items() if line not in _NOT_SHOWN}
    return "; ".join(f"{name}: {line}" for name, line in shown.items())


def timing_record(timing: Timing) -> dict[str, Any]:
    """Return all timings as plain JSON values, in seconds and bytes."""
    total = sum(stage.seconds for stage in timing.stages.values()) or 1.0
    return {
        "elapsed": timing.elapsed,
        "bottleneck": bottleneck(timing),
        "by_kind": by_kind(timing),
        "dropped": timing.dropped,
        "syncs": timing.syncs,
        "peak_memory": {"host": timing.host_memory, "device": timing.device_memory},
        "choices": timing.choices,
        "stages": {
            name: {**dataclasses.asdict(stage), "mean": stage.mean, "share": stage.seconds / total}
            for name, stage in timing.stages.items()
        },
    }


def timing_table(timing: Timing) -> str:
    """Return the stages as a plain-text table, followed by memory and bottleneck.

    Of stages with several runs, all times except the total exclude the first run, a warm-up.
    """
    if not timing.stages:
        return "No stage was timed."
    total = sum(stage.seconds for stage in timing.stages.values()) or 1.0
    wide = max(len("stage"), *map(len, timing.stages))
    names = ("runs", "total s", "share", "first ms", "p50 ms", "p95 ms", "worst ms")
    lines = [f"{'stage':{wide}}" + "".join(f"{name:>10}" for name in names)]
    for name, stage in timing.stages.items():
        times = (stage.first, stage.p50, stage.p95, stage.worst)
        rate = throughput(stage)
        lines.append(
            f"{name:{wide}}{stage.count:>10,}{stage.seconds:>10.3f}"
            f"{100 * stage.seconds / total:>8.1f} %"
            + "".join(f"{1e3 * t:>10.2f}" for t in times)
            + (f"   {rate}" if rate else "")
        )
    below = [memory_and_syncs(timing), choices_line(timing), bottleneck(timing)]
    return "\n".join(filter(None, [*lines, *below]))


def _kind(stage: str) -> str:
    return KINDS.get(stage.split(" ", maxsplit=1)[0], "compute")


def _rate(stages: dict[str, StageTime]) -> str:
    """Return the combined data rate of some stages; empty if no bytes were counted."""
    moved = sum(stage.nbytes for stage in stages.values())
    seconds = sum(stage.seconds for stage in stages.values())
    return f", {_short(moved / seconds / 1e9)} GB/s" if moved and seconds else ""


def _short(number: float) -> str:
    """Return a number with two significant digits, or all digits above 10: 0.021, 2.1, 1,300."""
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.2g}"


#: Maximum number of entries: some 15 MB of memory, and 10 MB of JSON.
LIMIT = 100_000


class Trace:
    """Collects the events of a job: runs of stages, curves and notes.

    `title`: of the job in the trace. `limit`: maximum number of entries; later ones are only
    counted. `clock`: seconds, as of `time.perf_counter`; for tests.
    `dropped`: number of entries beyond the limit, and of runs that were not timed.

    The format is described in "Trace Event Format", Google, 2016.

    >>> from hushpore.base.events import Metric
    >>> trace = Trace("Denoise")
    >>> trace.add(Metric("loss", 25, 0.5))
    >>> [entry["name"] for entry in trace.to_dict()["traceEvents"]]
    ['process_name', 'loss']
    """

    def __init__(
        self, title: str, limit: int = LIMIT, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock, self._limit = clock, limit
        self._start = clock()
        # name, phase, microseconds, value: small, since there may be very many
        self._entries: list[tuple[str, str, float, float]] = []
        self._title = title
        self._left_out = 0
        self._timing = Timing()

    @property
    def dropped(self) -> int:
        """Number of entries beyond the limit, and of runs that were not timed."""
        return self._timing.dropped + self._left_out

    def add(self, event: Event) -> None:
        """Add an event; events without a time are ignored."""
        match event:
            case Timing():
                self._timing = dataclasses.replace(event, spans=())
                for span in event.spans:
                    at = self._microseconds(span.start)
                    self._keep(span.stage, "X", at, 1e6 * span.seconds)
            case Metric():
                self._keep(event.name, "C", self._now(), event.value)
            case Note():
                self._keep(event.message, "i", self._now(), 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as JSON values, with times in microseconds since its start.

        The summary of the stages is under ``otherData``.
        """
        name = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": self._title}}
        return {
            "traceEvents": [name, *map(_entry, list(self._entries))],
            "displayTimeUnit": "ms",
            "otherData": {
                "hushpore": __version__,
                "dropped": self.dropped,
                "timings": timing_record(self._timing),
            },
        }

    def _keep(self, name: str, phase: str, at: float, value: float) -> None:
        if len(self._entries) < self._limit:
            self._entries.append((name, phase, at, value))
        else:
            self._left_out += 1

    def _now(self) -> float:
        return self._microseconds(self._clock())

    def _microseconds(self, seconds: float) -> float:
        return 1e6 * (seconds - self._start)


def _entry(kept: tuple[str, str, float, float]) -> dict[str, Any]:
    name, phase, at, value = kept
    entry = {"name": name, "ph": phase, "ts": at, "pid": 1, "tid": 1}
    match phase:
        case "X":
            return {**entry, "dur": value}
        case "C":
            return {**entry, "args": {name: value}}
    # a note is global to the process
    return {**entry, "s": "p"}
