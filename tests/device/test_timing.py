"""Where the time went, in words and as a table."""

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

from hushpore.base.events import Metric, Note, Progress, Span, StageTime, Timing
from hushpore.device import timing
from hushpore.device.timing import (
    CudaClock,
    HostClock,
    StageTimer,
    Trace,
    bottleneck,
    choices_line,
    memory_and_syncs,
    throughput,
    timing_record,
    timing_table,
)


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
