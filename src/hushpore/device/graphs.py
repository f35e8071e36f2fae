"""Work of a fixed shape, captured once as a CUDA graph and then replayed.

A training step is some 300 small kernels, each launched by the host, and the GPU waits for the
launches. A CUDA graph is all of them in one launch: on an H200 a training step took a fifth of the
time, tiles of 64 x 64 a sixth, and those of 576 x 576 a twentieth less. What is captured must not
read anything on the host, and finds its inputs in the same memory each time.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from hushpore.base.errors import first_line
from hushpore.base.formatting import readable_bytes
from hushpore.device.memory import free_workspaces

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from hushpore.device.switches import Choices

    Work = Callable[..., torch.Tensor]

#: Calls before the capture, in which libraries warm up.
WARM_UP = 3

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
    """One shape: its graph, once there is one, and the memory of its inputs."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_plain = False
        self.graph: CapturedGraph | None = None
        self.inputs: tuple[torch.Tensor, ...] = ()


class GraphReplays:
    """Calls work of fixed shapes, replayed from a graph after its first calls.

    `what`: what the work is, for the record: ``"training steps"``. `choices`: what the user wants;
    told what was decided.
    """

    def __init__(self, what: str, capturer: CudaGraphCapture, choices: Choices) -> None:
        self._what, self._capturer, self._choices = what, capturer, choices
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
        if not entry.is_plain and entry.graph is None and entry.calls == WARM_UP:
            self._capture(entry, work, inputs, generator)
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

    def _capture(
        self,
        entry: _Entry,
        work: Work,
        inputs: tuple[torch.Tensor, ...],
        generator: torch.Generator | None,
    ) -> None:
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
        self._say(True, "by default" if self._asked is None else "as asked")

    def _forget(self, entry: _Entry) -> None:
        if entry.graph is not None:
            entry.graph.release()
        entry.graph, entry.inputs = None, ()

    def _say(self, is_on: bool, reason: str) -> bool:
        return self._choices.say(f"graphs of {self._what}", is_on, reason)


def _layout(values: torch.Tensor) -> tuple[object, ...]:
    return (tuple(values.shape), values.stride(), values.dtype)
