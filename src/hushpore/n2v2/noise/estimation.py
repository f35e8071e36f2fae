"""The noise of a scan, estimated from the scan alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError
from hushpore.n2v2.noise.detrended import DetrendedBlocks, detrended_blocks
from hushpore.n2v2.noise.diagnosis import theil_sen
from hushpore.n2v2.noise.flat_blocks import (
    FEWEST,
    FlatBlocks,
    block_sizes,
    even_ones,
    flat_below,
    flat_ones,
    largest_lags,
    read_flattest,
)
from hushpore.n2v2.noise.model import NoiseModel

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume

#: Bytes of a volume up to which all of it is read: from disk, or through a correction, a block by
#: itself takes about as long as thousands of them.
_READ_WHOLE = 2**26

#: Flat blocks that say how the variance depends on the grey value, at least.
_FEWEST_PAIRED = 60

#: Growth of the variance over the grey values, in variances, from which on it is taken for real.
_STEEP = 0.25

#: Relative standard error of the deviation from which on it is in doubt; flat places below which it
#: is; and by how much the variance may differ between these.
_UNSURE, _FEW, _UNLIKE = 0.1, 10, 0.4

#: Counts of a voxel below which their noise is skewed too much to be drawn as normal noise.
_FEW_COUNTS = 10

#: Correlation of neighbours above which noise that is skewed is not that of counts in voxels.
_CORRELATED = 0.15

#: Correlation at the largest lag along an axis from which on the noise goes on beyond it.
_FAR = 0.2


def estimate_noise(volume: Volume, seed: int = 0, *, slicewise: bool = False) -> NoiseModel:
    """Estimate the noise of a volume from its flattest places.

    Blocks are drawn at random, and polynomials of second degree taken out of each. The blocks that
    hold least of the polynomials are flat: what is left of them is nearly independent of that, so
    that noise is found neither too strong (from edges) nor too weak (from the calmest noise). As
    many are taken as hold no more of the polynomials than the noise so found would have there,
    which depends on the noise and so is found by trying. What the polynomials took along of the
    noise is made up for by a linear solve. Blocks that differ from the others in energy or in
    correlation are left out on both sides of the median, by the spread of the lower half.

    That weakly textured patches tell the noise, and are found by a threshold that depends on the
    noise, is from [1]_; there for independent noise and by gradients.

    Parameters
    ----------
    volume : Volume
        2D or 3D, with or without leading axes, of any real dtype and without NaN; at least 6
        pixels in y and x. Of a large one only blocks are read.
    seed : int, optional
        Start of the random numbers that choose the blocks.
    slicewise : bool, optional
        Look within slices alone, for a stack whose slices have little to do with each other: of
        the noise of neighbouring slices nothing is said then.

    Returns
    -------
    NoiseModel
        With `doubts` where there is too little noise or no flat place.

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
        raise InputError(f"Noise is estimated in slices of at least 6 x 6; got {volume.shape}.")
    if math.prod(volume.shape) * volume.dtype.itemsize <= _READ_WHOLE:
        volume = volume.replace(np.asarray(volume.data))
    doubts: list[str] = []
    for size in block_sizes(volume, slicewise):
        kind = detrended_blocks(size, largest_lags(size))
        rng = np.random.default_rng(seed)
        blocks, grey, hidden, unit = read_flattest(volume, kind, rng)
        if not (blocks.products[:FEWEST, 0] > 0).any():
            return _no_noise(kind, volume)
        used, flatness = flat_ones(kind, blocks)
        if flatness <= flat_below(kind):
            break
    else:
        doubts.append("No place is flat enough: some of what is found may be image.")
    if hidden:
        doubts.append("Most neighbours have the same value: rounding hides the noise.")
    even = even_ones(kind, blocks, used)
    # where there is hardly a flat block, image would be taken for noise that grows
    sure = flatness <= flat_below(kind) and len(used) >= _FEWEST_PAIRED
    offset, slope = _variance_line(kind, used, even) if sure else (1.0, 0.0)
    if slope:
        # where it is brighter, there is more noise in what is flat too
        usual = offset + slope * grey
        weights = usual / np.maximum(offset + slope * blocks.means, 0.1 * usual)
        blocks = blocks.weighted(weights)
        used, _ = flat_ones(kind, blocks)
        even = even_ones(kind, blocks, used)
    return _model(volume, kind, used, even, (offset, slope), grey, doubts).scaled(unit)


def _variance_line(
    kind: DetrendedBlocks, used: FlatBlocks, even: FlatBlocks
) -> tuple[float, float]:
    """Fit the variance of the noise as a line over the grey value: offset and slope."""
    autocovariance = kind.autocovariance(used.products.mean(0))
    none = float(autocovariance[0]), 0.0
    if np.ptp(even.means) == 0:
        return none
    variances = autocovariance[0] * kind.relative_variance(even.products, autocovariance)
    slope, low = theil_sen(even.means, variances)
    span = np.subtract(*np.percentile(even.means, (95, 5)))
    if low <= 0 or slope * span < _STEEP * autocovariance[0]:
        return none
    # through the middle of the blocks; the median of variances would be below their mean
    return float(variances.mean() - slope * even.means.mean()), float(slope)


def _no_noise(kind: DetrendedBlocks, volume: Volume) -> NoiseModel:
    zero = np.zeros([2 * r + 1 for r in kind.reach])
    slices = np.zeros(volume.shape[-3] if volume.n_spatial == 3 else 0)
    doubt = "Values do not vary in flat places: there is no noise, or it was rounded away."
    return NoiseModel(zero, zero, 0.0, 0.0, 0.0, slices, 1.0, 0.0, 0, False, (doubt,))


def _model(
    volume: Volume,
    kind: DetrendedBlocks,
    blocks: FlatBlocks,
    even: FlatBlocks,
    line: tuple[float, float],
    grey: float,
    doubts: list[str],
) -> NoiseModel:
    each = kind.autocovariance(blocks.products)
    found = each.mean(0)
    if found[0] <= 0:
        return _no_noise(kind, volume)
    correlation = kind.unfold(found / found[0])
    root = np.sqrt(len(blocks))
    deviation = np.sqrt(found[0])
    deviation_error = float(each[:, 0].std() / root / (2 * deviation))
    # of a ratio, to first order
    error = (each - each[:, :1] * (found / found[0])).std(0) / root / found[0]
    if deviation_error > _UNSURE * deviation or len(blocks) < _FEW:
        doubts.append(f"Only {len(blocks)} flat places tell.")
    # a Poisson variable's variance over the square of what one count is
    counts = found[0] / line[1] ** 2 if line[1] else np.inf
    if counts < _FEW_COUNTS:
        doubts.append(
            f"A voxel has about {counts:.0f} counts: the noise of so few is far from normal."
        )
    elif _is_of_few_counts(blocks.residual) and (
        max(found[kind.neighbours], default=0.0) <= _CORRELATED * found[0]
    ):
        doubts.append("The noise is skewed, as that of few counts is: it is far from normal.")
    far = {axis: abs(correlation[place]) for axis, place in _furthest(kind)}
    if far and max(far.values()) > _FAR:
        axis = max(far, key=lambda each: far[each])
        doubts.append(
            f"The noise is correlated along {axis} over more voxels than are looked at, as "
            "lines or rings are."
        )
    energy = blocks.products[:, 0]
    expected = kind.energy_spread(found) / kind.energy(found)
    offset, slope = line
    scale = found[0] / (offset + slope * grey)
    strength = kind.relative_variance(even.products, found)
    rim, rim_error = _rim(volume, kind, even.corners, strength)
    return NoiseModel(
        kind.unfold(found),
        kind.unfold(error),
        deviation_error,
        float(offset * scale),
        float(slope * scale),
        _by_slice(volume, kind, even, found[0] * strength),
        rim,
        rim_error,
        len(blocks),
        bool((energy.std() / energy.mean()) ** 2 - expected**2 > _UNLIKE**2),
        tuple(doubts),
    )


def _is_of_few_counts(residual: npt.NDArray[np.float32]) -> bool:
    """Return whether noise is as skewed as that of few counts, which is one over their root.

    It tells them also where grey values in flat places differ too little for a line over them.
    `residual`: shape (n, n_voxels).
    """
    values = residual.astype(np.float64)
    unit = np.mean(values**2) ** 1.5
    cubes = np.mean(values**3, axis=1) / unit
    # beyond chance
    limit = max(1 / np.sqrt(_FEW_COUNTS), 3 * cubes.std() / np.sqrt(len(cubes)))
    return bool(cubes.mean() > limit)


def _furthest(kind: DetrendedBlocks) -> list[tuple[str, tuple[int, ...]]]:
    """Return the place of the largest lag along each axis that has several."""
    axes = "zyx"[-len(kind.reach) :]
    places = []
    for number, (axis, reach) in enumerate(zip(axes, kind.reach, strict=True)):
        place = [*kind.reach]
        place[number] += reach
        if reach > 1:
            places.append((axis, tuple(place)))
    return places


def _rim(
    volume: Volume,
    kind: DetrendedBlocks,
    corners: npt.NDArray[np.int64],
    strength: npt.NDArray[np.float64],
) -> tuple[float, float]:
    """Return the deviation in the outer half of flat places over the inner one, and its error."""
    middles = corners[:, -2:] + np.array(kind.size[-2:]) / 2
    radius = np.hypot(*(middles - np.array(volume.shape[-2:]) / 2).T)
    is_outer = radius > np.median(radius) if len(radius) else np.zeros(0, bool)
    if min(is_outer.sum(), (~is_outer).sum()) < 2:
        return 1.0, np.inf
    outer, inner = strength[is_outer], strength[~is_outer]
    ratio = float(np.sqrt(outer.mean() / inner.mean()))
    spread = [part.std() / part.mean() / np.sqrt(len(part)) for part in (outer, inner)]
    return ratio, float(ratio * np.hypot(*spread) / 2)


def _by_slice(
    volume: Volume, kind: DetrendedBlocks, blocks: FlatBlocks, variances: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return the deviation in every slice, NaN where no block tells.

    `variances`: of the blocks. Differences of neighbours say how the slices of each share them.
    """
    if volume.n_spatial == 2:
        return np.empty(0)
    depth, n_slices = kind.size[0], volume.shape[-3]
    found = np.full(n_slices, np.nan)
    if not len(blocks):
        return found
    residual = blocks.residual.reshape(len(blocks), *kind.size)
    fine = sum((np.diff(residual, axis=axis) ** 2).mean((2, 3)) for axis in (2, 3))
    # the polynomials take more from the ends of a block
    mean = fine.mean(0)
    fine *= np.divide(variances.mean(), mean, out=np.full_like(mean, np.nan), where=mean > 0)
    numbers = (blocks.corners[:, -3, None] + np.arange(depth)).ravel()
    sums = np.bincount(numbers, fine.ravel(), n_slices)
    counts = np.bincount(numbers, minlength=n_slices)
    found[counts > 0] = np.sqrt(sums[counts > 0] / counts[counts > 0])
    return found
