"""Histograms of grey values, and global threshold methods.

A method needs only the histogram, so the volume need not fit into memory.

The automatic threshold: Otsu's where it divides pores and solid well.

Otsu's method always divides a histogram: the noise of a solid with few pores, or of the larger of
two groups that noise joins; and it separates grains of metal from all else. So two groups with
blurred edges are fitted to the histogram (`hushpore.scan.mixture`). If they fit, and Otsu's
threshold gives another share of void, the threshold that gives theirs is used. Else the main peak
of the histogram, its noise, and the group beside it that pores (or, in a foam, struts) form are
found. If noise would make Otsu's threshold wrong, the threshold of minimum error between the two is
used; if there is no second group, one well below the noise of the main peak.

References
----------
D. R. Bickel and R. Fruehwirth (2006), half-sample mode. https://doi.org/10.1016/j.csda.2005.07.011
J. Kittler and J. Illingworth (1986), "Minimum error thresholding".
https://doi.org/10.1016/0031-3203(86)90030-0
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.scan.mixture import MISFIT, fit_mixture, spread_over_gaps, without_gaps

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.arrays import Float64s, Int64s


#: Name of the method that chooses between Otsu's and others: `hushpore.scan.histogram`.
AUTO = "auto"

#: Maximum number of bins for methods that visit each level or scale with a power of the bins.
_COARSE = 256

#: Of two groups of grey values on one side: share of all voxels and number that each has at the
#: least; how low it is between them at most, for the lower one; and how far they are apart, for the
#: way to the other side, if that is as large a group.
_GROUP, _GROUP_VOXELS, _VALLEY, _GROUPS_APART = 0.03, 500, 0.7, 0.25

#: Share of the voxels, at either end, that may lie far outside the others.
_OUTSIDE = 1e-4

#: Width in bins from which counts are smoothed by a Fourier transform: a filter takes longer.
_WIDE = 200

#: Widths by which counts are smoothed that the range of one side has.
_WIDTHS = 40


@dataclass(frozen=True, eq=False)
class Histogram:
    """Histogram of grey values."""

    counts: Int64s  # (bins,), int64
    centers: Float64s  # (bins,), float64: the grey value of each bin
    is_exact: bool = True  # whether a bin has voxels of one grey value only

    def trimmed(self) -> Histogram:
        """Return the histogram without the empty bins at both ends."""
        full = np.flatnonzero(self.counts)
        kept = slice(full[0], full[-1] + 1)
        return Histogram(self.counts[kept], self.centers[kept])

    def bars(self, most: int, limits: tuple[float, float]) -> tuple[Float64s, Float64s]:
        """Return the counts between two grey values in at most `most` bars, and their edges.

        Each bar holds the same number of bins, to avoid a comb pattern.
        """
        step = float(self.centers[1] - self.centers[0]) if self.centers.size > 1 else 1.0
        first, last = np.searchsorted(self.centers, limits, side="left")
        last = max(int(last), int(first) + 1)
        bins = math.ceil((last - first) / most)
        within = self.counts[first:last].astype(np.float64)
        within = np.pad(within, (0, -within.size % bins)).reshape(-1, bins).sum(axis=1)
        edges = self.centers[first] - step / 2 + step * bins * np.arange(within.size + 1)
        return within, edges

    def core(self, bins: int) -> tuple[float, float] | None:
        """Return the ends of the range of all voxels but a few, if it has fewer bins than asked.

        A voxel of 1e8, as a reconstruction leaves, would otherwise put all others into one bin.
        """
        up_to = np.cumsum(self.counts)
        few = max(_OUTSIDE * up_to[-1], 1)
        first = int(np.searchsorted(up_to, few, "right"))
        last = int(np.searchsorted(up_to, up_to[-1] - few))
        step = self.centers[1] - self.centers[0]
        is_wide = last - first + 1 >= bins
        return None if is_wide else (self.centers[first] - step, self.centers[last] + step)

    def share_beyond(self, value: float, bright: bool = False) -> float:
        """Return the fraction of voxels up to a grey value; above it if `bright`."""
        is_beyond = self.centers > value if bright else self.centers <= value
        return float(self.counts[is_beyond].sum() / self.counts.sum())

    def coarser(self, bins: int) -> Histogram:
        """Return the histogram in at most `bins` bins, each of as many of the present ones."""
        factor = -(-self.counts.size // bins)
        if factor == 1:
            return self
        padding = -self.counts.size % factor
        counts = np.pad(self.counts, (0, padding)).reshape(-1, factor).sum(axis=1)
        step = self.centers[1] - self.centers[0]
        first = self.centers[0] + step * (factor - 1) / 2
        return Histogram(counts, first + step * factor * np.arange(counts.size))


def find_threshold(
    histogram: Histogram, method: str, classes: int = 2, bright: bool = False
) -> float:
    """Return the threshold that a method finds; values up to it are the dark class.

    `method`: one of `METHODS`; `AUTO` with more than two classes. `classes`: number of grey-value
    classes; above 2 for Otsu only, which `AUTO` then is (Liao, Chen and Chung, 2001). `bright`:
    whether pores are bright: return the highest of several thresholds instead of the lowest.
    Raises InputError if the method finds no threshold in this histogram, or does not support more
    than two classes.
    """
    if classes > 2 and method not in ("otsu", AUTO):
        raise InputError(only_otsu(classes, method))
    try:
        if classes > 2:
            coarse = histogram.coarser(_COARSE)
            found = _by_scikit_image("multiotsu", coarse, classes=classes)
            return found[-1 if bright else 0]
        return METHODS[method](histogram)
    except (RuntimeError, IndexError, ValueError) as error:
        raise InputError(
            f"The method {method!r} finds no threshold in this image ({error}). "
            "Choose another method, or give the threshold as a number."
        ) from None


def only_otsu(classes: int, method: str) -> str:
    """Return the message that a method other than Otsu cannot find several classes."""
    return (
        f"Only threshold='otsu' can find {classes} classes; got threshold={method!r}. "
        "Use threshold='otsu' or otsu_classes=2."
    )


def _otsu(histogram: Histogram) -> float:
    """Largest variance between the classes: https://doi.org/10.1109/TSMC.1979.4310076."""
    histogram = histogram.trimmed()
    counts, centers = histogram.counts.astype(np.float64), histogram.centers
    weight = np.cumsum(counts)
    # relative to the first value: a large offset would cost precision
    moment = np.cumsum(counts * (centers - centers[0]))
    dark, bright = weight[:-1], weight[-1] - weight[:-1]
    apart = moment[:-1] / dark - (moment[-1] - moment[:-1]) / bright
    return float(centers[np.argmax(dark * bright * apart**2)])


def _li(histogram: Histogram) -> float:
    """Minimum cross-entropy: https://doi.org/10.1016/S0167-8655(98)00057-9."""
    counts, centers = histogram.counts, histogram.centers
    # shifted to start at 0, as in scikit-image, so that the logarithms exist
    base = centers[0]
    grey = centers - base
    tolerance = (grey[1] - grey[0]) / 2
    weight = np.cumsum(counts)
    moment = np.cumsum(counts * grey)
    threshold = moment[-1] / weight[-1]
    before = threshold - 2 * tolerance
    while abs(threshold - before) > tolerance:
        before = threshold
        split = int(np.searchsorted(grey, threshold, side="right")) - 1
        dark = moment[split] / weight[split]
        bright = (moment[-1] - moment[split]) / (weight[-1] - weight[split])
        if dark == 0:
            # only the darkest level is left: log(0) is undefined, and the threshold cannot go lower
            break
        threshold = (dark - bright) / (np.log(dark) - np.log(bright))
    return float(threshold + base)


def _triangle(histogram: Histogram) -> float:
    """Largest distance below the line from the end of the longer tail to the peak (Zack, 1977).

    https://doi.org/10.1177/25.7.70454
    """
    counts = histogram.counts.astype(np.float64)
    present = np.flatnonzero(counts)
    peak, first, last = int(np.argmax(counts)), int(present[0]), int(present[-1])
    end, step = (first, 1) if peak - first >= last - peak else (last, -1)
    span = abs(peak - end)
    along = np.arange(span)
    below = counts[peak] * along - span * counts[end + step * along]
    return float(histogram.centers[end + step * int(np.argmax(below))])


def _by_scikit_image(name: str, histogram: Histogram, **options: Any) -> list[float]:
    """Return the thresholds that a function of scikit-image finds, in ascending order."""
    # imported late: the import takes longer than segmenting a small volume
    from skimage import filters

    find = getattr(filters, f"threshold_{name}")
    found = np.atleast_1d(find(hist=(histogram.counts, histogram.centers), **options))
    return [float(each) for each in found]


def _minimum(histogram: Histogram) -> float:
    """Minimum between two peaks: https://doi.org/10.1111/j.1749-6632.1965.tb11715.x.

    The histogram is smoothed until two peaks are left; with thousands of levels the allowed number
    of iterations is not enough.
    """
    return _by_scikit_image("minimum", histogram.coarser(_COARSE))[0]


#: Global threshold methods, which return the highest grey value of the dark class, as do the
#: functions of these names in scikit-image. The first three are implemented here: scikit-image
#: accepts only images for Li and triangle, and adds up Otsu's counts in 32 bits, so that every
#: third histogram of two Gaussians and 1e8 voxels gets a threshold of smaller variance
#: (scikit-image 0.26). A method that finds no threshold raises RuntimeError, IndexError or
#: ValueError.
METHODS: dict[str, Callable[[Histogram], float]] = {
    "otsu": _otsu,
    "li": _li,
    "triangle": _triangle,
    "yen": lambda histogram: _by_scikit_image("yen", histogram)[0],
    "isodata": lambda histogram: _by_scikit_image("isodata", histogram)[0],
    "minimum": _minimum,
}


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

#: Share of the voxels by which a histogram differs from one Gaussian, from which it is not one; and
#: share of the pores that noise hides at a threshold, from which the group beside is not clear.
_BROAD, _UNCLEAR = 0.09, 0.05

#: Part of the way from the main peak to the second group that a threshold goes at most.
_WAY = 0.85


class Groups(NamedTuple):
    """Grey values of pores and solid in a histogram, and a threshold between them.

    `method`: ``"otsu"``, ``"mixture"`` or ``"main peak"``. `false_void`, `false_solid`: shares of
    the voxels of solid (of pores) that noise places on the wrong side. `second`: whether there are
    two groups.
    `grains`: share of all voxels that are bright grains, which Otsu's threshold would separate.
    `void`, `otsu_void`: share of void of two groups with blurred edges, if they are certain, or by
    a threshold beside the main peak; and by the threshold that was examined.
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
    void: float | None = None
    otsu_void: float | None = None

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
    model = fit_mixture(counts, centers)
    counts, centers = without_gaps(counts, centers, _COARSE)
    beside = _beside_main_peak(counts, centers, otsu, may_change)
    own = float(counts[centers <= otsu].sum() / counts.sum())
    if beside.method != "otsu":
        void = float(counts[centers <= beside.threshold].sum() / counts.sum())
        beside = beside._replace(void=void, otsu_void=own)
    if model is None or beside.grains:
        return beside
    pore = _Peak(model.pore, model.noise, model.void)
    solid = _Peak(model.solid, model.noise, 1 - model.void)
    if not model.is_certain:
        # neither one Gaussian nor two groups: nothing is better than Otsu's threshold
        is_neither = model.misfit > MISFIT and model.of_one > _BROAD
        is_unclear = not beside.second or beside.false_solid > _UNCLEAR
        if not (is_neither and is_unclear):
            return beside
        return _judged(otsu, "otsu", pore, solid)._replace(second=False)
    found, method = otsu, "otsu"
    if may_change and abs(own - model.void) > _ERROR * model.void:
        ends, up_to = spread_over_gaps(counts, centers)
        found, method = float(np.interp(model.void, up_to, ends)), "mixture"
    return _judged(found, method, pore, solid)._replace(void=model.void, otsu_void=own)


def _beside_main_peak(counts: Float64s, centers: Float64s, otsu: float, may_change: bool) -> Groups:
    """Find the main peak and the group beside it, and which threshold divides them."""
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
    if spread > _WIDE:
        # zeros that hold the ends of the filter on either side
        size = values.size + int(4 * spread)
        passes = np.exp(-2 * (np.pi * spread * np.fft.rfftfreq(size)) ** 2)
        smooth = np.fft.irfft(np.fft.rfft(values, size) * passes, size)[: values.size]
        return smooth
    smooth = ndimage.gaussian_filter1d(values, spread, mode="constant")
    return smooth


def _beyond(deviations: float) -> float:
    """Return the share of Gaussian noise above so many standard deviations."""
    return 0.5 * math.erfc(deviations / math.sqrt(2))


def two_groups(histogram: Histogram, threshold: float, bright: bool) -> tuple[float, float] | None:
    """Return where the grey values of the pores lie, if there are two groups of them; else None.

    The groups stand apart in the histogram: it is clearly lower between them than at either peak,
    and lower again at the threshold, where noise of the solid and voxels that are in part of it
    are. A threshold that was to part pores from solid may have left a third material on their side.
    """
    from scipy import ndimage

    histogram = histogram.trimmed()
    counts, centers = histogram.counts.astype(np.float64), histogram.centers
    is_pore = centers > threshold if bright else centers <= threshold
    total, beyond = counts.sum(), counts[~is_pore].sum()
    other = float(counts[~is_pore] @ centers[~is_pore] / max(beyond, 1.0))
    # where grey values were cut off, their ends hold more
    is_pore[[0, -1]] = False
    counts, centers = counts[is_pore], centers[is_pore]
    least = max(_GROUP * total, _GROUP_VOXELS)
    if counts.sum() < 2 * least:
        return None
    up_to = np.cumsum(counts) / counts.sum()
    first, last = np.searchsorted(up_to, (0.001, 0.999))
    counts, centers = counts[first : last + 1], centers[first : last + 1]
    smooth = ndimage.gaussian_filter1d(counts, max(1.0, counts.size / _WIDTHS), mode="nearest")
    lower_peak = np.minimum(
        np.maximum.accumulate(smooth), np.maximum.accumulate(smooth[::-1])[::-1]
    )
    valley = int(np.argmin(smooth / np.maximum(lower_peak, 1e-9)))
    sizes = counts[:valley].sum(), counts[valley:].sum()
    if min(sizes) < least or smooth[valley] > _VALLEY * lower_peak[valley]:
        return None
    nearer = smooth[:valley] if bright else smooth[valley:]
    if smooth[0 if bright else -1] > _VALLEY * nearer.max():
        return None
    groups = [centers[np.argmax(smooth[:valley])], centers[valley + np.argmax(smooth[valley:])]]
    farther = groups[1] if bright else groups[0]
    # some grains of metal are as far away as they like
    if beyond >= least and abs(groups[1] - groups[0]) < _GROUPS_APART * abs(other - farther):
        return None
    return float(groups[0]), float(groups[1])
