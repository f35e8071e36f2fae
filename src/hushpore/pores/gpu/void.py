"""The void on a GPU: its connected components, and the air around the sample.

Parts are joined by pointers to voxels that come before, so that each ends in its first voxel,
whatever the order of threads. All is as on the host, bit for bit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.rescaled import held
from hushpore.pores.gpu.grey import kind_of
from hushpore.pores.void.components import AIR, SOLID

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.pores.gpu.engine import Gpu
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.work import Work

#: Bytes a voxel that are in use at once while the air outside is looked for, in a larger volume.
BYTES_OUTSIDE = 12


def why_on_host(volume: Volume, settings: PoreSettings, padding: float | None = None) -> str:
    """Say why the void of a volume is found on the host, and not on a GPU; empty where it need not.

    `padding`: grey value of what is filled in, where there is such.

    A mask of the sample would have to cross as well, and a local threshold takes sums in windows,
    which are worked on as slices come.
    """
    if settings.sample_mask:
        return "the host applies the sample mask"
    if padding is not None:
        return "the host finds the masked-out region around the scan"
    if settings.is_local and volume.dtype != np.bool_:
        return f"the host finds the local threshold {settings.threshold}"
    if settings.keeps_void:
        return "the host measures it once more"
    if kind_of(volume) is None:
        return f"values of {np.dtype(held(volume.data).dtype).name} are larger than their void"
    return ""


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
        """Write a phase label for marked parts, and one for others.

        Returns: (3,), uint64: how many parts there are, voxels of marked ones, and of others.
        """
        given = (self.parts, self.is_marked, phase), (np.int32(marked), np.int32(unmarked))
        return self._gpu.totals(self._gpu.void, "classify_parts", self._count, 3, *given)


def mark_outside(gpu: Gpu, work: Work, phase: Any) -> None:
    """Mark as `AIR` what `hushpore.pores.void.components.mark_outside` does, in place.

    `phase`: (z, y, x), uint8: of the whole volume, or of some slices where each is one for itself.
    """
    ball = work.ball(phase.shape)
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


def bytes_outside(work: Work) -> int:
    """Return how much memory `classify_void` takes at most, beside grey values and void."""
    if not work.has_air:
        return 0
    return BYTES_OUTSIDE * math.prod(work.ball(work.shape).shape)
