"""What lies around a sample, found quickly in some of the grey values: air, and filled-in voxels.

A scan may show a whole core in air, a block cut out of one, or a foam whose void reaches all faces.
What tells them apart is seen along lines: where there is air around a sample, whole bundles of
lines go through the volume without meeting any solid, at its rim, and wider than any way through
the pores. So the solid of some slices is projected along each axis, and a disc a quarter as wide as
the volume is rolled over its silhouette from outside, into which pores do not let it.

Voxels outside a round field of view are often filled in with one value, which is no grey value of
anything. They are known by that: one value, around the rest, with nothing like it beside them.
"""

from __future__ import annotations

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.fill_value import is_fill_value, possible_fill_values, stated_fill_value
from hushpore.device.backend import cpu_threads
from hushpore.scan.histogram import Histogram, find_any_threshold, two_groups
from hushpore.scan.settings import VoidSettings

if TYPE_CHECKING:
    from hushpore.base.arrays import Array, Float32s, Float64s, Int64s, Mask
    from hushpore.base.volume import Volume

    S = TypeVar("S", bound=VoidSettings)

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


def void_of(small: Thumbnail, settings: VoidSettings) -> Mask | None:
    """Return the void of a thumbnail, roughly; None where a method finds no threshold."""
    if small.values.dtype == np.bool_:
        return small.means > 0.5
    threshold = threshold_of(small, settings)
    if threshold is None:
        return None
    if settings.pores_are == "bright":
        return small.means > threshold
    return small.means <= threshold


def threshold_of(small: Thumbnail, settings: VoidSettings) -> float | None:
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

    As `hushpore.pores.void.components.mark_outside` does in a slice, of an image so small that no
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


#: Distance of the grey values of solid from those of air, in widths of the middle 80 % of these.
_EVEN = 2.5

#: Share of a sample that a ball may take where a much larger one does not get.
_TAKEN = 0.1

#: Share of what a ball leaves that may be void where it takes more than that.
_HOLLOW = 0.25

#: Width of ways into which it may get all the same, in radii of the ball.
_WIDE = 3.0

#: Places in the solid of which a drift of its grey is found at the least.
_FEWEST = 1000

#: And about at most: more take time, and tell nothing more.
_SAMPLED = 20_000

#: Median deviations from the middle up to which the grey of a place counts for a drift.
_ODD = 8.0

#: Blocks along each axis by which a drift is told from a coarse texture.
_BLOCKS = 6

#: How much larger a drift is than what blocks deviate from it.
_CLEAR = 4.0

#: Drift, as a share of what parts the solid from the void, that is worth a word.
_UNEVEN = 0.15

#: How many times as much void a wider ball leaves that is worth a word.
_CUT_OFF = 1.1


class Exterior(NamedTuple):
    """What lies around a sample, and what to do with it."""

    treatment: str  # ``"keep"``, ``"remove"`` or ``"remove-slicewise"``, as the setting says it
    radius: float  # of the ball that finds the air, in voxels
    share: float = 0.0  # which share of the volume is left out, about
    padding: float | None = None  # value of voxels that are filled in; None where none are
    kept: float = 0.0  # which share of the volume is air that counts, about
    gain: float = 1.0  # how many times as much of the sample is void for a ball as wide as may be
    widest: float = 0.0  # its radius; 0 where that makes no odds
    drift: float = 0.0  # of the solid's grey, for what parts it from the void; 0 where it is little
    groups: tuple[float, float] | None = None  # grey values of the void, if they are of two groups

    def apply(self, settings: S) -> S:
        """Return settings that say themselves what to do with the air."""
        return dataclasses.replace(settings, exterior=self.treatment, ball_radius=self.radius)


def values_of_sample(volume: Volume, slices: int) -> Array:
    """Return some grey values of a sample, and none of what is around it.

    `volume`: 2D or 3D. `slices`: how many are read at most, of four at least.
    Returns: (n,), of the type of the volume.
    """
    from scipy import ndimage

    small = make_thumbnail(volume, slices - 3)
    settings = VoidSettings()
    around = find_exterior(volume, settings, small)
    left_out = small.padded
    left_out = left_out | outside_of_thumbnail(small, settings, around)
    # the rim is neither
    left_out = ndimage.binary_dilation(left_out, np.ones((1, 5, 5), np.bool_))
    values: Array = small.values[~left_out]
    # of one value alone nothing would be seen
    return values if values.size and values.min() < values.max() else small.values.ravel()


def outside_of_thumbnail(small: Thumbnail, settings: VoidSettings, exterior: Exterior) -> Mask:
    """Return the air around the sample in a thumbnail, (z, y, x), bool."""
    void = None if exterior.treatment == "keep" else void_of(small, settings)
    if void is None:
        return np.zeros(small.padded.shape, np.bool_)
    return rolled(void | small.padded, small, exterior.radius)


def find_exterior(
    volume: Volume, settings: VoidSettings, thumbnail: Thumbnail | None = None
) -> Exterior:
    """Find what lies around the sample of a volume, 2D or 3D, whose void settings describe.

    `thumbnail`: of the volume, where it is at hand.
    Returns: what to do: what the settings say, where they say it; else ``"keep"`` where nothing is
    found, no threshold is, or a mask says what the sample is. What is filled in is left out too,
    but where air is kept.
    """
    small = thumbnail or make_thumbnail(volume)
    outside = settings.exterior if settings.removes_air else "keep"
    nothing = Exterior(outside, settings.ball_radius)
    padded = nothing._replace(share=float(small.padded.mean()), padding=small.padding)
    if settings.sample_mask or not np.isfinite(small.means).all():
        return padded
    void = void_of(small, settings)
    drift = 0.0 if void is None or settings.is_local else _find_drift(void, small)
    padded = padded._replace(drift=drift)
    found = padded
    if void is not None and not settings.removes_air:
        found = _find_air(void | small.padded, small, padded)
    radius = 0.0 if found.treatment == "keep" else found.radius
    groups = None if void is None else _find_groups(void, small, settings, radius)
    if settings.keeps_all:
        # it is done as it is asked for, and said
        kept = 0.0 if found.treatment == "keep" else found.share
        return nothing._replace(kept=kept, drift=drift, groups=groups)
    return found._replace(groups=groups)


def _find_drift(void: Mask, small: Thumbnail) -> float:
    """Return by how much the grey of the solid differs from place to place, as by beam hardening.

    As a share of what parts it from the void: of a parabola through its grey values, from where
    one in twenty is lower to where one in twenty is higher. 0 where that is little, or cannot be
    told.
    """
    from scipy import ndimage

    values = small.values
    measured = ~small.padded
    # beside void they are in part of that
    solid = ndimage.binary_erosion(~void & measured, np.ones((1, 3, 3), np.bool_))
    places = np.argwhere(solid)
    places = places[:: max(1, len(places) // _SAMPLED)]
    dark = values[void & measured]
    if values.dtype == np.bool_ or len(places) < _FEWEST or not dark.size:
        return 0.0
    grey = values[tuple(places.T)].astype(np.float64)
    middle = float(np.median(grey))
    # some grains of another material are no drift
    usual = np.abs(grey - middle) <= _ODD * np.median(np.abs(grey - middle))
    at = places / (np.array([max(n, 2) for n in values.shape]) - 1.0) - 0.5
    design = np.column_stack([np.ones(len(at)), at, at**2])
    fitted = design @ np.linalg.lstsq(design[usual], grey[usual])[0]
    low, high = np.percentile(fitted, (5, 95))
    # nor is it where blocks differ from that as much: they are of a coarse texture
    block = np.minimum((_BLOCKS * (at + 0.5)).astype(np.int64), _BLOCKS - 1)
    block = np.ravel_multi_index(tuple(block[usual].T), (_BLOCKS,) * 3)
    voxels = np.bincount(block)
    left = np.bincount(block, (grey - fitted)[usual])[voxels > 0]
    texture = math.sqrt(np.sum(left**2 / voxels[voxels > 0]) / voxels.sum())
    apart = abs(middle - float(np.median(dark.astype(np.float64))))
    if high - low < _CLEAR * texture:
        return 0.0
    drift = float(high - low) / apart if apart else 0.0
    return drift if drift >= _UNEVEN else 0.0


def _find_groups(
    void: Mask, small: Thumbnail, settings: VoidSettings, radius: float
) -> tuple[float, float] | None:
    """Return where the grey values of the pores lie, if a method left two groups of them.

    `radius`: of the ball that finds the air around the sample; 0 where there is none. Air and pores
    of few voxels are two groups, too, and are looked at apart.
    """
    from scipy import ndimage

    if not isinstance(settings.threshold, str) or settings.is_local or settings.otsu_classes != 2:
        return None
    threshold = threshold_of(small, settings)
    if threshold is None:
        return None
    places = slice(None) if not radius else spread(len(void))
    values, padded, void = small.values[places], small.padded[places], void[places]
    outside = np.zeros(void.shape, np.bool_)
    if radius:
        outside = rolled(void | padded, small, radius)
    solid = ~void & ~padded
    # beside solid they are in part of that, which is no group
    pure = ndimage.binary_erosion(void, np.ones((1, 3, 3), np.bool_), border_value=1) & ~padded
    for part in (pure & ~outside, pure & outside):
        if part.any() and solid.any():
            histogram = histogram_of(values[part | solid])
            found = two_groups(histogram, threshold, settings.pores_are == "bright")
            if found is not None:
                return found
    return None


def _find_air(void: Mask, small: Thumbnail, nothing: Exterior) -> Exterior:
    """Return what to do with the air around a sample; `nothing` where there is none."""
    from scipy import ndimage

    padded = small.padded
    if void.all() or not any(is_around(void, padded, at, small.spacing) for at in axes_of(void)):
        return nothing
    radius, outside, places, hull, widest = _fitting_ball(void, small, nothing.radius)
    # means beside what is filled in, or solid, are in part of that
    mixed = ndimage.binary_dilation(padded[places], np.ones((1, 5, 5), np.bool_))
    mixed |= ndimage.binary_dilation(~void[places], np.ones((1, 3, 3), np.bool_))
    shown = small.means[places], outside & ~mixed, ~void[places]
    if small.values.dtype != np.bool_ and not _is_even(*shown):
        return nothing
    # whole slices may be filled in
    ends = np.flatnonzero(~padded.all(axis=(1, 2)))[[0, -1]]
    is_cut = small.depth > 1 and not void[ends].all()
    way = "remove-slicewise" if is_cut else "remove"
    measured = ~padded[places]
    own, wide = (
        np.count_nonzero(void[places] & part) / max(int(np.count_nonzero(part)), 1)
        for part in (measured & ~outside, measured & hull)
    )
    around = nothing._replace(treatment=way, radius=radius, share=float(outside.mean()))
    if wide < _CUT_OFF * own or not own:
        return around
    return around._replace(gain=float(wide / own), widest=widest)


def _fitting_ball(
    void: Mask, small: Thumbnail, radius: float
) -> tuple[float, Mask, Int64s, Mask, float]:
    """Return the radius of a ball that does not get inside the sample, and what it covers.

    That in some slices, with their places in the thumbnail; and what in these a ball leaves that
    is as wide as may be, with its radius.

    A ball that fits through the pores of a foam gets far into it, and leaves struts that are
    thinner than what it takes. Twice the radius is tried instead, and so on.
    """
    from scipy import ndimage

    sides = small.spacing[1:]
    places = spread(len(void))
    planes = void[places]
    widest = DISC * min(n * side for n, side in zip(void.shape[1:], sides, strict=True))
    hull = ~np.stack([roll(plane, sides, widest) for plane in planes])
    depth = np.stack([ndimage.distance_transform_edt(each, sampling=sides) for each in planes])
    while True:
        ball = max(radius, BLUNT * min(sides))
        left = ~rolled(planes, small, radius)
        taken = hull & ~left
        if np.count_nonzero(taken) <= _TAKEN * np.count_nonzero(hull) or 2 * radius > widest:
            break
        thick = np.stack([ndimage.distance_transform_edt(each, sampling=sides) for each in left])
        width = np.percentile(depth[taken], 90)
        is_wide = width >= _WIDE * ball
        is_full = np.count_nonzero(planes & left) <= _HOLLOW * np.count_nonzero(left)
        if np.percentile(thick[left], 90) >= width and (is_wide or is_full):
            break
        radius *= 2
    return radius, ~left, places, hull, widest


def _is_even(values: Float32s, air: Mask, solid: Mask) -> bool:
    """Whether air is of one grey value, and not the darker side of a ground of uneven grey."""
    if not air.any() or not solid.any():
        return True
    low, middle, high = np.percentile(values[air], (10, 50, 90))
    return bool(abs(np.median(values[solid]) - middle) >= _EVEN * (high - low))
