"""Whether N2V can work on a volume: whether its noise is independent from pixel to pixel.

A hidden pixel is predicted from its neighbours. Where the noise of neighbours is correlated, part
of it can be predicted too, and stays in the result: as grain after an interpolating detector or a
smoothing reconstruction, as lines and rings where a detector's rows or columns differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hushpore.n2v2.noise.boxes import move_into_chunks, read_boxes

if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt

    from hushpore.base.volume import Volume

#: Edge of the blocks that are looked at, in pixels.
BLOCK = 8

#: Correlation of neighbours from which on it is worth a word.
NOTABLE = 0.15

#: Blocks that are looked at, at most: enough for a standard error well below `NOTABLE`.
_BLOCKS = 400

#: Growth of the variance over the grey values, in variances, from which on it is taken for real.
_STEEP = 0.25

#: Share of all blocks that count as flat, and how many do at least.
_FLATTEST, _FEWEST = 0.05, 40

#: By how much the share of neighbours of one value may be above the usual in a block that is looked
#: at; and the usual share of an image without noise.
_FILLED, _CLEAN = 0.2, 0.5

#: Binning is advised where it leaves less than this of the correlation.
_BINS_WELL = 0.7

#: Share of the values that are the highest of all from which on it is worth a word.
_SATURATED = 0.01

#: A circle runs along an axis where the way from the middle is so much longer across it.
_ACROSS = 3.0

#: Blocks where it does that are needed for either axis, and how far from the middle, in pixels.
_LEAST_BLOCKS, _LEAST_RADIUS = 10, 12.0


@dataclass(frozen=True)
class NoiseDiagnosis:
    """What the noise is like."""

    # correlation of the noise of neighbouring voxels, for each spatial axis
    correlation: dict[str, float]
    noise: float  # standard deviation of the noise in flat regions, in grey values
    # how much the noise grows with the grey value: the rank correlation of deviation and mean over
    # flat blocks, -1 to 1. Photon noise shows as clearly above zero.
    growth: float
    # the variance of the noise is ``offset + slope * value`` at a grey value; the slope is that of
    # photon noise, and zero where none can be told
    slope: float = 0.0
    offset: float = 0.0
    # correlation of the noise along circles about the middle of the slices, where it is clearly
    # higher than across them; zero elsewhere
    rings: float = 0.0
    # share of the values that are the highest of all, from 0.01 on; zero below
    saturated: float = 0.0
    # the highest correlation along y and x after binning slices 2 x 2; looked for where that would
    # be of use, else 1
    binned: float = 1.0

    @property
    def is_independent(self) -> bool:
        """Whether the noise is independent from pixel to pixel, as far as it can be told."""
        return not self.correlated_axes and not self.rings

    @property
    def correlated_axes(self) -> str:
        """The axes along which the noise of neighbours is correlated, most correlated first."""
        notable = {axis: c for axis, c in self.correlation.items() if c >= NOTABLE}
        return "".join(sorted(notable, key=lambda axis: -notable[axis]))

    def variance_at(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the variance of the noise at some grey values."""
        least = (0.1 * self.noise) ** 2
        result: npt.NDArray[np.float32] = np.maximum(self.offset + self.slope * values, least)
        return result

    @property
    def summary(self) -> str:
        """The finding in one sentence, with what to do about it."""
        if self.rings:
            return (
                f"noise: alike along circles about the middle of the slices ({self.rings:.2f}), as "
                "rings are; some of it will stay; correct rings in the reconstruction, or with "
                "correct_rings"
            )
        axes = self.correlated_axes
        if not axes:
            grows = ", stronger where it is brighter" if self.slope > 0 else ""
            return f"noise: independent from pixel to pixel{grows}"
        found = ", ".join(f"{self.correlation[axis]:.2f} along {axis}" for axis in axes)
        if len(axes) == 1:
            advice = f"try correlated_along={axes!r}"
        else:
            advice = "some of it will stay"
            within = max(self.correlation["y"], self.correlation["x"])
            if self.binned < _BINS_WELL * within:
                advice += f"; binning slices 2 x 2 reduces it to {self.binned:.2f}"
        return f"noise: neighbours are correlated ({found}); {advice}"

    @property
    def saturation(self) -> str:
        """What is to be said where values were cut off at the upper end; else empty."""
        if not self.saturated:
            return ""
        return (
            f"{100 * self.saturated:.0f} % of the values are the highest there is, as where a "
            "detector or a conversion to fewer bits is saturated: what was cut off cannot be "
            "brought back, and noise there is found too small"
        )


def diagnose_noise(volume: Volume, seed: int = 0) -> NoiseDiagnosis:
    """Look at the noise of a volume in its flattest regions.

    Blocks of 8 x 8 pixels within slices (and the same blocks of the next slice) are drawn at
    random; the twentieth of them with the least variation over quarters is taken for flat, after
    those are left out that hold more equal neighbours than others do: where values were filled in
    (outside of a reconstruction) or cut off there is no noise, or not all of it. The correlation
    along an axis is that of second differences across it: they remove what is left of the image,
    and keep the correlation of the noise along the axis as it is.

    `volume`: 2D or 3D, with or without leading axes, of any real dtype; at least 8 pixels in y and
    x.
    Returns: correlation along z is left out where there is one slice.
    """
    rng = np.random.default_rng(seed)
    depth = 2 if volume.n_spatial == 3 and volume.shape[-3] > 1 else 1
    blocks, corners = draw_blocks(volume, depth, rng)
    saturated = float((blocks == blocks.max()).mean())
    flattest = flattest_blocks(blocks)
    flat = blocks[flattest]
    across_y, across_x = np.diff(flat, 2, axis=2), np.diff(flat, 2, axis=3)
    # white noise of variance v has second differences of variance (1 + 4 + 1) v
    noise = float(np.sqrt((np.mean(across_y**2) + np.mean(across_x**2)) / 12))
    if noise == 0:
        return NoiseDiagnosis(dict.fromkeys("zyx"[-volume.n_spatial :], 0.0), 0.0, 0.0)
    correlation = {"y": neighbour_correlation(across_x, 2), "x": neighbour_correlation(across_y, 3)}
    if depth == 2:
        correlation = {"z": neighbour_correlation(across_x, 1), **correlation}
    slope, offset = _variance_line(across_y, across_x, flat, noise)
    from_middle = corners[flattest, -2:] + (BLOCK - np.array(volume.shape[-2:])) / 2
    rings = ring_correlation(across_y, across_x, from_middle, NOTABLE)
    growth = _growth(across_x, flat)
    saturated *= saturated >= _SATURATED
    found = NoiseDiagnosis(correlation, noise, growth, slope, offset, rings, saturated)
    if len(found.correlated_axes) > 1 and min(volume.shape[-2:]) >= 2 * BLOCK:
        found = replace(found, binned=_when_binned(volume, rng))
    return found


def ring_correlation(
    across_y: npt.NDArray[np.float64],
    across_x: npt.NDArray[np.float64],
    from_middle: npt.NDArray[np.float64],
    margin: float,
) -> float:
    """Return the correlation of noise along circles about the middle of the slices: of rings.

    A detector pixel that is off by a little in every view makes a ring. Along x and y such noise is
    correlated only where a circle happens to run along them, so that no axis can be named.

    `across_y`, `across_x`: second differences of blocks, (n_blocks, depth, y, x). `from_middle`:
    where the blocks lie, (n_blocks, 2): y and x from the middle of the slice, in pixels. `margin`:
    by how much noise must be more correlated along circles than across them.
    Returns: zero where it is not, both where circles run along x and where they run along y.
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


def neighbour_correlation(values: npt.NDArray[np.float64], axis: int) -> float:
    """Return the correlation of neighbours along an axis, of values whose mean is zero."""
    before = (slice(None),) * axis
    a, b = values[(*before, slice(1, None))], values[(*before, slice(None, -1))]
    power = np.sqrt(np.mean(a**2) * np.mean(b**2))
    return float(np.mean(a * b) / power) if power else 0.0


def draw_blocks(
    volume: Volume, depth: int, rng: np.random.Generator, edge: int = BLOCK
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Read blocks at random, (n, depth, edge, edge), and say where; only these are read."""
    data: Any = volume.data
    shape = volume.shape
    size = (1,) * (len(shape) - 3) + (depth, edge, edge)
    size = size[-len(shape) :]
    count = int(_BLOCKS / _FLATTEST)
    corners = np.stack(
        [rng.integers(0, n - m + 1, count) for n, m in zip(shape, size, strict=True)], 1
    )
    corners = move_into_chunks(corners, size, data)
    return read_boxes(data, corners, size).reshape(count, depth, edge, edge), corners


def flattest_blocks(blocks: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the numbers of the blocks with the least image, and all of the noise, in them."""
    # averages over quarters show edges and slopes through the noise
    half = BLOCK // 2
    quarters = blocks.reshape(*blocks.shape[:2], 2, half, 2, half).mean((3, 5))
    variation = np.ptp(quarters.reshape(len(blocks), -1), axis=1)
    order = np.argsort(variation, kind="stable")
    whole = order[_hold_noise(blocks)[order]]
    return whole[: max(round(_FLATTEST * len(whole)), _FEWEST)]


def _hold_noise(blocks: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return which blocks hold no more neighbours of one value than blocks of this volume do."""
    equal = (np.diff(blocks, axis=3) == 0).mean((1, 2, 3))
    varied = equal[equal < 1]
    usual = float(np.median(varied)) if len(varied) else 1.0
    if usual > _CLEAN:
        return np.ones(len(blocks), bool)
    kept: npt.NDArray[np.bool_] = equal <= usual + _FILLED
    return kept


def _when_binned(volume: Volume, rng: np.random.Generator) -> float:
    """Return the highest correlation along y and x in slices binned 2 x 2."""
    large, _ = draw_blocks(volume, 1, rng, 2 * BLOCK)
    blocks = large.reshape(len(large), 1, BLOCK, 2, BLOCK, 2).mean((3, 5))
    flat = blocks[flattest_blocks(blocks)]
    across_y, across_x = np.diff(flat, 2, axis=2), np.diff(flat, 2, axis=3)
    return max(neighbour_correlation(across_y, 3), neighbour_correlation(across_x, 2), 0.0)


def _growth(differences: npt.NDArray[np.float64], flat: npt.NDArray[np.float64]) -> float:
    means = flat.mean((1, 2, 3))
    if np.ptp(means) == 0:
        return 0.0
    ranks = _ranks(differences.std((1, 2, 3))), _ranks(means)
    return float(np.corrcoef(*ranks)[0, 1])


def _variance_line(
    across_y: npt.NDArray[np.float64],
    across_x: npt.NDArray[np.float64],
    flat: npt.NDArray[np.float64],
    noise: float,
) -> tuple[float, float]:
    """Fit the variance of the noise as a line over the grey value: slope and offset."""
    means = flat.mean((1, 2, 3))
    variances = ((across_y**2).mean((1, 2, 3)) + (across_x**2).mean((1, 2, 3))) / 12
    if np.ptp(means) == 0:
        return 0.0, noise**2
    slope, low = theil_sen(means, variances)
    # blocks overlap, so that less is certain than it seems
    span = np.subtract(*np.percentile(means, (95, 5)))
    if low <= 0 or slope * span < _STEEP * noise**2:
        return 0.0, noise**2
    # through the middle of the blocks; the median of variances would be below their mean
    return float(slope), float(noise**2 - slope * means.mean())


# SciPy has both of these, in a package that takes half a second to import


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the rank of each value; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: npt.NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks


def theil_sen(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the median of the slopes between all pairs, and its lower limit, 99 % certain."""
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    slopes = np.sort((y[second] - y[first])[run != 0] / run[run != 0])
    n = len(x)
    deviation = np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    # 2.576: the 99.5th percentile of the normal distribution
    below = max(int((len(slopes) - 2.576 * deviation) / 2), 0)
    return float(np.median(slopes)), float(slopes[below])
