"""Euler number of the void: its parts, less the loops through it, plus the solid parts inside it.

It is counted in neighbouring slices: that of a stack is the sum of those of its slices, less those
of what each two slices share, so that it adds up over slabs however they are cut. Where the void is
connected over the 26 neighbours of a voxel the solid is over 6, and the other way round. An image
has one slice, and the same holds for 8 and 4 neighbours.

References
----------
H. J. Vogel and K. Roth (2001), "Quantitative morphology and network representation of soil pore
structure", Advances in Water Resources 24, 233-242. https://doi.org/10.1016/S0309-1708(00)00055-5

J. Ohser and F. Mucklich (2000), "Statistical Analysis of Microstructures in Materials Science",
Wiley, ISBN 978-0-471-97486-4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Generator

    import numpy.typing as npt

    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Slabs


class _Slices(Protocol):
    def read(self, first: int, last: int) -> npt.NDArray[Any]: ...


def find_euler_number(
    void: _Slices, slabs: Slabs, threads: KernelThreads, *, faces_only: bool
) -> Generator[float, None, int]:
    """Find the Euler number of a void, slab by slab.

    `void`: a stack that is not 0 where void is. `faces_only`: whether void is connected over the 6
    faces of a voxel, not over its 26 neighbours.
    """
    total = 0
    for first, last in slabs:
        total += euler_of_slab(void.read(first, last + 1), last - first, threads, faces_only)
        yield last / slabs.depth
    return total


def euler_of_slab(
    values: npt.NDArray[Any], count: int, threads: KernelThreads, faces_only: bool
) -> int:
    """Return what the first slices of a slab add to the Euler number.

    `values`: (z, y, x), not 0 where void is: `count` slices, and the one after them where there is.
    """

    def add(first: int, last: int) -> int:
        here = values[first] != 0
        own, total = _of_plane(here, faces_only), 0
        for z in range(first, last):
            total += own
            if z + 1 == len(values):
                break
            there = values[z + 1] != 0
            other = _of_plane(there, faces_only)
            if faces_only:
                total -= _of_plane(here & there, faces_only)
            else:
                # of the plane between them, in which the faces of both lie
                total -= own + other - _of_plane(here | there, faces_only)
            here, own = there, other
        return total

    return sum(threads.over(count, add))


def _of_plane(void: npt.NDArray[np.bool_], faces_only: bool) -> int:
    """Return the Euler number of one slice: corners, less edges, plus faces."""
    count = np.count_nonzero
    if faces_only:
        # voxels are the corners
        pairs = void[:, 1:] & void[:, :-1]
        edges = count(pairs) + count(void[1:] & void[:-1])
        return int(count(void) - edges + count(pairs[1:] & pairs[:-1]))
    # voxels are the faces; their edges and corners count where any voxel has them
    around = np.pad(void, 1)
    pairs = around[:, 1:] | around[:, :-1]
    edges = count(pairs[1:-1]) + count((around[1:] | around[:-1])[:, 1:-1])
    return int(count(pairs[1:] | pairs[:-1]) - edges + count(void))
