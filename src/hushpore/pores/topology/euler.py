"""Euler number of the void: components minus loops plus enclosed solid components.

It is summed over slices minus the interfaces between neighbouring slices, so that it adds up over
slabs. If the void is 26-connected, the solid is 6-connected, and vice versa (8 and 4 in 2D).

References
----------
H. J. Vogel and K. Roth (2001), "Quantitative morphology and network representation of soil pore
structure", Advances in Water Resources 24, 233-242. https://doi.org/10.1016/S0309-1708(00)00055-5

J. Ohser and F. Mucklich (2000), "Statistical Analysis of Microstructures in Materials Science",
Wiley, ISBN 978-0-471-97486-4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from hushpore.pores.parallel import inlined, kernel

if TYPE_CHECKING:
    from collections.abc import Generator

    import numpy.typing as npt

    from hushpore.base.arrays import Array, UInt8s
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Slabs


class _Slices(Protocol):
    def read(self, first: int, last: int) -> Array: ...


def find_euler_number(
    void: _Slices, slabs: Slabs, threads: KernelThreads, *, faces_only: bool
) -> Generator[float, None, int]:
    """Find the Euler number of a void, slab by slab.

    `void`: a stack that is nonzero in the void. `faces_only`: whether void is connected over the 6
    faces of a voxel, not over its 26 neighbours.
    """
    total = 0
    for first, last in slabs:
        total += euler_of_slab(void.read(first, last + 1), last - first, threads, faces_only)
        yield last / slabs.depth
    return total


def euler_of_slab(values: Array, count: int, threads: KernelThreads, faces_only: bool) -> int:
    """Return the contribution of the first slices of a slab to the Euler number.

    `values`: (z, y, x), nonzero in the void: `count` slices, and the next one if there is one.
    """
    _, height, width = values.shape

    def add_slices(first: int, last: int) -> int:
        # with solid around, and beyond the last slice
        planes = np.zeros((2, height + 2, width + 2), np.bool_)
        added = np.zeros(width + 1, np.int8)
        np.not_equal(values[first], 0, out=planes[first % 2, 1:-1, 1:-1])
        total = 0
        for z in range(first, last):
            here, there = planes[z % 2], planes[(z + 1) % 2]
            beyond = values[z + 1] if z + 1 < len(values) else 0
            there[1:-1, 1:-1] = np.not_equal(beyond, 0)
            total += _of_slice(here.view(np.uint8), there.view(np.uint8), added, faces_only)
        return total

    return sum(threads.over(count, add_slices))


@kernel
def _of_slice(here: UInt8s, there: UInt8s, added: npt.NDArray[np.int8], faces_only: bool) -> int:
    """Return the contribution of a slice, minus its interface with the next; `added`: buffer."""
    total = 0
    for y in range(len(here) - 1):
        if faces_only:
            _add_over_faces(here[y], here[y + 1], there[y], there[y + 1], added)
        else:
            _add_rows(here[y], here[y + 1], there[y], there[y + 1], added)
        for x in range(added.size):
            total += int(added[x])
    return total


@inlined
def _add_rows(
    here_before: UInt8s,
    here: UInt8s,
    there_before: UInt8s,
    there: UInt8s,
    added: npt.NDArray[np.int8],
) -> None:
    """Write what voxels of a row add, of a slice and the next: void over its 26 neighbours.

    Corners, less edges, plus faces: of both slices seen as one, less those of the next alone.
    Voxels are the faces; their edges and corners count where any voxel has them.
    """
    for x in range(added.size):
        a, b = there_before[x], there_before[x + 1]
        c, d = there[x], there[x + 1]
        e, f = a | here_before[x], b | here_before[x + 1]
        g, h = c | here[x], d | here[x + 1]
        both = (e | f | g | h) - (g | h) - (f | h) + h
        added[x] = np.int8(both - (a | b | c | d) + (c | d) + (b | d) - d)


@inlined
def _add_over_faces(
    here_before: UInt8s,
    here: UInt8s,
    there_before: UInt8s,
    there: UInt8s,
    added: npt.NDArray[np.int8],
) -> None:
    """Do what `_add_rows` does where void is connected over faces: there voxels are the corners.

    Of the slice, less those of what it shares with the next.
    """
    for x in range(added.size):
        a, b = here_before[x], here_before[x + 1]
        c, d = here[x], here[x + 1]
        e, f = a & there_before[x], b & there_before[x + 1]
        g, h = c & there[x], d & there[x + 1]
        shared = h - (g & h) - (f & h) + (e & f & g & h)
        added[x] = np.int8(d - (c & d) - (b & d) + (a & b & c & d) - shared)
