"""Void on a GPU: connected components and the air around the sample.

Components are joined by pointers to earlier voxels, so that each ends in its first voxel, whatever
the order of threads. Results are bit-identical to those of the host.
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

#: Bytes per voxel of the enlarged volume in use at once while the exterior is found.
BYTES_OF_EXTERIOR = 12


def why_on_host(volume: Volume, settings: PoreSettings, padding: float | None = None) -> str:
    """Return why the void of a volume must be found on the host; empty if a GPU can find it.

    `padding`: grey value of padding, if any.

    A sample mask would need another upload, and a local threshold works on windows of slices.
    """
    if settings.sample_mask:
        return "the host applies the sample mask"
    if padding is not None:
        return "the host finds the padding around the scan"
    if settings.is_local and volume.dtype != np.bool_:
        return f"the host finds the local threshold {settings.threshold}"
    if settings.keeps_void:
        return "the host measures it again"
    if kind_of(volume) is None:
        return f"values of {np.dtype(held(volume.data).dtype).name} are larger than their void"
    return ""


class GpuComponents:
    """The 6-connected components of a void on a GPU.

    `void_state`: (z, y, x), uint8: void is `OPEN`.
    `parts`: int32: for each voxel an earlier voxel of its component, for the first voxel itself; -1
    in the solid. `is_marked`: uint8: whether a component is marked, at its first voxel.
    """

    def __init__(self, gpu: Gpu, void_state: Any) -> None:
        self._gpu = gpu
        self._count = int(void_state.size)
        self._size = (np.int32(void_state.shape[1]), np.int32(void_state.shape[2]))
        where = (np.int64(self._count), *self._size)
        self.parts = gpu.xp.empty(self._count, np.int32)
        gpu.void.launch("link_runs", self._count, void_state, self.parts, *where)
        gpu.void.launch("union_parts", self._count, self.parts, *where)
        self.is_marked = gpu.xp.zeros(self._count, np.uint8)

    def mark_faces(self, *, along_z: tuple[bool, bool], along_y: bool) -> None:
        """Mark components that touch the faces along x, and those along y and z if they count."""
        height, width = map(int, self._size)
        plane = height * width
        depth = self._count // plane
        # first voxel, number and stride of rows, number and stride of columns
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

    def mark_neighbours(self, void_state: Any, which: int) -> None:
        """Mark components that share a voxel face with a void state."""
        where = (np.int32(which), np.int64(self._count), *self._size)
        self._gpu.void.launch(
            "mark_neighbours", self._count, self.parts, void_state, self.is_marked, *where
        )

    def measure(self, first: int, last: int) -> tuple[Any, Any]:
        """Count the voxels of each component, and find the components in two slices.

        `first`, `last`: flat indices of the first voxels of the slices.
        Returns: int32, number of voxels at the first voxel of each component; int32, (2, y, x), the
        first voxel of the component of each voxel, -1 in the solid.
        """
        xp, where = self._gpu.xp, (np.int64(first), np.int64(last), np.int64(self._count))
        voxels = xp.zeros(self._count, np.int32)
        in_slices = xp.empty((2, *map(int, self._size)), np.int32)
        given = (self.parts, voxels, in_slices, *where, *self._size)
        self._gpu.void.launch("measure_parts", self._count, *given)
        return voxels, in_slices

    def classify(self, void_state: Any, marked: int, unmarked: int) -> Any:
        """Write one void state for marked components and one for others.

        Returns: (3,), uint64: number of components, voxels of marked ones, and of others.
        """
        given = (self.parts, self.is_marked, void_state), (np.int32(marked), np.int32(unmarked))
        return self._gpu.totals(self._gpu.void, "classify_parts", self._count, 3, *given)


def mark_exterior(gpu: Gpu, work: Work, void_state: Any) -> None:
    """Mark the air around the sample as `AIR`, in place; see `slab_steps.mark_exterior`.

    `void_state`: (z, y, x), uint8: of the whole volume or, slice by slice, of some slices.
    """
    ball = work.ball(void_state.shape)
    xp, no_walls, limit = gpu.xp, (False, False, False), np.float32(ball.limit)
    balls = xp.ones(ball.shape, np.uint8)
    balls[ball.inner] = void_state != SOLID
    # centres at which the ball fits
    balls[...] = gpu.squared_distance(balls, ball.spacing, no_walls) > limit
    if ball.slicewise:
        # with a row of solid between them, all slices form one image
        balls[:, -1] = 0
    parts = GpuComponents(gpu, balls.reshape(1, -1, ball.shape[2]) if ball.slicewise else balls)
    parts.mark_faces(along_z=(False, False), along_y=False)
    parts.classify(balls, 1, 0)
    del parts
    # centres that the ball cannot reach
    balls ^= 1
    near = gpu.squared_distance(balls, ball.spacing, no_walls)[ball.inner] <= limit
    gpu.xp.copyto(void_state, np.uint8(AIR), where=near & (void_state != SOLID))


def bytes_of_exterior(work: Work) -> int:
    """Return the maximum memory of `mark_exterior` in bytes, besides grey values and void."""
    if not work.has_air:
        return 0
    return BYTES_OF_EXTERIOR * math.prod(work.ball(work.shape).shape)
