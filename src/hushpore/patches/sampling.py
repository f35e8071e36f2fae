"""Where patches lie: all coordinates of a batch from one draw, on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hushpore.device.constants import constant

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

    Parameters
    ----------
    shape : sequence of int
        Shape of the image.
    size : sequence of int
        Shape of a patch, one length for each axis of the image.
    count : int
        How many patches to draw.
    generator : torch.Generator, optional
        Source of the random numbers, on `device`.
    device : str or torch.device, optional
        Where to draw.

    Returns
    -------
    torch.Tensor
        int64, shape (count, len(shape)).
    """
    room = tuple(length - edge + 1 for length, edge in zip(shape, size, strict=True))
    places = constant(room, device)
    draw = torch.rand((count, len(room)), generator=generator, device=device)
    # a float32 just below 1, times the number of places, can round up to that number
    return (draw * places).long().minimum(places - 1)


def draw_orientations(
    count: int,
    n_spatial: int,
    generator: torch.Generator | None = None,
    device: str | torch.device = "cpu",
    *,
    exchange: bool = True,
) -> torch.Tensor:
    """Draw mirrorings and y-x transpositions: 8 orientations in 2D, 16 in 3D.

    Parameters
    ----------
    count : int
        Number of patches.
    n_spatial : int
        Their number of axes, 2 or 3.
    generator, device
        As for `draw_corners`.
    exchange : bool, optional
        Whether y and x are the same to the image; otherwise they are never exchanged.

    Returns
    -------
    torch.Tensor
        bool, shape (count, n_spatial + 1): mirrored along each axis, then y and x exchanged.
        z is never exchanged with y or x, because its voxels may be longer.
    """
    draw = torch.rand((count, n_spatial + 1), generator=generator, device=device)
    turned = draw < 0.5
    turned[:, -1] &= exchange
    return turned
