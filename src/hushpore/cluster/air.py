"""What of the void of each slab is not of the sample: air around it, or outside a mask.

Whether a ball fits at a voxel depends on the slices as far away as its radius, and no farther; and
so does what it covers there. So slabs are read with that many slices beside them. In between is
found where the ball gets to: parts of where it fits, joined over the faces of slabs. The room in
which it moves is larger than the volume, and is cut into slabs of its own.
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from hushpore.cluster.blocks import Blocks
from hushpore.cluster.gpus import on_gpu_or_cpu
from hushpore.cluster.parts import paint_parts, parts_of, stitch_parts, store_parts
from hushpore.pores.gpu.void import mark_outside as mark_outside_on_gpu
from hushpore.pores.void.outside import outside_of_slices
from hushpore.pores.void.parts import AIR, OPEN, SOLID, find_runs, touching
from hushpore.pores.watershed.distance import squared_distance
from hushpore.pores.work import apply_mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from hushpore.cluster.blocks import Report
    from hushpore.pores.gpu.engine import Gpu
    from hushpore.pores.void.outside import Ball

_NO_WALLS = (False, False, False)


def mark_slices(blocks: Blocks, slab: int, source: str, target: str) -> Report:
    """Mark the air outside the sample in every slice of a slab."""
    first, last = blocks.plan.slabs[slab]
    spacing, radius = blocks.work.spacing, blocks.plan.settings.outside_radius

    def find(gpu: Gpu | None) -> Report:
        phase = blocks.read(source, first, last)
        if gpu is None:
            void = phase != SOLID
            outside = outside_of_slices(void, spacing, radius, blocks.threads)
            phase[outside & (phase == OPEN)] = AIR
        else:
            on_gpu = gpu.put(phase)
            mark_outside_on_gpu(gpu, blocks.work, on_gpu)
            gpu.get(on_gpu, phase)
        blocks.write(target, slab, phase)
        return {"air": np.count_nonzero(phase == AIR, axis=(1, 2)).astype(np.int64)}

    # balls take room around the slices
    voxels = math.prod(blocks.work.ball((last - first, *blocks.plan.shape[1:])).shape)
    return on_gpu_or_cpu(blocks.plan.device if voxels < 2**31 else "", find)


def mark_masked(blocks: Blocks, slab: int, source: str, target: str) -> Report:
    """Take the void of a slab outside the mask of the sample as air."""
    first, last = blocks.plan.slabs[slab]
    phase = blocks.read(source, first, last)
    outside = apply_mask(blocks.work, phase, first, last)
    blocks.write(target, slab, phase)
    return {"air": np.count_nonzero(outside, axis=(1, 2)).astype(np.int64)}


@contextmanager
def room_of(blocks: Blocks) -> Iterator[tuple[Blocks, Ball]]:
    """Open the blocks of the room in which the ball moves, in slabs as thick; yields the ball too.

    What they move is added to what `blocks` have moved.
    """
    ball = blocks.work.ball(blocks.plan.shape)
    depth, height, width = ball.shape
    with Blocks(dataclasses.replace(blocks.plan, shape=(depth, height, width))) as room:
        yield room, ball
        blocks.moved += room.moved


def fit_balls(blocks: Blocks, slab: int, source: str) -> Report:
    """Find where in a slab of the room the ball fits, and which parts of it reach what is outside.

    Writes the stack ``balls``.
    """
    with room_of(blocks) as (room, ball):
        first, last = room.plan.slabs[slab]
        before, *inner = ball.inner[0].start, *ball.inner[1:]
        # with as many slices on both sides as the ball reaches
        free = np.ones((last - first + 2 * before, *ball.shape[1:]), np.bool_)
        phase = blocks.read(source, first - 2 * before, last)
        place = max(2 * before - first, 0)
        free[place:][: len(phase)][:, *inner] = phase != SOLID
        distance = squared_distance(free, ball.spacing, _NO_WALLS, blocks.threads, ball.limit)
        fits = (distance[before:][: last - first] > ball.limit).view(np.uint8)
        del free, distance
        room.write("balls", slab, fits)
        runs = find_runs(fits, blocks.threads)
        marked = touching(runs, ((False, False), (False, True)))
        return store_parts(room, slab, parts_of(runs, marked))


def stitch_balls(blocks: Blocks, slab: int) -> Report:
    """Find which parts of where the ball fits are connected over the face after a slab."""
    with room_of(blocks) as (room, _):
        return stitch_parts(room, slab)


def reach_balls(blocks: Blocks, slab: int, shared_outside: npt.NDArray[np.bool_]) -> Report:
    """Write the stack ``reached``: where in a slab of the room the ball gets to from outside."""
    with room_of(blocks) as (room, _):
        fits = room.read("balls", *room.plan.slabs[slab])
        paint_parts(room, slab, fits, shared_outside, (OPEN, SOLID), None)
        room.write("reached", slab, fits)
    return {}


def mark_covered(blocks: Blocks, slab: int, source: str, target: str) -> Report:
    """Mark as air what of a slab the ball covers where it gets to."""
    first, last = blocks.plan.slabs[slab]
    with room_of(blocks) as (room, ball):
        before, *inner = ball.inner[0].start, *ball.inner[1:]
        # with as many slices on both sides as the ball reaches
        unreached = room.read("reached", first, last + 2 * before) != OPEN
    distance = squared_distance(unreached, ball.spacing, _NO_WALLS, blocks.threads, ball.limit)
    near = distance[before:][: last - first][:, *inner] <= ball.limit
    phase = blocks.read(source, first, last)
    phase[near & (phase != SOLID)] = AIR
    blocks.write(target, slab, phase)
    return {"air": np.count_nonzero(phase == AIR, axis=(1, 2)).astype(np.int64)}
