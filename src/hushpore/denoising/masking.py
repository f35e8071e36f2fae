"""Blind spots: masked pixels of a patch, which the network must predict from the others.

The masked pixels are stratified: the patch is cut into a fixed grid of cells and one pixel is drawn
in each, so their number never varies and no boolean mask is needed. A masked pixel is replaced by
the median or mean of its neighbours (N2V2, https://doi.org/10.1007/978-3-031-25069-9_33), or by one
of its neighbours (N2V, https://doi.org/10.1109/CVPR.2019.00223).

If the noise is correlated along a line, the network could predict it from the rest of that line.
Then the pixels next to a masked one along the line are masked too (structN2V,
https://doi.org/10.1109/ISBI45749.2020.9098336), and the line is excluded from the median.
"""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hushpore.device.transfers import constant, grid
from hushpore.patches.places import flat_index

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Edge of the neighbourhood from which replacement values are taken, in pixels.
WINDOW = 5


def draw_positions(
    size: Sequence[int],
    share: float,
    count: int,
    generator: torch.Generator | None = None,
    device: str | torch.device = "cpu",
) -> torch.Tensor:
    """Draw the pixels to mask: one in each cell of a grid, separately for every patch.

    `size`: spatial shape of a patch. `share`: wanted share of masked pixels; the grid matches it as
    closely as whole cells allow. `generator`, `device`: as for
    `hushpore.patches.sampling.draw_corners`.
    Returns: int64, shape (count, n_cells, len(size)).
    """
    edges = constant(tuple(size), device)
    cells = tuple(max(1, round(edge * share ** (1 / len(size)))) for edge in size)
    cell = grid(cells, device)
    draw = torch.rand((count, *cell.shape), generator=generator, device=device)
    cell_edge = edges / constant(cells, device)
    # rounding can carry a draw just below 1 into the next cell, or out of the patch
    return ((cell + draw) * cell_edge).long().minimum(edges - 1)


@dataclass(frozen=True)
class Line:
    """The line through a masked pixel along which the noise is correlated."""

    axis: int  # direction: an axis of the patch
    reach: int  # number of pixels masked on either side


@dataclass(frozen=True)
class Replacement:
    """Replacement of masked pixels."""

    # ``"median"`` or ``"mean"`` of the neighbourhood, or ``"uniform"``: any of its pixels
    kind: str = "median"
    window: int = WINDOW  # edge of the neighbourhood, odd
    # direction of correlated noise: the whole line through the pixel is excluded
    line: Line | None = None


def replacement_values(
    patches: torch.Tensor,
    positions: torch.Tensor,
    replacement: Replacement,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Return the replacement values of the pixels at `positions`.

    The window is cropped at the border of the patch: clamped or mirrored coordinates would let a
    pixel near the border see itself. With an even number of neighbours the median is the mean of
    the two middle ones.

    `patches`: floating point, shape (count, *size). `positions`: int64, shape (count, n_positions,
    len(size)). `generator`: source of random numbers for the kind ``"uniform"``.
    Returns: shape (count, n_positions), dtype of the patches.
    """
    reach = replacement.window // 2
    # values outside the patch sort to the end and are not counted
    padded = torch.nn.functional.pad(patches, [reach] * 2 * (patches.ndim - 1), value=math.inf)
    size = tuple(padded.shape[1:])
    around = constant(_around(replacement, size), patches.device)
    index = flat_index(positions + reach, size)[..., None] + around
    values = padded.flatten(1).gather(1, index.flatten(1)).view_as(index)
    inside = values < math.inf
    n_inside = inside.sum(-1, keepdim=True)
    if replacement.kind == "mean":
        return torch.where(inside, values, 0).sum(-1) / n_inside[..., 0]
    ordered = values.sort(-1).values
    if replacement.kind == "uniform":
        draw = torch.rand(n_inside.shape, generator=generator, device=patches.device)
        # a float32 just below 1, times the number of neighbours, can round up to it
        place = (draw * n_inside).long().minimum(n_inside - 1)
        return ordered.gather(-1, place).squeeze(-1)
    low = ordered.gather(-1, (n_inside - 1) // 2)
    high = ordered.gather(-1, n_inside // 2)
    return ((low + high) / 2).squeeze(-1)


def mask_pixels(
    patches: torch.Tensor,
    positions: torch.Tensor,
    replacement: Replacement | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Return the patches with the pixels at `positions` replaced.

    With a line, the pixels next to them along the line are replaced as well. Parameters as for
    `replacement_values`; the default replacement is the median of the neighbours.
    """
    replacement = replacement or Replacement()
    if replacement.line is not None:
        positions = _along(positions, replacement.line, patches.shape[1:])
    flat = flat_index(positions, patches.shape[1:])
    new = replacement_values(patches, positions, replacement, generator)
    return patches.flatten(1).scatter(1, flat, new).view_as(patches)


def values_at(patches: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the values at `positions`, shape (count, n_positions)."""
    index = flat_index(positions, patches.shape[1:])
    return patches.flatten(1).gather(1, index.flatten(1)).view_as(index)


def _around(replacement: Replacement, size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the flat index offsets of the candidate pixels."""
    n_axes = len(size)
    reach = range(-(replacement.window // 2), replacement.window // 2 + 1)
    off_axis = [
        axis for axis in range(n_axes) if replacement.line is None or axis != replacement.line.axis
    ]
    strides = [math.prod(size[axis + 1 :]) for axis in range(n_axes)]
    return tuple(
        sum(map(operator.mul, offset, strides))
        for offset in itertools.product(reach, repeat=n_axes)
        if any(offset[axis] for axis in off_axis)
    )


def _along(positions: torch.Tensor, line: Line, size: Sequence[int]) -> torch.Tensor:
    """Return the positions and their neighbours along a line, clipped to the patch."""
    shifts = tuple(
        tuple(shift if axis == line.axis else 0 for axis in range(len(size)))
        for shift in range(-line.reach, line.reach + 1)
    )
    edges = constant(tuple(size), positions.device)
    spread = positions[:, :, None] + constant(shifts, positions.device)
    # positions outside are clipped to the border pixel, which is masked twice with the same value
    return spread.clamp_min(0).minimum(edges - 1).flatten(1, 2)
