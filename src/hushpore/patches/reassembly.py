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
    space: Any = _Torch(patches) if isinstance(patches, torch.Tensor) else _NumPy(patches)
    window = space.from_numpy(_window(size, weights))
    total = space.zeros((*channels, *image_shape), space.wide)
    cover = space.zeros(image_shape, space.real)
    low = np.floor(where).astype(np.int64)
    for patch, corner, share in zip(patches, low, where - low, strict=True):
        weighted = space.widen(patch) * window
        for shift in _neighbours(share):
            part = float(np.prod([f if s else 1 - f for s, f in zip(shift, share, strict=True)]))
            inside, target = _overlap(corner + shift, size, image_shape)
            total[(..., *target)] += part * weighted[(..., *inside)]
            cover[target] += part * window[inside]
    empty = cover == 0
    cover[empty] = 1
    total /= cover
    total[..., empty] = fill
    return space.narrow(total)


def _window(size: Sequence[int], weights: str) -> npt.NDArray[np.float64]:
    """Whole numbers: 1 at the border of a patch, rising towards its middle; or 1 everywhere."""
    if weights == "even":
        return np.ones(tuple(size))
    ramps = [np.minimum(np.arange(edge) + 1, edge - np.arange(edge)) for edge in size]
    return functools.reduce(np.multiply.outer, ramps).astype(np.float64)


def _neighbours(share: npt.NDArray[np.float64]) -> list[tuple[int, ...]]:
    """Steps to the voxels that a position between voxels gives to."""
    return list(itertools.product(*[(0, 1) if part else (0,) for part in share]))


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


class _NumPy:
    """The few operations that NumPy and PyTorch name differently; sums are in float64."""

    def __init__(self, patches: Any) -> None:
        self._dtype = patches.dtype
        self.real = np.float64
        self.wide = np.complex128 if patches.dtype.kind == "c" else np.float64

    def from_numpy(self, values: npt.NDArray[Any]) -> Any:
        return values

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return np.zeros(shape, dtype)

    def widen(self, values: Any) -> Any:
        return values.astype(self.wide)

    def narrow(self, values: Any) -> Any:
        return (values if self._dtype.kind in "fc" else values.round()).astype(self._dtype)


class _Torch:
    """As `_NumPy`, on the device of the patches."""

    def __init__(self, patches: torch.Tensor) -> None:
        self._dtype, self._device = patches.dtype, patches.device
        self.real = torch.float64
        self.wide = torch.complex128 if patches.is_complex() else torch.float64

    def from_numpy(self, values: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=self._device)

    def widen(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self.wide)

    def narrow(self, values: torch.Tensor) -> torch.Tensor:
        whole = not (self._dtype.is_floating_point or self._dtype.is_complex)
        return (values.round() if whole else values).to(self._dtype)
