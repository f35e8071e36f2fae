"""Diagnosis of the noise: whether it is uncorrelated, as N2V needs.

Masked pixels are predicted from their neighbours. If the noise of neighbouring voxels is
correlated, part of it can be predicted too and remains in the result: as grain after interpolation
or a smoothing reconstruction, or as lines and rings from detector rows and columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hushpore.base.arrays import Float32s, Float64s

#: Correlation of neighbouring voxels from which the noise counts as correlated.
NOTABLE = 0.15

#: Binning is advised if it reduces the correlation to less than this share.
_BINS_WELL = 0.7

#: Circles count as parallel to an axis if the distance from the centre is this many times longer
#: across it.
_ACROSS = 3.0

#: Minimum number of blocks with circles parallel to each axis. Three hold some 2,000 voxels, in
#: which chance makes a correlation of 0.02.
_LEAST_BLOCKS = 3

#: Distance from the centre from which circles are straight within a block, in pixels.
_LEAST_RADIUS = 12.0


@dataclass(frozen=True)
class NoiseDiagnosis:
    """Correlation and strength of the noise of a volume."""

    # correlation of the noise of neighbouring voxels, for each spatial axis
    correlation: dict[str, float]
    # noise standard deviation in flat regions, from differences of neighbours, in grey values
    noise: float
    # the noise variance is ``offset + slope * value`` at a grey value; the slope is due to photon
    # noise, and 0 if it cannot be measured
    slope: float = 0.0
    offset: float = 0.0
    # correlation of the noise along circles around the centre of the slices, if it is clearly
    # higher than across them; otherwise 0
    rings: float = 0.0
    # share of the voxels with the maximum value, if at least 0.01; otherwise 0
    saturated: float = 0.0
    # the higher of the correlations along y and x after binning 2 x 2; 1 if not calculated
    binned: float = 1.0

    @property
    def is_independent(self) -> bool:
        """Whether the noise is uncorrelated, as far as measured."""
        return not self.correlated_axes and not self.rings

    @property
    def correlated_axes(self) -> str:
        """The axes along which the noise of neighbours is correlated, most correlated first."""
        notable = {axis: c for axis, c in self.correlation.items() if c >= NOTABLE}
        return "".join(sorted(notable, key=lambda axis: -notable[axis]))

    def variance_at(self, values: Float32s) -> Float32s:
        """Return the noise variance at grey values."""
        least = (0.1 * self.noise) ** 2
        result: Float32s = np.maximum(self.offset + self.slope * values, least)
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
    across_y: Float64s, across_x: Float64s, from_middle: Float64s, margin: float
) -> float:
    """Return the correlation of the noise along circles around the centre of the slices (rings).

    A detector pixel with a constant error makes a ring. Such noise is correlated along x or y only
    where circles are parallel to that axis.

    `across_y`, `across_x`: second differences of blocks, (n_blocks, depth, y, x). `from_middle`:
    positions of the blocks, (n_blocks, 2): y and x from the centre of the slice, in pixels.
    `margin`: minimum difference between the correlations along and across circles.
    Returns: 0 unless this difference is reached both where circles are parallel to x and to y.
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


def neighbour_correlation(values: Float64s, axis: int) -> float:
    """Return the correlation of neighbouring values with zero mean along an axis."""
    before = (slice(None),) * axis
    a, b = values[(*before, slice(1, None))], values[(*before, slice(None, -1))]
    power = np.sqrt(np.mean(a**2) * np.mean(b**2))
    return float(np.mean(a * b) / power) if power else 0.0
