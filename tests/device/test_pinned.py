import gc

import numpy as np
import pytest
import torch

from hushpore.device.backend import Backend
from hushpore.device.pinned import LEAST, empty_for

SHAPE = (LEAST // 200 + 1, 100)


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


def test_for_the_cpu_it_is_plain_memory():
    assert empty_for(Backend()) is np.empty


def test_for_a_gpu_memory_is_pinned_as_long_as_any_part_of_it_is_used(runtime):
    values = empty_for(Backend("cuda:0"))(SHAPE, np.dtype(np.int16))
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
    assert empty_for(Backend("cuda:0"))(SHAPE, np.dtype(np.int16)).shape == SHAPE
    assert asked == [1]


def test_little_memory_is_not_pinned(runtime):
    empty_for(Backend("cuda:0"))((3, 4), np.dtype(np.int16))
    assert runtime.pinned == {}
