"""Positions of patches: on a grid, at points, or drawn by weights from their features."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
