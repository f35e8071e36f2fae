"""The peaks of slabs by the rule of SNOW, of which some lie in the middle between slabs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.cluster.merging import roots
from hushpore.pores.watershed.snow import find_in_slab

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.cluster.blocks import Blocks, Report


class _Distance:
    """The distance in all slabs, as a stack."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks

    def read(self, first: int, last: int) -> npt.NDArray[Any]:
        return self._blocks.read("distance", first, last)


def find_slab_peaks(
    blocks: Blocks, slab: int, basins_before: Sequence[int], levels: int, purpose: str
) -> Report:
    """Find the peaks of a slab, and the basins in which they lie.

    `basins_before`: how many basins lie in the slabs before each slab; the last is the sum of all.
    `levels`, `purpose`: of the merging at height 0, which tells how high each basin leads.
    """
    numbers = blocks.load("numbers", slab, "numbers")
    root = roots(blocks, slab, levels, numbers, purpose)
    level = np.full(root.size, -1, np.float32)
    home = np.searchsorted(basins_before, root) - 1
    for other in np.unique(home[1:]):
        own = np.flatnonzero(home == other)
        squared = blocks.load("slab_basins", int(other), "peak_squared_distance")
        level[own] = squared[root[own] - basins_before[other]]
    first, last = blocks.plan.slabs[slab]
    basins = blocks.read("basins", first, last)
    place, owner = find_in_slab(_Distance(blocks), first, basins, level, blocks.threads)
    return {"place": place, "basin": numbers[owner]}


def look_up_widths(blocks: Blocks, slab: int, place: npt.NDArray[np.int64]) -> Report:
    """Look up the squared distance at voxels (m, 3) of a slab."""
    first, last = blocks.plan.slabs[slab]
    z, y, x = place.T
    return {"squared": blocks.read("distance", first, last)[z - first, y, x]}
