"""Whether N2V can work on a volume: whether its noise is independent from pixel to pixel.

A hidden pixel is predicted from its neighbours. Where the noise of neighbours is correlated, part
of it can be predicted too, and stays in the result: as grain after an interpolating detector or a
smoothing reconstruction, as lines and rings where a detector's rows or columns differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

#: Correlation of neighbours from which on it is worth a word.
NOTABLE = 0.15

#: Binning is advised where it leaves less than this of the correlation.
_BINS_WELL = 0.7

#: A circle runs along an axis where the way from the middle is so much longer across it.
_ACROSS = 3.0

#: Blocks in which circles run along an axis that are needed, for either axis. They do not overlap,
#: so that three hold some 2,000 voxels: chance makes a correlation of 0.02 of these.
_LEAST_BLOCKS = 3

#: Distance from the middle from which on circles are straight within a block, in pixels.
_LEAST_RADIUS = 12.0


@dataclass(frozen=True)
class NoiseDiagnosis:
    """What the noise is like."""

    # correlation of the noise of neighbouring voxels, for each spatial axis
    correlation: dict[str, float]
    # standard deviation of the noise in flat places by differences of neighbours, in grey values
    noise: float
    # the variance of the noise is ``offset + slope * value`` at a grey value; the slope is that of
    # photon noise, and zero where none can be told
    slope: float = 0.0
    offset: float = 0.0
    # correlation of the noise along circles about the middle of the slices, where it is clearly
    # higher than across them; zero elsewhere
    rings: float = 0.0
    # share of the values that are the highest of all, from 0.01 on; zero below
    saturated: float = 0.0
    # the highest correlation along y and x after binning slices 2 x 2; looked for where that would
    # be of use, else 1
    binned: float = 1.0

    @property
    def is_independent(self) -> bool:
        """Whether the noise is independent from pixel to pixel, as far as it can be told."""
        return not self.correlated_axes and not self.rings

    @property
    def correlated_axes(self) -> str:
        """The axes along which the noise of neighbours is correlated, most correlated first."""
        notable = {axis: c for axis, c in self.correlation.items() if c >= NOTABLE}
        return "".join(sorted(notable, key=lambda axis: -notable[axis]))

    def variance_at(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the variance of the noise at some grey values."""
        least = (0.1 * self.noise) ** 2
        result: npt.NDArray[np.float32] = np.maximum(self.offset + self.slope * values, least)
        return result

    @property
    def summary(self) -> str:
        """The finding in one or two sentences, with the remedy."""
        if self.rings:
            return (
                "The noise is correlated along circles around the centre of the slices "
                f"({self.rings:.2f}), as with ring artefacts, so some of it will remain. Correct "
                "rings in the reconstruction, or here (correct_rings=True)."
            )
        axes = self.correlated_axes
        if not axes:
            grows = " and increases with the grey value" if self.slope > 0 else ""
            return f"The noise is uncorrelated{grows}."
        found = ", ".join(f"{self.correlation[axis]:.2f} along {axis}" for axis in axes)
        text = f"The noise of neighbouring voxels is correlated ({found})"
        if len(axes) == 1:
            return f"{text}. Try correlated_along={axes!r}."
        advice = ""
        within = max(self.correlation["y"], self.correlation["x"])
        if self.binned < _BINS_WELL * within:
            advice = (
                f" Binning 2 x 2 within slices would reduce the correlation to {self.binned:.2f}."
            )
        return f"{text}, so some of it will remain.{advice}"

    @property
    def saturation(self) -> str:
        """A sentence on saturated values; empty if there are few."""
        if not self.saturated:
            return ""
        return (
            f"{100 * self.saturated:.0f} % of the voxels have the maximum grey value (saturated "
            "detector, or clipped conversion to fewer bits?): clipped values cannot be restored, "
            "and the noise there is underestimated."
        )


def ring_correlation(
    across_y: npt.NDArray[np.float64],
    across_x: npt.NDArray[np.float64],
    from_middle: npt.NDArray[np.float64],
    margin: float,
) -> float:
    """Return the correlation of noise along circles about the middle of the slices: of rings.

    A detector pixel that is off by a little in every view makes a ring. Along x and y such noise is
    correlated only where a circle happens to run along them, so that no axis can be named.

    `across_y`, `across_x`: second differences of blocks, (n_blocks, depth, y, x). `from_middle`:
    where the blocks lie, (n_blocks, 2): y and x from the middle of the slice, in pixels. `margin`:
    by how much noise must be more correlated along circles than across them.
    Returns: zero where it is not, both where circles run along x and where they run along y.
    """
    away = np.abs(from_middle)
    far = np.hypot(*away.T) >= _LEAST_RADIUS
    along_x = far & (away[:, 0] > _ACROSS * away[:, 1])
    along_y = far & (away[:, 1] > _ACROSS * away[:, 0])
    if min(along_x.sum(), along_y.sum()) < _LEAST_BLOCKS:
        return 0.0
    found = []
    for blocks, is_along_x in ((along_x, True), (along_y, False)):
        x = neighbour_correlation(across_y[blocks], 3)
        y = neighbour_correlation(across_x[blocks], 2)
        along, across = (x, y) if is_along_x else (y, x)
        if along - max(across, 0) < margin:
            return 0.0
        found.append(along)
    return min(found)


def neighbour_correlation(values: npt.NDArray[np.float64], axis: int) -> float:
    """Return the correlation of neighbours along an axis, of values whose mean is zero."""
    before = (slice(None),) * axis
    a, b = values[(*before, slice(1, None))], values[(*before, slice(None, -1))]
    power = np.sqrt(np.mean(a**2) * np.mean(b**2))
    return float(np.mean(a * b) / power) if power else 0.0
