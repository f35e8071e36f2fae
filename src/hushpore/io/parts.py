"""Crop, bin and resampling of volumes: only the part that is needed is read from disk."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import Progress, result_of
from hushpore.base.fill_value import stated_fill_value
from hushpore.base.formatting import readable_unit
from hushpore.base.rescaled import Scaled, held
from hushpore.io.lazy_arrays import SLAB, Derived, DiskArray, PlaneStack

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from hushpore.base.arrays import Array, Float64s, Mask
    from hushpore.base.volume import Volume


_RANGE = re.compile(r"\s*(\d*)\s*:\s*(\d*)\s*")


class Crop(Derived):
    """Lazy part of a lazy array.

    `base`: the array. `box`: a slice with start and stop for each axis.

    >>> from hushpore.io.lazy_arrays import PlaneStack
    >>> stack = PlaneStack(np.arange(9), (2, 2), np.dtype(int), lambda n, out: out.fill(n))
    >>> Crop(stack, [slice(3, 6), slice(0, 2), slice(1, 2)])[:, 0, 0].tolist()
    [3, 4, 5]
    """

    def __init__(self, base: DiskArray, box: Sequence[slice]) -> None:
        super().__init__(base, tuple(each.stop - each.start for each in box))
        self._starts = [each.start for each in box]
        self._first = -self._starts[self._axis] % self._chunk
        # readers of slabs choose whole chunks
        self.chunks = getattr(base, "chunks", None)

    def _read_part(self, keys: list[Any]) -> Array:
        ranges, within = needed_ranges(keys, self.shape)
        moved = [
            slice(start + low, start + high)
            for start, (low, high) in zip(self._starts, ranges, strict=True)
        ]
        part: Array = np.asarray(self._base[tuple(moved)])[within]
        return part


class Bin(Derived):
    """Lazy means over blocks of an array; incomplete blocks at the end are left out.

    `base`: an array that takes slices. `factors`: block length along each axis. `fill`: fill value;
    a block that contains it becomes the fill value.

    >>> Bin(np.arange(10, dtype=np.uint8), [3])[...].tolist()
    [1, 4, 7]
    """

    def __init__(self, base: Any, factors: Sequence[int], fill: float | None = None) -> None:
        super().__init__(base, tuple(n // f for n, f in zip(base.shape, factors, strict=True)))
        self._factors, self._fill = tuple(factors), fill
        self._chunk = max(1, self._chunk // factors[self._axis])

    def _read_part(self, keys: list[Any]) -> Array:
        ranges, within = needed_ranges(keys, self.shape)
        values = np.empty([high - low for low, high in ranges], self.dtype)
        axis, depth = self._axis, self._slices_at_once(values.shape)
        low, high = ranges[axis]
        for start in range(low, high, depth):
            end = min(start + depth, high)
            part = (slice(None),) * axis + (slice(start - low, end - low),)
            values[part] = self._of_blocks([*ranges[:axis], (start, end), *ranges[axis + 1 :]])
        found: Array = values[within]
        return found

    def _slices_at_once(self, shape: tuple[int, ...]) -> int:
        """Return how many slices of an array of a shape are computed in one step."""
        size: int = np.dtype(held(self._base).dtype).itemsize
        per_slice = math.prod(shape) * math.prod(self._factors) * size // max(1, shape[self._axis])
        return max(1, SLAB // max(1, per_slice))

    def _voxels(self, ranges: list[tuple[int, int]]) -> Iterator[Array]:
        """Yield the first voxel of each block in a range, then the second, and so on."""
        pairs = zip(ranges, self._factors, strict=True)
        block = np.asarray(self._base[tuple(slice(low * f, high * f) for (low, high), f in pairs)])
        for starts in itertools.product(*map(range, self._factors)):
            yield block[tuple(map(slice, starts, block.shape, self._factors))]

    def _of_blocks(self, ranges: list[tuple[int, int]]) -> Array:
        total = np.zeros([high - low for low, high in ranges])
        filled = None if self._fill is None else np.zeros(total.shape, np.bool_)
        for voxels in self._voxels(ranges):
            total += voxels
            if filled is not None:
                filled |= voxels == self._fill
        total /= math.prod(self._factors)
        if self.dtype.kind not in "f":
            np.rint(total, out=total)
        if filled is not None:
            total[filled] = self._fill
        return total.astype(self.dtype)


class BinLabels(Bin):
    """Lazy most frequent values of blocks of an array; of several such values, the lowest.

    `base`, `factors`: as for `Bin`.

    >>> BinLabels(np.array([3, 3, 7, 9, 9, 3]), [3])[...].tolist()
    [3, 9]
    """

    def _slices_at_once(self, shape: tuple[int, ...]) -> int:
        return 1  # all voxels of a layer of blocks are sorted

    def _of_blocks(self, ranges: list[tuple[int, int]]) -> Array:
        ordered = np.sort(np.stack(list(self._voxels(ranges))), axis=0)
        best: Array = ordered[0].copy()
        most = run = np.ones(ordered.shape[1:], int)
        for before, value in itertools.pairwise(ordered):
            run = np.where(value == before, run + 1, 1)
            longer = run > most
            np.copyto(best, value, where=longer)
            most = np.where(longer, run, most)
        return best


class Masked(Derived):
    """Lazy array in which a fill value replaces some columns along z.

    `base`: an array that takes slices. `outside`: (y, x), bool: the columns. `fill`: the value.

    >>> Masked(np.ones((2, 1, 3), np.uint8), np.array([[True, False, False]]), 9)[1].tolist()
    [[9, 1, 1]]
    """

    def __init__(self, base: Any, outside: Mask, fill: float) -> None:
        super().__init__(base)
        self._outside, self._fill = outside, self.dtype.type(fill)
        # readers of slabs choose whole chunks
        self.chunks = getattr(base, "chunks", None)

    def _read_part(self, keys: list[Any]) -> Array:
        outside = self._outside[tuple(keys[-2:])]
        part: Array = np.where(outside, self._fill, self._base[tuple(keys)])
        return part


def cropped(volume: Volume, crop: str) -> Volume:
    """Return a box of a volume; its origin is the place of the box, and a note gives the box.

    Parameters
    ----------
    volume : Volume
        2D or 3D, in memory or on disk; time and channel axes are kept whole.
    crop : str
        First voxel and end of the box along each spatial axis, in voxels as for NumPy's slices:
        ``"10:60,0:512,0:512"``. A number left out means the border of the volume: ``"10:,:,:"``.

    Returns
    -------
    Volume
        On disk if `volume` is.

    Raises
    ------
    InputError
        If the box is invalid or extends beyond the volume.

    Examples
    --------
    >>> from hushpore.base.volume import Volume
    >>> scan = Volume(np.zeros((9, 8, 8), np.uint8), spacing=2, unit="um")
    >>> part = cropped(scan, "3:6,:,4:")
    >>> part.shape, part.origin
    ((3, 8, 4), (6.0, 0.0, 8.0))
    """
    shape, leading = volume.spatial_shape, volume.leading_shape
    parts = crop.split(",")
    found = [_RANGE.fullmatch(part) for part in parts]
    box = [
        slice(int(match[1] or 0), int(match[2] or n))
        for match, n in zip(found, shape, strict=False)
        if match is not None
    ]
    fits = all(each.start < each.stop <= n for each, n in zip(box, shape, strict=False))
    if len(box) != len(shape) or len(parts) != len(shape) or not fits:
        example = ",".join(f"{n // 4}:{n - n // 4}" for n in shape)
        raise InputError(
            f"--crop {crop}: expected a range start:end for each of {_names(shape)}, within the "
            f"shape {_times(shape)} of {volume.name}, for example --crop {example}, or sample or "
            "cylinder."
        )
    whole = (*(slice(0, n) for n in leading), *box)
    data = volume.data
    stored = _cropped(held(data), whole)
    if isinstance(data, Scaled):
        lines = (each[whole[0]] if each.ndim else each for each in (data.slope, data.intercept))
        stored = Scaled(stored, *lines)
    starts = [each.start * step for each, step in zip(box, volume.spacing, strict=True)]
    places = _places(volume)
    metadata = dict(volume.metadata)
    if places is not None:
        starts[0] = places[box[0].start] - places[0]
        metadata["slice_positions"] = places[box[0]].tolist()
    ranges = ",".join(f"{each.start}:{each.stop}" for each in box)
    note = f"Cropped to {ranges} ({_names(shape)}) of {_times(shape)} voxels."
    return volume.replace(
        stored,
        origin=tuple(place + start for place, start in zip(volume.origin, starts, strict=True)),
        notes=[*volume.notes, note],
        metadata=metadata,
    )


def binned(volume: Volume, factors: str) -> Volume:
    """Return the means over blocks of voxels, with a note; incomplete blocks are left out.

    Parameters
    ----------
    volume : Volume
        2D or 3D, in memory or on disk; time and channel axes are kept.
    factors : str
        Length of a block in voxels, for all spatial axes or for each: ``"2"`` or ``"1,2,2"``.

    Returns
    -------
    Volume
        A lazy volume of the same dtype; integers are rounded, halves to the even number. The
        spacing is multiplied, and the origin is the centre of the first block. A block that
        contains the fill value of the file becomes the fill value. A block of labels or of a mask
        becomes its most frequent value.

    Raises
    ------
    InputError
        If the factors are invalid or exceed the shape.

    Examples
    --------
    >>> from hushpore.base.volume import Volume
    >>> scan = Volume(np.arange(9.0).reshape(3, 3), spacing=2, unit="um")
    >>> half = binned(scan, "2")
    >>> half.array().tolist(), half.spacing, half.origin
    ([[2.0]], (4.0, 4.0), (1.0, 1.0))
    """
    shape = volume.spatial_shape
    parts = factors.split(",")
    numbers = [int(part) for part in parts if re.fullmatch(r"\s*[0-9]{1,9}\s*", part)]
    each = numbers * len(shape) if len(parts) == 1 else numbers
    fits = all(0 < factor <= n for factor, n in zip(each, shape, strict=False))
    if len(numbers) != len(parts) or len(each) != len(shape) or not fits:
        raise InputError(
            f"--bin {factors}: expected one whole number, or one for each of {_names(shape)}, from "
            f"1 to the shape {_times(shape)} of {volume.name}, for example --bin 2."
        )
    data, fill = volume.data, stated_fill_value(volume.metadata)
    blocks = (*[1] * len(volume.leading_shape), *each)
    are_labels = volume.holds_labels or volume.dtype == np.bool_
    if are_labels:
        values: Any = BinLabels(data, blocks)
    elif isinstance(data, Scaled) and not data.slope.ndim and not data.intercept.ndim:
        if fill is not None:
            fill = round((fill - float(data.intercept)) / float(data.slope))
        values = Scaled(Bin(data.stored, blocks, fill), data.slope, data.intercept)
    else:
        values = Bin(data, blocks, fill)
    spacing = tuple(step * factor for step, factor in zip(volume.spacing, each, strict=True))
    starts = [(new - step) / 2 for new, step in zip(spacing, volume.spacing, strict=True)]
    places = _places(volume)
    metadata = dict(volume.metadata)
    if places is not None:
        count = shape[0] // each[0]
        means = places[: count * each[0]].reshape(count, each[0]).mean(1)
        starts[0] = means[0] - places[0]
        metadata["slice_positions"] = means.tolist()
    how = "most frequent value" if are_labels else "mean"
    note = f"Binned by the {how} of {_times(each)} voxels."
    return dataclasses.replace(
        volume,
        data=values,
        spacing=spacing,
        origin=tuple(place + start for place, start in zip(volume.origin, starts, strict=True)),
        notes=[*volume.notes, note],
        metadata=metadata,
    )


def _cropped(data: Any, box: tuple[slice, ...]) -> Any:
    return Crop(data, box) if isinstance(data, DiskArray) else data[box]


def _places(volume: Volume) -> Float64s | None:
    """Return the positions of the slices of a 3D stack, if they are known."""
    places = volume.metadata.get("slice_positions")
    if volume.axes != "zyx" or not places or len(places) != volume.shape[0]:
        return None
    return np.asarray(places, np.float64)


def needed_ranges(
    keys: Sequence[Any], shape: Sequence[int]
) -> tuple[list[tuple[int, int]], tuple[Any, ...]]:
    """Return the range that an index needs along each axis, and the index within these ranges."""
    ranges: list[tuple[int, int]] = []
    within: list[Any] = []
    for key, n in zip(keys, shape, strict=True):
        if not isinstance(key, slice):
            place = range(n)[key]
            ranges.append((place, place + 1))
            within.append(0)
            continue
        places = range(n)[key]
        if not places:
            ranges.append((0, 0))
            within.append(slice(None))
            continue
        low, high = min(places[0], places[-1]), max(places[0], places[-1])
        ranges.append((low, high + 1))
        within.append(slice(None, None, places.step))
    return ranges, tuple(within)


def _names(shape: Sequence[int]) -> str:
    return ",".join("zyx"[-len(shape) :])


def _times(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers))


def resample_evenly(volume: Volume, spacing: float | None = None) -> Volume:
    """Interpolate a stack of unevenly spaced or missing slices to an even spacing.

    `hushpore.read` never resamples: it keeps the slices and adds a note that they are uneven.
    Values between two slices are interpolated linearly, which reduces the noise there.

    Parameters
    ----------
    volume : Volume
        Axes zyx, with unevenly spaced or missing slices; their positions are in
        ``volume.metadata["slice_positions"]``.
    spacing : float, optional
        Slice distance of the result, in the unit of the volume; by default ``volume.spacing[0]``.

    Returns
    -------
    Volume
        Values in float32, from the first slice to the last position within the volume. A note gives
        the number of interpolated slices.

    Raises
    ------
    InputError
        If the volume has no slice positions, or the spacing is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from hushpore import Volume
    >>> places = {"slice_positions": [0.0, 1.0, 3.0]}
    >>> scan = Volume(np.arange(3.0)[:, None, None] * np.ones((3, 2, 2)), metadata=places)
    >>> resample_evenly(scan).array()[:, 0, 0].tolist()
    [0.0, 1.0, 1.5, 2.0]
    """
    return result_of(resampling(volume, spacing))


def is_uneven(volume: Volume) -> bool:
    """Return whether slices are missing or unevenly spaced, so that resampling is possible."""
    places = np.asarray(volume.metadata.get("slice_positions", ()), dtype=float)
    fits = volume.axes == "zyx" and 1 < len(places) == volume.shape[0]
    return fits and bool((np.diff(places) > 0).all())


def with_rescaled_positions(metadata: Mapping[str, Any], ratio: float) -> dict[str, Any]:
    """Return the metadata of a volume for a slice distance multiplied by `ratio`.

    The slice positions are in the unit of the volume, like its spacing.
    """
    rescaled = dict(metadata)
    if "slice_positions" in rescaled:
        rescaled["slice_positions"] = [place * ratio for place in rescaled["slice_positions"]]
    return rescaled


def resampling(volume: Volume, spacing: float | None = None) -> Generator[Progress, None, Volume]:
    """Resample as `resample_evenly` does, as a job that yields progress."""
    even = resampled(volume, spacing)
    values, count = np.empty(even.shape, np.float32), even.shape[0]
    for done in even.data.read_into(values):
        yield Progress("resampling", done, count, "slices", done / count)
    return even.replace(values)


def resampled(volume: Volume, spacing: float | None = None) -> Volume:
    """Return the result of `resample_evenly` as a lazy volume."""
    if not is_uneven(volume):
        raise InputError(
            f"{volume.name} has no positions of unevenly spaced slices (metadata "
            "'slice_positions'), so there is nothing to resample."
        )
    places = np.asarray(volume.metadata["slice_positions"], dtype=float)
    step = volume.spacing[0] if spacing is None else float(spacing)
    if not step > 0:
        raise InputError(f"The spacing must be positive; got {spacing}.")
    # include a position that exceeds the end only by rounding
    count = int(np.floor((places[-1] - places[0]) / step + 1e-6)) + 1
    wanted = places[0] + step * np.arange(count)
    above = np.clip(np.searchsorted(places, wanted), 1, len(places) - 1)
    low, high = places[above - 1], places[above]
    share = np.clip((wanted - low) / (high - low), 0.0, 1.0)
    nearest = np.rint(share).astype(int)
    is_there = np.abs(share - nearest) < 1e-6

    def read(index: int, out: Array) -> None:
        k = int(above[index])
        if is_there[index]:
            out[...] = volume.data[k - 1 + int(nearest[index])]
            return
        first, second = (np.asarray(volume.data[each], np.float32) for each in (k - 1, k))
        out[...] = first + np.float32(share[index]) * (second - first)

    metadata = {key: value for key, value in volume.metadata.items() if key != "slice_positions"}
    note = (
        f"Resampled to {step:.4g} {readable_unit(volume.unit)} between slices: "
        f"{np.count_nonzero(~is_there)} of {count} slices were interpolated."
    )
    return volume.replace(
        PlaneStack(np.arange(count), volume.shape[1:], np.dtype(np.float32), read),
        spacing=(step, *volume.spacing[1:]),
        notes=[*volume.notes, note],
        metadata=metadata,
    )
