"""The most memory that was in use; and how much of a device PyTorch and CuPy may take together."""

from __future__ import annotations

import gc
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch

from hushpore.device import memory
from hushpore.device.backend import Backend
from hushpore.device.memory import (
    LEAST_PINNED,
    PeakMemory,
    arrays_apart,
    free_pools,
    freed_memory_kept,
    give_back_freed,
    lift_limits,
    limit_pools,
)
from hushpore.device.timing import HostClock, StageTimer


def test_the_most_memory_is_kept_after_it_was_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    held = iter([GB, 3 * GB, 2 * GB])
    monkeypatch.setattr(
        psutil.Process, "memory_info", lambda process: SimpleNamespace(rss=next(held))
    )
    # the system's own record is of all that ran in this process before
    monkeypatch.setattr(PeakMemory, "_highest", lambda peak: 0)
    peak = PeakMemory()
    peak.update()
    peak.update()
    assert (peak.host, peak.device) == (3 * GB, 0)


def test_memory_that_this_process_takes_is_seen() -> None:
    peak = PeakMemory()
    before = peak.host
    taken = np.ones(1 << 25)
    peak.update()
    assert taken.nbytes == 1 << 28
    # half of it: others may have given memory back meanwhile
    assert peak.host >= before + (1 << 27)


GB = 10**9


class OnDevice:
    def __init__(self, number: int) -> None:
        assert number == 1

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        pass


class Pool:
    def __init__(self) -> None:
        self.held, self.limit, self.freed = 2 * GB, 0, 0

    def total_bytes(self) -> int:
        return self.held

    def set_limit(self, size: int) -> None:
        self.limit = size

    def free_all_blocks(self) -> None:
        self.freed += 1


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    """Of CuPy, on a GPU of 24 GB of which others hold 10, and PyTorch 3."""
    pool = Pool()
    cupy = SimpleNamespace(
        get_default_memory_pool=lambda: pool, get_default_pinned_memory_pool=lambda: pool
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (9 * GB, 24 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3 * GB)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    return pool


def test_both_are_bounded_by_what_others_leave(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: shares.append(share)
    )
    limit_pools("cuda:0")
    # nine tenths of 9 + 3 + 2
    assert shares == [pytest.approx(12.6 / 24)]
    assert pool.limit == pytest.approx(9.6 * GB)
    lift_limits("cuda:0")
    assert shares[1:] == [1.0]
    assert pool.limit == 0


def test_what_both_hold_unused_is_given_back(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    clear, empty = (lambda: said.append("workspaces")), (lambda: said.append("cache"))
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", clear, raising=False)
    monkeypatch.setattr(torch.cuda, "empty_cache", empty)
    free_pools()
    assert pool.freed == 2
    # in this order: the cache gives back what the workspaces have left in it
    assert said == ["workspaces", "cache"]


def test_where_pytorch_has_no_workspaces_pools_are_freed_all_the_same(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch._C, "_cuda_clearCublasWorkspaces", raising=False)
    free_pools()
    assert pool.freed == 2


def test_without_cupy_pytorch_is_bounded_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (9 * GB, 24 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3 * GB)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    shares: list[float] = []
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: shares.append(share)
    )
    limit_pools("cuda:0")
    lift_limits("cuda:0")
    assert shares == [pytest.approx(10.8 / 24), 1.0]


def test_work_that_moves_to_a_device_has_its_memory_followed(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 5 * GB)
    sys.modules["cupy"].cuda = SimpleNamespace(Device=OnDevice)
    clock = HostClock()
    clock.device = "cuda:1"
    timer = StageTimer()
    timer.run_on(clock)
    pool.held = 6 * GB
    timer.run_on(HostClock())
    pool.held = 0
    assert timer.timing().device_memory == 11 * GB


SHAPE = (LEAST_PINNED // 200 + 1, 100)


class Runtime:
    """Stands for the CUDA runtime: keeps which memory is pinned."""

    def __init__(self, refuses):
        self.refuses, self.pinned = refuses, {}

    def cudaHostRegister(self, address, nbytes, flags):  # noqa: N802
        if self.refuses:
            return 2  # out of memory
        self.pinned[address] = nbytes
        return 0

    def cudaHostUnregister(self, address):  # noqa: N802
        del self.pinned[address]
        return 0


@pytest.fixture
def runtime(monkeypatch, request):
    runtime = Runtime(getattr(request, "param", False))
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    return runtime


def test_for_the_cpu_it_is_plain_memory(runtime):
    assert Backend().empty(SHAPE, np.dtype(np.int16)).shape == SHAPE
    assert runtime.pinned == {}


def test_for_a_gpu_memory_is_pinned_as_long_as_any_part_of_it_is_used(runtime):
    values = Backend("cuda:0").empty(SHAPE, np.dtype(np.int16))
    assert (values.shape, values.dtype) == (SHAPE, np.int16)
    assert runtime.pinned == {values.ctypes.data: values.nbytes}
    part = values[3:5]
    del values
    gc.collect()
    assert len(runtime.pinned) == 1
    del part
    gc.collect()
    assert runtime.pinned == {}


@pytest.mark.parametrize("runtime", [True], indirect=True)
def test_where_the_system_refuses_memory_is_plain_and_nobody_else_hears_of_it(runtime, monkeypatch):
    def next_kernel(size, device):
        assert device == "cuda:0"
        asked.append(size)
        raise RuntimeError("CUDA error: out of memory")

    asked = []
    monkeypatch.setattr(torch, "ones", next_kernel)
    assert Backend("cuda:0").empty(SHAPE, np.dtype(np.int16)).shape == SHAPE
    assert asked == [1]


def test_little_memory_is_not_pinned(runtime):
    Backend("cuda:0").empty((3, 4), np.dtype(np.int16))
    assert runtime.pinned == {}


_FAULTS = """
import resource, numpy as np
from hushpore.device.memory import freed_memory_kept

def pages():
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.full(5_000_000, 1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start

def held():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

before = held()
plain = [pages() for _ in range(3)][-1]
with freed_memory_kept():
    kept = [pages() for _ in range(3)][-1]
print(plain, kept, held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of GNU's C library")
def test_freed_memory_is_taken_again_and_given_back_at_the_end() -> None:
    if memory._c_library() is None:
        pytest.skip("another C library")
    command = [sys.executable, "-c", _FAULTS]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    plain, kept, more = map(int, found.stdout.split())
    # 40 MB are some 10,000 pages, or 20 huge ones
    assert kept <= plain / 10
    assert more < 20e6


def test_what_one_ends_another_may_still_use() -> None:
    with freed_memory_kept():
        with freed_memory_kept():
            pass
        assert memory._active == [memory._KEPT]
        assert np.ones(10).sum() == 10
    assert not memory._active


_LEFT = """
import threading, numpy as np
from hushpore.device.memory import give_back_freed

def held():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

together = threading.Barrier(6)

def work():
    together.wait()
    # 50 MB, each too small to be taken from the system by itself
    arrays = [np.ones(12_500) for _ in range(500)]
    del arrays
    give_back_freed()

np.empty(2**25, np.uint8)
before = held()
for _ in range(2):
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of GNU's C library")
def test_nothing_is_left_of_what_threads_have_freed_in_heaps_of_their_own() -> None:
    command = [sys.executable, "-c", _LEFT]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    # else some 190 MB
    assert int(found.stdout) < 20e6


_BETWEEN = """
import sys, numpy as np
from contextlib import nullcontext
from hushpore.device.memory import arrays_apart

def held():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

np.empty(2**24, np.uint8)
before = held()
with arrays_apart() if sys.argv[1] == "apart" else nullcontext():
    # 50 MB that are freed, each megabyte before a little that is kept
    pairs = [(np.ones(125_000), np.ones(1_000)) for _ in range(50)]
    kept = [little for _, little in pairs]
    del pairs
    print(held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of GNU's C library")
@pytest.mark.parametrize(
    ("how", "least", "most"), [("apart", -1e6, 3e6), ("as they are", 10e6, 1e9)]
)
def test_arrays_that_lie_apart_leave_nothing_between_those_that_are_kept(
    how: str, least: float, most: float
) -> None:
    if memory._c_library() is None:
        pytest.skip("another C library")
    command = [sys.executable, "-c", _BETWEEN, how]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert least <= int(found.stdout) < most


def test_without_such_a_library_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_c_library", lambda: None)
    with freed_memory_kept(), arrays_apart():
        assert len(memory._active) == 2
    give_back_freed()
    assert not memory._active


def test_sizes_are_as_before_a_block_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[int, int] = {}
    library = SimpleNamespace(mallopt=sizes.__setitem__, malloc_trim=lambda kept: None)
    monkeypatch.setattr(memory, "_c_library", lambda: library)
    with freed_memory_kept():
        with arrays_apart():
            assert sizes == {**memory._NORMAL, **memory._SEPARATE}
        assert sizes == memory._KEPT
    assert sizes == memory._NORMAL
