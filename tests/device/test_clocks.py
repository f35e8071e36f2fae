"""Clocks of devices: the host's, and events in a stream."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hushpore.device.timing import CudaClock, HostClock, StageTimer


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
