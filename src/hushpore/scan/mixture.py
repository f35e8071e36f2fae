"""Two groups of grey values with blurred edges between them, fitted to a histogram.

A voxel is pore, solid, or at an edge, where the blur of the scan mixes both. Across a plane edge
that a Gaussian blurs, the share of solid is its cumulative distribution; a second kind of edge
voxels, more of which are near one of the groups, stands for curved ones. The noise is Gaussian and
may be stronger in one of the groups. The model of greatest likelihood is found by expectation
maximisation.

The share of void that the model finds does not depend on a threshold: noise and blur, which move
voxels across one, are part of it.

References
----------
A. P. Dempster, N. M. Laird and D. B. Rubin (1977), "Maximum likelihood from incomplete data via the
EM algorithm". https://doi.org/10.1111/j.2517-6161.1977.tb01600.x
P. Santago and H. D. Gage (1995), "Statistical models of partial volume effect".
https://doi.org/10.1109/83.469934
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from hushpore.base.arrays import Float64s

#: Bins of the histogram that a model is fitted to; the share of voxels that it leaves out on either
#: side; and another such share, with how many times the range between both such quantiles it
#: reaches at most beyond them: few voxels of metal are far away.
_BINS, _OUTSIDE, _TAIL, _REACH = 64, 0.0002, 0.005, 2.0

#: Share of solid at places across an edge.
_ACROSS = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in np.linspace(-2.5, 2.5, 11)])
_SOLID = np.concatenate([[0.0], _ACROSS, [1.0]])

#: Of each kind of voxels, how they are distributed over the places: pores, edges of which more are
#: near the pores (near the solid), and solid.
_KINDS = np.zeros((4, _SOLID.size))
_KINDS[0, 0] = _KINDS[3, -1] = 1.0
_KINDS[1, 1:-1] = (1 - _ACROSS) / (1 - _ACROSS).sum()
_KINDS[2, 1:-1] = _ACROSS / _ACROSS.sum()

#: Quantiles at which pores and solid are to begin with, rounds of each beginning and of the best.
_BEGINNINGS, _FIRST, _ROUNDS = ((0.3, 0.7), (0.02, 0.6), (0.4, 0.98), (0.1, 0.9)), 40, 300

#: Power of the ratio of the noise of each group to that of both that is taken over in each round:
#: where they overlap, a skewed histogram may as well stem from unequal shares, which is likelier.
APART = 0.8

#: Gain in the mean logarithm of the likelihood at which a fit ends.
_GAIN = 1e-8

#: How far a histogram is at most from the model, and how many times farther it is at least from one
#: Gaussian, and at least, for there to be two groups.
MISFIT, _BETTER, _ONE = 0.045, 1.3, 0.0125

#: Noise at most, as a share of the contrast, and share of the smaller group at least, as a multiple
#: of the square of that noise.
_NOISE, _SMALLER = 0.9, 0.5


class Mixture(NamedTuple):
    """Two groups of grey values, `pore` below `solid`, with edges between them.

    `noise`: larger standard deviation of both, in grey values. `void`: share of void in the volume.
    `misfit`: share of the voxels by which histogram and model differ; `of_one`: by which it differs
    from one Gaussian. `is_certain`: whether the histogram shows two groups, rather than one, or
    something else.
    """

    pore: float
    solid: float
    noise: float
    void: float
    misfit: float
    of_one: float
    is_certain: bool


def fit_mixture(counts: Float64s, centers: Float64s, apart: float = APART) -> Mixture | None:
    """Fit two groups with blurred edges to a histogram; None without two grey values.

    `counts`: (bins,), which may have gaps. `centers`: (bins,), ascending grey values.
    `apart`: how far the noise of both groups may differ, from 0, not at all, to 1, at will.
    """
    if np.count_nonzero(counts) < 2:
        return None
    ends, below = spread_over_gaps(counts, centers)
    lowest, highest = np.interp([_OUTSIDE, 1 - _OUTSIDE], below, ends)
    low, high = np.interp([_TAIL, 1 - _TAIL], below, ends)
    reach = _REACH * (high - low)
    limits = np.linspace(max(lowest, low - reach), min(highest, high + reach), _BINS + 1)
    shares, greys = np.diff(np.interp(limits, ends, below)), (limits[1:] + limits[:-1]) / 2
    shares /= shares.sum()
    mean = float(shares @ greys)
    spread = math.sqrt(float(shares @ (greys - mean) ** 2))
    step = float(greys[1] - greys[0])
    if spread < step:
        return None
    one = np.exp(-((greys - mean) ** 2) / (2 * spread**2))
    up_to = np.cumsum(shares)
    begun = []
    for quantiles in _BEGINNINGS:
        dark, bright = (
            float(greys[min(int(np.searchsorted(up_to, q)), _BINS - 1)]) for q in quantiles
        )
        if dark < bright:
            less = min(max(sum(quantiles) / 2, 0.05), 0.95)
            kinds = np.array([0.9 * less, 0.05, 0.05, 0.9 * (1 - less)])
            first = _Fit(shares, greys, dark, bright - dark, ((bright - dark) / 3,) * 2, kinds)
            begun.append(first.improved(_FIRST, apart))
    if not begun:
        return None
    found = max(begun, key=lambda each: each.likelihood).improved(_ROUNDS, apart)
    if found.contrast <= 0:
        return None
    noise, void = max(found.noise), float(found.kinds @ _KINDS @ (1 - _SOLID))
    misfit, of_one = (
        float(np.abs(expected / expected.sum() - shares).sum()) / 2
        for expected in (found.expected, one)
    )
    relative = noise / found.contrast
    is_certain = (
        misfit <= MISFIT
        and of_one >= max(_ONE, _BETTER * misfit)
        and relative <= _NOISE
        and min(void, 1 - void) >= _SMALLER * relative**2
    )
    solid = found.pore + found.contrast
    return Mixture(found.pore, solid, noise, void, misfit, of_one, is_certain)


def spread_over_gaps(counts: Float64s, centers: Float64s) -> tuple[Float64s, Float64s]:
    """Return where each grey value that occurs begins and ends, and the share of voxels below.

    A value stands for all that is nearer to it than to others, so that gaps disappear: values in
    8 bits have them where the contrast was enhanced.
    """
    present = np.flatnonzero(counts)
    greys = centers[present]
    between = (greys[1:] + greys[:-1]) / 2
    ends = [2 * greys[0] - between[0], *between, 2 * greys[-1] - between[-1]]
    shares = np.cumsum(counts[present]) / counts.sum()
    return np.array(ends), np.concatenate([[0.0], shares])


def without_gaps(counts: Float64s, centers: Float64s, bins: int) -> tuple[Float64s, Float64s]:
    """Return a histogram of fewer grey values than `bins`, with gaps between them, in even bins."""
    if not 1 < np.count_nonzero(counts) < min(counts.size, bins):
        return counts, centers
    ends, up_to = spread_over_gaps(counts, centers)
    limits = np.linspace(ends[0], ends[-1], bins + 1)
    even = np.diff(np.interp(limits, ends, up_to)) * counts.sum()
    return even, (limits[1:] + limits[:-1]) / 2


class _Fit(NamedTuple):
    """A model on its way to the most likely one."""

    shares: Float64s
    greys: Float64s
    pore: float
    contrast: float
    noise: tuple[float, float]  # in pores and in solid
    kinds: Float64s  # (4,): share of each of `_KINDS`
    likelihood: float = -math.inf
    expected: Float64s = np.ones(1)

    def improved(self, rounds: int, apart: float) -> _Fit:
        """Return the model after some rounds of expectation and maximisation."""
        shares, greys, pore, contrast, noise, kinds, before, expected = self
        least = 0.3 * float(greys[1] - greys[0])
        for _ in range(rounds):
            at_places = kinds @ _KINDS
            sds = np.sqrt(noise[0] ** 2 + (noise[1] ** 2 - noise[0] ** 2) * _SOLID)
            away = (greys - (pore + contrast * _SOLID)[:, None]) / sds[:, None]
            densities = np.exp(-0.5 * away**2) / sds[:, None]
            expected = np.maximum(at_places @ densities, 1e-300)
            parts = densities * (shares / expected)
            kinds = kinds * (_KINDS @ parts.sum(axis=1))
            # a line through the grey values, weighted, over the share of solid
            parts *= at_places[:, None]
            voxels = parts.sum(axis=1)
            inverse = noise[0] * noise[1] / sds**2
            weights, sums = voxels * inverse, (parts @ greys) * inverse
            total, middle, height = weights.sum(), weights @ _SOLID, sums.sum()
            contrast = float(
                (total * (sums @ _SOLID) - middle * height)
                / max(total * (weights @ _SOLID**2) - middle**2, 1e-12)
            )
            pore = float((height - contrast * middle) / total)
            left = (parts * (greys - (pore + contrast * _SOLID)[:, None]) ** 2).sum(axis=1)
            pooled = math.sqrt(float(left.sum()))
            noise = tuple(
                max(
                    pooled * (float(left @ part / (voxels @ part)) / pooled**2) ** (apart / 2),
                    least,
                )
                for part in (1 - _SOLID, _SOLID)
            )
            likelihood = float(shares @ np.log(expected))
            if abs(likelihood - before) < _GAIN:
                break
            before = likelihood
        return _Fit(shares, greys, pore, contrast, noise, kinds, before, expected)
