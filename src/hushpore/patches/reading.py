"""Reading patches at whole or fractional positions: windows only, a few at a time.

Nothing but the windows is read, also from a memory-map, a dask array or a zarr array on disk; how
many are worked on at once follows from a budget in bytes. And putting an image together again from
patches that overlap.
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

#: What is held at once beside the result, in bytes.
BUDGET = 256 << 20

#: On the host no more than this is worked on at once: it stays in the processor's cache.
_CACHE = 4 << 20

#: Copies of a window that are held while it is worked on.
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
        Shape ``(*channels, *spatial)``, of which the last ``len(size)`` axes are spatial; real or
        complex. From a lazy array only the blocks that the patches touch are read, each once for
        all the patches that begin in it.
    positions : array_like
        Shape (n_patches, len(size)): where the first voxel of each patch lies. Between voxels the
        image is interpolated linearly.
    size : sequence of int
        Shape of a patch.
    border : {"refuse", "reflect", "constant"}
        What lies outside: an error, the image mirrored about its outermost voxel (as `numpy.pad`
        does), or `fill`.
    fill : number, optional
        Value outside, for ``border="constant"``.
    budget : int, optional
        Bytes to hold at once beside the result.
    out : array, optional
        Where to write the patches, for example a `numpy.memmap`; by default a new array.

    Returns
    -------
    numpy.ndarray or torch.Tensor
        Shape ``(n_patches, *channels, *size)``, on the device of the image. Its dtype where all
        positions are whole numbers; else the least floating-point or complex dtype that holds it.

    Raises
    ------
    InputError
        If the positions do not fit the image, a patch reaches outside and `border` is
        ``"refuse"``, or one patch is larger than the budget.
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
) -> Iterator[tuple[npt.NDArray[np.int64], Any]]:
    """Read patches as `read_patches` does, a chunk at a time within the budget.

    Yields
    ------
    numbers : numpy.ndarray
        int64, shape (n,): which patches these are. Ascending, but for a lazy array, of which the
        patches come block by block.
    patches : numpy.ndarray or torch.Tensor
        Shape ``(n, *channels, *size)``.
    """
    yield from _chunks(_Plan.of(image, positions, size, border, fill), budget)


@dataclass(frozen=True, eq=False)
class _Plan:
    """What to read, checked: whole part and fraction of each position, and the border's rule."""

    image: Any
    low: npt.NDArray[np.int64]
    share: npt.NDArray[np.float64]
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

    def require_inside(self, where: npt.NDArray[np.float64]) -> None:
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
        """Most bytes that are worked on at once, for speed."""
        on_host = self.is_lazy or getattr(self.image, "device", "cpu") in ("cpu", _CPU)
        return _CACHE if on_host else math.inf

    @functools.cached_property
    def fractional(self) -> list[int]:
        """Axes along which some position lies between voxels."""
        return [axis for axis in range(len(self.size)) if self.share[:, axis].any()]

    @functools.cached_property
    def spans(self) -> tuple[int, ...]:
        """Voxels to read along each axis: one more than the patch has, where it lies between."""
        return tuple(edge + (axis in self.fractional) for axis, edge in enumerate(self.size))

    @functools.cached_property
    def dtype(self) -> Any:
        """Of the patches, PyTorch's or NumPy's."""
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

    def indices(self, numbers: Any) -> list[npt.NDArray[np.int64]]:
        """Return which voxels to read along each axis, (n, span); -1 where `fill` goes."""
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


def _chunks(
    plan: _Plan, budget: int, at_once: float = math.inf
) -> Iterator[tuple[npt.NDArray[np.int64], Any]]:
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


def _sources(
    plan: _Plan, room: int
) -> Iterator[tuple[npt.NDArray[np.int64], Any, npt.NDArray[np.int64]]]:
    """Yield numbers of patches, an array in memory to read them from, and where that begins."""
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
    """Edges of the blocks to read of a lazy array: its own chunks, or less where room is short."""
    chunks = getattr(plan.image, "chunksize", None) or getattr(plan.image, "chunks", None)
    block = [int(edge) for edge in (chunks or plan.image.shape)[-len(plan.size) :]]
    each = math.prod(plan.channels) * np.dtype(plan.image.dtype).itemsize
    while max(block) > 1 and each * math.prod(map(sum, zip(block, plan.spans, strict=True))) > room:
        longest = block.index(max(block))
        block[longest] = -(-block[longest] // 2)
    return block


def _same(keys: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Return the numbers of the rows that are alike, group by group."""
    _, group, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    return np.split(group.ravel().argsort(kind="stable"), counts.cumsum()[:-1])


def _windows(plan: _Plan, numbers: Any, source: Any, first: npt.NDArray[np.int64]) -> Any:
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
    """Return all windows of an image as a view: the places first, then the voxels inside."""
    first = image.ndim - len(spans)
    for axis, span in enumerate(spans):
        image = image.unfold(first + axis, span, 1)
    return image


def _along(index: npt.NDArray[Any], axis: int, plan: _Plan) -> npt.NDArray[Any]:
    """Return (n, span) as (n, 1, .., span, .., 1), to be combined with the other axes."""
    shape = [len(index)] + [1] * len(plan.size)
    shape[axis + 1] = -1
    return index.reshape(shape)


def _interpolate(plan: _Plan, numbers: Any, windows: Any) -> Any:
    """Return (n, *channels, *spans) as (n, *channels, *size): linear between voxels."""
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


def _reflect(index: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    """Mirror indices about the first and the last voxel, as often as it takes."""
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
