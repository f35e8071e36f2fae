"""The automatic threshold: Otsu's where pores and solid are two groups of grey values.

Otsu's method always divides a histogram. In a solid with few pores it divides the noise of the
solid, and in a solid with grains of metal it separates the metal from all else. So the main peak of
the histogram, its noise, and the group beside it that pores (or, in a foam, struts) form are found
first. If noise would make Otsu's threshold wrong, the threshold of minimum error between the two
groups is used instead; if there is no second group, one well below the noise of the main peak.

References
----------
D. R. Bickel and R. Fruehwirth (2006), half-sample mode. https://doi.org/10.1016/j.csda.2005.07.011
J. Kittler and J. Illingworth (1986), "Minimum error thresholding".
https://doi.org/10.1016/0031-3203(86)90030-0
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hushpore.pores.void.histogram import AUTO, METHODS, find_threshold

if TYPE_CHECKING:
    from hushpore.base.arrays import Float64s
    from hushpore.pores.void.histogram import Histogram

#: Share of the voxels at which the search for the main peak ends.
_PEAK = 0.1

#: Part of a peak to which a Gaussian is fitted, in standard deviations on both sides; in how many
#: bins, and how often, from the last fit.
_TOP, _TOP_BINS, _FITS = 1.2, 12, 4

#: Height, relative to a Gaussian peak, one standard deviation from its centre.
_ONE_SD = math.exp(-0.5)

#: Distances from the main peak, in standard deviations of its noise, beyond which voxels may be a
#: second group, and distance of a threshold if there is none: 1 voxel in 300,000 is beyond it.
_SECOND, _BELOW = (3.0, 4.0, 5.0), 4.5

#: Voxels that a second group has at least beyond that distance: their number, their share of all,
#: and how many times as many as the noise of the main peak has there.
_FEWEST, _LEAST, _MORE = 30, 2e-5, 2.0

#: Error of the pore volume that noise may cause at Otsu's threshold.
_ERROR = 0.05

#: Distance from the main peak, in standard deviations, within which a threshold cuts through it.
_CUTS = 1.3

#: Largest share of voxels that can be grains of metal or salt.
_GRAINS = 0.03

#: Different grey values that a histogram needs for peaks and noise.
_FEWEST_VALUES = 8

#: Noise of the solid beyond a threshold of least error, as a share of the pores.
_NOISE = 0.05

#: Two groups that noise joins to one peak: their distance in standard deviations, the share of the
#: smaller one, and how far the histogram is at most from the sum of the two.
_JOINED, _BALANCED, _MISFIT = (1.5, 4.0), 0.15, 0.06
_FINE, _ROUNDS = 64, 200

#: Part of the way from the main peak to the second group that a threshold goes at most.
_WAY = 0.85


class Groups(NamedTuple):
    """Grey values of pores and solid in a histogram, and a threshold between them.

    `method`: ``"otsu"`` or ``"main peak"``. `false_void`, `false_solid`: shares of the voxels of
    solid (of pores) that noise places on the wrong side. `second`: whether there are two groups.
    `grains`: share of all voxels that are bright grains, which Otsu's threshold would separate.
    """

    threshold: float
    method: str
    pore: float
    solid: float
    noise: float  # standard deviation
    false_void: float
    false_solid: float
    second: bool = True
    grains: float = 0.0

    def between(self, share: float) -> float:
        """Return the grey value at a part of the way from pores to solid."""
        return self.pore + share * (self.solid - self.pore)


class _Peak(NamedTuple):
    """A group of voxels: centre, standard deviation and share of all."""

    centre: float
    sd: float
    share: float


def automatic(histogram: Histogram, bright: bool = False) -> Groups:
    """Find the threshold between pores and solid, and what it rests on.

    `bright`: whether pores are brighter than solid.
    """
    otsu = METHODS["otsu"](histogram)
    return examine(histogram, otsu, bright, may_change=True)


def find_any_threshold(
    histogram: Histogram, method: str, classes: int = 2, bright: bool = False
) -> float:
    """Return the threshold of a method, as `find_threshold`, or the automatic one (`AUTO`)."""
    if method == AUTO and classes == 2:
        return automatic(histogram, bright).threshold
    return find_threshold(histogram, method, classes, bright)


def examine(
    histogram: Histogram, threshold: float, bright: bool = False, *, may_change: bool = False
) -> Groups:
    """Find the groups on both sides of a threshold, and the errors that noise causes there.

    `may_change`: whether a threshold that noise makes wrong is replaced.
    """
    trimmed = histogram.trimmed()
    span = float(trimmed.centers[-1]) - float(trimmed.centers[0])
    is_distinct = trimmed.centers[0] + span / trimmed.centers.size > trimmed.centers[0]
    if np.count_nonzero(trimmed.counts) < _FEWEST_VALUES or not is_distinct:
        pore, solid = trimmed.centers[[-1, 0] if bright else [0, -1]]
        return Groups(threshold, "otsu", float(pore), float(solid), 0.0, 0.0, 0.0)
    counts, centers, sign = trimmed.counts.astype(np.float64), trimmed.centers, 1.0
    if bright:
        # grey values in reverse, so that pores are dark in what follows
        counts, centers, sign = counts[::-1], -centers[::-1], -1.0
    found = _groups(counts, centers, sign * threshold, may_change)
    return found._replace(
        threshold=threshold if found.method == "otsu" else sign * found.threshold,
        pore=sign * found.pore,
        solid=sign * found.solid,
    )


def _groups(counts: Float64s, centers: Float64s, otsu: float, may_change: bool) -> Groups:
    joined = _joined(counts, centers)
    if joined is not None:
        return _judged(otsu, "otsu", *joined)
    main = _main_peak(counts, centers)
    below = _second_group(counts, centers, main)
    above = _second_group(counts[::-1], -centers[::-1], main._replace(centre=-main.centre))
    if above is not None:
        above = above._replace(centre=-above.centre)
    beyond = float(counts[centers > otsu].sum() / counts.sum())
    own = _between(main, below, above, otsu)
    if not may_change:
        return own
    is_above = otsu > main.centre
    cuts = abs(otsu - main.centre) < _CUTS * main.sd
    if is_above and below is not None and beyond < _GRAINS:
        pores = _least_error(below, main, False)
        if pores.false_solid < _ERROR:
            return pores._replace(grains=beyond)
    if is_above and above is not None:
        if _error(own, main.share, above.share) <= _ERROR:
            return own
        if below is None and above.share >= _GRAINS:
            return _least_error(main, above, True)
    if is_above and not cuts:
        found = own
    elif below is None:
        found = _beside(main)._replace(grains=0.0 if above is None else above.share)
    elif _error(own, below.share, main.share) > _ERROR:
        found = _least_error(below, main, False)
    else:
        found = own
    return found


def _between(main: _Peak, below: _Peak | None, above: _Peak | None, threshold: float) -> Groups:
    """Return the groups that a threshold separates."""
    if threshold <= main.centre:
        pore, solid = below or main._replace(centre=main.centre - 2 * _BELOW * main.sd), main
    else:
        pore, solid = main, above or main._replace(centre=main.centre + 2 * _BELOW * main.sd)
    is_pair = (below if threshold <= main.centre else above) is not None
    return _judged(threshold, "otsu", pore, solid)._replace(second=is_pair)


def _judged(threshold: float, method: str, pore: _Peak, solid: _Peak) -> Groups:
    wrong = _beyond((solid.centre - threshold) / solid.sd)
    missed = _beyond((threshold - pore.centre) / pore.sd)
    noise = min(pore.sd, solid.sd)
    return Groups(threshold, method, pore.centre, solid.centre, noise, wrong, missed)


def _error(found: Groups, pores: float, solid: float) -> float:
    """Return the error of the pore volume that noise causes, as a share of the pores."""
    return abs(found.false_void * solid - found.false_solid * pores) / max(pores, 1e-12)


def _least_error(pore: _Peak, solid: _Peak, main_is_pore: bool) -> Groups:
    """Return the threshold nearest to the middle of both groups at which noise does little harm.

    At most the one at which as many voxels of pores as of solid are on the wrong side.
    """
    apart = solid.centre - pore.centre
    sd = pore.sd if main_is_pore else solid.sd
    limit = (_WAY - 0.5) * apart
    equal = sd**2 / apart * math.log(max(solid.share, 1e-9) / max(pore.share, 1e-9))
    equal = min(max(equal, -limit), limit)
    middle = (pore.centre + solid.centre) / 2
    for shift in np.linspace(0.0, equal, 51):
        found = _judged(middle - float(shift), "main peak", pore, solid)
        most, fewer = found.false_void * solid.share, pore.share
        if main_is_pore:
            most, fewer = found.false_solid * pore.share, solid.share
        if most <= _NOISE * fewer:
            break
    return found


def _joined(counts: Float64s, centers: Float64s) -> tuple[_Peak, _Peak] | None:
    """Find two groups of similar size that strong noise joins to one broad peak.

    Two Gaussians of one standard deviation are fitted by expectation maximisation. None if they
    are not the histogram, or if one is small or far away, which the main peak tells better.
    """
    by = -(-counts.size // _FINE)
    padded = np.pad(counts, (0, -counts.size % by)).reshape(-1, by).sum(axis=1)
    place = centers[0] + (np.arange(padded.size) * by + (by - 1) / 2) * (centers[1] - centers[0])
    weights = padded / padded.sum()
    mean = float(weights @ place)
    spread = math.sqrt(float(weights @ (place - mean) ** 2))
    means, sd, share = np.array([mean - spread, mean + spread]), spread / 2, 0.5
    for _ in range(_ROUNDS):
        density = np.exp(-((place - means[:, None]) ** 2) / (2 * sd**2)) / sd
        density *= np.array([[1 - share], [share]])
        both = np.maximum(density.sum(axis=0), 1e-300)
        parts = density / both * weights
        sums = np.maximum(parts.sum(axis=1), 1e-12)
        means, share = parts @ place / sums, float(sums[1])
        sd = math.sqrt(float((parts * (place - means[:, None]) ** 2).sum()))
        if sd <= 0:
            return None
    apart = float(means[1] - means[0]) / sd
    fitted = both / both.sum()
    is_it = float(np.abs(fitted - weights).sum()) / 2 < _MISFIT
    if not is_it or not _JOINED[0] < apart < _JOINED[1] or not _BALANCED < share < 1 - _BALANCED:
        return None
    return _Peak(float(means[0]), sd, 1 - share), _Peak(float(means[1]), sd, share)


def _beside(main: _Peak) -> Groups:
    """Return a threshold below the noise of the only group."""
    threshold = main.centre - _BELOW * main.sd
    pore = main._replace(centre=main.centre - 2 * _BELOW * main.sd)
    return _judged(threshold, "main peak", pore, main)._replace(second=False)


def _main_peak(counts: Float64s, centers: Float64s) -> _Peak:
    """Find the highest peak of a histogram, with its standard deviation on the steeper side."""
    up_to = np.concatenate([[0.0], np.cumsum(counts)])
    total = up_to[-1]
    step = centers[1] - centers[0] if centers.size > 1 else 1.0
    first, last = 0, counts.size
    share = 0.5
    while True:
        # the narrowest range of so many voxels
        starts = np.arange(first, last)
        ends = np.searchsorted(up_to, up_to[starts] + share * total)
        fits = ends <= last
        if not fits.any():
            break
        starts, ends = starts[fits], ends[fits]
        width = ends - starts
        narrowest = np.flatnonzero(width == width.min())
        # of several the fullest
        best = narrowest[np.argmax(up_to[ends[narrowest]] - up_to[starts[narrowest]])]
        first, last = int(starts[best]), int(ends[best])
        if share <= _PEAK or last - first <= 1:
            break
        share /= 2
    smooth = _smoothed(counts, max(0.5, (last - first) / 3))
    peak = first + int(np.argmax(smooth[first:last]))
    sides = []
    for values in (smooth[peak:], smooth[peak::-1]):
        lower = np.flatnonzero(values < _ONE_SD * values[0])
        if lower.size:
            n = int(lower[0])
            part = (values[n - 1] - _ONE_SD * values[0]) / max(values[n - 1] - values[n], 1e-12)
            sides.append(n - 1 + part)
    steps = max(min(sides, default=0.5), 0.5)
    # without what the smoothing adds
    spread = max(0.5, (last - first) / 3)
    own = math.sqrt(max(steps**2 - spread**2, 0.25))
    weight = smooth[peak] * steps * math.sqrt(2 * math.pi) / total
    rough = _Peak(float(centers[peak]), float(own * step), float(min(weight, 1.0)))
    return _fitted(counts, centers, rough)


def _fitted(counts: Float64s, centers: Float64s, rough: _Peak) -> _Peak:
    """Fit a Gaussian to the top of a peak: a parabola to the logarithm of the counts."""
    peak, step = rough, centers[1] - centers[0]
    for _ in range(_FITS):
        place = (centers - peak.centre) / peak.sd
        is_top = np.abs(place) <= _TOP
        bins = np.floor((place[is_top] + _TOP) / (2 * _TOP) * _TOP_BINS).astype(np.int64)
        bins = np.minimum(bins, _TOP_BINS - 1)
        levels = np.bincount(bins, minlength=_TOP_BINS)
        voxels = np.bincount(bins, counts[is_top], _TOP_BINS)
        if levels.min() == 0 or voxels.min() == 0:
            return peak
        at = (np.arange(_TOP_BINS) + 0.5) / _TOP_BINS * 2 * _TOP - _TOP
        density = voxels / levels
        curve, slope, height = np.polyfit(at, np.log(density), 2, w=np.sqrt(voxels))
        if curve >= 0:
            return peak
        sd = min(max(peak.sd * math.sqrt(-0.5 / curve), 0.7 * rough.sd), 1.5 * rough.sd)
        moved = min(max(-slope / (2 * curve), -0.5), 0.5)
        top = math.exp(height - slope**2 / (4 * curve))
        share = min(top * sd / step * math.sqrt(2 * math.pi) / counts.sum(), 1.0)
        peak = _Peak(float(peak.centre + moved * peak.sd), float(sd), float(share))
    return peak


def _second_group(counts: Float64s, centers: Float64s, main: _Peak) -> _Peak | None:
    """Find the group of voxels below the main peak that its noise does not explain."""
    step = centers[1] - centers[0] if centers.size > 1 else 1.0
    distance = (main.centre - centers) / main.sd
    total = counts.sum()
    noise = (
        main.share * total * step / (main.sd * math.sqrt(2 * math.pi))
        * np.exp(-np.clip(distance, -20, 20) ** 2 / 2)
    )  # fmt: skip
    left = np.where(distance > 0, counts - noise, 0.0)
    # what is far from the peak counts more, as for the variance between groups
    smooth = np.maximum(_smoothed(left, 0.5 * main.sd / step), 0.0)
    for least in _SECOND:
        beyond = distance > least
        expected = float(noise[beyond].sum())
        voxels = float(counts[beyond].sum()) - expected
        if voxels >= max(_FEWEST, _LEAST * total, _MORE * expected):
            break
    else:
        return None
    best = int(np.argmax(np.where(beyond, smooth * distance**2, 0.0)))
    # the weight moved the highest place of the score outwards
    away = max(distance[best] - 2 / distance[best], 2.0)
    share = max(left[distance > away].sum() * 2, left[distance > away / 2].sum()) / total
    share = min(max(share, voxels / total), 1 - 1e-9)
    return _Peak(float(main.centre - away * main.sd), main.sd, float(share))


def _smoothed(values: Float64s, spread: float) -> Float64s:
    from scipy import ndimage

    smooth: Float64s
    smooth = ndimage.gaussian_filter1d(values, spread, mode="constant")
    return smooth


def _beyond(deviations: float) -> float:
    """Return the share of Gaussian noise above so many standard deviations."""
    return 0.5 * math.erfc(deviations / math.sqrt(2))
