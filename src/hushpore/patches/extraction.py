"""Reading patches out of an image: windows only, one gather for the whole batch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from hushpore.device.constants import constant

if TYPE_CHECKING:
    from collections.abc import Sequence


def read_windows(
    image: torch.Tensor,
    corners: torch.Tensor,
    size: Sequence[int],
    orientations: torch.Tensor | None = None,
) -> torch.Tensor:
    """Read windows of one size from an image, each in its own orientation.

    A mirrored axis is read with a negative step and exchanged axes with exchanged steps, so an
    orientation costs nothing.

    Parameters
    ----------
    image : torch.Tensor
        Contiguous, shape (n, y, x) or (n, z, y, x).
    corners : torch.Tensor
        int64, shape (count, image.ndim): first voxel of each window.
    size : sequence of int
        Spatial shape of a window, (y, x) or (z, y, x).
    orientations : torch.Tensor, optional
        As `draw_orientations` gives them; windows must then be square in y and x.

    Returns
    -------
    torch.Tensor
        Shape (count, *size), dtype of the image.
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
        offsets = torch.arange(edge, device=device).view(along)
        index = index + offsets * steps[:, axis].view(-1, *[1] * len(size))
    return image.reshape(-1)[index]
