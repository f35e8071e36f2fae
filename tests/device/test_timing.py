from __future__ import annotations

import time

import pytest

from hushpore.device.timing import StageTimer


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
