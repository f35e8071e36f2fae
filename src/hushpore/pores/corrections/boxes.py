"""Boxes of voxels, and sums over voxels in a box."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hushpore.base.errors import InputError
from hushpore.pores.geometry.sums import SUMS

if TYPE_CHECKING:
    from hushpore.base.arrays import Array, Int64s

    #: First voxel and the one after the last along z, y and x.
    Box: TypeAlias = tuple[slice, slice, slice]


def moved(sums: Int64s, offset: Int64s) -> Int64s:
    """Return sums over voxels after moving the voxels.

    Parameters
    ----------
    sums : numpy.ndarray
        (regions, sums), int64: in the order of `SUMS`.
    offset : numpy.ndarray
        (3,), int64: by how many voxels along z, y and x.

    Returns
    -------
    numpy.ndarray
        (regions, sums), int64.

    Raises
    ------
    InputError
        If sums of lower powers, from which they follow, are not among `SUMS`.
    """
    place = {each.powers: k for k, each in enumerate(SUMS)}
    found = np.zeros_like(sums)
    for powers, k in place.items():
        for z in range(powers[0] + 1):
            for y in range(powers[1] + 1):
                for x in range(powers[2] + 1):
                    lower = (z, y, x, powers[3])
                    ways = math.prod(map(math.comb, powers[:3], lower[:3]))
                    left = [n - m for n, m in zip(powers[:3], lower[:3], strict=True)]
                    factor = ways * math.prod(
                        int(o) ** n for o, n in zip(offset, left, strict=True)
                    )
                    if not factor:
                        continue
                    if lower not in place:
                        raise InputError(
                            f"The sum {SUMS[k].name!r} cannot be measured after a correction: it "
                            f"needs a sum with the powers {lower} of z, y, x and grey value."
                        )
                    found[:, k] += factor * sums[:, place[lower]]
    return found


def box_of(bounds: Array) -> Box:
    """Return the box of bounds, (6,), as in `BasinGraph.bounds`."""
    z, y, x = (slice(int(bounds[k]), int(bounds[k + 3])) for k in range(3))
    return z, y, x


def grown(box: Box, margin: tuple[int, ...], shape: tuple[int, ...]) -> Box:
    """Return a box with a margin, as far as it lies in a volume of this shape."""
    z, y, x = (
        slice(max(part.start - more, 0), min(part.stop + more, length))
        for part, more, length in zip(box, margin, shape, strict=True)
    )
    return z, y, x
