"""Copies between host and device: in chunks through pinned memory, or plain ones if they are small.

A plain copy is the driver's: it goes through a small buffer that the device can read, and the host
waits. Here the host fills one *pinned* buffer, which the device reads by itself, while the device
empties another. On an H200 that was 1.4 to 2.1 times as fast upwards, and 5 times downwards.

A buffer is used again only after the event behind its copy has happened, and nothing that arrives
in one is looked at before.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.errors import first_line
from hushpore.device.switches import WINS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from hushpore.base.rescaled import Scaled
    from hushpore.device.switches import Choices

#: Bytes of a pinned buffer, and how many there are for each direction.
CHUNK, SLOTS = 16 << 20, 3

#: Threads that fill pinned buffers and empty them: a bus takes what several cores copy. And bytes
#: from which on there is more than one.
_COPYING, _WORTH = 4, 1 << 20

#: Values that are scaled at once: 128 MB in float64.
_SCALED = 1 << 24

#: Chunks of an array from which on pinned buffers are worth making: that takes some 10 ms.
_LEAST = 4


class CudaBus:
    """What copies take of a CUDA device."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._streams: dict[str, Any] = {}

    def pinned(self, nbytes: int) -> torch.Tensor:
        """Return memory of the host, uint8, that the device can read; RuntimeError without."""
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Begin a copy between pinned memory and the device, in the current stream."""
        target.copy_(source, non_blocking=True)

    def record_event(self) -> torch.cuda.Event:
        """Return the present end of the current stream."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def side_stream(self, way: str = "up") -> AbstractContextManager[Any]:
        """Return the context of a stream beside the computing, one a job for each way."""
        if way not in self._streams:
            self._streams[way] = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        return torch.cuda.stream(self._streams[way])

    def wait_event(self, values: torch.Tensor, event: torch.cuda.Event) -> None:
        """Have the current stream wait for an event of another, from where `values` are.

        On the device, not on the host; and keep the memory from being reused too soon.
        """
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(event)
        values.record_stream(stream)


class _Slot:
    """A pinned buffer, and the end of its last copy."""

    def __init__(self, bus: CudaBus, nbytes: int) -> None:
        self.tensor = bus.pinned(nbytes)
        self.array = self.tensor.numpy()
        self.event: torch.cuda.Event | None = None

    def free(self) -> _Slot:
        """Wait until its last copy is over."""
        if self.event is not None:
            self.event.synchronize()
            self.event = None
        return self


class Staging:
    """A few pinned buffers, made when they are first needed and used in turn."""

    def __init__(self, bus: CudaBus, chunk: int = CHUNK, slots: int = SLOTS) -> None:
        self._bus, self._chunk, self._count = bus, chunk, slots
        self._slots: deque[_Slot] = deque()
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Make the buffers; RuntimeError where there are none to be had."""
        while len(self._slots) < self._count:
            self._slots.append(_Slot(self._bus, self._chunk))

    def up(self, source: npt.NDArray[np.uint8], target: torch.Tensor) -> None:
        """Begin to copy bytes to the device; the host may change `source` afterwards."""
        with self._lock:
            self.prepare()
            for first, last in _cuts(source.size, self._chunk):
                slot = self._next()
                copy_bytes(slot.array[: last - first], source[first:last])
                self._bus.copy(target[first:last], slot.tensor[: last - first])
                slot.event = self._bus.record_event()

    def down(self, source: torch.Tensor, target: npt.NDArray[np.uint8]) -> None:
        """Copy bytes from the device; returns when all are there."""
        with self._lock:
            self.prepare()
            under_way: deque[tuple[_Slot, int, int]] = deque()
            for first, last in _cuts(target.size, self._chunk):
                if len(under_way) == self._count:
                    _arrive(target, *under_way.popleft())
                slot = self._next()
                self._bus.copy(slot.tensor[: last - first], source[first:last])
                slot.event = self._bus.record_event()
                under_way.append((slot, first, last))
            for each in under_way:
                _arrive(target, *each)

    def release(self) -> None:
        """Let the buffers go, once the device has done with them."""
        with self._lock:
            for slot in self._slots:
                slot.free()
            self._slots.clear()

    def _next(self) -> _Slot:
        self._slots.rotate(-1)
        return self._slots[-1].free()


@dataclass
class PendingUpload:
    """An array on its way to the device; see `Transfers.upload_ahead`."""

    nbytes: int
    result: Callable[[], torch.Tensor]  # returns it, for use in the current stream; called once


class Transfers:
    """Copies arrays to and from a device.

    `bus`: None on the CPU, where nothing crosses. `choices`: what the user wants; told what was
    decided. `clock`: seconds; for tests.
    """

    def __init__(
        self,
        device: str,
        bus: CudaBus | None,
        choices: Choices,
        chunk: int = CHUNK,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._device, self._bus, self.choices, self._chunk = device, bus, choices, chunk
        self._clock = clock
        self._staging: dict[str, Staging] = {}
        self._is_pinned: dict[str, bool] = {}
        self._streams: bool | None = None
        self._behind: ThreadPoolExecutor | None = None
        # of the uploads that were not aside: when the first began, how many, and how long
        self._begun, self._uploads, self._uploading = 0.0, 0, 0.0

    def upload(self, values: npt.NDArray[Any]) -> torch.Tensor:
        """Copy an array to the device as it is: conversion is cheaper there than on the bus."""
        start = self._clock()
        on_device = self._upload(values)
        self._begun = self._begun or start
        self._uploads += 1
        self._uploading += self._clock() - start
        return on_device

    def download(
        self, values: torch.Tensor, out: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any]:
        """Copy a tensor to the host, into `out` where there is one; waits for the device."""
        return self._download(values, out, "down")

    def download_behind(self, values: torch.Tensor, out: npt.NDArray[Any]) -> Callable[[], None]:
        """Begin to copy a tensor to the host, beside what is computed after it, where that pays.

        Returns: what waits until all of it is there, and raises what went wrong; called once.
        """
        bus = self._bus
        if bus is None or not self._may_stream():
            self.download(values, out)
            return lambda: None
        computed = bus.record_event()
        if self._behind is None:
            self._behind = ThreadPoolExecutor(1, "hushpore downloads")

        def copy() -> None:
            with bus.side_stream("down"):
                bus.wait_event(values, computed)
                # whoever has made the tensor may not have its memory before all has arrived
                self._download(values, out, "behind")

        return self._behind.submit(copy).result

    def _download(
        self, values: torch.Tensor, out: npt.NDArray[Any] | None, slots: str
    ) -> npt.NDArray[Any]:
        """Do as `download`, through some pinned buffers, where these are used."""
        bus = self._bus
        if bus is None or not self._may_pin("down", bus, values.nbytes):
            if out is None:
                array: npt.NDArray[Any] = values.cpu().numpy()
                return array
            torch.from_numpy(out).copy_(values)
            return out
        source = _bytes_of(values)
        if out is None:
            out = np.empty(tuple(values.shape), str(values.dtype).removeprefix("torch."))
        self._buffers(slots, bus).down(source, out.reshape(-1).view(np.uint8))
        return out

    def upload_ahead(self, values: npt.NDArray[Any]) -> PendingUpload:
        """Begin to copy an array to the device beside what is computed, where that pays.

        May be called in another thread than the rest. Where it does not pay the array is copied
        when it is asked for.
        """
        bus = self._bus
        if bus is None or not self._may_stream():
            return PendingUpload(values.nbytes, lambda: self.upload(values))
        with bus.side_stream():
            on_device = self._upload(values)
            event = bus.record_event()

        def arrive() -> torch.Tensor:
            bus.wait_event(on_device, event)
            return on_device

        return PendingUpload(values.nbytes, arrive)

    def _buffers(self, slots: str, bus: CudaBus) -> Staging:
        """Return the buffers of what comes down, so that one thread does not wait for another."""
        staging = self._staging.setdefault(slots, Staging(bus, self._chunk))
        try:
            staging.prepare()
        except RuntimeError:
            # there is no more pinned memory than that of the others
            staging.release()
            return self._staging["down"]
        return staging

    def release(self) -> None:
        """Let the pinned buffers go."""
        if self._behind is not None:
            self._behind.shutdown()
            self._behind = None
        for staging in self._staging.values():
            staging.release()

    def _upload(self, values: npt.NDArray[Any]) -> torch.Tensor:
        bus = self._bus
        if bus is None or not self._may_pin("up", bus, values.nbytes):
            return _tensor(values).to(self._device)
        source = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        dtype = torch.from_numpy(np.empty(0, values.dtype)).dtype
        on_device = torch.empty(values.shape, dtype=dtype, device=self._device)
        self._staging["up"].up(source, _bytes_of(on_device))
        return on_device

    def _may_pin(self, way: str, bus: CudaBus, nbytes: int) -> bool:
        """Whether copies of so many bytes go through pinned buffers; these are made here."""
        if way in self._is_pinned:
            return self._is_pinned[way]
        asked = self.choices.asked("pinned")
        if asked is None and nbytes < _LEAST * self._chunk:
            if not self._is_pinned:
                self.choices.say("pinned", False, f"{nbytes / 1e6:.3g} MB are too little")
            return False
        reason = "by default" if asked is None else "as asked"
        is_on = asked is not False
        if is_on:
            staging = self._staging.setdefault(way, Staging(bus, self._chunk))
            try:
                staging.prepare()
            except RuntimeError as error:
                staging.release()
                is_on, reason = False, f"memory cannot be pinned: {first_line(error)}"
        self._is_pinned[way] = self.choices.say("pinned", is_on, reason)
        return is_on

    def _may_stream(self) -> bool:
        if self._streams is None:
            asked = self.choices.asked("stream")
            if asked is not None:
                self._streams = self.choices.say("stream", asked, "as asked")
            elif self._uploads >= 2:
                share = self._uploading / max(self._clock() - self._begun, 1e-9)
                # all that it could hide
                wins, reason = (
                    share >= 1 - 1 / WINS,
                    f"copying up takes {100 * share:.0f} % of the time",
                )
                self._streams = self.choices.say("stream", wins, reason)
        return bool(self._streams)


def grey_values(stored: torch.Tensor, scaled: Scaled) -> torch.Tensor:
    """Return what `numpy.asarray` gives of scaled integers, to the bit, from a copy of them.

    `stored`: the integers, on any device.
    Returns: float32, on the same device.
    """
    values = torch.empty(stored.shape, dtype=torch.float32, device=stored.device)
    # in float64, so that it is rounded once, as on the host; in pieces, since that is much larger
    step = max(1, _SCALED // max(1, math.prod(stored.shape[1:])))
    for first in range(0, stored.shape[0], step):
        rows = slice(first, first + step)
        part = stored[rows].to(torch.float64)
        part *= _factor(scaled.slope, rows, stored.device)
        part += _factor(scaled.intercept, rows, stored.device)
        values[rows] = part
    return values


def _cuts(size: int, step: int) -> list[tuple[int, int]]:
    return [(start, min(start + step, size)) for start in range(0, size, step)]


def _arrive(target: npt.NDArray[np.uint8], slot: _Slot, first: int, last: int) -> None:
    slot.free()
    copy_bytes(target[first:last], slot.array[: last - first])


def copy_bytes(target: npt.NDArray[np.uint8], source: npt.NDArray[np.uint8]) -> None:
    """Copy from one array of the host to another of the same size, in several threads."""
    if source.size < _WORTH:
        target[:] = source
        return
    cuts = _cuts(source.size, -(-source.size // _COPYING))
    # each is waited for, and what it raises is raised
    list(_threads().map(lambda cut: np.copyto(target[slice(*cut)], source[slice(*cut)]), cuts))


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_COPYING, "hushpore copies")


def _tensor(values: npt.NDArray[Any]) -> torch.Tensor:
    # torch warns of read-only arrays, since it could write through them
    return torch.from_numpy(values if values.flags.writeable else np.array(values))


def _bytes_of(values: torch.Tensor) -> torch.Tensor:
    return values.contiguous().view(-1).view(torch.uint8)


def _factor(
    numbers: npt.NDArray[np.float64], rows: slice, device: torch.device
) -> torch.Tensor | float:
    return torch.from_numpy(numbers[rows]).to(device) if numbers.ndim else float(numbers)
