"""Random patches: all positions of a batch are drawn at once, and read in one operation.

Of groups of neighbouring patches centres are drawn first, then all neighbours in one query.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_count
from hushpore.device.transfers import constant, grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Float64s, Int64s


def draw_corners(
    shape: Sequence[int],
    size: Sequence[int],
    count: int,
    generator: torch.Generator | None = None,
    device: str | torch.device = "cpu",
) -> torch.Tensor:
    """Draw the first voxels of patches, uniformly over all positions where a patch fits.

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
    """Draw the first voxels of patches, spread evenly: one in each cell of a grid.

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
    """Return the number of cells along each axis: at least `count` in total, if they fit."""
    cells = [1] * len(room)
    wanted = min(count, math.prod(room))
    while math.prod(cells) < wanted:
        splittable = [axis for axis in range(len(room)) if cells[axis] < room[axis]]
        longest = max(splittable, key=lambda axis: room[axis] / cells[axis])
        cells[longest] += 1
    return tuple(cells)


# ---- groups of neighbours


def draw_groups(
    points: npt.ArrayLike,
    n_groups: int,
    group_size: int,
    n_neighbours: int,
    rng: np.random.Generator | int | None = None,
) -> Int64s:
    """Draw groups of neighbouring points: each a centre and some of its nearest points.

    The centres are drawn first and only their neighbours are looked up, in one query of a k-d
    tree: O(n log n) for n points, whatever the number of groups that could be made.

    Parameters
    ----------
    points : array_like
        Shape (n_points, n_axes): coordinates, in a unit that is the same along every axis.
    n_groups : int
        How many groups to draw; not the number of points in them, which is
        ``n_groups * group_size``. Centres are drawn without replacement; where more groups than
        points are wanted every point is a centre equally often, give or take one.
    group_size : int
        Points in a group, the centre among them. 1 draws centres alone.
    n_neighbours : int
        The group is drawn from so many points nearest to the centre, itself among them; at least
        `group_size`.
    rng : numpy.random.Generator or int, optional
        Source of the random numbers, or its seed.

    Returns
    -------
    numpy.ndarray
        int64, shape (n_groups, group_size): numbers of points, the centre first; no point comes
        twice in a group. Points that lie on one another are different points.

    Raises
    ------
    InputError
        If there are fewer points than `n_neighbours`, or more groups are wanted than there are
        different ones.

    Examples
    --------
    >>> import numpy as np
    >>> line = np.arange(10.0)[:, None]
    >>> draw_groups(line, n_groups=2, group_size=3, n_neighbours=3, rng=0)
    array([[7, 8, 6],
           [6, 7, 5]])
    """
    where = np.asarray(points, np.float64)
    if where.ndim != 2 or not np.isfinite(where).all():
        raise InputError(
            f"points must be finite coordinates of shape (n_points, n_axes); got {where.shape}."
        )
    _require_enough(len(where), n_groups, group_size, n_neighbours)
    random = np.random.default_rng(rng)
    centres = _spread(len(where), n_groups, random)
    if group_size == 1:
        return centres[:, None]
    near = _nearest_others(where, centres, n_neighbours)
    # the smallest of random keys are a choice without replacement, for all groups at once
    keys = random.random(near.shape)
    chosen = np.sort(keys.argpartition(group_size - 2, axis=1)[:, : group_size - 1], axis=1)
    return np.hstack([centres[:, None], np.take_along_axis(near, chosen, axis=1)])


def _require_enough(n_points: int, n_groups: int, group_size: int, n_neighbours: int) -> None:
    if n_groups < 1 or group_size < 1:
        raise InputError(
            f"n_groups and group_size must be at least 1; got n_groups={n_groups}, "
            f"group_size={group_size}."
        )
    if n_neighbours < group_size:
        raise InputError(
            f"n_neighbours must be at least group_size ({group_size}); got {n_neighbours}."
        )
    needed = n_neighbours if group_size > 1 else 1
    if n_points < needed:
        raise InputError(
            f"Groups need at least {readable_count(needed, 'point')} (n_neighbours); got "
            f"{n_points}. Add points, or choose a smaller n_neighbours."
        )
    different = n_points * math.comb(n_neighbours - 1, group_size - 1)
    if n_groups > different:
        raise InputError(
            f"{n_points} points have only {different} different groups of {group_size} among the "
            f"{n_neighbours} nearest; got n_groups={n_groups}. Choose fewer groups, or a larger "
            "n_neighbours."
        )


def _spread(n_points: int, n_groups: int, random: np.random.Generator) -> Int64s:
    """Draw centres such that all points occur equally often, to within one."""
    often, more = divmod(n_groups, n_points)
    some = random.choice(n_points, more, replace=False)
    return np.concatenate([np.tile(np.arange(n_points), often), some]).astype(np.int64)


def _nearest_others(points: Float64s, centres: Int64s, n_neighbours: int) -> Int64s:
    """Return the points nearest to each centre without itself, (n_groups, n_neighbours - 1)."""
    from scipy.spatial import cKDTree

    _, near = cKDTree(points).query(points[centres], n_neighbours)
    near = near.astype(np.int64).reshape(len(centres), n_neighbours)
    itself = near == centres[:, None]
    # where many points lie on the centre it may not be among its own nearest: then drop the last
    itself[~itself.any(axis=1), -1] = True
    others: Int64s = near[~itself].reshape(len(centres), n_neighbours - 1)
    return others
