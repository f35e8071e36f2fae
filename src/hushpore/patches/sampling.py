"""Patches drawn by chance, all coordinates of a batch from one draw, and read in one gather."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from hushpore.device.constants import constant, grid

if TYPE_CHECKING:
    from collections.abc import Sequence


def draw_corners(
    shape: Sequence[int],
    size: Sequence[int],
    count: int,
    generator: torch.Generator | None = None,
    device: str | torch.device = "cpu",
) -> torch.Tensor:
    """Draw the first voxel of patches, uniformly over all places where a patch fits.

    `shape`: of the image. `size`: of a patch, one length for each axis of the image. `count`: how
    many patches to draw. `generator`: source of the random numbers, on `device`, where to draw.
    Returns: int64, shape (count, len(shape)).
    """
    room = tuple(length - edge + 1 for length, edge in zip(shape, size, strict=True))
    places = constant(room, device)
    draw = torch.rand((count, len(room)), generator=generator, device=device)
    # a float32 just below 1, times the number of places, can round up to that number
    return (draw * places).long().minimum(places - 1)


def draw_stratified(
    shape: Sequence[int],
    size: Sequence[int],
    count: int,
    generator: torch.Generator | None = None,
    device: str | torch.device = "cpu",
) -> torch.Tensor:
    """Draw the first voxel of patches, spread evenly: one in each cell of a grid.

    The places where a patch fits are cut into at least `count` cells of one size, as near to
    cubes as whole numbers allow. As many cells as are needed are drawn without replacement, and
    one place in each; every place is as likely as any other. Where more patches are wanted than
    there are places, each place comes up equally often, give or take one.

    `shape`, `size`, `count`, `generator`, `device`: as for `draw_corners`.
    Returns: int64, shape (count, len(shape)), in random order.
    """
    room = tuple(length - edge + 1 for length, edge in zip(shape, size, strict=True))
    cells = _cells(room, count)
    n_cells = math.prod(cells)
    order = torch.randperm(n_cells, generator=generator, device=device)
    which = order.repeat(-(-count // n_cells))[:count]
    cell = torch.stack(torch.unravel_index(which, cells), 1)
    draw = torch.rand((count, len(room)), generator=generator, device=device)
    places = constant(room, device)
    corners = ((cell + draw) * (places / constant(cells, device))).long()
    # rounding can carry a draw just below 1 out of the last cell
    return corners.minimum(places - 1)


def draw_orientations(
    count: int,
    n_spatial: int,
    generator: torch.Generator | None = None,
    device: str | torch.device = "cpu",
    *,
    exchange: bool = True,
) -> torch.Tensor:
    """Draw mirrorings and y-x transpositions: 8 orientations in 2D, 16 in 3D.

    `n_spatial`: their number of axes, 2 or 3. `generator`, `device`: as for `draw_corners`.
    `exchange`: whether y and x are the same to the image; otherwise they are never exchanged.
    Returns: bool, shape (count, n_spatial + 1): mirrored along each axis, then y and x exchanged. z
    is never exchanged with y or x, because its voxels may be longer.
    """
    draw = torch.rand((count, n_spatial + 1), generator=generator, device=device)
    turned = draw < 0.5
    turned[:, -1] &= exchange
    return turned


def read_windows(
    image: torch.Tensor,
    corners: torch.Tensor,
    size: Sequence[int],
    orientations: torch.Tensor | None = None,
) -> torch.Tensor:
    """Read windows of one size from an image, each in its own orientation.

    A mirrored axis is read with a negative step and exchanged axes with exchanged steps, so an
    orientation costs nothing.

    `image`: contiguous, shape (n, y, x) or (n, z, y, x). `corners`: int64, shape (count,
    image.ndim): first voxel of each window. `size`: spatial shape of a window, (y, x) or (z, y, x).
    `orientations`: as `draw_orientations` gives them; windows must then be square in y and x.
    Returns: shape (count, *size), dtype of the image.
    """
    device = image.device
    shape = image.shape
    strides = constant(tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape))), device)
    start = (corners * strides).sum(1)
    steps = strides[1:].expand(len(corners), -1)
    if orientations is not None:
        mirrored, exchanged = orientations[:, :-1], orientations[:, -1:]
        last = constant(tuple(edge - 1 for edge in size), device)
        start = start + (mirrored * last * steps).sum(1)
        steps = torch.where(mirrored, -steps, steps)
        swapped = torch.cat([steps[:, :-2], steps[:, -1:], steps[:, -2:-1]], 1)
        steps = torch.where(exchanged, swapped, steps)
    index = start.view(-1, *[1] * len(size))
    for axis, edge in enumerate(size):
        along = [1] * (len(size) + 1)
        along[axis + 1] = edge
        offsets = grid((edge,), device).view(along)
        index = index + offsets * steps[:, axis].view(-1, *[1] * len(size))
    return image.reshape(-1)[index]


def _cells(room: Sequence[int], count: int) -> tuple[int, ...]:
    """Number of cells along each axis: at least `count` in all, where there is room for so many."""
    cells = [1] * len(room)
    wanted = min(count, math.prod(room))
    while math.prod(cells) < wanted:
        splittable = [axis for axis in range(len(room)) if cells[axis] < room[axis]]
        longest = max(splittable, key=lambda axis: room[axis] / cells[axis])
        cells[longest] += 1
    return tuple(cells)
