"""Reading of patches at integer or fractional positions, and reassembly of an image from patches.

Only the windows of the patches are read, also from a memory map, a dask array or a Zarr array; a
budget in bytes sets how many are processed at once.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float64s, Int64s

#: Default memory in addition to the result, in bytes.
BUDGET = 256 << 20

#: Maximum number of bytes processed at once on the host, so that they stay in the CPU cache.
_CACHE = 4 << 20

#: Number of copies of a window in memory during processing.
_COPIES = 4

BORDERS = ("refuse", "reflect", "constant")


def read_patches(
    image: Any,
    positions: npt.ArrayLike,
    size: Sequence[int],
    *,
    border: str = "refuse",
    fill: complex = 0,
    budget: int = BUDGET,
    out: Any = None,
) -> Any:
    """Read patches of one size from an image.

    Parameters
    ----------
    image : numpy.ndarray, torch.Tensor, or dask, zarr or other lazy array
        Shape ``(*channels, *spatial)``; the last ``len(size)`` axes are spatial; real or complex.
        From a lazy array only the blocks with patches are read, each once for all patches that
        begin in it.
    positions : array_like
        Shape (n_patches, len(size)): position of the first voxel of each patch. Between voxels the
        image is interpolated linearly.
    size : sequence of int
        Shape of a patch.
    border : {"refuse", "reflect", "constant"}
        Values outside the image: an error, the image mirrored at its outermost voxel (as in
        `numpy.pad`), or `fill`.
    fill : number, optional
        Value outside the image, for ``border="constant"``.
    budget : int, optional
        Maximum memory in addition to the result, in bytes.
    out : array, optional
        Array for the patches, for example a `numpy.memmap`; by default a new array.

    Returns
    -------
    numpy.ndarray or torch.Tensor
        Shape ``(n_patches, *channels, *size)``, on the device of the image. Same dtype as the image
        if all positions are integers; otherwise the smallest floating-point or complex dtype that
        can represent it.

    Raises
    ------
    InputError
        If the positions do not match the image, a patch reaches outside and `border` is
        ``"refuse"``, or one patch is larger than the budget.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.arange(16).reshape(4, 4)
    >>> read_patches(image, [(0, 0), (2, 1)], (2, 2)).tolist()
    [[[0, 1], [4, 5]], [[9, 10], [13, 14]]]
    >>> read_patches(image, [(0, 0.5)], (1, 2)).tolist()
    [[[0.5, 1.5]]]
    """
    plan = _Plan.of(image, positions, size, border, fill)
    if out is None:
        out = plan.empty(len(plan.low))
    for numbers, patches in _chunks(plan, budget, plan.at_once):
        out[numbers] = patches
    return out


def iterate_patches(
    image: Any,
    positions: npt.ArrayLike,
    size: Sequence[int],
    *,
    border: str = "refuse",
    fill: complex = 0,
    budget: int = BUDGET,
) -> Iterator[tuple[Int64s, Any]]:
    """Read patches as `read_patches` does, in chunks within the budget.

    Yields
    ------
    numbers : numpy.ndarray
        int64, shape (n,): numbers of the patches, in ascending order; for a lazy array block by
        block.
    patches : numpy.ndarray or torch.Tensor
        Shape ``(n, *channels, *size)``.

    Examples
    --------
    >>> import numpy as np
    >>> for numbers, patches in iterate_patches(np.eye(4), [(0, 0), (2, 2)], (2, 2)):
    ...     print(numbers, patches.shape)
    [0 1] (2, 2, 2)
    """
    yield from _chunks(_Plan.of(image, positions, size, border, fill), budget)


@dataclass(frozen=True, eq=False)
class _Plan:
    """The checked arguments: integer part and fraction of each position, and the border mode."""

    image: Any
    low: Int64s
    share: Float64s
    size: tuple[int, ...]
    border: str
    fill: complex

    @classmethod
    def of(
        cls, image: Any, positions: npt.ArrayLike, size: Sequence[int], border: str, fill: complex
    ) -> _Plan:
        image = image if hasattr(image, "shape") else np.asarray(image)
        where = np.asarray(positions, np.float64)
        edges = tuple(int(edge) for edge in size)
        if border not in BORDERS:
            raise InputError(f"border must be one of {', '.join(BORDERS)}; got {border!r}.")
        if not edges or min(edges) < 1 or len(edges) > len(image.shape):
            raise InputError(
                f"size must have 1 to {len(image.shape)} lengths, each of at least one voxel; got "
                f"{edges}."
            )
        if where.ndim != 2 or where.shape[1] != len(edges):
            raise InputError(
                f"positions must have the shape (n_patches, {len(edges)}) for patches of {edges}; "
                f"got {where.shape}."
            )
        if not np.isfinite(where).all():
            raise InputError("positions must be finite; got NaN or infinity.")
        low = np.floor(where).astype(np.int64)
        plan = cls(image, low, where - low, edges, border, fill)
        if border == "refuse":
            plan.require_inside(where)
        return plan

    def require_inside(self, where: Float64s) -> None:
        last = np.array(self.spatial) - self.size
        outside = ((where < 0) | (where > last)).any(1)
        if outside.any():
            first = int(outside.argmax())
            raise InputError(
                f"{int(outside.sum())} of {len(where)} patches of {self.size} reach outside the "
                f"image of {self.spatial}, the first at {where[first].tolist()}. Move them, or "
                "use border='reflect' or 'constant'."
            )

    @property
    def spatial(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.image.shape[-len(self.size) :])

    @property
    def channels(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.image.shape[: -len(self.size)])

    @property
    def is_lazy(self) -> bool:
        return not isinstance(self.image, np.ndarray | torch.Tensor)

    @property
    def at_once(self) -> float:
        """Maximum number of bytes processed at once, for speed."""
        on_host = self.is_lazy or getattr(self.image, "device", "cpu") in ("cpu", _CPU)
        return _CACHE if on_host else math.inf

    @functools.cached_property
    def fractional(self) -> list[int]:
        """Axes with fractional positions."""
        return [axis for axis in range(len(self.size)) if self.share[:, axis].any()]

    @functools.cached_property
    def spans(self) -> tuple[int, ...]:
        """Number of voxels to read along each axis: one more than the patch if fractional."""
        return tuple(edge + (axis in self.fractional) for axis, edge in enumerate(self.size))

    @functools.cached_property
    def dtype(self) -> Any:
        """Type of the patches, of PyTorch or NumPy."""
        if isinstance(self.image, torch.Tensor):
            whole = self.image.dtype
            return torch.promote_types(whole, torch.float32) if self.fractional else whole
        values = np.dtype(self.image.dtype).newbyteorder("=")
        return np.result_type(values, np.float32) if self.fractional else values

    @property
    def bytes_each(self) -> int:
        voxels = math.prod(self.spans) * math.prod(self.channels)
        return int(_COPIES * voxels * self.dtype.itemsize)

    def empty(self, count: int) -> Any:
        shape = (count, *self.channels, *self.size)
        if isinstance(self.image, torch.Tensor):
            return torch.empty(shape, dtype=self.dtype, device=self.image.device)
        return np.empty(shape, self.dtype)

    def indices(self, numbers: Any) -> list[Int64s]:
        """Return the indices to read along each axis, (n, span); -1 for `fill`."""
        found = []
        for axis, (span, length) in enumerate(zip(self.spans, self.spatial, strict=True)):
            index = self.low[numbers, axis, None] + np.arange(span)
            if self.border == "constant":
                index[(index < 0) | (index >= length)] = -1
            else:
                # a patch that ends at the border may read one voxel more, of weight zero
                index = _reflect(index, length)
            found.append(index)
        return found


_CPU = torch.device("cpu")


def _chunks(plan: _Plan, budget: int, at_once: float = math.inf) -> Iterator[tuple[Int64s, Any]]:
    # a lazy array needs the other half for the block that the windows are cut from
    room = budget // 2 if plan.is_lazy else budget
    if plan.bytes_each > room:
        raise InputError(
            f"Reading one patch of {plan.size} needs {plan.bytes_each:,} bytes, but only {room:,} "
            "are left in the budget. Choose smaller patches, or a larger budget."
        )
    together = int(min(room, at_once) // plan.bytes_each) or 1
    for numbers, source, first in _sources(plan, room):
        for start in range(0, len(numbers), together):
            part = numbers[start : start + together]
            yield part, _interpolate(plan, part, _windows(plan, part, source, first))


def _sources(plan: _Plan, room: int) -> Iterator[tuple[Int64s, Any, Int64s]]:
    """Yield numbers of patches, an array in memory that contains them, and its first voxel."""
    if not plan.is_lazy:
        yield np.arange(len(plan.low)), plan.image, np.zeros(len(plan.size), np.int64)
        return
    for numbers in _same(plan.low // np.array(_block(plan, room))):
        first, region = [], []
        for index, length in zip(plan.indices(numbers), plan.spatial, strict=True):
            # where all is outside any voxel will do: none is used
            start = int(index[index >= 0].min(initial=length - 1))
            first.append(start)
            region.append(slice(start, max(int(index.max()), start) + 1))
        every = (slice(None),) * len(plan.channels)
        yield numbers, np.asarray(plan.image[(*every, *region)]), np.array(first)


def _block(plan: _Plan, room: int) -> list[int]:
    """Return the edges of the blocks to read from a lazy array: its chunks, or smaller blocks."""
    chunks = getattr(plan.image, "chunksize", None) or getattr(plan.image, "chunks", None)
    block = [int(edge) for edge in (chunks or plan.image.shape)[-len(plan.size) :]]
    each = math.prod(plan.channels) * np.dtype(plan.image.dtype).itemsize
    while max(block) > 1 and each * math.prod(map(sum, zip(block, plan.spans, strict=True))) > room:
        longest = block.index(max(block))
        block[longest] = -(-block[longest] // 2)
    return block


def _same(keys: Int64s) -> list[Int64s]:
    """Return the numbers of equal rows, group by group."""
    _, group, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    return np.split(group.ravel().argsort(kind="stable"), counts.cumsum()[:-1])


def _windows(plan: _Plan, numbers: Any, source: Any, first: Int64s) -> Any:
    """Return windows, shape (n, *channels, *spans)."""
    low, n_channels = plan.low[numbers], len(plan.channels)
    every = (slice(None),) * n_channels
    on_torch = isinstance(source, torch.Tensor)
    if ((low >= 0) & (low + plan.spans <= plan.spatial)).all():
        # windows as views: copied in whole lines, and no index for each voxel
        where = (low - first).T
        if on_torch:
            source = _unfold(source, plan.spans)
            found = source[(*every, *torch.from_numpy(where.copy()).to(source.device))]
        else:
            axes = tuple(range(n_channels, n_channels + len(plan.size)))
            found = sliding_window_view(source, plan.spans, axes)[(*every, *where)]
    else:
        indices = plan.indices(numbers)
        outside = [_along(index < 0, axis, plan) for axis, index in enumerate(indices)]
        places = [
            _along((index - start).clip(0), axis, plan)
            for axis, (index, start) in enumerate(zip(indices, first, strict=True))
        ]
        mask = functools.reduce(np.logical_or, outside)
        if on_torch:
            found = source[(*every, *(torch.from_numpy(at).to(source.device) for at in places))]
            found = found.masked_fill(torch.from_numpy(mask).to(source.device), plan.fill)
        else:
            found = source[(*every, *places)]
            found[..., mask] = plan.fill
    if not n_channels:
        return found
    return (torch if on_torch else np).moveaxis(found, n_channels, 0)


def _unfold(image: torch.Tensor, spans: tuple[int, ...]) -> torch.Tensor:
    """Return all windows of an image as a view: positions first, then the voxels inside."""
    first = image.ndim - len(spans)
    for axis, span in enumerate(spans):
        image = image.unfold(first + axis, span, 1)
    return image


def _along(index: Array, axis: int, plan: _Plan) -> Array:
    """Return (n, span) as (n, 1, .., span, .., 1), for broadcasting with the other axes."""
    shape = [len(index)] + [1] * len(plan.size)
    shape[axis + 1] = -1
    return index.reshape(shape)


def _interpolate(plan: _Plan, numbers: Any, windows: Any) -> Any:
    """Interpolate (n, *channels, *spans) linearly to (n, *channels, *size)."""
    if not plan.fractional:
        return windows
    on_torch = isinstance(windows, torch.Tensor)
    values = windows.to(plan.dtype) if on_torch else windows.astype(plan.dtype, copy=False)
    for axis in plan.fractional:
        share: Any = plan.share[numbers, axis]
        whole: Any = share == 0
        any_whole = whole.any()
        if on_torch:
            share = torch.from_numpy(share).to(values.device, values.real.dtype)
            whole = torch.from_numpy(whole).to(values.device)
        else:
            share = share.astype(values.real.dtype)
        at = (slice(None),) * (values.ndim - len(plan.size) + axis)
        before = values[(*at, slice(None, -1))]
        between = values[(*at, slice(1, None))] - before
        between *= share.reshape(-1, *[1] * (values.ndim - 1))
        between += before
        if any_whole:
            # zero times what is not a number would not be zero
            between[whole] = before[whole]
        values = between
    return values


def _reflect(index: Int64s, length: int) -> Int64s:
    """Mirror indices at the first and the last voxel, repeatedly if necessary."""
    if length == 1:
        return np.zeros_like(index)
    period = 2 * (length - 1)
    folded = index % period
    return np.minimum(folded, period - folded)


# ---- an image of patches


def reassemble(
    patches: Any,
    positions: npt.ArrayLike,
    shape: Sequence[int],
    *,
    weights: str = "pyramid",
    fill: complex = 0,
) -> Any:
    """Reassemble an image from patches; overlapping patches are averaged with weights.

    The inverse of `hushpore.patches.reading.read_patches`. Weights are integers and sums are in
    float64, so that patches at integer positions restore every covered voxel exactly, except in
    float64 and complex128 (to rounding). Values at fractional positions are divided between the
    neighbouring voxels, which smooths the image.

    Parameters
    ----------
    patches : numpy.ndarray or torch.Tensor
        Shape ``(n_patches, *channels, *size)``.
    positions : array_like
        Shape (n_patches, n_spatial): position of the first voxel of each patch. Parts outside the
        image are ignored.
    shape : sequence of int
        Spatial shape of the image.
    weights : {"pyramid", "even"}
        Weights that decrease towards the border of a patch, which hides seams between processed
        patches; or equal weights.
    fill : number, optional
        Value of voxels without a patch.

    Returns
    -------
    numpy.ndarray or torch.Tensor
        Shape ``(*channels, *shape)``, dtype of the patches, on their device.

    Raises
    ------
    InputError
        If the shapes do not match, or a position is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.arange(16.0, dtype=np.float32).reshape(4, 4)
    >>> positions = [(0, 0), (0, 1), (1, 0), (1, 1)]
    >>> np.array_equal(reassemble(read_patches(image, positions, (3, 3)), positions, (4, 4)), image)
    True
    """
    where = np.asarray(positions, np.float64)
    image_shape = tuple(int(n) for n in shape)
    n_spatial = len(image_shape)
    if where.shape != (len(patches), n_spatial) or patches.ndim < n_spatial + 1:
        raise InputError(
            f"positions must have the shape ({len(patches)}, {n_spatial}) for patches of shape "
            f"{tuple(patches.shape)} in an image of {image_shape}; got {where.shape}."
        )
    if not np.isfinite(where).all():
        raise InputError("positions must be finite; got NaN or infinity.")
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


def _window(size: Sequence[int], weights: str) -> Float64s:
    """Return integer weights: 1 at the border of a patch, increasing inwards; or 1 everywhere."""
    if weights == "even":
        return np.ones(tuple(size))
    ramps = [np.minimum(np.arange(edge) + 1, edge - np.arange(edge)) for edge in size]
    return functools.reduce(np.multiply.outer, ramps).astype(np.float64)


def _overlap(
    corner: Int64s, size: Sequence[int], shape: Sequence[int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the part of a patch inside the image, and its position."""
    inside, target = [], []
    for start, edge, length in zip(corner.tolist(), size, shape, strict=True):
        first, stop = min(max(-start, 0), edge), max(min(length - start, edge), 0)
        stop = max(first, stop)
        inside.append(slice(first, stop))
        target.append(slice(max(start + first, 0), max(start + stop, 0)))
    return tuple(inside), tuple(target)
