"""Thumbnail: a small stack of grey values sampled from a volume, for quick checks.

It shows the padding of a volume, roughly its void, and whether the void surrounds the sample.
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
from hushpore.pores.void.histogram import Histogram, find_threshold

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings

#: Maximum number of slices of a thumbnail.
SLICES = 24

#: Pixels along the longer side of a slice; each is the mean of a block.
PIXELS = 160

#: Maximum number of pixels that are read along one side of a slice.
_READ = 1024

#: Radius of the disc that is rolled over a silhouette, relative to its shorter side.
DISC = 0.25

#: Minimum fraction of a silhouette for air, or of a thumbnail for padding.
_LEAST_SHARE = 0.01

#: Minimum depth of the air around a silhouette, in pixels.
_LEAST_DEPTH = 2.5

#: Minimum side length of a silhouette, in pixels.
_LEAST_SIDE = 16

#: Minimum depth of the air relative to the openings inside a silhouette.
_DEEPER = 3.0

#: Width of an empty rim, in pixels, that is accepted instead of that depth.
_RIM = 3

#: Minimum radius of a disc, in pixels.
BLUNT = 1.5

#: Minimum fraction of the corners of a volume in padding, if its value could be that of a pore.
_CORNERS = 0.75

#: Number of bins for values that are not counted exactly.
_BINS = 1024


@dataclass(frozen=True, eq=False)
class Thumbnail:
    """Small stack of grey values sampled from a volume."""

    values: npt.NDArray[Any]  # (z, y, x), sampled
    means: npt.NDArray[np.float32]  # (z, y, x): means of the surrounding blocks
    spacing: tuple[float, float, float]  # of the thumbnail, in smallest voxels
    depth: int  # number of slices of the volume
    padded: npt.NDArray[np.bool_]  # (z, y, x): where padding is
    padding: float | None = None  # grey value of the padding; None if there is none


def make_thumbnail(volume: Volume, slices: int = SLICES) -> Thumbnail:
    """Read a thumbnail of a 2D or 3D volume: first slice, last slice, and slices in between.

    Padding is checked in at most three more slices. `slices`: maximum number of slices.
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


def axes_of(void: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the axes along which silhouettes are taken: only z if there are few slices."""
    return (0, 1, 2) if len(void) >= 8 else (0,)


def _block_means(plane: npt.NDArray[Any], block: int) -> npt.NDArray[np.float32]:
    """Return means of blocks of pixels, smoothed against noise."""
    from scipy import ndimage

    counts = [np.minimum(block, n - np.arange(0, n, block)) for n in plane.shape]
    # what is not finite is said later, by name
    with np.errstate(all="ignore"):
        sums = _sums_of_rows(_sums_of_rows(plane, block).T, block).T
        means = sums / np.multiply.outer(*counts)
        smooth: npt.NDArray[np.float32]
        smooth = ndimage.uniform_filter(means.astype(np.float32), 3, mode="nearest")
    return smooth


def _sums_of_rows(values: npt.NDArray[Any], block: int) -> npt.NDArray[np.float64]:
    """Return the sums of `block` rows each; ten times as fast as `numpy.add.reduceat`."""
    sums = values[::block].astype(np.float64)
    for place in range(1, block):
        more = values[place::block]
        sums[: len(more)] += more
    return sums


def void_of(small: Thumbnail, settings: PoreSettings) -> npt.NDArray[np.bool_] | None:
    """Return the approximate void of a thumbnail; None if a method finds no threshold."""
    if small.values.dtype == np.bool_:
        return small.means > 0.5
    threshold = threshold_of(small, settings)
    if threshold is None:
        return None
    if settings.pores_are == "bright":
        return small.means > threshold
    return small.means <= threshold


def threshold_of(small: Thumbnail, settings: PoreSettings) -> float | None:
    """Return the approximate threshold of a thumbnail; None if a method finds none."""
    method, classes = settings.threshold, settings.otsu_classes
    if not isinstance(method, str):
        return float(method)
    if settings.is_local:
        method, classes = "otsu", 2
    try:
        histogram = histogram_of(small.values[~small.padded])
        return find_threshold(histogram, method, classes, settings.pores_are == "bright")
    except InputError:
        return None


def spread(depth: int) -> npt.NDArray[np.int64]:
    """Return the indices of up to five slices, evenly spread from first to last."""
    return np.unique(np.linspace(0, depth - 1, min(depth, 5)).round().astype(np.int64))


def histogram_of(values: npt.NDArray[Any]) -> Histogram:
    """Count the grey values of a thumbnail.

    Raises InputError if they are constant.
    """
    if values.size == 0 or values.min() == values.max():
        raise InputError("All grey values are the same.")
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind in "iu" and high - low < 1 << 16:
        wide = values.astype(f"{values.dtype.kind}8")
        counts = np.bincount((wide - wide.min()).astype(np.int64).ravel())
        return Histogram(counts, low + np.arange(counts.size, dtype=np.float64))
    # in half precision there are not as many numbers as bins
    wide = values.astype(np.promote_types(values.dtype, np.float32))
    counts, edges = np.histogram(wide, _BINS, (low, high))
    return Histogram(counts.astype(np.int64), (edges[:-1] + edges[1:]) / 2)


def _find_padding(small: Thumbnail, volume: Volume) -> tuple[npt.NDArray[np.bool_], float | None]:
    """Return the padding in a thumbnail (z, y, x), and its grey value."""
    values = small.values
    nothing = np.zeros(values.shape, np.bool_)
    if values.dtype == np.bool_ or not np.isfinite(small.means).all():
        return nothing, None
    for value in possible_fill_values(values, volume.metadata):
        padded: npt.NDArray[np.bool_] = values == value
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


def _may_be_a_pore(padded: npt.NDArray[np.bool_], value: float, dtype: np.dtype[Any]) -> bool:
    """Return whether one value may be a pore at the rim with clipped grey values, not padding.

    Clipped values are 0 or a limit of the type, and padding fills most corners.
    """
    ends = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else ()
    corners = padded[[0, -1]][:, [0, -1]][:, :, [0, -1]]
    return value in (0, *ends) and bool(corners.mean() < _CORNERS)


def is_around(
    void: npt.NDArray[np.bool_],
    padded: npt.NDArray[np.bool_],
    axis: int,
    spacing: tuple[float, ...],
) -> bool:
    """Return whether void surrounds the sample, apart from padding, as seen along an axis."""
    from scipy import ndimage

    least = max(1, round(0.03 * void.shape[axis]))
    if min(n for place, n in enumerate(void.shape) if place != axis) < _LEAST_SIDE:
        return False
    # 16 bits: more than twice as fast
    empty = (~void).sum(axis=axis, dtype=np.int16) < least
    inside = (~padded).sum(axis=axis, dtype=np.int16) >= least
    # the disc reaches only a part of it
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


def roll(
    empty: npt.NDArray[np.bool_], sides: tuple[float, ...], radius: float
) -> npt.NDArray[np.bool_]:
    """Return the empty pixels that a disc covers as it is rolled over a silhouette from outside.

    Like `hushpore.pores.slab_steps.mark_exterior` in a slice, but for images so small that
    compiling a kernel does not pay.
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
    covered: npt.NDArray[np.bool_] = (away[inner] <= radius) & empty
    return covered


def rolled(planes: npt.NDArray[np.bool_], small: Thumbnail, radius: float) -> npt.NDArray[np.bool_]:
    """Return what a disc of at least `BLUNT` pixels covers in slices of a thumbnail."""
    sides = small.spacing[1:]
    ball = max(radius, BLUNT * min(sides))
    return np.stack([roll(plane, sides, ball) for plane in planes])
