from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

from hushpore.base.events import StageTime, Timing
from hushpore.device.timing import StageTimer, bottleneck, timing_record, timing_table


class FakeDevice:
    """A clock whose marks happen when the test says so; to read one earlier is an error."""

    def __init__(self, supply: int = 8) -> None:
        self.free = list(range(supply))
        self.taken: dict[int, float] = {}
        self.now = self.reached = 0.0

    def mark(self) -> int | None:
        if not self.free:
            return None
        self.now += 1.0
        mark = self.free.pop()
        self.taken[mark] = self.now
        return mark

    def happened(self, mark: int) -> bool:
        return self.taken[mark] <= self.reached

    def seconds(self, start: int, end: int) -> float:
        assert self.happened(start)
        assert self.happened(end), "an unfinished mark was read: on a GPU that waits"
        return self.taken[end] - self.taken[start]

    def at(self, mark: int) -> float:
        assert self.happened(mark), "an unfinished mark was read: on a GPU that waits"
        return self.taken[mark]

    def release(self, mark: int) -> None:
        del self.taken[mark]
        self.free.append(mark)


def test_stages_accumulate_in_the_order_in_which_they_first_ran() -> None:
    timer = StageTimer()
    for name in ("load", "compute", "load"):
        with timer.stage(name):
            time.sleep(0.002)
    stages = timer.timing().stages
    assert list(stages) == ["load", "compute"]
    assert stages["load"].count == 2
    assert stages["load"].seconds >= 0.004
    assert stages["load"].worst <= stages["load"].seconds


def test_a_stage_that_fails_is_timed_and_fails() -> None:
    timer = StageTimer()
    with pytest.raises(KeyError), timer.stage("broken"):
        raise KeyError
    assert timer.timing().stages["broken"].count == 1


def test_the_device_is_never_waited_for() -> None:
    device = FakeDevice()
    timer = StageTimer(device)
    with timer.stage("a"):
        pass
    with timer.stage("b"):
        pass
    assert timer.timing().stages == {}
    device.reached = 2.0
    assert list(timer.timing().stages) == ["a"]
    device.reached = 4.0
    assert list(timer.timing().stages) == ["a", "b"]


def test_a_sample_is_dropped_where_no_mark_is_left() -> None:
    device = FakeDevice(supply=3)
    timer = StageTimer(device)
    for _ in range(3):
        with timer.stage("a"):
            pass
    assert timer.dropped == 2
    device.reached = device.now
    assert timer.timing().stages["a"].count == 1
    assert len(device.free) == 3


class Replay:
    """A clock on which the runs of a stage last as long as the test says."""

    def __init__(self, lengths: list[float]) -> None:
        self.marks = iter([edge for length in lengths for edge in (0.0, length)])

    def mark(self) -> float:
        return next(self.marks)

    def happened(self, mark: float) -> bool:
        return True

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def at(self, mark: float) -> float:
        return mark

    def release(self, mark: float) -> None:
        pass


def replay(lengths: list[float]) -> StageTime:
    timer = StageTimer(Replay(lengths))
    for _ in lengths:
        with timer.stage("a"):
            pass
    return timer.timing().stages["a"]


def test_percentiles_are_those_of_numpy_to_within_a_bin() -> None:
    lengths = np.random.default_rng(0).lognormal(-4, 1, 5000).tolist()
    stage = replay([9.0, *lengths])
    assert stage.p50 == pytest.approx(np.percentile(lengths, 50), rel=0.04)
    assert stage.p95 == pytest.approx(np.percentile(lengths, 95), rel=0.04)
    assert stage.mean == pytest.approx(np.mean(lengths))
    assert stage.last == lengths[-1]


def test_the_first_run_warms_up_and_is_kept_apart() -> None:
    stage = replay([5.0, 0.01, 0.01, 0.02])
    assert stage.first == stage.worst == 5.0
    assert stage.seconds == pytest.approx(5.04)
    assert stage.p50 == pytest.approx(0.01, rel=0.04)
    assert stage.p95 <= 0.0206


def test_a_single_run_is_its_own_median() -> None:
    stage = replay([0.25])
    assert stage.mean == stage.p50 == stage.p95 == stage.last == 0.25


def test_each_run_is_told_once_with_its_place_on_the_host_s_clock() -> None:
    timer = StageTimer()
    before = time.perf_counter()
    with timer.stage("a"):
        time.sleep(0.002)
    (span,) = timer.timing().spans
    assert before <= span.start < span.start + span.seconds <= time.perf_counter()
    assert timer.timing().spans == ()


def test_very_many_runs_take_no_more_memory() -> None:
    timer = StageTimer()
    for _ in range(20_000):
        with timer.stage("a"):
            pass
    timing = timer.timing()
    assert timing.stages["a"].count == 20_000
    assert len(timing.spans) == 4096


def test_host_time_is_told_apart_from_device_time() -> None:
    device = FakeDevice()
    timer = StageTimer(device)
    with timer.stage("a"):
        time.sleep(0.005)
    device.reached = device.now
    stage = timer.timing().stages["a"]
    assert stage.seconds == 1.0
    assert 0.005 <= stage.host < 1.0


def test_what_was_told_can_be_read_in_another_thread_while_the_timer_goes_on() -> None:
    timer, seen, stop = StageTimer(), [Timing()], threading.Event()

    def read() -> None:
        while not stop.is_set():
            timing = seen[0]
            assert sum(stage.seconds for stage in timing.stages.values()) <= timing.elapsed
            json.dumps(timing_record(timing))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(300):
        with timer.stage(f"stage {number % 7}"):
            pass
        seen[0] = timer.timing()
    stop.set()
    reader.join()
    assert sum(stage.count for stage in seen[0].stages.values()) == 300


def stages(**seconds: float) -> dict[str, StageTime]:
    return {name: StageTime(1, value, value) for name, value in seconds.items()}


@pytest.mark.parametrize(
    ("spent", "elapsed", "words"),
    [
        ({"training": 8.0, "upload": 1.0}, 10.0, "Computing takes 80 % of the time, most of it tr"),
        ({"reading": 6.0, "training": 4.0}, 10.0, "Reading takes 60 %"),
        ({"upload": 4.0, "download": 4.0, "training": 2.0}, 10.0, "Moving data"),
        ({"training": 1.0}, 10.0, "90 % of the time is spent between the stages"),
    ],
    ids=["compute", "reading", "transfer", "host"],
)
def test_the_bottleneck_is_named(spent: dict[str, float], elapsed: float, words: str) -> None:
    assert bottleneck(Timing(stages(**spent), elapsed)).startswith(words)


def test_without_any_time_there_is_no_bottleneck() -> None:
    assert bottleneck(Timing()) == ""
    assert timing_table(Timing()) == "Nothing was timed."


def test_the_table_has_a_line_for_each_stage_and_the_bottleneck() -> None:
    lines = timing_table(Timing(stages(training=3.0, denoising=1.0), 4.0)).splitlines()
    assert lines[1].split()[:4] == ["training", "1", "3.000", "75.0%"]
    assert lines[3].startswith("Computing takes 100 %")
    assert len({len(line) for line in lines[:3]}) == 1


def test_the_record_is_plain_json() -> None:
    record = json.loads(json.dumps(timing_record(Timing(stages(training=3.0, upload=1.0), 5.0))))
    assert record["by_kind"] == {"reading": 0.0, "transfer": 1.0, "compute": 3.0, "host": 1.0}
    assert record["stages"]["training"]["share"] == 0.75


def test_timing_a_stage_costs_a_few_microseconds() -> None:
    timer = StageTimer()
    start = time.perf_counter()
    for _ in range(5000):
        with timer.stage("a"):
            pass
    # some 5 us on one core; room for a slow machine, for a step of 5 ms allows 100
    assert (time.perf_counter() - start) / 5000 < 50e-6
