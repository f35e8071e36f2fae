"""Flattening: a smooth field removes the drift and the cupping of the grey value of the solid.

The field is a tensor product of cubic splines with a penalty on their second differences, fitted to
the medians of the solid in small cells (P-splines: P. H. C. Eilers and B. D. Marx (1996),
https://doi.org/10.1214/ss/1038425655). Cross-validation over large blocks chooses the smoothness,
so that grains of several minerals, which do not continue into the next block, stay as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.fill_value import is_fill_value, possible_fill_values
from hushpore.base.volume import require_grey
from hushpore.io.lazy_arrays import Derived
from hushpore.io.parts import needed_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Array, Float32s, Float64s, Int64s, Mask
    from hushpore.base.volume import Volume

#: Whether the solid is brighter or darker than the pores.
Solid: TypeAlias = Literal["bright", "dark"]

_PLANES = 24  # slices that are read
_POINTS = 8000  # voxels of each that are examined
_CELLS = (12, 32, 32)  # cells along z, y, x, of which the medians are fitted
_EDGE = 6  # smallest edge of a cell in voxels
_INTERVALS = (3, 8, 8)  # spline intervals along z, y, x
_NODES = 49  # nodes along each axis between which the field is interpolated
_ROUNDS = 3  # the threshold between solid and pores follows the field

#: Blocks along each axis that are left out in turn, larger than grains, and the number of turns.
_BLOCKS, _TURNS = (3, 5, 5), 4
#: Distance from the middle of a block, in edges, up to which the prediction is judged.
_INNER = 0.3
_PENALTIES = 10.0 ** np.arange(-2, 4)
#: Share of the variance of the solid in blocks left out that the field must predict.
_EXPLAINED = 0.2
#: Cells and voxels of pores that are needed.
_FEWEST_CELLS, _FEWEST_PORES = 60, 200
#: Density at the threshold, relative to the lower peak, above which there is no valley.
_VALLEY = 0.6
#: Deviations from the median of the solid beyond which a voxel belongs to another phase.
_ODD = 6.0
#: Smallest remaining contrast between solid and pores, as a fraction of the usual one.
_LEAST_CONTRAST = 0.2


class Points(NamedTuple):
    """Some voxels of a volume, with their place and the range of grey values around each."""

    places: Float64s  # (n, 3), in voxels
    values: Float64s  # means of 3 x 3 voxels
    lowest: Float64s  # of the 3 x 3 means around it
    highest: Float64s


@dataclass(frozen=True, eq=False)
class GreyField:
    """Grey value of the solid at each place, and how it acts on the other grey values.

    `nodes`: (z, y, x), deviation of the solid from `level` at evenly spaced places from the first
    voxel to the last, float32. `level`, `pore_level`: typical grey values of solid and pores.
    `share`: part of the deviation that is found in the pores, too: 0 for a field that multiplies
    (beam hardening), 1 for one that is added. `fill`: fill value, which stays. `drift`: range of
    the field in the solid, from the 5th to the 95th percentile, relative to the contrast.
    """

    nodes: Float32s
    level: float
    pore_level: float
    share: float
    fill: float | None
    drift: float

    def at(self, shape: Sequence[int], ranges: Sequence[tuple[int, int]]) -> Array:
        """Return the deviation of the solid in a box of a volume of some shape, (z, y, x)."""
        values: Array = self.nodes
        for axis, (n, (low, high)) in enumerate(zip(shape, ranges, strict=True)):
            # in fixed order and without BLAS, so that a voxel does not depend on the box
            count = self.nodes.shape[axis]
            place = np.arange(low, high) * ((count - 1) / max(1, n - 1))
            first = np.clip(place.astype(np.int64), 0, max(0, count - 2))
            share = (place - first).astype(np.float32)
            share = share.reshape(-1, *[1] * (2 - axis))
            lower = values.take(first, axis)
            upper = values.take(np.minimum(first + 1, count - 1), axis)
            values = lower + share * (upper - lower)
        return values

    def apply(self, values: Array, deviation: Array) -> Float32s:
        """Return grey values without the drift, in float32; fill values and NaN stay."""
        grey = np.asarray(values, np.float32)
        contrast = np.float32(self.level - self.pore_level)
        pores = np.float32(self.pore_level) + np.float32(self.share) * deviation
        own = contrast + np.float32(1 - self.share) * deviation
        least = np.float32(_LEAST_CONTRAST) * np.abs(contrast)
        own = np.sign(contrast) * np.maximum(np.sign(contrast) * own, least)
        flat: Float32s = np.subtract(grey, pores, dtype=np.float32)
        flat *= contrast / own
        flat += np.float32(self.pore_level)
        if self.fill is not None:
            np.copyto(flat, grey, where=values == self.fill)
        return flat


class Flattened(Derived):
    """Lazy array of grey values without drift, in float32.

    `base`: an array that takes slices, (z, y, x) or (y, x). `field`: the field.
    """

    def __init__(self, base: Any, field: GreyField) -> None:
        super().__init__(base, dtype=np.float32)
        self._field = field
        self.chunks = getattr(base, "chunks", None)

    def _read_part(self, keys: list[Any]) -> Array:
        ranges, within = needed_ranges(keys, self.shape)
        values = np.asarray(self._base[tuple(slice(*each) for each in ranges)])
        planes = [(0, 1)] * (3 - self.ndim)
        deviation = self._field.at((1,) * (3 - self.ndim) + self.shape, [*planes, *ranges])
        flat = self._field.apply(values, deviation.reshape(values.shape))
        part: Array = flat[within]
        return part


def flattened(volume: Volume, solid: Solid = "bright") -> Volume:
    """Remove drift and cupping of the grey value of the solid, and note how large they were.

    A smooth field is fitted to the solid of 24 slices. Pores keep their grey value as far as the
    scan shows: a field that multiplies (beam hardening) leaves them, one that is added shifts them.
    Without a clear drift the values are unchanged.

    Parameters
    ----------
    volume : Volume
        2D or 3D, in memory or on disk.
    solid : {"bright", "dark"}, optional
        Whether the solid is brighter or darker than the pores.

    Returns
    -------
    Volume
        A lazy volume in float32, or `volume` with a note if there is no clear drift.

    Raises
    ------
    InputError
        If the volume has time or channel axes, contains labels, or has only two values.

    Examples
    --------
    >>> from hushpore.base.volume import Volume
    >>> rng = np.random.default_rng(0)
    >>> pores = rng.random((20, 64, 64)) < 0.002
    >>> grey = 100 + np.linspace(0, 30, 64) - 100 * pores + rng.normal(0, 3, pores.shape)
    >>> flat = flattened(Volume(grey)).array()
    >>> bool(abs(flat[..., :8].mean() - flat[..., -8:].mean()) < 1)
    True
    """
    if volume.leading_shape:
        leading = volume.axes[: -volume.n_spatial]
        raise InputError(
            f"{volume.name} has axes {volume.axes!r}, but the field is fitted to one image. Choose "
            f"one with volume.at({', '.join(f'{axis}=0' for axis in leading)})."
        )
    require_grey(volume)
    field = fit_field(volume, solid)
    if field is None:
        note = (
            "The grey value of the solid shows no clear drift, so flattening left the values "
            "unchanged."
        )
        return volume.replace(volume.data, notes=[*volume.notes, note])
    data = Flattened(volume.data, field)
    note = (
        f"Flattened: the grey value of the solid drifted by {100 * field.drift:.0f} % of the "
        f"contrast between solid and pores ({_how(field.share)})."
    )
    return volume.replace(data, notes=[*volume.notes, note])


def _how(share: float) -> str:
    if share < 0.25:
        return "multiplied, as by beam hardening"
    if share > 0.75:
        return "added to solid and pores"
    return f"{100 * share:.0f} % of it added to the pores, too"


def fit_field(volume: Volume, solid: Solid = "bright") -> GreyField | None:
    """Fit the field of a 2D or 3D volume; None if the solid shows no clear drift.

    `solid`: as for `flattened`. Reads 24 slices. Raises InputError if there are only two values.
    """
    points, fill = _sampled(volume)
    values = points.values
    if volume.dtype == np.bool_ or not len(values) or np.unique(values).size < 3:
        raise InputError(
            f"{volume.name} has only two grey values, or one, so there is no drift to flatten. "
            "Use the scan as it is."
        )
    sign = -1.0 if solid == "dark" else 1.0
    if sign < 0:
        points = Points(points.places, -values, -points.highest, -points.lowest)
        values = points.values
    shape = (1,) * (3 - volume.n_spatial) + volume.shape
    at = points.places / np.maximum(1, np.array(shape) - 1.0)
    threshold: Any = _valley(values)
    cells: _Cells | None = None
    splines: _Splines | None = None
    factor: float | None = None
    for _ in range(_ROUNDS):
        inside = points.lowest > threshold
        cells = _cells_of(at[inside], values[inside], shape)
        splines = cells and _Splines.fit(cells, shape, factor)
        if cells is None or splines is None:
            return None
        factor = splines.factor
        level = float(np.median(cells.values))
        deviation = splines.at(at) - level
        pores, share = _pores_of(points, level, deviation)
        own = level + deviation
        threshold = (own + pores + share * deviation) / 2
    assert splines is not None, "there is at least one round"
    assert cells is not None, "there is at least one round"
    fitted = splines.at(cells.places)
    low, high = np.percentile(fitted, (0.5, 99.5))
    axes = [np.linspace(0, 1, min(n, _NODES)) for n in shape]
    nodes = np.clip(splines.on(axes), low, high) - level
    first, last = np.percentile(fitted, (5, 95))
    return GreyField(
        (sign * nodes).astype(np.float32), sign * level, sign * pores, share, fill,
        drift=float(last - first) / (level - pores),
    )  # fmt: skip


def _sampled(volume: Volume) -> tuple[Points, float | None]:
    """Read some voxels of evenly spaced slices, and find the fill value."""
    from scipy import ndimage

    depth = volume.shape[0] if volume.n_spatial == 3 else 1
    height, width = volume.shape[-2:]
    planes = np.unique(np.linspace(0, depth - 1, min(depth, _PLANES)).round().astype(int))
    step = math.ceil(math.sqrt(max(1.0, height * width / _POINTS)))
    fill: float | None = None
    candidates: list[float] | None = None
    found: list[tuple[Any, ...]] = []
    for place in planes.tolist():
        plane = np.asarray(volume.data[place] if volume.n_spatial == 3 else volume.data[...])
        if candidates is None and volume.dtype != np.bool_:
            candidates = possible_fill_values(plane, volume.metadata)
            fill = next((each for each in candidates if is_fill_value(volume, each)), None)
        valid = np.isfinite(plane) if plane.dtype.kind == "f" else np.ones(plane.shape, np.bool_)
        if fill is not None:
            valid &= plane != fill
        grey = np.where(valid, plane, 0).astype(np.float32)
        mean = ndimage.uniform_filter(grey, 3, mode="nearest")
        valid = ndimage.binary_erosion(valid, np.ones((5, 5), np.bool_), border_value=1)
        cut = (slice(step // 2, None, step),) * 2
        rows, columns = np.nonzero(valid[cut])
        rows, columns = step // 2 + step * rows, step // 2 + step * columns
        lowest = ndimage.minimum_filter(mean, 3, mode="nearest")
        highest = ndimage.maximum_filter(mean, 3, mode="nearest")
        found.append(
            (
                np.column_stack([np.full(len(rows), place), rows, columns]),
                *(each[rows, columns] for each in (mean, lowest, highest)),
            )
        )
    parts = [np.concatenate([each[n] for each in found]).astype(np.float64) for n in range(4)]
    return Points(*parts), fill


def _valley(values: Float64s) -> float:
    """Return the threshold between two peaks of grey values (Otsu); -inf if there is one peak."""
    from scipy import ndimage

    low, high = np.percentile(values, (0.1, 99.9))
    counts, edges = np.histogram(values, 256, (low, high))
    centres = (edges[:-1] + edges[1:]) / 2
    below, sums = np.cumsum(counts), np.cumsum(counts * centres)
    above = below[-1] - below
    with np.errstate(invalid="ignore", divide="ignore"):
        between = below * above * (sums / below - (sums[-1] - sums) / above) ** 2
    best = int(np.nanargmax(between[:-1]))
    smooth = ndimage.gaussian_filter1d(counts.astype(np.float64), 4)
    peaks = smooth[: best + 1].max(), smooth[best + 1 :].max()
    return float(edges[best + 1]) if smooth[best] < _VALLEY * min(peaks) else -math.inf


def _pores_of(points: Points, level: float, deviation: Float64s) -> tuple[float, float]:
    """Return the grey value of the pores, and the part of the deviation that is found in them."""
    spread = 1.4826 * float(np.median(np.abs(points.values - level - deviation)))
    limit = level + deviation - _ODD * max(spread, 1e-12)
    ratio = points.highest - limit
    inside = ratio < 0
    if np.count_nonzero(inside) < _FEWEST_PORES:
        # a sample without pores: the air would be at the lower end
        return min(float(points.values.min()), level - _ODD * max(spread, 1e-12)), 0.0
    # air far from the solid says nothing: the field is not known there
    values, places = points.values[inside], deviation[inside]
    share, middle = 0.0, float(np.median(values))
    for _ in range(5):
        rest = values - middle - share * places
        width = max(1.4826 * float(np.median(np.abs(rest))), 1e-12)
        usual = np.abs(rest) < 3 * width
        apart = places[usual] - places[usual].mean()
        sum_of_squares = float(np.sum(apart**2))
        share = float(np.sum(apart * values[usual])) / sum_of_squares if sum_of_squares else 0.0
        share = min(1.0, max(0.0, share))
        middle = float(np.mean(values[usual] - share * places[usual]))
    return middle, share


class _Cells(NamedTuple):
    """Medians of the solid in small cells."""

    places: Float64s  # (n, 3), from 0 to 1
    values: Float64s
    weights: Float64s
    turns: Int64s  # in which the block of the cell is left out
    inner: Mask  # whether the cell lies in the middle of its block


def _cells_of(at: Float64s, values: Float64s, shape: Sequence[int]) -> _Cells | None:
    """Return the medians of the solid in cells; None if there are too few."""
    if not len(at):
        return None
    middle = np.median(values)
    usual = np.abs(values - middle) <= _ODD * 1.4826 * np.median(np.abs(values - middle))
    at, values = at[usual], values[usual]
    counts = np.array([min(max(1, n // _EDGE), m) for n, m in zip(shape, _CELLS, strict=True)])
    cell = np.ravel_multi_index(tuple(np.minimum((at * counts).astype(int), counts - 1).T), counts)
    order = np.lexsort((values, cell))
    cell, values, at = cell[order], values[order], at[order]
    _, first, number = np.unique(cell, return_index=True, return_counts=True)
    if len(first) < _FEWEST_CELLS:
        return None
    medians = (values[first + (number - 1) // 2] + values[first + number // 2]) / 2
    places = np.add.reduceat(at, first) / number[:, None]
    block = np.minimum((places * _BLOCKS).astype(int), np.array(_BLOCKS) - 1)
    # neighbouring blocks are left out in different turns
    turns = (block @ np.array([1, 1, 2])) % _TURNS
    # grains at a face of a block continue into the next one, and would be predicted
    inner = (np.abs(places * _BLOCKS - block - 0.5) < _INNER)[:, 1:].all(1)
    return _Cells(places, medians, number.astype(np.float64), turns, inner)


class _Splines:
    """Tensor product of cubic splines on the unit cube."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.knots = [
            np.r_[[0.0] * 3, np.linspace(0, 1, min(most, max(1, n // 8)) + 1), [1.0] * 3]
            if n > 1
            else None
            for n, most in zip(shape, _INTERVALS, strict=True)
        ]
        self.coefficients = np.zeros(0)
        self.factor = 0.0  # of the penalty

    @classmethod
    def fit(cls, cells: _Cells, shape: Sequence[int], factor: float | None) -> _Splines | None:
        """Return the splines that fit the medians of cells; None if they predict too little.

        `factor`: of the penalty; None: chosen by cross-validation.
        """
        splines = cls(shape)
        design, penalty = splines._design(cells.places), splines._penalty()
        middle = np.median(cells.values)
        values, weights = cells.values - middle, cells.weights / cells.weights.mean()
        normals = []
        for turn in range(_TURNS):
            own = cells.turns == turn
            part = design[own].multiply(weights[own, None]).tocsr()
            normals.append(((part.T @ design[own]).toarray(), part.T @ values[own]))
        matrix = sum(each for each, _ in normals)
        right = sum(each for _, each in normals)
        if factor is None:
            errors = np.zeros(len(_PENALTIES))
            for turn, (left_out, of_it) in enumerate(normals):
                own = (cells.turns == turn) & cells.inner
                for place, each in enumerate(_PENALTIES):
                    found = _solve(matrix - left_out + each * penalty, right - of_it)
                    errors[place] += np.sum(weights[own] * (values[own] - design[own] @ found) ** 2)
            factor = float(_PENALTIES[np.argmin(errors)])
            usual = float(np.sum((weights * values**2)[cells.inner]))
            if errors.min() >= (1 - _EXPLAINED) * usual:
                return None
        # B-splines add up to 1
        splines.coefficients = middle + _solve(matrix + factor * penalty, right)
        splines.factor = factor
        return splines

    def at(self, places: Float64s) -> Float64s:
        """Return the values at places (n, 3), from 0 to 1."""
        found = [
            self._design(places[first : first + 20_000]) @ self.coefficients
            for first in range(0, len(places), 20_000)
        ]
        return np.concatenate(found)

    def on(self, axes: Sequence[Float64s]) -> Float64s:
        """Return the values on a grid, given its places along each axis."""
        bases = [self._basis(axis, at).toarray() for axis, at in enumerate(axes)]
        values = self.coefficients.reshape([each.shape[1] for each in bases])
        found: Float64s = np.einsum("abc,za,yb,xc->zyx", values, *bases, optimize=True)
        return found

    def _basis(self, axis: int, at: Float64s) -> Any:
        from scipy import sparse
        from scipy.interpolate import BSpline

        knots = self.knots[axis]
        if knots is None:
            return sparse.csr_array(np.ones((len(at), 1)))
        found: Any = BSpline.design_matrix(np.clip(at, 0, 1), knots, 3)
        return found

    def _design(self, places: Float64s) -> Any:
        from scipy import sparse

        bases = [self._basis(axis, places[:, axis]).tocsr() for axis in range(3)]
        count = len(places)
        values, columns = np.ones((count, 1)), np.zeros((count, 1), np.int64)
        for base in bases:
            own = base.data.reshape(count, -1)
            place = base.indices.reshape(count, -1)
            values = (values[:, :, None] * own[:, None]).reshape(count, -1)
            columns = (columns[:, :, None] * base.shape[1] + place[:, None]).reshape(count, -1)
        width = math.prod(base.shape[1] for base in bases)
        starts = np.arange(count + 1) * values.shape[1]
        return sparse.csr_array((values.ravel(), columns.ravel(), starts), shape=(count, width))

    def _penalty(self) -> Float64s:
        """Return the penalty on second differences along each axis."""
        counts = [1 if knots is None else len(knots) - 4 for knots in self.knots]
        total = np.zeros((math.prod(counts),) * 2)
        for axis, n in enumerate(counts):
            if n < 3:
                continue
            second = np.diff(np.eye(n), 2, axis=0)
            factors = [np.eye(each) for each in counts]
            factors[axis] = second.T @ second
            total += np.kron(np.kron(factors[0], factors[1]), factors[2])
        return total


def _solve(matrix: Any, right: Any) -> Float64s:
    from scipy import linalg

    # a small ridge, for splines without any cell
    ridge = 1e-8 * (1.0 + np.trace(matrix) / len(matrix))
    found: Float64s = linalg.solve(
        matrix + ridge * np.eye(len(matrix)), right, assume_a="pos", check_finite=False
    )
    return found
