"""A model of the noise of a scan: how strong, how correlated, how certain.

A reconstruction's noise is correlated between neighbours in every direction: by the detector's
blur, by interpolation and by the filter of the reconstruction. What denoises it has to know how.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import fft

from hushpore.base.formatting import readable_percent
from hushpore.denoising.noise.diagnosis import NoiseDiagnosis

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

#: Correlation of any two voxels up to which noise is independent.
_INDEPENDENT = 0.05

#: By how much the deviation far from the middle differs from that near it, where it is said.
_NOTABLE_RIM = 0.1

#: Of noise that is known otherwise.
_NOT_LOOKED_AT = NoiseDiagnosis({}, 0.0)


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """What the noise of a scan is like, as far as flat places tell.

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
        The variance is ``offset + slope * value`` at a grey value; the slope is zero where none
        can be told.
    slices : numpy.ndarray
        The standard deviation in each slice, float64, NaN where no flat place tells; empty in 2D.
    rim : float
        The standard deviation far from the middle of the slices over that near it.
    rim_error : float
        The standard error of `rim`.
    blocks : int
        How many flat places it comes from.
    is_uneven : bool
        Whether flat places differ by more than chance: the noise changes much with place, or some
        of what is found is image.
    doubts : tuple of str
        Why it may be wrong, each in a sentence; empty where nothing speaks against it.
    diagnosis : NoiseDiagnosis
        The noise of neighbours, by differences in the same flat places.
    count : float or None
        The grey value of one photon, where values are counts with the noise of such.
    """

    autocovariance: npt.NDArray[np.float64]
    correlation_error: npt.NDArray[np.float64]
    deviation_error: float
    offset: float
    slope: float
    slices: npt.NDArray[np.float64]
    rim: float
    rim_error: float
    blocks: int
    is_uneven: bool = False
    doubts: tuple[str, ...] = ()
    diagnosis: NoiseDiagnosis = _NOT_LOOKED_AT
    count: float | None = None

    @property
    def reach(self) -> tuple[int, ...]:
        """The largest lag along each spatial axis."""
        return tuple(n // 2 for n in self.autocovariance.shape)

    @property
    def deviation(self) -> float:
        """The standard deviation, in grey values."""
        return float(np.sqrt(self.autocovariance[self.reach]))

    @property
    def correlation(self) -> npt.NDArray[np.float64]:
        """The autocovariance over the variance; of no noise, one at lag zero and zero else."""
        variance = self.autocovariance[self.reach]
        if variance:
            scaled: npt.NDArray[np.float64] = self.autocovariance / variance
            return scaled
        alone = np.zeros_like(self.autocovariance)
        alone[self.reach] = 1.0
        return alone

    @property
    def is_independent(self) -> bool:
        """Whether no two voxels have noise in common, at any lag that is looked at."""
        others = np.abs(self.correlation)
        others[self.reach] = 0.0
        return bool(others.max() <= _INDEPENDENT)

    @property
    def unevenness(self) -> str:
        """What to know where the noise changes with place, in a sentence; else empty."""
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

    def scaled(self, unit: float) -> NoiseModel:
        """Return that of the values times a number."""
        return replace(
            self,
            autocovariance=self.autocovariance * unit**2,
            deviation_error=self.deviation_error * unit,
            offset=self.offset * unit**2,
            slope=self.slope * unit,
            slices=self.slices * unit,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values, for the record."""
        facts = dataclasses.asdict(self) | {"deviation": self.deviation}
        # which has its own place there
        del facts["diagnosis"]
        if self.count is None:
            del facts["count"]
        kept = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in facts.items()}
        # of slices where no flat place tells, and of a rim that none does
        kept["slices"] = [None if np.isnan(each) else each for each in kept["slices"]]
        kept["rim_error"] = None if np.isinf(self.rim_error) else self.rim_error
        return kept

    @property
    def nearest_correlation(self) -> float:
        """The largest correlation of direct neighbours along an axis."""
        steps = np.eye(len(self.reach), dtype=int) + self.reach
        near = [
            float(self.correlation[tuple(s)]) for s, r in zip(steps, self.reach, strict=True) if r
        ]
        return max(near, default=0.0)

    def spectrum(self, shape: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return the power spectrum on the grid of `scipy.fft.rfftn` of an array.

        `shape`: of the array, one number a spatial axis.
        Returns: not negative; its mean over all frequencies of the full grid is the variance. White
        noise of unit variance whose transform is multiplied by the root of it is such noise. Large
        lags, which are known least, count a little less.
        """
        return power_spectrum(self.autocovariance, shape)


def power_spectrum(
    autocovariance: npt.NDArray[np.float64], shape: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Return the power spectrum of an autocovariance, as `NoiseModel.spectrum` does."""
    reach = tuple(n // 2 for n in autocovariance.shape)
    around = np.zeros(tuple(shape))
    places = np.ix_(*(np.arange(-r, r + 1) % n for r, n in zip(reach, shape, strict=True)))
    # lags beyond half of a short axis fall on one another
    np.add.at(around, places, autocovariance * taper(reach))
    power = np.maximum(fft.rfftn(around).real, 0.0)
    # what was cut off at zero is made up for
    variance = fft.irfftn(power, tuple(shape)).flat[0]
    scaled: npt.NDArray[np.float64] = (
        power * (autocovariance[reach] / variance) if variance > 0 else power
    )
    return scaled


def taper(reach: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return the root of a cosine along each axis, one in the middle: it leaves least ripple."""
    window = np.ones(())
    for r in reach:
        line = np.sqrt(np.cos(np.pi / 2 * np.arange(-r, r + 1) / (r + 1)))
        window = np.multiply.outer(window, line)
    return window
