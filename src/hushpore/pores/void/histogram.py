"""Histograms of grey values, and the threshold between pore and solid that a method finds in one.

The histogram is all that a method looks at, so that a volume need not be in memory in one piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

#: Bins at most for methods that look at each level, or whose time grows with a power of the bins.
_COARSE = 256


@dataclass(frozen=True, eq=False)
class Histogram:
    """How often each grey value occurs."""

    counts: npt.NDArray[np.int64]  # (bins,), int64
    centers: npt.NDArray[np.float64]  # (bins,), float64: the grey value of each bin

    def trimmed(self) -> Histogram:
        """Return the histogram without the empty bins at both ends."""
        full = np.flatnonzero(self.counts)
        kept = slice(full[0], full[-1] + 1)
        return Histogram(self.counts[kept], self.centers[kept])

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
    histogram: Histogram, method: str, phases: int = 2, bright: bool = False
) -> float:
    """Return the threshold that a method finds; values up to it are the dark phase.

    `method`: one of `METHODS`. `phases`: number of grey phases; above 2 for ``otsu`` only (Liao,
    Chen and Chung, 2001). `bright`: which of several thresholds: the highest, else the lowest.
    Raises InputError if the method finds no threshold in this histogram, or does not know more than
    two phases.
    """
    if phases > 2 and method != "otsu":
        raise InputError(
            f"Only the method 'otsu' knows {phases} phases; got {method!r}. "
            "Choose 'otsu', or set phases to 2."
        )
    try:
        if phases > 2:
            coarse = histogram.coarser(_COARSE)
            found = _by_scikit_image("multiotsu", coarse, classes=phases)
            return found[-1 if bright else 0]
        return METHODS[method](histogram)
    except (RuntimeError, IndexError, ValueError) as error:
        raise InputError(
            f"The method {method!r} finds no threshold in this image ({error}). "
            "Choose another method, or give the threshold as a number."
        ) from None


def _otsu(histogram: Histogram) -> float:
    """Largest variance between the phases: https://doi.org/10.1109/TSMC.1979.4310076."""
    histogram = histogram.trimmed()
    counts, centers = histogram.counts.astype(np.float64), histogram.centers
    weight = np.cumsum(counts)
    # values far from zero would take the digits of what is between the phases
    moment = np.cumsum(counts * (centers - centers[0]))
    dark, bright = weight[:-1], weight[-1] - weight[:-1]
    apart = moment[:-1] / dark - (moment[-1] - moment[:-1]) / bright
    return float(centers[np.argmax(dark * bright * apart**2)])


def _li(histogram: Histogram) -> float:
    """Minimum cross-entropy: https://doi.org/10.1016/S0167-8655(98)00057-9."""
    counts, centers = histogram.counts, histogram.centers
    # as in scikit-image the values are shifted to start at 0, so that their logarithms exist
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
            # the darkest level alone: its logarithm has no value, and this is as low as it goes
            break
        threshold = (dark - bright) / (np.log(dark) - np.log(bright))
    return float(threshold + base)


def _triangle(histogram: Histogram) -> float:
    """Farthest below the line from the longer tail's end up to the peak (Zack, 1977).

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
    """Return the thresholds that a function of scikit-image finds, rising."""
    # loaded where it is needed: that takes longer than a small volume
    from skimage import filters

    find = getattr(filters, f"threshold_{name}")
    found = np.atleast_1d(find(hist=(histogram.counts, histogram.centers), **options))
    return [float(each) for each in found]


def _minimum(histogram: Histogram) -> float:
    """The lowest place between two peaks: https://doi.org/10.1111/j.1749-6632.1965.tb11715.x.

    The histogram is smoothed until two peaks are left; of thousands of levels that takes more
    than the iterations that it is given.
    """
    return _by_scikit_image("minimum", histogram.coarser(_COARSE))[0]


#: Methods that find one threshold for the whole volume: the highest grey value of the dark phase,
#: as scikit-image's functions of these names. The first three are written out here: it has Li's
#: and the triangle for images alone, and sums up Otsu's counts in 32 bits, by which every third
#: histogram of two Gaussians and 1e8 voxels gets another threshold (scikit-image 0.26), of a
#: smaller variance. One that finds none raises RuntimeError, IndexError or ValueError.
METHODS: dict[str, Callable[[Histogram], float]] = {
    "otsu": _otsu,
    "li": _li,
    "triangle": _triangle,
    "yen": lambda histogram: _by_scikit_image("yen", histogram)[0],
    "isodata": lambda histogram: _by_scikit_image("isodata", histogram)[0],
    "minimum": _minimum,
}
