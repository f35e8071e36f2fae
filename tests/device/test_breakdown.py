"""Where the time went, in words and as a table."""

from __future__ import annotations

import json

import pytest

from hushpore.base.events import Metric, Note, Progress, Span, StageTime, Timing
from hushpore.device.breakdown import (
    Trace,
    bottleneck,
    choices_line,
    memory_and_syncs,
    throughput,
    timing_record,
    timing_table,
)
from hushpore.device.timing import StageTimer


def stages(**seconds: float) -> dict[str, StageTime]:
    return {name: StageTime(1, value, value) for name, value in seconds.items()}


@pytest.mark.parametrize(
    ("spent", "elapsed", "words"),
    [
        ({"training": 8.0, "upload": 1.0}, 10.0, "Limited by computing (80 %, mostly training)"),
        ({"reading": 6.0, "training": 4.0}, 10.0, "Limited by reading (60 % of the time)"),
        ({"upload": 4.0, "download": 4.0, "training": 2.0}, 10.0, "Limited by data transfer"),
        ({"training": 1.0}, 10.0, "Limited by overhead between the stages (90 % of the time)"),
    ],
    ids=["compute", "reading", "transfer", "host"],
)
def test_the_bottleneck_is_named(spent: dict[str, float], elapsed: float, words: str) -> None:
    assert bottleneck(Timing(stages(**spent), elapsed)).startswith(words)


def test_without_any_time_there_is_no_bottleneck() -> None:
    assert bottleneck(Timing()) == ""
    assert timing_table(Timing()) == "No stage was timed."


def test_the_table_has_a_line_for_each_stage_and_the_bottleneck() -> None:
    lines = timing_table(Timing(stages(training=3.0, denoising=1.0), 4.0)).splitlines()
    assert lines[1].split()[:5] == ["training", "1", "3.000", "75.0", "%"]
    assert lines[3].startswith("Limited by computing (100 %")
    assert len({len(line) for line in lines[:3]}) == 1


def test_the_record_is_plain_json() -> None:
    record = json.loads(json.dumps(timing_record(Timing(stages(training=3.0, upload=1.0), 5.0))))
    assert record["by_kind"] == {
        "reading": 0.0,
        "transfer": 1.0,
        "compute": 3.0,
        "warm-up": 0.0,
        "host": 1.0,
    }
    assert record["stages"]["training"]["share"] == 0.75


def test_warming_up_is_no_bottleneck() -> None:
    words = bottleneck(Timing(stages(preparing=18.0, distance=1.0, upload=0.5), 19.6))
    assert words.startswith("Limited by computing (62 %, mostly distance)")


def test_the_rate_of_reading_and_transfers_is_named() -> None:
    reading = StageTime(2, 4.0, 2.0, nbytes=2_000_000_000, bytes_per_second=1e9)
    assert ", 0.5 GB/s)" in bottleneck(Timing({"reading slices": reading}, 4.0))


@pytest.mark.parametrize(
    ("bytes_a_second", "voxels_a_second", "words"),
    [
        (12.34e9, 0.0, "12 GB/s"),
        (21.3e6, 5e6, "0.021 GB/s"),
        (0.0, 1.4e7, "14 M voxels/s"),
        (0.0, 0.0, ""),
    ],
)
def test_what_is_done_a_second_is_put_into_words(
    bytes_a_second: float, voxels_a_second: float, words: str
) -> None:
    stage = StageTime(
        2, 1.0, 1.0, bytes_per_second=bytes_a_second, voxels_per_second=voxels_a_second
    )
    assert throughput(stage) == words


def test_memory_and_waits_are_put_into_words() -> None:
    waiting = {"download": StageTime(3, 1.0, 1.0, syncs=3)}
    assert memory_and_syncs(Timing(waiting, 1.0, host_memory=2 * 10**9, device_memory=10**9)) == (
        "peak memory 2 GB, peak GPU memory 1 GB, the CPU waited for the GPU 3 times"
    )
    assert memory_and_syncs(Timing()) == ""


def test_what_was_decided_is_told_as_far_as_one_came_to_it() -> None:
    choices = {
        "pinned": "on, 21 GB/s up, where plain copies make 8",
        "graphs of tiles": "off, 0.98 times as fast as without",
        "stream": "off, not needed",
        "labels": "off, no CUDA device",
    }
    timing = Timing({"work": StageTime(1, 1.0, 1.0)}, 1.0, choices=choices)
    line = choices_line(timing)
    assert line == (
        "pinned: on, 21 GB/s up, where plain copies make 8; "
        "graphs of tiles: off, 0.98 times as fast as without"
    )
    assert line in timing_table(timing)
    assert timing_record(timing)["choices"] == choices
    assert choices_line(Timing()) == ""


def entries(trace: Trace, phase: str) -> list[dict[str, object]]:
    found = json.loads(json.dumps(trace.to_dict()))["traceEvents"]
    return [entry for entry in found if entry["ph"] == phase]


def test_runs_of_stages_lie_where_they_were_on_the_time_line() -> None:
    trace = Trace("Denoise", clock=lambda: 100.0)
    trace.add(Timing(spans=(Span("upload", 100.5, 0.25), Span("training", 101.0, 2.0))))
    assert [(e["name"], e["ts"], e["dur"]) for e in entries(trace, "X")] == [
        ("upload", 0.5e6, 0.25e6),
        ("training", 1e6, 2e6),
    ]


def test_curves_and_notes_are_in_it_and_the_process_has_its_name() -> None:
    trace = Trace("Denoise", clock=lambda: 0.0)
    trace.add(Metric("loss", 25, 0.5))
    trace.add(Note("Memory ran out."))
    trace.add(Progress("training", 1, 2, "steps", 0.5))
    assert entries(trace, "C")[0]["args"] == {"loss": 0.5}
    assert entries(trace, "i")[0]["name"] == "Memory ran out."
    assert entries(trace, "M")[0]["args"] == {"name": "Denoise"}
    assert len(trace.to_dict()["traceEvents"]) == 3


def test_every_run_of_a_real_timer_is_in_it_once() -> None:
    timer, trace = StageTimer(), Trace("job")
    for _ in range(3):
        for _ in range(5):
            with timer.stage("a"):
                pass
        trace.add(timer.timing())
    runs = entries(trace, "X")
    assert len(runs) == 15
    starts = [run["ts"] for run in runs]
    assert starts == sorted(starts, key=float)


def test_a_long_job_does_not_fill_the_memory() -> None:
    trace = Trace("job", limit=10)
    trace.add(Timing(spans=tuple(Span("a", float(n), 1.0) for n in range(25)), dropped=3))
    assert len(entries(trace, "X")) == 10
    assert trace.dropped == 18
