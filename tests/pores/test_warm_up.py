from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hushpore
from hushpore.base.events import Progress
from hushpore.device.backend import Backend
from hushpore.pores import job, parallel
from hushpore.pores.job import WARM_UP, warm_up_kind
from hushpore.pores.parallel import WarmUp, kernels_compiled
from hushpore.pores.settings import PoreSettings

if TYPE_CHECKING:
    from collections.abc import Iterator


class Steps:
    """A warm-up of a few steps that a test lets go on."""

    def __init__(self, count: int = 3) -> None:
        self.count = count
        self.gate = threading.Event()
        self.done: list[int] = []
        self.begun = self.closed = 0

    def __call__(self, kind: str) -> Iterator[int]:
        self.begun += 1
        try:
            for step in range(len(self.done), self.count):
                self.gate.wait(60)
                self.done.append(step)
                yield step
        finally:
            self.closed += 1


def test_a_warm_up_runs_once_however_many_wait() -> None:
    steps = Steps()
    preparation = WarmUp(steps)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(lambda: list(preparation.wait("a"))) for _ in range(4)]
        steps.gate.set()
        for each in waiting:
            assert not any(each.result())
    assert steps.begun == 1
    assert list(preparation.wait("a")) == []


def test_another_kind_is_warmed_up_after_it() -> None:
    steps = Steps(count=0)
    preparation = WarmUp(steps)
    list(preparation.wait("a"))
    list(preparation.wait("b"))
    assert steps.begun == 2


def test_who_gives_up_does_not_wait_and_who_still_waits_gets_it_done() -> None:
    steps = Steps()
    preparation = WarmUp(steps)
    leaving = preparation.wait("a")
    next(leaving)
    with ThreadPoolExecutor(1) as pool:
        staying = pool.submit(lambda: list(preparation.wait("a")))
        leaving.close()
        assert steps.done == []
        steps.gate.set()
        staying.result(timeout=60)
    assert steps.done == [0, 1, 2]
    assert steps.begun == steps.closed


def test_an_error_reaches_the_one_who_waits_and_is_not_kept() -> None:
    errors = [ValueError("no compiler")]

    def fail(kind: str) -> Iterator[int]:
        yield 0
        if errors:
            raise errors.pop()

    preparation = WarmUp(fail)
    with pytest.raises(ValueError, match="no compiler"):
        list(preparation.wait("a"))
    assert not any(preparation.wait("a"))


def test_a_warm_up_that_cannot_begin_is_an_error_too() -> None:
    def fail(kind: str) -> Iterator[int]:
        raise ValueError("not even a generator")

    with pytest.raises(ValueError, match="not even"):
        list(WarmUp(fail).wait("a"))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"threshold": "sauvola"},
        {"threshold": 100.0, "hysteresis": 50.0},
        {"exterior": "remove-slicewise"},
        {"merging": "snow"},
        {"connectivity": "faces"},
    ],
)
@pytest.mark.parametrize("is_void", [False, True])
@pytest.mark.parametrize("on_disk", [False, True])
def test_after_a_warm_up_the_job_compiles_nothing_more(
    values: dict, is_void: bool, on_disk: bool
) -> None:
    kind = warm_up_kind(PoreSettings(**values), is_void, on_disk)
    list(WARM_UP.wait(kind))
    before = kernels_compiled()
    blocks = np.random.default_rng(0).integers(0, 256, (5, 7, 7), np.uint8)
    grey = np.kron(blocks, np.ones((8, 8, 8), np.uint8))
    budget = 0.0017 if on_disk else None
    result = hushpore.segment_pores(grey < 128 if is_void else grey, memory_budget=budget, **values)
    assert any("slabs" in note for note in result.notes) == on_disk
    assert kernels_compiled() == before


def test_the_job_says_when_kernels_are_compiled_and_times_it_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = iter(range(100))
    monkeypatch.setattr(parallel, "kernels_compiled", lambda: next(compiled))
    steps = Steps()
    monkeypatch.setattr(job, "WARM_UP", WarmUp(steps))
    stages = []

    def listen(event: object) -> None:
        if isinstance(event, Progress):
            stages.append(event.stage)
            if len(stages) == 3:
                steps.gate.set()

    result = hushpore.jobs.run("pores", np.eye(9, dtype=bool), {}, Backend(), listen)
    assert stages[:2] == ["preparing", "preparing, first time only"]
    assert result.timings["preparing"] >= 0.05
