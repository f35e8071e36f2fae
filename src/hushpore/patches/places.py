"""Positions of patches: on a grid, at points, or drawn by weights from their features.

Random patches: all positions of a batch are drawn at once, and read in one operation.

Of groups of neighbouring patches centres are drawn first, then all neighbours in one query.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_count
from hushpore.device.transfers import constant, grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float64s, Int64s


class Places:
    """Positions of patches with weights; positions are drawn in proportion to the weights.

    `flat`: int64, shape (n_places,): number of each place's first voxel, counted over `shape`.
    `weights`: float64, shape (n_places,), all above zero.
    """

    def __init__(self, flat: torch.Tensor, weights: torch.Tensor, shape: Sequence[int]) -> None:
        self._flat = flat
        self._cumulative = weights.cumsum(0)
        self._shape = tuple(shape)

    @classmethod
    def from_weights(
        cls, weights: torch.Tensor, size: Sequence[int], forbidden: torch.Tensor | None = None
    ) -> Self:
        """Return all positions where a patch fits, weighted by the sum of the weights inside it.

        `weights`: shape of the image; boolean, or numbers of at least zero. `size`: shape of a
        patch, one length for each axis. `forbidden`: boolean, shape of the image: a patch that
        holds one of these voxels is left out.
        Raises InputError if a weight is below zero or not a number, or no place has a weight above
        zero.
        """
        if weights.is_floating_point() and not bool(weights.isfinite().all()):
            raise InputError("Weights must be finite; got NaN or infinity.")
        if weights.dtype != torch.bool and bool((weights < 0).any()):
            raise InputError(f"Weights must not be negative; got {weights.min().item():g}.")
        return cls.from_sums(window_sums(weights, size, forbidden), weights.shape)

    @classmethod
    def from_sums(cls, sums: torch.Tensor, shape: Sequence[int]) -> Self:
        """Return the positions where patches fit, with given weights.

        `sums`: for each place of a patch's first voxel, as `window_sums` gives them, at least zero.
        Raises InputError if no weight is above zero.
        """
        room = sums.shape
        inside = sums.flatten().nonzero()[:, 0]
        if not len(inside):
            raise no_place([n - places + 1 for n, places in zip(shape, room, strict=True)])
        weights = sums.flatten()[inside].double()
        # axis by axis, since all coordinates at once would take several times the memory
        flat, stride = torch.zeros_like(inside), 1
        for length, places in zip(reversed(shape), reversed(room), strict=True):
            flat.add_(inside % places, alpha=stride)
            inside.div_(places, rounding_mode="floor")
            stride *= length
        return cls(flat, weights, shape)

    @classmethod
    def from_corners(
        cls, corners: torch.Tensor, shape: Sequence[int], weights: torch.Tensor | None = None
    ) -> Self:
        """Return given positions, by default with equal weights.

        `corners`: int64, shape (n_places, len(shape)): first voxel of each. `weights`: float64,
        shape (n_places,), all above zero.
        """
        if weights is None:
            weights = torch.ones(len(corners), dtype=torch.float64, device=corners.device)
        return cls(flat_index(corners, shape), weights, shape)

    def __len__(self) -> int:
        return len(self._flat)

    def to(self, device: str | torch.device) -> Self:
        """Return the same positions on another device."""
        moved = type(self).__new__(type(self))
        moved._flat, moved._cumulative = self._flat.to(device), self._cumulative.to(device)
        moved._shape = self._shape
        return moved

    def draw(self, count: int, generator: torch.Generator | None = None) -> torch.Tensor:
        """Draw positions with replacement, without reading any value on the host.

        Returns: int64, shape (count, n_axes): first voxel of each patch.
        """
        device = self._flat.device
        draw = torch.rand(count, generator=generator, dtype=torch.float64, device=device)
        number = torch.searchsorted(self._cumulative, draw * self._cumulative[-1], right=True)
        # a draw just below 1 can be rounded up to the whole reach
        flat = self._flat[number.clamp_max(len(self._flat) - 1)]
        # PyTorch's own way sends the shape to the device anew each time, which waits
        strides = [math.prod(self._shape[axis + 1 :]) for axis in range(len(self._shape))]
        along = [
            flat.div(stride, rounding_mode="floor") % length
            for stride, length in zip(strides, self._shape, strict=True)
        ]
        return torch.stack(along, 1)


def window_sums(
    values: torch.Tensor, size: Sequence[int], forbidden: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the sum of the values in each window of a size, by cumulative sums along each axis.

    `values`: any shape; boolean, integer or floating point. `forbidden`: boolean, of the same
    shape: the sum is zero in windows that hold one of these.
    Returns: shape ``values.shape - size + 1``: for each place of a window's first voxel. int64 and
    exact for whole numbers, float64 and at least zero else.
    """
    sums = values.double() if values.is_floating_point() else values.long()
    for axis, edge in enumerate(size):
        if edge == 1:
            continue
        reach = sums.cumsum(axis)
        length = reach.shape[axis]
        sums = reach.narrow(axis, edge - 1, length - edge + 1).clone()
        sums.narrow(axis, 1, length - edge).sub_(reach.narrow(axis, 0, length - edge))
    # a difference of sums can fall below zero by its rounding
    sums = sums.clamp_min(0) if sums.is_floating_point() else sums
    return sums if forbidden is None else sums.mul_(window_sums(forbidden, size) == 0)


def grid_corners(
    shape: Sequence[int],
    size: Sequence[int],
    overlap: Sequence[int] | int = 0,
    device: str | torch.device = "cpu",
) -> torch.Tensor:
    """Return the first voxels of overlapping patches that cover an image.

    `shape`, `size`: of the image and of a patch. `overlap`: how many voxels neighbours share along
    each axis; less than a patch. The last patch of each axis ends where the image ends, and
    overlaps more where the lengths ask for it.
    Returns: int64, shape (n_patches, len(shape)), in the order of the axes.
    Raises InputError if a patch does not fit, or the overlap is not less than a patch.
    """
    shared = [overlap] * len(shape) if isinstance(overlap, int) else list(overlap)
    axes = []
    for length, edge, wanted in zip(shape, size, shared, strict=True):
        if edge > length:
            raise InputError(
                f"A patch of {tuple(size)} does not fit into an image of {tuple(shape)}."
            )
        # an axis of single voxels has nothing to share
        common = 0 if edge == 1 else wanted
        if not 0 <= common < edge:
            raise InputError(
                f"overlap must be from 0 to {edge - 1} voxels for a patch edge of {edge}; got "
                f"{common}."
            )
        last = length - edge
        axes.append([*range(0, last, edge - common), last])
    corners = list(itertools.product(*axes))
    return torch.tensor(corners, dtype=torch.int64, device=device)


def corners_at(
    points: torch.Tensor, shape: Sequence[int], size: Sequence[int]
) -> tuple[torch.Tensor, int]:
    """Return the first voxels of patches centred on points, shifted to lie inside the image.

    `points`: shape (n_points, len(shape)): voxel coordinates, whole numbers at centres of voxels.
    `shape`, `size`: of the image and of a patch.
    Returns: int64, shape (n_points, len(shape)); how many had to be moved to fit.
    Raises InputError if a patch does not fit into the image, or a coordinate is not a number.
    """
    if any(edge > length for length, edge in zip(shape, size, strict=True)):
        raise InputError(f"A patch of {tuple(size)} does not fit into an image of {tuple(shape)}.")
    if not bool(points.isfinite().all()):
        raise InputError("Coordinates of points must be finite; got NaN or infinity.")
    edges = torch.tensor(tuple(size), device=points.device)
    last = torch.tensor(tuple(shape), device=points.device) - edges
    wanted = (points.double() - edges / 2).ceil()
    # far outside, a coordinate need not fit into an integer
    fitting = wanted.clamp_min(0).minimum(last.double()).long()
    return fitting, int((fitting != wanted).any(1).sum())


def patches_at(points: Array, shape: tuple[int, ...], size: tuple[int, ...]) -> tuple[Int64s, int]:
    """Return patches around points by their planes; see `corners_at`.

    `points`: on the last axes at least; those that do not say which time or channel lie in the
    first. `shape`: of the volume. `size`: of a patch, along the last axes.
    Returns: int64, shape (n_points, 1 + len(size)): plane, counted over all leading axes, and first
    voxel in it; how many had to be moved to fit.
    """
    n_leading = len(shape) - len(size)
    missing = np.zeros((len(points), len(shape) - points.shape[1]))
    where = torch.from_numpy(np.hstack([missing, points]))
    corners, moved = corners_at(where, shape, (1,) * n_leading + size)
    # an image has no leading axes: its number is 0
    leading = (1, *shape[:n_leading])
    planes = flat_index(torch.nn.functional.pad(corners[:, :n_leading], (1, 0)), leading)
    return np.column_stack([planes.numpy(), corners[:, n_leading:].numpy()]), moved


def in_volume(drawn: Int64s, leading: tuple[int, ...]) -> Int64s:
    """Return positions (plane, first voxel) as positions in a volume with leading axes."""
    # a 2D image has no leading axes to find the plane on
    return np.column_stack([*np.unravel_index(drawn[:, 0], (1, *leading))[1:], drawn[:, 1:]])


def no_place(size: Sequence[int]) -> InputError:
    """Return the error for a size of which no patch can be placed."""
    return InputError(
        f"No patch of {' x '.join(map(str, size))} voxels can be placed: all weights are zero "
        "where a patch fits. Choose smaller patches, or other weights."
    )


def flat_index(positions: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return flat indices into an array of a shape for positions (..., len(shape))."""
    index = positions[..., 0]
    for axis, edge in enumerate(shape[1:], start=1):
        index = index * edge + positions[..., axis]
    return index


#: Voxels that are worked on at once.
_PIECE = 1 << 21

#: Bins of the histogram in which the threshold is sought.
_BINS = 512


def patch_features(patches: Array) -> dict[str, Float64s]:
    """Return order, mean, standard deviation and mean gradient of patches.

    `patches`: shape (n_patches, *size), with two or three spatial axes; real values.
    Returns: float64, shape (n_patches,). ``"order"`` counts from 1; ``"gradient"`` is in values a
    voxel.
    """
    count, n_spatial = len(patches), patches.ndim - 1
    found = {name: np.empty(count) for name in ("mean", "sd", "gradient")}
    together = max(1, _PIECE // max(1, math.prod(patches.shape[1:])))
    for start in range(0, count, together):
        part = slice(start, start + together)
        # in double precision: a small deviation may stand on a large mean
        values = torch.from_numpy(patches[part].astype(np.float64))
        flat = values.flatten(1)
        found["mean"][part] = flat.mean(1)
        found["sd"][part] = flat.std(1, correction=0)
        # summed in double precision and rounded: the order of sums is another on other processors
        gradient = gradient_magnitude(values, n_spatial).flatten(1).double().mean(1)
        found["gradient"][part] = gradient.float()
    # whole numbers would be taken for classes where patches are coloured by them
    return {"order": np.arange(1.0, count + 1), **found}


def foreground(images: torch.Tensor) -> torch.Tensor:
    """Return a mask of the pixels brighter than Otsu's threshold.

    `images`: any shape; real values.
    Returns: bool, same shape.

    References
    ----------
    Otsu, https://doi.org/10.1109/TSMC.1979.4310076
    """
    values = images.float()
    low, high = values.min(), values.max()
    # the number of the bin, not histc: that one is not deterministic on a GPU
    bins = ((values - low) / (high - low) * _BINS).long().clamp_(0, _BINS - 1).flatten()
    counts = torch.bincount(bins, minlength=_BINS).double()
    centres = torch.arange(_BINS, device=images.device).double()
    below = counts.cumsum(0)[:-1]
    above = counts.sum() - below
    sums = (counts * centres).cumsum(0)
    apart = sums[:-1] / below.clamp_min(1) - (sums[-1] - sums[:-1]) / above.clamp_min(1)
    best = (below * above * apart**2).argmax()
    return (bins > best).view(images.shape)


def gradient_magnitude(images: torch.Tensor, n_spatial: int) -> torch.Tensor:
    """Return the magnitude of the Sobel gradient, in grey values per voxel.

    `images`: shape (..., *spatial); real values. The border voxel is repeated outside. `n_spatial`:
    how many of the last axes are spatial, 2 or 3. Axes of one voxel have no gradient.
    Returns: float32, same shape.
    """
    values = images.float()
    axes = range(-n_spatial, 0)
    total = torch.zeros_like(values)
    for axis in axes:
        before, _, after = _shifted(values, axis)
        slope = (after - before) / 2
        for other in axes:
            if other != axis:
                before, middle, after = _shifted(slope, other)
                slope = (before + 2 * middle + after) / 4
        total += slope**2
    return total.sqrt_()


def _shifted(values: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the values one voxel before, here, and one after; the border is repeated."""
    length = values.shape[axis]
    first, last = values.narrow(axis, 0, 1), values.narrow(axis, length - 1, 1)
    before = torch.cat([first, values.narrow(axis, 0, length - 1)], axis)
    after = torch.cat([values.narrow(axis, 1, length - 1), last], axis)
    return before, values, after


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
