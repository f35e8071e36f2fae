"""A small stack of grey values from all over a volume, and what is seen in it at a glance.

Where a volume is filled in around what was measured, with one value, where its void is, roughly,
and whether that lies around the rest.
"""

from __future__ import annotations

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.fill_value import is_fill_value, possible_fill_values, stated_fill_value
from hushpore.device.backend import cpu_threads
from hushpore.pores.void.automatic import find_any_threshold
from hushpore.pores.void.histogram import Histogram

if TYPE_CHECKING:
    from hushpore.base.arrays import Array, Float32s, Float64s, Int64s, Mask
    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings

#: Slices that are looked at at most.
SLICES = 24

#: Pixels along the longer side of each, for which its blocks are averaged.
PIXELS = 160

#: Pixels of a slice that are read along one side at most.
_READ = 1024

#: Radius of the disc that is rolled over a silhouette, as a share of its shorter side.
DISC = 0.25

#: Share of a silhouette's frame, or of a thumbnail, that air or filling must have.
_LEAST_SHARE = 0.01

#: Pixels that the air around a silhouette must be deep.
_LEAST_DEPTH = 2.5

#: Pixels that each side of a silhouette must have, to tell anything.
_LEAST_SIDE = 16

#: How much deeper the air must be than what is empty inside a silhouette.
_DEEPER = 3.0

#: Pixels along the whole rim that may be all that is empty instead.
_RIM = 3

#: Pixels that the radius of a disc has at the least.
BLUNT = 1.5

#: Share of the corners of a volume that are filled in at the least, where a pore may be.
_CORNERS = 0.75

#: Bins for values that are not counted level by level.
_BINS = 1024


@dataclass(frozen=True, eq=False)
class Thumbnail:
    """A small stack of grey values from all over a volume."""

    values: Array  # (z, y, x), as they are
    means: Float32s  # (z, y, x): means of the voxels around each
    spacing: tuple[float, float, float]  # of the stack, in smallest voxels
    depth: int  # slices of the volume
    padded: Mask  # (z, y, x): where it is filled in
    padding: float | None = None  # and with which value


def make_thumbnail(volume: Volume, slices: int = SLICES) -> Thumbnail:
    """Read a small stack of a volume, 2D or 3D: its first slice, its last, and some in between.

    And see where it is filled in with one value, in three more slices at most. `slices`: how many
    are read for the stack at most.
    """
    spacing = (min(volume.spacing),) * (3 - volume.n_spatial) + volume.spacing
    depth, height, width = (1,) * (3 - volume.n_spatial) + volume.shape
    places = np.unique(np.linspace(0, depth - 1, min(depth, slices)).round().astype(int))
    side = max(height, width)
    every = max(1, side // _READ)
    block = math.ceil(math.ceil(side / every) / PIXELS)
    cut = (slice(None, None, every),) * 2
    values, averaging = [], []
    with ThreadPoolExecutor(cpu_threads(), "hushpore-thumbnail") as pool:
        for place in places.tolist():
            at = (place, *cut) if volume.n_spatial == 3 else cut
            plane = np.asarray(volume.data[at])
            values.append(plane[::block, ::block])
            averaging.append(pool.submit(_block_means, plane, block))
        means = [each.result() for each in averaging]
    step = every * block
    unit = min(spacing)
    along = (depth - 1) / max(1, len(places) - 1) if depth > 1 else 1.0
    steps = (along * spacing[0] / unit, step * spacing[1] / unit, step * spacing[2] / unit)
    stack = np.stack(values)
    nowhere = np.zeros(stack.shape, np.bool_)
    small = Thumbnail(stack, np.stack(means), steps, depth, nowhere)
    padded, padding = _find_padding(small, volume)
    return dataclasses.replace(small, padded=padded, padding=padding)


def axes_of(void: Mask) -> tuple[int, ...]:
    """Return the axes along which it is looked through a thumbnail: of few slices along z alone."""
    return (0, 1, 2) if len(void) >= 8 else (0,)


def _block_means(plane: Array, block: int) -> Float32s:
    """Return means of blocks of pixels, and of what is around each; against noise."""
    from scipy import ndimage

    counts = [np.minimum(block, n - np.arange(0, n, block)) for n in plane.shape]
    # what is not finite is said later, by name
    with np.errstate(all="ignore"):
        sums = _sums_of_rows(_sums_of_rows(plane, block).T, block).T
        means = sums / np.multiply.outer(*counts)
        smooth: Float32s
        smooth = ndimage.uniform_filter(means.astype(np.float32), 3, mode="nearest")
    return smooth


def _sums_of_rows(values: Array, block: int) -> Float64s:
    """Return the sums of so many rows at a time, in a tenth of the time of `numpy.add.reduceat`."""
    sums = values[::block].astype(np.float64)
    for place in range(1, block):
        more = values[place::block]
        sums[: len(more)] += more
    return sums


def void_of(small: Thumbnail, settings: PoreSettings) -> Mask | None:
    """Return the void of a thumbnail, roughly; None where a method finds no threshold."""
    if small.values.dtype == np.bool_:
        return small.means > 0.5
    threshold = threshold_of(small, settings)
    if threshold is None:
        return None
    if settings.pores_are == "bright":
        return small.means > threshold
    return small.means <= threshold


def threshold_of(small: Thumbnail, settings: PoreSettings) -> float | None:
    """Return the threshold of a thumbnail, roughly; None where a method finds none."""
    method, classes = settings.threshold, settings.otsu_classes
    if not isinstance(method, str):
        return float(method)
    if settings.is_local:
        method, classes = "otsu", 2
    try:
        histogram = histogram_of(small.values[~small.padded])
        return find_any_threshold(histogram, method, classes, settings.pores_are == "bright")
    except InputError:
        return None


def spread(depth: int) -> Int64s:
    """Return some slices of a thumbnail, from the first to the last."""
    return np.unique(np.linspace(0, depth - 1, min(depth, 5)).round().astype(np.int64))


def histogram_of(values: Array) -> Histogram:
    """Count the grey values of a thumbnail.

    Raises InputError if there are no two.
    """
    if values.size == 0 or values.min() == values.max():
        raise InputError("There are no two grey values.")
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind in "iu" and high - low < 1 << 16:
        wide = values.astype(f"{values.dtype.kind}8")
        counts = np.bincount((wide - wide.min()).astype(np.int64).ravel())
        return Histogram(counts, low + np.arange(counts.size, dtype=np.float64))
    # in half precision there are not as many numbers as bins
    wide = values.astype(np.promote_types(values.dtype, np.float32))
    counts, edges = np.histogram(wide, _BINS, (low, high))
    return Histogram(counts.astype(np.int64), (edges[:-1] + edges[1:]) / 2)


def _find_padding(small: Thumbnail, volume: Volume) -> tuple[Mask, float | None]:
    """Return where a thumbnail is filled in with one value, and which that is."""
    values = small.values
    nothing = np.zeros(values.shape, np.bool_)
    if values.dtype == np.bool_ or not np.isfinite(small.means).all():
        return nothing, None
    for value in possible_fill_values(values, volume.metadata):
        padded: Mask = values == value
        if padded.mean() < _LEAST_SHARE or padded.all():
            continue
        if value != stated_fill_value(volume.metadata) and _may_be_a_pore(
            padded, value, values.dtype
        ):
            continue
        ways = (is_around(padded, nothing, axis, small.spacing) for axis in axes_of(padded))
        if any(ways) and is_fill_value(volume, value):
            return padded, value
    return nothing, None


def _may_be_a_pore(padded: Mask, value: float, dtype: np.dtype[Any]) -> bool:
    """Whether one value is that of a pore at the rim, whose grey values were cut off there.

    They are at an end of the type, or at 0; and what is filled in, around whatever was measured,
    is in most corners.
    """
    ends = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else ()
    corners = padded[[0, -1]][:, [0, -1]][:, :, [0, -1]]
    return value in (0, *ends) and bool(corners.mean() < _CORNERS)


def is_around(void: Mask, padded: Mask, axis: int, spacing: tuple[float, ...]) -> bool:
    """Whether void lies around the rest, but for what is filled in, as it is seen along an axis."""
    from scipy import ndimage

    least = max(1, round(0.03 * void.shape[axis]))
    if min(n for place, n in enumerate(void.shape) if place != axis) < _LEAST_SIDE:
        return False
    # in 16 bits, in less than half of the time
    empty = (~void).sum(axis=axis, dtype=np.int16) < least
    inside = (~padded).sum(axis=axis, dtype=np.int16) >= least
    # of which the disc reaches a part
    least_air = _LEAST_SHARE * np.count_nonzero(inside)
    if np.count_nonzero(empty & inside) < least_air:
        return False
    sides = tuple(step for place, step in enumerate(spacing) if place != axis)
    radius = DISC * min(n * step for n, step in zip(empty.shape, sides, strict=True))
    outside = roll(empty, sides, radius)
    air = outside & inside
    if np.count_nonzero(air) < least_air:
        return False
    depth = ndimage.distance_transform_edt(empty, sampling=sides)
    deepest = depth[air].max()
    if deepest < _LEAST_DEPTH * min(sides):
        return False
    within = (slice(_RIM, -_RIM),) * 2
    is_free = np.count_nonzero(empty) - np.count_nonzero(empty[within]) == (
        empty.size - empty[within].size
    )
    return bool(is_free or deepest >= _DEEPER * depth[~outside].max(initial=0.0))


def roll(empty: Mask, sides: tuple[float, ...], radius: float) -> Mask:
    """Return what of the empty a disc comes to cover that is rolled over a silhouette from outside.

    As `hushpore.pores.void.rolling_ball.mark_outside` does in a slice, of an image so small that no
    kernel need be compiled for it.
    """
    from scipy import ndimage

    margin = [(math.floor(radius / side) + 1,) * 2 for side in sides]
    around = np.pad(empty, margin, constant_values=True)
    if around.all():
        return empty.copy()
    centres = ndimage.distance_transform_edt(around, sampling=sides) > radius
    parts, _ = ndimage.label(centres)
    away = ndimage.distance_transform_edt(parts != parts[0, 0], sampling=sides)
    inner = tuple(slice(m, m + n) for (m, _), n in zip(margin, empty.shape, strict=True))
    covered: Mask = (away[inner] <= radius) & empty
    return covered


def rolled(planes: Mask, small: Thumbnail, radius: float) -> Mask:
    """Return what a ball covers in slices of a thumbnail, in which it is no smaller than pixels."""
    sides = small.spacing[1:]
    ball = max(radius, BLUNT * min(sides))
    return np.stack([roll(plane, sides, ball) for plane in planes])
