"""Figures of parts of a scan: how far they differ, and from which size on they do not.

References
----------
H. R. Kuensch (1989), "The jackknife and the bootstrap for general stationary observations".
https://doi.org/10.1214/aos/1176347265
J. Bear (1972), "Dynamics of Fluids in Porous Media", section 1.3, on the representative
elementary volume.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Float64s, Int64s, Mask

#: Typical diameters of pores that a part of the bootstrap is wide at least: parts are then nearly
#: independent of each other.
WIDE = 2.0

#: Parts along an axis at most.
_MOST = 6

#: Parts of a scan, from two of which no spread is told: Student's t of one degree of freedom would
#: make the interval of a porosity of 94 % go from 61 to 127 %.
FEWEST_PARTS = 3

#: Draws of the bootstrap.
DRAWS = 400

#: Cells along the shortest edge of the scan, of which the cubes of the curve are made.
CELLS = 16

#: From the edge on from which the spread of porosity is below this share of it, it has settled.
SETTLED = 0.1


@dataclass(frozen=True, eq=False)
class Sample:
    """A segmentation, as far as parts of it are looked at.

    `void`, `sample`: bool, of the shape of the volume: pores, and the sample that they are in.
    `places`: (pores, axes): the voxel of each pore's peak. `diameter`: (pores,). `spacing`: along
    each axis.
    """

    void: Mask
    sample: Mask
    places: Int64s
    diameter: Float64s
    spacing: tuple[float, ...]


def bootstrap(sample: Sample, diameter: float) -> tuple[Float64s, int]:
    """Return the standard errors that stem from the scan being a part of the material only.

    Parts of the scan are drawn with replacement, `DRAWS` times, and their figures put together. Of
    few parts the spread is enlarged by n / (n - 1).

    `diameter`: the typical one of the pores, in the unit of the spacing.
    Returns: (3,): standard errors of porosity, number of pores and median diameter, and how many
    parts there are; NaN where the scan is too small for `FEWEST_PARTS`.
    """
    extent = np.array(sample.void.shape) * sample.spacing
    # never more of them along an axis than slices
    counts = [
        int(np.clip(along // (WIDE * diameter), 1, min(_MOST, length)))
        for along, length in zip(extent, sample.void.shape, strict=True)
    ]
    bounds = [
        np.arange(n) * length // n for n, length in zip(counts, sample.void.shape, strict=True)
    ]
    void, whole = (_sums(each, bounds).ravel() for each in (sample.void, sample.sample))
    part = np.zeros(len(sample.places), np.int64)
    for n, starts, place in zip(counts, bounds, sample.places.T, strict=True):
        part = part * n + np.searchsorted(starts, place, side="right") - 1
    pores = np.bincount(part, minlength=void.size)
    used = np.flatnonzero(whole)
    n = used.size
    if n < FEWEST_PARTS or not len(part):
        return np.full(3, np.nan), n
    # the same scan gives the same interval
    drawn = np.random.default_rng(0).integers(0, n, (DRAWS, n))
    times = np.stack([np.bincount(used[each], minlength=void.size) for each in drawn])
    order = np.argsort(sample.diameter)
    part, sizes = part[order], sample.diameter[order]
    medians = np.empty(DRAWS)
    for draw, weight in enumerate(times):
        up_to = np.cumsum(weight[part])
        middle = np.searchsorted(up_to, up_to[-1] / 2)
        medians[draw] = sizes[min(int(middle), sizes.size - 1)]
    volume = np.maximum(times @ whole, 1)
    figures = times @ void / volume, times @ pores / volume * whole.sum(), medians
    spread = [float(np.std(each, ddof=1)) for each in figures]
    return np.array(spread) * math.sqrt(n / (n - 1)), n


def curve(sample: Sample) -> dict[str, Float64s]:
    """Return porosity and pores in a volume, of cubes of the sample by their edge.

    Of each edge all cubes that lie on a grid of cells, where at least half of each is sample.
    Returns: by names: ``edge`` in the unit of the spacing; how many ``cubes``; of ``porosity`` and
    of ``density``, pores in a unit of volume, mean, and 5 and 95 per cent quantiles (``_low``,
    ``_high``).
    """
    extent = np.array(sample.void.shape) * sample.spacing
    edge = float(extent.min()) / CELLS
    cell = [max(1, round(edge / step)) for step in sample.spacing]
    cells = [length // size for length, size in zip(sample.void.shape, cell, strict=True)]
    kept = tuple(slice(0, n * size) for n, size in zip(cells, cell, strict=True))
    bounds = [np.arange(n) * size for n, size in zip(cells, cell, strict=True)]
    void, whole = (_sums(each[kept], bounds) for each in (sample.void, sample.sample))
    pores = np.zeros(cells, np.int64)
    within = (sample.places < np.array([part.stop for part in kept])).all(axis=1)
    np.add.at(pores, tuple((sample.places[within] // cell).T), 1)
    voxel = math.prod(sample.spacing)
    full = math.prod(cell)
    rows = []
    for width in range(1, min(cells) + 1):
        a, b, c = (_moving(each, width) for each in (void, whole, pores))
        used = 2 * b >= full * width ** len(cells)
        if not used.any():
            continue
        size = width * float(np.mean(np.array(cell) * sample.spacing))
        row = [size, np.count_nonzero(used)]
        for figure in (a[used] / b[used], c[used] / (b[used] * voxel)):
            row += [figure.mean(), *np.quantile(figure, [0.05, 0.95])]
        rows.append(row)
    names = ("edge", "cubes", *(f"{f}{end}" for f in ("porosity", "density") for end in ENDS))
    return dict(zip(names, np.array(rows, np.float64).reshape(-1, len(names)).T, strict=True))


#: What a figure of the curve has.
ENDS = ("", "_low", "_high")


def settled_at(found: dict[str, Float64s], extent: float) -> float | None:
    """Return the edge from which on the porosity of cubes has settled; None where it has not.

    That is where nine cubes in ten lie within `SETTLED` of the mean, up to half the `extent` of the
    scan: of larger ones there are too few that do not overlap.
    """
    looked_at = found["edge"] <= extent / 2
    spread = np.maximum(
        found["porosity_high"] - found["porosity"], found["porosity"] - found["porosity_low"]
    )[looked_at]
    wide = spread > SETTLED * found["porosity"][looked_at]
    first = int(np.flatnonzero(wide)[-1]) + 1 if wide.any() else 0
    return float(found["edge"][first]) if first < wide.size else None


def _sums(values: Mask, bounds: Sequence[Int64s]) -> Int64s:
    """Return how much of each box is true; `bounds`: where boxes begin, along each axis."""
    ends = [*bounds[0][1:], len(values)]
    # `reduceat` would take all values as int64 first
    summed: Int64s = np.stack(
        [values[a:b].sum(axis=0, dtype=np.int64) for a, b in zip(bounds[0], ends, strict=True)]
    )
    for axis, starts in enumerate(bounds[1:], start=1):
        summed = np.add.reduceat(summed, starts, axis=axis)
    return summed


def _moving(values: Int64s, width: int) -> Int64s:
    """Return the sums over all cubes of cells, `width` along each axis."""
    total = np.pad(values, [(1, 0)] * values.ndim)
    for axis in range(values.ndim):
        total = np.cumsum(total, axis=axis)
    result = np.zeros([n - width + 1 for n in values.shape], np.int64)
    for ends in itertools.product((0, 1), repeat=values.ndim):
        corner = total[
            tuple(
                slice(end * width, end * width + n)
                for end, n in zip(ends, result.shape, strict=True)
            )
        ]
        result += (-1) ** (values.ndim - sum(ends)) * corner
    return result
