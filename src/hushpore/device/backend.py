"""The device of a job, with the reason for choosing it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import DeviceError, first_line
from hushpore.base.preferences import memory_limit, preferred
from hushpore.base.rescaled import Scaled
from hushpore.device.memory import PeakMemory, free_pools, lift_limits, limit_pools, pinned_array
from hushpore.device.switches import Choices, Switches
from hushpore.device.timing import Clock, CudaClock, HostClock, StageTimer

if TYPE_CHECKING:
    import torch

    from hushpore.base.arrays import Array, Float32s
    from hushpore.device.graphs import CudaGraphCapture, GraphReplays
    from hushpore.device.transfers import CudaBus, Transfers

_DEVICES = "expected 'auto', 'cpu', 'cuda', 'cuda:1' and so on, or 'mps' (Apple's GPU)"
_NO_TORCH = "PyTorch is not installed"

#: Warning about GPUs that hushpore was never tested on.
UNTRIED = "not tested by us: compare with the CPU first"

#: Remedy if a device cannot be used.
_INSTEAD = ". Use 'auto' or 'cpu'."


@dataclass(frozen=True)
class Backend:
    """The device of a job."""

    device: str = "cpu"  # ``"cpu"``, ``"cuda:0"`` or ``"mps"``
    name: str = ""  # of the device, for users; by default the CPU with its number of threads
    reason: str = "as requested"  # reason for the choice, for the form and the record
    # optimisations that may be used; None: those of the preferences
    switches: Switches | None = None
    # CPU threads for the kernels of pore segmentation; None: one per core
    threads: int | None = None
    # whether the labels of a segmentation stay on the device, see `hushpore.segment_pores`
    keeps_labels: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            count = self.threads or cpu_threads()
            name = f"CPU, {count} thread{'s' if count > 1 else ''}"
            object.__setattr__(self, "name", name)

    @property
    def is_cuda(self) -> bool:
        """Whether this is a CUDA device."""
        return self.device.startswith("cuda")

    @property
    def is_apple(self) -> bool:
        """Whether this is the GPU of a Mac: it shares the host's memory and lacks 64-bit types."""
        return self.device == "mps"

    @property
    def is_gpu(self) -> bool:
        """Whether this is a GPU, so that a job can fall back to the CPU if memory runs out."""
        return self.is_cuda or self.is_apple

    @property
    def description(self) -> str:
        """The device with its reason, for the record."""
        return f"{self.name} ({self.reason})"

    def details(self) -> list[str]:
        """Return lines on the libraries, the memory and the optimisations of the device."""
        lines = self._details_of_gpu() if self.is_cuda else self._details_of_cpu()
        if self.is_apple:
            lines.insert(0, f"Apple GPU: for denoising only, {UNTRIED}; all else runs on the CPU")
        return [*lines, *self.choices.outlook()]

    def _details_of_cpu(self) -> list[str]:
        import psutil

        memory, limit = psutil.virtual_memory(), memory_limit()
        free = f"{memory.available / 1e9:.3g} of {memory.total / 1e9:.3g} GB of memory free"
        free += "" if limit is None else f"; memory limit of jobs: {limit / 1e9:.3g} GB"
        if find_spec("torch") is None:
            return [free, f"{_NO_TORCH}; denoising needs it: pip install 'hushpore[denoise]'"]
        import torch

        cuda = torch.version.cuda
        built = f"for CUDA {cuda}" if cuda else "built for the CPU only"
        lines = [f"PyTorch {torch.__version__}, {built}", free]
        if cuda is None:
            lines.append(
                "an NVIDIA GPU needs PyTorch for CUDA: https://pytorch.org/get-started/locally"
            )
        else:
            lines.append(
                f"pore segmentation on an NVIDIA GPU: pip install 'hushpore[{cupy_extra()}]'"
            )
        if torch.backends.mps.is_available() and not self.is_apple:
            lines.append(f"for the Apple GPU, choose the device mps: denoising only, {UNTRIED}")
        return lines

    def _details_of_gpu(self) -> list[str]:
        import torch

        free, total = torch.cuda.mem_get_info(self.device)
        rocm = torch.version.hip
        platform = f"ROCm {rocm}" if rocm else f"CUDA {_cuda_of_torch()}"
        lines = [
            f"PyTorch {torch.__version__} for {platform}: denoising",
            f"{free / 1e9:.3g} of {total / 1e9:.3g} GB of GPU memory free",
        ]
        if rocm:
            return [*lines, "pores are segmented on the CPU: the kernels need an NVIDIA GPU"]
        try:
            cupy = self._working_cupy()
        except DeviceError as error:
            return [*lines, f"pores are segmented on the CPU: {error}"]
        version = cupy.cuda.runtime.runtimeGetVersion()
        cupy_version = f"CuPy {cupy.__version__} for CUDA {version // 1000}.{version % 1000 // 10}"
        return [*lines, f"{cupy_version}: pore segmentation"]

    def timer(self) -> StageTimer:
        """Return a stage timer on this device's clock."""
        return StageTimer(self.clock(), PeakMemory(self.device), self.choices)

    @cached_property
    def choices(self) -> Choices:
        """The decisions on each optimisation, for one job."""
        switches = self.switches or Switches.parse(preferred("switches").value)
        return Choices(switches, "" if self.is_cuda else "no CUDA device")

    @cached_property
    def transfers(self) -> Transfers:
        """Copies of arrays to and from this device."""
        from hushpore.device.transfers import Transfers

        self.limit_memory()
        return Transfers(self.device, self.bus(), self.choices)

    def bus(self) -> CudaBus | None:
        """Return the CUDA operations for transfers; None on other devices."""
        if not self.is_cuda:
            return None
        from hushpore.device.transfers import CudaBus

        return CudaBus(self.device)

    def graph_capture(self) -> CudaGraphCapture | None:
        """Return the capture of CUDA graphs; None on other devices."""
        if not self.is_cuda:
            return None
        from hushpore.device.graphs import CudaGraphCapture

        return CudaGraphCapture(self.device)

    def graph_replays(self, name: str) -> GraphReplays | None:
        """Return replays of CUDA graphs under a name for the record; None on other devices."""
        capturer = self.graph_capture()
        if capturer is None:
            return None
        from hushpore.device.graphs import GraphReplays

        return GraphReplays(name, capturer, self.choices)

    def clock(self) -> Clock:
        """Return a clock of this device."""
        return CudaClock(self.device) if self.is_cuda else HostClock()

    def put(self, values: Array | Scaled) -> torch.Tensor:
        """Copy an array to the device in its own type, which is cheaper to convert there.

        Scaled integers are copied as integers and scaled on the device. Apple's GPU, which shares
        the memory but lacks some types, gets float32.
        """
        if self.is_apple:
            values = np.asarray(values, np.float32)
        if isinstance(values, Scaled):
            from hushpore.device.transfers import grey_values

            return grey_values(self.transfers.upload(values.stored), values)
        return self.transfers.upload(values)

    def get(self, values: torch.Tensor) -> Float32s:
        """Copy a tensor to the host as float32; waits for the device."""
        return self.transfers.download(values.float())

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialised array on the host, pinned for a GPU if the system allows it."""
        return pinned_array(self.device, shape, dtype) if self.is_cuda else np.empty(shape, dtype)

    def free_memory(self) -> int:
        """Return the free device memory in bytes; on the host at most the preferred limit."""
        if self.is_cuda:
            import torch

            return int(torch.cuda.mem_get_info(self.device)[0])
        import psutil

        free, limit = int(psutil.virtual_memory().available), memory_limit()
        return free if limit is None else min(free, limit)

    def limit_memory(self) -> None:
        """Limit the memory pools to the free memory of the device, until `release`."""
        if self.is_cuda:
            limit_pools(self.device)

    def release(self) -> None:
        """Release cached device memory; called once at the end of a job."""
        if self.is_cuda:
            self.transfers.release()
            free_pools()
            lift_limits(self.device)
        if self.is_apple:
            import torch

            torch.mps.empty_cache()

    def cupy(self) -> Any:
        """Return CuPy with this device as the current one.

        CuPy and PyTorch together are limited to the free memory of the device, until `release`.

        Raises DeviceError if CuPy is not installed or cannot use the device.
        """
        cupy = self._working_cupy()
        self.limit_memory()
        return cupy

    def _working_cupy(self) -> Any:
        import torch

        if torch.version.hip:
            raise DeviceError("the kernels need an NVIDIA GPU")
        try:
            import cupy

            cupy.cuda.Device(int(self.device.partition(":")[2] or 0)).use()
            # packages for another CUDA, or half of one, fail only in use
            cupy.zeros(1).sum().get()
        except ImportError:
            raise DeviceError(
                f"CuPy is not installed: pip install 'hushpore[{cupy_extra()}]'"
            ) from None
        except Exception as error:
            raise DeviceError(
                f"CuPy cannot use {self.name}: {first_line(error)}. For this PyTorch (CUDA "
                f"{_cuda_of_torch()}), install 'hushpore[{cupy_extra()}]'"
            ) from None
        return cupy


def choose_backend(device: str = "auto", switches: Switches | None = None) -> Backend:
    """Choose the device of a job.

    `device`: ``"auto"`` for the preferred device (`hushpore.base.preferences`), otherwise a CUDA
    device that PyTorch can use, otherwise the CPU; or ``"cpu"``, ``"cuda"``, ``"cuda:1"``,
    ``"mps"`` (Apple's GPU). `switches`: the optimisations that may be used; by default those of the
    preferences.
    Raises DeviceError if the device is unknown, or cannot be used.
    """
    if switches is not None:
        return replace(choose_backend(device), switches=switches)
    if not isinstance(device, str):
        raise DeviceError(f"{_DEVICES}; got {device!r}.")
    if device == "auto":
        wanted, reason = preferred("device")
        if wanted != "auto":
            try:
                return replace(choose_backend(wanted), reason=reason)
            except DeviceError as error:
                # a preference must not make jobs fail
                return Backend(reason=f"{wanted} {reason}, but: {error}".removesuffix(_INSTEAD))
    if device in ("cpu", "mps"):
        return Backend() if device == "cpu" else _apple()
    if device != "auto" and not re.fullmatch(r"cuda(:\d+)?", device):
        raise DeviceError(f"Unknown device {device!r}: {_DEVICES}.")
    number = int(device.partition(":")[2] or 0)
    problem = _cuda_problem(number)
    if problem:
        if device == "auto":
            return Backend(reason=f"no usable GPU: {problem}")
        raise DeviceError(f"Device {device!r} cannot be used: {problem}{_INSTEAD}")
    import torch

    reason = "a GPU is available" if device == "auto" else "as requested"
    return Backend(f"cuda:{number}", torch.cuda.get_device_name(number), reason)


def _apple() -> Backend:
    if find_spec("torch") is None:
        raise DeviceError(f"Device 'mps' cannot be used: {_NO_TORCH}{_INSTEAD}")
    from torch.backends import mps

    if not mps.is_available():
        raise DeviceError(f"Device 'mps' cannot be used: PyTorch finds no Apple GPU{_INSTEAD}")
    return Backend("mps", "Apple GPU")


def cupy_extra() -> str:
    """Return the extra of this package whose CuPy matches the installed PyTorch."""
    return "cuda13" if _cuda_of_torch().startswith("13.") else "cuda12"


def _cuda_of_torch() -> str:
    import torch

    return torch.version.cuda or "none: it is built for the CPU only"


def cpu_threads() -> int:
    """Return the number of CPU cores available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cuda_problem(number: int) -> str:
    """Return why CUDA device `number` cannot be used; empty if it can."""
    if find_spec("torch") is None:
        return _NO_TORCH
    import torch

    if not torch.backends.cuda.is_built() and not torch.version.hip:  # type: ignore[no-untyped-call]
        return "the installed PyTorch is built for the CPU only"
    try:
        # the error names the missing part: a driver, a newer driver, a device
        torch.cuda.init()  # type: ignore[no-untyped-call]
        count = torch.cuda.device_count()
        if number >= count:
            return f"there are {count} CUDA devices, numbered from 0"
        # a device that this build has no code for fails only in use
        torch.zeros(1, device=f"cuda:{number}").add_(1)
        torch.cuda.synchronize(number)
    except RuntimeError as error:
        return str(error).splitlines()[0].partition(". ")[0].removesuffix(".")
    return ""
