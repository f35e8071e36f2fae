"""The GPU's kernels against the CPU's: on a GPU where there is one, and everywhere on the CPU.

On the CPU the same sources are compiled by g++ and their threads run in several orders: a thread
that depends on another shows as a result that differs. In one of them warps run as such.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np
from scipy import ndimage as ndi

from hushpore.pores.geometry.sums import DIRECTIONS
from hushpore.pores.gpu import engine, engines
from hushpore.pores.gpu.engine import Gpu
from hushpore.pores.gpu.void import GpuParts
from hushpore.pores.void.components import CLOSED, OPEN, SOLID, closed_bits
from hushpore.pores.watershed.basins import watershed_slab
from hushpore.pores.watershed.distance import squared_distance
from hushpore.pores.watershed.graph import BasinGraph, Tables

if TYPE_CHECKING:
    from hushpore.pores.parallel import KernelThreads

SHIM = Path(__file__).parents[2] / "cuda_shim" / "shim.py"
KERNELS = sorted((Path(engine.__file__).parent / "kernels").glob("*.cu"))
ISOTROPIC, FLAT = (1.0, 1.0, 1.0), (2.5, 1.0, 0.7)
NO_WALLS = (False, False, False)


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
    threads: KernelThreads,
    spacing: tuple[float, ...] = ISOTROPIC,
    solid_outside: tuple[bool, ...] = NO_WALLS,
    *,
    faces_only: bool = False,
) -> None:
    distance = squared_distance(void, spacing, solid_outside, threads)
    there = gpu.squared_distance(gpu.put(void.view(np.uint8)), spacing, solid_outside)
    np.testing.assert_array_equal(gpu.get(there), distance)
    basins = np.empty(void.shape, np.int32)
    how = (distance, basins, threads, 0, len(void))
    peaks = watershed_slab(*how, faces_only=faces_only).peaks
    found = gpu.watershed(there, faces_only=faces_only)
    np.testing.assert_array_equal(gpu.get(found.basins), basins)
    np.testing.assert_array_equal(gpu.get(found.peaks), peaks)

    # every other part of the void is closed
    part = ndi.label(void)[0]
    phase = np.where(void, np.where(part % 2, CLOSED, OPEN), SOLID).astype(np.uint8)
    tables = Tables(void.shape, peaks, faces_only=faces_only)
    tables.add(basins, distance, threads)
    tables.add_closed(basins, closed_bits(phase, threads), threads)
    graph = tables.graph()
    found, _ = gpu.build_graph(found, there, gpu.put(phase), faces_only=faces_only)
    for name in BasinGraph.__dataclass_fields__:
        expected, value = (np.asarray(getattr(each, name)) for each in (graph, found))
        assert value.dtype == expected.dtype, name
        assert value.flags.aligned, name
        np.testing.assert_array_equal(value, expected, err_msg=name)


@pytest.mark.parametrize("name", volumes())
@pytest.mark.parametrize("order", ["forward", "reverse", "shuffled", "parallel"])
def test_whatever_the_order_of_threads_all_is_as_on_the_cpu(
    name: str, order: str, emulated: Any, threads: KernelThreads
) -> None:
    emulated.run_threads(order)
    for spacing in (ISOTROPIC, FLAT):
        assert_equal(emulated, volumes()[name], threads, spacing)
    assert_equal(emulated, volumes()[name], threads, faces_only=True)


@pytest.mark.parametrize("solid_outside", [(True, True, True), (True, False, False)])
def test_solid_beyond_the_faces_counts_as_on_the_cpu(
    solid_outside: tuple[bool, ...], emulated: Any, threads: KernelThreads
) -> None:
    emulated.run_threads("forward")
    for name in ("rock", "all void", "far from any solid"):
        assert_equal(emulated, volumes()[name], threads, FLAT, solid_outside)


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
    emulated: Any,
    threads: KernelThreads,
) -> None:
    emulated.run_threads("shuffled")
    assert_equal(emulated, void, threads, spacing, solid_outside, faces_only=faces_only)


def test_a_table_of_edges_that_is_too_small_grows(
    emulated: Any, threads: KernelThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_ROOM", 0)
    emulated.run_threads("parallel")
    void = np.random.default_rng(1).random((30, 30, 30)) < 0.9
    assert_equal(emulated, void, threads)


@pytest.mark.parametrize("order", ["forward", "parallel"])
def test_a_table_of_edges_that_is_full_is_noticed_after_a_few_places(
    order: str, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.run_threads(order)
    void = (np.random.default_rng(0).random((40, 40, 40)) < 0.97).view(np.uint8)
    distance = emulated.squared_distance(emulated.put(void), ISOTROPIC, NO_WALLS)
    found = emulated.watershed(distance, faces_only=True)
    # nine of ten edges have no place
    monkeypatch.setattr(engine, "_ROOM", 1)
    looked_at, rooms = [], []

    def see(name: str, count: int, *rest: Any) -> None:
        if name == "find_edges":
            looked_at.append(emulated.graph.hops)
            rooms.append(rest[3].size)

    emulated.watch(monkeypatch, see)
    emulated.build_graph(found, distance, emulated.put(void), faces_only=True)
    looked_at.append(emulated.graph.hops)
    assert len(rooms) > 3
    # a thread that reads a whole table looks at thousands of places; at half a load one finds its
    # place after two or three, on average, for at most 13 contacts of each voxel
    of_first, *_, of_last = np.diff(looked_at) / void.size
    assert of_first < 20
    assert of_last < 3 * 13


def test_the_table_of_edges_takes_less_than_the_volume_of_a_noisy_scan(
    emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.run_threads("forward")
    taken = []

    def see(name: str, count: int, *rest: Any) -> None:
        if name == "find_edges":
            # keys, whether they are used, saddles and contacts
            taken.append(sum(rest[number].nbytes for number in (3, 4, 5, 6)))

    emulated.watch(monkeypatch, see)
    void = np.random.default_rng(0).random((24, 40, 40)) < 0.5
    distance = emulated.squared_distance(emulated.put(void.view(np.uint8)), ISOTROPIC, NO_WALLS)
    found = emulated.watershed(distance)
    emulated.build_graph(found, distance, emulated.put(void.view(np.uint8)))
    # a basin for every seventy voxels
    assert found.peaks.size > void.size / 70
    assert taken[0] < engines.BYTES_A_VOXEL * void.size


@pytest.mark.parametrize("order", ["forward", "reverse", "shuffled", "parallel"])
def test_ways_to_the_end_of_a_chain_are_short(
    order: str, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SHIM.parents[2]))
    noise = ndi.gaussian_filter(np.random.default_rng(0).normal(size=(64, 64, 64)), 3, mode="wrap")
    void = emulated.put((noise > 0).view(np.uint8))
    of_parts, of_basins = (
        import_module("benchmarks.gpu_counts").counted(emulated, void, order).values()
    )
    assert 0 < of_parts <= 8
    assert 0 < of_basins <= 4


def test_a_block_adds_what_it_counted_of_an_edge_once(
    emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.run_threads("warps")
    rock, launched = volumes()["rock"], []

    def see(name: str, count: int, *rest: Any) -> None:
        launched.append((name, emulated.graph.atomics))

    emulated.watch(monkeypatch, see)
    phase = emulated.put(rock.view(np.uint8))
    distance = emulated.squared_distance(phase, ISOTROPIC, NO_WALLS)
    found = emulated.watershed(distance)
    basins = emulated.get(found.basins)
    emulated.build_graph(found, distance, phase)
    names, counts = zip(*launched, strict=True)
    at = names.index("find_edges")
    done = counts[at + 1] - counts[at]

    # NumPy: out of which basin voxels of each brick step, and into which, in each direction
    z, y, x = np.indices(basins.shape)
    brick = (z // 8 * 100 + y // 8) * 100 + x // 32
    padded, added, edges, alone = np.pad(basins, 1), 0, set(), 0
    for step in DIRECTIONS:
        inner = tuple(slice(1 + s, 1 + s + n) for s, n in zip(step, basins.shape, strict=True))
        other = padded[inner]
        out = (basins != 0) & (other != basins)
        edge = out & (other != 0)
        pair = np.minimum(basins, other) * 10**6 + np.maximum(basins, other)
        between = {*zip(brick[edge], pair[edge], strict=True)}
        added += len({*zip(brick[out], basins[out], strict=True)}) + len(between)
        edges |= between
        alone += np.count_nonzero(out) + np.count_nonzero(edge)
    # besides, an edge takes its place in the table of all, and its saddle
    assert added <= done <= added + 5 * len(edges)
    assert done < alone / 8


def test_where_warps_run_as_such_all_is_as_on_the_cpu(
    emulated: Any, threads: KernelThreads
) -> None:
    emulated.run_threads("warps")
    for name in ("one voxel", "dust", "rock"):
        assert_equal(emulated, volumes()[name], threads)


@pytest.mark.parametrize("order", ["forward", "reverse", "shuffled", "parallel"])
def test_in_a_wide_void_no_voxel_looks_through_its_row(order: str, emulated: Any) -> None:
    emulated.run_threads(order)
    void = emulated.put(np.ones((3, 8, 2000), np.uint8))
    before = emulated.void.hops
    parts, _, _ = emulated.get(GpuParts(emulated, void).classify(void, CLOSED, OPEN))
    # half a row is 1,000
    assert emulated.void.hops - before < 100 * void.size
    assert parts == 1


@pytest.mark.long
@pytest.mark.needs("asan")
@pytest.mark.skipif(sys.platform != "linux", reason="preloads the library of a Linux compiler")
def test_no_kernel_touches_memory_that_is_not_its_own() -> None:
    script = f"""
import importlib.util, sys, numpy as np
from types import SimpleNamespace
spec = importlib.util.spec_from_file_location("cuda_shim", {str(SHIM)!r})
shim = importlib.util.module_from_spec(spec); spec.loader.exec_module(shim)
from hushpore import Volume
from hushpore.pores.gpu.void import GpuGrey
from hushpore.pores.gpu.void import GpuParts
from hushpore.pores.gpu.engines import GpuWhole
from hushpore.device.timing import StageTimer
from hushpore.pores.void.threshold import Rounding
from hushpore.pores.parallel import KernelThreads
from hushpore.base.events import result_of
from hushpore.pores.slab_steps import classify_void, find_air, find_grey_value, find_void
from hushpore.pores.gpu.engine import Gpu
from hushpore.pores.work import Work
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slabs import Slabs
from hushpore.pores.gpu.engine import SOURCES, definitions
built = shim.build_together(SOURCES, ("-fsanitize=address", "-O0", *definitions()))

class Plain(Gpu):
    # without PyTorch, which takes seconds to import
    def put(self, values): return values
    def get(self, values, out=None): return np.array(values)

nothing_crosses = SimpleNamespace(transfers=None)
gpu = Plain(np, lambda source, macros: built[source], nothing_crosses)
rng = np.random.default_rng(0)
for shape in ((1, 1, 1), (1, 5, 60), (7, 8, 9)):
    void = rng.random(shape) < 0.7
    for faces_only in (False, True):
        distance = gpu.squared_distance(void.view(np.uint8), (1.0, 1.0, 1.0), (False, True, False))
        found = gpu.watershed(distance, faces_only=faces_only)
        gpu.build_graph(found, distance, void.view(np.uint8), faces_only=faces_only)
    for kind in ("u1", "i2", "f4"):
        if void.size == 1:
            continue
        volume = Volume(rng.integers(-100, 100, shape).astype(kind))
        for how in (dict(hysteresis=20.0, threshold=30.0), dict(exterior="remove")):
            settings, whole = PoreSettings(**how), Slabs(shape[0], shape[0])
            engine = GpuWhole(gpu, None, StageTimer())
            work = Work(volume, settings, whole, None, None, engine=engine)
            grey = result_of(find_grey_value(work))
            phase = result_of(find_void(work, grey))
            result_of(classify_void(work, phase, result_of(find_air(work, phase))))
            grey.values.rounded(Rounding.of(grey.values.dtype, -100, 100))
    GpuParts(gpu, void.view(np.uint8)).measure(0, void.size - void[0].size)
    if len(void) > 4:
        found = gpu.watershed(distance, 2, 5, 7)
        labels = np.ascontiguousarray(np.abs(found.basins))
        numbers = (0, int(labels.max()) + 1)
        gpu.scan(labels, np.ascontiguousarray(distance[2:5]), shape, numbers, 2, 2)
assert "torch" not in sys.modules
print("clean")
"""
    library = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    surroundings = {**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True,
        env=surroundings,
    )  # fmt: skip
    assert done.stdout == "clean\n", done.stderr


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("source", KERNELS, ids=lambda path: path.stem)
def test_the_compiler_of_cuda_takes_the_kernels(
    source: Path, architecture: str, cuda_shim: Any
) -> None:
    problem = cuda_shim.nvrtc_problem(source, architecture, engine.definitions())
    assert problem == ""


@pytest.mark.gpu
@pytest.mark.needs("cupy")
@pytest.mark.parametrize("name", volumes())
def test_on_a_gpu_all_is_as_on_the_cpu(name: str, threads: KernelThreads) -> None:
    from hushpore.device.backend import choose_backend

    gpu = Gpu.of(choose_backend("cuda"))
    for spacing in (ISOTROPIC, FLAT):
        assert_equal(gpu, volumes()[name], threads, spacing)
    assert_equal(gpu, volumes()[name], threads, faces_only=True)
