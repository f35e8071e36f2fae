"""Histograms of grey values, and global threshold methods.

A method needs only the histogram, so the volume need not fit into memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.arrays import Float64s, Int64s

#: Name of the method that chooses between Otsu's and others: `hushpore.pores.void.automatic`.
AUTO = "auto"

#: Maximum number of bins for methods that visit each level or scale with a power of the bins.
_COARSE = 256


@dataclass(frozen=True, eq=False)
class Histogram:
    """Histogram of grey values."""

    counts: Int64s  # (bins,), int64
    centers: Float64s  # (bins,), float64: the grey value of each bin

    def trimmed(self) -> Histogram:
        """Return the histogram without the empty bins at both ends."""
        full = np.flatnonzero(self.counts)
        kept = slice(full[0], full[-1] + 1)
        return Histogram(self.counts[kept], self.centers[kept])

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
