from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hushpore.base.events import StageTime, Timing
from hushpore.device import timing
from hushpore.device.breakdown import timing_record
from hushpore.device.timing import CudaClock, HostClock, StageTimer


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

    def has_reached(self, mark: int) -> bool:
        return self.taken[mark] <= self.reached

    def seconds(self, start: int, end: int) -> float:
        assert self.has_reached(start)
        assert self.has_reached(end), "an unfinished mark was read: on a GPU that waits"
        return self.taken[end] - self.taken[start]

    def at(self, mark: int) -> float:
        assert self.has_reached(mark), "an unfinished mark was read: on a GPU that waits"
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

    device = "cpu"

    def __init__(self, lengths: list[float]) -> None:
        self.marks = iter([edge for length in lengths for edge in (0.0, length)])

    def mark(self) -> float:
        return next(self.marks)

    def has_reached(self, mark: float) -> bool:
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


def test_host_time_is_told_apart_from_device_time(monkeypatch: pytest.MonkeyPatch) -> None:
    device, now = FakeDevice(), [0.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    timer = StageTimer(device)
    with timer.stage("a"):
        now[0] += 0.25
    device.reached = device.now
    stage = timer.timing().stages["a"]
    assert (stage.seconds, stage.host) == (1.0, 0.25)


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


def test_rates_leave_out_the_first_run_which_warms_up() -> None:
    timer = StageTimer(Replay([10.0, 2.0, 2.0]))
    for _ in range(3):
        with timer.stage("upload", nbytes=4_000, voxels=1_000):
            pass
    stage = timer.timing().stages["upload"]
    assert (stage.nbytes, stage.voxels) == (12_000, 3_000)
    assert stage.bytes_per_second == 2_000
    assert stage.voxels_per_second == 500


def test_what_a_run_does_may_be_known_at_its_end_only() -> None:
    timer = StageTimer(Replay([2.0]))
    with timer.stage("reading") as run:
        run.nbytes, run.voxels = 4_000, 1_000
    stage = timer.timing().stages["reading"]
    assert (stage.bytes_per_second, stage.voxels_per_second) == (2_000, 500)


def test_a_rate_of_a_single_run_is_its_own() -> None:
    timer = StageTimer(Replay([2.0]))
    with timer.stage("upload", nbytes=4_000):
        pass
    stage = timer.timing().stages["upload"]
    assert stage.bytes_per_second == 2_000
    assert stage.voxels_per_second == 0


def test_a_stage_within_a_stage_is_counted_once() -> None:
    device = FakeDevice()
    timer = StageTimer(device)
    with timer.stage("outer"), timer.stage("inner"):
        pass
    device.reached = device.now
    timing = timer.timing()
    # marks one second apart: outer from 1 to 4, inner from 2 to 3
    assert timing.stages["inner"].seconds == 1.0
    assert timing.stages["outer"].seconds == 2.0
    assert [(span.stage, span.seconds) for span in timing.spans] == [("inner", 1.0), ("outer", 3.0)]


def test_stages_can_be_timed_in_several_threads() -> None:
    timer = StageTimer()

    def work() -> None:
        for _ in range(500):
            with timer.stage("outer"), timer.stage("inner"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stages = timer.timing().stages
    assert stages["inner"].count == stages["outer"].count == 2000


def test_waiting_for_the_device_is_counted_where_there_is_one() -> None:
    device = FakeDevice()
    timer, on_host = StageTimer(device), StageTimer()
    for each in (timer, on_host):
        with each.stage("download", syncs=2):
            pass
    device.reached = device.now
    assert timer.timing().syncs == 2
    assert on_host.timing().syncs == 0


def test_work_that_moves_to_another_device_is_timed_on_its_clock() -> None:
    device = FakeDevice()
    timer = StageTimer(device)
    with timer.stage("training"):
        pass
    timer.run_on(Replay([0.25]))
    with timer.stage("training"):
        pass
    # nothing can be read past the run that the device has not finished
    assert timer.timing().stages == {}
    device.reached = device.now
    stage = timer.timing().stages["training"]
    assert stage.count == 2
    assert (stage.first, stage.last) == (1.0, 0.25)


def test_timing_a_stage_costs_a_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    # it looks at the memory now and then, as time goes by
    monkeypatch.setattr(timing, "_MEMORY_INTERVAL", math.inf)
    timer, calls = StageTimer(), Counter[str]()
    for _ in range(2):
        with timer.stage("a"):
            pass
    sys.setprofile(lambda frame, event, argument: calls.update([event]))
    try:
        for _ in range(1000):
            with timer.stage("a"):
                pass
    finally:
        sys.setprofile(None)
    # some 5 us on one core
    assert calls["call"] + calls["c_call"] < 50 * 1000


def test_what_was_timed_on_another_machine_is_added() -> None:
    there, here, before = StageTimer(), StageTimer(), time.perf_counter()
    for _ in range(3):
        with there.stage("denoising", voxels=100):
            time.sleep(0.002)
    with there.stage("reading", nbytes=60):
        pass
    told = there.timing()
    here.merge(told)
    here.merge(told)
    found = here.timing()
    assert found.stages["denoising"].count == 6
    assert found.stages["denoising"].voxels == 600
    assert found.stages["reading"].nbytes == 120
    assert found.stages["denoising"].seconds == pytest.approx(
        2 * told.stages["denoising"].seconds, rel=0.01
    )
    assert [span.stage for span in found.spans] == [span.stage for span in told.spans] * 2
    # on this machine's clock
    assert all(before <= span.start <= time.perf_counter() for span in found.spans)


class Stream:
    """What a device does, in order; it has done the first `reached`."""

    def __init__(self) -> None:
        self.work: list[Any] = []
        self.reached = 0


class FakeEvent:
    """An event of CUDA as far as the clock knows it; it happens at its number in the stream."""

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        self.at = -1

    def record(self, stream: Stream) -> None:
        stream.work.append(self)
        self.stream, self.at = stream, len(stream.work)

    def query(self) -> bool:
        return self.at <= self.stream.reached

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.query()
        assert end.query(), "an unfinished event was read: on a GPU that is an error"
        return 1000.0 * (end.at - self.at)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    stream = Stream()
    fake = SimpleNamespace(current_stream=lambda device: stream, Event=FakeEvent)
    monkeypatch.setattr(torch, "cuda", fake)
    return stream


def test_the_host_s_clock_counts_as_python_does() -> None:
    clock = HostClock()
    before = time.perf_counter()
    mark = clock.mark()
    assert before <= clock.at(mark) <= time.perf_counter()
    assert clock.has_reached(mark)
    assert clock.seconds(mark, mark + 10**9) == 1.0


def test_work_of_another_library_in_the_same_stream_is_timed_too(stream: Stream) -> None:
    timer = StageTimer(CudaClock())
    with timer.stage("void"):
        # as CuPy puts its kernels there
        stream.work += ["kernel", "kernel"]
    assert timer.timing().stages == {}
    stream.reached = len(stream.work)
    # the two kernels lie between its two events
    assert timer.timing().stages["void"].seconds == 3.0


def test_events_are_used_again_and_left_out_where_there_are_none(stream: Stream) -> None:
    clock = CudaClock(supply=2)
    timer = StageTimer(clock)
    for _ in range(2):
        with timer.stage("a"):
            pass
    stream.reached = len(stream.work)
    assert timer.timing().dropped == 1
    with timer.stage("a"):
        pass
    stream.reached = len(stream.work)
    assert timer.timing().stages["a"].count == 2


@pytest.mark.gpu
def test_the_events_of_a_gpu_agree_with_the_host_and_are_not_waited_for() -> None:
    torch.cuda._sleep(1)  # loads its kernel
    torch.cuda.synchronize()
    timer = StageTimer(CudaClock())
    begun = time.perf_counter()
    with timer.stage("sleep"):
        torch.cuda._sleep(200_000_000)
    # had it been waited for, it would have happened by now
    assert timer.timing().stages == {}
    torch.cuda.synchronize()
    # on the host it takes as long, and waking up
    assert 0 < timer.timing().stages["sleep"].seconds <= time.perf_counter() - begun
