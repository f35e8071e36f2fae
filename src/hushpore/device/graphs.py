"""Work of a fixed shape, captured once as a CUDA graph and then replayed.

A training step consists of some 300 small kernels, and the GPU waits for the host to launch each. A
CUDA graph launches all of them at once: on an H200 a training step took a fifth of the time, tiles
of 64 x 64 a sixth, and tiles of 576 x 576 a twentieth less. Captured work must not read anything on
the host, and has its inputs in the same memory each time.
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

#: Number of warm-up calls before the capture.
WARM_UP = 3

#: Maximum number of shapes with a graph; the least recently used is freed first.
MAX_SHAPES = 8


class CudaGraphCapture:
    """Captures work on a device as CUDA graphs.

    After a failed capture no other is tried in this process: PyTorch may still believe that it is
    capturing.
    """

    _failed: ClassVar[str] = ""  # error message of the failed capture

    def __init__(self, device: str) -> None:
        self._device = device

    def room(self) -> tuple[int, int]:
        """Return the number of bytes that a graph may need, and the number of free bytes.

        The need is estimated as the memory that PyTorch has reserved but does not use between
        calls.
        """
        held = torch.cuda.memory_reserved(self._device)
        needed = held - torch.cuda.memory_allocated(self._device)
        return int(needed), int(torch.cuda.mem_get_info(self._device)[0])

    def capture(
        self, work: Callable[[], torch.Tensor], generator: torch.Generator | None
    ) -> CapturedGraph:
        """Capture work without running it; raises an exception if that is impossible.

        The sequence of random numbers is the same as without a graph.
        """
        if CudaGraphCapture._failed:
            raise RuntimeError(f"an earlier capture failed: {CudaGraphCapture._failed}")
        graph = torch.cuda.CUDAGraph()
        pool = torch.cuda.graph_pool_handle()
        number = torch.device(self._device).index or 0
        # PyTorch always captures the default generator of the device as well
        generators = [torch.cuda.default_generators[number]]
        if generator is not None:
            graph.register_generator_state(generator)
            generators.append(generator)
        spares = [each.clone_state() for each in generators]
        try:
            # PyTorch's default capture stream belongs to the device of the first capture
            stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            # after a failed capture PyTorch would leave the capture stream current
            present = torch.cuda.stream(torch.cuda.current_stream(self._device))
            # other threads may copy during the capture
            capture = torch.cuda.graph(
                graph, pool=pool, stream=stream, capture_error_mode="thread_local"
            )
            # this stream could get the workspace of an earlier one
            free_workspaces()
            with torch.cuda.device(self._device), present, capture:
                result = work()
        except Exception as error:
            CudaGraphCapture._failed = first_line(error)
            # the old states still believe that they are being captured
            for each, spare in zip(generators, spares, strict=True):
                each.graphsafe_set_state(spare)
            _end_pool(number, pool)
            raise
        finally:
            # otherwise cuBLAS keeps workspaces of the capture stream in the graph's pool
            free_workspaces()
        return CapturedGraph(graph, result)


def _end_pool(number: int, pool: Any) -> None:
    """Tell PyTorch's allocator that a failed capture has ended.

    PyTorch before 2.12 does not do so, and then never releases memory again.
    """
    for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
        # already ended, or another PyTorch version
        with contextlib.suppress(Exception):
            getattr(torch._C, name)(number, pool)


class CapturedGraph:
    """A captured CUDA graph."""

    def __init__(self, graph: torch.cuda.CUDAGraph, result: torch.Tensor) -> None:
        self._graph, self._result = graph, result

    def replay(self) -> torch.Tensor:
        """Run the work again on the memory of its inputs; overwrites and returns the result."""
        self._graph.replay()
        return self._result

    def release(self) -> None:
        """Free the memory of the graph."""
        self._graph.reset()


class _Entry:
    """The graph of one shape, if captured, and the memory of its inputs."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_plain = False
        self.graph: CapturedGraph | None = None
        self.inputs: tuple[torch.Tensor, ...] = ()


class GraphReplays:
    """Runs work of fixed shapes, replayed from a CUDA graph after the first calls.

    `name`: of the work, for the record: ``"training steps"``. `choices`: the switches of the user;
    decisions are recorded in it.
    """

    def __init__(self, name: str, capturer: CudaGraphCapture, choices: Choices) -> None:
        self._name, self._capturer, self._choices = name, capturer, choices
        self._asked = choices.asked("graphs")
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        if self._asked is False:
            self._say(False, "as requested")

    def call(
        self,
        key: Hashable,
        work: Work,
        *inputs: torch.Tensor,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Return the result of ``work(*inputs)``, valid until the next call.

        `key`: identifies the work, together with the shapes of its inputs. `work`: queues work on
        the device and reads nothing on the host. ``*inputs``: tensors that vary between calls.
        `generator`: random generator of the work, if it has its own.
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
        """Free all graphs."""
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
            reason = f"needs up to {readable_bytes(needed)} more; {readable_bytes(free)} free"
            entry.is_plain = not self._say(False, reason)
            return
        try:
            entry.inputs = tuple(each.clone() for each in inputs)
            entry.graph = self._capturer.capture(lambda: work(*entry.inputs), generator)
        except Exception as error:
            # whatever the error, the plain way still works
            entry.is_plain = not self._say(False, f"capture failed: {first_line(error)}")
            entry.inputs = ()
            return
        self._say(True, "by default" if self._asked is None else "as requested")

    def _forget(self, entry: _Entry) -> None:
        if entry.graph is not None:
            entry.graph.release()
        entry.graph, entry.inputs = None, ()

    def _say(self, is_on: bool, reason: str) -> bool:
        return self._choices.record(f"graphs of {self._name}", is_on, reason)


def _layout(values: torch.Tensor) -> tuple[object, ...]:
    return (tuple(values.shape), values.stride(), values.dtype)
