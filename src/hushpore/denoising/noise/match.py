"""How well the residual (noisy minus denoised) matches the noise model, without a clean image.

The residual of a perfect result is the noise of the scan. If image detail was removed, the residual
has more power than the noise, mostly in blocks with edges; if noise was left, it has less. The
power spectra of blocks of the residual are compared with those of the noise model at the same
places and grey values, in groups of blocks with similar structure and in bands of frequency.

More power than the noise has counts as lost image. Less power P than that of the noise, N, counts
as noise left, of the power (sqrt(N) - sqrt(P))^2, as if a part of the noise had been subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import fft

from hushpore.scan.noise_model import power_spectrum

if TYPE_CHECKING:
    import pandas as pd

    from hushpore.base.arrays import Float64s, Int64s
    from hushpore.scan.noise_model import NoiseModel


#: Number of groups of blocks, by the structure of the result in them.
_GROUPS = 8

#: Minimum number of blocks, and minimum edge of a block.
_FEWEST, _LEAST_EDGE = 40, 8

#: Minimum noise variance at a grey value, relative to that at the mean grey value.
_LEAST_VARIANCE = 0.1


@dataclass(frozen=True)
class NoiseMatch:
    """Comparison of the residual with the noise model.

    Attributes
    ----------
    share : float
        1 if the residual is exactly like the noise, else ``1 / (1 + image_lost + noise_left)``.
    image_lost, noise_left : float
        Power of the image in the residual, and of the noise in the result, over that of the noise.
    frequencies : list of float
        Middles of the bands, in cycles per voxel.
    noise, flat, edges : list of float
        Power of the noise model, and of the residual in the half of the blocks with the least
        structure and in the quarter with the most, over the mean power of the noise, in each band.
    """

    share: float
    image_lost: float
    noise_left: float
    frequencies: list[float]
    noise: list[float]
    flat: list[float]
    edges: list[float]


def match_noise(
    residual: Float64s, denoised: Float64s, middles: Float64s, model: NoiseModel
) -> NoiseMatch | None:
    """Compare blocks of the residual with a noise model.

    Parameters
    ----------
    residual, denoised : numpy.ndarray
        The same blocks of both, shape (n, depth, edge, edge), the residual with a mean of zero.
    middles : numpy.ndarray
        Their middles in y and x, relative to the edges of a slice, shape (n, 2).
    model : NoiseModel
        The noise of the scan.

    Returns
    -------
    NoiseMatch or None
        None without noise or residual, if the noise model is uncertain, or with too few blocks.
    """
    count, edge = len(residual), residual.shape[-1]
    if not model.deviation or model.doubts or not residual.any():
        return None
    if count < _FEWEST or edge < _LEAST_EDGE:
        return None
    window = _window(edge)
    found = np.abs(fft.fft2(residual * window)) ** 2
    band = _bands(edge)
    power = np.stack([found[..., band == b].sum(-1).mean(1) for b in range(edge // 2)], -1)
    noise = windowed_spectrum(model.autocovariance, edge)
    expected = np.array([noise[band == b].sum() for b in range(edge // 2)])
    strength = _strength(model, denoised.mean((1, 2, 3)), middles)
    order = np.argsort(denoised.std((1, 2, 3)), kind="stable")
    groups = np.array_split(order, _GROUPS)
    there, asked = (
        np.stack([each[group].sum(0) for group in groups])
        for each in (power, strength[:, None] * expected)
    )
    lost = np.maximum(there - asked, 0.0).sum() / asked.sum()
    left = (np.maximum(np.sqrt(asked) - np.sqrt(there), 0.0) ** 2).sum() / asked.sum()
    cells = np.bincount(band.ravel())
    mean = noise.mean()
    flat, edges = (
        power[part].sum(0) / strength[part].sum() / cells / mean
        for part in (order[: count // 2], order[-(count // 4) :])
    )
    return NoiseMatch(
        float(1 / (1 + lost + left)),
        float(lost),
        float(left),
        *(
            [float(value) for value in line]
            for line in ((np.arange(edge // 2) + 0.5) / edge, expected / cells / mean, flat, edges)
        ),
    )


def windowed_spectrum(autocovariance: Float64s, edge: int) -> Float64s:
    """Return the expected power of noise in a windowed square, on the grid of `scipy.fft.fft2`.

    `autocovariance`: of `NoiseModel`, in 2D or 3D. `edge`: of the square, in pixels.
    """
    within = autocovariance
    if within.ndim == 3:
        within = within[len(within) // 2]
    shape = (2 * edge, 2 * edge)
    overlap = fft.irfft2(np.abs(fft.rfft2(_window(edge), shape)) ** 2, shape)
    around = np.zeros(shape)
    lags = (np.arange(-(n // 2), n // 2 + 1) % (2 * edge) for n in within.shape)
    around[np.ix_(*lags)] = within
    power = np.maximum(fft.fft2(around * overlap).real[::2, ::2], 0.0)
    total = edge**2 * overlap[0, 0] * within[tuple(n // 2 for n in within.shape)]
    # correct the variance for the negative values that were set to zero
    scaled: Float64s = power * (total / power.sum())
    return scaled


def _window(edge: int) -> Float64s:
    line = np.hanning(edge + 2)[1:-1]
    return np.outer(line, line)


def _bands(edge: int) -> Int64s:
    """Return the band of each frequency of a square; the last has the corners too."""
    line = fft.fftfreq(edge) * edge
    radius: Int64s = np.hypot(line[:, None], line).astype(np.int64)
    return np.minimum(radius, edge // 2 - 1)


def _strength(model: NoiseModel, values: Float64s, middles: Float64s) -> Float64s:
    """Return the noise variance of blocks, relative to that of the model at the mean grey value."""
    variance = model.deviation**2
    strength = np.ones(len(values))
    if model.slope:
        strength = np.maximum((model.offset + model.slope * values) / variance, _LEAST_VARIANCE)
    if model.strength is not None:
        places = (middles * model.strength.shape).astype(np.int64)
        strength = strength * model.strength[tuple(places.T)].astype(np.float64) ** 2
    return strength


#: Edge of the grid of simulated noise, and number of frequencies of a spectrum.
_GRID, _FREQUENCIES = 32, 17


def noise_curves(model: NoiseModel) -> pd.DataFrame:
    """Return the curves of a noise model: measured, and from simulated noise.

    Returns: ``curve`` (``"correlation"`` or ``"spectrum"``), ``axis``, ``at`` (distance in voxels,
    or frequency in cycles per voxel), ``measured``, ``drawn`` (simulated) and ``error``, the
    standard error of a measured correlation. A spectrum is along one axis, averaged over the
    others; for white noise it is 1 everywhere.
    """
    import pandas as pd

    reach = model.reach
    grid = (_GRID,) * len(reach)
    drawn = fft.irfftn(power_spectrum(model.autocovariance, grid), grid)
    tables = []
    for axis, name in enumerate("zyx"[-len(reach) :]):
        if not reach[axis]:
            continue
        lags = np.arange(reach[axis] + 1)
        line = tuple(lags + r if k == axis else r for k, r in enumerate(reach))
        near = tuple(lags if k == axis else 0 for k in range(len(reach)))
        measured, found = model.correlation[line], drawn[near] / (drawn.flat[0] or 1.0)
        error = model.correlation_error[line]
        frequencies = np.linspace(0, 0.5, _FREQUENCIES)
        for curve, at, of_both, errors in (
            ("correlation", lags, (measured, found), error),
            ("spectrum", frequencies, (_transform(measured), _transform(found)), np.nan),
        ):
            columns = {"curve": curve, "axis": name, "at": at, "measured": of_both[0]}
            tables.append(pd.DataFrame({**columns, "drawn": of_both[1], "error": errors}))
    return pd.concat(tables, ignore_index=True)


def _transform(correlation: Float64s) -> Float64s:
    """Return the spectrum of a correlation at distances from zero on; 1 for white noise."""
    lags, frequencies = np.arange(1, len(correlation)), np.linspace(0, 0.5, _FREQUENCIES)
    waves = np.cos(2 * np.pi * np.multiply.outer(frequencies, lags))
    spectrum: Float64s = correlation[0] + 2 * waves @ correlation[1:]
    return spectrum
