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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.filled_in import is_filled_in, possible_paddings, stated_padding
from hushpore.device.backend import cpu_threads
from hushpore.pores.settings import PoreSettings
from hushpore.pores.void.threshold import Histogram, find_threshold, two_groups

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume

#: Slices that are looked at, and pixels along the longer side of each.
SLICES, PIXELS = 24, 160

#: Pixels of a slice that are read along one side at most.
_READ = 1024

#: Radius of the disc that is rolled over a silhouette, as a share of its shorter side.
_DISC = 0.25

#: Share of a silhouette's frame that must be air, and pixels that it must be deep.
_LEAST_SHARE, _LEAST_DEPTH = 0.01, 2.5

#: Pixels that each side of a silhouette must have, to tell anything.
_LEAST_SIDE = 16

#: How far the grey values of solid are from those of air, in widths of the middle 80 % of these.
_EVEN = 2.5

#: How much deeper the air must be than what is empty inside a silhouette; but where there is
#: nothing else along the whole rim, so many pixels wide.
_DEEPER, _RIM = 3.0, 3

#: Share of a sample that a ball may take where a much larger one does not get, and share of what it
#: leaves that may be void where it takes more, but for ways that are so much wider than the ball.
_TAKEN, _HOLLOW, _WIDE = 0.1, 0.25, 3.0

#: Places in the solid of which a drift of its grey is found at the least, and about at most; and in
#: median deviations how far the grey of what counts for it is from the middle.
_FEWEST, _SAMPLED, _ODD = 1000, 20_000, 8.0

#: Blocks along each axis, and how much larger a drift is than what they deviate from it.
_BLOCKS, _CLEAR = 6, 4.0

#: Drift of the grey of the solid, as a share of what parts it from the void, that is worth a word;
#: and how many times as much void for a wider ball.
_UNEVEN, _CUT_OFF = 0.15, 1.1

#: Pixels that the radius of a disc has at the least.
_BLUNT = 1.5

#: Share of the corners of a volume that are filled in at the least, where a pore may be.
_CORNERS = 0.75

#: Bins for values that are not counted level by level.
_BINS = 1024


class Surroundings(NamedTuple):
    """What lies around a sample, and what to do with it."""

    outside: str  # ``"keep"``, ``"remove"`` or ``"remove-slicewise"``, as the setting says it
    radius: float  # of the ball that finds the air, in voxels
    share: float = 0.0  # which share of the volume is left out, about
    padding: float | None = None  # value of voxels that are filled in; None where none are
    kept: float = 0.0  # which share of the volume is air that counts, about
    gain: float = 1.0  # how many times as much of the sample is void for a ball as wide as may be
    widest: float = 0.0  # its radius; 0 where that makes no odds
    drift: float = 0.0  # of the solid's grey, for what parts it from the void; 0 where it is little
    groups: tuple[float, float] | None = None  # grey values of the void, if they are of two groups

    def apply(self, settings: PoreSettings) -> PoreSettings:
        """Return settings that say themselves what to do with the air."""
        return dataclasses.replace(settings, outside=self.outside, outside_radius=self.radius)


@dataclass(frozen=True, eq=False)
class Thumbnail:
    """A small stack of grey values from all over a volume."""

    values: npt.NDArray[Any]  # (z, y, x), as they are
    means: npt.NDArray[np.float32]  # (z, y, x): means of the voxels around each
    spacing: tuple[float, float, float]  # of the stack, in smallest voxels
    depth: int  # slices of the volume
    padded: npt.NDArray[np.bool_]  # (z, y, x): where it is filled in
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


def values_of_sample(volume: Volume, slices: int) -> npt.NDArray[Any]:
    """Return some grey values of a sample, and none of what is around it.

    `volume`: 2D or 3D. `slices`: how many are read at most, of four at least.
    Returns: (n,), of the type of the volume.
    """
    from scipy import ndimage

    small = make_thumbnail(volume, slices - 3)
    settings = PoreSettings()
    around = find_surroundings(volume, settings, small)
    left_out = small.padded
    if around.outside != "keep":
        void = _void(small, settings)
        assert void is not None, "there is air"
        left_out = left_out | _rolled(void | left_out, small, around.radius)
    # the rim is neither
    left_out = ndimage.binary_dilation(left_out, np.ones((1, 5, 5), np.bool_))
    values: npt.NDArray[Any] = small.values[~left_out]
    # of one value alone nothing would be seen
    return values if values.size and values.min() < values.max() else small.values.ravel()


def find_surroundings(
    volume: Volume, settings: PoreSettings, thumbnail: Thumbnail | None = None
) -> Surroundings:
    """Find what lies around the sample of a volume, 2D or 3D, whose void settings describe.

    `thumbnail`: of the volume, where it is at hand.
    Returns: what to do: what the settings say, where they say it; else ``"keep"`` where nothing is
    found, no threshold is, or a mask says what the sample is. What is filled in is left out too,
    but where air is kept.
    """
    small = thumbnail or make_thumbnail(volume)
    outside = settings.outside if settings.removes_air else "keep"
    nothing = Surroundings(outside, settings.outside_radius)
    padded = nothing._replace(share=float(small.padded.mean()), padding=small.padding)
    if settings.sample_mask or not np.isfinite(small.means).all():
        return padded
    void = _void(small, settings)
    drift = 0.0 if void is None or settings.is_local else _find_drift(void, small)
    padded = padded._replace(drift=drift)
    found = padded
    if void is not None and not settings.removes_air:
        found = _find_air(void | small.padded, small, padded)
    radius = 0.0 if found.outside == "keep" else found.radius
    groups = None if void is None else _find_groups(void, small, settings, radius)
    if settings.keeps_all:
        # it is done as it is asked for, and said
        kept = 0.0 if found.outside == "keep" else found.share
        return nothing._replace(kept=kept, drift=drift, groups=groups)
    return found._replace(groups=groups)


def _find_drift(void: npt.NDArray[np.bool_], small: Thumbnail) -> float:
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
    void: npt.NDArray[np.bool_], small: Thumbnail, settings: PoreSettings, radius: float
) -> tuple[float, float] | None:
    """Return where the grey values of the pores lie, if a method left two groups of them.

    `radius`: of the ball that finds the air around the sample; 0 where there is none. Air and pores
    of few voxels are two groups, too, and are looked at apart.
    """
    from scipy import ndimage

    if not isinstance(settings.threshold, str) or settings.is_local or settings.phases != 2:
        return None
    threshold = _threshold(small, settings)
    if threshold is None:
        return None
    places = slice(None) if not radius else _spread(len(void))
    values, padded, void = small.values[places], small.padded[places], void[places]
    outside = np.zeros(void.shape, np.bool_)
    if radius:
        outside = _rolled(void | padded, small, radius)
    solid = ~void & ~padded
    # beside solid they are in part of that, which is no group
    pure = ndimage.binary_erosion(void, np.ones((1, 3, 3), np.bool_), border_value=1) & ~padded
    for part in (pure & ~outside, pure & outside):
        if part.any() and solid.any():
            histogram = _histogram(values[part | solid])
            found = two_groups(histogram, threshold, settings.pores_are == "bright")
            if found is not None:
                return found
    return None


def _find_air(void: npt.NDArray[np.bool_], small: Thumbnail, nothing: Surroundings) -> Surroundings:
    """Return what to do with the air around a sample; `nothing` where there is none."""
    from scipy import ndimage

    padded = small.padded
    if void.all() or not any(_is_around(void, padded, at, small.spacing) for at in _axes(void)):
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
    around = nothing._replace(outside=way, radius=radius, share=float(outside.mean()))
    if wide < _CUT_OFF * own or not own:
        return around
    return around._replace(gain=float(wide / own), widest=widest)


def _axes(void: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    return (0, 1, 2) if len(void) >= 8 else (0,)


def _block_means(plane: npt.NDArray[Any], block: int) -> npt.NDArray[np.float32]:
    """Return means of blocks of pixels, and of what is around each; against noise."""
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
    """Return the sums of so many rows at a time, in a tenth of the time of `numpy.add.reduceat`."""
    sums = values[::block].astype(np.float64)
    for place in range(1, block):
        more = values[place::block]
        sums[: len(more)] += more
    return sums


def _void(small: Thumbnail, settings: PoreSettings) -> npt.NDArray[np.bool_] | None:
    """Return the void of a thumbnail, roughly; None where a method finds no threshold."""
    if small.values.dtype == np.bool_:
        return small.means > 0.5
    threshold = _threshold(small, settings)
    if threshold is None:
        return None
    if settings.pores_are == "bright":
        return small.means > threshold
    return small.means <= threshold


def _threshold(small: Thumbnail, settings: PoreSettings) -> float | None:
    """Return the threshold of a thumbnail, roughly; None where a method finds none."""
    method, phases = settings.threshold, settings.phases
    if not isinstance(method, str):
        return float(method)
    if settings.is_local:
        method, phases = "otsu", 2
    try:
        histogram = _histogram(small.values[~small.padded])
        return find_threshold(histogram, method, phases, settings.pores_are == "bright")
    except InputError:
        return None


def _spread(depth: int) -> npt.NDArray[np.int64]:
    """Return some slices of a thumbnail, from the first to the last."""
    return np.unique(np.linspace(0, depth - 1, min(depth, 5)).round().astype(np.int64))


def _histogram(values: npt.NDArray[Any]) -> Histogram:
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


def _find_padding(small: Thumbnail, volume: Volume) -> tuple[npt.NDArray[np.bool_], float | None]:
    """Return where a thumbnail is filled in with one value, and which that is."""
    values = small.values
    nothing = np.zeros(values.shape, np.bool_)
    if values.dtype == np.bool_ or not np.isfinite(small.means).all():
        return nothing, None
    for value in possible_paddings(values, volume.metadata):
        padded: npt.NDArray[np.bool_] = values == value
        if padded.mean() < _LEAST_SHARE or padded.all():
            continue
        if value != stated_padding(volume.metadata) and _may_be_a_pore(padded, value, values.dtype):
            continue
        ways = (_is_around(padded, nothing, axis, small.spacing) for axis in _axes(padded))
        if any(ways) and is_filled_in(volume, value):
            return padded, value
    return nothing, None


def _may_be_a_pore(padded: npt.NDArray[np.bool_], value: float, dtype: np.dtype[Any]) -> bool:
    """Whether one value is that of a pore at the rim, whose grey values were cut off there.

    They are at an end of the type, or at 0; and what is filled in, around whatever was measured,
    is in most corners.
    """
    ends = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else ()
    corners = padded[[0, -1]][:, [0, -1]][:, :, [0, -1]]
    return value in (0, *ends) and bool(corners.mean() < _CORNERS)


def _is_around(
    void: npt.NDArray[np.bool_],
    padded: npt.NDArray[np.bool_],
    axis: int,
    spacing: tuple[float, ...],
) -> bool:
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
    radius = _DISC * min(n * step for n, step in zip(empty.shape, sides, strict=True))
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
    """Return what of the empty a disc comes to cover that is rolled over a silhouette from outside.

    As `hushpore.pores.void.outside.mark_outside` does in a slice, of an image so small that no
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
    covered: npt.NDArray[np.bool_] = (away[inner] <= radius) & empty
    return covered


def _rolled(
    planes: npt.NDArray[np.bool_], small: Thumbnail, radius: float
) -> npt.NDArray[np.bool_]:
    """Return what a ball covers in slices of a thumbnail, in which it is no smaller than pixels."""
    sides = small.spacing[1:]
    ball = max(radius, _BLUNT * min(sides))
    return np.stack([roll(plane, sides, ball) for plane in planes])


def _fitting_ball(
    void: npt.NDArray[np.bool_], small: Thumbnail, radius: float
) -> tuple[float, npt.NDArray[np.bool_], npt.NDArray[np.int64], npt.NDArray[np.bool_], float]:
    """Return the radius of a ball that does not get inside the sample, and what it covers.

    That in some slices, with their places in the thumbnail; and what in these a ball leaves that
    is as wide as may be, with its radius.

    A ball that fits through the pores of a foam gets far into it, and leaves struts that are
    thinner than what it takes. Twice the radius is tried instead, and so on.
    """
    from scipy import ndimage

    sides = small.spacing[1:]
    places = _spread(len(void))
    planes = void[places]
    widest = _DISC * min(n * side for n, side in zip(void.shape[1:], sides, strict=True))
    hull = ~np.stack([roll(plane, sides, widest) for plane in planes])
    depth = np.stack([ndimage.distance_transform_edt(each, sampling=sides) for each in planes])
    while True:
        ball = max(radius, _BLUNT * min(sides))
        left = ~_rolled(planes, small, radius)
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


def _is_even(
    values: npt.NDArray[np.float32], air: npt.NDArray[np.bool_], solid: npt.NDArray[np.bool_]
) -> bool:
    """Whether air is of one grey value, and not the darker side of a ground of uneven grey."""
    if not air.any() or not solid.any():
        return True
    low, middle, high = np.percentile(values[air], (10, 50, 90))
    return bool(abs(np.median(values[solid]) - middle) >= _EVEN * (high - low))
