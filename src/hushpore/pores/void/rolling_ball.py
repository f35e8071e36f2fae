"""Rolling ball: the air around a sample, which is void but not pore.

A ball is rolled over the sample from outside, as in the definition of the solvent-excluded surface
of a molecule: exterior air is all that a ball free of solid can cover on its way from beyond the
volume. Everything else is the sample: solid, closed void, and open pores whose mouths are too
narrow for the ball; the ball indents these mouths by a small cap instead of closing them flat. The
space beyond the faces of the volume counts as air, so that narrow gaps between the sample and a
face are exterior, too.

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

    import numpy.typing as npt

    from hushpore.pores.parallel import KernelThreads

# slice spacing, in voxels of a slice, at which slices do not affect each other's distances
_APART = 1e6


class Ball(NamedTuple):
    """A ball (slice by slice: a disc), and the enlarged volume in which it moves."""

    shape: tuple[int, ...]  # of the enlarged volume, (z, y, x)
    inner: tuple[slice, ...]  # position of the volume in it
    spacing: tuple[float, ...]  # for distances
    limit: float  # the ball fits if the squared distance to solid is larger
    slicewise: bool


def ball_around(
    shape: Sequence[int], spacing: Sequence[float], radius: float, slicewise: bool
) -> Ball:
    """Return the ball for a volume of this shape; parameters as for `mark_exterior`."""
    # margin of air on both sides of the volume in which the ball can move
    before = [math.floor(radius * min(spacing) / step) + 1 for step in spacing]
    after = before.copy()
    if slicewise:
        before[0] = after[0] = 0
        # the row that separates one slice from the next
        after[1] += 1
    around = tuple(sum(lengths) for lengths in zip(before, shape, after, strict=True))
    inner = tuple(slice(b, b + n) for b, n in zip(before, shape, strict=True))
    if slicewise:
        in_slice = min(spacing[1:])
        steps = (_APART * in_slice, *spacing[1:])
        return Ball(around, inner, steps, (radius * min(spacing) / in_slice) ** 2, slicewise)
    return Ball(around, inner, tuple(spacing), radius**2, slicewise)


def exterior_of_slices(
    void: npt.NDArray[np.bool_], spacing: Sequence[float], radius: float, threads: KernelThreads
) -> npt.NDArray[np.bool_]:
    """Return the air around the sample, slice by slice (z, y, x)."""
    ball = ball_around(void.shape, spacing, radius, slicewise=True)
    padded = np.ones(ball.shape, np.bool_)
    padded[ball.inner] = void
    no_walls = (False, False, False)
    distance = squared_distance(padded, ball.spacing, no_walls, threads, ball.limit)
    centres = np.greater(distance, ball.limit, out=padded)
    del distance
    # with a row of solid between them, all slices form one image
    centres[:, -1] = False
    separated = centres.view(np.uint8).reshape(1, -1, centres.shape[2])
    parts = find_components(separated, (False, False, True), threads)
    parts.paint(0, separated, parts.is_open.view(np.uint8), threads)
    unreached = np.logical_not(centres, out=centres)
    distance = squared_distance(unreached, ball.spacing, no_walls, threads, ball.limit)
    return (distance[ball.inner] <= ball.limit) & void


def exterior_bytes(
    shape: Sequence[int], spacing: Sequence[float], radius: float, slicewise: bool
) -> int:
    """Return the maximum memory of `mark_exterior` in bytes, including the void."""
    ball = ball_around(shape, spacing, radius, slicewise)
    return 3 * math.prod(shape) + 5 * math.prod(ball.shape)


def face_neighbours(air: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which voxels share a face with a voxel of `air`, (z, y, x), bool."""
    found = np.zeros_like(air)
    for direction in DIRECTIONS[:3]:
        near, far = _pairs(direction)
        found[near] |= air[far]
        found[far] |= air[near]
    return found


def count_crossings(
    void: npt.NDArray[np.bool_], air: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Count the pairs of a `void` and an `air` voxel that are neighbours, by direction.

    `void`, `air`: (z, y, x), bool.
    Returns: (13,), int64, in the order of `hushpore.pores.geometry.surface.DIRECTIONS`.
    """
    found = np.zeros(len(DIRECTIONS), np.int64)
    for k, direction in enumerate(DIRECTIONS):
        near, far = _pairs(direction)
        found[k] = np.count_nonzero(void[near] & air[far])
        found[k] += np.count_nonzero(air[near] & void[far])
    return found


def _pairs(direction: npt.NDArray[np.int64]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the slices of all voxels with a neighbour in a direction, and of the neighbours."""
    near = tuple(slice(max(0, -step), min(0, -step) or None) for step in direction.tolist())
    far = tuple(slice(max(0, step), min(0, step) or None) for step in direction.tolist())
    return near, far
