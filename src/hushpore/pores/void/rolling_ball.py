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
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hushpore.pores.geometry.surface import DIRECTIONS
from hushpore.pores.void.components import find_components
from hushpore.pores.watershed.distance import squared_distance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Int64s, Mask
    from hushpore.pores.parallel import KernelThreads

# so far apart, in voxels of a slice, that slices have no part in each other's distances
_APART = 1e6


class Ball(NamedTuple):
    """A ball (slice by slice: a disc), and the volume in which it moves freely around another."""

    shape: tuple[int, ...]  # of that volume, (z, y, x)
    inner: tuple[slice, ...]  # where the other lies in it
    spacing: tuple[float, ...]  # by which distances are measured
    limit: float  # the ball fits where the squared distance to solid is larger
    slicewise: bool


def ball_around(
    shape: Sequence[int], spacing: Sequence[float], radius: float, slicewise: bool
) -> Ball:
    """Return the ball for a volume of a shape, with the parameters of `mark_outside`."""
    # layers of air, before and after the volume, in which the ball moves freely around it
    before = [math.floor(radius * min(spacing) / step) + 1 for step in spacing]
    after = before.copy()
    if slicewise:
        before[0] = after[0] = 0
        # the row that parts one slice from the next
        after[1] += 1
    around = tuple(sum(lengths) for lengths in zip(before, shape, after, strict=True))
    inner = tuple(slice(b, b + n) for b, n in zip(before, shape, strict=True))
    if slicewise:
        in_slice = min(spacing[1:])
        steps = (_APART * in_slice, *spacing[1:])
        return Ball(around, inner, steps, (radius * min(spacing) / in_slice) ** 2, slicewise)
    return Ball(around, inner, tuple(spacing), radius**2, slicewise)


def outside_of_slices(
    void: Mask, spacing: Sequence[float], radius: float, threads: KernelThreads
) -> Mask:
    """Return the air around the sample in slices, each of them taken for itself."""
    ball = ball_around(void.shape, spacing, radius, slicewise=True)
    padded = np.ones(ball.shape, np.bool_)
    padded[ball.inner] = void
    no_walls = (False, False, False)
    distance = squared_distance(padded, ball.spacing, no_walls, threads, ball.limit)
    centres = np.greater(distance, ball.limit, out=padded)
    del distance
    # a row of solid between slices, and one below the other they are an image
    centres[:, -1] = False
    parted = centres.view(np.uint8).reshape(1, -1, centres.shape[2])
    parts = find_components(parted, (False, False, True), threads)
    parts.paint(0, parted, parts.is_open.view(np.uint8), threads)
    unreached = np.logical_not(centres, out=centres)
    distance = squared_distance(unreached, ball.spacing, no_walls, threads, ball.limit)
    return (distance[ball.inner] <= ball.limit) & void


def outside_bytes(
    shape: Sequence[int], spacing: Sequence[float], radius: float, slicewise: bool
) -> int:
    """Return how much memory `mark_outside` takes at most, with the void before and after."""
    ball = ball_around(shape, spacing, radius, slicewise)
    return 3 * math.prod(shape) + 5 * math.prod(ball.shape)


def face_neighbours(air: Mask) -> Mask:
    """Return the voxels that share a face with a voxel of `air`, (z, y, x), bool."""
    found = np.zeros_like(air)
    for direction in DIRECTIONS[:3]:
        near, far = _pairs(direction)
        found[near] |= air[far]
        found[far] |= air[near]
    return found


def count_crossings(void: Mask, air: Mask) -> Int64s:
    """Count the neighbours of which one is `void` and one is `air`, by direction.

    `void`, `air`: (z, y, x), bool.
    Returns: (13,), int64, in the order of `hushpore.pores.geometry.surface.DIRECTIONS`.
    """
    found = np.zeros(len(DIRECTIONS), np.int64)
    for k, direction in enumerate(DIRECTIONS):
        near, far = _pairs(direction)
        found[k] = np.count_nonzero(void[near] & air[far])
        found[k] += np.count_nonzero(air[near] & void[far])
    return found


def _pairs(direction: Int64s) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return where the voxels lie that have a neighbour in a direction, and where these do."""
    near = tuple(slice(max(0, -step), min(0, -step) or None) for step in direction.tolist())
    far = tuple(slice(max(0, step), min(0, step) or None) for step in direction.tolist())
    return near, far
