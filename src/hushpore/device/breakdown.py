"""Time spent in the stages of a job: as a sentence, a table, JSON values and a timeline."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from hushpore._version import __version__
from hushpore.base.events import Metric, Note, Timing

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Event, StageTime


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
