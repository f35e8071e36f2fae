"""Whole jobs on a real GPU: what they give, when the host waits, and what they leave behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import hushpore
from hushpore.base.events import Metric, Note, Progress, Timing
from hushpore.base.preferences import SWITCHES
from hushpore.device import memory
from hushpore.device.graphs import CudaGraphCapture
from hushpore.device.switches import Switches
from hushpore.jobs import start

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore import Volume
    from hushpore.device.backend import Backend

pytestmark = pytest.mark.gpu

QUICK: dict[str, Any] = {"patch_size": 32, "batch_size": 4, "precision": "float32"}
LOG_INTERVAL = 25


@pytest.fixture(scope="module")
def model(scan: Volume, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was trained on the CPU for a little while."""
    trained = hushpore.run("denoise", scan, {**QUICK, "steps": 30}, "cpu")
    path: Path = trained.model.save(tmp_path_factory.mktemp("model") / "little.safetensors")
    return path


def applied(scan: Volume, model: Path, device: str | Backend, **how: Any) -> Any:
    settings = {"model": str(model), "precision": "float32", **how}
    return hushpore.run("denoise", scan, settings, device)


def assert_close(found: Any, expected: Any) -> None:
    # sums are in another order, and TensorFloat-32 may be allowed
    values, truth = found.volume.data, expected.volume.data
    np.testing.assert_allclose(values, truth, atol=2e-3 * np.ptp(truth))


def test_a_model_gives_what_it_gives_on_the_cpu(scan: Volume, model: Path, gpu: Backend) -> None:
    found = applied(scan, model, gpu)
    assert found.provenance["device"].startswith(gpu.name)
    assert_close(found, applied(scan, model, "cpu"))


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("is_in_pieces", [False, True])
def test_a_switch_is_obeyed_and_changes_no_result(
    name: str, is_in_pieces: bool, scan: Volume, model: Path, gpu: Backend
) -> None:
    how = {"denoise_memory": 0.001} if is_in_pieces else {}
    found = {}
    for state in ("off", "on"):
        backend = replace(gpu, switches=Switches(**{name: state}))
        found[state] = applied(scan, model, backend, **how)
        lines = found[state].provenance["optimisations"]
        told = {line for key, line in lines.items() if key.partition(" ")[0] == name}
        assert told <= {f"{state}, as requested", "off, not needed"}
        assert f"{state}, as requested" in told or not is_in_pieces
    assert_close(found["on"], found["off"])


@pytest.mark.parametrize("graphs", ["off", "on"])
def test_in_epochs_of_training_the_host_waits_for_nothing(
    graphs: str, scan: Volume, gpu: Backend
) -> None:
    backend = replace(gpu, switches=Switches(graphs=graphs))
    job = start("denoise", scan, {**QUICK, "steps": 4 * LOG_INTERVAL}, backend)
    steps, losses = 0, 0
    for event in job:
        losses += isinstance(event, Metric)
        if isinstance(event, Progress) and event.stage == "training":
            steps += 1
            # by then all is warm, and recorded; from here on two epochs end
            if steps == 20:
                torch.cuda.set_sync_debug_mode("error")
            elif steps == 20 + 2 * LOG_INTERVAL:
                torch.cuda.set_sync_debug_mode("default")
    assert steps >= 4 * LOG_INTERVAL
    assert losses > 0


def test_a_scan_that_fits_goes_up_once_and_comes_down_once(
    scan: Volume, model: Path, gpu: Backend
) -> None:
    timings: list[Timing] = []

    def heed(event: object) -> None:
        if isinstance(event, Timing):
            timings.append(event)

    hushpore.run("denoise", scan, {"model": str(model)}, gpu, heed)
    stages = timings[-1].stages
    assert (stages["upload"].count, stages["download"].count) == (1, 1)
    # the integers of the scanner
    assert stages["upload"].nbytes == 2 * scan.data.size
    assert 0 < timings[-1].device_memory < 2e9


def test_where_memory_really_runs_out_less_is_tried_and_all_is_given_back(
    scan: Volume, gpu: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = torch.cuda.mem_get_info()[0]
    monkeypatch.setattr(memory, "POOLED", 400e6 / free)
    events: list[Any] = []
    how = {"patch_size": 64, "batch_size": 256, "precision": "float32", "steps": 4}
    found = hushpore.run("denoise", scan, how, gpu, events.append)
    said = [event.message for event in events if isinstance(event, Note)]
    assert any("Out of memory: batch size reduced" in message for message in said)
    assert np.isfinite(found.volume.data).all()
    assert torch.cuda.memory_reserved() < 100e6


@pytest.mark.parametrize("steps", [1, 12, 30])
def test_a_cancelled_job_leaves_nothing_on_the_gpu(steps: int, scan: Volume, gpu: Backend) -> None:
    before = torch.cuda.memory_allocated()
    job = start("denoise", scan, {**QUICK, "steps": 60}, gpu)
    for event in job:
        if isinstance(event, Progress) and event.stage == "training":
            steps -= 1
            if not steps:
                break
    job.close()
    del job, event
    assert torch.cuda.memory_allocated() - before < 1e6


def test_a_recording_of_a_matrix_product_leaves_nothing_on_the_gpu(gpu: Backend) -> None:
    matrix = torch.ones(256, 256, device=gpu.device)
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        graph = CudaGraphCapture(gpu.device).capture(lambda: matrix @ matrix, None)
        assert float(graph.replay()[0, 0]) == 256
        graph.release()
        del graph
    memory.free_pools()
    assert torch.cuda.memory_allocated() - before < 1e6


@pytest.mark.needs("cupy")
def test_cupy_sees_what_pytorch_has_queued_before_it(gpu: Backend) -> None:
    cupy = gpu.cupy()
    torch.cuda._sleep(50_000_000)
    there = torch.full((1 << 20,), 7.0, device=gpu.device)
    seen = cupy.from_dlpack(there)
    assert seen.data.ptr == there.data_ptr()
    total = cupy.empty(1)
    seen.sum(out=total[0:1].reshape(()))
    torch.cuda._sleep(50_000_000)
    there.zero_()
    # neither has waited for the other, and each comes after what was there before
    assert float(total[0]) == 7.0 * (1 << 20)
    assert float(seen.sum()) == 0.0
