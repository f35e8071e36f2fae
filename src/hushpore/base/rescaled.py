"""Stored integers of a scanner with the slope and intercept that convert them to grey values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float32s, Float64s

_EXACT_BITS = 24  # integers below 2**24 are exact in float32
_PIECE = 1 << 22  # values rescaled at once: 32 MB in float64
# further methods of an array that do not modify it
_METHODS = (
    "all", "any", "argmax", "argmin", "astype", "clip", "copy", "cumsum", "flatten", "item", "max",
    "mean", "min", "nonzero", "ravel", "reshape", "round", "squeeze", "std", "sum", "swapaxes",
    "tobytes", "tolist", "transpose", "var",
)  # fmt: skip


class Scaled(NDArrayOperatorsMixin):
    """Array of float32 grey values, stored as the integers of the scanner.

    ``slope * integer + intercept``, rounded once, is computed when values are needed: for an index,
    by `numpy.asarray`, or in arithmetic. This halves the memory and the transfer to a GPU. The
    array is read-only; ``numpy.array(scaled)`` is a writable copy.

    `stored`: the integers; a NumPy array or a lazy array.
    `slope`, `intercept`: one number, or one for each position on the first axis; stored as float64,
    0-D or of shape (n, 1, 1) for broadcasting.
    `nbytes`: size of the integers.

    >>> hounsfield = Scaled(np.array([[0, 24], [1024, 3000]], np.uint16), 1, -1024)
    >>> hounsfield[1].tolist(), (hounsfield > 0).tolist()
    ([0.0, 1976.0], [[False, False], [False, True]])
    """

    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(self, stored: Any, slope: npt.ArrayLike, intercept: npt.ArrayLike) -> None:
        self.stored = stored
        self.shape: tuple[int, ...] = tuple(stored.shape)
        self.ndim = len(self.shape)
        self.size = math.prod(self.shape)
        self.nbytes = self.size * np.dtype(stored.dtype).itemsize
        self.slope, self.intercept = (_along_first(each, self.ndim) for each in (slope, intercept))

    def with_stored(self, stored: Any) -> Scaled:
        """Return other integers of the same shape with the same slope and intercept."""
        return Scaled(stored, self.slope, self.intercept)

    def part(self, key: Any) -> Scaled:
        """Return a part as `Scaled` integers, read from disk if necessary.

        `key`: slices or Ellipsis; no axis may be dropped.
        """
        first = key[0] if isinstance(key, tuple) else key
        lines = (
            each[first] if each.ndim and isinstance(first, slice) else each
            for each in (self.slope, self.intercept)
        )
        return Scaled(self.stored[key], *lines)

    def __getitem__(self, key: Any) -> Any:
        stored = np.asarray(self.stored[key])
        slope, intercept = (
            np.broadcast_to(each, self.shape)[key] if each.ndim else each
            for each in (self.slope, self.intercept)
        )
        return rescale(stored, slope, intercept)[()]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Scaled(shape={self.shape}, stored={np.dtype(self.stored.dtype)})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Scaled:
        return self  # immutable

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError(
                "The values are computed, so an array of them is a copy: use copy=None."
            )
        values = np.empty(self.shape, self.dtype)
        for part in _pieces(self.shape):
            values[part] = self[part]
        return values if dtype is None else values.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if "out" in options:
            options["out"] = tuple(_values(each) for each in options["out"])
        return getattr(ufunc, method)(*(_values(each) for each in inputs), **options)

    def __getattr__(self, name: str) -> Any:
        """Return a method of the values, such as ``mean`` or ``astype``, for other programs."""
        if name not in _METHODS:
            raise AttributeError(f"{type(self).__name__} has no {name!r}; see numpy.asarray.")

        def method(*args: Any, **options: Any) -> Any:
            return getattr(np.asarray(self), name)(*args, **options)

        return method


def held(data: Any) -> Any:
    """Return the stored array: the integers of `Scaled`, or the array itself."""
    return data.stored if isinstance(data, Scaled) else data


def rescale(stored: Array, slope: Float64s, intercept: Float64s) -> Float32s:
    """Return ``slope * stored + intercept`` in float32, rounded once.

    `stored`: of any shape and real type. `slope`, `intercept`: float64, that broadcast to it.
    """
    values = np.empty(stored.shape, np.float32)
    if _is_exact(stored.dtype, slope, intercept):
        np.multiply(stored, slope.astype(np.float32), out=values, casting="same_kind")
        values += intercept.astype(np.float32)
        return values
    slopes, intercepts = (np.broadcast_to(each, stored.shape) for each in (slope, intercept))
    for part in _pieces(stored.shape):
        # who reads a header says where its numbers are beyond those of float32
        with np.errstate(over="ignore"):
            values[part] = stored[part].astype(np.float64) * slopes[part] + intercepts[part]
    return values


def _is_exact(dtype: np.dtype[Any], slope: Any, intercept: Any) -> bool:
    """Return whether every step of rescaling integers is exact in float32."""
    if dtype.kind not in "ui":
        return False
    whole = np.all(slope == np.rint(slope)) and np.all(intercept == np.rint(intercept))
    largest = 2.0 ** (8 * dtype.itemsize) * np.abs(slope) + np.abs(intercept)
    return bool(whole and np.max(largest, initial=0) < 2**_EXACT_BITS)


def _along_first(numbers: npt.ArrayLike, ndim: int) -> Float64s:
    values = np.asarray(numbers, np.float64)
    if values.size and np.all(values == values.flat[0]):
        return np.array(values.flat[0])
    return values.reshape(-1, *[1] * (ndim - 1))


def _pieces(shape: tuple[int, ...]) -> Iterator[Any]:
    """Yield slices along the first axis; a 2D image is one part."""
    if len(shape) < 3:
        yield ...
        return
    step = max(1, _PIECE // max(1, math.prod(shape[1:])))
    for first in range(0, shape[0], step):
        yield slice(first, first + step)


def _values(thing: Any) -> Any:
    return np.asarray(thing) if isinstance(thing, Scaled) else thing
