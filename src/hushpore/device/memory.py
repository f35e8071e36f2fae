"""Memory of the host and of devices: peak use, out-of-memory errors, limits and pinned arrays.

Folders of temporary files: their location, their owner, and those left by crashed sessions.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import shutil
import sys
import tempfile
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from hushpore.base.atomic import marked, new_mark
from hushpore.base.formatting import readable_bytes, readable_count
from hushpore.base.preferences import preferred

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hushpore.base.arrays import Array, Float32s

#: Maximum share of a device's free memory for the pools of PyTorch and CuPy together.
POOLED = 0.9

#: Messages of out-of-memory errors without an exception class of their own: PyTorch's CPU
#: allocator, CUDA outside PyTorch's allocator, CUDA libraries, and CuPy.
_MESSAGES = (
    "can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY",
    "MPS backend out of memory",
)  # fmt: skip

#: Minimum number of bytes to pin: for less, pinning costs more time than the copy saves.
LEAST_PINNED = 16 << 20

#: `mallopt` parameter: free bytes at the end of a heap from which they are returned to the system.
_TRIM = -1

#: `mallopt` parameter: extra bytes requested from the system.
_PAD = -2

#: `mallopt` parameter: size from which an array gets its own memory mapping.
_MAPPED = -3

#: Parameters that keep freed memory. Arrays of whole volumes are larger and still returned. The
#: padding is a whole heap of a thread, which is therefore kept when it is empty.
_KEPT = {_TRIM: 2**30, _PAD: 2**26, _MAPPED: 2**28}

#: Parameters for separate mappings: the initial default of the C library.
_SEPARATE = {_MAPPED: 2**17}

#: Normal parameters: those that the library arrives at after an array of 32 MB was freed.
_NORMAL = {_TRIM: 2**26, _PAD: 2**17, _MAPPED: 2**25}

#: Parameters that keep nothing at the end of a heap.
_NONE = {_TRIM: 0, _PAD: 0}

#: Size of an array whose release makes the library check the end of a heap.
_TRIGGER = 2**16

_lock = threading.Lock()
_active: list[dict[int, int]] = []


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that the host or a device is out of memory."""
    if isinstance(error, MemoryError):
        return True
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _MESSAGES)


class PeakMemory:
    """Peak memory since the object was created.

    `device`: ``"cpu"``, or a CUDA device to follow as well.
    `host`, `device`: bytes used by the whole process on the host, window included, and bytes held
    by PyTorch and CuPy on the device, as of the last `update`.

    The value of the host is exact if the process exceeded its earlier peak; otherwise it is the
    largest value of all updates. Resets PyTorch's own peak of the device.
    """

    def __init__(self, device: str = "cpu") -> None:
        import psutil

        self.host = self.device = 0
        self._process = psutil.Process()
        self._before = self._highest()
        self._cuda = ""
        self.follow(device)

    def follow(self, device: str) -> None:
        """Update, and follow this device from now on; the peak of an earlier device is kept."""
        self.update()
        if device.startswith("cuda") and device != self._cuda:
            import torch

            self._cuda = device
            torch.cuda.reset_peak_memory_stats(device)
            self.update()

    def update(self) -> None:
        """Include the memory that is in use now."""
        self.host = max(self.host, int(self._process.memory_info().rss))
        highest = self._highest()
        if highest > self._before:
            self.host = max(self.host, highest)
        if self._cuda:
            self.device = max(self.device, _device_bytes(self._cuda))

    def _highest(self) -> int:
        """Return the system's peak memory of this process, in bytes."""
        if sys.platform == "win32":
            return int(self._process.memory_info().peak_wset)
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else 1024 * used


def limit_pools(device: str) -> None:
    """Limit the pools of PyTorch and CuPy together to a share of the free device memory.

    Beyond the limit they raise an error, and a job can continue with smaller pieces. Without a
    limit, some drivers use host memory instead, which is many times slower, and a screen on the
    same GPU may freeze.
    """
    import torch

    free, total = torch.cuda.mem_get_info(device)
    reserved, pool = int(torch.cuda.memory_reserved(device)), _cupy_pool()
    most = int(POOLED * (free + reserved + (0 if pool is None else int(pool.total_bytes()))))
    torch.cuda.set_per_process_memory_fraction(min(most / total, 1.0), device)
    if pool is not None:
        # memory of PyTorch is not free for CuPy; for PyTorch the device itself counts CuPy's
        pool.set_limit(size=max(most - reserved, 1))


def lift_limits(device: str) -> None:
    """Remove the limits of PyTorch and CuPy: more memory may be free for the next job."""
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
    # a private function, since there is no public one; PyTorch's own CUDA graph trees call it too
    clear = getattr(torch and torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None:
        clear()


def free_pools() -> None:
    """Return the unused memory of PyTorch and CuPy to the device.

    Never raises: a failure here must not lose a result.
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


def pinned_array(device: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialised host array in pinned memory, which is unpinned when it is deleted.

    The array is not pinned if the system refuses, or if it is smaller than `LEAST_PINNED`.
    """
    import torch

    values = np.empty(shape, dtype)
    if values.nbytes < LEAST_PINNED:
        return values
    # PyTorch's own pinned memory takes up to twice as much (powers of two), and is kept until the
    # process ends
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = values.ctypes.data
    if int(runtime.cudaHostRegister(address, values.nbytes, 0)) == 0:
        weakref.finalize(values, runtime.cudaHostUnregister, address)
        return values
    # clears the last error of CUDA, which the next call would report as its own
    with contextlib.suppress(RuntimeError):
        torch.ones(1, device=device)
    return values


def give_back_freed() -> None:
    """Return freed memory of this thread to the system; for the end of a worker thread.

    Does nothing with C libraries other than GNU's, or within the blocks below. After a denoising of
    12 x 384 x 384 voxels a process had 512 MB without it, and 361 MB with it.
    """
    with _lock:
        if not _active:
            _return_freed()


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory for the next arrays inside the block, and return it at the end.

    By default GNU's C library returns arrays above 32 MB to the system when they are freed, and
    gets the next ones page by page, although the arrays of all tiles have the same sizes.
    Predicting 1024 x 1024 pixels in float32 takes 2.1 s of processor time with this block, and 2.6
    s and 230,000 page faults without.
    """
    with _malloc(_KEPT):
        yield


@contextlib.contextmanager
def arrays_apart() -> Iterator[None]:
    """Let malloc use mmap for arrays of 128 KB and more, so that freeing returns them at once.

    For work that keeps some arrays and frees others of all sizes, which would fragment the heap.
    The segmentation of pure noise, 96 x 256 x 256 voxels, takes at most 522 MB with this block, 610
    MB without, and 568 MB if freed memory is returned after each event.
    """
    with _malloc(_SEPARATE):
        yield


@contextlib.contextmanager
def _malloc(sizes: dict[int, int]) -> Iterator[None]:
    """Set `mallopt` parameters for all threads inside the block; the most recent block decides."""
    with _lock:
        _active.append(sizes)
        _set_sizes(sizes)
    try:
        yield
    finally:
        with _lock:
            _active.remove(sizes)
            if _active:
                _set_sizes(_active[-1])
            else:
                _return_freed()


def _return_freed() -> None:
    library = _c_library()
    if library is not None:
        _set_sizes(_NONE)
        np.empty(_TRIGGER, np.uint8)
        _set_sizes({})
        library.malloc_trim(0)


def _cupy_pool() -> Any:
    """Return CuPy's pool for its current device; None if CuPy is not in use."""
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
        for name, size in {**_NORMAL, **sizes}.items():
            library.mallopt(name, size)


_PREFIX = "hushpore-"  # of the names of all these folders
_DISK = Path("/var/tmp")  # always on disk, since its files survive a restart


@dataclass(frozen=True)
class TemporaryFolder:
    """A folder of temporary files."""

    path: Path
    nbytes: int  # size on disk
    is_left_over: bool  # whether its process has ended


def scratch_folder() -> Path:
    """Return the folder for temporary files: the preferred one, or the system's if on disk."""
    chosen = preferred("temporary_folder").value
    if chosen:
        return Path(chosen).expanduser()
    folder = Path(tempfile.gettempdir())
    named = any(name in os.environ for name in ("TMPDIR", "TEMP", "TMP"))
    if not named and _lies_in_memory(folder) and os.access(_DISK, os.W_OK):
        return _DISK
    return folder


def array_within(room: float, shape: tuple[int, ...]) -> Float32s:
    """Return a new array, in memory if it needs at most `room` bytes, otherwise in a file.

    The temporary file is deleted with the last reference to the array.
    """
    if 4 * math.prod(shape) <= room:
        return np.empty(shape, np.float32)
    # without a name, so that it is deleted even after a crash
    with tempfile.TemporaryFile(dir=scratch_folder()) as file:
        return np.memmap(file, np.float32, "w+", shape=shape)


def new_folder() -> Path:
    """Make a folder for temporary files of this process; the caller removes it.

    Raises OSError if no folder can be made.
    """
    folder = scratch_folder().absolute() / f"{_PREFIX}{new_mark()}"
    folder.mkdir(mode=0o700)  # scans may be private, and the parent folder is not
    return folder


def folder_of(owner: object) -> Path:
    """Make a folder for temporary files that is removed with its owner, or at exit.

    `owner`: an object that supports weak references.
    Raises OSError if no folder can be made.
    """
    folder = new_folder()
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder


def temporary_folders() -> list[TemporaryFolder]:
    """Return the folders with temporary files of this user.

    Looks in the current folder for temporary files and in that of the system.

    Returns
    -------
    list of TemporaryFolder
        Folders of running and of ended processes; without folders of other users.

    Examples
    --------
    >>> path = new_folder()
    >>> [folder.is_left_over for folder in temporary_folders() if folder.path.name == path.name]
    [False]
    >>> path.rmdir()
    """
    places = {scratch_folder().resolve(), Path(tempfile.gettempdir()).resolve()}
    return [
        TemporaryFolder(path, _size(path), process is None)
        for place in sorted(places)
        for path, process in marked(place, _PREFIX)
        if path.is_dir()
    ]


def in_words(folders: Sequence[TemporaryFolder]) -> str:
    """Return the number of folders, and their total size, as text."""
    if not folders:
        return "none"
    size = readable_bytes(sum(folder.nbytes for folder in folders))
    return f"{readable_count(len(folders), 'folder')}, {size}"


def remove_left_over() -> list[TemporaryFolder]:
    """Remove the folders of ended processes.

    Returns
    -------
    list of TemporaryFolder
        The removed folders.

    Examples
    --------
    >>> removed = remove_left_over()    # doctest: +SKIP
    """
    left_over = [folder for folder in temporary_folders() if folder.is_left_over]
    for folder in left_over:
        shutil.rmtree(folder.path, ignore_errors=True)
    return [folder for folder in left_over if not folder.path.exists()]


def _size(path: Path) -> int:
    total = 0
    for file in path.rglob("*"):
        with suppress(OSError):
            state = file.lstat()
            # allocated blocks, if the system counts them: sparse files are smaller
            total += 512 * state.st_blocks if hasattr(state, "st_blocks") else state.st_size
    return total


def _lies_in_memory(folder: Path) -> bool:
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    place = next((each for each in (folder, *folder.parents) if each in mounts), None)
    return place is not None and mounts[place] in ("tmpfs", "ramfs")
