"""Rings: noise that is alike along circles about the axis of rotation of a tomograph.

A detector pixel that is off by a little in every view makes a ring. Along x and y such noise is
correlated only where a circle happens to run along them, so that no axis can be named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

#: A circle runs along an axis where the way from the middle is so much longer across it.
_ACROSS = 3.0

#: Blocks where it does that are needed for either axis, and how far from the middle, in pixels.
_LEAST_BLOCKS, _LEAST_RADIUS = 10, 12.0


def ring_correlation(
    across_y: npt.NDArray[np.float64],
    across_x: npt.NDArray[np.float64],
    from_middle: npt.NDArray[np.float64],
    margin: float,
) -> float:
    """Return the correlation of noise along circles about the middle of the slices.

    Parameters
    ----------
    across_y, across_x : ndarray
        Second differences of blocks, (n_blocks, depth, y, x).
    from_middle : ndarray
        Where the blocks lie, (n_blocks, 2): y and x from the middle of the slice, in pixels.
    margin : float
        By how much noise must be more correlated along circles than across them.

    Returns
    -------
    float
        Zero where it is not, both where circles run along x and where they run along y.
    """
    away = np.abs(from_middle)
    far = np.hypot(*away.T) >= _LEAST_RADIUS
    along_x = far & (away[:, 0] > _ACROSS * away[:, 1])
    along_y = far & (away[:, 1] > _ACROSS * away[:, 0])
    if min(along_x.sum(), along_y.sum()) < _LEAST_BLOCKS:
        return 0.0
    found = []
    for blocks, is_along_x in ((along_x, True), (along_y, False)):
        x = correlation(across_y[blocks][..., 1:], across_y[blocks][..., :-1])
        y = correlation(across_x[blocks][:, :, 1:], across_x[blocks][:, :, :-1])
        along, across = (x, y) if is_along_x else (y, x)
        if along - max(across, 0) < margin:
            return 0.0
        found.append(along)
    return min(found)


def correlation(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Return the correlation of two sets of values whose means are zero."""
    power = np.sqrt(np.mean(a**2) * np.mean(b**2))
    return float(np.mean(a * b) / power) if power else 0.0
