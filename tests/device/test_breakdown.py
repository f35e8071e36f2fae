"""Where the time went, in words and as a table."""

from __future__ import annotations

import json

import pytest

from hushpore.base.events import StageTime, Timing
from hushpore.device.breakdown import (
    bottleneck,
    choices_line,
    memory_and_syncs,
    throughput,
    timing_record,
    timing_table,
)


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
