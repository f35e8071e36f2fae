from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from hushpore.base.errors import DeviceError, InputError
from hushpore.device.backend import Backend, choose_backend, cpu_threads, cupy_extra
from hushpore.device.memory import is_out_of_memory
from hushpore.device.switches import Switches
from hushpore.device.transfers import Readback
from hushpore.jobs import JOBS

WITHOUT_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")


def test_the_cpu_is_taken_at_its_word() -> None:
    backend = choose_backend("cpu")
    assert (backend.device, backend.is_cuda) == ("cpu", False)
    assert str(cpu_threads()) in backend.name


@WITHOUT_CUDA
@pytest.mark.parametrize(("threads", "name"), [(1, "CPU, 1 thread"), (3, "CPU, 3 threads")])
def test_a_processor_is_named_with_the_threads_that_are_used(threads: int, name: str) -> None:
    assert Backend(threads=threads).name == name


def test_auto_falls_back_to_the_cpu_and_says_why() -> None:
    backend = choose_backend("auto")
    assert backend.device == "cpu"
    assert backend.reason.startswith("no usable GPU: ")


@WITHOUT_CUDA
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there_is_refused_with_what_to_use(device: str) -> None:
    with pytest.raises(DeviceError, match=r"cannot be used: .* Use 'auto' or 'cpu'"):
        choose_backend(device)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU.",
            "Found no NVIDIA driver on your system",
        ),
        ("No CUDA GPUs are available", "No CUDA GPUs are available"),
        (
            "CUDA error: no kernel image is available for execution on the device\nMore of it.",
            "CUDA error: no kernel image is available for execution on the device",
        ),
    ],
)
def test_what_is_missing_for_a_gpu_is_said(
    said: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init() -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", init)
    assert choose_backend("auto").reason == f"no usable GPU: {reason}"


def test_a_device_that_is_no_word_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"expected 'auto', .*; got 3"):
        choose_backend(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["gpu", "cuda:", "CPU", "", "cuda:one"])
def test_an_unknown_device_is_refused(device: str) -> None:
    with pytest.raises(DeviceError, match="Unknown device"):
        choose_backend(device)


@pytest.mark.gpu
def test_a_gpu_is_chosen_where_there_is_one() -> None:
    backend = choose_backend("auto")
    assert backend.is_cuda
    values = np.arange(6, dtype=np.uint16).reshape(2, 3)
    np.testing.assert_array_equal(backend.get(backend.put(values)), values)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "i8", "f2", "f4", "f8"])
def test_values_cross_in_the_dtype_of_the_file_and_come_back_as_float32(dtype: str) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype)
    values.flags.writeable = False
    there = Backend().put(values)
    assert there.element_size() == values.itemsize
    back = Backend().get(there)
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, values)


def test_free_memory_is_known() -> None:
    assert Backend().free_memory() > 2**20


def test_readback_hands_copies_out_in_order_and_once() -> None:
    readback = Readback(None)
    value = torch.zeros(())
    for step in range(3):
        value += 1
        readback.push(step, value)
    assert [(tag, float(x)) for tag, x in readback.arrived()] == [(0, 1.0), (1, 2.0), (2, 3.0)]
    assert readback.arrived() == []
    assert readback.drain() == []


@pytest.mark.gpu
def test_readback_from_a_gpu_never_reads_early() -> None:
    backend = choose_backend("cuda")
    readback = Readback(backend.bus(), depth=2)
    value = torch.zeros((), device=backend.device)
    seen = []
    for step in range(20):
        torch.cuda._sleep(1_000_000)
        value += 1
        readback.push(step, value)
        seen += readback.arrived()
    seen += readback.drain()
    assert [(tag, float(x)) for tag, x in seen] == [(k, k + 1.0) for k in range(20)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("cudaErrorMemoryAllocation: out of memory"), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_out_of_memory_is_recognised_whoever_says_it(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_a_cpu_says_what_it_has_and_what_a_gpu_would_take() -> None:
    version, memory, *rest = Backend().details()
    assert version.startswith(f"PyTorch {torch.__version__}")
    assert memory.endswith("GB of memory free")
    assert rest[-1] == "pinned, graphs: no effect, no CUDA device"
    if torch.version.cuda is None:
        assert rest[0].startswith("an NVIDIA GPU needs PyTorch for CUDA")


@pytest.mark.parametrize(
    ("cuda", "extra"), [("12.8", "cuda12"), ("13.0", "cuda13"), (None, "cuda12")]
)
def test_the_extra_that_fits_to_the_installed_pytorch_is_named(
    cuda: str | None, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    assert cupy_extra() == extra
    wanted = f"pip install 'hushpore[{extra}]'"
    assert any(line.endswith(wanted) for line in Backend().details()) == (cuda is not None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**9, 10**10))
    lines = Backend("cuda:0", "a GPU").details()
    assert lines[2].endswith(f"CuPy is not installed: {wanted}")


def test_what_runs_on_a_gpu_of_amd_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**9, 10**10))
    lines = Backend("cuda:0", "an AMD GPU").details()
    assert lines[0].endswith("for ROCm 6.4: denoising")
    assert lines[2] == "pores are segmented on the CPU: the kernels need an NVIDIA GPU"
    with pytest.raises(DeviceError, match="the kernels need an NVIDIA GPU"):
        Backend("cuda:0", "an AMD GPU").cupy()


def test_a_gpu_of_apple_is_taken_for_denoising_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(DeviceError, match="PyTorch finds no Apple GPU"):
        choose_backend("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    told = "not tested by us: compare with the CPU first"
    assert (
        f"for the Apple GPU, choose the device mps: denoising only, {told}" in Backend().details()
    )
    assert choose_backend("auto").device == "cpu"
    found = JOBS["denoise"].backend("mps")
    assert (found.device, found.name, found.is_gpu) == ("mps", "Apple GPU", True)
    assert found.details()[0] == f"Apple GPU: for denoising only, {told}; all else runs on the CPU"
    # nothing of CUDA is asked for
    assert found.timer().timing().device_memory == 0
    assert (found.bus(), found.graph_capture()) == (None, None)
    for job in set(JOBS) - {"denoise"}:
        assert JOBS[job].backend("mps").device == "cpu"


def test_the_memory_that_jobs_may_take_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUSHPORE_MEMORY", "2")
    assert Backend().details()[1].endswith("GB of memory free; memory limit of jobs: 2 GB")


def test_switches_that_are_preferred_hold_where_none_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HUSHPORE_SWITCHES", "graphs=on")
    assert Backend().choices.asked("graphs") is True
    assert Backend(switches=Switches()).choices.asked("graphs") is None
    monkeypatch.setenv("HUSHPORE_SWITCHES", "speed=on")
    with pytest.raises(InputError, match="The switch 'speed' does not exist"):
        _ = Backend().choices


@pytest.mark.gpu
def test_a_gpu_says_with_what_it_is_used() -> None:
    backend = choose_backend("cuda")
    assert backend.details()[0].startswith(f"PyTorch {torch.__version__} for CUDA")
    backend.put(np.zeros(10))
    backend.release()
