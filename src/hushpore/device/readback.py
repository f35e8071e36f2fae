"""Delayed copies of small results to the host, so that the device never waits for the host."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from hushpore.base.arrays import Array
    from hushpore.device.backend import Backend
    from hushpore.device.timing import StageTimer


class Readback:
    """Copies small tensors to the host, and returns them once they have arrived.

    On a CUDA device each copy goes to pinned memory and is followed by an event; no value is read
    before its event. `push` lets the host run ahead of the device by at most `depth` copies, so
    that little queued work remains when a job is cancelled.

    `timer`: counts waiting for the device as a stage ``"waiting"``. `depth`: maximum number of
    copies in progress.
    """

    def __init__(self, backend: Backend, timer: StageTimer | None = None, depth: int = 4) -> None:
        self._bus = backend.bus()
        self._timer = timer
        self._depth = depth
        self._under_way: deque[tuple[Any, torch.Tensor, Any]] = deque()
        self._arrived: list[tuple[Any, Array]] = []

    def push(self, tag: Any, values: torch.Tensor) -> None:
        """Start copying `values`; `tag` is returned with them."""
        event = None
        if self._bus is not None:
            while len(self._under_way) >= self._depth:
                self._wait([self._under_way[0][2]])
                self._collect()
            room = self._bus.pinned(values.nbytes)
            host = room.view(values.dtype).reshape(values.shape)
            self._bus.copy(host, values.detach())
            event = self._bus.record_event()
        else:
            host = values.detach().to("cpu", copy=True)
        self._under_way.append((tag, host, event))

    def arrived(self) -> list[tuple[Any, Array]]:
        """Return the copies that have arrived since the last call, in order, without waiting."""
        self._collect()
        taken, self._arrived = self._arrived, []
        return taken

    def drain(self) -> list[tuple[Any, Array]]:
        """Wait for all copies in progress, and return them."""
        self._wait([event for _, _, event in self._under_way if event is not None])
        return self.arrived()

    def _wait(self, events: list[Any]) -> None:
        if all(event.query() for event in events):
            return
        waiting = nullcontext() if self._timer is None else self._timer.stage("waiting", syncs=1)
        with waiting:
            for event in events:
                event.synchronize()

    def _collect(self) -> None:
        while self._under_way:
            tag, host, event = self._under_way[0]
            if event is not None and not event.query():
                return
            self._under_way.popleft()
            self._arrived.append((tag, host.numpy()))
