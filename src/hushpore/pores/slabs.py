"""Slabs: partition of a stack along z, so that each step fits into memory.

If a volume and all intermediate results fit into the memory budget, every `Stack` is an array, and
a slab takes about a tenth of a second. Otherwise stacks are temporary files that are read and
written slab by slab; results are bit-identical.
"""

from __future__ import annotations

import math
import shutil
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import MemoryLimitError
from hushpore.device.scratch import new_folder, scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt


@dataclass(frozen=True)
class Slabs:
    """Partition of a stack along z."""

    depth: int  # slices of the stack
    thickness: int  # slices of a slab; the last may have fewer
    on_disk: bool = False  # whether stacks are temporary files

    def __len__(self) -> int:
        return (self.depth + self.thickness - 1) // self.thickness

    def __getitem__(self, slab: int) -> tuple[int, int]:
        """Return the first slice of a slab, and the slice after its last."""
        if not 0 <= slab < len(self):
            raise IndexError(f"There are {len(self)} slabs, numbered from 0; got {slab}.")
        first = slab * self.thickness
        return first, min(first + self.thickness, self.depth)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return (self[slab] for slab in range(len(self)))


class Stack:
    """Stack of slices, in memory or in a temporary file that is removed with this object.

    Made by `Scratch.stack`. Slabs are views of memory, or copies from a file.
    """

    def __init__(self, shape: Sequence[int], dtype: npt.DTypeLike, path: Path | None) -> None:
        self.shape = (int(shape[0]), int(shape[1]), int(shape[2]))
        self.dtype = np.dtype(dtype)
        self._path = path
        self._array = None if path else np.empty(self.shape, self.dtype)
        self._remove = weakref.finalize(self, _remove, path)
        if path:
            with _explained(path), path.open("wb") as file:
                file.truncate(self._bytes(len(self)))

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Stack:
        """Return a stack that wraps an array in memory, (z, y, x)."""
        stack = cls((0, 0, 0), values.dtype, None)
        stack.shape, stack._array = values.shape, values
        return stack

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self._bytes(len(self))

    def read(self, first: int, last: int) -> npt.NDArray[Any]:
        """Return slices `first` to `last`, clipped to the stack; `write` back changes."""
        first = min(max(first, 0), len(self))
        last = max(min(last, len(self)), first)
        if self._array is not None:
            return self._array[first:last]
        path = self._file()
        count = (last - first) * math.prod(self.shape[1:])
        values = np.fromfile(path, self.dtype, count, offset=self._bytes(first))
        return values.reshape(last - first, *self.shape[1:])

    def room(self, first: int, last: int) -> Any:
        """Return an array for slices `first` to `last`, to fill and to `write`."""
        if self._array is not None:
            return self._array[first:last]
        return np.empty((last - first, *self.shape[1:]), self.dtype)

    def write(self, first: int, values: npt.NDArray[Any]) -> None:
        """Store slices from slice `first` on.

        Raises MemoryLimitError if the disk is full.
        """
        if self._array is not None:
            target = self._array[first : first + len(values)]
            if target.ctypes.data != values.ctypes.data:
                target[...] = values
            return
        path = self._file()
        with _explained(path), path.open("r+b", buffering=0) as file:
            file.seek(self._bytes(first))
            np.ascontiguousarray(values, self.dtype).tofile(file)

    def array(self) -> npt.NDArray[Any]:
        """Return the whole stack: the array itself, or a memory map that keeps the file alive."""
        if self._array is not None:
            return self._array
        mapped = np.memmap(self._file(), self.dtype, "r+", shape=self.shape)
        # views reference the map, whose finalizer keeps this stack and so the file alive
        weakref.finalize(mapped._mmap, _release, self)  # type: ignore[attr-defined]
        return mapped

    def close(self) -> None:
        """Free the memory or file."""
        self._array = self._path = None
        self._remove()

    def _file(self) -> Path:
        if self._path is None:
            raise ValueError("The stack is closed.")
        return self._path

    def _bytes(self, slices: int) -> int:
        return slices * math.prod(self.shape[1:]) * self.dtype.itemsize


class DeviceStack(Stack):
    """A stack in GPU memory, written as a whole."""

    def __init__(self, shape: Sequence[int], dtype: npt.DTypeLike) -> None:
        self.shape = (int(shape[0]), int(shape[1]), int(shape[2]))
        self.dtype = np.dtype(dtype)
        self._array: Any = None

    def read(self, first: int, last: int) -> Any:
        """Return the whole stack."""
        return self._array

    def room(self, first: int, last: int) -> Any:
        """Return None: the array is allocated by the code that fills it."""
        return None

    def write(self, first: int, values: Any) -> None:
        """Hold an array."""
        self._array = values

    def close(self) -> None:
        """Release the array."""
        self._array = None


#: Names of stacks that belong to the result and outlive the job.
LASTING = ("basins", "labels", "regions", "solid thickness", "void thickness")


class Scratch:
    """Factory of the stacks of a job; `close` removes all except those that are `LASTING`.

    A step owns the stacks that it makes and closes those that it does not return; the caller owns
    returned stacks and closes them after the last read. `close` removes stacks left open by a
    failed or cancelled job; lasting stacks are removed with their last reference.

    `on_disk`: whether stacks are files, each in its own temporary folder.
    """

    def __init__(self, on_disk: bool) -> None:
        self.on_disk = on_disk
        self._stacks: list[Stack] = []

    def stack(self, name: str, shape: Sequence[int], dtype: npt.DTypeLike) -> Stack:
        """Return a new, uninitialised stack (z, y, x)."""
        path = new_folder(scratch_folder()) / f"{name}.raw" if self.on_disk else None
        stack = Stack(shape, dtype, path)
        if name not in LASTING:
            self._stacks.append(stack)
        return stack

    def close(self) -> None:
        """Remove all stacks that are not `LASTING`."""
        for stack in self._stacks:
            stack.close()
        self._stacks.clear()


_ELSEWHERE = (
    "Free some space, or choose another folder: hushpore preferences --temporary-folder FOLDER"
)


def check_disk(needed: int) -> None:
    """Raise MemoryLimitError if so many bytes do not fit on the disk of temporary files."""
    folder = scratch_folder()
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise MemoryLimitError(
            f"The segmentation does not fit into memory and needs {needed / 1e9:.1f} GB for "
            f"temporary files in {folder}, where {free / 1e9:.1f} GB are free. {_ELSEWHERE}"
        )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn an OSError of a temporary file into a MemoryLimitError with advice."""
    try:
        yield
    except OSError as error:
        raise MemoryLimitError(
            f"The temporary files of the segmentation cannot be written in {path.parent}: "
            f"{error.strerror or error}. {_ELSEWHERE}"
        ) from error


def _release(stack: Stack) -> None:
    """Do nothing; the reference from the finalizer has kept the stack alive."""


def _remove(path: Path | None) -> None:
    if path is not None:
        shutil.rmtree(path.parent, ignore_errors=True)
