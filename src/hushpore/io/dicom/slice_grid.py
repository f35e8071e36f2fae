"""Even grids through the positions of slices, which headers round and sometimes leave out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hushpore.base.arrays import Array

_UNEVEN = 0.01  # tolerance for evenly spaced slices, as a fraction of the spacing
_MOST_MISSING = 10  # largest plausible ratio of grid positions to slices
_LEAST = 3  # smallest stack whose distances are examined
_ROUNDED = 1.25  # tolerance for rounded positions on an even grid, in units of the rounding
_EXACT = 1e-3  # spread of positions on a line that are not rounded, in tolerances


@dataclass(frozen=True)
class SliceGrid:
    """Spacing of slices in order, and the place of each on an even grid."""

    step: float  # mean distance, or the median of unevenly spaced slices, in mm
    indices: Array | None  # from 0; None for unevenly spaced slices
    is_fitted: bool = False  # whether coarsely rounded positions were averaged over the stack


def grid_of(positions: Array, numbers: Array, rounding: float, tolerance: float) -> SliceGrid:
    """Return the grid of slices along one line.

    Coarsely rounded positions look uneven, or as if slices were missing or at the same position.
    A line through them against the numbers of the slices shows whether rounding explains it.

    `positions`: ascending, in mm; at least 2. `numbers`: of the slices, which may skip missing
    ones; NaN if a slice has none. `rounding`: unit to which the positions are rounded, in mm; 0 if
    unknown. `tolerance`: distance below which two positions are equal, in mm.
    Returns: a grid with a step that is exact to floating-point precision if the positions are.

    >>> grid_of(np.array([7.0, 8, 10, 12, 13]), np.arange(1.0, 6), 1.0, 0.001)
    SliceGrid(step=1.6, indices=array([0, 1, 2, 3, 4]), is_fitted=True)
    """
    count = np.arange(len(positions))
    are_apart = float(np.diff(positions).min()) >= tolerance
    exact = SliceGrid(0.0, None)
    if are_apart:
        exact = _even_steps(positions, rounding, tolerance)
        is_exact = _line(positions, count)[1] < _EXACT * tolerance
        if rounding == 0 or len(positions) < _LEAST or is_exact:
            return exact
    candidates = [_indices_by_number(numbers)]
    if are_apart and _explains_little(exact):
        candidates.append(count)
    for indices in candidates:
        if indices is None:
            continue
        step, spread = _line(positions, indices)
        if spread < _EXACT * tolerance:
            return exact
        # a finer rounding averages out
        if rounding >= step / 10 and spread <= _ROUNDED * rounding:
            # no more digits than rounding leaves
            return SliceGrid(float(f"{step:.4g}"), indices, is_fitted=True)
    return exact


def rounding_of(values: Array) -> float:
    """Return the power of ten, at most 1, of which all values are multiples; 0 below 1e-6.

    >>> rounding_of(np.array([7.0, 7.02, 7.5]))
    0.01
    """
    for digits in range(7):
        if np.allclose(values, values.round(digits), rtol=0, atol=1e-9):
            return float(10.0**-digits)
    return 0.0


def gap_notes(positions: Array, grid: SliceGrid) -> list[str]:
    """Return a note on missing or unevenly spaced slices; none if they are even and complete."""
    gaps = np.diff(positions)
    if grid.indices is None:
        return [
            f"The slices are unevenly spaced ({gaps.min():.4g} to {gaps.max():.4g} mm apart); the "
            f"median distance, {grid.step:.4g} mm, is used. Resample the stack to an even spacing."
        ]
    steps = np.diff(grid.indices)
    if (steps == 1).all():
        return []
    # slice numbers of the complete stack, from 1
    missing = sorted(set(range(1, int(grid.indices[-1]) + 2)) - {int(n) + 1 for n in grid.indices})
    shown = ", ".join(str(n) for n in missing[:5]) + (", ..." if len(missing) > 5 else "")
    what = f"Slice {shown} is" if len(missing) == 1 else f"Slices {shown} are"
    first = int(np.argmax(steps > 1))
    return [
        f"{what} missing: no slices between {positions[first]:.4g} and "
        f"{positions[first + 1]:.4g} mm (spacing {grid.step:.4g} mm elsewhere). The gap was "
        "closed. Resample the stack to interpolate it."
    ]


def _explains_little(exact: SliceGrid) -> bool:
    """Whether slices that are not rounded would be uneven, or many of them missing."""
    return exact.indices is None or exact.indices[-1] + 1 - len(exact.indices) >= _LEAST


def _indices_by_number(numbers: Array) -> Array | None:
    """Return slice numbers that run up or down as indices from 0; None for any others."""
    steps = np.diff(numbers)
    if not ((steps > 0).all() or (steps < 0).all()):
        return None
    whole = np.abs(numbers - numbers[0]).astype(np.int64)
    indices: Array = whole // math.gcd(*whole.tolist())
    return indices if indices[-1] <= _MOST_MISSING * len(indices) else None


def _line(positions: Array, indices: Array) -> tuple[float, float]:
    """Return the slope of the line through the positions, and the range of the residuals.

    The least-squares line depends less on the rounding of the ends than the mean distance does.
    """
    step = float(np.polyfit(indices, positions, 1)[0])
    return step, float(np.ptp(positions - step * indices))


def _even_steps(positions: Array, rounding: float, tolerance: float) -> SliceGrid:
    """Return the grid of positions that differ, with the mean distance as step.

    If the slices are unevenly spaced, the step is the median distance.
    """
    median = float(np.median(np.diff(positions)))
    steps = np.rint(np.diff(positions) / median)
    indices = np.concatenate([[0.0], np.cumsum(steps)])
    # beyond this ratio a position is wrong, rather than slices missing
    if (steps < 1).any() or indices[-1] > _MOST_MISSING * len(positions):
        return SliceGrid(_shortest(median, positions), None)
    step = float((positions[-1] - positions[0]) / indices[-1])
    off = float(np.abs(positions - positions[0] - step * indices).max())
    # a coarser rounding is no reason to call uneven slices even
    while rounding >= step / 10:
        rounding /= 10
    if off > max(_UNEVEN * step, rounding) + tolerance:
        return SliceGrid(_shortest(median, positions), None)
    return SliceGrid(_shortest(step, positions), indices.astype(int))


def _shortest(step: float, positions: Array) -> float:
    """Return the shortest decimal that equals the spacing within floating-point precision.

    For example 0.05 for 0.05000000000004.
    """
    noise = 8 * np.finfo(float).eps * float(np.abs(positions).max())
    for digits in range(1, 16):
        short = float(f"{step:.{digits}g}")
        if abs(short - step) <= noise:
            return short
    return step
