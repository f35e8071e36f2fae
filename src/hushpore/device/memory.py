"""Memory of the host and of devices: what was in use, when it ran out, what is kept or pinned."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

#: Share of a device's memory, as far as others leave it free, that the pools may hold together.
POOLED = 0.9

#: What is said where memory runs out by those that have no exception of their own for it:
#: PyTorch's allocator for the CPU, CUDA beside PyTorch's allocator, its libraries, and CuPy.
_SAID = (
    "can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY",
    "MPS backend out of memory",
)  # fmt: skip

#: Bytes below which pinning costs more than the copy saves.
LEAST_PINNED = 16 << 20

#: `mallopt`'s number for the free bytes at the end of a heap from which they are given back.
_TRIM = -1

#: That for the bytes asked for beyond what is needed.
_PAD = -2

#: That for the size from which an array is mapped by itself.
_MAPPED = -3

#: While memory is kept. Arrays of whole volumes are larger, and go when they are freed. The padding
#: is a whole heap of a thread, which so is not given back when it is empty.
_KEPT = {_TRIM: 2**30, _PAD: 2**26, _MAPPED: 2**28}

#: While arrays are mapped apart: the library's own size before it has seen a mapped array freed.
_APART = {_MAPPED: 2**17}

#: Else: what the library comes to by itself once an array of 32 MB has been freed.
_USUAL = {_TRIM: 2**26, _PAD: 2**17, _MAPPED: 2**25}

#: Nothing is kept at the end of a heap.
_NONE = {_TRIM: 0, _PAD: 0}

#: Bytes that, freed beside the end of a heap, have the library look at it.
_NOTICED = 2**16

_lock = threading.Lock()
_in_force: list[dict[int, int]] = []


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

    `device`: ``"cpu"``, or a CUDA device whose memory to follow as well.
    `host`, `device`: bytes: of the whole process on the host, the window included, and of what
    PyTorch and CuPy hold on the device. As of the last `update`.

    The host's is exact where the process has grown beyond all that it had been; else it is the
    most that an update saw. The device's counts from the last reset of PyTorch's own record,
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
        self.update()
        if device.startswith("cuda") and device != self._cuda:
            import torch

            self._cuda = device
            torch.cuda.reset_peak_memory_stats(device)
            self.update()

    def update(self) -> None:
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
    most = int(POOLED * (free + reserved + (0 if pool is None else int(pool.total_bytes()))))
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


def free_workspaces() -> None:
    """Free the workspaces of cuBLAS: some 32 MB for each stream in which matrices were multiplied.

    PyTorch keeps them until it is told otherwise. Matrix products that come later make new ones.
    """
    torch = sys.modules.get("torch")
    # a private function, and the only one there is; PyTorch's own CUDA graph trees call it, too
    clear = getattr(torch and torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None:
        clear()


def free_pools() -> None:
    """Give back to the device what PyTorch and CuPy hold and do not use.

    Never raises: what cannot be given back is no reason to lose a result.
    """
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None:
        with contextlib.suppress(Exception):
            free_workspaces()
            torch.cuda.empty_cache()
    if cupy is not None:
        with contextlib.suppress(Exception):
            cupy.get_default_memory_pool().free_all_blocks()
            cupy.get_default_pinned_memory_pool().free_all_blocks()


def pinned_array(device: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an array of the host that a GPU reads by itself, until the array is let go.

    Where the system refuses it, or the array is smaller than `LEAST_PINNED`, it is a plain one.
    """
    import torch

    values = np.empty(shape, dtype)
    if values.nbytes < LEAST_PINNED:
        return values
    # not PyTorch's own pinned memory, which takes up to twice as much, in powers of two, and keeps
    # it for the rest of the process
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = values.ctypes.data
    if int(runtime.cudaHostRegister(address, values.nbytes, 0)) == 0:
        weakref.finalize(values, runtime.cudaHostUnregister, address)
        return values
    # CUDA remembers its last error until somebody asks, and who asks next would take it for his
    with contextlib.suppress(RuntimeError):
        torch.ones(1, device=device)
    return values


def give_back_freed() -> None:
    """Give back to the system what this thread has freed, for the end of a thread that has worked.

    With another C library than GNU's, or within the blocks below, nothing happens. A process had
    512 MB after a denoising of 12 x 384 x 384 voxels without it, and 361 MB with it.
    """
    with _lock:
        if not _in_force:
            _give_back()


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory for the next arrays; what is left of it is given back at the end.

    GNU's C library gives arrays of more than 32 MB back to the system as they are freed, and takes
    each anew page by page. The arrays of a tile have the sizes of those of the tile before.
    Predicting 1024 x 1024 pixels in float32 takes 2.1 s of processor time with it, and 2.6 s and
    230,000 page faults without.
    """
    with _malloc(_KEPT):
        yield


@contextlib.contextmanager
def arrays_apart() -> Iterator[None]:
    """Map arrays of 128 KB and more from the system each by itself, so that freeing returns them.

    For work that makes and frees arrays of all sizes beside those that it keeps: what is freed in
    between would stay with the process, in pieces that fit nothing. A segmentation of pure noise,
    96 x 256 x 256 voxels, takes at most 522 MB with it, 610 MB without, and 568 MB where freed
    memory is given back after each event.
    """
    with _malloc(_APART):
        yield


@contextlib.contextmanager
def _malloc(sizes: dict[int, int]) -> Iterator[None]:
    """Have the C library go by other sizes, for all threads; the last that came counts."""
    with _lock:
        _in_force.append(sizes)
        _set_sizes(sizes)
    try:
        yield
    finally:
        with _lock:
            _in_force.remove(sizes)
            if _in_force:
                _set_sizes(_in_force[-1])
            else:
                _give_back()


def _give_back() -> None:
    library = _c_library()
    if library is not None:
        _set_sizes(_NONE)
        np.empty(_NOTICED, np.uint8)
        _set_sizes({})
        library.malloc_trim(0)


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


def _c_library() -> Any:
    try:
        library = ctypes.CDLL(None)
        _ = library.mallopt, library.malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    return library


def _set_sizes(sizes: dict[int, int]) -> None:
    library = _c_library()
    if library is not None:
        for name, size in {**_USUAL, **sizes}.items():
            library.mallopt(name, size)
