"""Time spent in the stages of a job: as a sentence, as a table and as JSON values."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushpore.base.events import StageTime, Timing

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
