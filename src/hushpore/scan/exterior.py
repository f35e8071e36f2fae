"""Air and padding around a sample, found quickly in a thumbnail of the volume.

A scan may show a whole core in air, a block cut out of one, or a foam whose void reaches all faces.
Only with air around the sample do whole bundles of lines along an axis cross the volume at its rim
without meeting solid, and these bundles are wider than any path through the pores. So the solid of
some slices is projected along each axis, and a disc a quarter as wide as the volume is rolled over
this silhouette from outside; it is too large to enter pores.

Voxels outside a round field of view are often padded with one value, which is recognised because
it surrounds the rest and no similar value occurs beside it.
"""

from __future__ import annotations

import dataclasses
import itertools
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
    from hushpore.base.arrays import Array, Float32s, Int64s, Mask
    from hushpore.base.volume import Volume

    S = TypeVar("S", bound=VoidSettings)

#: Maximum number of slices in a thumbnail.
SLICES = 24

#: Maximum number of pixels along the longer side of its slices; pixels are means of blocks.
PIXELS = 160

#: Maximum number of pixels read along one side of a slice.
_READ = 1024

#: Radius of the disc that is rolled over a silhouette, as a share of its shorter side.
DISC = 0.25

#: Minimum share of air in a silhouette, or of padding in a thumbnail.
_LEAST_SHARE = 0.01

#: Minimum depth of the air around a silhouette, in pixels.
_LEAST_DEPTH = 2.5

#: Minimum side length of a silhouette, in pixels.
_LEAST_SIDE = 16

#: Minimum ratio of the depth of the air to that of empty regions inside a silhouette.
_DEEPER = 3.0

#: Width of the rim, in pixels, to which the empty pixels may be confined instead.
_RIM = 3

#: Minimum radius of a disc, in pixels.
BLUNT = 1.5

#: Minimum share of padded corners if the padding value may also be that of a pore.
_CORNERS = 0.75

#: Voxels of a slice above which no mask is recognised, since it cannot be segmented; and voxels
#: that are examined at a time.
_MOST_IN_SLICE, _AT_A_TIME = 1 << 29, 1 << 22

#: Number of bins for values that are not counted level by level.
_BINS = 1024
#: Number of them below which the thumbnail is counted without a few voxels far outside.
_HIDDEN = 32


@dataclass(frozen=True, eq=False)
class Thumbnail:
    """A small stack of grey values from all over a volume."""

    values: Array  # (z, y, x): single voxels
    means: Float32s  # (z, y, x): means of the neighbourhood of each
    spacing: tuple[float, float, float]  # of the stack, in smallest voxels
    depth: int  # slices of the volume
    padded: Mask  # (z, y, x): voxels of the padding
    padding: float | None = None  # value of the padding
    only_values: tuple[float, float] | None = None  # if the volume has only two

    @property
    def is_mask(self) -> bool:
        """Whether there are only two values, and they are those of masks."""
        return self.only_values is not None and are_of_mask(*self.only_values)


def are_of_mask(low: float, high: float) -> bool:
    """Return whether the only two values of an image are those of a mask, rather than of a scan."""
    return low == 0 or (low, high) == (1, 2)


def make_thumbnail(volume: Volume, slices: int = SLICES) -> Thumbnail:
    """Read a small stack of a volume, 2D or 3D: its first slice, its last, and some in between.

    The padding is also found, for which up to three more slices are read. `slices`: maximum number
    of slices in the stack.
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
    if only_values := _only_values(stack, volume):
        return dataclasses.replace(small, only_values=only_values)
    padded, padding = _find_padding(small, volume)
    return dataclasses.replace(small, padded=padded, padding=padding)


def _only_values(sampled: Array, volume: Volume) -> tuple[float, float] | None:
    """Return the values of a volume if it has only two; `sampled`: values of some of its voxels."""
    if sampled.dtype == np.bool_ or not sampled.size:
        return (0.0, 1.0) if sampled.size else None
    found: set[Any] = set()
    plane, depth = math.prod(volume.shape[1:]), volume.shape[0]
    step = max(1, _AT_A_TIME // max(1, plane))
    starts = range(0, depth if plane <= _MOST_IN_SLICE else 0, step)
    parts = (np.asarray(volume.data[at : at + step]) for at in starts)
    for part in itertools.chain([sampled], parts):
        low, high = part.min(), part.max()
        found |= {low.item(), high.item()}
        if len(found) > 2 or np.any((part != low) & (part != high)):
            return None
    return (min(found), max(found)) if len(found) == 2 else None


def axes_of(void: Mask) -> tuple[int, ...]:
    """Return the axes along which a thumbnail is projected: with few slices only z."""
    return (0, 1, 2) if len(void) >= 8 else (0,)


def _block_means(plane: Array, block: int) -> Float32s:
    """Return the means of blocks of pixels, smoothed against noise."""
    from scipy import ndimage

    counts = [np.minimum(block, n - np.arange(0, n, block)) for n in plane.shape]
    # values that are not finite raise an error later
    with np.errstate(all="ignore"):
        sums: Array = plane
        # ten times as fast as `numpy.add.reduceat`: rows, and then columns
        for _ in range(2):
            rows = sums[::block].astype(np.float64)
            for place in range(1, block):
                more = sums[place::block]
                rows[: len(more)] += more
            sums = rows.T
        means = sums / np.multiply.outer(*counts)
        smooth: Float32s
        smooth = ndimage.uniform_filter(means.astype(np.float32), 3, mode="nearest")
    return smooth


def void_of(
    small: Thumbnail, settings: VoidSettings, threshold: float | None = None
) -> Mask | None:
    """Return the approximate void of a thumbnail; None if the method finds no threshold.

    `threshold`: as `threshold_of` finds it, if it is known.
    """
    if small.only_values:
        is_high: Mask = small.means > sum(small.only_values) / 2
        return is_high if settings.are_bright(small.values.dtype) else ~is_high
    if threshold is None:
        threshold = threshold_of(small, settings)
    if threshold is None:
        return None
    if settings.pores_are == "bright":
        return small.means > threshold
    return small.means <= threshold


def threshold_of(small: Thumbnail, settings: VoidSettings) -> float | None:
    """Return the approximate threshold in a thumbnail; None if the method finds none."""
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


def grown(mask: Mask, by: int = 1) -> Mask:
    """Return a mask (z, y, x) with all pixels within squares of `by` pixels around, slice by slice.

    The same as SciPy's dilation in a tenth of the time.
    """
    for axis in (1, 2):
        before, mask = np.moveaxis(mask, axis, 0), mask.copy()
        after = np.moveaxis(mask, axis, 0)
        for step in range(1, by + 1):
            after[step:] |= before[:-step]
            after[:-step] |= before[step:]
    return mask


def spread(depth: int) -> Int64s:
    """Return up to five slices of a thumbnail, evenly spaced from the first to the last."""
    return np.unique(np.linspace(0, depth - 1, min(depth, 5)).round().astype(np.int64))


def histogram_of(values: Array) -> Histogram:
    """Count the grey values of a thumbnail.

    Raises InputError if there are fewer than two.
    """
    if values.size == 0 or values.min() == values.max():
        raise InputError("There are no two grey values.")
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind in "iu" and high - low < 1 << 16:
        # differences that wrap around are right as numbers without a sign
        above = (values - values.min()).view(f"u{values.dtype.itemsize}")
        counts = np.bincount(above.ravel().astype(np.int64))
        return Histogram(counts, low + np.arange(counts.size, dtype=np.float64))
    # half precision has fewer numbers than there are bins, and single precision far from zero
    is_coarse = high - low < 4 * _BINS * np.spacing(np.float32(max(abs(low), abs(high))))
    wide = values.astype(np.promote_types(values.dtype, np.float64 if is_coarse else np.float32))
    counts, edges = np.histogram(wide, _BINS, (low, high))
    found = Histogram(counts.astype(np.int64), (edges[:-1] + edges[1:]) / 2)
    if ends := found.core(_HIDDEN):
        # one at a time: the rest may hide others
        inside = wide[(wide >= ends[0]) & (wide <= ends[1])]
        return histogram_of(inside) if inside.min() < inside.max() else found
    return found


def _find_padding(small: Thumbnail, volume: Volume) -> tuple[Mask, float | None]:
    """Return the padded voxels of a thumbnail, and the value of the padding."""
    values = small.values
    nothing = np.zeros(values.shape, np.bool_)
    if not np.isfinite(small.means).all():
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
    """Whether voxels of one value may be a pore at the rim whose grey values were clipped.

    Clipped values are 0 or an end of the dtype, and padding, unlike a pore, fills most corners.
    """
    ends = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else ()
    corners = padded[[0, -1]][:, [0, -1]][:, :, [0, -1]]
    return value in (0, *ends) and bool(corners.mean() < _CORNERS)


def is_around(void: Mask, padded: Mask, axis: int, spacing: tuple[float, ...]) -> bool:
    """Whether void surrounds the rest, apart from padding, in the projection along an axis."""
    from scipy import ndimage

    least = max(1, round(0.03 * void.shape[axis]))
    if min(n for place, n in enumerate(void.shape) if place != axis) < _LEAST_SIDE:
        return False
    # 16 bits take less than half the time
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


def roll(empty: Mask, sides: tuple[float, ...], radius: float) -> Mask:
    """Return the empty pixels that a disc covers when rolled over a silhouette from outside.

    The same as `hushpore.pores.void.components.mark_outside` in a slice, without compiled kernels.
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
    """Return the pixels that a disc of at least `BLUNT` pixels covers in slices of a thumbnail."""
    sides = small.spacing[1:]
    ball = max(radius, BLUNT * min(sides))
    return np.stack([roll(plane, sides, ball) for plane in planes])


#: Minimum contrast of solid and air, in widths of the middle 80 % of the values of air.
_EVEN = 2.5

#: Maximum share of the hull that a ball may enter.
_TAKEN = 0.1

#: Maximum share of void in the remaining sample if the ball enters more than that.
_HOLLOW = 0.25

#: Minimum width of openings that it may enter all the same, in radii of the ball.
_WIDE = 3.0

#: Minimum number of solid voxels from which a drift is determined.
_FEWEST = 1000

#: Approximate maximum number of them.
_SAMPLED = 20_000

#: Maximum deviation of a voxel that counts for the drift, in median deviations.
_ODD = 8.0

#: Blocks along each axis by which a drift is distinguished from a coarse texture.
_BLOCKS = 6

#: Minimum ratio of a drift to the deviation of blocks from it.
_CLEAR = 4.0

#: Minimum drift that is reported, as a share of the contrast of solid and void.
_UNEVEN = 0.15

#: Minimum ratio of the void with a wider ball to that with this one that is reported.
_CUT_OFF = 1.1


class Exterior(NamedTuple):
    """The exterior of a sample, and how it is treated."""

    treatment: str  # ``"keep"``, ``"remove"`` or ``"remove-slicewise"``, as the setting says it
    radius: float  # of the ball that finds the air, in voxels
    share: float = 0.0  # approximate share of the volume that is excluded
    padding: float | None = None  # value of the padding; None without padding
    kept: float = 0.0  # approximate share of the volume that is air and counts
    gain: float = 1.0  # ratio of the void with the widest ball to that with this one
    widest: float = 0.0  # radius of the widest ball; 0 if it makes no difference
    drift: float = 0.0  # of the solid, as a share of the contrast; 0 if small
    groups: tuple[float, float] | None = None  # grey values of two groups of void, if any
    pores_are: str = "dark"  # or ``"bright"``, as decided
    only_values: tuple[float, float] | None = None  # if the volume has only two

    def apply(self, settings: S) -> S:
        """Return settings with this treatment of the exterior and choice of the pores."""
        return dataclasses.replace(
            settings, exterior=self.treatment, ball_radius=self.radius, pores_are=self.pores_are
        )


def values_of_sample(volume: Volume, slices: int) -> Array:
    """Return some grey values of a sample, without the exterior.

    `volume`: 2D or 3D. `slices`: maximum number to read, at least 4.
    Returns: (n,), of the type of the volume.
    """
    small = make_thumbnail(volume, slices - 3)
    settings = VoidSettings()
    around = find_exterior(volume, settings, small)
    left_out = small.padded
    left_out = left_out | outside_of_thumbnail(small, settings, around)
    # the rim belongs to neither
    values: Array = small.values[~grown(left_out, 2)]
    # a single value could not be shown
    return values if values.size and values.min() < values.max() else small.values.ravel()


def outside_of_thumbnail(small: Thumbnail, settings: VoidSettings, exterior: Exterior) -> Mask:
    """Return the air around the sample in a thumbnail, (z, y, x), bool."""
    void = None if exterior.treatment == "keep" else void_of(small, exterior.apply(settings))
    if void is None:
        return np.zeros(small.padded.shape, np.bool_)
    return rolled(void | small.padded, small, exterior.radius)


def find_exterior(
    volume: Volume, settings: VoidSettings, thumbnail: Thumbnail | None = None
) -> Exterior:
    """Find the exterior of a sample; `volume`: 2D or 3D.

    `thumbnail`: of the volume, if there is one already.
    Returns: the exterior, and which phase the pores are. Its treatment is that of the settings, if
    they decide; else ``"keep"`` if no air or threshold was found, or a mask defines the sample.
    Padding is excluded, too, unless the settings keep air.
    """
    small = thumbnail or make_thumbnail(volume)
    if settings.pores_are == "auto":
        phase = "bright" if small.is_mask else "dark"
        settings = dataclasses.replace(settings, pores_are=phase)
    outside = settings.exterior if settings.removes_air else "keep"
    nothing = Exterior(
        outside, settings.ball_radius, pores_are=settings.pores_are, only_values=small.only_values
    )
    padded = nothing._replace(share=float(small.padded.mean()), padding=small.padding)
    if settings.sample_mask or not np.isfinite(small.means).all():
        return padded
    threshold = None if small.values.dtype == np.bool_ else threshold_of(small, settings)
    void = void_of(small, settings, threshold)
    drift = 0.0 if void is None or settings.is_local else _find_drift(void, small)
    padded = padded._replace(drift=drift)
    found = padded
    if void is not None and not settings.removes_air:
        found = _find_air(void | small.padded, small, padded)
    radius = 0.0 if found.treatment == "keep" else found.radius
    groups = None
    if void is not None and threshold is not None:
        groups = _find_groups(void, small, settings, threshold, radius)
    if settings.keeps_all:
        # the settings are followed, and the air is reported
        kept = 0.0 if found.treatment == "keep" else found.share
        return nothing._replace(kept=kept, drift=drift, groups=groups)
    return found._replace(groups=groups)


def _find_drift(void: Mask, small: Thumbnail) -> float:
    """Return how far the grey value of the solid drifts, for example by beam hardening.

    A parabola is fitted to the grey values of the solid; the drift is the range of its middle 90 %
    as a share of the contrast between solid and void. 0 if it is small or not known.
    """
    values = small.values
    # voxels beside void are partly void, and those at the faces may be beside some
    solid = ~grown(void | small.padded)[:, 1:-1, 1:-1]
    chosen = np.flatnonzero(solid)
    chosen = chosen[:: max(1, len(chosen) // _SAMPLED)]
    places = (np.array([[0], [1], [1]]) + np.unravel_index(chosen, solid.shape)).T
    dark = values[void & ~small.padded]
    if values.dtype == np.bool_ or len(places) < _FEWEST or not dark.size:
        return 0.0
    grey = values[tuple(places.T)].astype(np.float64)
    middle = float(np.median(grey))
    # without grains of another material
    usual = np.abs(grey - middle) <= _ODD * np.median(np.abs(grey - middle))
    at = places / (np.array([max(n, 2) for n in values.shape]) - 1.0) - 0.5
    design = np.column_stack([np.ones(len(at)), at, at**2])
    fitted = design @ np.linalg.lstsq(design[usual], grey[usual])[0]
    low, high = np.percentile(fitted, (5, 95))
    # blocks that deviate as much from the parabola are a coarse texture
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
    void: Mask, small: Thumbnail, settings: VoidSettings, threshold: float, radius: float
) -> tuple[float, float] | None:
    """Return the grey values of two groups of pore voxels, if the threshold of a method left two.

    `radius`: of the ball that finds the air around the sample; 0 without air. Air and small pores
    would be two groups as well, so they are examined separately.
    """
    if not isinstance(settings.threshold, str) or settings.is_local or settings.otsu_classes != 2:
        return None
    places = slice(None) if not radius else spread(len(void))
    values, padded, void = small.values[places], small.padded[places], void[places]
    outside = np.zeros(void.shape, np.bool_)
    if radius:
        outside = rolled(void | padded, small, radius)
    solid = ~void & ~padded
    # voxels beside solid are partly solid, and no group
    pure = ~grown(~void) & ~padded
    for part in (pure & ~outside, pure & outside):
        if part.any() and solid.any():
            histogram = histogram_of(values[part | solid])
            found = two_groups(histogram, threshold, settings.pores_are == "bright")
            if found is not None:
                return found
    return None


def _find_air(void: Mask, small: Thumbnail, nothing: Exterior) -> Exterior:
    """Return the air around a sample and its treatment; `nothing` if there is none."""
    padded = small.padded
    if void.all() or not any(is_around(void, padded, at, small.spacing) for at in axes_of(void)):
        return nothing
    radius, outside, places, hull, widest = _fitting_ball(void, small, nothing.radius)
    # means beside padding or solid are partly of it
    mixed = grown(padded[places], 2) | grown(~void[places])
    shown = small.means[places], outside & ~mixed, ~void[places]
    if small.values.dtype != np.bool_ and not _is_even(*shown):
        return nothing
    # whole slices may be padding
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
    """Return the radius of a ball that stays outside the sample, and the pixels that it covers.

    Also returned: the slices of the thumbnail that were examined, the hull that the widest ball
    leaves in them, and the radius of that ball.

    A ball that fits through the pores of a foam enters it deeply and leaves struts thinner than
    the paths it took; then the radius is doubled until it does not.
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
    """Whether air has one grey value, unlike the darker side of an uneven background."""
    if not air.any() or not solid.any():
        return True
    low, middle, high = np.percentile(values[air], (10, 50, 90))
    return bool(abs(np.median(values[solid]) - middle) >= _EVEN * (high - low))
