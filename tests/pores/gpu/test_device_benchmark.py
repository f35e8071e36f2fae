"""Pores at `auto`: where there is a GPU, a slab is segmented both ways, and the faster is kept."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import ndimage as ndi

import hushpore
from hushpore import Volume, jobs
from hushpore.base.config import SPEEDS
from hushpore.base.events import Note
from hushpore.base.rescaled import Scaled
from hushpore.pores.gpu import device_benchmark
from hushpore.pores.gpu.device_benchmark import Rates
from hushpore.pores.gpu.engine import Gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.device.backend import Backend

SHAPE = (24, 28, 36)


@pytest.fixture
def volume() -> Volume:
    smooth = ndi.gaussian_filter(np.random.default_rng(3).normal(size=SHAPE), 2)
    stored = (smooth * 4000 + 3000).astype(np.uint16)
    return Volume(Scaled(stored, 0.7, -1024.3), spacing=(2.0, 1.0, 1.0), unit="um")


@pytest.fixture
def gpu(gpu_backend: Any, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """An emulated GPU that `auto` comes to; half the volume is tried."""
    monkeypatch.setattr(device_benchmark, "WORTH", 1)
    monkeypatch.setattr(device_benchmark, "SLAB", 12 * 28 * 36)
    monkeypatch.setattr(jobs, "find_spec", lambda name: name)
    monkeypatch.setattr(jobs, "choose_backend", lambda device: gpu_backend())
    backend = jobs.JOBS["pores"].backend("auto")
    assert backend.on_trial
    return backend


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set how many seconds the same takes on both."""

    def take(gpu: float, cpu: float) -> None:
        times = iter([gpu, cpu])
        monkeypatch.setattr(device_benchmark, "seconds_of", lambda found: next(times))

    return take


def test_stages_that_the_host_does_either_way_do_not_count() -> None:
    taken = {"sample": 9.0, "upload": 0.5, "distance": 1.0, "labels": 9.0}
    assert device_benchmark.seconds_of(SimpleNamespace(timings=taken)) == 1.5


def test_a_faster_gpu_is_used_and_what_was_measured_is_kept(
    volume: Volume, gpu: Backend, takes: Any, assert_same_pores: Any
) -> None:
    takes(gpu=1.0, cpu=8.0)
    found = hushpore.run("pores", volume, None, gpu)
    assert "8 times as fast as CPU, " in found.provenance["device"]
    assert found.provenance["device"].startswith("a GPU (")
    assert found.provenance["device"].endswith("with the same labels)")
    assert_same_pores(found, hushpore.run("pores", volume, None, "cpu"))
    # there are no more times to take
    again = hushpore.run("pores", volume, None, dataclasses.replace(gpu))
    assert "as measured before, with the same labels" in again.provenance["device"]
    rates = Rates.of(SPEEDS.numbers(device_benchmark.devices_of(gpu)))
    assert rates is not None
    assert rates.gpu == pytest.approx(8 * rates.cpu)


def test_a_slower_gpu_is_left(volume: Volume, gpu: Backend, takes: Any) -> None:
    takes(gpu=2.0, cpu=1.0)
    found = hushpore.run("pores", volume, None, gpu)
    assert found.provenance["device"].startswith("CPU, ")
    assert "a GPU is only 0.5 times as fast as CPU" in found.provenance["device"]


def test_a_gpu_that_gives_other_labels_is_not_used_and_that_is_said(
    volume: Volume, gpu: Backend, takes: Any, monkeypatch: pytest.MonkeyPatch,
    assert_same_pores: Any,
) -> None:  # fmt: skip
    takes(gpu=1.0, cpu=8.0)
    distance = Gpu.squared_distance

    def wrong(self: Gpu, *args: Any, **how: Any) -> Any:
        found = distance(self, *args, **how)
        found[:, 5:] *= np.float32(0.5)
        return found

    monkeypatch.setattr(Gpu, "squared_distance", wrong)
    events: list[Any] = []
    found = hushpore.run("pores", volume, None, gpu, events.append)
    (note,) = (each for each in events if isinstance(each, Note))
    assert note.warning
    assert note.message.startswith("a GPU gave other labels than the CPU")
    assert found.notes == (note.message,)
    assert "a GPU gave other labels" in found.provenance["device"]
    monkeypatch.undo()
    assert_same_pores(found, hushpore.run("pores", volume, None, "cpu"))


def test_a_gpu_that_fails_is_tried_again_next_time(
    volume: Volume, gpu: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(backend: Backend) -> None:
        raise hushpore.base.errors.DeviceError("CuPy cannot use a GPU")

    monkeypatch.setattr(Gpu, "of", fail)
    found = hushpore.run("pores", volume, None, gpu)
    assert "the GPU could not be tried: Pores are segmented on the CPU" in str(found.provenance)
    assert not SPEEDS.file.exists()


@pytest.mark.parametrize(
    "error", [RuntimeError("CuPy failed to load libnvrtc.so.13\nHint: ..."), ValueError("no GPU")]
)
def test_whatever_a_gpu_raises_in_its_trial_the_cpu_does_it(
    error: Exception, volume: Volume, gpu: Backend, monkeypatch: pytest.MonkeyPatch,
    assert_same_pores: Any,
) -> None:  # fmt: skip
    def fail(*args: Any, **rest: Any) -> None:
        raise error

    monkeypatch.setattr(Gpu, "squared_distance", fail)
    found = hushpore.run("pores", volume, None, gpu)
    reason = f"the GPU could not be tried: {str(error).partition(chr(10))[0]}"
    assert reason in found.provenance["device"]
    assert "Hint" not in found.provenance["device"]
    monkeypatch.undo()
    assert_same_pores(found, hushpore.run("pores", volume, None, "cpu"))


def test_little_is_not_worth_a_trial(
    volume: Volume, gpu: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_benchmark, "WORTH", 10**6)
    found = hushpore.run("pores", volume, None, gpu)
    assert "0.0242 million voxels are too few to win by a GPU" in found.provenance["device"]

    def look(device: str) -> Backend:
        raise AssertionError("to look for a GPU is to import PyTorch")

    monkeypatch.setattr(jobs, "choose_backend", look)
    alone = hushpore.run("pores", volume)
    assert alone.provenance["device"] == found.provenance["device"]


def test_what_was_measured_is_of_one_device_and_can_be_forgotten(gpu: Backend) -> None:
    here = device_benchmark.devices_of(gpu)
    there = device_benchmark.devices_of(dataclasses.replace(gpu, name="another GPU"))
    for key, rates in ((here, Rates(5.0, 1.0, True)), (there, Rates(1.0, 5.0, False))):
        SPEEDS.put(key, rates.to_dict())
    assert Rates.of(SPEEDS.numbers(here)) == (5.0, 1.0, True)
    assert Rates.of(SPEEDS.numbers(there)) == (1.0, 5.0, False)
    SPEEDS.forget()
    assert Rates.of(SPEEDS.numbers(here)) is None


@pytest.mark.parametrize("kept", [{}, {"gpu": 1.0}, {"gpu": 1.0, "cpu": 0.0, "same": 1.0}])
def test_what_is_kept_otherwise_is_measured_again(kept: dict[str, float]) -> None:
    assert Rates.of(kept) is None
