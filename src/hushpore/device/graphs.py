"""Work of a fixed shape that is captured once as a CUDA graph and replayed, where that is faster.

A training step is some 250 small kernels, each launched by the host; a GPU that is quicker than
these launches waits for them. A CUDA graph is all of them in one launch. What is captured must not
read anything on the host, and finds its inputs in the same memory each time.

Capturing is tried while the job runs: some calls as ever, then a capture and as many replays; all
of them are work that has to be done, and what was slower is not used again. It is the calls of the
job itself that are compared, not a replay with its own capture.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from hushpore.base.errors import first_line
from hushpore.base.readable import readable_bytes
from hushpore.device.memory import free_workspaces
from hushpore.device.switches import WINS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from hushpore.device.clocks import Clock
    from hushpore.device.switches import Choices

    Work = Callable[..., torch.Tensor]

#: Calls before anything is timed, in which libraries warm up; and calls that are timed of each way.
WARM_UP, TRIAL = 3, 8

#: Shapes that are remembered; the one that was not used for longest goes first.
MAX_SHAPES = 8


class CudaGraphCapture:
    """Records work on a device as CUDA graphs.

    After a capture that failed none is tried any more in this process: PyTorch may be left
    believing that it goes on.
    """

    _failed: ClassVar[str] = ""  # what the one that failed said

    def __init__(self, device: str) -> None:
        self._device = device

    def room(self) -> tuple[int, int]:
        """Return how many bytes a graph may take, and how many are free.

        Taken is what PyTorch has set aside and does not use: what the work needed, between calls.
        """
        held = torch.cuda.memory_reserved(self._device)
        needed = held - torch.cuda.memory_allocated(self._device)
        return int(needed), int(torch.cuda.mem_get_info(self._device)[0])

    def capture(
        self, work: Callable[[], torch.Tensor], generator: torch.Generator | None
    ) -> CapturedGraph:
        """Record work without doing it; any exception means that it cannot be.

        Random numbers go on as if there were no graph.
        """
        if CudaGraphCapture._failed:
            raise RuntimeError(f"a capture before this one failed: {CudaGraphCapture._failed}")
        graph = torch.cuda.CUDAGraph()
        pool = torch.cuda.graph_pool_handle()
        number = torch.device(self._device).index or 0
        # PyTorch captures the device's own generator, too, whether it is used or not
        generators = [torch.cuda.default_generators[number]]
        if generator is not None:
            graph.register_generator_state(generator)
            generators.append(generator)
        spares = [each.clone_state() for each in generators]
        try:
            # PyTorch's own stream for this is of the device that was captured on first
            stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            # where capturing fails, PyTorch leaves its stream the current one
            present = torch.cuda.stream(torch.cuda.current_stream(self._device))
            # other threads may copy meanwhile
            capture = torch.cuda.graph(
                graph, pool=pool, stream=stream, capture_error_mode="thread_local"
            )
            # the workspace of an earlier stream may be handed out again with this one
            free_workspaces()
            with torch.cuda.device(self._device), present, capture:
                result = work()
        except Exception as error:
            CudaGraphCapture._failed = first_line(error)
            # the old states would go on believing that they are being captured
            for each, spare in zip(generators, spares, strict=True):
                each.graphsafe_set_state(spare)
            _end_pool(number, pool)
            raise
        finally:
            # else cuBLAS keeps those of this capture's stream in the graph's own pool for good
            free_workspaces()
        return CapturedGraph(graph, result)


def _end_pool(number: int, pool: Any) -> None:
    """Tell PyTorch's allocator that a capture which failed is over.

    Before PyTorch 2.12 it is not told, and then refuses to give any memory back.
    """
    for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
        # told already, or of another version
        with contextlib.suppress(Exception):
            getattr(torch._C, name)(number, pool)


class CapturedGraph:
    """Work that was captured."""

    def __init__(self, graph: torch.cuda.CUDAGraph, result: torch.Tensor) -> None:
        self._graph, self._result = graph, result

    def replay(self) -> torch.Tensor:
        """Do it again, from the same inputs' memory; the result lies where it did before."""
        self._graph.replay()
        return self._result

    def release(self) -> None:
        """Give its memory back."""
        self._graph.reset()


class _Entry:
    """One shape: how far its trial is, and its graph."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_plain = self.is_settled = False
        self.graph: CapturedGraph | None = None
        self.inputs: tuple[torch.Tensor, ...] = ()
        self.marks: list[Any] = []


class GraphReplays:
    """Calls work of fixed shapes, replayed from a graph where that is faster.

    `what`: what the work is, for the record: ``"training steps"``. `choices`: what the user wants;
    told what was decided.
    """

    def __init__(
        self,
        what: str,
        capturer: CudaGraphCapture,
        clock: Clock,
        choices: Choices,
    ) -> None:
        self._what, self._capturer, self._clock, self._choices = what, capturer, clock, choices
        self._asked = choices.asked("graphs")
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        if self._asked is False:
            self._say(False, "as asked")

    def call(
        self,
        key: Hashable,
        work: Work,
        *inputs: torch.Tensor,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Return what ``work(*inputs)`` does.

        `key`: what the work depends on, beside its inputs: other work has another. `work`: queues
        work on the device without reading anything on the host. ``*inputs``: what varies from call
        to call. `generator`: the source of its random numbers, where it has one of its own.
        Returns: valid until the next call.
        """
        if self._asked is False:
            return work(*inputs)
        entry = self._entry((key, *(_layout(each) for each in inputs)))
        due = WARM_UP + (0 if self._asked else TRIAL)
        if not entry.is_plain and entry.graph is None and entry.calls == due:
            self._capture(entry, work, inputs, generator)
        if not entry.is_settled:
            self._try(entry)
        entry.calls += 1
        if entry.graph is None:
            return work(*inputs)
        for static, given in zip(entry.inputs, inputs, strict=True):
            static.copy_(given)
        return entry.graph.replay()

    def release(self) -> None:
        """Forget all graphs."""
        while self._entries:
            self._forget(self._entries.popitem()[1])

    def _entry(self, key: Hashable) -> _Entry:
        entry = self._entries.pop(key, None) or _Entry()
        self._entries[key] = entry
        if len(self._entries) > MAX_SHAPES:
            self._forget(self._entries.popitem(last=False)[1])
        return entry

    def _try(self, entry: _Entry) -> None:
        """Take the times of the trial, and settle it once they are there."""
        if self._asked:
            entry.is_settled = True
            return
        # plain calls from the first mark to the second, replays from the third to the fourth
        if entry.calls in (WARM_UP, WARM_UP + TRIAL, WARM_UP + 2 * TRIAL):
            entry.marks.append(self._clock.mark())
        if entry.is_plain:
            self._settle(entry)
        elif len(entry.marks) == 4 and (
            None in entry.marks or all(map(self._clock.has_reached, entry.marks))
        ):
            self._decide(entry)

    def _decide(self, entry: _Entry) -> None:
        if None in entry.marks:
            wins, reason = False, "their time could not be taken"
        else:
            plain, replayed = (self._clock.seconds(*entry.marks[i : i + 2]) for i in (0, 2))
            ratio = plain / max(replayed, 1e-9)
            wins = ratio >= WINS
            reason = f"{ratio:.2f} times as fast as without"
        self._settle(entry)
        self._say(wins, reason)
        if not wins:
            self._forget(entry)
            entry.is_plain = True

    def _settle(self, entry: _Entry) -> None:
        entry.is_settled = True
        self._give_back(entry)

    def _capture(
        self,
        entry: _Entry,
        work: Work,
        inputs: tuple[torch.Tensor, ...],
        generator: torch.Generator | None,
    ) -> None:
        if not self._asked:
            entry.marks.append(self._clock.mark())
        needed, free = self._capturer.room()
        if 2 * needed > free:
            reason = f"{readable_bytes(needed)} more may be needed, {readable_bytes(free)} are free"
            entry.is_plain = not self._say(False, reason)
            return
        try:
            entry.inputs = tuple(each.clone() for each in inputs)
            entry.graph = self._capturer.capture(lambda: work(*entry.inputs), generator)
        except Exception as error:
            # whatever it is: the plain way is still there
            entry.is_plain = not self._say(False, f"could not be captured: {first_line(error)}")
            entry.inputs = ()
            return
        if self._asked:
            self._say(True, "as asked")

    def _forget(self, entry: _Entry) -> None:
        if entry.graph is not None:
            entry.graph.release()
        entry.graph, entry.inputs = None, ()
        self._give_back(entry)

    def _give_back(self, entry: _Entry) -> None:
        for mark in entry.marks:
            if mark is not None:
                self._clock.release(mark)
        entry.marks.clear()

    def _say(self, is_on: bool, reason: str) -> bool:
        return self._choices.say(f"graphs of {self._what}", is_on, reason)


def _layout(values: torch.Tensor) -> tuple[object, ...]:
    return (tuple(values.shape), values.stride(), values.dtype)
