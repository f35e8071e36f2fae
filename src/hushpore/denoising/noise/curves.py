"""Curves of the correlation and the power spectrum of noise along each axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import fft

from hushpore.scan.noise_model import power_spectrum

if TYPE_CHECKING:
    import pandas as pd

    from hushpore.base.arrays import Float64s
    from hushpore.scan.noise_model import NoiseModel

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
