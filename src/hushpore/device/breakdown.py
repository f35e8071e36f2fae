"""Where the time of a job went, in words, as a table and as JSON values."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hushpore.base.events import StageTime, Timing

#: What a stage does by the first word of its name, where it is not computing.
KINDS = {
    "reading": "reading",
    "upload": "transfer",
    "download": "transfer",
    "preparing": "warm-up",
}

#: What is not worth a word in a table: that there is no GPU, or that something was not come to.
_NOTHING = ("off, no CUDA device", "off, nothing to use it for")


def bottleneck(timing: Timing) -> str:
    """Say in one sentence what takes most of the time: reading, transfer, compute or host.

    Warming up is left out: it happens once, and not again in the next job.
    """
    spent = by_kind(timing)
    del spent["warm-up"]
    total = sum(spent.values())
    if total <= 0:
        return ""
    kind = max(spent, key=lambda name: spent[name])
    share = f"{100 * spent[kind] / total:.0f} %"
    ours = {name: stage for name, stage in timing.stages.items() if _kind(name) == kind}
    match kind:
        case "reading":
            return f"Reading takes {share} of the time{_at(ours)}: a faster disk helps most."
        case "transfer":
            return f"Moving data to and from the device takes {share} of the time{_at(ours)}."
        case "host":
            return f"{share} of the time is spent between the stages, on the host."
    longest = max(ours, key=lambda name: ours[name].seconds)
    return f"Computing takes {share} of the time, most of it {longest}: a faster device helps most."


def by_kind(timing: Timing) -> dict[str, float]:
    """Return the seconds spent reading, in transfers, computing, warming up, and in no stage."""
    spent = dict.fromkeys(("reading", "transfer", "compute", "warm-up", "host"), 0.0)
    for name, stage in timing.stages.items():
        spent[_kind(name)] += stage.seconds
    spent["host"] = max(timing.elapsed - sum(spent.values()), 0.0)
    return spent


def throughput(stage: StageTime) -> str:
    """Write what a stage gets done a second: '2.1 GB/s', '14 M voxels/s', or nothing."""
    if stage.bytes_per_second > 0:
        return f"{_short(stage.bytes_per_second / 1e9)} GB/s"
    if stage.voxels_per_second > 0:
        return f"{_short(stage.voxels_per_second / 1e6)} M voxels/s"
    return ""


def memory_and_syncs(timing: Timing) -> str:
    """Write the most memory in use, and how often the host waited for the device."""
    parts = []
    if timing.host_memory:
        parts.append(f"{_short(timing.host_memory / 1e9)} GB of main memory in use at most")
    if timing.device_memory:
        parts.append(f"{_short(timing.device_memory / 1e9)} GB on the device")
    if timing.syncs:
        times = "once" if timing.syncs == 1 else f"{timing.syncs:,} times"
        parts.append(f"the host waited for the device {times}")
    return ", ".join(parts)


def choices_line(timing: Timing) -> str:
    """Write which optimisations are used and which are not, and why, as far as one came to them."""
    told = {name: line for name, line in timing.choices.items() if line not in _NOTHING}
    return "; ".join(f"{name}: {line}" for name, line in told.items())


def timing_record(timing: Timing) -> dict[str, Any]:
    """Return everything that was measured as plain JSON values, in seconds and bytes."""
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
    """Return the stages as a table of plain text, with memory and the bottleneck under it.

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


def _at(stages: dict[str, StageTime]) -> str:
    """Write the rate of the stages together, where bytes were counted."""
    moved = sum(stage.nbytes for stage in stages.values())
    seconds = sum(stage.seconds for stage in stages.values())
    return f", at {_short(moved / seconds / 1e9)} GB/s" if moved and seconds else ""


def _short(number: float) -> str:
    """Write a number so that it can be read at a glance: 0.0213, 2.1, 14, 1,300."""
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.2g}"
