"""Sums over the voxels of each basin, declared once; surface and chords that follow from them.

The CPU, GPUs and cluster workers all compute `SUMS`. They are integer sums, and so exact in any
order; the sums of merged basins are the sums of their sums.

Surface area from counted crossings, by the Crofton formula.

Straight lines of voxels run through the volume in 13 directions (4 in an image). Where one crosses
a surface a voxel and the next lie on different sides; the area is a weighted sum of these
crossings, each direction weighted by the share of the sphere that is nearest to it. Crossings are
whole numbers that add up, so that surfaces of merged pores need no new pass. From a radius of 5
voxels on, the estimate for a ball is within 1 % of the ball of as many voxels, whatever the shape
of voxels: the mean over all orientations is right. Single planes are not: along the faces of cubic
voxels one comes out 7 % small, and where voxels are not cubic up to a third small and a tenth
large. No 13 weights are right for both: those that are for planes along the axes make balls 3 %
large of voxels of 2 : 1 : 1 and 14 to 17 % of 10 : 1, and some planes that are turned a third.

But the crossings along the axes alone tell how large the shadow of a surface is along each: the
three projected areas. A flat piece of area a and normal n has those of ``a |n|``, whose length as a
vector is a; pieces of several directions have vectors that are together no longer than all their
areas. So no surface is smaller than the length of the vector of its projected areas, and a plane is
as large, however it is turned, and whatever the shape of voxels. The larger of the two is taken:
planes are never small, at most 2 % large of cubic voxels and a tenth of others (docs/shape.md);
what is round stays as it was.

Mean chord lengths of void and solid, and degree of anisotropy from mean intercept lengths.

The surface estimate counts the walls along lines of voxels in 13 directions (4 in 2D). They also
give the mean chord length of void and solid in each direction, and the mean intercept length from
one wall to the next. An ellipsoid, the fabric tensor, is fitted to the intercept lengths.

References
----------
G. Lehmann and D. Legland (2012), "Efficient N-dimensional surface estimation using Crofton formula
and run-length encoding", Insight Journal. https://doi.org/10.54294/wdu86d

W. J. Whitehouse (1974), "The quantitative morphology of anisotropic trabecular bone", Journal of
Microscopy 101, 153-168. https://doi.org/10.1111/j.1365-2818.1974.tb03878.x

T. P. Harrigan and R. W. Mann (1984), "Characterization of microstructural anisotropy in orthotropic
materials using a second rank tensor", Journal of Materials Science 19, 761-767.
https://doi.org/10.1007/BF00540446
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float64s, Int64s
    from hushpore.base.volume import Volume


_AT_ONCE = 1 << 11  # rows that are converted to 64 bits at once
_DIGIT = 11  # bits per digit of the radix sort, whose counts fit into the cache


@dataclass(frozen=True)
class Sum:
    """A sum over the voxels of a basin, of ``z**i * y**j * x**k * grey**l``.

    Attributes
    ----------
    name : str
        Name by which measures use it, see `PoreSums.sum`.
    z, y, x, grey : int
        The powers, 0 to 2, of the voxel's indices and of its grey value
        (`hushpore.pores.void.threshold`), where these are known.
    """

    name: str
    z: int = 0
    y: int = 0
    x: int = 0
    grey: int = 0

    def __post_init__(self) -> None:
        if not all(0 <= power <= 2 for power in self.powers):
            raise ValueError(f"Powers of a sum are 0, 1 or 2; got {self.powers} for {self.name!r}.")

    @property
    def powers(self) -> tuple[int, int, int, int]:
        """Powers of z, y, x and the grey value."""
        return self.z, self.y, self.x, self.grey


#: Sums over the voxels of each basin, in the order of `BasinGraph.sums`.
SUMS = [
    Sum("voxels"),
    Sum("z", z=1),
    Sum("y", y=1),
    Sum("x", x=1),
    Sum("zz", z=2),
    Sum("yy", y=2),
    Sum("xx", x=2),
    Sum("zy", z=1, y=1),
    Sum("zx", z=1, x=1),
    Sum("yx", y=1, x=1),
    Sum("grey", grey=1),
    Sum("grey_squared", grey=2),
]


def add_rows(rows: Array, to: Int64s, out: Array) -> None:
    """Add each row of a table to a row of another one: ``np.add.at(out, to, rows)``.

    `rows`: (n, columns). `to`: (n,), int64. `out`: (m, columns), int64 or int32.
    """
    for first, part in in_64_bits(rows):
        _add_rows(part, to[first : first + len(part)], out)


def in_64_bits(rows: Array) -> Iterator[tuple[int, Int64s]]:
    """Yield blocks of rows in 64 bits, with the index of their first row.

    This avoids compiling a kernel for each type of counts.
    """
    at_once = len(rows) if rows.dtype == np.int64 else _AT_ONCE
    for first in range(0, max(len(rows), 1), max(at_once, 1)):
        yield first, np.ascontiguousarray(rows[first : first + at_once], np.int64)


@kernel
def _add_rows(rows: Int64s, to: Int64s, out: Array) -> None:
    for i in range(len(rows)):
        at = to[i]
        for k in range(rows.shape[1]):
            out[at, k] += rows[i, k]


def order_of(keys: Int64s) -> Int64s:
    """Return the order that sorts keys: a stable ``np.argsort``.

    A radix sort over the digits in which keys differ, so that few distinct values take few passes.
    """
    order = np.arange(keys.size)
    if keys.size == 0:
        return order
    rest = (keys - keys.min()).view(np.uint64)
    differ, shift = int(np.bitwise_or.reduce(rest)), 0
    others, other_order = np.empty_like(rest), np.empty_like(order)
    counts = np.empty(1 << _DIGIT, np.int64)
    while differ >> shift:
        if not (differ >> shift) & 1:
            shift += 1
            continue
        counts.fill(0)
        _sort_digit(rest, order, others, other_order, counts, shift)
        rest, others = others, rest
        order, other_order = other_order, order
        shift += _DIGIT
    return order


@kernel
def _sort_digit(
    keys: npt.NDArray[np.uint64],
    order: Int64s,
    sorted_keys: npt.NDArray[np.uint64],
    sorted_order: Int64s,
    counts: Int64s,
    shift: int,
) -> None:
    """Sort keys and their order by one digit; `counts`: zeros, one per digit value."""
    below, mask = np.uint64(shift), np.uint64(counts.size - 1)
    for i in range(keys.size):
        counts[(keys[i] >> below) & mask] += 1
    before = 0
    for digit in range(counts.size):
        before += counts[digit]
        counts[digit] = before - counts[digit]
    for i in range(keys.size):
        digit = (keys[i] >> below) & mask
        at = counts[digit]
        sorted_keys[at] = keys[i]
        sorted_order[at] = order[i]
        counts[digit] = at + 1


def narrowest(most: int) -> npt.DTypeLike:
    """Return the smallest integer type for counts up to `most`: int8, int16 or int32."""
    return next(kind for kind in (np.int8, np.int16, np.int32) if most <= np.iinfo(kind).max)


def counting(voxels: int) -> npt.DTypeLike:
    """Return the type for counts of up to so many voxels: int32 or int64."""
    return np.int32 if voxels < 2**31 else np.int64


def mark_grey_unknown(sums: Int64s) -> None:
    """Mark sums (n, sums) of basins without known grey values, in place."""
    # no sum of squares is below 0, and adding up such marks stays below 0
    sums[:, index_of("grey_squared")] = -1


def index_of(name: str) -> int:
    """Return the index of a sum in `SUMS`."""
    return [each.name for each in SUMS].index(name)


#: Steps (z, y, x) to the half of the 26 neighbours that come later; the three axes first.
DIRECTIONS = np.array(
    [
        *((1, 0, 0), (0, 1, 0), (0, 0, 1)),
        *((0, 1, 1), (0, 1, -1), (1, 0, 1), (1, 0, -1), (1, 1, 0), (1, -1, 0)),
        *((1, 1, 1), (1, 1, -1), (1, -1, 1), (1, -1, -1)),
    ],
    np.int64,
)

_AT_A_TIME = 512


def surface_area(crossings: npt.NDArray[np.integer[Any]], spacing: tuple[float, ...]) -> Float64s:
    """Return the area (3D) or length (2D) of surfaces of which it is known how often lines cross.

    `crossings`: (..., 13), int: pairs of neighbours on different sides, in the order of
    `DIRECTIONS`. `spacing`: voxel size in z, y, x or y, x order.
    Returns: (...), float64, in the unit of `spacing` to the second power (first power in 2D).
    """
    along = crossings[..., 3 - len(spacing) : 3] * (math.prod(spacing) / np.asarray(spacing))
    area: Float64s = np.maximum(crofton_area(crossings, spacing), np.linalg.norm(along, axis=-1))
    return area


def crofton_area(crossings: npt.NDArray[np.integer[Any]], spacing: tuple[float, ...]) -> Float64s:
    """Return the Crofton estimate alone; see `surface_area`."""
    weights = area_per_crossing(spacing)
    rows = crossings.reshape(-1, len(weights))
    area = np.empty(len(rows))
    # of so few rows BLAS starts no threads, which would go on waiting at full speed when it is done
    for first in range(0, len(rows), _AT_A_TIME):
        area[first : first + _AT_A_TIME] = rows[first : first + _AT_A_TIME] @ weights
    return area.reshape(crossings.shape[:-1])


@cache
def area_per_crossing(spacing: tuple[float, ...]) -> Float64s:
    """Return the area (3D) or length (2D) that one crossing stands for, by direction.

    `spacing`: voxel size in z, y, x or y, x order.
    Returns: (13,), in the order of `DIRECTIONS`, in the unit of `spacing` to the second power
    (first power in 2D, where directions out of the plane count nothing); not to be changed.
    """
    weights = np.zeros(len(DIRECTIONS))
    used = np.flatnonzero(DIRECTIONS[:, 0] == 0) if len(spacing) == 2 else np.arange(len(weights))
    steps = DIRECTIONS[used][:, -len(spacing) :] * np.asarray(spacing)
    length = np.linalg.norm(steps, axis=1)
    units = np.concatenate([steps, -steps]) / np.concatenate([length, length])[:, None]
    # of both senses of a direction; the mean of |cos| is 1/2 on a sphere and 2/pi on a circle
    share = _nearest_share(units)[: len(used)] * 2
    mean_cosine = 0.5 if len(spacing) == 3 else 2 / math.pi
    weights[used] = share * math.prod(spacing) / length / mean_cosine
    weights.flags.writeable = False
    return weights


def _nearest_share(units: Float64s) -> Float64s:
    """Share of the sphere, or circle, that is nearest to each of some unit vectors."""
    if units.shape[1] == 3:
        return _voronoi_areas(units) / (4 * math.pi)
    angle = np.arctan2(units[:, 0], units[:, 1])
    order = np.argsort(angle)
    gap = np.diff(angle[order], append=angle[order[0]] + 2 * math.pi)
    share = np.empty(len(units))
    share[order] = (gap + np.roll(gap, 1)) / (4 * math.pi)
    return share


def _voronoi_areas(units: Float64s) -> Float64s:
    """Area of the part of the unit sphere that is nearest to each of a few unit vectors.

    Corners of these parts are as near to three of the vectors as to any; all threes are tried.
    SciPy has this for many points; for few it takes far longer to import.
    """
    first, second, third = units[np.array(list(combinations(range(len(units)), 3))).T]
    corner = np.cross(second - first, third - first)
    length = np.linalg.norm(corner, axis=1)
    corner = corner[length > 1e-9] / length[length > 1e-9, None]
    corner = np.unique(np.round(np.concatenate([corner, -corner]), 12), axis=0)
    nearness = corner @ units.T
    is_nearest = nearness > nearness.max(axis=1, keepdims=True) - 1e-9
    areas = np.zeros(len(units))
    for i, unit in enumerate(units):
        around = corner[is_nearest[:, i] & (is_nearest.sum(axis=1) >= 3)]
        # a direction across, from which angles are counted
        side = around[0] - (around[0] @ unit) * unit
        order = np.argsort(np.arctan2(around @ np.cross(unit, side), around @ side))
        a, b = around[order], np.roll(around[order], -1, axis=0)
        # https://doi.org/10.1109/TBME.1983.325207
        volume = np.abs(np.cross(a, b) @ unit)
        cosines = a @ unit + b @ unit + (a * b).sum(axis=1)
        areas[i] = 2 * np.arctan2(volume, 1 + cosines).sum()
    return areas


def intercept_totals(walls: Int64s, void: int, sample: int, volume: Volume) -> dict[str, Any]:
    """Return the mean chord lengths along the axes, and the degree of anisotropy.

    `walls`: (13,), int64: void-solid pairs of neighbouring voxels inside the volume, in the order
    of `DIRECTIONS`. `void`, `sample`: number of void and of sample voxels. `volume`: 2D or 3D, for
    its shape and spacing.
    Returns: by the names of `hushpore.pores.tables.totals.TOTALS`; None without walls.
    """
    n_spatial = volume.n_spatial
    in_image = DIRECTIONS[:, 0] == 0
    used = np.flatnonzero(in_image) if n_spatial == 2 else np.arange(len(DIRECTIONS))
    directions = DIRECTIONS[used][:, -n_spatial:]
    # voxels with a neighbour in the direction
    pairs = np.prod(np.maximum(np.array(volume.shape) - np.abs(directions), 0), axis=1)
    steps = directions * np.asarray(volume.spacing)
    step = np.linalg.norm(steps, axis=1)
    length = step * pairs / math.prod(volume.shape)
    found: dict[str, Any] = {}
    for phase, voxels in (("void", void), ("solid", sample - void)):
        for axis, name in enumerate("zyx"[-n_spatial:]):
            at = int(np.flatnonzero(np.abs(directions).sum(axis=1) == 1)[axis])
            count = int(walls[used[at]])
            # a chord has two ends, which are walls except at the faces of the volume
            chord = 2 * voxels * float(length[at]) / count if count and voxels else None
            found[f"{phase}_chord_length_{name}"] = chord
    is_seen = length > 0
    per_length = walls[used][is_seen] / (sample * length[is_seen])
    units = steps[is_seen] / step[is_seen, None]
    found["anisotropy"] = _anisotropy(per_length, units)
    return found


def _anisotropy(per_length: Float64s, units: Float64s) -> float | None:
    """Return 1 - shortest / longest axis of the ellipsoid of mean intercept lengths.

    `per_length`: walls per unit length, by direction. `units`: (directions, axes).
    """
    n_axes = units.shape[1]
    row, column = np.triu_indices(n_axes)
    if not per_length.any() or len(units) < len(row):
        return None
    twice = np.where(row == column, 1.0, 2.0)
    design = units[:, row] * units[:, column] * twice
    # 1 / length**2 = n' M n
    fitted = np.linalg.lstsq(design, per_length**2)[0]
    tensor = np.zeros((n_axes, n_axes))
    tensor[row, column] = tensor[column, row] = fitted
    values = np.linalg.eigvalsh(tensor)
    if values[-1] <= 0:
        return None
    return float(1 - math.sqrt(max(values[0], 0.0) / values[-1]))
