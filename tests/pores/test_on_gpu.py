"""The GPU's kernels against the CPU's: on a GPU where there is one, and everywhere on the CPU.

On the CPU the same sources are compiled by g++ and their threads run in four orders: a thread that
depends on another shows as a result that differs.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np
from scipy import ndimage as ndi

import hushpore
from hushpore import Volume
from hushpore.device.backend import Backend
from hushpore.device.clocks import HostClock
from hushpore.pores import gpu_passes, on_gpu
from hushpore.pores.basins import find_basins
from hushpore.pores.distance import squared_distance
from hushpore.pores.graph import BasinGraph, build_graph
from hushpore.pores.on_gpu import Gpu

if TYPE_CHECKING:
    from hushpore.pores.parallel import Workers

SHIM = Path(__file__).parents[1] / "cuda_shim" / "shim.py"
KERNELS = sorted((Path(on_gpu.__file__).parent / "kernels").glob("*.cu"))
ISOTROPIC, FLAT = (1.0, 1.0, 1.0), (2.5, 1.0, 0.7)
OPEN = (False, False, False)

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def load_shim() -> Any:
    spec = importlib.util.spec_from_file_location("cuda_shim", SHIM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Emulated(Gpu):
    """A GPU whose kernels run on the CPU, in an order of one's choice."""

    def __init__(self, folder: Path) -> None:
        shim = load_shim()
        super().__init__(np, lambda source: shim.ShimKernels(source, folder))
        self.orders = shim.ORDERS

    def run_threads(self, order: str) -> None:
        for kernels in (self._distance, self._basins, self._graph):
            kernels.order = order  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    return Emulated(tmp_path_factory.mktemp("kernels"))


def volumes() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    rock = ndi.gaussian_filter(rng.normal(size=(24, 28, 36)), 3) > 0
    far = np.ones((4, 110, 120), bool)
    far[2, 10, 20] = False
    return {
        "one voxel": np.ones((1, 1, 1), bool),
        "all solid": np.zeros((3, 4, 5), bool),
        "all void": np.ones((3, 4, 5), bool),
        "an image": rng.random((1, 30, 70)) < 0.8,
        "dust": rng.random((9, 10, 11)) < 0.3,
        "rock": rock,
        "far from any solid": far,
    }


def assert_equal(
    gpu: Gpu,
    void: np.ndarray,
    workers: Workers,
    spacing: tuple[float, ...] = ISOTROPIC,
    solid_outside: tuple[bool, ...] = OPEN,
    *,
    faces_only: bool = False,
) -> None:
    distance = squared_distance(void, spacing, solid_outside, workers)
    there = gpu.squared_distance(gpu.put(void.view(np.uint8)), spacing, solid_outside)
    np.testing.assert_array_equal(gpu.get(there), distance)
    basins, summits = find_basins(distance, workers, faces_only=faces_only)
    climbed = gpu.climb(there, faces_only=faces_only)
    np.testing.assert_array_equal(gpu.get(climbed.basins), basins)
    np.testing.assert_array_equal(gpu.get(climbed.summits), summits)

    def is_open_at(places: np.ndarray) -> np.ndarray:
        return np.asarray(places % 2 == 0)

    is_open = is_open_at(summits)
    graph = build_graph(basins, summits, distance, is_open, workers, faces_only=faces_only)
    found = gpu.build_graph(climbed, there, is_open_at, faces_only=faces_only)
    for name in BasinGraph.__dataclass_fields__:
        expected, value = getattr(graph, name), getattr(found, name)
        assert value.dtype == expected.dtype, name
        assert value.flags.aligned, name
        np.testing.assert_array_equal(value, expected, err_msg=name)


@needs_compiler
@pytest.mark.parametrize("name", volumes())
@pytest.mark.parametrize("order", ["forward", "reverse", "shuffled", "parallel"])
def test_whatever_the_order_of_threads_all_is_as_on_the_cpu(
    name: str, order: str, emulated: Emulated, workers: Workers
) -> None:
    emulated.run_threads(order)
    for spacing in (ISOTROPIC, FLAT):
        assert_equal(emulated, volumes()[name], workers, spacing)
    assert_equal(emulated, volumes()[name], workers, faces_only=True)


@needs_compiler
@pytest.mark.parametrize("solid_outside", [(True, True, True), (True, False, False)])
def test_solid_beyond_the_faces_counts_as_on_the_cpu(
    solid_outside: tuple[bool, ...], emulated: Emulated, workers: Workers
) -> None:
    emulated.run_threads("forward")
    for name in ("rock", "all void", "far from any solid"):
        assert_equal(emulated, volumes()[name], workers, FLAT, solid_outside)


@needs_compiler
@given(
    void=st_np.arrays(bool, st_np.array_shapes(min_dims=3, max_dims=3, max_side=9)),
    spacing=st.tuples(*[st.floats(0.2, 5)] * 3),
    solid_outside=st.tuples(*[st.booleans()] * 3),
    faces_only=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_small_volume_is_as_on_the_cpu(
    void: np.ndarray,
    spacing: tuple[float, ...],
    solid_outside: tuple[bool, ...],
    faces_only: bool,
    emulated: Emulated,
    workers: Workers,
) -> None:
    emulated.run_threads("shuffled")
    assert_equal(emulated, void, workers, spacing, solid_outside, faces_only=faces_only)


@needs_compiler
def test_a_table_of_edges_that_is_too_small_grows(
    emulated: Emulated, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_gpu, "_ROOM", 0)
    emulated.run_threads("parallel")
    void = np.random.default_rng(1).random((30, 30, 30)) < 0.9
    assert_equal(emulated, void, workers)


@dataclass(frozen=True)
class EmulatedBackend(Backend):
    """What a job takes for a GPU."""

    device: str = "cuda:0"
    name: str = "a GPU"
    free: int = 10**12

    def clock(self) -> HostClock:
        return HostClock()

    def free_memory(self) -> int:
        return self.free

    def release(self) -> None:
        pass


@pytest.fixture
def gpu_of_jobs(emulated: Emulated, monkeypatch: pytest.MonkeyPatch) -> Emulated:
    emulated.run_threads("parallel")
    monkeypatch.setattr(Gpu, "of", lambda backend: emulated)
    return emulated


def scan_of(shape: tuple[int, ...]) -> Volume:
    grey = ndi.gaussian_filter(np.random.default_rng(3).normal(size=shape), 2)
    return Volume(grey, spacing=(2.0, 1.0, 1.0)[-len(shape) :], unit="um")


def assert_same_pores(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found.labels, expected.labels)
    pd.testing.assert_frame_equal(found.pores, expected.pores)
    pd.testing.assert_frame_equal(found.throats, expected.throats)
    assert found.provenance["result"] == expected.provenance["result"]


HOW: list[dict[str, Any]] = [
    {},
    {"mode": "closed"},
    {"outside": "remove"},
    {"merging": "snow"},
    {"neighbours": "faces"},
]


@needs_compiler
@pytest.mark.usefixtures("gpu_of_jobs")
@pytest.mark.parametrize("settings", HOW, ids=str)
@pytest.mark.parametrize("shape", [(20, 24, 28), (60, 70)])
def test_a_job_on_a_gpu_gives_what_it_gives_on_the_cpu(
    settings: dict[str, Any], shape: tuple[int, ...]
) -> None:
    found = hushpore.run("pores", scan_of(shape), settings, EmulatedBackend())
    expected = hushpore.run("pores", scan_of(shape), settings, "cpu")
    assert_same_pores(found, expected)
    assert found.provenance["device"].startswith("a GPU")
    assert found.notes == expected.notes
    assert {"upload", "distance", "basins", "measuring", "download"} <= set(found.timings)
    np.testing.assert_array_equal(found.remerge(2.0).labels, expected.remerge(2.0).labels)


@needs_compiler
@pytest.mark.usefixtures("gpu_of_jobs")
@pytest.mark.parametrize("settings", HOW, ids=str)
@pytest.mark.parametrize("order", ["reverse", "parallel"])
def test_what_does_not_fit_on_a_gpu_is_worked_on_there_in_slabs(
    settings: dict[str, Any], order: str, gpu_of_jobs: Emulated
) -> None:
    gpu_of_jobs.run_threads(order)
    scan = scan_of((23, 24, 28))
    # room for nine slices, four of which are those beside a slab
    backend = EmulatedBackend(free=9 * 24 * 28 * gpu_passes.BYTES_A_VOXEL)
    found = hushpore.run("pores", scan, settings, backend)
    expected = hushpore.run("pores", scan, settings, "cpu")
    assert_same_pores(found, expected)
    assert found.notes[-1] == "Worked on in 5 slabs of 5 slices on the GPU."


@needs_compiler
@pytest.mark.usefixtures("gpu_of_jobs")
def test_what_does_not_fit_into_memory_is_worked_on_on_a_gpu_too() -> None:
    scan = Volume(scan_of((40, 100, 100)).data.astype(np.float32))
    expected = hushpore.run("pores", scan, None, "cpu")
    found = hushpore.run("pores", scan, {"memory_budget": 0.004}, EmulatedBackend())
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert "with temporary files" in found.notes[0]
    assert found.notes[-1].endswith("on the GPU.")


@needs_compiler
def test_where_its_memory_runs_out_slabs_are_halved_and_it_is_said(
    gpu_of_jobs: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    climb = Gpu.climb

    def climb_little(self: Gpu, distance: np.ndarray, *args: Any, **how: Any) -> Any:
        if len(distance) > 10:
            raise MemoryError
        return climb(self, distance, *args, **how)

    monkeypatch.setattr(Gpu, "climb", climb_little)
    void = volumes()["rock"]
    found = hushpore.run("pores", void, None, EmulatedBackend())
    assert found.notes == (
        "The GPU's memory ran out: worked on in 2 slabs of 12 slices on the GPU.",
        "The GPU's memory ran out: worked on in 4 slabs of 6 slices on the GPU.",
    )
    assert_same_pores(found, hushpore.run("pores", void, None, "cpu"))


@needs_compiler
def test_where_no_slab_is_thin_enough_the_job_goes_on_on_the_cpu(
    gpu_of_jobs: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*args: Any, **how: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(gpu_of_jobs, "climb", no_room)
    void = volumes()["rock"]
    found = hushpore.run("pores", void, None, EmulatedBackend())
    assert found.notes[-1] == "Pores are segmented on the CPU: the GPU's memory ran out."
    assert found.provenance["device"].startswith("CPU")
    np.testing.assert_array_equal(found.labels, hushpore.run("pores", void, None, "cpu").labels)


@needs_compiler
@pytest.mark.usefixtures("gpu_of_jobs")
def test_a_gpu_that_is_too_small_for_a_slice_is_not_begun_with() -> None:
    found = hushpore.run("pores", volumes()["rock"], None, EmulatedBackend(free=90_000))
    assert found.notes == (
        "Pores are segmented on the CPU: the thinnest slab needs 101 kB of the GPU's memory, where "
        "90 kB are free.",
    )


@needs_compiler
def test_a_rehearsal_comes_to_every_kernel(
    emulated: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim, launched = load_shim(), set()
    for kernels in (emulated._distance, emulated._basins, emulated._graph):
        launch = kernels.launch

        def noted(name: str, *rest: Any, launch: Any = launch) -> None:
            launched.add(name)
            launch(name, *rest)

        monkeypatch.setattr(kernels, "launch", noted)
    emulated.rehearse()
    sources = [path.read_text(encoding="utf-8") for path in KERNELS]
    assert launched == {name for text in sources for name, _ in shim._SIGNATURE.findall(text)}


@needs_compiler
@pytest.mark.parametrize(("merging", "downloads"), [("height", 1), ("snow", 2)])
def test_the_void_goes_up_once_and_the_host_waits_five_times(
    merging: str, downloads: int, gpu_of_jobs: Emulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []
    moved: dict[str, list[int]] = {"put": [], "get": []}

    def counted(name: str) -> Any:
        method = getattr(Gpu, name)

        def call(self: Gpu, values: np.ndarray, *args: Any) -> Any:
            if name != "put":
                waits.append(name)
            if name in moved:
                moved[name].append(values.nbytes)
            return method(self, values, *args)

        return call

    for name in ("put", "get", "where", "number"):
        monkeypatch.setattr(Gpu, name, counted(name))
    scan = scan_of((40, 44, 48))
    found = hushpore.run("pores", scan, {"merging": merging}, EmulatedBackend())
    assert moved["put"] == [scan.data.size]
    # all tables in one piece, and what is of a value a voxel
    assert moved["get"][1:] == [4 * scan.data.size] * downloads
    assert waits == ["where", "number", "where", "get"] + ["get"] * downloads
    assert found.provenance["device"].startswith("a GPU")


def test_without_cupy_pores_are_segmented_on_the_cpu_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    found = hushpore.run("pores", volumes()["rock"], None, EmulatedBackend())
    assert len(found.pores) > 0
    assert "CuPy is not installed: pip install 'hushpore[cuda12]'" in found.notes[0]


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="preloads the library of a Linux compiler")
def test_no_kernel_touches_memory_that_is_not_its_own(tmp_path: Path) -> None:
    script = f"""
import importlib.util, pathlib, numpy as np
spec = importlib.util.spec_from_file_location("cuda_shim", {str(SHIM)!r})
shim = importlib.util.module_from_spec(spec); spec.loader.exec_module(shim)
from hushpore.pores.on_gpu import Gpu
folder, flags = pathlib.Path({str(tmp_path)!r}), ("-fsanitize=address", "-g")
gpu = Gpu(np, lambda source: shim.ShimKernels(source, folder, flags))
rng = np.random.default_rng(0)
for shape in ((1, 1, 1), (1, 5, 60), (7, 8, 9)):
    void = rng.random(shape) < 0.7
    for faces_only in (False, True):
        distance = gpu.squared_distance(void.view(np.uint8), (1.0, 1.0, 1.0), (False, True, False))
        climbed = gpu.climb(distance, faces_only=faces_only)
        gpu.build_graph(climbed, distance, lambda places: places < 0, faces_only=faces_only)
    if len(void) > 4:
        climbed = gpu.climb(distance, 2, 5, 7)
        settled = np.ascontiguousarray(np.abs(climbed.basins))
        numbers = (0, int(settled.max()) + 1)
        gpu.scan(settled, np.ascontiguousarray(distance[2:5]), shape, numbers, 2, 2)
print("clean")
"""
    library = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("needs the address sanitizer of g++")
    surroundings = {**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True,
        env=surroundings,
    )  # fmt: skip
    assert done.stdout == "clean\n", done.stderr


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("source", KERNELS, ids=lambda path: path.stem)
def test_the_compiler_of_cuda_takes_the_kernels(source: Path, architecture: str) -> None:
    problem = load_shim().nvrtc_problem(source, architecture)
    if problem is None:
        pytest.skip("needs NVRTC: pip install nvidia-cuda-nvrtc-cu12")
    assert problem == ""


@pytest.mark.gpu
@pytest.mark.parametrize("name", volumes())
def test_on_a_gpu_all_is_as_on_the_cpu(name: str, workers: Workers) -> None:
    pytest.importorskip("cupy")
    from hushpore.device.backend import choose_backend

    gpu = Gpu.of(choose_backend("cuda"))
    for spacing in (ISOTROPIC, FLAT):
        assert_equal(gpu, volumes()[name], workers, spacing)
    assert_equal(gpu, volumes()[name], workers, faces_only=True)


@pytest.mark.gpu
@pytest.mark.parametrize("settings", HOW, ids=str)
@pytest.mark.parametrize("slices", [0, 9])
def test_on_a_gpu_a_job_gives_what_it_gives_on_the_cpu(
    settings: dict[str, Any], slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cupy")
    from hushpore.device.backend import choose_backend

    backend, scan = choose_backend("cuda"), scan_of((60, 70, 80))
    if slices:
        few = slices * 70 * 80 * gpu_passes.BYTES_A_VOXEL
        monkeypatch.setattr(Backend, "free_memory", lambda self: few if self.is_cuda else 10**10)
    found = hushpore.run("pores", scan, settings, backend)
    assert found.provenance["device"].startswith(backend.name)
    assert_same_pores(found, hushpore.run("pores", scan, settings, "cpu"))
