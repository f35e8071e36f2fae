"""Jobs of a chain on a pretended GPU: the scan goes up once, and each result comes down once."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy import ndimage as ndi

import hushpore
from hushpore import Volume
from hushpore.base.events import result_of
from hushpore.base.rescaled import Scaled
from hushpore.device.backend import Backend
from hushpore.device.clocks import HostClock
from hushpore.device.memory import POOLED
from hushpore.device.resident import Resident
from hushpore.device.timing import StageTimer
from hushpore.device.transfers import Transfers
from hushpore.jobs import JOBS
from hushpore.pores.gpu import opening
from hushpore.pores.gpu.engine import Gpu
from hushpore.runs import pipeline
from hushpore.runs.scan_recipe import ScanRecipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("small_network")

SHAPE = (12, 32, 36)
VOXELS = 12 * 32 * 36
QUICK: dict[str, Any] = {
    "steps": 2, "batch_size": 2, "patch_size": 16, "precision": "float32", "method": "n2v2",
}  # fmt: skip


@dataclass(frozen=True)
class BothGpu(Backend):
    """A CPU that PyTorch computes on, and of which pores get the emulated GPU."""

    name: str = "a GPU"
    free: int = 10**12

    @property
    def is_cuda(self) -> bool:
        return True

    def timer(self) -> StageTimer:
        return StageTimer(choices=self.choices)

    def clock(self) -> HostClock:
        return HostClock()

    def bus(self) -> None:
        return None

    def graph_capture(self) -> None:
        return None

    def limit_memory(self) -> None:
        pass

    def release(self) -> None:
        pass

    def free_memory(self) -> int:
        return self.free


@pytest.fixture
def both(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> type[BothGpu]:
    emulated.run_threads("parallel")
    monkeypatch.setattr(Gpu, "of", lambda backend: emulated)
    monkeypatch.setattr(opening, "_WARMED_UP", {"cpu"})
    return BothGpu


@pytest.fixture
def crossed(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Bytes of all that goes up and comes down, one after the other; not of what is tiny."""
    found: dict[str, list[int]] = {}

    def count(way: str) -> None:
        copy, sizes = getattr(Transfers, way), found.setdefault(way, [])

        def counted(self: Transfers, values: Any, *rest: Any) -> Any:
            if values.nbytes > VOXELS // 2:
                sizes.append(values.nbytes)
            return copy(self, values, *rest)

        monkeypatch.setattr(Transfers, way, counted)

    count("upload")
    count("download")
    return found


def scan() -> Volume:
    """The integers of a scanner, noisy."""
    rng = np.random.default_rng(3)
    smooth = ndi.gaussian_filter(rng.normal(size=SHAPE), 2)
    stored = (smooth * 4000 + 3000 + rng.normal(0, 50, SHAPE)).astype(np.uint16)
    return Volume(Scaled(stored, 0.7, -1024.3), spacing=(2.0, 1.0, 1.0), unit="um")


def chained(gpu: type[BothGpu], resident: Resident | None, free: int = 10**12, **how: Any) -> Any:
    """Denoise and segment; `free`: bytes that the GPU has for the pores."""
    denoised = hushpore.run("denoise", scan(), QUICK, gpu(resident=resident))
    backend = gpu(resident=resident, free=free)
    return denoised, hushpore.run("pores", denoised.volume, how, backend)


@pytest.mark.parametrize("how", [{}, {"merging": "snow"}, {"exterior": "remove"}], ids=str)
def test_a_scan_goes_up_once_and_each_result_comes_down_once(
    how: dict[str, Any],
    both: type[BothGpu],
    crossed: dict[str, list[int]],
    assert_same_pores: Callable[..., None],
) -> None:
    with Resident() as resident:
        denoised, found = chained(both, resident, **how)
    # the integers; the denoised values, the basins, and where peaks are looked for their distance
    assert crossed["upload"] == [2 * VOXELS]
    assert crossed["download"] == [4 * VOXELS] * (3 if how == {"merging": "snow"} else 2)
    assert found.provenance["optimisations"]["void"] == "on, float32 values are there already"
    assert_same_pores(found, hushpore.run("pores", denoised.volume, how, "cpu"))


def test_jobs_that_know_nothing_of_each_other_send_what_each_needs(
    both: type[BothGpu], crossed: dict[str, list[int]]
) -> None:
    chained(both, None)
    assert crossed["upload"] == [2 * VOXELS, 4 * VOXELS]


def test_the_values_left_are_those_of_the_result_to_the_bit(both: type[BothGpu]) -> None:
    with Resident() as resident:
        denoised = hushpore.run("denoise", scan(), QUICK, both(resident=resident))
        left = resident.take(denoised.volume.data, "cpu")
    assert left is not None
    np.testing.assert_array_equal(left.numpy(), denoised.volume.data)
    plain = hushpore.run("denoise", scan(), QUICK, "cpu")
    np.testing.assert_array_equal(denoised.volume.data, plain.volume.data)


def test_what_was_changed_on_the_host_is_not_taken_from_the_gpu(both: type[BothGpu]) -> None:
    with Resident() as resident:
        how = {**QUICK, "restore_detail": True}
        denoised = hushpore.run("denoise", scan(), how, both(resident=resident))
        assert any("detail" in name for name in denoised.timings)
        assert resident.take(denoised.volume.data, "cpu") is None


def test_values_that_no_job_can_use_there_make_room_first(
    both: type[BothGpu],
    crossed: dict[str, list[int]],
    monkeypatch: pytest.MonkeyPatch,
    assert_same_pores: Callable[..., None],
) -> None:
    left: list[Any] = []
    leave = Resident.leave
    monkeypatch.setattr(
        Resident, "leave", lambda self, host, values, device: (
            left.append(weakref.ref(values)), leave(self, host, values, device)
        )[1],
    )  # fmt: skip
    distance, alive = Gpu.squared_distance, []

    def seen(self: Gpu, *args: Any, **rest: Any) -> Any:
        alive.append(left[0]() is not None)
        return distance(self, *args, **rest)

    monkeypatch.setattr(Gpu, "squared_distance", seen)
    # room for seven slices in slabs: too little for all of it
    few = int(7 * 32 * 36 * opening.BYTES_IN_SLABS / POOLED) + 1
    with Resident() as resident:
        denoised, found = chained(both, resident, few)
    assert found.notes[-1] == "Worked on in 4 slabs of 3 slices on the GPU."
    assert alive
    assert not any(alive)
    assert_same_pores(found, hushpore.run("pores", denoised.volume, None, "cpu"))


def test_where_memory_runs_out_the_values_go_before_slabs_are_tried(
    both: type[BothGpu],
    emulated: Any,
    monkeypatch: pytest.MonkeyPatch,
    assert_same_pores: Callable[..., None],
) -> None:
    watershed = Gpu.watershed

    def little_room(self: Gpu, distance: np.ndarray, *args: Any, **rest: Any) -> Any:
        if len(distance) > 10:
            raise torch.OutOfMemoryError
        return watershed(self, distance, *args, **rest)

    monkeypatch.setattr(Gpu, "watershed", little_room)
    with Resident() as resident:
        denoised, found = chained(both, resident)
    assert found.notes == (
        "The GPU's memory ran out: worked on in 2 slabs of 6 slices on the GPU.",
    )
    assert_same_pores(found, hushpore.run("pores", denoised.volume, None, "cpu"))
    monkeypatch.setattr(
        emulated, "watershed", lambda *args, **rest: little_room(emulated, [0] * 99)
    )
    with Resident() as resident:
        denoised, found = chained(both, resident)
    assert found.notes[-1] == "Pores are segmented on the CPU: the GPU's memory ran out."
    assert_same_pores(found, hushpore.run("pores", denoised.volume, None, "cpu"))


class ReachedError(Exception):
    """The second job was asked for."""


@pytest.mark.parametrize("by", ["a command", "a function"])
def test_whoever_runs_a_chain_lets_its_jobs_leave_images_to_each_other(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from hushpore.cli.commands import hushpore as command

    given: list[Backend] = []

    def job(*args: Any) -> Any:
        given.append(args[-1])
        if len(given) == 2:
            raise ReachedError
        yield from ()
        return type("Result", (), {"volume": scan(), "provenance": {}})()

    np.save(tmp_path / "scan.npy", np.asarray(scan().data))
    monkeypatch.setattr(pipeline, "start", job)
    if by == "a command":
        words = ["run", str(tmp_path / "scan.npy"), "-o", str(tmp_path / "out"), "--device", "cpu"]
        CliRunner().invoke(command, words)
    else:
        steps = {name: JOBS[name].settings() for name in ("denoise", "pores")}
        source = ScanRecipe(str(tmp_path / "scan.npy"))
        with pytest.raises(ReachedError):
            result_of(pipeline.run_pipeline(source, tmp_path / "out", steps, device="cpu"))
    first, second = given
    assert first.resident is not None
    assert first.resident is second.resident
