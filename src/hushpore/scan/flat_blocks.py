"""Flat blocks at random positions of a volume, in which noise is measured.

Many small boxes read from a volume: one by one, or from a few chunks of chunked data.

Decoding a chunk takes milliseconds. Boxes at random positions in a large volume would need
thousands of chunks, and use a thousandth of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.rescaled import Scaled, rescale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Array, Float32s, Float64s, Int64s
    from hushpore.base.volume import Volume
    from hushpore.scan.noise_strength import DetrendedBlocks
    from hushpore.scan.sample import Sample


#: Number of chunks that are read of each array, spread over the volume.
_WINDOWS = 64


def move_into_chunks(corners: Int64s, size: Sequence[int], data: Any) -> Int64s:
    """Return the corners of boxes; for chunked data they are moved into a few chunks.

    `corners`: shape (n, ndim), drawn at random from the whole volume.
    """
    if _chunk(data) is None or not len(corners):
        return corners
    # the windows are at the first corners, which are as random as all others
    start, stop = _window(corners[np.arange(len(corners)) % _WINDOWS], size, data)
    moved: Int64s = start + corners % (stop - start - np.asarray(size) + 1)
    return moved


def read_boxes(data: Any, corners: Int64s, size: Sequence[int]) -> Float64s:
    """Return the boxes at some corners, (n, *size).

    `corners`: shape (n, ndim); for chunked data as from `move_into_chunks`.
    """
    # all at once: cutting out single boxes takes longer than processing them
    cut = cut_boxes(data, corners, size)
    if cut is not None:
        return cut.astype(np.float64)
    boxes = np.empty((len(corners), *size))
    if _chunk(data) is None:
        for box, corner in zip(boxes, corners, strict=True):
            box[:] = np.asarray(data[_box(corner, size)])
        return boxes
    starts, _ = _window(corners, size, data)
    windows, which = np.unique(starts, axis=0, return_inverse=True)
    for number, start in enumerate(windows):
        members = np.flatnonzero(which.ravel() == number)
        stop = corners[members].max(0) + size
        values = np.asarray(data[_box(start, stop - start)])
        for index in members:
            boxes[index] = values[_box(corners[index] - start, size)]
    return boxes


def cut_boxes(data: Any, corners: Int64s, size: Sequence[int]) -> Array | None:
    """Return boxes of data in memory, all at once; None for other data.

    Arrays of calculated values have a method ``boxes`` for this purpose.
    """
    if type(data) is np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(data, tuple(size))
        cut: Array = windows[tuple(corners.T)]
        return cut
    if isinstance(data, Scaled):
        stored = cut_boxes(data.stored, corners, size)
        if stored is None:
            return None
        # one for all values, or one for each position along the first axis
        lines = (np.broadcast_to(each, data.shape) for each in (data.slope, data.intercept))
        slope, intercept = (
            np.lib.stride_tricks.sliding_window_view(each, tuple(size))[tuple(corners.T)]
            for each in lines
        )
        return rescale(stored, slope, intercept)
    boxes: Array | None = data.boxes(corners, size) if hasattr(data, "boxes") else None
    return boxes


def _chunk(data: Any) -> Int64s | None:
    """Return the chunk shape of a chunked array on disk or a dask array; otherwise None."""
    chunks = getattr(data, "chunks", None)
    if not chunks:
        return None
    # dask has the length of each chunk along an axis
    return np.array([max(each) if isinstance(each, tuple) else each for each in chunks])


def _window(corners: Int64s, size: Sequence[int], data: Any) -> tuple[Int64s, Int64s]:
    """Return start and end of the chunk of each corner, within which a box fits."""
    chunk, shape = _chunk(data), np.asarray(data.shape)
    assert chunk is not None
    edge = np.minimum(np.maximum(chunk, size), shape)
    start = np.minimum(corners // edge * edge, shape - edge)
    return start, start + edge


def _box(corner: Int64s, size: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(int(c), int(c) + int(n)) for c, n in zip(corner, size, strict=True))


#: Edges of blocks in z and in y and x; the first size with enough flat blocks is used. Large blocks
#: give more accurate estimates, small ones fit between edges.
_STACK_SIZES = ((6, 12), (6, 10), (5, 8), (4, 6))
_SLICE_SIZES = ((1, 16), (1, 12), (1, 8))

#: Largest lags in z and in y and x.
_REACH = (3, 5)

#: Number of random blocks, and of blocks in memory at once.
_DRAWN, _AT_ONCE = 16_000, 2000

#: Number of the flattest blocks around which more are tried, number of tries around each, and their
#: maximum distance in voxels.
_REFINED, _TRIES, _NEARBY = 500, 8, 2

#: Minimum and maximum number of flat blocks, and growth factor of the number that is tried.
FEWEST, _MOST, _GROWTH = 40, 1600, 1.4

#: Maximum energy of the polynomials in a flat block, relative to that expected for noise alone;
#: lower within slices, where there are fewer polynomials, so that more blocks seem flat by chance.
_FLAT, _FLAT_IN_SLICE = 0.6, 0.35

#: Blocks with up to this many times the noise of flat blocks are used to fit the noise against
#: position and grey value.
_NOISIEST = 2.0

#: Distance from the median, in standard deviations, from which a block is an outlier.
_TYPICAL = 2.0

#: Maximum share of equal neighbours in a block, in excess of the typical share.
_FILLED = 0.2
#: Typical share of equal neighbours if the values hardly vary.
_CLEAN = 0.5

#: Maximum share of values at the minimum or maximum of all, in excess of the typical share.
_CUT_OFF = 0.01


@dataclass(frozen=True, eq=False)
class FlatBlocks:
    """Flat blocks of a volume, the flattest first."""

    corners: Int64s  # (n, ndim)
    means: Float64s
    coarse: Float64s  # energy of their polynomials
    residual: Float32s  # (n, n_voxels), residual after subtracting the polynomials
    products: Float64s  # (n, n_half), of the residual at each lag; or not known yet

    def __len__(self) -> int:
        return len(self.means)

    def take(self, chosen: Any) -> FlatBlocks:
        """Return some of the blocks, by numbers or a slice."""
        arrays = (self.corners, self.means, self.coarse, self.residual, self.products)
        return FlatBlocks(*(each[chosen] for each in arrays))

    def weighted(self, weights: Float64s) -> FlatBlocks:
        """Multiply the energies of the blocks by weights, and sort the blocks again."""
        scaled = FlatBlocks(
            self.corners,
            self.means,
            self.coarse * weights,
            self.residual * np.sqrt(weights, dtype=np.float32)[:, None],
            self.products * weights[:, None],
        )
        return scaled.take(np.argsort(scaled.coarse, kind="stable"))


@dataclass(frozen=True, eq=False)
class Drawn:
    """Statistics of all random blocks, flat or not."""

    values: Float64s  # grey values
    middles: Float64s  # in y and x, relative to the edges of a slice, (n, 2)
    unit: float  # what those of `FlatBlocks` are divided by: squares fit into float32 then
    mean: float  # in units
    is_rounded: bool  # whether most neighbours have equal values
    saturated: float  # share of voxels with the maximum value


def block_sizes(volume: Volume, slicewise: bool) -> list[tuple[int, ...]]:
    """Return the block sizes that fit the volume, large ones first."""
    is_stack = volume.n_spatial == 3 and volume.shape[-3] > 1 and not slicewise
    spatial = volume.shape[-volume.n_spatial :]
    sizes = []
    for depth, edge in _STACK_SIZES if is_stack else _SLICE_SIZES:
        size = (depth, edge, edge)[-volume.n_spatial :]
        fitting = tuple(min(n, m) for n, m in zip(size, spatial, strict=True))
        if fitting not in sizes:
            sizes.append(fitting)
    return sizes


def largest_lags(size: tuple[int, ...]) -> tuple[int, ...]:
    """Return the largest lags: at most half a block, since larger ones cannot be resolved."""
    most = (_REACH[0], _REACH[1], _REACH[1])[-len(size) :]
    return tuple(min(m, n // 2) for m, n in zip(most, size, strict=True))


def read_flattest(
    volume: Volume,
    kind: DetrendedBlocks,
    rng: np.random.Generator,
    sample: Sample | None = None,
    every: int = 1,
) -> tuple[FlatBlocks, Drawn]:
    """Read random blocks, then more blocks around the flattest.

    `sample`: only blocks inside it are read, unless there are hardly any. `every`: one in this many
    of the usual number of blocks is drawn.
    Returns: the flattest blocks; statistics of all random blocks.
    """
    data: Any = volume.data
    size = (1,) * (len(volume.shape) - len(kind.size)) + kind.size
    room: Int64s = np.array(volume.shape) - np.array(size)
    count = min(_DRAWN // every, 4 * math.prod((room + 1).tolist()))
    corners = rng.integers(0, room + 1, (count, len(room)))
    if sample is not None:
        # as many blocks inside the sample as would be drawn without it
        more = rng.integers(0, room + 1, (int(count * (1 / sample.share - 1)), len(room)))
        corners = np.concatenate([corners, more])
        inside = sample.hold(corners, size)
        corners, sample = (corners[inside], sample) if inside.sum() >= FEWEST else (corners, None)
    corners = move_into_chunks(corners, size, data)
    if sample is not None:
        corners = corners[sample.hold(corners, size)]
    # in the order of the file
    corners = corners[np.lexsort(corners.T[::-1])]
    chosen = corners[:: -(-len(corners) // _AT_ONCE)]
    some = read_boxes(data, chosen, size)
    middles = (chosen[:, -2:] + np.array(size[-2:]) / 2) / volume.shape[-2:]
    equal = equal_limit(some)
    lowest, highest = some.min(), some.max()
    unit = float(max(highest - lowest, abs(highest))) or 1.0
    limits = (
        lowest,
        highest,
        equal,
        _CUT_OFF + float(np.quantile(_share_of_extremes(some, lowest, highest), 0.25)),
    )
    far = _look(data, kind, corners, size, limits, unit)
    refined = _REFINED // every
    steps = rng.integers(-_NEARBY, _NEARBY + 1, (refined * _TRIES, len(room)))
    near = np.tile(far.corners[:refined], (_TRIES, 1))
    near = np.clip(near + steps[: len(near)], 0, room)
    if sample is not None:
        near = near[sample.hold(near, size)]
    both = _joined([far, _look(data, kind, near[np.lexsort(near.T[::-1])], size, limits, unit)])
    flattest = both.take(_one_a_place(both.corners, both.coarse, size))
    saturated = float((some == highest).mean())
    drawn = Drawn(some, middles, unit, float(some.mean()) / unit, equal == 1.0, saturated)
    return replace(flattest, products=kind.products(flattest.residual)), drawn


def _look(
    data: Any,
    kind: DetrendedBlocks,
    corners: Int64s,
    size: tuple[int, ...],
    limits: tuple[float, float, float, float],
    unit: float,
) -> FlatBlocks:
    """Read the blocks at some corners, and keep the flattest without padding or clipped values.

    `limits`: minimum and maximum value, maximum share of equal neighbours, and maximum share of
    values at the minimum or maximum. `unit`: divisor of the values.
    """
    lowest, highest, most_equal, most_cut = limits
    found = []
    for start in range(0, max(len(corners), 1), _AT_ONCE):
        places = corners[start : start + _AT_ONCE]
        boxes = read_boxes(data, places, size)
        values = boxes.reshape(len(boxes), int(np.prod(size)))
        # padding has no noise, and clipped values have too little
        whole = share_of_equal(boxes) <= most_equal
        whole &= _share_of_extremes(boxes, lowest, highest) <= max(most_cut, 2 / values.shape[1])
        values, places = values[whole] / unit, places[whole]
        means = values.mean(1)
        coarse, residual = kind.split((values - means[:, None]).astype(np.float32))
        energy = (coarse**2).sum(1)
        none = np.empty((len(places), 0))
        chosen = _one_a_place(places, energy, size)
        found.append(FlatBlocks(places, means, energy, residual, none).take(chosen))
    return _joined(found)


def _joined(parts: list[FlatBlocks]) -> FlatBlocks:
    """Return the blocks of several sets, the flattest first."""
    names = ("corners", "means", "coarse", "residual", "products")
    whole = FlatBlocks(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
    return whole.take(np.argsort(whole.coarse, kind="stable")[:_MOST])


def equal_limit(boxes: Float64s) -> float:
    """Return the maximum share of equal neighbours in a box without padding; see `share_of_equal`.

    `boxes`: from all over the scan. 1 if the values hardly vary.
    """
    equal = share_of_equal(boxes)
    usual = float(np.median(equal[equal < 1])) if (equal < 1).any() else 1.0
    return usual + _FILLED if usual <= _CLEAN else 1.0


def share_of_equal(boxes: Float64s) -> Float64s:
    """Return the share of neighbours along x that have the same value, for each box."""
    equal = boxes[..., 1:] == boxes[..., :-1]
    share: Float64s = equal.mean(tuple(range(1, equal.ndim)))
    return share


def _share_of_extremes(boxes: Float64s, lowest: float, highest: float) -> Float64s:
    """Return the share of values that are the lowest or the highest of all, for each box."""
    extreme = (boxes <= lowest) | (boxes >= highest)
    share: Float64s = extreme.mean(tuple(range(1, extreme.ndim)))
    return share


def _one_a_place(corners: Int64s, energy: Float64s, size: tuple[int, ...]) -> Int64s:
    """Return the numbers of the flattest blocks, one in each cell of the size of a block."""
    order = np.argsort(energy, kind="stable")
    _, first = np.unique(corners[order] // np.array(size), axis=0, return_index=True)
    return order[np.sort(first)][:_MOST]


def flat_ones(
    kind: DetrendedBlocks, blocks: FlatBlocks, fewest: int = FEWEST
) -> tuple[FlatBlocks, float]:
    """Return the blocks that are flat compared with the noise in them.

    `fewest`: number of blocks from which flat ones are looked for.
    Returns: the blocks; energy of the polynomials in the last of them, relative to that expected
    for noise alone.
    """
    count, below = min(fewest, len(blocks)), flat_below(kind)
    used, best = blocks, np.inf
    while True:
        more = blocks.take(_typical(kind, blocks.take(slice(count))))
        expected = kind.coarse_energy(kind.autocovariance(more.products.mean(0)))
        flatness = blocks.coarse[count - 1] / expected if expected > 0 else np.inf
        if used is blocks or flatness <= below:
            used, best = more, flatness
        elif flatness > 2 * below:
            break
        if count == len(blocks):
            break
        count = min(int(count * _GROWTH), len(blocks))
    return used, best


def flat_below(kind: DetrendedBlocks) -> float:
    """Return the maximum energy of the polynomials in a flat block, relative to noise alone."""
    return _FLAT if kind.size[0] > 1 and len(kind.size) == 3 else _FLAT_IN_SLICE


def _typical(kind: DetrendedBlocks, blocks: FlatBlocks) -> Int64s:
    """Return the numbers of the blocks that are no outliers in energy or correlation.

    The spread is that of the lower half. Outliers are excluded on both sides, so that the mean is
    not biased.
    """
    energy = blocks.products[:, 0]
    neighbours = blocks.products[:, kind.neighbours].mean(1)
    kept = energy > 0
    for values in (np.log(np.where(kept, energy, 1.0)), neighbours / np.where(kept, energy, 1.0)):
        middle, low = np.quantile(values[kept], (0.5, 0.1587))
        kept = kept & (np.abs(values - middle) <= _TYPICAL * (middle - low))
    return np.flatnonzero(kept)


def even_ones(kind: DetrendedBlocks, blocks: FlatBlocks, used: FlatBlocks) -> FlatBlocks:
    """Return the blocks that are flat compared with their own noise, strong or weak."""
    autocovariance = kind.autocovariance(used.products.mean(0))
    noise = kind.relative_variance(blocks.products, autocovariance)
    flat = blocks.coarse <= flat_below(kind) * noise * kind.coarse_energy(autocovariance)
    return blocks.take(np.flatnonzero(flat & (noise > 0) & (noise <= _NOISIEST**2)))
