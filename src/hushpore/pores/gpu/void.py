"""The void on a GPU: hysteresis, the air outside, open parts and closed ones.

Parts are joined by pointers to voxels that come before, so that each ends in its first voxel,
whatever the order of threads. All is as on the host, bit for bit (`hushpore.pores.passes`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.scaled import held
from hushpore.pores.geometry.contacts import N_DIRECTIONS
from hushpore.pores.gpu.grey import kind_of
from hushpore.pores.passes import is_slicewise, require_solid
from hushpore.pores.void.outside import Ball, ball_around
from hushpore.pores.void.parts import AIR, CLOSED, OPEN, SOLID

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.pores.gpu.engine import Gpu
    from hushpore.pores.gpu.grey import GpuGrey
    from hushpore.pores.passes import Work
    from hushpore.pores.settings import PoreSettings

#: Bytes a voxel that are in use at once while the air outside is looked for, in a larger volume.
BYTES_OUTSIDE = 12


def why_on_host(volume: Volume, settings: PoreSettings, padding: float | None = None) -> str:
    """Say why the void of a volume is found on the host, and not on a GPU; empty where it need not.

    `padding`: grey value of what is filled in, where there is such.

    A mask of the sample would have to cross as well, and a local threshold takes sums in windows,
    which are worked on as slices come.
    """
    if settings.sample_mask:
        return "the host tells by the mask what is outside the sample"
    if padding is not None:
        return "the host tells what is filled in around the scan"
    if settings.is_local and volume.dtype != np.bool_:
        return f"the host finds the local threshold {settings.threshold}"
    if settings.keeps_void:
        return "the host measures it once more"
    if kind_of(volume) is None:
        return f"values of {np.dtype(held(volume.data).dtype).name} are larger than their void"
    return ""


class GpuVoid(NamedTuple):
    """Arrays on the GPU: the void, and what is known of it."""

    phase: Any  # (z, y, x), uint8
    totals: Any  # 3, uint64: parts, voxels of open ones, voxels of closed ones
    border_crossings: Any  # 13, uint64: crossings between void and the air outside, by direction
    air: Any  # int64: voxels of air in each slice (row, in 2D)


class GpuParts:
    """The 6-connected parts of a void on a GPU.

    `phase`: (z, y, x), uint8: void is what is `OPEN`.
    `parts`: int32: for each voxel one of its part that comes before, for the first itself; -1 where
    there is none. `is_marked`: uint8: which parts are marked, at their first voxels.
    """

    def __init__(self, gpu: Gpu, phase: Any) -> None:
        self._gpu = gpu
        self._count = int(phase.size)
        self._size = (np.int32(phase.shape[1]), np.int32(phase.shape[2]))
        where = (np.int64(self._count), *self._size)
        self.parts = gpu.xp.empty(self._count, np.int32)
        gpu.void.launch("link_runs", self._count, phase, self.parts, *where)
        gpu.void.launch("union_parts", self._count, self.parts, *where)
        self.is_marked = gpu.xp.zeros(self._count, np.uint8)

    def mark_faces(self, *, along_z: tuple[bool, bool], along_y: bool) -> None:
        """Mark what reaches a face along x, one before or after it along z, and those along y."""
        height, width = map(int, self._size)
        plane = height * width
        depth = self._count // plane
        # first voxel, rows and what lies between them, columns and what lies between them
        faces = [(0, depth, plane, height, width), (width - 1, depth, plane, height, width)]
        if along_y:
            faces += [(0, depth, plane, width, 1), (plane - width, depth, plane, width, 1)]
        firsts = (0, self._count - plane)
        faces += [
            (first, height, width, width, 1)
            for first, counts in zip(firsts, along_z, strict=True)
            if counts
        ]
        for first, rows, row_step, columns, column_step in faces:
            self._gpu.void.launch(
                "mark_face", rows * columns, self.parts, self.is_marked, np.int64(first),
                np.int32(rows), np.int64(row_step), np.int32(columns), np.int32(column_step),
            )  # fmt: skip

    def mark_neighbours(self, phase: Any, which: int) -> None:
        """Mark what shares a face with a voxel of one phase."""
        where = (np.int32(which), np.int64(self._count), *self._size)
        self._gpu.void.launch(
            "mark_neighbours", self._count, self.parts, phase, self.is_marked, *where
        )

    def measure(self, first: int, last: int) -> tuple[Any, Any]:
        """Count voxels, and find the parts in the slices that begin with two voxels.

        Returns: int32, at the first voxel of each part how many it has; int32, shape (2, y, x), the
        first voxels of the parts there, -1 where there is none.
        """
        xp, where = self._gpu.xp, (np.int64(first), np.int64(last), np.int64(self._count))
        voxels = xp.zeros(self._count, np.int32)
        in_slices = xp.empty((2, *map(int, self._size)), np.int32)
        given = (self.parts, voxels, in_slices, *where, *self._size)
        self._gpu.void.launch("measure_parts", self._count, *given)
        return voxels, in_slices

    def classify(self, phase: Any, marked: int, unmarked: int) -> Any:
        """Write a phase label for marked parts, and one for others; returns `GpuVoid.totals`."""
        given = (self.parts, self.is_marked, phase), (np.int32(marked), np.int32(unmarked))
        return self._gpu.totals(self._gpu.void, "classify_parts", self._count, 3, *given)


def find_void(gpu: Gpu, grey: GpuGrey, work: Work, threshold: float | None) -> Any:
    """Do as `hushpore.pores.passes.find_void`; never waits. Returns phase labels on the GPU."""
    bright, strict = work.settings.pores_are == "bright", work.settings.hysteresis
    phase = grey.beyond(threshold, bright=bright)
    if threshold is not None and strict is not None:
        parts = GpuParts(gpu, phase)
        grey.mark_beyond(strict, parts.parts, parts.is_marked, bright=bright)
        parts.classify(phase, OPEN, SOLID)
    return phase


def classify_void(gpu: Gpu, work: Work, phase: Any) -> GpuVoid:
    """Do as `find_air` and `classify_void` of `hushpore.pores.passes`, in place.

    Waits once where air outside is looked for, for whether there is a sample.
    """
    if work.has_air:
        (is_solid,) = gpu.numbers((phase == SOLID).any().astype(np.int32).reshape(1))
        require_solid(work.volume, bool(is_solid))
        mark_outside(gpu, work, phase)
    parts = GpuParts(gpu, phase)
    parts.mark_faces(along_z=(work.faces[0],) * 2, along_y=True)
    if work.has_air:
        parts.mark_neighbours(phase, AIR)
    totals = parts.classify(phase, *phases_kept(work.settings))
    border_crossings = gpu.xp.zeros(N_DIRECTIONS, np.uint64)
    lines = phase[0] if work.volume.n_spatial == 2 else phase.reshape(len(phase), -1)
    air = gpu.xp.zeros(len(lines), np.int64)
    if work.has_air:
        size = tuple(np.int32(length) for length in phase.shape[1:])
        given = (phase,), (np.int32(AIR), *size)
        name = "count_air_crossings"
        border_crossings = gpu.totals(gpu.graph, name, phase.size, N_DIRECTIONS, *given)
        air = (lines == AIR).sum(axis=1, dtype=np.int64)
    return GpuVoid(phase, totals, border_crossings, air)


def phases_kept(settings: PoreSettings) -> tuple[int, int]:
    """Return the phase labels of open void and of closed, of which one may be left out."""
    mode = settings.mode
    return SOLID if mode == "closed" else OPEN, SOLID if mode == "open" else CLOSED


def mark_outside(gpu: Gpu, work: Work, phase: Any) -> None:
    """Mark as `AIR` what `hushpore.pores.void.outside.mark_outside` does, in place.

    `phase`: (z, y, x), uint8: of the whole volume, or of some slices where each is one for itself.
    """
    ball = ball_of(work, phase.shape)
    xp, no_walls, limit = gpu.xp, (False, False, False), np.float32(ball.limit)
    balls = xp.ones(ball.shape, np.uint8)
    balls[ball.inner] = phase != SOLID
    # where the ball fits
    balls[...] = gpu.squared_distance(balls, ball.spacing, no_walls) > limit
    if ball.slicewise:
        # a row of solid between slices, and one below the other they are an image
        balls[:, -1] = 0
    parts = GpuParts(gpu, balls.reshape(1, -1, ball.shape[2]) if ball.slicewise else balls)
    parts.mark_faces(along_z=(False, False), along_y=False)
    parts.classify(balls, 1, 0)
    del parts
    # and where it does not get to
    balls ^= 1
    near = gpu.squared_distance(balls, ball.spacing, no_walls)[ball.inner] <= limit
    gpu.xp.copyto(phase, np.uint8(AIR), where=near & (phase != SOLID))


def ball_of(work: Work, shape: tuple[int, ...]) -> Ball:
    """Return the ball that finds the air outside, and the room that it needs."""
    slicewise = is_slicewise(work.volume, work.settings)
    return ball_around(shape, work.spacing, work.settings.outside_radius, slicewise)


def bytes_outside(work: Work) -> int:
    """Return how much memory `classify_void` takes at most, beside grey values and void."""
    if not work.has_air:
        return 0
    return BYTES_OUTSIDE * math.prod(ball_of(work, work.shape).shape)
