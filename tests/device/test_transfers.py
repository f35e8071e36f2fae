"""Copies to and from a device that does them as late as it may."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushpore.base.rescaled import Scaled
from hushpore.denoising.images import Images
from hushpore.denoising.model import Architecture, build_network
from hushpore.denoising.training.step import BatchSampler, Learner
from hushpore.device import transfers as copying
from hushpore.device.backend import Backend, choose_backend
from hushpore.device.switches import Choices, Switches
from hushpore.device.timing import HostClock, StageTimer
from hushpore.device.transfers import SLOTS, CudaBus, Readback, Staging, Transfers

if TYPE_CHECKING:
    from collections.abc import Callable


CHUNK = 64


class SlowBus:
    """Tensors of the CPU that stand for a device's; see `hushpore.device.transfers.CudaBus`.

    A copy happens when somebody waits for a moment after it, and not before: what is read or
    written too soon shows.
    """

    def __init__(self, most_pinned: int = 1 << 30) -> None:
        self.left = most_pinned
        self.pins: list[int] = []
        self.waits = 0
        self.copied = 0
        self._queue: deque[Callable[[], None]] = deque()
        self._done = self._begun = 0

    def pinned(self, nbytes: int) -> torch.Tensor:
        if nbytes > self.left:
            raise RuntimeError("cannot lock pages\nand more that nobody wants to read")
        self.left -= nbytes
        self.pins.append(nbytes)
        return torch.empty(nbytes, dtype=torch.uint8)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        def happen() -> None:
            target.copy_(source)

        self.copied += target.numel()
        self._queue.append(happen)
        self._begun += 1

    def record_event(self) -> SlowEvent:
        return SlowEvent(self, self._begun)

    def reach(self, number: int) -> None:
        while self._done < number:
            self._queue.popleft()()
            self._done += 1

    def finish(self) -> None:
        self.reach(self._begun)


class SlowEvent:
    def __init__(self, bus: SlowBus, number: int) -> None:
        self.bus, self.number = bus, number

    def query(self) -> bool:
        return self.bus._done >= self.number

    def synchronize(self) -> None:
        if not self.query():
            self.bus.waits += 1
        self.bus.reach(self.number)


def transfers(bus: SlowBus | None, **switches: str) -> Transfers:
    return Transfers("cpu", bus, Choices(Switches(**switches)), CHUNK)  # type: ignore[arg-type]


def said(of: Transfers, name: str = "pinned") -> str:
    return of.choices.lines()[name]


@given(
    length=st.integers(1, 5 * CHUNK),
    slots=st.integers(1, 4),
    dtype=st.sampled_from(["?", "u1", "i2", "u2", "f4", "i8", "f8"]),
    rounds=st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_what_goes_up_and_comes_down_late_is_whole(
    length: int, slots: int, dtype: str, rounds: int
) -> None:
    bus = SlowBus()
    staging = Staging(bus, CHUNK, slots)
    for seed in range(rounds):
        values = np.random.default_rng(seed).integers(0, 255, length).astype(dtype)
        there = torch.zeros(values.nbytes, dtype=torch.uint8)
        source = values.view(np.uint8).copy()
        staging.up(source, there)
        # the host may do with its array what it likes
        source[:] = 77
        back = np.zeros(values.nbytes, np.uint8)
        staging.down(there, back)
        np.testing.assert_array_equal(back.view(dtype), values)
    assert bus.pins == [CHUNK] * slots


def test_a_buffer_is_waited_for_only_when_its_turn_comes_again() -> None:
    bus = SlowBus()
    there = torch.zeros(SLOTS * CHUNK, dtype=torch.uint8)
    Staging(bus, CHUNK).up(np.ones(SLOTS * CHUNK, np.uint8), there)
    assert bus.waits == 0
    assert not there.any()
    bus.finish()
    assert there.all()


def test_on_the_cpu_nothing_is_pinned_and_nothing_decided() -> None:
    here = transfers(None)
    values = np.arange(6, dtype=np.uint16)
    np.testing.assert_array_equal(here.download(here.upload(values)), values)
    assert said(here) == "off, not needed"


def test_little_crosses_plainly() -> None:
    bus = SlowBus()
    moved = transfers(bus)
    values = np.ones(4 * CHUNK - 1, np.uint8)
    np.testing.assert_array_equal(moved.download(moved.upload(values)), values)
    assert bus.pins == []
    assert said(moved) == "off, 0.000255 MB are too few"


def test_much_crosses_through_pinned_buffers_from_the_first_chunk_on() -> None:
    bus = SlowBus()
    moved = transfers(bus)
    values = np.random.default_rng(0).integers(0, 2**16, 20 * CHUNK).astype(np.uint16)
    there = moved.upload(values)
    bus.finish()
    np.testing.assert_array_equal(there, values)
    assert said(moved) == "on, by default"
    assert bus.copied == values.nbytes
    np.testing.assert_array_equal(moved.download(there), values)
    assert bus.copied == 2 * values.nbytes


@pytest.mark.parametrize("pinned", ["on", "off"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_bytes_come_down_as_values_of_their_type_into_a_wider_one(
    pinned: str, dtype: type[np.generic]
) -> None:
    moved = transfers(SlowBus(), pinned=pinned)
    values = np.random.default_rng(0).integers(0, 250, (20, 7 * CHUNK)).astype(dtype)
    there = torch.from_numpy(values.view(np.uint8))
    found = np.zeros(values.shape, np.int32)
    for first in (10, 0):
        moved.download(there[first : first + 10], found[first : first + 10], dtype)
    np.testing.assert_array_equal(found, values)


def test_copies_beside_other_work_go_on_in_order_and_end_with_it() -> None:
    moved, done, goes_on = transfers(None), list[int](), threading.Event()
    first = moved.beside(lambda: (goes_on.wait(10), done.append(1)))
    second = moved.beside(done.append, 2)
    third = moved.beside(done.append, 3)
    goes_on.set()
    second.result(10)
    assert done[:2] == [1, 2]
    assert first.done()
    goes_on.clear()
    moved.beside(goes_on.wait, 0.2)
    dropped = moved.beside(done.append, 4)
    moved.release()
    assert dropped.cancelled()
    assert third.done()
    assert done == [1, 2, 3]


def test_a_switch_decides_whatever_the_size() -> None:
    bus = SlowBus()
    on, off = transfers(bus, pinned="on"), transfers(bus, pinned="off")
    values = np.ones(100 * CHUNK, np.uint8)
    off.upload(values)
    assert bus.pins == []
    assert said(off) == "off, as requested"
    np.testing.assert_array_equal(on.download(on.upload(values[:5])), values[:5])
    assert bus.pins
    assert said(on) == "on, as requested"


def test_where_memory_cannot_be_pinned_copies_are_plain() -> None:
    bus = SlowBus(most_pinned=2 * CHUNK)
    moved = transfers(bus, pinned="on")
    values = np.arange(100 * CHUNK)
    np.testing.assert_array_equal(moved.upload(values), values)
    assert said(moved) == "off, memory cannot be pinned: cannot lock pages"
    assert bus.copied == 0


def test_read_only_and_strided_arrays_cross_too() -> None:
    moved = transfers(bus := SlowBus(), pinned="on")
    values = np.arange(600).reshape(20, 30)[:, ::2]
    values.flags.writeable = False
    there = moved.upload(values)
    bus.finish()
    np.testing.assert_array_equal(there, values)


def test_buffers_are_let_go_once_the_device_has_done_with_them() -> None:
    moved = transfers(bus := SlowBus(), pinned="on")
    values = np.arange(CHUNK, dtype=np.uint8)
    there = moved.upload(values)
    assert not np.array_equal(there, values)
    moved.release()
    np.testing.assert_array_equal(there, values)
    assert bus.waits == 1


@pytest.mark.gpu
@pytest.mark.parametrize("pinned", ["auto", "on", "off"])
@pytest.mark.parametrize("dtype", ["u2", "f4"])
def test_arrays_cross_to_a_gpu_and_back_whole(pinned: str, dtype: str) -> None:
    device = choose_backend("cuda").device
    choices = Choices(Switches(pinned=pinned))
    moved = Transfers(device, CudaBus(device), choices, 1 << 20)
    rng = np.random.default_rng(0)
    for size in (1000, 5_000_000, 9_000_000):
        values = rng.integers(0, 2**16, size).astype(dtype)
        np.testing.assert_array_equal(moved.download(moved.upload(values)), values)
    moved.release()
    expected = {"auto": "on, by default", "on": "on, as requested", "off": "off, as requested"}
    assert choices.lines()["pinned"] == expected[pinned]


LINES = {
    "whole numbers": (1.0, -1024.0),
    "fractions": (0.7301, -3.3),
    "its own for each slice": (np.linspace(0.5, 1.7, 7), np.arange(7) - 1000.1),
}


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "f4"])
@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_values_scaled_on_the_device_are_those_of_the_host_to_the_bit(
    monkeypatch, rng, dtype, line
):
    monkeypatch.setattr("hushpore.device.transfers._SCALED", 100)
    stored = rng.integers(0, 30_000, (7, 6, 5)).astype(dtype)
    scaled = Scaled(stored, *line)
    there = Backend().put(scaled)
    assert there.dtype == torch.float32
    np.testing.assert_array_equal(there.numpy(), np.asarray(scaled))


def test_the_integers_cross_and_nothing_is_read_back(monkeypatch):
    crossed = []
    original = Transfers.upload

    def counted(transfers, values):
        crossed.append(values.nbytes)
        return original(transfers, values)

    monkeypatch.setattr(Transfers, "upload", counted)
    scaled = Scaled(np.zeros((4, 8, 8), np.int16), 2.0, -1024.0)
    # reading any value of this device is an error
    there = Backend("meta").put(scaled)
    assert (there.shape, there.dtype) == ((4, 8, 8), torch.float32)
    assert crossed == [scaled.stored.nbytes]


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 1000, 4096 + 3])
def test_several_threads_copy_what_one_would(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_MIN_PARALLEL", 4)
    source = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    target = np.zeros(size + 2, np.uint8)
    copying.copy_values(target[1:-1], source)
    np.testing.assert_array_equal(target, [0, *source, 0])


class Event:
    """Happens when it is waited for."""

    def __init__(self, happened: bool) -> None:
        self.happened = happened

    def query(self) -> bool:
        return self.happened

    def synchronize(self) -> None:
        self.happened = True


class DeviceClock(HostClock):
    """The host's clock, taken for that of a device."""


def timer_of_a_device() -> StageTimer:
    return StageTimer(DeviceClock())


def test_what_has_not_happened_is_not_handed_out_and_not_waited_for() -> None:
    timer = timer_of_a_device()
    readback = Readback(None, timer)
    event = Event(False)
    readback._under_way.append(("loss", torch.ones(()), event))
    assert readback.arrived() == []
    assert not event.happened
    assert "waiting" not in timer.timing().stages


def test_waiting_for_the_rest_is_counted_once() -> None:
    timer = timer_of_a_device()
    readback = Readback(None, timer)
    for name in "ab":
        readback._under_way.append((name, torch.ones(()), Event(False)))
    assert [tag for tag, _ in readback.drain()] == ["a", "b"]
    assert timer.timing().stages["waiting"].syncs == 1
    assert readback.drain() == []
    assert timer.timing().stages["waiting"].syncs == 1


@pytest.mark.gpu
def test_a_training_epoch_with_timing_and_losses_makes_no_host_wait_on_a_gpu() -> None:
    backend = choose_backend("cuda")
    network = build_network(Architecture(), torch.Generator().manual_seed(0))
    learner = Learner(network.to(backend.device))
    images = Images.of(torch.randn(4, 128, 128, device=backend.device))
    batches = BatchSampler((64, 64), 8, 0.03, torch.Generator(backend.device).manual_seed(0))
    timer, readback, arrived = backend.timer(), Readback(backend.bus(), depth=64), 0
    learner.step(images, batches, 1e-3, 0)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(1, 26):
            with timer.stage("training", voxels=batches.voxels):
                loss = learner.step(images, batches, 1e-3, step)
            readback.push(("loss", step), loss)
            arrived += len(readback.arrived())
            timer.timing()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    assert timer.timing().stages["training"].count == 25
    # those that had arrived meanwhile were fetched, and all others have arrived by now
    arrived += len(readback.drain())
    assert arrived == 25
