"""Features and sampling weights of patches: brightness and gradient."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from hushpore.base.arrays import Array, Float64s

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
