"""Replaying recorded work: when it is tried, when it is kept, and what happens where it fails."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from hushpore.device.graphs import MAX_SHAPES, TRIAL, WARM_UP, CudaGraphCapture, GraphReplays
from hushpore.device.memory import free_pools
from hushpore.device.switches import Choices, Switches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass
class Tape:
    """A recording that does the work again, and counts."""

    work: Callable[[], torch.Tensor]
    capturer: GraphCapture
    is_released: bool = False

    def replay(self) -> torch.Tensor:
        assert not self.is_released
        self.capturer.replays += 1
        return self.work()

    def release(self) -> None:
        self.is_released = True


@dataclass
class GraphCapture:
    needed: int = 10
    free: int = 1000
    problem: Exception | None = None
    tapes: list[Tape] = field(default_factory=list)
    replays: int = 0

    def room(self) -> tuple[int, int]:
        return self.needed, self.free

    def capture(self, work: Callable[[], torch.Tensor], generator: torch.Generator | None) -> Tape:
        if self.problem is not None:
            raise self.problem
        self.tapes.append(Tape(work, self))
        return self.tapes[-1]


class Clock:
    """Marks are times that a test sets, and happen when it says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reached = float("inf")
        self.out = 0

    def mark(self) -> float | None:
        self.out += 1
        return self.now

    def has_reached(self, mark: float) -> bool:
        return mark <= self.reached

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def at(self, mark: float) -> float:
        return mark

    def release(self, mark: float) -> None:
        self.out -= 1


class Bench:
    """Calls that take one time plain, and another replayed."""

    def __init__(self, plain: float = 2.0, replayed: float = 1.0, **switches: str) -> None:
        self.capturer, self.clock = GraphCapture(), Clock()
        self.choices = Choices(Switches(**switches))
        self.replays = GraphReplays("steps", self.capturer, self.clock, self.choices)
        self.plain, self.replayed = plain, replayed
        self.plainly = 0

    def work(self, values: torch.Tensor) -> torch.Tensor:
        self.plainly += 1
        return values + 1

    def call(self, times: int = 1, key: str = "", size: int = 3) -> None:
        for number in range(times):
            before = self.capturer.replays
            values = torch.full((size,), float(number))
            result = self.replays.call(key, self.work, values)
            assert result.tolist() == [number + 1] * size
            self.clock.now += self.replayed if self.capturer.replays > before else self.plain

    def said(self) -> str:
        return self.choices.lines()["graphs of steps"]


def test_what_wins_in_its_trial_is_kept() -> None:
    bench = Bench(plain=2.0, replayed=1.0)
    bench.call(WARM_UP + TRIAL)
    assert not bench.capturer.tapes
    bench.call(50)
    assert bench.capturer.replays == 50
    assert bench.said() == "on, 2.00 times as fast as without"
    assert bench.clock.out == 0


def test_what_does_not_win_by_enough_is_given_back() -> None:
    bench = Bench(plain=1.05, replayed=1.0)
    bench.call(50)
    assert bench.capturer.replays == TRIAL
    assert bench.capturer.tapes[0].is_released
    assert bench.said() == "off, 1.05 times as fast as without"
    assert bench.clock.out == 0


def test_the_verdict_waits_for_the_device_without_stopping_the_host() -> None:
    bench = Bench()
    bench.clock.reached = 0.0
    bench.call(50)
    assert "graphs of steps" not in bench.choices.lines()
    bench.clock.reached = bench.clock.now
    bench.call(1)
    assert bench.said().startswith("on, 2.00")


@pytest.mark.parametrize("problem", [RuntimeError("no\nway"), torch.OutOfMemoryError("no")])
def test_what_cannot_be_recorded_goes_on_plainly(problem: Exception) -> None:
    bench = Bench()
    bench.capturer.problem = problem
    bench.call(50)
    assert bench.plainly == 50
    assert bench.said() == "off, could not be captured: no"
    assert bench.clock.out == 0


def test_nothing_is_recorded_where_memory_is_short() -> None:
    bench = Bench(graphs="on")
    bench.capturer.needed = 600
    bench.call(50)
    assert not bench.capturer.tapes
    assert bench.said() == "off, 600 B more may be needed, 1 kB are free"


def test_a_switch_decides_without_a_trial() -> None:
    on, off = Bench(plain=1, replayed=9, graphs="on"), Bench(graphs="off")
    on.call(50)
    off.call(50)
    assert on.capturer.replays == 50 - WARM_UP
    assert on.said() == "on, as asked"
    assert off.plainly == 50
    assert off.said() == "off, as asked"


def test_each_shape_has_a_recording_of_its_own() -> None:
    bench = Bench(graphs="on")
    for size in (3, 4):
        bench.call(WARM_UP + 2, size=size)
    bench.call(WARM_UP + 2, key="other")
    assert len(bench.capturer.tapes) == 3
    assert bench.capturer.replays == 6


def test_of_many_shapes_the_one_not_used_for_longest_is_forgotten() -> None:
    bench = Bench(graphs="on")
    for size in range(1, MAX_SHAPES + 1):
        bench.call(WARM_UP + 1, size=size)
    bench.call(1, size=1)
    bench.call(WARM_UP + 1, size=MAX_SHAPES + 1)
    assert [tape.is_released for tape in bench.capturer.tapes] == [
        False, True, *[False] * (MAX_SHAPES - 1)
    ]  # fmt: skip
    bench.replays.release()
    assert all(tape.is_released for tape in bench.capturer.tapes)


def test_where_no_time_can_be_taken_nothing_is_claimed() -> None:
    bench = Bench()
    bench.clock.mark = lambda: None  # type: ignore[method-assign]
    bench.call(50)
    assert bench.said() == "off, their time could not be taken"


class Cuda:
    """As much of PyTorch's CUDA as recording takes, with its way of failing.

    `underway`: pools of captures that the allocator takes to go on. Until PyTorch 2.12 one that
    failed stays among them, and no memory is given back any more.
    """

    def __init__(self, fails: bool) -> None:
        self.fails, self.now = fails, "default"
        self.graphs: list[Any] = []
        self.underway: set[Any] = set()
        self.default = Draws()
        self.captures = self.emptied = 0
        self.cleared: list[int] = []  # how many captures there were when workspaces were freed

    def namespace(self) -> SimpleNamespace:
        return SimpleNamespace(
            CUDAGraph=self.CUDAGraph, Stream=lambda device: "aside", stream=self.stream,
            current_stream=lambda device: self.now, device=nullcontext, graph=self.graph,
            graph_pool_handle=lambda: (0, 7), default_generators=[self.default],
            empty_cache=self.empty_cache,
        )  # fmt: skip

    def of_c(self) -> SimpleNamespace:
        """What there is of it below Python."""

        def end(device: int, pool: tuple[int, int]) -> None:
            assert device == 0
            self.underway.remove(pool)

        return SimpleNamespace(
            _cuda_endAllocateToPool=end, _cuda_releasePool=lambda device, pool: None,
            _cuda_clearCublasWorkspaces=lambda: self.cleared.append(self.captures),
        )  # fmt: skip

    def empty_cache(self) -> None:
        if self.underway:
            raise RuntimeError("captures_underway.empty() INTERNAL ASSERT FAILED")
        self.emptied += 1

    def CUDAGraph(self) -> Any:  # noqa: N802
        graph = SimpleNamespace(states=[], replays=0)
        graph.register_generator_state = graph.states.append
        self.graphs.append(graph)
        return graph

    @contextmanager
    def stream(self, stream: str) -> Iterator[None]:
        before, self.now = self.now, stream
        try:
            yield
        finally:
            self.now = before

    @contextmanager
    def graph(
        self, graph: Any, pool: Any, *, stream: str, capture_error_mode: str
    ) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        before, self.now = self.now, stream
        self.captures += 1
        self.underway.add(pool)
        self.default.state = "captured"
        try:
            yield
        finally:
            # the end of a recording that failed raises before anything is put back
            if self.fails:
                raise RuntimeError("operation would make the legacy stream depend on another")
            self.now, self.default.state = before, "before"
            self.underway.remove(pool)


class Draws:
    """A generator; a recording that fails leaves its state of no use."""

    def __init__(self) -> None:
        self.state = "before"

    def clone_state(self) -> str:
        return f"{self.state}, a copy"

    def graphsafe_set_state(self, state: str) -> None:
        self.state = state


@pytest.mark.parametrize("fails", [False, True])
def test_after_a_recording_the_stream_is_what_it_was(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda, generator = Cuda(fails), Draws()
    monkeypatch.setattr(torch, "cuda", cuda.namespace())
    monkeypatch.setattr(torch, "_C", cuda.of_c())
    monkeypatch.setattr(CudaGraphCapture, "_failed", "")
    seen = []

    def work() -> torch.Tensor:
        seen.append(cuda.now)
        return torch.ones(1)

    capturer = CudaGraphCapture("cuda:0")
    if fails:
        with pytest.raises(RuntimeError, match="legacy stream"):
            capturer.capture(work, generator)  # type: ignore[arg-type]
    else:
        capturer.capture(work, generator)  # type: ignore[arg-type]
    assert seen == ["aside"]
    assert cuda.now == "default"
    # those of cuBLAS would stay in the graph's own memory
    assert cuda.cleared == [0, 1]
    assert cuda.graphs[0].states == [generator]
    for each in (generator, cuda.default):
        assert each.state == ("before, a copy" if fails else "before")
    # nor does the allocator go on believing that there is a capture
    free_pools()
    assert cuda.emptied == 1
    if fails:
        with pytest.raises(RuntimeError, match="a capture before this one failed: operation would"):
            capturer.capture(work, generator)  # type: ignore[arg-type]
        assert cuda.captures == 1


def test_an_allocator_that_a_capture_has_spoilt_loses_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = Cuda(fails=True)
    cuda.underway.add("a capture that PyTorch was not told the end of")
    monkeypatch.setattr(torch, "cuda", cuda.namespace())
    with pytest.raises(RuntimeError, match="INTERNAL ASSERT"):
        cuda.empty_cache()
    free_pools()
    assert cuda.emptied == 0
