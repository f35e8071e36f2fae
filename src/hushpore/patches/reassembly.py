"""Putting an image together from patches that overlap."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


def reassemble(
    patches: Any,
    positions: npt.ArrayLike,
    shape: Sequence[int],
    *,
    weights: str = "pyramid",
    fill: complex = 0,
) -> Any:
    """Return the image that patches were read from: their weighted mean where they overlap.

    The reverse of `hushpore.patches.reading.read_patches`. Weights are whole numbers and sums are
    in float64, so that of patches read at whole positions every voxel that is covered comes back
    exactly, in any dtype but float64 and complex128, where it comes back to rounding. A patch
    between voxels gives to either neighbour in proportion; the image then comes back smoothed.

    Parameters
    ----------
    patches : numpy.ndarray or torch.Tensor
        Shape ``(n_patches, *channels, *size)``.
    positions : array_like
        Shape (n_patches, n_spatial): where the first voxel of each patch lies. What of a patch
        lies outside the image is left out.
    shape : sequence of int
        Spatial shape of the image.
    weights : {"pyramid", "even"}
        Falling off towards the border of a patch, which hides seams between patches that were
        worked on; or the same everywhere.
    fill : number, optional
        Value where there is no patch.

    Returns
    -------
    numpy.ndarray or torch.Tensor
        Shape ``(*channels, *shape)``, dtype of the patches, on their device.

    Raises
    ------
    InputError
        If shapes do not fit, or a position is not a finite number.
    """
    where = np.asarray(positions, np.float64)
    image_shape = tuple(int(n) for n in shape)
    n_spatial = len(image_shape)
    if where.shape != (len(patches), n_spatial) or patches.ndim < n_spatial + 1:
        raise InputError(
            f"Patches of shape {tuple(patches.shape)} in an image of {image_shape} need positions "
            f"of shape ({len(patches)}, {n_spatial}); got {where.shape}."
        )
    if not np.isfinite(where).all():
        raise InputError("A position is not a finite number.")
    if weights not in ("pyramid", "even"):
        raise InputError(f"weights must be 'pyramid' or 'even'; got {weights!r}.")
    size, channels = patches.shape[-n_spatial:], patches.shape[1:-n_spatial]
    window: Any = _window(size, weights)
    if isinstance(patches, torch.Tensor):
        zeros: Any = functools.partial(torch.zeros, device=patches.device)
        window = torch.from_numpy(window).to(patches.device)
        wide: Any = torch.promote_types(patches.dtype, torch.float64)
    else:
        zeros, wide = np.zeros, np.promote_types(patches.dtype, np.float64)
    total = zeros((*channels, *image_shape), dtype=wide)
    cover = zeros(image_shape, dtype=window.dtype)
    low = np.floor(where).astype(np.int64)
    for patch, corner, share in zip(patches, low, where - low, strict=True):
        weighted = patch * window
        # the voxels that a position between voxels gives to
        for shift in itertools.product(*[(0, 1) if part else (0,) for part in share]):
            part = float(np.prod([f if s else 1 - f for s, f in zip(shift, share, strict=True)]))
            inside, target = _overlap(corner + shift, size, image_shape)
            total[(..., *target)] += part * weighted[(..., *inside)]
            cover[target] += part * window[inside]
    empty = cover == 0
    cover[empty] = 1
    total /= cover
    total[..., empty] = fill
    if isinstance(patches, torch.Tensor):
        is_whole = not (patches.is_floating_point() or patches.is_complex())
        return (total.round() if is_whole else total).to(patches.dtype)
    return (total if patches.dtype.kind in "fc" else total.round()).astype(patches.dtype)


def _window(size: Sequence[int], weights: str) -> npt.NDArray[np.float64]:
    """Whole numbers: 1 at the border of a patch, rising towards its middle; or 1 everywhere."""
    if weights == "even":
        return np.ones(tuple(size))
    ramps = [np.minimum(np.arange(edge) + 1, edge - np.arange(edge)) for edge in size]
    return functools.reduce(np.multiply.outer, ramps).astype(np.float64)


def _overlap(
    corner: npt.NDArray[np.int64], size: Sequence[int], shape: Sequence[int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the part of a patch that lies in the image, and where it lies."""
    inside, target = [], []
    for start, edge, length in zip(corner.tolist(), size, shape, strict=True):
        first, stop = min(max(-start, 0), edge), max(min(length - start, edge), 0)
        stop = max(first, stop)
        inside.append(slice(first, stop))
        target.append(slice(max(start + first, 0), max(start + stop, 0)))
    return tuple(inside), tuple(target)
