"""Slabs: how a stack is cut along z, so that what is worked on at a time fits into memory.

Where a volume and all that is made of it fit into the memory budget, every `Stack` is an array, and
slabs are as thick as a tenth of a second of work. Where they do not, stacks are temporary files, of
which a slab at a time is read and written; what is computed is the same, bit for bit.
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
from hushpore.device.memory import new_folder, scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    import numpy.typing as npt

    from hushpore.base.arrays import Array


@dataclass(frozen=True)
class Slabs:
    """How a stack is cut."""

    depth: int  # slices of the stack
    thickness: int  # slices of a slab; the last may have fewer
    on_disk: bool = False  # whether stacks lie in temporary files

    def __len__(self) -> int:
        return (self.depth + self.thickness - 1) // self.thickness

    def __getitem__(self, slab: int) -> tuple[int, int]:
        """Return the first slice of a slab, and the one after its last."""
        if not 0 <= slab < len(self):
            raise IndexError(f"There are {len(self)} slabs, numbered from 0; got {slab}.")
        first = slab * self.thickness
        return first, min(first + self.thickness, self.depth)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return (self[slab] for slab in range(len(self)))


class Stack:
    """Slices of one kind, in memory or in a file that is removed with this object.

    Made by `Scratch.stack`. In memory, slabs are views; from a file they are copies.
    """

    def __init__(self, shape: Sequence[int], dtype: npt.DTypeLike, path: Path | None) -> None:
        self.shape = (int(shape[0]), int(shape[1]), int(shape[2]))
        self.dtype = np.dtype(dtype)
        self._path = path
        self._array = None if path else np.empty(self.shape, self.dtype)
        self._copies: tuple[Slabs, Mapping[int, Future[object]]] | None = None
        self._remove = weakref.finalize(self, _remove, path)
        if path:
            with _explained(path), path.open("wb") as file:
                file.truncate(self._bytes(len(self)))

    @classmethod
    def of(cls, values: Array) -> Stack:
        """Return a stack that is an array in memory, (z, y, x)."""
        stack = cls((0, 0, 0), values.dtype, None)
        stack.shape, stack._array = values.shape, values
        return stack

    def __len__(self) -> int:
        return self.shape[0]

    def arrive(self, slabs: Slabs, copies: Mapping[int, Future[object]]) -> None:
        """Wait, wherever values are read, for the copies of the slabs that they lie in."""
        self._copies = slabs, copies

    @staticmethod
    def _await(slabs: Slabs, copies: Mapping[int, Future[object]], first: int, last: int) -> None:
        for slab in range(first // slabs.thickness, -(-last // slabs.thickness)):
            copies[slab].result()

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self._bytes(len(self))

    def read(self, first: int, last: int) -> Array:
        """Return some slices, as far as there are any; to change them, `write` them back."""
        first = min(max(first, 0), len(self))
        last = max(min(last, len(self)), first)
        if self._array is not None:
            if self._copies is not None:
                self._await(*self._copies, first, last)
            return self._array[first:last]
        path = self._file()
        count = (last - first) * math.prod(self.shape[1:])
        values = np.fromfile(path, self.dtype, count, offset=self._bytes(first))
        return values.reshape(last - first, *self.shape[1:])

    def room(self, first: int, last: int) -> Any:
        """Return an array to fill with some slices and to `write`."""
        if self._array is not None:
            return self._array[first:last]
        return np.empty((last - first, *self.shape[1:]), self.dtype)

    def write(self, first: int, values: Array) -> None:
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

    def array(self) -> Array:
        """Return all of it: the array itself, or a memory map that keeps the file alive."""
        if self._array is not None:
            if self._copies is not None:
                self._await(*self._copies, 0, len(self))
            return self._array
        mapped = np.memmap(self._file(), self.dtype, "r+", shape=self.shape)
        # views share the map, and nothing else: as long as there is one, there is this stack
        weakref.finalize(mapped._mmap, _let_go, self)  # type: ignore[attr-defined]
        return mapped

    def close(self) -> None:
        """Give memory or file back; there is nothing to be read any more."""
        self._array = self._path = None
        self._remove()

    def _file(self) -> Path:
        if self._path is None:
            raise ValueError("The stack is closed.")
        return self._path

    def _bytes(self, slices: int) -> int:
        return slices * math.prod(self.shape[1:]) * self.dtype.itemsize


class DeviceStack(Stack):
    """A stack that a GPU holds: what is written, all slices at once, is the stack from then on."""

    def __init__(self, shape: Sequence[int], dtype: npt.DTypeLike) -> None:
        self.shape = (int(shape[0]), int(shape[1]), int(shape[2]))
        self.dtype = np.dtype(dtype)
        self._array: Any = None

    def read(self, first: int, last: int) -> Any:
        """Return all of it."""
        return self._array

    def room(self, first: int, last: int) -> Any:
        """Return nothing: what fills it makes an array of its own."""
        return None

    def write(self, first: int, values: Any) -> None:
        """Hold an array."""
        self._array = values

    def close(self) -> None:
        """Let the array go."""
        self._array = None


#: Stacks that outlive the job that makes them: those of its result, by name.
LASTING = ("basins", "labels", "regions", "solid thickness", "void thickness")


class Scratch:
    """Makes the stacks of a job; `close` removes all but those that are `LASTING`.

    A step owns the stacks that it makes until it returns them, and closes the others; whoever it
    returns a stack to owns that, and closes it once nothing will read it any more. What a job that
    fails or is cancelled leaves open goes with `close`, and lasting stacks with the last reference.

    `on_disk`: whether stacks are files, each in a folder of its own among the system's temporary
    files.
    """

    def __init__(self, on_disk: bool) -> None:
        self.on_disk = on_disk
        self._stacks: list[Stack] = []

    def stack(self, name: str, shape: Sequence[int], dtype: npt.DTypeLike) -> Stack:
        """Return a new stack, (z, y, x), of any values."""
        path = new_folder() / f"{name}.raw" if self.on_disk else None
        stack = Stack(shape, dtype, path)
        if name not in LASTING:
            self._stacks.append(stack)
        return stack

    def close(self) -> None:
        """Remove what does not last."""
        for stack in self._stacks:
            stack.close()
        self._stacks.clear()


_ELSEWHERE = (
    "Free some space, or choose another folder: hushpore preferences --temporary-folder FOLDER"
)


def check_disk(needed: int) -> None:
    """Refuse what does not fit on the disk.

    Raises MemoryLimitError: with what is needed, and what is free.
    """
    folder = scratch_folder()
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise MemoryLimitError(
            f"The segmentation does not fit into memory and needs {needed / 1e9:.1f} GB for "
            f"temporary files in {folder}, where {free / 1e9:.1f} GB are free. {_ELSEWHERE}"
        )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say in words why a temporary file cannot be written."""
    try:
        yield
    except OSError as error:
        raise MemoryLimitError(
            f"The temporary files of the segmentation cannot be written in {path.parent}: "
            f"{error.strerror or error}. {_ELSEWHERE}"
        ) from error


def _let_go(stack: Stack) -> None:
    """Do nothing: that a finalizer knows the stack has kept it alive."""


def _remove(path: Path | None) -> None:
    if path is not None:
        shutil.rmtree(path.parent, ignore_errors=True)
