"""The strength and correlation of noise in small blocks.

The autocovariance of noise from small blocks, after subtracting fitted polynomials.

The polynomials also remove some of the noise. The loss at each lag is a linear function of the
autocovariance, so that a linear solve corrects it.

The strength of noise all over a sample, which differs from that in its flattest regions.

The flattest regions of a dense sample are its calmest ones, near the rim for example. Mixed second
differences (along y of those along x) remove edges along either axis and most of all other image
structure, so that they measure the noise everywhere; but only the finest part of it, which is
therefore compared with the same differences of the noise model. Averaged over neighbourhoods, they
make a map of the strength over the slice.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import fft, linalg

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hushpore.base.arrays import Array, Float32s, Float64s


#: Number of blocks whose spectra are in memory at once.
_AT_ONCE = 256


class DetrendedBlocks:
    """Blocks of one size, from which fitted polynomials of up to second degree are subtracted.

    With Q the orthonormal polynomials on a block, M = I - QQ' subtracts their fit, and the residual
    of stationary noise of covariance C has the covariance MCM. Its sums over pairs of voxels at the
    same lag are linear in the autocovariance c, as C is; `autocovariance` solves for c, which is
    assumed to be zero beyond `reach`.

    Lags are stored as vectors: one of each pair of opposite lags, zero first (see `unfold`).

    Parameters
    ----------
    size : tuple of int
        Voxels of a block along each axis.
    reach : tuple of int
        The largest lag along each axis, below `size`.
    """

    def __init__(self, size: tuple[int, ...], reach: tuple[int, ...]) -> None:
        self.size, self.reach = size, reach
        degrees = [min(2, n - 1) for n in size]
        lines = [_polynomials(n, degree) for n, degree in zip(size, degrees, strict=True)]
        terms = [t for t in itertools.product(*(range(d + 1) for d in degrees)) if 0 <= sum(t) <= 2]
        #: (n_terms, n_voxels), orthonormal, the constant first
        self.polynomials = np.stack(
            [_outer(q[i] for q, i in zip(lines, t, strict=True)) for t in terms]
        )
        pairs = [_pairs(q, r) for q, r in zip(lines, reach, strict=True)]
        #: (n_terms, n_terms, n_lags): the sum over all voxels i of q_s(i) q_t(i + lag)
        self._overlaps = np.stack(
            [
                [_outer(p[a, b] for p, a, b in zip(pairs, s, t, strict=True)) for t in terms]
                for s in terms
            ]
        )
        #: number of pairs of voxels at each lag
        self.counts = _outer(
            (n - np.abs(np.arange(-r, r + 1))).astype(float)
            for n, r in zip(size, reach, strict=True)
        )
        self._matrix = self._relation(lines, terms)
        # factorised once, since that takes most of the time of a solution
        self._factors = linalg.lu_factor(self._matrix)
        #: indices of the products of direct neighbours, one for each axis
        self.neighbours = self._neighbours()
        pairs_of = self.counts[len(self.counts) // 2 :]
        self._finest = np.zeros(len(self._matrix))
        self._finest[0] = 1 / pairs_of[0]
        self._finest[self.neighbours] = -1 / pairs_of[self.neighbours] / len(self.neighbours)

    def split(self, blocks: Float32s) -> tuple[Float64s, Float32s]:
        """Return the coefficients of the non-constant polynomials, and the residual of blocks.

        `blocks`: shape (n, n_voxels).
        """
        polynomials = self.polynomials.astype(np.float32)
        coarse = blocks @ polynomials.T
        residual = (blocks - coarse @ polynomials).astype(np.float32, copy=False)
        return coarse[:, 1:].astype(np.float64), residual

    def products(self, residual: Float32s) -> Float64s:
        """Return the sums over pairs of voxels at each lag, (n, n_half)."""
        padded = [
            fft.next_fast_len(n + r, True) for n, r in zip(self.size, self.reach, strict=True)
        ]
        axes = tuple(range(1, len(self.size) + 1))
        near = np.ix_(*(np.arange(-r, r + 1) for r in self.reach))
        sums: Float64s = np.empty((len(residual), len(self._matrix)))
        for start in range(0, len(residual), _AT_ONCE):
            part = residual[start : start + _AT_ONCE].reshape(-1, *self.size)
            power = np.abs(fft.rfftn(part, padded, axes=axes)) ** 2
            lags = fft.irfftn(power, padded, axes=axes)[(slice(None), *near)].reshape(len(part), -1)
            sums[start : start + len(part)] = lags[:, lags.shape[1] // 2 :]
        return sums

    def autocovariance(self, products: Float64s) -> Float64s:
        """Return the autocovariance for sums of products, (..., n_half)."""
        factors, pivots = self._factors
        # a copy: LAPACK counts pivots from one, and SciPy adds it to the array itself while other
        # threads may run; with two threads in here, values were written beyond the solution
        return np.asarray(linalg.lu_solve((factors, pivots.copy()), products.T).T, np.float64)

    def energy(self, autocovariance: Float64s) -> float:
        """Return the expected sum of squares of a residual."""
        return float(self._matrix[0] @ autocovariance)

    def relative_variance(self, products: Float64s, autocovariance: Float64s) -> Float64s:
        """Return the variance in each block, relative to that of an autocovariance, (n,).

        Only the part of the variance that neighbours do not share is used: it contains least image.
        """
        expected = self._finest @ self._matrix @ autocovariance
        relative: Float64s = products @ self._finest / expected
        return relative

    def coarse_energy(self, autocovariance: Float64s) -> float:
        """Return the expected sum of squares of the polynomials, for noise alone."""
        own = np.einsum("ttl->tl", self._overlaps)[1:].sum(0)
        return float(own @ self.unfold(autocovariance).ravel())

    def unfold(self, half: Float64s) -> Float64s:
        """Return an array over all lags, negative and positive, zero in its middle."""
        both = np.concatenate([half[:0:-1], half])
        return both.reshape([2 * r + 1 for r in self.reach])

    def _neighbours(self) -> list[int]:
        shape = [2 * r + 1 for r in self.reach]
        numbers = np.arange(np.prod(shape)).reshape(shape) - np.prod(shape) // 2
        steps = np.eye(len(shape), dtype=int) + self.reach
        return [int(numbers[tuple(s)]) for s, r in zip(steps, self.reach, strict=True) if r]

    def _relation(self, lines: list[Float64s], terms: list[tuple[int, ...]]) -> Float64s:
        """Return the matrix from an autocovariance to the expected sums of products."""
        triples = [_triples(q, r) for q, r in zip(lines, self.reach, strict=True)]
        # the covariance of residuals, (I - QQ') C (I - QQ'), term by term: C, QQ'C and CQQ', ...
        once = sum(reduce(np.kron, [g[i] for g, i in zip(triples, t, strict=True)]) for t in terms)
        flat = self._overlaps.reshape(-1, self._overlaps.shape[-1])
        matrix = np.diag(self.counts) - 2 * once + flat.T @ flat
        matrix = (matrix + matrix[::-1]) / 2
        # opposite lags are equal
        middle = len(matrix) // 2
        half: Float64s = matrix[middle:, middle:].copy()
        half[:, 1:] += matrix[middle:, middle - 1 :: -1]
        return half


@lru_cache(maxsize=8)
def detrended_blocks(size: tuple[int, ...], reach: tuple[int, ...]) -> DetrendedBlocks:
    """Return `DetrendedBlocks`, cached because creating it takes longer than using it."""
    return DetrendedBlocks(size, reach)


def _polynomials(n: int, degree: int) -> Float64s:
    """Return orthonormal polynomials on n points, (degree + 1, n)."""
    places = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
    q: Float64s = np.linalg.qr(np.vander(places, degree + 1, increasing=True))[0].T
    return q


def _shifted(values: Float64s, reach: int) -> Float64s:
    """Return values[..., i + lag], zero beyond the ends: (..., lags, n)."""
    n = values.shape[-1]
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(reach, reach)])
    windows: Float64s = np.lib.stride_tricks.sliding_window_view(padded, n, axis=-1)
    return windows


def _pairs(q: Float64s, reach: int) -> Float64s:
    """Return the sums over i of q_s(i) q_t(i + lag), (s, t, lag)."""
    sums: Float64s = np.einsum("si,tki->stk", q, _shifted(q, reach))
    return sums


def _triples(q: Float64s, reach: int) -> Float64s:
    """Return the sums over i of q_t(i) q_t(i + k + l), with i + k on the line: (t, k, l)."""
    inside = _shifted(np.ones(q.shape[1]), reach)
    lags = np.arange(2 * reach + 1)
    far = _shifted(q, 2 * reach)[:, np.add.outer(lags, lags)]
    sums: Float64s = np.einsum("ti,ki,tkli->tkl", q, inside, far)
    return sums


def _outer(vectors: Iterable[Float64s]) -> Float64s:
    """Return the outer product of vectors, one an axis, flat."""
    product: Float64s = reduce(np.multiply.outer, vectors).ravel()
    return product


#: Factors of `fine_variance` for lags of -2 to 2 along one axis: the autocorrelation of 1, -2, 1.
_LAGS = np.array([1.0, -4.0, 6.0, -4.0, 1.0])

#: Maximum ratio of the root mean square of differences in a box and their median magnitude over
#: that of a normal distribution: higher in boxes with an edge.
_NORMAL = 1.15

#: Median magnitude of normal numbers, in standard deviations.
_MEDIAN = 0.6745

#: Minimum noise relative to the variation of the grey values: below, differences of voxels contain
#: too much of the image.
_LEAST_NOISE = 0.3

#: Minimum variance of the differences relative to that of the noise, 36 for white noise: below,
#: the noise is so smooth that they contain more of blurred edges than of it.
_LEAST_FINE = 0.36

#: Minimum excess over the flattest regions for a correction.
_NOTABLE = 1.03

#: Minimum number of boxes for a correction, and for a map.
_FEWEST, _FEWEST_FOR_MAP = 20, 200

#: Cells of a map along y and x; standard deviation of the neighbourhoods, relative to the edge of
#: a slice; and number of boxes with the mean strength that are added to each.
_CELLS, _NEAR, _ADDED = 24, 0.08, 4.0

#: Minimum relative standard deviation of a map: below, the noise is uniform.
_VARIES = 0.03


class Strength(NamedTuple):
    """The noise all over a sample, relative to that of a noise model.

    `factor`: ratio of the standard deviations; 1 where it is not clearly higher, or cannot be
    measured because the noise is weak. `map`: that at each place of a slice, relative to `factor`,
    float32, shape (y, x) of a few cells; None for uniform noise.
    """

    factor: float = 1.0
    map: Float32s | None = None


def measure_strength(
    boxes: Float64s, places: Float64s, autocovariance: Float64s, line: tuple[float, float]
) -> Strength:
    """Measure the strength of noise in boxes from all over a sample.

    Parameters
    ----------
    boxes : numpy.ndarray
        Grey values, shape (n, ..., y, x), from random positions; at least 3 pixels in y and x.
    places : numpy.ndarray
        Their middles in y and x, relative to the edges of a slice, shape (n, 2); empty: no map is
        made.
    autocovariance : numpy.ndarray
        That of `NoiseModel`, in squared grey values.
    line : tuple of float
        Offset and slope of the variance against the grey value, as in `NoiseModel`.
    """
    values = boxes.reshape(len(boxes), -1, *boxes.shape[-2:])
    variance = float(autocovariance.flat[autocovariance.size // 2])
    expected = fine_variance(autocovariance)
    if expected <= _LEAST_FINE * variance or math.sqrt(variance) < _LEAST_NOISE * float(
        values.std()
    ):
        return Strength()
    fine = np.diff(np.diff(values, 2, axis=-1), 2, axis=-2).reshape(len(values), -1)
    square = (fine**2).mean(1)
    typical = np.median(np.abs(fine), axis=1) / _MEDIAN
    chosen = (typical > 0) & (np.sqrt(square) <= _NORMAL * typical)
    if chosen.sum() < _FEWEST:
        return Strength()
    ratio = math.sqrt(square[chosen].mean() / expected)
    factor = ratio if ratio >= _NOTABLE else 1.0
    if len(places) == 0 or chosen.sum() < _FEWEST_FOR_MAP:
        return Strength(factor)
    # what the grey value explains is no matter of the place
    offset, slope = line
    of_grey = (offset + slope * values.mean((1, 2, 3))[chosen]) / variance
    relative = square[chosen] / np.maximum(of_grey, 0.1)
    smooth = map_of(relative / relative.mean(), places[chosen])
    if smooth.std() < _VARIES * smooth.mean():
        return Strength(factor)
    return Strength(factor, smooth)


def map_of(variances: Float64s, places: Float64s) -> Float32s:
    """Return the mean standard deviation in the neighbourhood of each cell."""
    centres = (np.arange(_CELLS) + 0.5) / _CELLS
    y, x = (np.exp(-0.5 * ((centres[:, None] - at) / _NEAR) ** 2) for at in places.T)
    sums, counts = (y * variances) @ x.T, y @ x.T
    found: Float32s = np.sqrt((sums + _ADDED) / (counts + _ADDED))
    return found.astype(np.float32)


def fine_variance(autocovariance: Array) -> float:
    """Return the variance of mixed second differences of noise with an autocovariance."""
    slices = autocovariance
    if slices.ndim == 3:
        slices = slices[len(slices) // 2]
    y, x = (n // 2 for n in slices.shape)
    if min(y, x) < 2:
        return 0.0
    near = slices[y - 2 : y + 3, x - 2 : x + 3]
    return float(_LAGS @ near @ _LAGS)
