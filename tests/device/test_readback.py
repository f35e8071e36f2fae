"""Small results that come back late: the device is waited for where that is said, and counted."""

from __future__ import annotations

import pytest
import torch

from hushpore.denoising.images import Images
from hushpore.denoising.model import Architecture, build_network
from hushpore.denoising.training.step import BatchSampler, Learner
from hushpore.device.backend import Backend, choose_backend
from hushpore.device.timing import HostClock, StageTimer
from hushpore.device.transfers import Readback


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
    readback = Readback(Backend(), timer)
    event = Event(False)
    readback._under_way.append(("loss", torch.ones(()), event))
    assert readback.arrived() == []
    assert not event.happened
    assert "waiting" not in timer.timing().stages


def test_waiting_for_the_rest_is_counted_once() -> None:
    timer = timer_of_a_device()
    readback = Readback(Backend(), timer)
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
    timer, readback, arrived = backend.timer(), Readback(backend, depth=64), 0
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
