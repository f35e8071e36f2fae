"""Whole jobs on an emulated GPU: what the CPU finds, one upload, few waits, thinner slabs."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import ndimage as ndi

import hushpore
from hushpore import Volume, jobs
from hushpore.base.rescaled import Scaled
from hushpore.device import transfers
from hushpore.device.backend import Backend
from hushpore.device.memory import POOLED
from hushpore.pores.gpu import engine, engines
from hushpore.pores.gpu.engine import Gpu

if TYPE_CHECKING:
    from collections.abc import Callable

HOW: list[dict[str, Any]] = [
    {},
    {"pore_type": "closed"},
    {"exterior": "remove"},
    {"merging": "snow"},
    {"connectivity": "faces"},
    {"subvoxel_porosity": True, "void_grey": -500.0, "solid_grey": 3000.0},
    {"measured_porosity": 20.0},
]


def smooth(shape: tuple[int, ...]) -> np.ndarray:
    return ndi.gaussian_filter(np.random.default_rng(3).normal(size=shape), 2)


def floats(shape: tuple[int, ...]) -> Volume:
    """Grey values whose void is smaller than they are."""
    return Volume(smooth(shape), spacing=(2.0, 1.0, 1.0)[-len(shape) :], unit="um")


def scanned(shape: tuple[int, ...]) -> Volume:
    """The integers of a scanner."""
    stored = (smooth(shape) * 4000 + 3000).astype(np.uint16)
    return Volume(Scaled(stored, 0.7, -1024.3), spacing=(2.0, 1.0, 1.0)[-len(shape) :], unit="um")


@pytest.mark.parametrize("settings", HOW, ids=str)
@pytest.mark.parametrize("shape", [(20, 24, 28), (60, 70)])
@pytest.mark.parametrize("scan", [floats, scanned])
def test_a_job_on_a_gpu_gives_what_it_gives_on_the_cpu(
    settings: dict[str, Any],
    shape: tuple[int, ...],
    scan: Callable[..., Volume],
    gpu_backend: Any,
    assert_same_pores: Callable[..., None],
) -> None:
    found = hushpore.run("pores", scan(shape), settings, gpu_backend())
    expected = hushpore.run("pores", scan(shape), settings, "cpu")
    assert_same_pores(found, expected)
    assert found.provenance["device"].startswith("a GPU")
    assert found.notes == expected.notes
    stages = {"upload", "threshold", "void", "distance", "basins", "measuring", "download"}
    assert stages <= set(found.timings)
    np.testing.assert_array_equal(found.remerge(2.0).labels, expected.remerge(2.0).labels)


@pytest.mark.parametrize("settings", HOW, ids=str)
@pytest.mark.parametrize("order", ["reverse", "parallel"])
def test_what_does_not_fit_on_a_gpu_is_worked_on_there_in_slabs(
    settings: dict[str, Any],
    order: str,
    emulated: Any,
    gpu_backend: Any,
    assert_same_pores: Callable[..., None],
) -> None:
    emulated.run_threads(order)
    # room for nine slices, four of which are those beside a slab
    room = 9 * 24 * 28 * engines.BYTES_A_VOXEL
    backend = gpu_backend(free=math.ceil(room / POOLED))
    found = hushpore.run("pores", scanned((23, 24, 28)), settings, backend)
    assert_same_pores(found, hushpore.run("pores", scanned((23, 24, 28)), settings, "cpu"))
    assert found.notes[-1] == "Worked on in 5 slabs of 5 slices on the GPU."


def test_what_does_not_fit_into_memory_is_worked_on_on_a_gpu_too(gpu_backend: Any) -> None:
    scan = Volume(smooth((40, 100, 100)).astype(np.float32))
    expected = hushpore.run("pores", scan, None, "cpu")
    found = hushpore.run("pores", scan, {"memory_budget": 0.004}, gpu_backend())
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert "with temporary files" in found.notes[0]
    assert found.notes[-1].endswith("on the GPU.")


@pytest.mark.parametrize("scan", [floats, scanned])
def test_where_its_memory_runs_out_slabs_are_halved_and_it_is_said(
    scan: Callable[..., Volume],
    gpu_backend: Any,
    monkeypatch: pytest.MonkeyPatch,
    assert_same_pores: Callable[..., None],
) -> None:
    watershed = Gpu.watershed

    def little_room(self: Gpu, distance: np.ndarray, *args: Any, **how: Any) -> Any:
        if len(distance) > 10:
            raise MemoryError
        return watershed(self, distance, *args, **how)

    monkeypatch.setattr(Gpu, "watershed", little_room)
    shape = (24, 28, 36)
    found = hushpore.run("pores", scan(shape), None, gpu_backend())
    assert found.notes == (
        "The GPU's memory ran out: worked on in 2 slabs of 12 slices on the GPU.",
        "The GPU's memory ran out: worked on in 4 slabs of 6 slices on the GPU.",
    )
    assert_same_pores(found, hushpore.run("pores", scan(shape), None, "cpu"))


def test_basins_that_arrive_piece_by_piece_give_the_same_pores(
    gpu_backend: Any, monkeypatch: pytest.MonkeyPatch, assert_same_pores: Callable[..., None]
) -> None:
    # each piece is copied through pinned memory, if all are large
    assert engines._FETCHED >= transfers._MIN_CHUNKS * transfers.CHUNK
    monkeypatch.setattr(engines, "_FETCHED", 3 * 28 * 36)
    fetched = []
    fetch = Gpu.fetch

    def noted(self: Gpu, values: Any, out: np.ndarray, pieces: Any) -> Any:
        fetched.extend(pieces)
        return fetch(self, values, out, pieces)

    monkeypatch.setattr(Gpu, "fetch", noted)
    found = hushpore.run("pores", scanned((20, 28, 36)), None, gpu_backend())
    assert fetched[:2] == [(9, 12), (0, 3)]
    assert sorted(fetched)[-1] == (18, 20)
    assert_same_pores(found, hushpore.run("pores", scanned((20, 28, 36)), None, "cpu"))


def test_where_memory_runs_out_while_basins_are_fetched_no_more_are(
    gpu_backend: Any, monkeypatch: pytest.MonkeyPatch, assert_same_pores: Callable[..., None]
) -> None:
    dropped = []
    drop = Gpu.drop_fetches

    def no_room(*args: Any, **how: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Gpu, "build_graph", no_room)
    monkeypatch.setattr(Gpu, "drop_fetches", lambda self: (drop(self), dropped.append(self)))
    found = hushpore.run("pores", scanned((24, 28, 36)), None, gpu_backend())
    assert len(dropped) == 1
    assert found.notes == (
        "The GPU's memory ran out: worked on in 2 slabs of 12 slices on the GPU.",
    )
    assert_same_pores(found, hushpore.run("pores", scanned((24, 28, 36)), None, "cpu"))


@pytest.mark.parametrize("lacking", ["squared_distance", "watershed"])
def test_where_no_slab_is_thin_enough_the_job_goes_on_on_the_cpu(
    lacking: str,
    emulated: Any,
    gpu_backend: Any,
    monkeypatch: pytest.MonkeyPatch,
    assert_same_pores: Callable[..., None],
) -> None:
    def no_room(*args: Any, **how: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(emulated, lacking, no_room)
    shape = (24, 28, 36)
    job = hushpore.start("pores", scanned(shape), None, gpu_backend())
    events: list[Any] = []
    found = hushpore.base.events.result_of(job, events.append)
    shares = [each.fraction for each in events if isinstance(each, hushpore.base.events.Progress)]
    assert shares == sorted(shares)
    assert found.notes[-1] == "Pores are segmented on the CPU: the GPU's memory ran out."
    assert found.provenance["device"].startswith("CPU")
    assert_same_pores(found, hushpore.run("pores", scanned(shape), None, "cpu"))


@pytest.mark.parametrize(
    ("shape", "device"),
    [((40, 400, 400), "cpu"), ((400, 400, 400), "cuda:0"), ((9000, 9000), "cpu")],
)
def test_by_default_large_volumes_are_segmented_on_a_gpu(
    shape: tuple[int, ...], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "find_spec", lambda name: name)
    monkeypatch.setattr(jobs, "choose_backend", lambda name: Backend("cuda:0", "a GPU"))
    assert jobs.JOBS["pores"].backend("auto", shape).device == device


def test_it_is_said_why_the_void_is_found_on_the_gpu_or_not(gpu_backend: Any) -> None:
    scan = scanned((20, 24, 28))

    def line(backend: Any, **how: Any) -> str:
        return str(
            hushpore.run("pores", scan, how, backend).provenance["optimisations"]["void on GPU"]
        )

    assert line(gpu_backend()) == "on, uint16 values cross as they are"
    local = "off, the host finds the local threshold niblack"
    assert line(gpu_backend(), threshold="niblack") == local
    small = gpu_backend(free=20 * 24 * 28 * 17)
    assert line(small) == "off, the GPU does not hold the volume with its grey values"


def test_what_is_planned_fits_into_what_the_pools_are_bounded_to(gpu_backend: Any) -> None:
    # between what is free and what may be taken of it
    for share, slabs in ((0.95, 2), (1.01, 1)):
        room = share * 24 * 28 * 36 * (engines.BYTES_A_VOXEL + 2) / POOLED
        backend = gpu_backend(free=int(room))
        found = hushpore.run("pores", scanned((24, 28, 36)), None, backend)
        whole = found.provenance["optimisations"]["void on GPU"].startswith("on")
        assert whole == (slabs == 1)


def test_a_gpu_that_is_too_small_for_a_slice_is_not_begun_with(gpu_backend: Any) -> None:
    found = hushpore.run("pores", scanned((24, 28, 36)), None, gpu_backend(free=70_000))
    assert found.notes == (
        "Pores are segmented on the CPU: the thinnest slab needs 75.6 kB of the GPU's memory, "
        "where 63 kB may be taken.",
    )


def test_more_slices_than_16_bits_can_count_are_left_to_the_cpu(
    gpu_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "DEEPEST", 23)
    found = hushpore.run("pores", scanned((24, 28, 36)), None, gpu_backend())
    assert found.notes == (
        "Pores are segmented on the CPU: it works on 23 slices at most, and there are 24.",
    )


def test_the_warm_up_comes_to_every_kernel(
    emulated: Any, cuda_shim: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = set()
    emulated.watch(monkeypatch, lambda name, *rest: launched.add(name))
    engines._warm_up(emulated)
    sources = [path.read_text(encoding="utf-8") for path in engine.SOURCES]
    names = {name for text in sources for name in re.findall(r"__global__ void (\w+)", text)}
    assert launched == names


@pytest.mark.parametrize(("merging", "downloads"), [("height", 1), ("snow", 2)])
@pytest.mark.parametrize(("scan", "nbytes", "waits"), [(scanned, 2, 4), (floats, 1, 3)])
def test_what_is_smallest_goes_up_once_and_the_host_waits_four_times(
    scan: Callable[..., Volume],
    nbytes: int,
    waits: int,
    merging: str,
    downloads: int,
    gpu_backend: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved: dict[str, list[int]] = {"put": [], "get": [], "fetch": []}

    def counted(name: str) -> Any:
        method = getattr(Gpu, name)

        def call(self: Gpu, values: np.ndarray, *args: Any) -> Any:
            moved[name].append(values.nbytes)
            return method(self, values, *args)

        return call

    for name in moved:
        monkeypatch.setattr(Gpu, name, counted(name))
    volume = scan((40, 44, 48))
    size = 40 * 44 * 48
    found = hushpore.run("pores", volume, {"merging": merging}, gpu_backend())
    # of values that cannot be read there also those that are summed up
    rounded = [] if scan is scanned else [4 * size]
    assert moved["put"] == [nbytes * size, *rounded]
    # range and histogram, the number of basins, that of edges, and all tables; then the distance
    assert moved["get"][waits:] == [4 * size] * (downloads - 1)
    assert max(moved["get"][: waits - 1]) < 10_000
    # basins while the host works, in as few bytes as hold their numbers
    assert found.graph.count < 1 << 16
    assert moved["fetch"] == [np.min_scalar_type(found.graph.count).itemsize * size]
    assert found.provenance["device"].startswith("a GPU")


def test_what_is_moved_on_the_gpu_is_accounted_for(
    emulated: Any, gpu_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in engine.SOURCES)
    parameters = dict(re.findall(r"__global__ void (\w+)\s*\(([^)]*)\)", text))
    # what is not read or written once by what its parameter says: in all voxels, or in few
    times = {
        ("scan_z", "steps"): 3,
        ("number", "pointers"): 2,
        # only at the faces
        ("mark_face", "parts"): 0,
        ("mark_face", "is_marked"): 0,
        # where a stretch of a basin begins
        ("sum_runs", "phase"): 0,
        # only in the void
        ("sum_runs", "grey"): 0,
        ("count_border_crossings", "basins"): 0,
        **{("far_" + axis, name): 0 for axis in "yx" for name in ("steps", "values", "out")},
    }
    begins = {
        "find_range": "threshold",
        "find_void": "void",
        "scan_z": "distance",
        "steepest_ascent": "basins",
        "round_grey": "measuring",
    }
    size, stages = 30 * 64 * 96, [""]
    moved = dict.fromkeys(begins.values(), 0)

    def see(name: str, count: int, *rest: Any) -> None:
        stages.append(begins.get(name, stages[-1]))
        for given, declared in zip(rest, parameters[name].split(","), strict=True):
            nbytes = getattr(given, "nbytes", 0)
            # not what is of basins, edges, rows or slices
            if nbytes and nbytes % size == 0:
                word = declared.split()[-1].strip("*")
                moved[stages[-1]] += times.get((name, word), 1) * nbytes

    emulated.watch(monkeypatch, see)
    hushpore.run("pores", scanned((30, 64, 96)), None, gpu_backend())
    assert {name: each / size for name, each in moved.items()} == engines.MOVED
    assert sum(engines.MOVED.values()) <= 90


def test_threads_seldom_compete_for_the_same_memory(
    emulated: Any, gpu_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.run_threads("forward")
    # each has several voxels, as in large volumes
    monkeypatch.setattr(engine, "_THREADS", 700)
    done: Counter[str] = Counter()
    for kernels in emulated.sources():

        def counted(name: str, *rest: Any, launch: Any = kernels.launch_blocks) -> None:
            before = emulated.void.atomics
            launch(name, *rest)
            done[name] += emulated.void.atomics - before

        monkeypatch.setattr(kernels, "launch_blocks", counted)
    scan = scanned((30, 64, 96))
    stored = scan.data.stored
    hushpore.run("pores", scan.replace(stored), None, gpu_backend())
    hushpore.run("pores", scan, None, gpu_backend())
    a_voxel = {name: count / stored.size for name, count in done.items() if count}
    # by the block for values near its first, by the thread for what is added up
    for name in ("count_levels", "count_bins", "classify_parts", "count_border_crossings"):
        assert a_voxel.get(name, 0) < 0.1, name


def test_of_a_scanner_on_disk_the_integers_cross(
    gpu_backend: Any, assert_same_pores: Callable[..., None]
) -> None:
    class OnDisk:
        """Reads slices when they are asked for."""

        def __init__(self, values: np.ndarray) -> None:
            self.values, self.shape, self.dtype = values, values.shape, values.dtype

        def __getitem__(self, key: Any) -> np.ndarray:
            return self.values[key]

    in_memory = scanned((20, 24, 28))
    stored = in_memory.data.stored.astype(">u2")
    on_disk = in_memory.replace(in_memory.data.with_stored(OnDisk(stored)))
    found = hushpore.run("pores", on_disk, None, gpu_backend())
    assert_same_pores(found, hushpore.run("pores", in_memory, None, "cpu"))
    assert found.provenance["optimisations"]["void on GPU"] == "on, uint16 values cross as they are"
    assert "reading" in found.timings


def test_labels_stay_on_the_gpu_on_request(
    gpu_backend: Any, strict: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = scanned((20, 24, 28))
    found = hushpore.segment_pores(volume, device=gpu_backend(), device_result=True)
    assert isinstance(found.device_labels, strict.DeviceArray)
    assert found.device_labels.dtype == np.int32
    np.testing.assert_array_equal(np.asarray(found.device_labels), found.labels)
    # other labels are made on the host
    assert found.remerge(2.0).device_labels is None
    assert hushpore.segment_pores(volume, device=gpu_backend()).device_labels is None
    assert hushpore.segment_pores(volume, device="cpu", device_result=True).device_labels is None
    room = math.ceil(9 * 24 * 28 * engines.BYTES_A_VOXEL / POOLED)
    in_slabs = hushpore.segment_pores(volume, device=gpu_backend(free=room), device_result=True)
    assert in_slabs.device_labels is None

    def no_room(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(engines.GpuWhole, "relabelled", no_room)
    without = hushpore.segment_pores(volume, device=gpu_backend(), device_result=True)
    assert without.device_labels is None
    assert without.notes == ("The labels do not fit into the GPU's memory: none stay there.",)
    np.testing.assert_array_equal(without.labels, found.labels)


def test_without_cupy_pores_are_segmented_on_the_cpu_and_it_is_said(
    emulated_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    found = hushpore.run("pores", scanned((24, 28, 36)), None, emulated_backend())
    assert len(found.pores) > 0
    assert "CuPy is not installed: pip install 'hushpore[cuda" in found.notes[0]


def test_where_its_kernels_cannot_be_compiled_the_cpu_does_it_and_it_is_said(
    gpu_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(backend: Any) -> None:
        raise RuntimeError("nvrtc: error: invalid value for --gpu-architecture\n...")

    monkeypatch.setattr(Gpu, "of", fail)
    found = hushpore.run("pores", scanned((24, 28, 36)), None, gpu_backend())
    assert len(found.pores) > 0
    (note,) = found.notes
    assert "its kernels could not be compiled and run: nvrtc: error: invalid value" in note
    assert "..." not in note


@pytest.mark.gpu
@pytest.mark.needs("cupy")
@pytest.mark.parametrize("settings", HOW, ids=str)
@pytest.mark.parametrize("slices", [0, 9])
@pytest.mark.parametrize("scan", [floats, scanned])
def test_on_a_gpu_a_job_gives_what_it_gives_on_the_cpu(
    settings: dict[str, Any],
    slices: int,
    scan: Callable[..., Volume],
    monkeypatch: pytest.MonkeyPatch,
    assert_same_pores: Callable[..., None],
) -> None:
    from hushpore.device.backend import choose_backend

    backend, volume = choose_backend("cuda"), scan((60, 70, 80))
    if slices:
        few = slices * 70 * 80 * engines.BYTES_A_VOXEL
        monkeypatch.setattr(Backend, "free_memory", lambda self: few if self.is_cuda else 10**10)
    found = hushpore.run("pores", volume, settings, backend)
    assert found.provenance["device"].startswith(backend.name)
    assert_same_pores(found, hushpore.run("pores", volume, settings, "cpu"))
