"""Local thickness: for every voxel the diameter of the largest ball that fits and covers it.

A ball about the centre of a voxel is as large as its distance to the nearest voxel of the other
phase. Most lie within that of a voxel up the slope and are left out; the others are painted a few
slices at a time, the largest first, so that each voxel takes the first ball that comes to it. What
is not painted yet is a bit for each voxel, and eight rows together have bits of their own, so that
a ball that comes to nothing new costs a few words of 64 voxels. No ball is missed, and none is
rounded.

References
----------
T. Hildebrand and P. Ruegsegger (1997), "A new method for the model-independent assessment of
thickness in three-dimensional images", Journal of Microscopy 185, 67-75.
https://doi.org/10.1046/j.1365-2818.1997.1340694.x

E. Remy and E. Thiel (2005), "Exact medial axis with Euclidean distance", Image and Vision
Computing 23, 167-175. https://doi.org/10.1016/j.imavis.2004.06.007 (which balls lie in others)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import numpy.typing as npt

    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Slabs, Stack

#: Steps, in voxels along an axis, up to which a ball that another lies in is looked for.
_REACH = 3

#: Squared radius, in squared voxels of the smallest spacing, above which balls are all painted:
#: they are few, and the table of what lies in what grows with its cube.
_LARGEST = 64.0**2

#: Steps of the table in one squared voxel, where squared distances are no whole numbers.
_FINE = 4

#: Slices that are painted in one go, from one choice of balls.
_AT_A_TIME = 4

# of the distribution
_BINS = 30

# so that a voxel at the very distance of the nearest solid is out, however that was rounded
_INSIDE = 1 - 1e-6


@dataclass(frozen=True, eq=False)
class LocalThickness:
    """The local thickness of a phase.

    Attributes
    ----------
    diameter : numpy.ndarray
        float32, of the shape of the volume: diameter of the largest ball (disc in 2D) that covers
        the voxel, in the unit of the volume; 0 outside the phase, infinite where nothing ends it.
    mean, deviation : float or None
        By volume, in that unit; None where there is no such phase, or nothing ends it.
    edges : numpy.ndarray
        (bins + 1,), float64: between bins of equal width, from 0 to the largest.
    counts : numpy.ndarray
        (bins,), int64: voxels of each.
    """

    diameter: npt.NDArray[np.float32]
    mean: float | None
    deviation: float | None
    edges: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]

    def scaled(self, ratio: float) -> LocalThickness:
        """Return that of voxels that are larger by a ratio."""
        mean, deviation = (
            None if each is None else each * ratio for each in (self.mean, self.deviation)
        )
        diameter = self.diameter * np.float32(ratio)
        return LocalThickness(diameter, mean, deviation, self.edges * ratio, self.counts)


class Found(NamedTuple):
    """What is known of the thickness of a phase besides itself; as in `LocalThickness`."""

    mean: float | None
    deviation: float | None
    edges: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]


def find_thickness(
    distance: Stack,
    slabs: Slabs,
    thickness: Stack,
    spacing: Sequence[float],
    threads: KernelThreads,
) -> Generator[float, None, Found]:
    """Find the local thickness in a phase slab by slab.

    `distance`: (z, y, x), float32: squared distance of each voxel of the phase to the nearest one
    that is not, in squared voxels of the smallest spacing; 0 elsewhere. Of balls that lie in others
    the sign changes. `thickness`: (z, y, x), float32: where diameters go, in the unit of `spacing`.
    `spacing`: voxel size in z, y, x order.
    Yields: the share that is done.
    Returns: mean, deviation and distribution.

    The same on any number of threads and slabs. Takes up to 24 bytes for each ball that reaches
    into a slab and does not lie in another; these are 10 to 30 % of the voxels of the phase.
    """
    smallest = min(spacing)
    z, y, x = ((step / smallest) ** 2 for step in spacing)
    weights = z, y, x
    largest = 0.0
    for first, last in slabs:
        largest = max(largest, float(distance.read(first, last).max(initial=0)))
    if largest in (0, np.inf):
        for first, last in slabs:
            room = thickness.room(first, last)
            np.sqrt(distance.read(first, last), out=room)
            thickness.write(first, room)
            yield last / slabs.depth
        return Found(None, None, np.zeros(1), np.zeros(0, np.int64))
    inside = _Inside(largest, weights)
    for first, last in slabs:
        low = max(first - _REACH, 0)
        part = distance.read(low, last + _REACH)
        threads.over(last - first, inside.mark, part, first - low)
        distance.write(first, part[first - low :][: last - first])
        yield 0.3 * last / slabs.depth
    reach = int(np.sqrt(largest / weights[0])) + 1
    sums = _Sums(2 * smallest * float(np.sqrt(largest)))
    for first, last in slabs:
        balls = _reaching(distance, first, last, reach, weights[0], slabs.thickness)
        part = distance.read(first, last)
        room = thickness.room(first, last)
        blocks = -(-(last - first) // _AT_A_TIME)
        threads.over(blocks, _paint, part, *balls, weights, 2 * smallest, room)
        del balls
        sums.add(room)
        thickness.write(first, room)
        yield 0.3 + 0.7 * last / slabs.depth
    return sums.found()


class _Sums:
    """Adds up diameters slice by slice, so that it is the same however slices come in slabs."""

    def __init__(self, largest: float) -> None:
        # a little wider, so that the largest is in the last bin however it was rounded
        self._edges = np.linspace(0, largest * (1 + 1e-6), _BINS + 1)
        self._counts = np.zeros(_BINS, np.int64)
        self._sums: list[tuple[float, float]] = []

    def add(self, slices: npt.NDArray[np.float32]) -> None:
        """Add some slices; 0 is not of the phase."""
        for each in slices:
            values = each[each > 0].astype(np.float64)
            self._sums.append((values.sum(), (values * values).sum()))
            self._counts += np.histogram(values, self._edges)[0]

    def found(self) -> Found:
        """Return what was added up."""
        count = int(self._counts.sum())
        total, squares = (math.fsum(each) / count for each in zip(*self._sums, strict=True))
        deviation = math.sqrt(max(squares - total * total, 0.0))
        return Found(total, deviation, self._edges, self._counts)


class _Inside:
    """Tells which balls lie in others.

    Its table says how large a ball must be, so that another with a step between their centres lies
    in it, voxel by voxel.
    """

    def __init__(self, largest: float, weights: tuple[float, float, float]) -> None:
        self._weights = weights
        is_whole = all(weight == int(weight) for weight in weights)
        self._fine = 1 if is_whole else _FINE
        size = int(min(largest, _LARGEST) * self._fine) + 2
        self._table = np.zeros((size, *[_REACH + 1] * 3))
        _fill_table(self._table, weights, self._fine)

    def mark(self, distance: npt.NDArray[np.float32], start: int, first: int, last: int) -> None:
        """Change the sign of balls that lie in others, in slices `first` to `last` from `start`."""
        how = self._table, self._weights, self._fine
        _mark_inside(distance, *how, start + first, start + last)


def _reaching(
    distance: Stack, first: int, last: int, reach: int, weight: float, at_a_time: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Return the balls that reach into a slab, the largest first.

    Returns: squared radii, and centres (balls, 3), z counted from the slab's first slice.
    """
    low, end = max(first - reach, 0), min(last + reach, len(distance))
    size = distance.shape[1] * distance.shape[2]
    found = []
    for start in range(low, end, at_a_time):
        part = distance.read(start, min(start + at_a_time, end)).reshape(-1)
        place = np.flatnonzero(part > 0)
        radius = part[place]
        place += (start - low) * size
        z = place // size + low
        away = np.maximum(np.maximum(first - z, z - (last - 1)), 0)
        near = away * away * weight < radius
        # numbers above zero are in the order of their bits
        found.append((radius[near].view(np.int32).astype(np.int64) << 32) | place[near])
    balls = np.concatenate(found)
    del found
    balls.sort()
    balls = balls[::-1]
    radii = (balls >> 32).astype(np.int32).view(np.float32)
    balls &= 0xFFFFFFFF
    centres = np.empty((balls.size, 3), np.int32)
    for axis in (2, 1):
        balls, centres[:, axis] = np.divmod(balls, distance.shape[axis])
    centres[:, 0] = balls - (first - low)
    return radii, centres


@kernel
def _fill_table(
    table: npt.NDArray[np.float64], weights: tuple[float, float, float], fine: int
) -> None:
    """Write the squared distance of the farthest voxel of each ball from a place beside it.

    `table`: (sizes, steps, steps, steps): of the ball of squared radius ``size / fine``, from the
    place that is so many steps away along z, y and x.
    """
    size, count = table.shape[:2]
    weight_z, weight_y, weight_x = weights
    for z in range(int(np.sqrt(size / fine / weight_z)) + 2):
        for y in range(int(np.sqrt(size / fine / weight_y)) + 2):
            for x in range(int(np.sqrt(size / fine / weight_x)) + 2):
                square = weight_z * z * z + weight_y * y * y + weight_x * x * x
                # the smallest ball that has this voxel
                ball = int(np.floor(square * fine)) + 1
                if ball >= size:
                    break
                for to_z in range(count):
                    for to_y in range(count):
                        far_zy = weight_z * (z + to_z) ** 2 + weight_y * (y + to_y) ** 2
                        for to_x in range(count):
                            far = far_zy + weight_x * (x + to_x) ** 2
                            table[ball, to_z, to_y, to_x] = max(table[ball, to_z, to_y, to_x], far)
    for ball in range(1, size):
        for to_z in range(count):
            for to_y in range(count):
                for to_x in range(count):
                    smaller = table[ball - 1, to_z, to_y, to_x]
                    table[ball, to_z, to_y, to_x] = max(table[ball, to_z, to_y, to_x], smaller)


@kernel
def _mark_inside(
    distance: npt.NDArray[np.float32],
    table: npt.NDArray[np.float64],
    weights: tuple[float, float, float],
    fine: int,
    first: int,
    last: int,
) -> None:
    """Change the sign of balls that lie in that of a voxel up the slope."""
    depth, height, width = distance.shape
    weight_z, weight_y, weight_x = weights
    for z in range(first, last):
        below, above = max(z - 1, 0), min(z + 1, depth - 1)
        for y in range(height):
            before, after = max(y - 1, 0), min(y + 1, height - 1)
            for x in range(width):
                own = abs(distance[z, y, x])
                ball = int(np.ceil(own * fine))
                if own == 0 or ball >= table.shape[0]:
                    continue
                rise_z = (abs(distance[above, y, x]) - abs(distance[below, y, x])) / weight_z
                rise_y = (abs(distance[z, after, x]) - abs(distance[z, before, x])) / weight_y
                rise_x = abs(distance[z, y, min(x + 1, width - 1)])
                rise_x = (rise_x - abs(distance[z, y, max(x - 1, 0)])) / weight_x
                steepest = max(abs(rise_z), abs(rise_y), abs(rise_x))
                is_inside = False
                if steepest > 0:
                    # in halves of a voxel along the steepest axis
                    half_z, half_y, half_x = (
                        0.5 * rise_z / steepest,
                        0.5 * rise_y / steepest,
                        0.5 * rise_x / steepest,
                    )
                    for half in range(2, 2 * _REACH + 1):
                        to_z = int(np.rint(half * half_z))
                        to_y = int(np.rint(half * half_y))
                        to_x = int(np.rint(half * half_x))
                        at_z, at_y, at_x = z + to_z, y + to_y, x + to_x
                        if not (0 <= at_z < depth and 0 <= at_y < height and 0 <= at_x < width):
                            break
                        other = abs(distance[at_z, at_y, at_x])
                        least = table[ball, abs(to_z), abs(to_y), abs(to_x)]
                        if other > own and other * _INSIDE > least:
                            is_inside = True
                            break
                if is_inside:
                    distance[z, y, x] = -own


@kernel
def _between(begin: int, end: int, word: int) -> np.uint64:
    """Return the bits of a word that stand for voxels from `begin` to `end`."""
    ones = ~np.uint64(0)
    low, high = max(begin - (word << 6), 0), min(end - (word << 6), 63)
    return np.uint64((ones << np.uint64(low)) & (ones >> np.uint64(63 - high)))


@kernel
def _begin(
    distance: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
    bits: npt.NDArray[np.uint64],
    group_bits: npt.NDArray[np.uint64],
) -> int:
    """Set the bits of the voxels of a slice that are of the phase; returns how many there are."""
    height, width = distance.shape
    left = 0
    for group in range(group_bits.shape[0]):
        for word in range(group_bits.shape[1]):
            group_bits[group, word] = np.uint64(0)
    for y in range(height):
        for word in range(bits.shape[1]):
            some = np.uint64(0)
            for x in range(word << 6, min((word + 1) << 6, width)):
                out[y, x] = np.float32(0.0)
                if distance[y, x] != 0:
                    some |= np.uint64(1) << np.uint64(x & 63)
                    left += 1
            bits[y, word] = some
            group_bits[y >> 3, word] |= some
    return left


@kernel
def _write(row: npt.NDArray[np.float32], start: int, new: np.uint64, value: np.float32) -> int:
    """Write a value where a word has bits, from `start` on; returns how many there are."""
    count, x = 0, start
    while new != 0:
        if new & np.uint64(1):
            row[x] = value
            count += 1
        new >>= np.uint64(1)
        x += 1
    return count


@kernel
def _paint(
    distance: npt.NDArray[np.float32],
    radii: npt.NDArray[np.float32],
    centres: npt.NDArray[np.int32],
    weights: tuple[float, float, float],
    scale: float,
    out: npt.NDArray[np.float32],
    first: int,
    last: int,
) -> None:
    """Paint the slices of blocks `first` to `last` of a slab."""
    depth, height, width = distance.shape
    weight_z = weights[0]
    words, groups = (width + 63) // 64, (height + 7) // 8
    bits = np.empty((_AT_A_TIME, height, words), np.uint64)
    # of eight rows of a slice, and of eight rows of all slices of the block
    group_bits = np.empty((_AT_A_TIME, groups, words), np.uint64)
    block_bits = np.empty((groups, words), np.uint64)
    for block in range(first, last):
        start, stop = block * _AT_A_TIME, min((block + 1) * _AT_A_TIME, depth)
        left = 0
        for z in range(start, stop):
            left += _begin(distance[z], out[z], bits[z - start], group_bits[z - start])
        _join(group_bits[: stop - start], block_bits)
        for k in range(radii.size):
            if left == 0:
                break
            radius, at = float(radii[k]), int(centres[k, 0])
            away = max(start - at, at - (stop - 1), 0)
            disc = radius * _INSIDE - weight_z * away * away
            if disc <= 0:
                continue
            y, x = int(centres[k, 1]), int(centres[k, 2])
            if not _is_open(block_bits, y, x, disc, weights, height, width):
                continue
            value, painted = np.float32(scale * np.sqrt(radius)), 0
            for z in range(start, stop):
                disc = radius * _INSIDE - weight_z * (z - at) * (z - at)
                if disc > 0:
                    place = z - start, z, y, x
                    painted += _paint_disc(bits, group_bits, place, disc, weights, value, out)
            if painted:
                left -= painted
                _join(group_bits[: stop - start], block_bits)


@kernel
def _join(group_bits: npt.NDArray[np.uint64], block_bits: npt.NDArray[np.uint64]) -> None:
    """Set the bits that any of several slices has."""
    for group in range(block_bits.shape[0]):
        for word in range(block_bits.shape[1]):
            some = np.uint64(0)
            for z in range(group_bits.shape[0]):
                some |= group_bits[z, group, word]
            block_bits[group, word] = some


@kernel
def _is_open(
    block_bits: npt.NDArray[np.uint64],
    y: int,
    x: int,
    disc: float,
    weights: tuple[float, float, float],
    height: int,
    width: int,
) -> bool:
    """Whether a disc may come to anything that is not painted yet."""
    _, weight_y, weight_x = weights
    reach = int(np.sqrt(disc / weight_y))
    low, high = max(y - reach, 0), min(y + reach, height - 1)
    for group in range(low >> 3, (high >> 3) + 1):
        # no row of the group is cut wider than the one that is nearest to the middle
        aside = max((group << 3) - y, y - (group << 3) - 7, 0)
        half = int(np.sqrt(max(disc - weight_y * aside * aside, 0.0) / weight_x))
        begin, end = max(x - half, 0), min(x + half, width - 1)
        for word in range(begin >> 6, (end >> 6) + 1):
            if block_bits[group, word] & _between(begin, end, word) != 0:
                return True
    return False


@kernel
def _paint_disc(
    bits: npt.NDArray[np.uint64],
    group_bits: npt.NDArray[np.uint64],
    place: tuple[int, int, int, int],
    disc: float,
    weights: tuple[float, float, float],
    value: np.float32,
    out: npt.NDArray[np.float32],
) -> int:
    """Write a value to what is not painted yet of the cut of a ball; returns how much that is.

    `place`: of the middle of the cut: slice in the block and in the slab, row, and column.
    """
    at, z, y, x = place
    _, height, width = out.shape
    _, weight_y, weight_x = weights
    reach = int(np.sqrt(disc / weight_y))
    low, high = max(y - reach, 0), min(y + reach, height - 1)
    total = 0
    for group in range(low >> 3, (high >> 3) + 1):
        top, bottom = max(group << 3, low), min((group << 3) + 7, high)
        # no row of the group is cut wider than the one that is nearest to the middle
        aside = max(top - y, y - bottom, 0)
        half = int(np.sqrt(max(disc - weight_y * aside * aside, 0.0) / weight_x))
        begin, end = max(x - half, 0), min(x + half, width - 1)
        some = np.uint64(0)
        for word in range(begin >> 6, (end >> 6) + 1):
            some |= group_bits[at, group, word] & _between(begin, end, word)
        if some == 0:
            continue
        painted = 0
        for row in range(top, bottom + 1):
            rest = disc - weight_y * (row - y) * (row - y)
            if rest <= 0:
                continue
            half = int(np.sqrt(rest / weight_x))
            begin, end = max(x - half, 0), min(x + half, width - 1)
            for word in range(begin >> 6, (end >> 6) + 1):
                new = bits[at, row, word] & _between(begin, end, word)
                if new != 0:
                    bits[at, row, word] &= ~new
                    painted += _write(out[z, row], word << 6, new, value)
        if painted:
            for word in range(bits.shape[2]):
                some = np.uint64(0)
                for row in range(group << 3, min((group << 3) + 8, height)):
                    some |= bits[at, row, word]
                group_bits[at, group, word] = some
            total += painted
    return total
