"""Sums over the voxels of each basin, declared once.

The CPU, GPUs and cluster workers all compute `SUMS`. They are integer sums, and so exact in any
order; the sums of merged basins are the sums of their sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Int64s

_AT_ONCE = 1 << 11  # rows that are converted to 64 bits at once
_DIGIT = 11  # bits per digit of the radix sort, whose counts fit into the cache


@dataclass(frozen=True)
class Sum:
    """A sum over the voxels of a basin, of ``z**i * y**j * x**k * grey**l``.

    Attributes
    ----------
    name : str
        Name by which measures use it, see `PoreSums.sum`.
    z, y, x, grey : int
        The powers, 0 to 2, of the voxel's indices and of its grey value
        (`hushpore.pores.void.grey`), where these are known.
    """

    name: str
    z: int = 0
    y: int = 0
    x: int = 0
    grey: int = 0

    def __post_init__(self) -> None:
        if not all(0 <= power <= 2 for power in self.powers):
            raise ValueError(f"Powers of a sum are 0, 1 or 2; got {self.powers} for {self.name!r}.")

    @property
    def powers(self) -> tuple[int, int, int, int]:
        """Powers of z, y, x and the grey value."""
        return self.z, self.y, self.x, self.grey


#: Sums over the voxels of each basin, in the order of `BasinGraph.sums`.
SUMS = [
    Sum("voxels"),
    Sum("z", z=1),
    Sum("y", y=1),
    Sum("x", x=1),
    Sum("zz", z=2),
    Sum("yy", y=2),
    Sum("xx", x=2),
    Sum("zy", z=1, y=1),
    Sum("zx", z=1, x=1),
    Sum("yx", y=1, x=1),
    Sum("grey", grey=1),
    Sum("grey_squared", grey=2),
]


def add_rows(rows: Array, to: Int64s, out: Array) -> None:
    """Add each row of a table to a row of another one: ``np.add.at(out, to, rows)``.

    `rows`: (n, columns). `to`: (n,), int64. `out`: (m, columns), int64 or int32.
    """
    for first, part in in_64_bits(rows):
        _add_rows(part, to[first : first + len(part)], out)


def in_64_bits(rows: Array) -> Iterator[tuple[int, Int64s]]:
    """Yield blocks of rows in 64 bits, with the index of their first row.

    This avoids compiling a kernel for each type of counts.
    """
    at_once = len(rows) if rows.dtype == np.int64 else _AT_ONCE
    for first in range(0, max(len(rows), 1), max(at_once, 1)):
        yield first, np.ascontiguousarray(rows[first : first + at_once], np.int64)


@kernel
def _add_rows(rows: Int64s, to: Int64s, out: Array) -> None:
    for i in range(len(rows)):
        at = to[i]
        for k in range(rows.shape[1]):
            out[at, k] += rows[i, k]


def order_of(keys: Int64s) -> Int64s:
    """Return the order that sorts keys: a stable ``np.argsort``.

    A radix sort over the digits in which keys differ, so that few distinct values take few passes.
    """
    order = np.arange(keys.size)
    if keys.size == 0:
        return order
    rest = (keys - keys.min()).view(np.uint64)
    differ, shift = int(np.bitwise_or.reduce(rest)), 0
    others, other_order = np.empty_like(rest), np.empty_like(order)
    counts = np.empty(1 << _DIGIT, np.int64)
    while differ >> shift:
        if not (differ >> shift) & 1:
            shift += 1
            continue
        counts.fill(0)
        _sort_digit(rest, order, others, other_order, counts, shift)
        rest, others = others, rest
        order, other_order = other_order, order
        shift += _DIGIT
    return order


@kernel
def _sort_digit(
    keys: npt.NDArray[np.uint64],
    order: Int64s,
    sorted_keys: npt.NDArray[np.uint64],
    sorted_order: Int64s,
    counts: Int64s,
    shift: int,
) -> None:
    """Sort keys and their order by one digit; `counts`: zeros, one per digit value."""
    below, mask = np.uint64(shift), np.uint64(counts.size - 1)
    for i in range(keys.size):
        counts[(keys[i] >> below) & mask] += 1
    before = 0
    for digit in range(counts.size):
        before += counts[digit]
        counts[digit] = before - counts[digit]
    for i in range(keys.size):
        digit = (keys[i] >> below) & mask
        at = counts[digit]
        sorted_keys[at] = keys[i]
        sorted_order[at] = order[i]
        counts[digit] = at + 1


def narrowest(most: int) -> npt.DTypeLike:
    """Return the smallest integer type for counts up to `most`: int8, int16 or int32."""
    return next(kind for kind in (np.int8, np.int16, np.int32) if most <= np.iinfo(kind).max)


def counting(voxels: int) -> npt.DTypeLike:
    """Return the type for counts of up to so many voxels: int32 or int64."""
    return np.int32 if voxels < 2**31 else np.int64


def mark_grey_unknown(sums: Int64s) -> None:
    """Mark sums (n, sums) of basins without known grey values, in place."""
    # no sum of squares is below 0, and adding up such marks stays below 0
    sums[:, index_of("grey_squared")] = -1


def index_of(name: str) -> int:
    """Return the index of a sum in `SUMS`."""
    return [each.name for each in SUMS].index(name)
