"""Memory of the host and of devices: when it ran out, and the most that was in use."""

from __future__ import annotations

import sys
from typing import Any

#: Share of a device's memory, as far as others leave it free, that the pools may hold together.
_POOLED = 0.9

#: What is said where memory runs out by those that have no exception of their own for it:
#: PyTorch's allocator for the CPU, CUDA beside PyTorch's allocator, its libraries, and CuPy.
_SAID = (
    "can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY",
)  # fmt: skip


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out, on the host or on a device."""
    if isinstance(error, MemoryError):
        return True
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _SAID)


class PeakMemory:
    """The most memory that was in use since it was made.

    Parameters
    ----------
    device : str, optional
        ``"cpu"``, or a CUDA device whose memory to follow as well.

    Attributes
    ----------
    host, device : int
        Bytes: of the whole process on the host, the window included, and of what PyTorch and CuPy
        hold on the device. As of the last `look`.

    Notes
    -----
    The host's is exact where the process has grown beyond all that it had been; else it is the
    most that was seen in a look. The device's counts from the last reset of PyTorch's own record,
    which this does.
    """

    def __init__(self, device: str = "cpu") -> None:
        import psutil

        self.host = self.device = 0
        self._process = psutil.Process()
        self._before = self._highest()
        self._cuda = ""
        self.follow(device)

    def follow(self, device: str) -> None:
        """Look, and from now on at that device too; what was seen of one before stays."""
        self.look()
        if device not in ("cpu", self._cuda):
            import torch

            self._cuda = device
            torch.cuda.reset_peak_memory_stats(device)
            self.look()

    def look(self) -> None:
        """See how much is in use now."""
        self.host = max(self.host, int(self._process.memory_info().rss))
        highest = self._highest()
        if highest > self._before:
            self.host = max(self.host, highest)
        if self._cuda:
            self.device = max(self.device, _device_bytes(self._cuda))

    def _highest(self) -> int:
        """The most that this process ever had, in bytes, as the system has counted it."""
        if sys.platform == "win32":
            return int(self._process.memory_info().peak_wset)
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else 1024 * used


def limit_pools(device: str) -> None:
    """Have PyTorch and CuPy together take no more of a device than a share that others leave free.

    Beyond it they raise, and less is tried. Without a bound, some drivers go on in the memory of
    the host, many times slower, and a screen on the same GPU may freeze.
    """
    import torch

    free, total = torch.cuda.mem_get_info(device)
    reserved, pool = int(torch.cuda.memory_reserved(device)), _cupy_pool()
    most = int(_POOLED * (free + reserved + (0 if pool is None else int(pool.total_bytes()))))
    torch.cuda.set_per_process_memory_fraction(min(most / total, 1.0), device)
    if pool is not None:
        # what PyTorch has is not free for CuPy; the other way round the device itself says so
        pool.set_limit(size=max(most - reserved, 1))


def lift_limits(device: str) -> None:
    """Let PyTorch and CuPy take what they need again: the next job may find more of it free."""
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.set_per_process_memory_fraction(1.0, device)
    pool = _cupy_pool()
    if pool is not None:
        pool.set_limit(size=0)


def free_pools() -> None:
    """Give back to the device what PyTorch and CuPy hold and do not use."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None:
        torch.cuda.empty_cache()
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()


def _cupy_pool() -> Any:
    """Return CuPy's pool for its current device; None where CuPy is not in use."""
    cupy = sys.modules.get("cupy")
    return None if cupy is None else cupy.get_default_memory_pool()


def _device_bytes(device: str) -> int:
    import torch

    held = int(torch.cuda.max_memory_reserved(device))
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        with cupy.cuda.Device(torch.device(device).index):
            held += int(cupy.get_default_memory_pool().total_bytes())
    return held
