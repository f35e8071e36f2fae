"""Replaying recorded work: when it is tried, when it is kept, and what happens where it fails."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from hushpore.device.graphs import MAX_SHAPES, WARM_UP, CudaGraphCapture, GraphReplays
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


class Bench:
    """Calls work, and counts how often it was done plainly."""

    def __init__(self, **switches: str) -> None:
        self.capturer, self.choices = GraphCapture(), Choices(Switches(**switches))
        self.replays = GraphReplays("steps", self.capturer, self.choices)  # type: ignore[arg-type]
        self.plainly = 0

    def work(self, values: torch.Tensor) -> torch.Tensor:
        self.plainly += 1
        return values + 1

    def call(self, times: int = 1, key: str = "", size: int = 3) -> None:
        for number in range(times):
            values = torch.full((size,), float(number))
            result = self.replays.call(key, self.work, values)
            assert result.tolist() == [number + 1] * size

    def said(self) -> str:
        return self.choices.lines()["graphs of steps"]


@pytest.mark.parametrize(
    ("switches", "said"), [({}, "on, by default"), ({"graphs": "on"}, "on, as requested")]
)
def test_after_the_first_calls_work_is_replayed(switches: dict[str, str], said: str) -> None:
    bench = Bench(**switches)
    bench.call(WARM_UP)
    assert not bench.capturer.tapes
    bench.call(50)
    assert bench.capturer.replays == 50
    assert bench.said() == said


def test_work_is_done_plainly_where_the_user_wants_it_so() -> None:
    bench = Bench(graphs="off")
    bench.call(50)
    assert bench.plainly == 50
    assert bench.said() == "off, as requested"


@pytest.mark.parametrize("problem", [RuntimeError("no\nway"), torch.OutOfMemoryError("no")])
def test_what_cannot_be_recorded_goes_on_plainly(problem: Exception) -> None:
    bench = Bench()
    bench.capturer.problem = problem
    bench.call(50)
    assert bench.plainly == 50
    assert bench.said() == "off, capture failed: no"


def test_nothing_is_recorded_where_memory_is_short() -> None:
    bench = Bench(graphs="on")
    bench.capturer.needed = 600
    bench.call(50)
    assert not bench.capturer.tapes
    assert bench.said() == "off, needs up to 600 B more; 1 kB free"


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
        with pytest.raises(RuntimeError, match="an earlier capture failed: operation would"):
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
