"""The air around a sample, which is void but no pore.

A ball is rolled over the sample from outside, as in the definition of the solvent-excluded surface
of a molecule: air is outside where a ball that holds no solid can come to cover it without leaving
the air on its way from beyond the volume. Everything else is the sample: its solid, its closed
voids, and open pores as far as the ball is too large for their mouths, which it does not close
flat but dents in by a small cap. Beyond the faces of the volume there is taken to be air, so that
it also counts as outside where the sample all but touches a face.

References
----------
M. L. Connolly (1983), "Solvent-accessible surfaces of proteins and nucleic acids".
https://doi.org/10.1126/science.6879170
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hushpore.pores.distance import squared_distance
from hushpore.pores.graph import DIRECTIONS
from hushpore.pores.void import find_components, keep_components

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.pores.parallel import Workers

# so far apart, in voxels of a slice, that slices have no part in each other's distances
_APART = 1e6


def find_outside(
    void: npt.NDArray[np.bool_],
    spacing: Sequence[float],
    radius: float,
    slicewise: bool,
    workers: Workers,
) -> npt.NDArray[np.bool_]:
    """Return the part of the void that is air around the sample.

    Parameters
    ----------
    void : numpy.ndarray
        (z, y, x), bool, C order.
    spacing : sequence of float
        Voxel size in z, y, x order.
    radius : float
        Of the ball, in voxels of the smallest spacing. It fits where all solid voxels' centres are
        farther from its own, which is the centre of a voxel.
    slicewise : bool
        Whether every slice is taken for itself, with a disc instead of the ball: for a sample that
        runs through from the first slice to the last, whose pores would be open there.
    workers : Workers
        Threads to run on.

    Returns
    -------
    numpy.ndarray
        (z, y, x), bool, within the void.

    Notes
    -----
    Linear in the number of voxels: two distance transforms and one search for connected parts, in
    a volume that is larger by the diameter of the ball (`outside_bytes`).
    """
    before, after = _margins(spacing, radius, slicewise)
    limit = (radius * min(spacing) / _smallest(spacing, slicewise)) ** 2
    steps = (_APART * min(spacing[1:]), *spacing[1:]) if slicewise else tuple(spacing)
    margins = tuple(zip(before, after, strict=True))
    padded = np.pad(void, margins, constant_values=True)
    no_walls = (False, False, False)
    distance = squared_distance(padded, steps, no_walls, workers)
    centres = np.greater(distance, limit, out=padded)
    del distance
    if slicewise:
        # a row of solid between slices, and one below the other they are an image
        centres[:, -1] = False
        parted = centres.reshape(1, -1, centres.shape[2])
    else:
        parted = centres
    parts = find_components(parted, (False, False, True), workers)
    keep_components(parted, parts, parts.is_open)
    unreached = np.logical_not(centres, out=centres)
    distance = squared_distance(unreached, steps, no_walls, workers)
    inner = tuple(
        slice(first, first + length) for first, length in zip(before, void.shape, strict=True)
    )
    return (distance[inner] <= limit) & void


def outside_bytes(
    shape: Sequence[int], spacing: Sequence[float], radius: float, slicewise: bool
) -> int:
    """Return how much memory `find_outside` takes at most, with the void and its own result."""
    before, after = _margins(spacing, radius, slicewise)
    padded = math.prod(sum(lengths) for lengths in zip(before, shape, after, strict=True))
    return 3 * math.prod(shape) + 5 * padded


def beside(air: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the voxels that share a face with a voxel of `air`, (z, y, x), bool."""
    found = np.zeros_like(air)
    for direction in DIRECTIONS[:3]:
        near, far = _pairs(direction)
        found[near] |= air[far]
        found[far] |= air[near]
    return found


def crossings(void: npt.NDArray[np.bool_], air: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Count the neighbours of which one is `void` and one is `air`, by direction.

    Parameters
    ----------
    void, air : numpy.ndarray
        (z, y, x), bool.

    Returns
    -------
    numpy.ndarray
        (13,), int64, in the order of `hushpore.pores.graph.DIRECTIONS`.
    """
    found = np.zeros(len(DIRECTIONS), np.int64)
    for k, direction in enumerate(DIRECTIONS):
        near, far = _pairs(direction)
        found[k] = np.count_nonzero(void[near] & air[far])
        found[k] += np.count_nonzero(air[near] & void[far])
    return found


def _pairs(direction: npt.NDArray[np.int64]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return where the voxels lie that have a neighbour in a direction, and where these do."""
    near = tuple(slice(max(0, -step), min(0, -step) or None) for step in direction.tolist())
    far = tuple(slice(max(0, step), min(0, step) or None) for step in direction.tolist())
    return near, far


def _smallest(spacing: Sequence[float], slicewise: bool) -> float:
    """The unit of distances: the smallest spacing, of those that count."""
    return min(spacing[1:]) if slicewise else min(spacing)


def _margins(
    spacing: Sequence[float], radius: float, slicewise: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Layers of air, before and after the volume, in which the ball moves freely around it."""
    before = [math.floor(radius * min(spacing) / step) + 1 for step in spacing]
    after = before.copy()
    if slicewise:
        before[0] = after[0] = 0
        # the row that parts one slice from the next
        after[1] += 1
    return tuple(before), tuple(after)
