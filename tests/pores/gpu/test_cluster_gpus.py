"""Workers of a cluster, each with an emulated GPU of its own, give the bits of one machine."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import types
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy import ndimage as ndi

import hushpore
from hushpore import Volume
from hushpore.base.errors import DeviceError
from hushpore.base.events import result_of
from hushpore.cluster import denoise_tasks, denoising, task_runner
from hushpore.cluster.denoising import denoise_on
from hushpore.cluster.segmenting import segment_pores
from hushpore.denoising.settings import DenoiseSettings
from hushpore.device.backend import Backend
from hushpore.io import read
from hushpore.io.zarr import write_zarr
from hushpore.pores.gpu import engines
from hushpore.pores.gpu.engine import Gpu
from hushpore.pores.settings import PoreSettings

distributed = pytest.importorskip("distributed")
pytest.importorskip("zarr")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SHAPE = (20, 24, 28)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A scan as OME-Zarr."""
    smooth = ndi.gaussian_filter(np.random.default_rng(3).normal(size=SHAPE), 2)
    noisy = smooth * 4000 + 3000 + np.random.default_rng(4).normal(0, 40, SHAPE)
    return write_zarr(tmp_path / "scan.ome.zarr", Volume(noisy.astype(np.uint16), name="scan"))


@pytest.fixture(scope="module")
def client(start_workers: Callable[[int], Any]) -> Iterator[Any]:
    """Two workers, which are threads of this process."""
    with distributed.Client(start_workers(2)) as made:
        yield made


class Pinned:
    """The emulated GPU as that of one worker, which alone uses it; counts its work by worker."""

    _one_at_a_time = threading.RLock()

    def __init__(self, gpu: Gpu, used: list[tuple[str, str]], most: int) -> None:
        self._gpu, self._used, self._most = gpu, used, most
        self.void = types.SimpleNamespace(launch=self._launch, launch_blocks=self._launch_blocks)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._gpu, name)
        if name == "stride":
            return functools.partial(Gpu.stride, self)
        if name == "totals":
            return functools.partial(Gpu.totals, self)
        if name not in ("squared_distance", "watershed", "scan"):
            return method

        def call(values: Any, *args: Any, **how: Any) -> Any:
            if len(values) > self._most:
                raise torch.OutOfMemoryError
            self._note(name)
            with self._one_at_a_time:
                return method(values, *args, **how)

        return call

    def _launch(self, name: str, *rest: Any) -> None:
        self._note(name)
        with self._one_at_a_time:
            self._gpu.void.launch(name, *rest)

    def _launch_blocks(self, name: str, *rest: Any) -> None:
        self._note(name)
        with self._one_at_a_time:
            self._gpu.void.launch_blocks(name, *rest)

    def _note(self, name: str) -> None:
        self._used.append((str(distributed.get_worker().name), name))


@pytest.fixture
def pinned(
    emulated: Any, emulated_backend: type[Backend], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[tuple[str, str]]]:
    """Give each worker a device; returns which of them has done what."""

    def give(slices: int = 10**6, most: int = 10**6) -> list[tuple[str, str]]:
        used: list[tuple[str, str]] = []
        asked = itertools.cycle("01")
        emulated.run_threads("forward")
        monkeypatch.setattr(Gpu, "of", lambda backend: Pinned(emulated, used, most))

        def choose(device: str) -> Backend:
            assert device == "cuda"
            name = f"GPU of worker {next(asked)}"
            free = (slices + 4) * 24 * 28 * engines.BYTES_A_VOXEL / 0.9
            return emulated_backend(name=name, free=int(free) + 1)  # type: ignore[call-arg]

        monkeypatch.setattr(task_runner, "choose_backend", choose)
        return used

    return give


def segmented(client: Any, path: Path, **how: Any) -> tuple[Any, Any]:
    """Segment on the GPUs of the workers; returns the labels and the record."""
    folder = path.with_name("result")
    job = segment_pores(
        path, folder, PoreSettings(**how), where=client, device="cuda", thickness=None
    )
    written = result_of(job)
    return read(folder / "labels.ome.zarr").data, written.provenance


def test_pores_on_the_gpus_of_workers_are_those_of_one_machine(
    path: Path, client: Any, pinned: Callable[..., list[tuple[str, str]]]
) -> None:
    how = {"connectivity": "faces", "pore_type": "open", "border_is_solid": True}
    used = pinned(slices=6)
    labels, record = segmented(client, path, **how)
    expected = hushpore.segment_pores(hushpore.read(path), **how)
    np.testing.assert_array_equal(np.asarray(labels), expected.labels)
    assert record["result"] == expected.provenance["result"]
    # each of the workers has used its own device, for each stage of each block
    assert {worker for worker, _ in used} == {"0", "1"}
    done = Counter(stage for _, stage in used)
    stages = ("count_levels", "find_void", "measure_parts", "squared_distance", "watershed", "scan")
    assert [done[each] for each in stages] == [4] * len(stages)
    # open or closed are told once where parts are counted, and once where they are painted
    assert done["classify_parts"] == 8
    assert "each with a GPU: GPU of worker 0, GPU of worker 1" in record["device"]
    assert "Worked on in 4 blocks of 5 slices" in record["notes"][0]


@pytest.mark.parametrize(
    ("dtype", "how"),
    [
        ("f4", {"threshold": "li", "pore_type": "closed", "minimum_voxels": 1}),
        ("f4", {"threshold": 3000.0, "hysteresis": 2600.0}),
        ("u2", {"exterior": "remove-slicewise", "ball_radius": 3.0, "threshold": 2800.0}),
    ],
)
def test_the_void_on_the_gpus_of_workers_is_that_of_one_machine(
    dtype: str, how: dict[str, Any], tmp_path: Path, path: Path, client: Any,
    pinned: Callable[..., list[tuple[str, str]]],
) -> None:  # fmt: skip
    used = pinned(slices=6)
    volume = hushpore.read(path)
    values = np.asarray(volume.data, dtype)
    # air around the sample
    values[:, :4] = values[:, -3:] = 100
    other = write_zarr(tmp_path / "other.ome.zarr", Volume(values, name="other"))
    labels, record = segmented(client, other, **how)
    expected = hushpore.segment_pores(hushpore.read(other), **how)
    assert len(expected.pores) > 3
    np.testing.assert_array_equal(np.asarray(labels), expected.labels)
    assert record["result"] == expected.provenance["result"]
    done = Counter(stage for _, stage in used)
    named = {"hysteresis": "mark_strict", "exterior": "mark_neighbours", "pore_type": "count_bins"}
    assert all(done[kernel] == 4 for name, kernel in named.items() if name in how)
    assert len(record["notes"]) == 2, "nothing ran out"


def test_a_block_that_a_gpu_does_not_hold_goes_to_the_cpu_and_it_is_said(
    path: Path, client: Any, pinned: Callable[..., list[tuple[str, str]]]
) -> None:
    # blocks at the ends have slices beside them on one side only
    pinned(slices=6, most=7)
    labels, record = segmented(client, path)
    np.testing.assert_array_equal(
        np.asarray(labels), hushpore.segment_pores(hushpore.read(path)).labels
    )
    assert (
        "The GPUs' memory ran out in 2 of 4 blocks, which were computed on the CPU instead."
        in record["notes"]
    )


@pytest.mark.parametrize("lacking", ["cupy", "room"])
def test_where_the_gpus_cannot_segment_the_workers_cpus_do_and_it_is_said(
    lacking: str, path: Path, client: Any, pinned: Callable[..., list[tuple[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    used = pinned(slices=1)
    problem = "the GPU's memory does not hold the thinnest block"
    if lacking == "cupy":

        def without(backend: Backend) -> Gpu:
            raise DeviceError("CuPy is not installed")

        monkeypatch.setattr(Gpu, "of", without)
        problem = "CuPy is not installed"
    labels, record = segmented(client, path)
    assert labels.shape == SHAPE
    assert used == []
    assert record["notes"][0] == f"Pores are segmented on the CPU: {problem}."


@pytest.mark.usefixtures("small_network")
def test_tiles_predicted_on_the_gpus_of_workers_have_the_values_of_one(
    path: Path, tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hushpore.denoising.inference import blocks, volumes
    from hushpore.io import zarr

    # several blocks of a few tiles each
    for module in (blocks, volumes, denoising):
        monkeypatch.setattr(module, "CORES", {2: (4, 16, 16)})
    monkeypatch.setattr(zarr, "_CHUNK", 8)
    monkeypatch.setattr(zarr, "_BLOCK", 16)
    used: set[str] = set()
    asked = itertools.cycle("01")

    def choose(device: str) -> Backend:
        assert device == "cuda"
        with contextlib.suppress(ValueError):
            used.add(str(distributed.get_worker().name))
        return Backend(name=f"GPU {next(asked)}")

    monkeypatch.setattr(denoise_tasks, "choose_backend", choose)
    quick = DenoiseSettings(steps=2, patch_size=16, batch_size=2, precision="float32")
    found = result_of(denoise_on(client, path, tmp_path / "clean.ome.zarr", quick, device="cuda"))
    assert used == {"0", "1"}
    assert found.provenance["device"].startswith("GPU 0, GPU 1 (2 workers of dask.distributed")
    with _one_thread():
        expected = found.model.predict(hushpore.read(path), "cpu").data
    np.testing.assert_array_equal(np.asarray(found.volume.data), expected)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
