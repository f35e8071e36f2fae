"""The noise of a scan, estimated from the scan alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.n2v2.noise.boxes import move_into_chunks, read_boxes
from hushpore.n2v2.noise.detrended import DetrendedBlocks, detrended_blocks
from hushpore.n2v2.noise.diagnosis import theil_sen
from hushpore.n2v2.noise.model import NoiseModel

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume

#: Edges of blocks in z and in y and x, the first that finds enough flat ones is taken: a large
#: block says more, a small one fits between edges.
_STACK_SIZES = ((6, 12), (6, 10), (5, 8), (4, 6))
_SLICE_SIZES = ((1, 16), (1, 12), (1, 8))

#: The largest lags in z and in y and x.
_REACH = (3, 5)

#: Bytes of a volume up to which all of it is read: from disk, or through a correction, a block by
#: itself takes about as long as thousands of them.
_READ_WHOLE = 2**26

#: Blocks that are drawn, and how many of them are held at once.
_DRAWN, _AT_ONCE = 16_000, 2000

#: About how many of the flattest there is another look, at how many blocks about each, and how many
#: voxels away.
_REFINED, _TRIES, _NEARBY = 500, 8, 2

#: Flat blocks that are used: at least, at most, and by which factor more are tried.
_FEWEST, _MOST, _GROWTH = 40, 1600, 1.4

#: How much a flat block may hold of the polynomials, in multiples of what noise has there on
#: average; in a slice, where polynomials are fewer, chance makes more of the blocks seem flat.
_FLAT, _FLAT_IN_SLICE = 0.6, 0.35

#: How much more noise than flat blocks a block may have, in deviations, that says how noise differs
#: with place and grey value.
_NOISIEST = 2.0

#: Deviations from the median from which on a block is not typical.
_TYPICAL = 2.0

#: By how much the share of neighbours of one value may be above the usual; and the usual share
#: where values hardly vary: as `diagnosis` has them.
_FILLED, _CLEAN = 0.2, 0.5

#: By how much the share of values that are the lowest or the highest of all may be above the usual.
_CUT_OFF = 0.01

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


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Flat blocks of a volume, the flattest first."""

    corners: npt.NDArray[np.int64]  # (n, ndim)
    means: npt.NDArray[np.float64]
    coarse: npt.NDArray[np.float64]  # the energy of their polynomials
    residual: npt.NDArray[np.float32]  # (n, n_voxels), what is left without these
    products: npt.NDArray[np.float64]  # (n, n_half), of the residual at each lag

    def __len__(self) -> int:
        return len(self.means)

    def take(self, chosen: Any) -> _Blocks:
        arrays = (self.corners, self.means, self.coarse, self.residual, self.products)
        return _Blocks(*(each[chosen] for each in arrays))

    def with_products(self, kind: DetrendedBlocks) -> _Blocks:
        return replace(self, products=kind.products(self.residual))

    def weighted(self, weights: npt.NDArray[np.float64]) -> _Blocks:
        """Multiply all energies of blocks, and sort them again."""
        scaled = _Blocks(
            self.corners,
            self.means,
            self.coarse * weights,
            self.residual * np.sqrt(weights, dtype=np.float32)[:, None],
            self.products * weights[:, None],
        )
        return scaled.take(np.argsort(scaled.coarse, kind="stable"))


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
    for size in _sizes(volume, slicewise):
        kind = detrended_blocks(size, _reach(size))
        rng = np.random.default_rng(seed)
        blocks, grey, hidden, unit = _read_flattest(volume, kind, rng)
        if not (blocks.products[:_FEWEST, 0] > 0).any():
            return _no_noise(kind, volume)
        used, flatness = _flat_ones(kind, blocks)
        if flatness <= _flat_below(kind):
            break
    else:
        doubts.append("No place is flat enough: some of what is found may be image.")
    if hidden:
        doubts.append("Most neighbours have the same value: rounding hides the noise.")
    even = _even(kind, blocks, used)
    # where there is hardly a flat block, image would be taken for noise that grows
    sure = flatness <= _flat_below(kind) and len(used) >= _FEWEST_PAIRED
    offset, slope = _variance_line(kind, used, even) if sure else (1.0, 0.0)
    if slope:
        # where it is brighter, there is more noise in what is flat too
        usual = offset + slope * grey
        weights = usual / np.maximum(offset + slope * blocks.means, 0.1 * usual)
        blocks = blocks.weighted(weights)
        used, _ = _flat_ones(kind, blocks)
        even = _even(kind, blocks, used)
    return _model(volume, kind, used, even, (offset, slope), grey, doubts).scaled(unit)


# --- flat blocks


def _sizes(volume: Volume, slicewise: bool) -> list[tuple[int, ...]]:
    """Return sizes of blocks, large ones first, that fit the volume."""
    is_stack = volume.n_spatial == 3 and volume.shape[-3] > 1 and not slicewise
    spatial = volume.shape[-volume.n_spatial :]
    sizes = []
    for depth, edge in _STACK_SIZES if is_stack else _SLICE_SIZES:
        size = (depth, edge, edge)[-volume.n_spatial :]
        fitting = tuple(min(n, m) for n, m in zip(size, spatial, strict=True))
        if fitting not in sizes:
            sizes.append(fitting)
    return sizes


def _reach(size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the largest lags: half of a block at most, or little could be told apart."""
    most = (_REACH[0], _REACH[1], _REACH[1])[-len(size) :]
    return tuple(min(m, n // 2) for m, n in zip(most, size, strict=True))


def _read_flattest(
    volume: Volume, kind: DetrendedBlocks, rng: np.random.Generator
) -> tuple[_Blocks, float, bool, float]:
    """Read blocks at random, then more about the flattest of them.

    Returns: the flattest; the mean grey value of all; whether most neighbours have the same value;
    and the unit of these values, so chosen that squares are not too large for float32.
    """
    data: Any = volume.data
    size = (1,) * (len(volume.shape) - len(kind.size)) + kind.size
    room: npt.NDArray[np.int64] = np.array(volume.shape) - np.array(size)
    count = min(_DRAWN, 4 * math.prod((room + 1).tolist()))
    corners = move_into_chunks(rng.integers(0, room + 1, (count, len(room))), size, data)
    # in the order in which they lie in a file
    corners = corners[np.lexsort(corners.T[::-1])]
    some = read_boxes(data, corners[:: -(-count // _AT_ONCE)], size)
    equal = _share_of_equal(some)
    usual = float(np.median(equal[equal < 1])) if (equal < 1).any() else 1.0
    lowest, highest = some.min(), some.max()
    unit = float(max(highest - lowest, abs(highest))) or 1.0
    limits = (
        lowest,
        highest,
        usual + _FILLED if usual <= _CLEAN else 1.0,
        _CUT_OFF + float(np.quantile(_share_of_extremes(some, lowest, highest), 0.25)),
    )
    far = _look(data, kind, corners, size, limits, unit)
    steps = rng.integers(-_NEARBY, _NEARBY + 1, (_REFINED * _TRIES, len(room)))
    near = np.tile(far.corners[:_REFINED], (_TRIES, 1))
    near = np.clip(near + steps[: len(near)], 0, room)
    both = _joined([far, _look(data, kind, near[np.lexsort(near.T[::-1])], size, limits, unit)])
    flattest = both.take(_one_a_place(both.corners, both.coarse, size))
    return flattest.with_products(kind), float(some.mean()) / unit, usual > _CLEAN, unit


def _look(
    data: Any,
    kind: DetrendedBlocks,
    corners: npt.NDArray[np.int64],
    size: tuple[int, ...],
    limits: tuple[float, float, float, float],
    unit: float,
) -> _Blocks:
    """Read the blocks at some corners, and keep the flattest that hold all of their noise.

    `limits`: the lowest and the highest value, and which share of neighbours may be equal and of
    values be one of these. `unit`: what values are divided by.
    """
    lowest, highest, most_equal, most_cut = limits
    found = []
    for start in range(0, max(len(corners), 1), _AT_ONCE):
        places = corners[start : start + _AT_ONCE]
        boxes = read_boxes(data, places, size)
        values = boxes.reshape(len(boxes), int(np.prod(size)))
        # where values were filled in or cut off there is no noise, or not all of it
        whole = _share_of_equal(boxes) <= most_equal
        whole &= _share_of_extremes(boxes, lowest, highest) <= max(most_cut, 2 / values.shape[1])
        values, places = values[whole] / unit, places[whole]
        means = values.mean(1)
        coarse, residual = kind.split((values - means[:, None]).astype(np.float32))
        energy = (coarse**2).sum(1)
        none = np.empty((len(places), 0))
        chosen = _one_a_place(places, energy, size)
        found.append(_Blocks(places, means, energy, residual, none).take(chosen))
    return _joined(found)


def _joined(parts: list[_Blocks]) -> _Blocks:
    """Return all blocks of several sets, the flattest first."""
    names = ("corners", "means", "coarse", "residual", "products")
    whole = _Blocks(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
    return whole.take(np.argsort(whole.coarse, kind="stable")[:_MOST])


def _share_of_equal(boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the share of neighbours along x that have the same value, for each box."""
    equal = boxes[..., 1:] == boxes[..., :-1]
    share: npt.NDArray[np.float64] = equal.mean(tuple(range(1, equal.ndim)))
    return share


def _share_of_extremes(
    boxes: npt.NDArray[np.float64], lowest: float, highest: float
) -> npt.NDArray[np.float64]:
    """Return the share of values that are the lowest or the highest of all, for each box."""
    extreme = (boxes <= lowest) | (boxes >= highest)
    share: npt.NDArray[np.float64] = extreme.mean(tuple(range(1, extreme.ndim)))
    return share


def _one_a_place(
    corners: npt.NDArray[np.int64], energy: npt.NDArray[np.float64], size: tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """Return the numbers of the flattest blocks, one in each place of their size."""
    order = np.argsort(energy, kind="stable")
    _, first = np.unique(corners[order] // np.array(size), axis=0, return_index=True)
    return order[np.sort(first)][:_MOST]


def _flat_ones(kind: DetrendedBlocks, blocks: _Blocks) -> tuple[_Blocks, float]:
    """Return as many blocks as are flat beside the noise that they show.

    Returns: the blocks; what the last of them holds of the polynomials, as a multiple of what
    noise has there on average.
    """
    count = min(_FEWEST, len(blocks))
    used = blocks.take(_typical(kind, blocks.take(slice(count))))
    best = _flatness(kind, used, blocks.coarse[count - 1])
    while count < len(blocks):
        count = min(int(count * _GROWTH), len(blocks))
        more = blocks.take(_typical(kind, blocks.take(slice(count))))
        flatness = _flatness(kind, more, blocks.coarse[count - 1])
        if flatness <= _flat_below(kind):
            used, best = more, flatness
        elif flatness > 2 * _flat_below(kind):
            break
    return used, best


def _flat_below(kind: DetrendedBlocks) -> float:
    return _FLAT if kind.size[0] > 1 and len(kind.size) == 3 else _FLAT_IN_SLICE


def _flatness(kind: DetrendedBlocks, blocks: _Blocks, coarse: float) -> float:
    expected = kind.coarse_energy(kind.autocovariance(blocks.products.mean(0)))
    return coarse / expected if expected > 0 else np.inf


def _typical(kind: DetrendedBlocks, blocks: _Blocks) -> npt.NDArray[np.int64]:
    """Return the numbers of the blocks that are like the others in energy and correlation.

    The lower half of the blocks says how much noise differs; what differs more is left out on both
    sides alike, so that the mean stays where it is.
    """
    energy = blocks.products[:, 0]
    neighbours = blocks.products[:, kind.neighbours].mean(1)
    kept = energy > 0
    for values in (np.log(np.where(kept, energy, 1.0)), neighbours / np.where(kept, energy, 1.0)):
        middle, low = np.quantile(values[kept], (0.5, 0.1587))
        kept = kept & (np.abs(values - middle) <= _TYPICAL * (middle - low))
    return np.flatnonzero(kept)


# --- what they say


def _even(kind: DetrendedBlocks, blocks: _Blocks, used: _Blocks) -> _Blocks:
    """Return the blocks that are flat beside their own noise, be that more or less than usual."""
    autocovariance = kind.autocovariance(used.products.mean(0))
    noise = kind.relative_variance(blocks.products, autocovariance)
    flat = blocks.coarse <= _flat_below(kind) * noise * kind.coarse_energy(autocovariance)
    return blocks.take(np.flatnonzero(flat & (noise > 0) & (noise <= _NOISIEST**2)))


def _variance_line(kind: DetrendedBlocks, used: _Blocks, even: _Blocks) -> tuple[float, float]:
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
    blocks: _Blocks,
    even: _Blocks,
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
    volume: Volume, kind: DetrendedBlocks, blocks: _Blocks, variances: npt.NDArray[np.float64]
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
