"""Model of the noise of a scan: strength, correlation and their uncertainty.

The noise of a reconstruction is correlated between neighbours in every direction, by the blur of
the detector, by interpolation and by the reconstruction filter. A denoiser needs that correlation.

The diagnosis says whether the noise is uncorrelated, as N2V needs. Masked pixels are predicted from
their neighbours. If the noise of neighbouring voxels is correlated, part of it can be predicted too
and remains in the result: as grain after interpolation or a smoothing reconstruction, or as lines
and rings from detector rows and columns.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import fft

from hushpore.base.formatting import readable_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

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


#: Maximum correlation of two voxels in white noise.
_INDEPENDENT = 0.05

#: Correlation at the largest lag along an axis above which the noise extends beyond it.
_FAR = 0.2

#: End of a doubt on noise whose strength is known, but that is not that of a normal distribution.
FAR_FROM_GAUSSIAN = "it is far from Gaussian."

#: Noise relative to the standard deviation of a scan up to which it counts as weak.
WEAK = 0.2

#: Minimum relative difference of the noise far from the centre and near it, for a note.
_NOTABLE_RIM = 0.1

#: Minimum relative difference that is simulated.
_CLEAR_RIM = 0.05

#: Diagnosis of noise that is known without measuring.
_NOT_LOOKED_AT = NoiseDiagnosis({}, 0.0)


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """The noise of a scan, as estimated from flat regions.

    Attributes
    ----------
    autocovariance : numpy.ndarray
        float64, at lags from -reach to +reach along each spatial axis, lag zero in the middle; in
        squared grey values. It is zero beyond. Where the variance depends on the grey value, it is
        that at the mean grey value.
    correlation_error : numpy.ndarray
        The standard error of `correlation`, of the same shape.
    deviation_error : float
        The standard error of `deviation`.
    offset, slope : float
        The variance is ``offset + slope * value`` at a grey value; the slope is zero if it cannot
        be determined.
    slices : numpy.ndarray
        The standard deviation in each slice, float64, NaN without flat regions; empty in 2D.
    rim : float
        The standard deviation far from the centre of the slices, relative to that near it.
    rim_error : float
        The standard error of `rim`.
    blocks : int
        Number of flat regions in the estimate.
    is_uneven : bool
        Whether flat regions differ by more than chance: the noise varies strongly with position, or
        image structure was included.
    doubts : tuple of str
        Reasons why the estimate may be wrong, each in a sentence; empty if there are none.
    diagnosis : NoiseDiagnosis
        The diagnosis from differences of neighbours in the same flat regions.
    strength : numpy.ndarray or None
        The standard deviation at each place of a slice relative to `deviation`, float32, shape
        (y, x) of a few cells; None if the noise is uniform.
    """

    autocovariance: Float64s
    correlation_error: Float64s
    deviation_error: float
    offset: float
    slope: float
    slices: Float64s
    rim: float
    rim_error: float
    blocks: int
    is_uneven: bool = False
    doubts: tuple[str, ...] = ()
    diagnosis: NoiseDiagnosis = _NOT_LOOKED_AT
    strength: Float32s | None = None

    @property
    def reach(self) -> tuple[int, ...]:
        """The largest lag along each spatial axis."""
        return tuple(n // 2 for n in self.autocovariance.shape)

    @property
    def deviation(self) -> float:
        """The standard deviation, in grey values."""
        return float(np.sqrt(self.autocovariance[self.reach]))

    @property
    def correlation(self) -> Float64s:
        """The autocovariance over the variance; without noise, 1 at lag zero and 0 elsewhere."""
        variance = self.autocovariance[self.reach]
        if variance:
            scaled: Float64s = self.autocovariance / variance
            return scaled
        alone = np.zeros_like(self.autocovariance)
        alone[self.reach] = 1.0
        return alone

    @property
    def is_independent(self) -> bool:
        """Whether the noise is white, at all measured lags."""
        others = np.abs(self.correlation)
        others[self.reach] = 0.0
        return bool(others.max() <= _INDEPENDENT)

    @property
    def has_rim(self) -> bool:
        """Whether the noise far from the centre of the slices clearly differs from that near it."""
        return abs(self.rim - 1) > max(_CLEAR_RIM, 3 * self.rim_error)

    @property
    def unevenness(self) -> str:
        """A sentence on noise that varies with position; empty otherwise."""
        if not self.is_uneven:
            return ""
        where = ""
        if abs(self.rim - 1) > max(_NOTABLE_RIM, 3 * self.rim_error):
            change = readable_percent(abs(self.rim - 1))
            stronger = "stronger" if self.rim > 1 else "weaker"
            where = f" ({change} {stronger} far from the centre of the slices than near it)"
        return (
            f"The noise varies across the image{where}, but is treated as uniform: some remains "
            "where it is stronger, and fine detail may be lost where it is weaker. Check the "
            "removed noise for detail."
        )

    def strengthened(self, factor: float, strength: Float32s | None = None) -> NoiseModel:
        """Return the noise model with `factor` times the standard deviation, and a map of it."""
        return replace(
            self,
            strength=strength,
            autocovariance=self.autocovariance * factor**2,
            deviation_error=self.deviation_error * factor,
            offset=self.offset * factor**2,
            slope=self.slope * factor**2,
        )

    def extended(self, far: Float64s, steps: Sequence[int]) -> NoiseModel:
        """Return the noise model with longer lags, from an autocovariance of every few voxels.

        Between the lags of `far` it is linear, plus what the autocovariance of neighbouring voxels
        deviates from a line there: small blocks hide noise that is coarser than they are.

        `far`: at every `steps`-th lag along each axis.
        """
        from scipy.ndimage import map_coordinates

        def between(values: Float64s, reach: Sequence[int]) -> Float64s:
            lags = (np.arange(-r, r + 1) for r in reach)
            places = (lag / s + n // 2 for lag, s, n in zip(lags, steps, values.shape, strict=True))
            at = np.meshgrid(*places, indexing="ij")
            return np.asarray(map_coordinates(values, at, order=1), np.float64)

        wide = between(far, [n // 2 * s for n, s in zip(far.shape, steps, strict=True)])
        # up to the last lag that both have
        common = [r // s * s for r, s in zip(self.reach, steps, strict=True)]

        def inner(shape: Sequence[int], every: Sequence[int]) -> tuple[slice, ...]:
            middles = zip(shape, common, every, strict=True)
            return tuple(slice(n // 2 - c, n // 2 + c + 1, s) for n, c, s in middles)

        ones = [1] * len(common)
        own, near = inner(self.autocovariance.shape, ones), inner(wide.shape, ones)
        lags = self.autocovariance[inner(self.autocovariance.shape, steps)]
        wide[near] += self.autocovariance[own] - between(lags, common)
        model = self.strengthened(math.sqrt(wide.flat[wide.size // 2]) / self.deviation)
        error = np.full(wide.shape, self.correlation_error.max())
        error[near] = self.correlation_error[own]
        return replace(model, autocovariance=wide, correlation_error=error)

    def scaled(self, unit: float) -> NoiseModel:
        """Return the noise model of the values times `unit`."""
        return replace(
            self,
            autocovariance=self.autocovariance * unit**2,
            deviation_error=self.deviation_error * unit,
            offset=self.offset * unit**2,
            slope=self.slope * unit,
            slices=self.slices * unit,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the model as plain JSON values, for the record."""
        facts = dataclasses.asdict(self) | {"deviation": self.deviation}
        # it has its own place in the record
        del facts["diagnosis"]
        if self.strength is None:
            del facts["strength"]
        kept = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in facts.items()}
        # NaN of slices without flat regions, and of an unknown rim
        kept["slices"] = [None if np.isnan(each) else each for each in kept["slices"]]
        kept["rim_error"] = None if np.isinf(self.rim_error) else self.rim_error
        return kept

    @property
    def nearest_correlation(self) -> float:
        """The largest correlation of direct neighbours over all axes."""
        steps = np.eye(len(self.reach), dtype=int) + self.reach
        near = [
            float(self.correlation[tuple(s)]) for s, r in zip(steps, self.reach, strict=True) if r
        ]
        return max(near, default=0.0)

    def spectrum(self, shape: Sequence[int]) -> Float64s:
        """Return the power spectrum on the grid of `scipy.fft.rfftn` of an array.

        `shape`: of the array, one number for each spatial axis.
        Returns: not negative; its mean over all frequencies of the full grid is the variance. White
        noise of unit variance, multiplied by the square root of the spectrum in Fourier space,
        becomes such noise. Large lags, which are the least certain, have a little less weight.
        """
        return power_spectrum(self.autocovariance, shape)


def far_axis(correlation: Float64s, least: float = _FAR) -> str:
    """Return the axis with the highest correlation at the largest lag; empty if below `least`."""
    reach = tuple(n // 2 for n in correlation.shape)
    found = {}
    for number, (axis, most) in enumerate(zip("zyx"[-len(reach) :], reach, strict=True)):
        place = [*reach]
        place[number] += most
        if most > 1:
            found[axis] = float(abs(correlation[tuple(place)]))
    axis = max(found, key=lambda each: found[each], default="")
    return axis if axis and found[axis] > least else ""


def power_spectrum(autocovariance: Float64s, shape: Sequence[int]) -> Float64s:
    """Return the power spectrum of an autocovariance, as `NoiseModel.spectrum` does."""
    reach = tuple(n // 2 for n in autocovariance.shape)
    around = np.zeros(tuple(shape))
    places = np.ix_(*(np.arange(-r, r + 1) % n for r, n in zip(reach, shape, strict=True)))
    # the square root of a cosine along each axis, 1 in the middle, for least ripple
    window = np.ones(())
    for r in reach:
        line = np.sqrt(np.cos(np.pi / 2 * np.arange(-r, r + 1) / (r + 1)))
        window = np.multiply.outer(window, line)
    # lags beyond half of a short axis overlap
    np.add.at(around, places, autocovariance * window)
    power = np.maximum(fft.rfftn(around).real, 0.0)
    # correct the variance for the negative values that were set to zero
    variance = fft.irfftn(power, tuple(shape)).flat[0]
    scaled: Float64s = power * (autocovariance[reach] / variance) if variance > 0 else power
    return scaled
