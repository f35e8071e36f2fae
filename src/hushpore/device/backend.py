"""The device that a job runs on, chosen once, with its reason."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import DeviceError, first_line
from hushpore.base.preferences import memory_limit, preferred
from hushpore.base.rescaled import Scaled
from hushpore.device.all_gpus import ALL_GPUS, FROM_FILE_TO_FILE, outlook_of_all_gpus
from hushpore.device.clocks import Clock, CudaClock, HostClock
from hushpore.device.memory import PeakMemory, free_pools, lift_limits, limit_pools, pinned_array
from hushpore.device.switches import Choices, Switches
from hushpore.device.timing import StageTimer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from hushpore.device.graphs import CudaGraphCapture, GraphReplays
    from hushpore.device.resident import Resident
    from hushpore.device.transfers import CudaBus, PendingUpload, Transfers


_DEVICES = (
    f"expected 'auto', 'cpu', 'cuda', 'cuda:1' and so on, {ALL_GPUS!r}, or 'mps' (Apple's GPU)"
)

#: What is said of a GPU that no test of ours has met.
UNTRIED = "which we could not try: compare with the CPU first"

#: What to do where a device cannot be used.
_INSTEAD = ". Use 'auto' or 'cpu'."


@dataclass(frozen=True)
class Backend:
    """Where a job runs."""

    device: str = "cpu"  # ``"cpu"``, ``"cuda:0"`` or ``"mps"``
    name: str = ""  # the device in the user's words; by default the processor with its threads
    reason: str = "as asked"  # why this device, for the form and the record
    # which optimisations may be used on it; None: those that the user prefers
    switches: Switches | None = None
    on_trial: bool = False  # whether the job is to compare it with the CPU, and keep the faster
    # what the jobs of a chain leave on it for each other
    resident: Resident | None = field(default=None, repr=False)
    # of the processor, that the kernels of pores run on; None: as many as it has cores
    threads: int | None = None

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
        """Whether this is the GPU of a Mac: it has the host's memory, and no numbers of 64 bits."""
        return self.device == "mps"

    @property
    def is_gpu(self) -> bool:
        """Whether the CPU can go on where this runs out of memory."""
        return self.is_cuda or self.is_apple

    @property
    def description(self) -> str:
        """The device with its reason, for the record."""
        return f"{self.name} ({self.reason})"

    def details(self) -> list[str]:
        """Say, a line each, with what the device is used, its memory, and what switches will do."""
        lines = self._details_of_gpu() if self.is_cuda else self._details_of_cpu()
        if self.is_apple:
            lines.insert(0, f"Apple's GPU: denoising, {UNTRIED}; all else is done by the CPU")
        several = [outlook_of_all_gpus()] if self.is_cuda else []
        return [*lines, *filter(None, several), *self.choices.outlook()]

    def _details_of_cpu(self) -> list[str]:
        import psutil
        import torch

        memory, limit, cuda = psutil.virtual_memory(), memory_limit(), torch.version.cuda
        built = f"for CUDA {cuda}" if cuda else "built for the CPU only"
        lines = [
            f"PyTorch {torch.__version__}, {built}",
            f"{memory.available / 1e9:.3g} of {memory.total / 1e9:.3g} GB of memory are free"
            + ("" if limit is None else f", of which jobs take {limit / 1e9:.3g} at most"),
        ]
        if cuda is None:
            lines.append(
                "for an NVIDIA GPU, PyTorch has to be built for CUDA: "
                "https://pytorch.org/get-started/locally"
            )
        else:
            lines.append(f"for pores on an NVIDIA GPU: pip install 'hushpore[{cupy_extra()}]'")
        if torch.backends.mps.is_available() and not self.is_apple:
            lines.append(f"for Apple's GPU, choose the device mps: denoising, {UNTRIED}")
        return lines

    def _details_of_gpu(self) -> list[str]:
        import torch

        free, total = torch.cuda.mem_get_info(self.device)
        rocm = torch.version.hip
        platform = f"ROCm {rocm}" if rocm else f"CUDA {_cuda_of_torch()}"
        lines = [
            f"PyTorch {torch.__version__} for {platform}: denoising",
            f"{free / 1e9:.3g} of {total / 1e9:.3g} GB of its memory are free",
        ]
        if rocm:
            return [*lines, "pores are segmented on the CPU: their kernels are for NVIDIA's GPUs"]
        try:
            cupy = self._working_cupy()
        except DeviceError as error:
            return [*lines, f"pores are segmented on the CPU: {error}"]
        version = cupy.cuda.runtime.runtimeGetVersion()
        of = f"CuPy {cupy.__version__} for CUDA {version // 1000}.{version % 1000 // 10}"
        return [*lines, f"{of}: pores, where a slab is segmented faster than on the CPU"]

    def timer(self) -> StageTimer:
        """Return a stage timer on this device's clock."""
        return StageTimer(self.clock(), PeakMemory(self.device), self.choices)

    @cached_property
    def choices(self) -> Choices:
        """What is decided about each optimisation on this backend: that of one job."""
        switches = self.switches or Switches.parse(preferred("switches").value)
        return Choices(switches, "" if self.is_cuda else "no CUDA device")

    @cached_property
    def transfers(self) -> Transfers:
        """How arrays cross to this device and back."""
        from hushpore.device.transfers import Transfers

        self.limit_memory()
        return Transfers(self.device, self.bus(), self.choices)

    def bus(self) -> CudaBus | None:
        """Return what arrays cross by; None on the CPU, where they stay."""
        if not self.is_cuda:
            return None
        from hushpore.device.transfers import CudaBus

        return CudaBus(self.device)

    def graph_capture(self) -> CudaGraphCapture | None:
        """Return what captures work as CUDA graphs; None where there is none."""
        if not self.is_cuda:
            return None
        from hushpore.device.graphs import CudaGraphCapture

        return CudaGraphCapture(self.device)

    def graph_replays(self, what: str) -> GraphReplays | None:
        """Return what replays work, named for the record; None where nothing can be captured."""
        capturer = self.graph_capture()
        if capturer is None:
            return None
        from hushpore.device.graphs import GraphReplays

        return GraphReplays(what, capturer, self.choices)

    def clock(self) -> Clock:
        """Return a clock of this device, for a timer whose job moves to it."""
        return CudaClock(self.device) if self.is_cuda else HostClock()

    def put(self, values: npt.NDArray[Any] | Scaled) -> torch.Tensor:
        """Copy an array to the device as it is: conversion is cheaper there than on the bus.

        Of scaled integers the integers cross, and are scaled there. For Apple's GPU, which has the
        same memory, the host does both: not all types are known there.
        """
        if self.is_apple:
            values = _in_float32(values)
        if isinstance(values, Scaled):
            from hushpore.device.transfers import grey_values

            return grey_values(self.transfers.upload(values.stored), values)
        return self.transfers.upload(values)

    def put_ahead(self, values: npt.NDArray[Any] | Scaled) -> PendingUpload:
        """Begin to copy an array to the device, as `put`, beside the computing if that pays."""
        if self.is_apple:
            values = _in_float32(values)
        if isinstance(values, Scaled):
            from hushpore.device.transfers import PendingUpload, grey_values

            pending = self.transfers.upload_ahead(values.stored)
            return PendingUpload(pending.nbytes, lambda: grey_values(pending.result(), values))
        return self.transfers.upload_ahead(values)

    def get(self, values: torch.Tensor) -> npt.NDArray[np.float32]:
        """Copy a tensor back to the host as float32; waits for the device."""
        return self.transfers.download(values.float())

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return an array of the host, not filled, of which copies to this device are fastest.

        For a GPU its memory is pinned, where the system allows it, until the array is let go.
        """
        import numpy as np

        return pinned_array(self.device, shape, dtype) if self.is_cuda else np.empty(shape, dtype)

    def free_memory(self) -> int:
        """Bytes that can still be taken on the device; on the host what is preferred at most."""
        if self.is_cuda:
            import torch

            return int(torch.cuda.mem_get_info(self.device)[0])
        import psutil

        free, limit = int(psutil.virtual_memory().available), memory_limit()
        return free if limit is None else min(free, limit)

    def limit_memory(self) -> None:
        """Have jobs take no more of a device than others leave free, until `release`."""
        if self.is_cuda:
            limit_pools(self.device)

    def release(self) -> None:
        """Give cached device memory back; called once at the end of a job."""
        if self.is_cuda:
            self.transfers.release()
            free_pools()
            lift_limits(self.device)
        if self.is_apple:
            import torch

            torch.mps.empty_cache()

    def cupy(self) -> Any:
        """Return CuPy, with this device as its current one, and PyTorch's stream as its own.

        Together the two take no more of the device than is free, until `release`.

        Raises DeviceError if it is not installed, or cannot use the device; says why.
        """
        cupy = self._working_cupy()
        self.limit_memory()
        return cupy

    def _working_cupy(self) -> Any:
        import torch

        if torch.version.hip:
            raise DeviceError("the kernels are for NVIDIA's GPUs")
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
                f"CuPy cannot use {self.name}: {first_line(error)}. PyTorch is of CUDA "
                f"{_cuda_of_torch()}, to which 'hushpore[{cupy_extra()}]' fits"
            ) from None
        return cupy


def choose_backend(device: str = "auto", switches: Switches | None = None) -> Backend:
    """Choose the device to run on.

    `device`: ``"auto"`` takes what the user prefers (`hushpore.base.preferences`), else a CUDA
    device where PyTorch can really use one, else the CPU; ``"cpu"``, ``"cuda"``, ``"cuda:1"`` and
    ``"mps"`` (Apple's GPU) are taken at their word. `switches`: which optimisations may be used; by
    default those that the user prefers.
    Raises DeviceError if the device is unknown, or a GPU is asked for that cannot be used.
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
                # nothing fails for want of what was not asked for
                return Backend(reason=f"{wanted} {reason}, but: {error}".removesuffix(_INSTEAD))
    if device in ("cpu", "mps"):
        return Backend() if device == "cpu" else _apple()
    if device == ALL_GPUS:
        raise DeviceError(FROM_FILE_TO_FILE)
    if device != "auto" and not re.fullmatch(r"cuda(:\d+)?", device):
        raise DeviceError(f"Unknown device {device!r}: {_DEVICES}.")
    number = int(device.partition(":")[2] or 0)
    problem = _cuda_problem(number)
    if problem:
        if device == "auto":
            return Backend(reason=f"no usable GPU: {problem}")
        raise DeviceError(f"Device {device!r} cannot be used: {problem}{_INSTEAD}")
    import torch

    reason = "a GPU is available" if device == "auto" else "as asked"
    return Backend(f"cuda:{number}", torch.cuda.get_device_name(number), reason)


def _apple() -> Backend:
    import torch

    if not torch.backends.mps.is_available():
        raise DeviceError(f"Device 'mps' cannot be used: PyTorch finds no GPU of Apple{_INSTEAD}")
    return Backend("mps", "Apple GPU")


def _in_float32(values: npt.NDArray[Any] | Scaled) -> npt.NDArray[Any]:
    import numpy as np

    return np.asarray(values, np.float32)


def cupy_extra() -> str:
    """Return the extra of this package with the CuPy that fits to the installed PyTorch."""
    return "cuda13" if _cuda_of_torch().startswith("13.") else "cuda12"


def _cuda_of_torch() -> str:
    import torch

    return torch.version.cuda or "none: it is built for the CPU only"


def cpu_threads() -> int:
    """Number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cuda_problem(number: int) -> str:
    """Why CUDA device `number` cannot be used, or an empty string where it can."""
    import torch

    if not torch.backends.cuda.is_built() and not torch.version.hip:  # type: ignore[no-untyped-call]
        return "the installed PyTorch is built for the CPU only"
    try:
        # says what is missing: a driver, a newer one, a device
        torch.cuda.init()  # type: ignore[no-untyped-call]
        count = torch.cuda.device_count()
        if number >= count:
            return f"there are {count} CUDA devices, numbered from 0"
        # a device that this build has no code for shows only in use
        torch.zeros(1, device=f"cuda:{number}").add_(1)
        torch.cuda.synchronize(number)
    except RuntimeError as error:
        return str(error).splitlines()[0].partition(". ")[0].removesuffix(".")
    return ""
