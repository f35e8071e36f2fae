"""Lazy arrays: image stacks on disk, read plane by plane, slab by slab or as a whole."""

from __future__ import annotations

import functools
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.base.formatting import readable_bytes
from hushpore.io.guards import free_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from hushpore.base.arrays import Array
    from hushpore.io.guards import InputLimits


#: Note on a damaged stack in a folder with others.
LEFT_OUT = "One image stack could not be read: {}"
#: Number of reading threads: one waits for the disk while others copy or decode without the
#: global interpreter lock. With more threads the disk is the bottleneck.
THREADS = min(8, 2 * (os.cpu_count() or 1))
#: Bytes per read call. The system returns larger reads only when they are complete, and the disk is
#: idle while they are copied: slices of 8 MB, one per file, took 1.5 times as long.
_PIECE = 1 << 18
#: Bytes per slab, unless one slice is larger. The C library reuses freed blocks of up to 32 MB;
#: larger arrays are allocated from the system again, page by page.
SLAB = 32_000_000


class DiskArray:
    """Lazy array: has a shape and dtype, and reads from disk only the values that are indexed.

    Works wherever napari, dask or `hushpore.Volume` take an array; ``numpy.asarray`` reads all of
    it.

    `shape`: length of each axis. `coarser`: the further levels of a pyramid.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.ndim = len(shape)
        self.size = math.prod(shape)
        self.nbytes = self.size * self.dtype.itemsize
        self.coarser: tuple[Self, ...] = ()

    @property
    def levels(self) -> tuple[Self, ...]:
        """All levels of a pyramid, the finest first; otherwise the array alone."""
        return (self, *self.coarser)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # immutable

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("The values are on disk, so NumPy must copy them: use copy=None.")
        if self.nbytes > free_memory():
            raise MemoryLimitError(
                f"{readable_bytes(self.nbytes)} do not fit into memory. Read a part of the array."
            )
        values = self[...]
        return values if dtype is None else values.astype(dtype, copy=False)

    def __getitem__(self, key: Any) -> Array:
        keys = list(key) if isinstance(key, tuple) else [key]
        if any(each is None or isinstance(each, list | np.ndarray) for each in keys):
            raise IndexError("A lazy array takes only integers and slices, one for each axis.")
        if Ellipsis not in keys:
            keys.append(Ellipsis)
        place = keys.index(Ellipsis)
        keys[place : place + 1] = [slice(None)] * (self.ndim - len(keys) + 1)
        if len(keys) != self.ndim:
            raise IndexError(f"Too many indices for {self.ndim} axes: {key!r}.")
        try:
            return self._read_part(keys)
        except MemoryLimitError:
            raise
        except MemoryError as error:
            raise MemoryLimitError(
                f"The part of {self!r} does not fit into memory. Read a smaller part."
            ) from error

    def _read_part(self, keys: list[Any]) -> Array:
        """Return the values at one index or slice per axis."""
        raise NotImplementedError

    def read_into(self, values: Array) -> Iterator[int]:
        """Fill an array of the same shape, and yield the number of planes read so far.

        Closing the iterator stops the reading after the current planes.
        """
        raise NotImplementedError


class PlaneStack(DiskArray):
    """Planes on disk, read by several threads.

    `numbers`: number of the plane at each position on the leading axes, for example ``arange(28)``.
    `plane_shape`: rows and columns of each plane. `read`: ``read(number, out)`` fills the array
    `out` with a plane; called from several threads. `read_rows`: ``read_rows(number, first, out)``
    fills it with some rows of a plane, from row `first` on; without it a whole plane is read for
    some of its rows.

    >>> stack = PlaneStack(np.arange(3), (2, 2), np.dtype(int), lambda n, out: out.fill(n))
    >>> stack.shape, stack[1:, 0, :].tolist()
    ((3, 2, 2), [[1, 1], [2, 2]])
    """

    def __init__(
        self,
        numbers: npt.NDArray[np.integer[Any]],
        plane_shape: tuple[int, ...],
        dtype: np.dtype[Any],
        read: Callable[[int, Array], None],
        read_rows: Callable[[int, int, Array], None] | None = None,
    ) -> None:
        super().__init__((*numbers.shape, *plane_shape), dtype)
        self._read_rows = read_rows
        self._numbers = numbers
        self._plane_shape = plane_shape
        self._read = read

    def _read_part(self, keys: list[Any]) -> Array:
        leading, within = tuple(keys[: self._numbers.ndim]), tuple(keys[self._numbers.ndim :])
        numbers = self._numbers[leading]
        flat = np.atleast_1d(numbers).ravel()
        sample = np.empty(self._plane_shape, np.bool_)[within]
        values = np.empty((len(flat), *sample.shape), self.dtype)
        for _ in self._fill(flat, values, within):
            pass
        return values.reshape(np.shape(numbers) + sample.shape)

    def read_into(self, values: Array) -> Iterator[int]:
        """Fill an array of the same shape; see `DiskArray`."""
        flat = values.reshape(self._numbers.size, *self._plane_shape)
        return self._fill(self._numbers.ravel(), flat, ...)

    def at_positions(self, key: tuple[int | slice, ...]) -> PlaneStack:
        """Return the planes at positions on the leading axes, without reading them.

        `key`: one index or slice per axis; full slices on the axes of a plane.
        """
        numbers = np.asarray(self._numbers[key[: self._numbers.ndim]])
        return PlaneStack(numbers, self._plane_shape, self.dtype, self._read, self._read_rows)

    def as_boolean(self) -> PlaneStack:
        """Return a lazy boolean array: True where the uint8 values are not 0."""

        def read(number: int, out: Array) -> None:
            _read_boolean(functools.partial(self._read, number), out)

        return PlaneStack(self._numbers, self._plane_shape, np.dtype(np.bool_), read)

    def _fill(self, numbers: Array, values: Array, within: Any) -> Iterator[int]:
        stopped = threading.Event()
        rows = within[0] if isinstance(within, tuple) else None

        def fill(index: int) -> None:
            if stopped.is_set():
                return
            try:
                if within is ...:
                    self._read(int(numbers[index]), values[index])
                elif self._read_rows and isinstance(rows, slice) and rows.step in (None, 1):
                    first, end, _ = rows.indices(self._plane_shape[0])
                    part = np.empty((max(0, end - first), *self._plane_shape[1:]), self.dtype)
                    self._read_rows(int(numbers[index]), first, part)
                    values[index] = part[(slice(None), *within[1:])]
                else:
                    plane = np.empty(self._plane_shape, self.dtype)
                    self._read(int(numbers[index]), plane)
                    values[index] = plane[within]
            except BaseException:
                stopped.set()
                raise

        if len(numbers) == 1:
            fill(0)
            yield 1
            return
        pool = ThreadPoolExecutor(THREADS, "hushpore reads")
        try:
            tasks = [pool.submit(fill, index) for index in range(len(numbers))]
            for done, task in enumerate(as_completed(tasks), start=1):
                task.result()
                yield done
        finally:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)


class Stream(DiskArray):
    """Lazy array that can only be decoded as a whole, at the first access.

    `fill`: fills an array of this shape and dtype. `limits`: input limits of the file.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        fill: Callable[[Array], None],
        limits: InputLimits,
    ) -> None:
        super().__init__(shape, dtype)
        self._fill, self._limits = fill, limits
        self._lock = threading.Lock()
        self._whole: Array | None = None

    def _read_part(self, keys: list[Any]) -> Array:
        with self._lock:
            if self._whole is None:
                self._limits.require_room(self.nbytes)
                values = np.empty(self.shape, self.dtype)
                self._fill(values)
                self._whole = values
        return np.array(self._whole[tuple(keys)])

    def as_boolean(self) -> Stream:
        """Return a lazy boolean array: True where the uint8 values are not 0."""
        fill = functools.partial(_read_boolean, self._fill)
        return Stream(self.shape, np.dtype(np.bool_), fill, self._limits)

    def read_into(self, values: Array) -> Iterator[int]:
        """Fill an array of the same shape; see `DiskArray`."""
        self._fill(values)
        yield math.prod(self.shape[:-2])


class Derived(DiskArray):
    """Lazy array computed from another one, and filled in slabs that end at chunks of that one.

    `base`: an array that takes slices. `shape`, `dtype`: those of `base` by default.
    """

    def __init__(
        self, base: Any, shape: tuple[int, ...] | None = None, dtype: npt.DTypeLike | None = None
    ) -> None:
        super().__init__(
            tuple(map(int, base.shape)) if shape is None else shape,
            np.dtype(base.dtype if dtype is None else dtype).newbyteorder("="),
        )
        self._base = base
        self._axis = max(0, self.ndim - 3)  # of the slices
        self._chunk = chunk_depth(base, self._axis)  # slices in a chunk
        self._first = 0  # slices before the first whole chunk

    def read_into(self, values: Array) -> Iterator[int]:
        """Fill an array of the same shape; see `DiskArray`."""
        if self.ndim < 3:
            values[...] = self[...]
            yield 1
            return
        axis, done = self._axis, 0
        size = math.prod(self.shape[axis + 1 :]) * self.dtype.itemsize
        depth = max(1, SLAB // max(1, size) // self._chunk) * self._chunk
        for leading in np.ndindex(self.shape[:axis]):
            start = 0
            while start < self.shape[axis]:
                end = self._first if start < self._first else start + depth
                end = min(end, self.shape[axis])
                index = (*leading, slice(start, end))
                values[index] = self[index]
                done += end - start
                yield done
                start = end


def _read_boolean(fill: Callable[[Array], None], out: Array) -> None:
    """Fill a boolean array: True where the uint8 values from `fill` are not 0."""
    stored = np.empty(out.shape, np.uint8)
    fill(stored)
    np.not_equal(stored, 0, out=out)


def read_uncompressed(path: Path, offset: int, dtype: np.dtype[Any], out: Array) -> None:
    """Fill an array with uncompressed values of a file, without a copy unless bytes are swapped.

    The file is read and not mapped: a mapped file that is truncated meanwhile would crash the
    program.

    `dtype`: data type in the file, including byte order. `out`: array of this type in native order.
    Raises InputError if the file ends too early.
    """
    values = out if dtype == out.dtype and out.flags.c_contiguous else np.empty(out.shape, dtype)
    # unbuffered: the values are read directly into the output array
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        room = memoryview(values.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        while room:
            count = file.readinto(room[:_PIECE])
            if not count:
                raise InputError(
                    f"{path.name} ends before its last value: it is incomplete, or was truncated "
                    "while it was read. Copy or export it again."
                )
            room = room[count:]
    if values is not out:
        out[...] = values


def uncompressed_planes(
    path: Path,
    offset: int,
    dtype: np.dtype[Any],
    numbers: npt.NDArray[np.integer[Any]],
    plane_shape: tuple[int, ...],
) -> PlaneStack:
    """Return a lazy stack of uncompressed planes stored contiguously in a file.

    `path`, `offset`, `dtype`: as for `read_uncompressed`. `numbers`, `plane_shape`: as for
    `PlaneStack`.
    """
    step = math.prod(plane_shape) * dtype.itemsize

    row = step // max(1, plane_shape[0])

    def read(number: int, out: Array) -> None:
        read_uncompressed(path, offset + number * step, dtype, out)

    def read_rows(number: int, first: int, out: Array) -> None:
        read_uncompressed(path, offset + number * step + first * row, dtype, out)

    return PlaneStack(numbers, plane_shape, dtype.newbyteorder("="), read, read_rows)


def slabs(data: Any, depth: int | None = None) -> Iterator[tuple[tuple[int | slice, ...], Array]]:
    """Yield the values of an array slab by slab, in order and each voxel once.

    `data`: NumPy, dask, Zarr, memory map or lazy array: anything with a shape that takes slices.
    `depth`: number of planes per slab; by default as many as fit into `SLAB` bytes, in whole chunks
    if the array has chunks.
    Yields: the index of the slab and its values ``data[index]`` in native byte order, without the
    axes before z. An array with fewer than three axes is yielded as a whole.

    >>> [values.shape for _, values in slabs(np.zeros((2, 5, 4, 3)), depth=2)]
    [(2, 4, 3), (2, 4, 3), (1, 4, 3), (2, 4, 3), (2, 4, 3), (1, 4, 3)]
    """
    shape = tuple(int(n) for n in data.shape)
    cut = len(shape) - 3
    if cut < 0:
        yield (), in_native_order(data[...])
        return
    if depth is None:
        size = math.prod(shape[cut + 1 :]) * np.dtype(data.dtype).itemsize
        depth = max(1, SLAB // max(size, 1))
        chunk = chunk_depth(data, cut)
        depth = max(chunk, depth // chunk * chunk)
    for leading in np.ndindex(shape[:cut]):
        for start in range(0, shape[cut], depth):
            index = (*leading, slice(start, min(start + depth, shape[cut])))
            yield index, in_native_order(data[index])


def in_native_order(values: Any) -> Array:
    """Return values as a C-contiguous array in native byte order, without a copy if possible."""
    array = np.asarray(values)
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def chunk_depth(data: Any, axis: int) -> int:
    """Return the chunk length along an axis, or 1 for an array without chunks."""
    chunks = getattr(data, "chunks", None)
    if not chunks or len(chunks) <= axis:
        return 1
    own = chunks[axis]
    return int(own if isinstance(own, int | np.integer) else max(own))
