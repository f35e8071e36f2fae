"""Detection limit: the diameter of pores that are found in 90 % of cases (a90).

Balls of known diameters are put into the scan where it is solid: each voxel keeps its grey value,
with its noise, and the contrast between pores and solid is added by the share of the ball in it,
blurred like the surfaces of the scan. The scan is segmented again with the same settings. A
logistic curve over the logarithm of the diameter is fitted to hits and misses, and a90 is read from
it.

References
----------
MIL-HDBK-1823A (2009), "Nondestructive evaluation system reliability assessment", appendix G, on the
probability of detection from hits and misses.
D. Firth (1993), "Bias reduction of maximum likelihood estimates".
https://doi.org/10.1093/biomet/80.1.27
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.events import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from hushpore.base.arrays import Array, Float64s, Int32s, Mask
    from hushpore.base.events import Event
    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings

    #: Segments a volume, and returns its labels.
    Segment = Callable[[Volume], Generator[Event, Any, Int32s]]

#: Name of the stage in the progress bar.
STAGE = "detection limit"

#: Largest part of a scan that balls are put into, in voxels.
PART = 1 << 23

#: Diameters that are tried first, in voxels, and times that the scan is segmented with balls.
_FIRST, _ROUNDS = (1.0, 10.0), 3

#: Balls of a round, and fewest balls that a limit is read from.
_BALLS, _FEWEST = 150, 40

#: Voxels that are tried as centres of balls.
_CANDIDATES = 200_000

#: Size of a pore, in voxels, from which balls keep away from it; noise makes smaller ones anywhere.
_LARGE = 27

#: Probability of detection that the limit is for, and its logit.
SHARE = 0.9
_LOGIT = math.log(SHARE / (1 - SHARE))

#: Quantile of the normal distribution for the upper 95 % confidence limit.
_UPPER = 1.645

#: Share of the volume of a ball that a pore must have to count as the ball.
_ENOUGH = 0.125


#: Voxels of the part of a scan whose grey values and blur are measured, and radius from which the
#: surface of a pore is as good as flat, in voxels.
_LOOKED_AT, _FLAT = 1 << 21, 12.0

#: Gaussians that surfaces are looked for with, in voxels, and noise that they may leave, as a share
#: of the contrast.
_WIDTHS, _LITTLE = (1.0, 1.5, 2.0), 0.08


class Look(NamedTuple):
    """Grey values of a scan: those of pores and solid, and the blur of their surfaces."""

    void: float
    solid: float
    blur: float  # standard deviation of the point spread function, in voxels


class Tried(NamedTuple):
    """Balls that were put into a scan, in voxels."""

    diameter: Float64s
    found: Float64s  # equivalent diameter of the pore that was found; 0 for none


class Limit(NamedTuple):
    """The detection limit, in voxels."""

    a90: float
    high: float  # upper 95 % confidence limit
    size_error: float  # mean relative error of the diameter of balls near the limit
    size_deviation: float  # standard deviation of that

    def totals(self, volume: Volume) -> dict[str, Any]:
        """Return the entries of the record, with lengths in the unit of the volume."""
        # balls are round in voxels
        voxel = volume.voxel_size ** (1 / volume.n_spatial)
        return {
            "detection_limit": self.a90 * voxel,
            "detection_limit_high": self.high * voxel,
            "detection_size_error": self.size_error,
            "detection_size_deviation": self.size_deviation,
        }


def why_no_limit(volume: Volume, settings: PoreSettings) -> str:
    """Return why a segmentation has no detection limit; empty if it may have one."""
    if volume.dtype == np.bool_:
        return "a mask has no grey values."
    if settings.pore_type == "open":
        return "pores in the solid are closed, and only open pores were segmented."
    if settings.markers:
        return "pores grow from the markers."
    return ""


def as_in_solid(settings: PoreSettings, threshold: float | None) -> PoreSettings:
    """Return settings that segment a part of the scan as the whole was, and measure little.

    `threshold`: that was used; None for a local one.
    """
    return dataclasses.replace(
        settings,
        threshold=settings.threshold if threshold is None else threshold,
        exterior="keep", sample_mask="", pore_type="all", edge_pores="keep",
        measured_porosity=None, local_thickness="none", tortuosity=False, subvoxel_porosity=False,
        intervals=False, detection_limit=False, report_form="none", limits="", markers="",
    )  # fmt: skip


def at_work(event: Event) -> Progress:
    """Return a progress without figures in place of an event of a repeated segmentation."""
    return Progress(STAGE, 0, 0, "", 0.98)


def find_limit(
    volume: Volume, outside: Mask, segment: Segment
) -> Generator[Event, Any, Limit | str]:
    """Find the detection limit of a scan.

    `volume`: grey values, 2D or 3D, in memory. `outside`: voxels that are not of the sample.
    `segment`: segments a volume with the settings and the threshold of the result.
    Returns: the limit; or a sentence that says why there is none.
    """
    labels = yield from segment(volume)
    values = volume.array()
    large = _large_pores(labels)
    part = _part_with(large & ~outside)
    blocked = large | outside
    if part is None or blocked[part].all():
        return "no pore of the scan is large enough to show the grey value and the blur of pores."
    look = look_of(values[part], large[part], outside[part])
    if look.void == look.solid:
        return "pores and solid have the same grey value."
    from scipy import ndimage

    # distance of the centre of a voxel from the nearest blocked voxel and from the faces
    room = ndimage.distance_transform_edt(np.pad(~blocked, 1))[(slice(1, -1),) * blocked.ndim]
    rng = np.random.default_rng(0)
    tried = Tried(np.empty(0), np.empty(0))
    ends = _FIRST
    for number in range(_ROUNDS):
        yield Progress(STAGE, number, _ROUNDS, "", 0.97)
        diameters = np.geomspace(*ends, _BALLS)
        centres, diameters = places(room, diameters, look.blur, rng)
        if not diameters.size:
            break
        filled = volume.replace(with_balls(values, centres, diameters, look))
        again = yield from segment(filled)
        own = [
            (diameter, found_diameter(again, centre, diameter))
            for centre, diameter in zip(centres, diameters, strict=True)
            # a speck of noise that was there before is not the ball
            if not found_diameter(labels, centre, diameter)
        ]
        rows = np.array(own).reshape(-1, 2).T
        tried = Tried(*(np.concatenate(pair) for pair in zip(tried, rows, strict=True)))
        ends = _next_ends(tried, ends)
    if tried.diameter.size < _FEWEST:
        return "the solid is too thin for balls to be put into it."
    return limit_of(tried)


def _part_with(pores: Mask) -> tuple[slice, ...] | None:
    """Return a part of the scan around some pore; None if there is none."""
    voxels = np.flatnonzero(pores)
    if not voxels.size:
        return None
    edge = round(_LOOKED_AT ** (1 / pores.ndim))
    middle = np.unravel_index(int(voxels[voxels.size // 2]), pores.shape)
    first = [
        min(max(int(at) - edge // 2, 0), max(length - edge, 0))
        for at, length in zip(middle, pores.shape, strict=True)
    ]
    return tuple(slice(start, start + edge) for start in first)


def _large_pores(labels: Int32s) -> Mask:
    """Return the voxels of pores that balls keep away from."""
    is_large = np.bincount(labels.ravel()) >= _LARGE
    is_large[0] = False
    large: Mask = is_large[labels]
    return large


def look_of(values: Array, large: Mask, outside: Mask) -> Look:
    """Measure the grey values of pores and solid off their surfaces, and the blur between them.

    Surfaces are looked for in the scan smoothed by a Gaussian that leaves little of its noise,
    halfway between pores and solid, so that noise does not choose the voxels. The blur follows from
    the slope there, squared, less what the noise adds to it in the solid. Of small pores, even the
    middle is blurred: both are corrected for a ball of the radius of the largest pore.

    `large`: pores whose surfaces are measured.
    """
    from scipy import ndimage

    inside = ~outside
    nearby = ndimage.binary_dilation(large, iterations=3)
    off = ~nearby & inside if (~nearby & inside).any() else ~large & inside
    grey = values.astype(np.float32)
    dark, bright = (float(np.median(grey[each])) for each in (large & inside, off))
    look = Look(dark, bright, 1.0)
    for width in _WIDTHS:
        smooth = ndimage.gaussian_filter(grey, width)
        if smooth[off].std() < _LITTLE * abs(look.void - look.solid):
            break
    for _ in range(3):
        if look.void == look.solid:
            break
        share = (smooth - look.solid) / (look.void - look.solid)
        void = (share > 0.5) & nearby & inside
        depth = ndimage.distance_transform_edt(void)
        beyond = ndimage.distance_transform_edt(~void) * inside
        radius = min(float(depth.max()), _FLAT)
        if not radius or not beyond.any():
            break
        inner, off = (each >= min(4.0, 0.7 * each.max()) for each in (depth, beyond))
        away = np.maximum(radius - depth[inner], 0.0)
        of_inner = float(blurred_ball(away, radius, look.blur, share.ndim).mean())
        bright = float(np.median(grey[off]))
        dark = bright + (float(np.median(grey[inner])) - bright) / max(of_inner, 0.3)
        slope = sum(np.square(np.gradient(share, axis=axis)) for axis in range(share.ndim))
        # surfaces of the largest pores, of which the radius is known
        wide = ndimage.maximum_filter(
            np.where(depth >= 0.6 * radius, depth, 0), 2 * math.ceil(radius) + 3
        )
        surface = (wide > 0) & (np.abs(share - 0.5) < 0.1) & (depth < 3) & (beyond < 3) & inside
        noise = float(slope[off].mean())
        steep = float(np.median(slope[surface])) - noise if surface.any() else 0.0
        spread = _spread_of(math.sqrt(max(steep, 1e-4)), radius, share.ndim)
        look = Look(dark, bright, math.sqrt(max(spread**2 - width**2, 1 / 12)))
    return look


def _spread_of(slope: float, radius: float, n_axes: int) -> float:
    """Return the blur at which a ball has a slope at its surface, as a central difference."""
    grid = np.arange(0.0, radius + 12, 0.25)
    spreads = np.geomspace(0.4, 8, 60)
    profiles = [blurred_ball(grid, radius, spread, n_axes) for spread in spreads]
    steepest = [float(np.abs(each[8:] - each[:-8]).max()) / 2 for each in profiles]
    return float(np.interp(-slope, -np.array(steepest), spreads))


def places(
    room: Float64s, diameters: Float64s, blur: float, rng: np.random.Generator
) -> tuple[Float64s, Float64s]:
    """Choose centres for balls in the solid that keep away from pores and from each other.

    `room`: at each voxel, the distance to where no ball may be.
    Returns: centres (balls, axes) and diameters of those that have a place, in voxels.
    """
    gap = 3 * blur + 1.5
    centres, radii = np.empty((0, room.ndim)), np.empty(0)
    candidates = rng.permutation(np.flatnonzero(room > gap + 0.5))[:_CANDIDATES]
    reach = room.ravel()[candidates]
    candidates = np.stack(np.unravel_index(candidates, room.shape), axis=1)
    # large ones first, which have fewer places; then from a random candidate on
    for radius in np.sort(diameters)[::-1] / 2:
        fits = np.flatnonzero(reach > radius + gap)
        for at in fits[rng.permutation(fits.size)[:200]]:
            centre = candidates[at] + rng.uniform(-0.5, 0.5, room.ndim)
            apart = np.sqrt(((centres - centre) ** 2).sum(axis=1))
            if (apart > radii + radius + gap).all():
                centres, radii = np.vstack([centres, centre]), np.append(radii, radius)
                break
    return centres, 2 * radii


def with_balls(values: Array, centres: Float64s, diameters: Float64s, look: Look) -> Array:
    """Return grey values with balls in them, of the same dtype.

    `centres`: (balls, axes), in voxels.
    """
    filled = values.astype(np.float64)
    for centre, diameter in zip(centres, diameters, strict=True):
        part, away = _around(centre, diameter / 2 + 4 * look.blur + 1, values.shape)
        filled[part] += (look.void - look.solid) * blurred_ball(
            away, diameter / 2, look.blur, away.ndim
        )
    if values.dtype.kind in "iu":
        ends = np.iinfo(values.dtype)
        filled = np.clip(np.rint(filled), ends.min, ends.max)
    return filled.astype(values.dtype)


def blurred_ball(away: Array, radius: float, blur: float, n_axes: int) -> Float64s:
    """Return a ball of value 1, blurred by a Gaussian, at distances from its centre.

    The share of a normal distribution around each point that is in the ball: the noncentral
    chi-squared distribution of the number of axes.
    """
    from scipy import special

    grid = np.linspace(0, float(away.max(initial=0)), 400)
    edge = (radius / blur) ** 2
    if n_axes == 2:
        profile = special.chndtr(edge, 2, (grid / blur) ** 2)
    else:
        scale = math.sqrt(2) * blur
        with np.errstate(divide="ignore", invalid="ignore"):
            tails = np.exp(-(((radius - grid) / scale) ** 2))
            tails -= np.exp(-(((radius + grid) / scale) ** 2))
            profile = (
                special.erf((radius - grid) / scale) + special.erf((radius + grid) / scale)
            ) / 2 - blur / math.sqrt(2 * math.pi) * tails / grid
        profile[0] = special.chndtr(edge, 3, 0.0)
    value: Float64s = np.interp(away, grid, np.clip(np.nan_to_num(profile), 0, 1))
    return value


def found_diameter(labels: Int32s, centre: Float64s, diameter: float) -> float:
    """Return the equivalent diameter of the pore at the place of a ball, in voxels; 0 for none.

    A pore is the ball if half of it lies within a voxel of the ball, and its diameter is at least
    half that of the ball.
    """
    part, away = _around(centre, diameter / 2 + 1, labels.shape)
    inside = labels[part][away <= diameter / 2 + 1]
    overlap = np.bincount(inside[inside > 0])
    if not overlap.size:
        return 0.0
    label = int(overlap.argmax())
    whole, _ = _around(centre, 2 * diameter + 4, labels.shape)
    voxels = np.count_nonzero(labels[whole] == label)
    n_axes = labels.ndim
    unit = math.pi / (6 if n_axes == 3 else 4)
    if 2 * overlap[label] < voxels or voxels < _ENOUGH * unit * diameter**n_axes:
        return 0.0
    return float((voxels / unit) ** (1 / n_axes))


def _around(
    centre: Float64s, reach: float, shape: Sequence[int]
) -> tuple[tuple[slice, ...], Float64s]:
    """Return the part of an array within `reach` of a centre, and the distances from the centre."""
    first = np.maximum(np.floor(centre - reach), 0).astype(int)
    last = np.minimum(np.ceil(centre + reach) + 1, shape).astype(int)
    lines = np.ix_(*(np.arange(a, b) - c for a, b, c in zip(first, last, centre, strict=True)))
    away: Float64s = np.sqrt(sum(line**2 for line in lines))
    return tuple(slice(a, b) for a, b in zip(first, last, strict=True)), away


def _next_ends(tried: Tried, ends: tuple[float, float]) -> tuple[float, float]:
    """Return the range of diameters to try next: around the fitted curve, or larger ones."""
    is_found = tried.found > 0
    middle, slope, _ = logistic_fit(np.log(tried.diameter), is_found)
    top = tried.diameter > 0.7 * min(ends[1], tried.diameter.max())
    if slope <= 0 or is_found[top].mean() < SHARE:
        return ends[1] / 2, 4 * ends[1]
    low, high = (math.exp(middle + logit / slope) for logit in (-2 * _LOGIT, 2 * _LOGIT))
    a90 = math.exp(middle + _LOGIT / slope)
    return max(low, 0.6 * a90), min(max(high, 1.2 * a90), 1.6 * a90)


def limit_of(tried: Tried) -> Limit | str:
    """Read the limit from a logistic curve through balls that were found or not."""
    is_found = tried.found > 0
    largest = float(tried.diameter.max())
    if not is_found.any():
        return f"of balls up to a diameter of {largest:.3g} voxels none was found."
    middle, slope, covariance = logistic_fit(np.log(tried.diameter), is_found)
    a90 = math.exp(middle + _LOGIT / slope) if slope > 0 else math.inf
    if a90 > largest:
        return (
            f"balls up to a diameter of {largest:.3g} voxels, the largest that the solid has room "
            f"for, are found in less than {100 * SHARE:.0f} % of cases."
        )
    # of the intercept and the slope of the logit
    gradient = np.array([-1 / slope, -(_LOGIT / slope + middle) / slope])
    error = math.sqrt(max(gradient @ covariance @ gradient, 0.0))
    near = is_found & (tried.diameter > 0.9 * a90) & (tried.diameter < 1.6 * a90)
    ratio = tried.found[near] / tried.diameter[near] - 1
    spread = float(ratio.std(ddof=1)) if ratio.size > 1 else math.nan
    mean = float(ratio.mean()) if ratio.size else math.nan
    return Limit(a90, a90 * math.exp(_UPPER * error), mean, spread)


def logistic_fit(x: Float64s, is_found: Mask) -> tuple[float, float, Float64s]:
    """Fit a logistic curve to hits and misses, with Firth's correction of its bias.

    With the correction, the fit is finite also if all hits are above all misses.
    Returns: where the probability is 0.5, the slope of the logit, and the covariance (2, 2) of the
    intercept and the slope of the logit.
    """
    centre, scale = float(x.mean()), float(x.std()) or 1.0
    design = np.stack([np.ones_like(x), (x - centre) / scale], axis=1)
    beta = np.zeros(2)
    for _ in range(100):
        probability = 1 / (1 + np.exp(-np.clip(design @ beta, -500, 500)))
        weight = np.maximum(probability * (1 - probability), 1e-12)
        covariance = np.linalg.inv((design.T * weight) @ design)
        hat = weight * np.einsum("ij,jk,ik->i", design, covariance, design)
        step = covariance @ (design.T @ (is_found - probability + hat * (0.5 - probability)))
        beta = beta + np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-8:
            break
    turn = np.array([[1.0, -centre / scale], [0.0, 1 / scale]])
    intercept, slope = turn @ beta
    middle = -intercept / slope if slope else math.inf
    return float(middle), float(slope), turn @ covariance @ turn.T
