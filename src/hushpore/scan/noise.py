"""The noise of a scan, estimated from the scan alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_count
from hushpore.base.volume import Volume
from hushpore.scan.flat_blocks import (
    FEWEST,
    Drawn,
    FlatBlocks,
    block_sizes,
    even_ones,
    flat_below,
    flat_ones,
    largest_lags,
    read_flattest,
)
from hushpore.scan.noise_model import (
    FAR_FROM_GAUSSIAN,
    NOTABLE,
    WEAK,
    NoiseDiagnosis,
    NoiseModel,
    far_axis,
    neighbour_correlation,
    ring_correlation,
)
from hushpore.scan.noise_strength import (
    DetrendedBlocks,
    Strength,
    detrended_blocks,
    map_of,
    measure_strength,
)

if TYPE_CHECKING:
    from hushpore.base.arrays import Float32s, Float64s, Int64s
    from hushpore.scan.sample import Sample


#: Maximum size of a volume that is read as a whole, in bytes: from disk or through a correction,
#: reading one block takes about as long as reading thousands.
_READ_WHOLE = 2**26

#: Minimum number of flat blocks for fitting the variance against the grey value.
_FEWEST_PAIRED = 60

#: Minimum growth of the variance over the grey values, relative to the variance, to be accepted.
_STEEP = 0.25

#: Relative standard error of the noise standard deviation above which the estimate is doubtful.
_UNSURE = 0.1

#: Number of flat regions below which the estimate is doubtful.
_FEW = 10

#: Maximum relative difference of the variance between flat regions.
_UNLIKE = 0.4

#: Number of counts per voxel below which the noise is too skewed to be simulated as normal.
_FEW_COUNTS = 10

#: Maximum ratio of the noise in flat regions and that from differences of neighbours, if these are
#: independent: a higher ratio means that image structure was included.
_AGREEING = 1.5

#: Minimum share of voxels with the maximum value for a note.
_SATURATED = 0.01

#: Share of the quarters of flat blocks that are used for the diagnosis, and their minimum number:
#: with fewer, rings in a small scan are not found.
_CALMEST, _AT_LEAST = 0.25, 160

#: Correlation at the largest lag from which longer lags are measured, on voxels at these distances;
#: minimum number of such voxels along y and x, and along z; and maximum share of the variance of a
#: scan that noise with long lags has: above, it is taken for structure.
_PERHAPS_FAR, _STEPS, _FEWEST_ACROSS, _SLICES, _MOST_OF_SCAN = 0.1, (2, 3, 4), 24, 8, 0.6

#: One in this many of the usual blocks is drawn for a brief estimate.
_BRIEF = 8

#: Edge of large blocks within slices, largest lag in them, one in how many is drawn, and limits of
#: the standard deviation in them over that in small blocks: beyond, they are not used.
_LARGE, _FAR_LAG, _FEW_LARGE, _AS_STRONG = 32, 8, 4, (0.9, 1.1)


def estimate_noise(
    volume: Volume,
    seed: int = 0,
    *,
    slicewise: bool = False,
    sample: Sample | None = None,
    brief: bool = False,
) -> NoiseModel:
    """Estimate the noise of a volume from its flattest regions.

    Blocks are drawn at random, and polynomials of second degree are fitted to each and subtracted.
    Blocks with the smallest polynomials are flat: their residual is nearly independent of the
    polynomials, so that the noise is neither overestimated (from edges) nor underestimated (from
    the calmest noise). A block is flat if its polynomials are no larger than those of the noise
    alone, which depends on the noise and is therefore found iteratively. The noise removed by the
    polynomials is corrected by a linear solve. Outliers in energy or correlation are excluded on
    both sides of the median, by the spread of the lower half.

    Selecting weakly textured patches by a threshold that depends on the noise is from [1]_, there
    for white noise and with gradients.

    Parameters
    ----------
    volume : Volume
        2D or 3D, with or without leading axes, of any real dtype and without NaN; at least 6
        pixels in y and x. Of a large one only blocks are read.
    seed : int, optional
        Seed of the random positions of the blocks.
    slicewise : bool, optional
        Use slices separately, for a stack of unrelated slices: the correlation between slices is
        not estimated then.
    sample : Sample, optional
        The sample of the scan: the noise is that of flat regions inside it.
    brief : bool, optional
        Draw an eighth of the blocks, and leave out diagnosis and strength: the standard
        deviation and autocovariance alone, in a fifth of the time.

    Returns
    -------
    NoiseModel
        With `doubts` if there is too little noise or no flat region.

    Raises
    ------
    InputError
        If slices are smaller than 6 x 6 pixels.

    References
    ----------
    .. [1] Liu, Tanaka, Okutomi, Single-image noise level estimation for blind denoising, IEEE
       Transactions on Image Processing 22 (2013), https://doi.org/10.1109/TIP.2013.2283400
    """
    if min(volume.shape[-2:]) < 6:
        raise InputError(
            f"Noise estimation needs slices of at least 6 x 6 pixels; got {volume.shape}."
        )
    if math.prod(volume.shape) * volume.dtype.itemsize <= _READ_WHOLE:
        volume = volume.replace(np.asarray(volume.data))
    doubts: list[str] = []
    for size in block_sizes(volume, slicewise):
        kind = detrended_blocks(size, largest_lags(size))
        rng = np.random.default_rng(seed)
        blocks, drawn = read_flattest(volume, kind, rng, sample, _BRIEF if brief else 1)
        if not (blocks.products[:FEWEST, 0] > 0).any():
            return _no_noise(kind, volume, drawn)
        used, flatness = flat_ones(kind, blocks)
        if flatness <= flat_below(kind):
            break
    else:
        doubts.append("No region is flat enough: part of the measured noise may be structure.")
    if drawn.is_rounded:
        doubts.append("Most neighbouring voxels have equal values: rounding hides the noise.")
    even = even_ones(kind, blocks, used)
    # with few flat blocks, image structure could pass for noise that grows with the grey value
    sure = flatness <= flat_below(kind) and len(used) >= _FEWEST_PAIRED
    offset, slope = _variance_line(kind, used, even) if sure else (1.0, 0.0)
    if slope:
        # brighter flat regions have more noise
        usual = offset + slope * drawn.mean
        weights = usual / np.maximum(offset + slope * blocks.means, 0.1 * usual)
        blocks = blocks.weighted(weights)
        used, _ = flat_ones(kind, blocks)
        even = even_ones(kind, blocks, used)
    found = _model(volume, kind, used, even, (offset, slope), drawn, doubts)
    if not brief and (len(kind.size) == 2 or kind.size[0] == 1):
        found = _in_large_blocks(found, volume, seed, sample)
    variance = None if brief else float(drawn.values.var())
    found = _extended(found, volume, seed, slicewise, sample, variance)
    if brief or not found.deviation:
        return found
    diagnosis = _diagnosis(volume, kind, used, found, drawn)
    # without doubts, since a weaker estimate returns more of the scan
    if not found.doubts:
        is_one_scan = len(volume.shape) == volume.n_spatial and not (
            slicewise and math.prod(volume.shape[:-2]) > 1
        )
        strength = _strength_of(found, volume, kind, used, even, drawn, is_one_scan)
        found = found.strengthened(strength.factor, strength.map)
    doubts = [*found.doubts]
    if diagnosis.is_independent and found.deviation > _AGREEING * diagnosis.noise:
        doubts.append(
            f"The variation in the flattest regions ({found.deviation:.3g}) exceeds the noise "
            f"({diagnosis.noise:.3g}, from differences of neighbouring voxels): no region is flat "
            "enough."
        )
    return replace(found, diagnosis=diagnosis, doubts=tuple(doubts))


def _strength_of(
    model: NoiseModel,
    volume: Volume,
    kind: DetrendedBlocks,
    used: FlatBlocks,
    even: FlatBlocks,
    drawn: Drawn,
    is_one_scan: bool,
) -> Strength:
    """Return the strength of the noise all over the sample, by place if it is one scan."""
    middles = drawn.middles if is_one_scan else drawn.middles[:0]
    line = (model.offset, model.slope)
    strength = measure_strength(drawn.values, middles, model.autocovariance, line)
    if strength.map is not None or not is_one_scan or not model.has_rim:
        return strength
    # weak noise cannot be told from edges everywhere, but flat blocks have none
    autocovariance = kind.autocovariance(used.products.mean(0))
    relative = kind.relative_variance(even.products, autocovariance)
    places = (even.corners[:, -2:] + np.array(kind.size[-2:]) / 2) / volume.shape[-2:]
    return strength._replace(map=map_of(relative, places))


def _calmest_quarters(kind: DetrendedBlocks, blocks: FlatBlocks) -> tuple[Float32s, Int64s]:
    """Return the flattest quarters of blocks, (n, z, y, x), and their positions.

    If no block is flat, some of its quarters may be.
    """
    values = blocks.residual.reshape(len(blocks), *(1,) * (3 - len(kind.size)), *kind.size)
    middle = [n // 2 for n in kind.size[-2:]]
    shifts = [(y, x) for y in (0, middle[0]) for x in (0, middle[1])]
    quarters = np.concatenate(
        [values[:, :, y : y + middle[0], x : x + middle[1]] for y, x in shifts]
    )
    corners = np.concatenate([blocks.corners[:, -2:] + shift for shift in shifts])
    # averages over parts show edges and gradients in spite of the noise
    parts = [
        part.mean((1, 2, 3))
        for half in np.array_split(quarters, 2, axis=2)
        for part in np.array_split(half, 2, axis=3)
    ]
    order = np.argsort(np.ptp(parts, axis=0), kind="stable")
    chosen = order[: max(round(_CALMEST * len(order)), _AT_LEAST)]
    return quarters[chosen], corners[chosen]


def _diagnosis(
    volume: Volume, kind: DetrendedBlocks, blocks: FlatBlocks, model: NoiseModel, drawn: Drawn
) -> NoiseDiagnosis:
    """Return the diagnosis of the noise from differences of neighbours.

    The correlation along an axis is that of second differences across it, which preserve it.
    """
    values, corners = _calmest_quarters(kind, blocks)
    # second differences remove what is left of the image; of white noise they have 6 times the
    # variance
    across_y, across_x = (np.diff(values.astype(np.float64), 2, axis=axis) for axis in (2, 3))
    noise = drawn.unit * float(np.sqrt((np.mean(across_y**2) + np.mean(across_x**2)) / 12))
    correlation = {"y": neighbour_correlation(across_x, 2), "x": neighbour_correlation(across_y, 3)}
    if across_y.shape[1] > 1:
        correlation = {"z": neighbour_correlation(across_x, 1), **correlation}
    from_middle = corners + (np.array(values.shape[-2:]) - np.array(volume.shape[-2:])) / 2
    rings = ring_correlation(across_y, across_x, from_middle, NOTABLE)
    share = (noise / model.deviation) ** 2
    saturated = drawn.saturated * (drawn.saturated >= _SATURATED)
    found = NoiseDiagnosis(
        correlation, noise, model.slope * share, model.offset * share, rings, saturated
    )
    if len(found.correlated_axes) > 1:
        found = replace(found, binned=_when_binned(model))
    return found


def _when_binned(model: NoiseModel) -> float:
    """Return the highest correlation along y and x in slices binned 2 x 2."""
    slices = model.autocovariance[model.autocovariance.shape[0] // 2]
    slices = model.autocovariance if slices.ndim == 1 else slices
    y, x = (n // 2 for n in slices.shape)
    if min(y, x) < 3:
        return 1.0
    # number of voxel pairs of two bins at each distance
    pairs = np.outer((1, 2, 1), (1, 2, 1))
    own, below, beside = (
        float((pairs * slices[y + v - 1 : y + v + 2, x + u - 1 : x + u + 2]).sum())
        for v, u in ((0, 0), (2, 0), (0, 2))
    )
    return max(below, beside, 0.0) / own if own > 0 else 1.0


def _variance_line(
    kind: DetrendedBlocks, used: FlatBlocks, even: FlatBlocks
) -> tuple[float, float]:
    """Fit the variance of the noise as a line over the grey value: offset and slope."""
    autocovariance = kind.autocovariance(used.products.mean(0))
    variance = float(autocovariance[0])
    if np.ptp(even.means) == 0:
        return variance, 0.0
    variances = variance * kind.relative_variance(even.products, autocovariance)
    slope, low = theil_sen(even.means, variances)
    span = np.subtract(*np.percentile(even.means, (95, 5)))
    if low <= 0 or slope * span < _STEEP * variance:
        return variance, 0.0
    # through the mean of the blocks; the median of variances would be below their mean
    return float(variances.mean() - slope * even.means.mean()), float(slope)


def theil_sen(x: Float64s, y: Float64s) -> tuple[float, float]:
    """Return the median slope between all pairs, and its lower 99 % confidence limit.

    SciPy's function is in a package that takes half a second to import.
    """
    first, second = np.triu_indices(len(x), 1)
    run = x[second] - x[first]
    slopes = np.sort((y[second] - y[first])[run != 0] / run[run != 0])
    n = len(x)
    deviation = np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    # 2.576: the 99.5th percentile of the normal distribution
    below = max(int((len(slopes) - 2.576 * deviation) / 2), 0)
    return float(np.median(slopes)), float(slopes[below])


def _no_noise(kind: DetrendedBlocks, volume: Volume, drawn: Drawn) -> NoiseModel:
    zero = np.zeros([2 * r + 1 for r in kind.reach])
    slices = np.zeros(volume.shape[-3] if volume.n_spatial == 3 else 0)
    axes = [axis for axis, n in zip("xyz", reversed(kind.size), strict=False) if n > 1]
    saturated = drawn.saturated * (drawn.saturated >= _SATURATED)
    diagnosis = NoiseDiagnosis(dict.fromkeys(reversed(axes), 0.0), 0.0, saturated=saturated)
    doubt = "Flat regions have a constant value: there is no noise, or rounding removed it."
    return NoiseModel(zero, zero, 0.0, 0.0, 0.0, slices, 1.0, 0.0, 0, False, (doubt,), diagnosis)


def _model(
    volume: Volume,
    kind: DetrendedBlocks,
    blocks: FlatBlocks,
    even: FlatBlocks,
    line: tuple[float, float],
    drawn: Drawn,
    doubts: list[str],
) -> NoiseModel:
    each = kind.autocovariance(blocks.products)
    found = each.mean(0)
    if found[0] <= 0:
        return _no_noise(kind, volume, drawn)
    root = np.sqrt(len(blocks))
    deviation = np.sqrt(found[0])
    deviation_error = float(each[:, 0].std() / root / (2 * deviation))
    # error of a ratio, to first order
    error = (each - each[:, :1] * (found / found[0])).std(0) / root / found[0]
    if deviation_error > _UNSURE * deviation or len(blocks) < _FEW:
        doubts.append(
            f"The noise was estimated from only {readable_count(len(blocks), 'flat region')}."
        )
    # for Poisson noise, variance divided by the square of the grey value of a count
    counts = found[0] / line[1] ** 2 if line[1] else np.inf
    if counts < _FEW_COUNTS:
        doubts.append(f"A voxel has only about {counts:.0f} counts: {FAR_FROM_GAUSSIAN}")
    # also where grey values differ too little for fitting the variance, noise may be as skewed as
    # that of few counts, 1 / sqrt(counts), and significantly more than by chance
    residual = blocks.residual.astype(np.float64)
    cubes = np.mean(residual**3, axis=1) / np.mean(residual**2) ** 1.5
    skewed = max(1 / np.sqrt(_FEW_COUNTS), 3 * cubes.std() / root)
    is_white = max(found[kind.neighbours], default=0.0) <= NOTABLE * found[0]
    if counts >= _FEW_COUNTS and is_white and cubes.mean() > skewed:
        doubts.append(f"The noise is skewed, as with few counts: {FAR_FROM_GAUSSIAN}")
    energy = blocks.products[:, 0]
    # of a sum of squares of normal noise
    spread = np.sqrt(2 * kind.counts @ kind.unfold(found).ravel() ** 2)
    expected = spread / kind.energy(found)
    offset, slope = line
    scale = found[0] / (offset + slope * drawn.mean)
    strength = kind.relative_variance(even.products, found)
    slices, rim, rim_error = _by_place(volume, kind, even, strength, found[0])
    return NoiseModel(
        kind.unfold(found),
        kind.unfold(error),
        deviation_error,
        float(offset * scale),
        float(slope * scale),
        slices,
        rim,
        rim_error,
        len(blocks),
        bool((energy.std() / energy.mean()) ** 2 - expected**2 > _UNLIKE**2),
        tuple(doubts),
    ).scaled(drawn.unit)


def _extended(
    near: NoiseModel,
    volume: Volume,
    seed: int,
    slicewise: bool,
    sample: Sample | None,
    variance: float | None,
) -> NoiseModel:
    """Extend noise with long correlation to longer lags, measured on every 2nd to 4th voxel.

    `variance`: of the grey values; None: only the doubt below is added.
    Returns: `near` if no large region is flat, or if what varies there is most of the scan; with a
    doubt if noise extends beyond its lags.
    """
    doubted = near
    if axis := far_axis(near.correlation):
        doubt = (
            f"The noise is correlated along {axis} over a longer distance than is analysed, as "
            "with streaks or rings."
        )
        doubted = replace(near, doubts=(*near.doubts, doubt))
    sure = np.maximum(np.abs(near.correlation) - 3 * near.correlation_error, 0.0)
    # in weak noise, texture would be taken for it
    is_weak = near.deviation**2 <= WEAK**2 * (variance or 0.0)
    if variance is None or is_weak or not far_axis(sure, _PERHAPS_FAR):
        return doubted
    spatial = len(near.reach)
    values = volume.data[tuple(n // 2 for n in volume.shape[:-spatial])]
    if spatial == 3:
        # as many slices in the middle as are read as a whole
        most = _READ_WHOLE // (math.prod(values.shape[1:]) * values.dtype.itemsize)
        left_out = max(len(values) - max(most, _SLICES), 0) // 2
        if sample is not None:
            beyond = left_out * len(sample.mask) // len(values)
            sample = replace(sample, mask=sample.mask[beyond : len(sample.mask) - beyond])
        values = values[left_out : len(values) - left_out]
    values = np.asarray(values)
    for step in _STEPS:
        steps = [step] * spatial
        if spatial == 3:
            steps[0] = 1 if slicewise else max(min(step, len(values) // _SLICES), 1)
        counts = [n // s for n, s in zip(values.shape, steps, strict=True)]
        if min(counts[-2:]) < _FEWEST_ACROSS:
            break
        # the voxels of each offset are a volume of its own
        pairs = list(zip(counts, steps, strict=True))
        cut = values[tuple(slice(n * s) for n, s in pairs)].reshape([n for p in pairs for n in p])
        order = (*range(1, 2 * spatial, 2), *range(0, 2 * spatial, 2))
        offsets = Volume(cut.transpose(order).reshape(-1, *counts), axes=f"t{'zyx'[-spatial:]}")
        inside = sample and replace(sample, shape=(1, *counts)[-3:])
        far = estimate_noise(offsets, seed, slicewise=slicewise, sample=inside, brief=True)
        if not far.doubts and far.deviation**2 < _MOST_OF_SCAN * variance:
            return near.extended(far.autocovariance, steps)
    return doubted


def _in_large_blocks(
    near: NoiseModel, volume: Volume, seed: int, sample: Sample | None
) -> NoiseModel:
    """Measure correlated noise of slices in larger blocks, where some are flat.

    Reconstructed noise has least power at low frequencies, which small blocks do not resolve: there
    the network and filters keep most of it.

    Returns: `near` if the noise is white, or without large flat regions.
    """
    edges = [min(_LARGE, n) for n in volume.shape[-2:]]
    if near.is_independent or near.doubts or min(edges) < _LARGE:
        return near
    spatial = len(near.reach)
    kind = detrended_blocks((1, *edges)[-spatial:], (0, _FAR_LAG, _FAR_LAG)[-spatial:])
    rng = np.random.default_rng(seed)
    blocks, drawn = read_flattest(volume, kind, rng, sample, _FEW_LARGE)
    offset, slope = near.offset / drawn.unit**2, near.slope / drawn.unit
    usual = offset + slope * drawn.mean
    weights = usual / np.maximum(offset + slope * blocks.means, 0.1 * usual)
    blocks = blocks.weighted(weights)
    used, flatness = flat_ones(kind, blocks, _FEW)
    if flatness > flat_below(kind) or len(used) < _FEW:
        return near
    found = kind.autocovariance(used.products)
    mean = found.mean(0)
    factor = math.sqrt(max(mean[0], 0.0)) * drawn.unit / near.deviation
    # structure in large blocks would add power, at low frequencies most of all
    total = kind.unfold(mean).sum() * drawn.unit**2
    if not _AS_STRONG[0] < factor < _AS_STRONG[1] or total > near.autocovariance.sum():
        return near
    error = (found - found[:, :1] * (mean / mean[0])).std(0) / np.sqrt(len(used)) / mean[0]
    return replace(
        near.strengthened(factor),
        autocovariance=kind.unfold(mean) * drawn.unit**2,
        correlation_error=kind.unfold(error),
    )


def _by_place(
    volume: Volume, kind: DetrendedBlocks, blocks: FlatBlocks, strength: Float64s, variance: float
) -> tuple[Float64s, float, float]:
    """Return the noise by place.

    `strength`: relative variances of the blocks, divided among their slices by the differences of
    neighbours. `variance`: of the noise.
    Returns: the standard deviation in every slice, NaN for slices without flat blocks; the ratio of
    the noise in the outer and inner half of the blocks, and its error.
    """
    middles = blocks.corners[:, -2:] + np.array(kind.size[-2:]) / 2
    radius = np.hypot(*(middles - np.array(volume.shape[-2:]) / 2).T)
    is_outer = radius > np.median(radius) if len(radius) else np.zeros(0, bool)
    ratio, error = 1.0, np.inf
    if min(is_outer.sum(), (~is_outer).sum()) >= 2:
        outer, inner = strength[is_outer], strength[~is_outer]
        ratio = float(np.sqrt(outer.mean() / inner.mean()))
        spread = [part.std() / part.mean() / np.sqrt(len(part)) for part in (outer, inner)]
        error = float(ratio * np.hypot(*spread) / 2)
    if volume.n_spatial == 2:
        return np.empty(0), ratio, error
    depth, n_slices = kind.size[0], volume.shape[-3]
    found = np.full(n_slices, np.nan)
    if len(blocks):
        residual = blocks.residual.reshape(len(blocks), *kind.size)
        fine = sum((np.diff(residual, axis=axis) ** 2).mean((2, 3)) for axis in (2, 3))
        # the polynomials remove more of the noise at the ends of a block
        mean, whole = fine.mean(0), variance * strength.mean()
        fine *= np.divide(whole, mean, out=np.full_like(mean, np.nan), where=mean > 0)
        numbers = (blocks.corners[:, -3, None] + np.arange(depth)).ravel()
        sums = np.bincount(numbers, fine.ravel(), n_slices)
        counts = np.bincount(numbers, minlength=n_slices)
        found[counts > 0] = np.sqrt(sums[counts > 0] / counts[counts > 0])
    return found, ratio, error
