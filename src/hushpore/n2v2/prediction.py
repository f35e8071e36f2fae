"""Prediction in tiles that leave no seams.

Every tile is read with a margin as wide as the network sees and only its core is kept; at the
border of the image a tile ends where the image ends. So each output pixel is computed from the
same input as in one piece.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hushpore.n2v2.model import MULTIPLE, RECEPTIVE_RADIUS
from hushpore.n2v2.training import mixed_precision, with_channel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Cores of tiles: (images, y, x) in 2D and (images, z, y, x) in 3D.
CORES = {2: (4, 512, 512), 3: (1, 32, 128, 128)}

#: Axes along which a tile is mirrored for its symmetries.
_MIRRORS: tuple[tuple[int, ...], ...] = ((), (-1,), (-2,), (-2, -1))


@dataclass(frozen=True)
class Tile:
    """One piece of a prediction.

    Attributes
    ----------
    source : tuple of slice
        What is read from the padded image, margin included.
    kept : tuple of slice
        The part of the tile's output that is kept.
    target : tuple of slice
        Where that part goes in the result.
    """

    source: tuple[slice, ...]
    kept: tuple[slice, ...]
    target: tuple[slice, ...]


def plan_tiles(
    shape: Sequence[int], core: Sequence[int], margin: int = RECEPTIVE_RADIUS
) -> list[Tile]:
    """Cut images into tiles.

    Parameters
    ----------
    shape : sequence of int
        Shape of the images, (n, y, x) or (n, z, y, x).
    core : sequence of int
        Largest core of a tile; a multiple of 4 along the spatial axes.
    margin : int, optional
        Read around the core along the spatial axes; a multiple of 4.

    Returns
    -------
    list of Tile
        Their targets cover `shape` exactly once.
    """
    axes = [
        _cut(length, edge, margin if axis else 0, MULTIPLE if axis else 1)
        for axis, (length, edge) in enumerate(zip(shape, core, strict=True))
    ]
    return [
        Tile(*(tuple(part) for part in zip(*pieces, strict=True)))
        for pieces in itertools.product(*axes)
    ]


def halve_core(core: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return a smaller core, fewer images first, or None where it is as small as it gets."""
    if core[0] > 1:
        return (core[0] // 2, *core[1:])
    largest = max(core)
    if largest < 2 * MULTIPLE:
        return None
    axis = core.index(largest)
    half = -(-largest // (2 * MULTIPLE)) * MULTIPLE
    return (*core[:axis], half, *core[axis + 1 :])


def pad(images: torch.Tensor) -> torch.Tensor:
    """Mirror the far end of every spatial axis up to a multiple of `MULTIPLE`."""
    for axis in range(1, images.ndim):
        length = images.shape[axis]
        missing = -length % MULTIPLE
        if missing:
            # an axis of one voxel has nothing to mirror, and repeats it
            back = [max(length - 2 - k, 0) for k in range(missing)]
            index = torch.tensor([*range(length), *back], device=images.device)
            images = images.index_select(axis, index)
    return images


@torch.inference_mode()
def predict_tile(
    network: Callable[[torch.Tensor], torch.Tensor],
    padded: torch.Tensor,
    tile: Tile,
    dtype: torch.dtype = torch.float32,
    symmetries: bool = False,
) -> torch.Tensor:
    """Return the network's output for the core of one tile.

    Parameters
    ----------
    network : callable
        (batch, 1, *size) to (batch, 1, *size), in evaluation mode.
    padded : torch.Tensor
        Images as `pad` returns them.
    tile : Tile
        One of `plan_tiles` for the images before padding.
    dtype : torch.dtype, optional
        float32, or bfloat16 for mixed precision.
    symmetries : bool, optional
        Average over the tile mirrored and turned in y and x, 8 times in all.
    """
    images = padded[tile.source]
    total = torch.zeros(images.shape, device=images.device)
    turns = list(itertools.product(_MIRRORS, (False, True))) if symmetries else [((), False)]
    for mirrored, exchanged in turns:
        turned = images.flip(mirrored)
        turned = turned.transpose(-1, -2) if exchanged else turned
        with mixed_precision(padded.device.type, dtype):
            output = network(with_channel(turned))[:, 0].float()
        output = output.transpose(-1, -2) if exchanged else output
        total += output.flip(mirrored)
    return (total / len(turns))[tile.kept]


def predict(
    network: Callable[[torch.Tensor], torch.Tensor],
    images: torch.Tensor,
    core: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return the network's output for whole images, computed tile by tile.

    Parameters
    ----------
    network, dtype
        As for `predict_tile`.
    images : torch.Tensor
        Floating point, shape (n, y, x) or (n, z, y, x), any lengths.
    core : sequence of int, optional
        As for `plan_tiles`.

    Returns
    -------
    torch.Tensor
        float32, the shape of `images`.
    """
    padded = pad(images)
    result = torch.empty(images.shape, device=images.device)
    for tile in plan_tiles(images.shape, core or CORES[images.ndim - 1]):
        result[tile.target] = predict_tile(network, padded, tile, dtype)
    return result


def _cut(length: int, edge: int, margin: int, multiple: int) -> list[tuple[slice, slice, slice]]:
    """Cut one axis into (source, kept, target)."""
    padded = -(-length // multiple) * multiple
    pieces = []
    for start in range(0, length, edge):
        stop = min(start + edge, length)
        first = max(start - margin, 0)
        last = min(-(-stop // multiple) * multiple + margin, padded)
        pieces.append((slice(first, last), slice(start - first, stop - first), slice(start, stop)))
    return pieces
