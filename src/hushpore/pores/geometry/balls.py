"""The balls of a phase: how wide the phase is about their centres, and which lie in others.

The width of a voxel is measured from wall to wall: of two opposite neighbours the distances, and
the way between them. Where the middle of the phase lies between voxels, that is what a ball about
the middle would have, where one about a voxel is smaller. But distances end at the centres of
voxels, and a wall lies half a step before them; so a plate is a step thinner. A ball is not: its
wall comes near some centre all around. Which of these it is, is told by how the distance falls to
both sides: of a unit step across a plate by the cosine to its normal, in a ball by 1 wherever it
goes. The squares add up to 1, 2 and 3 over axes at right angles in a plate, a tube and a ball. In a
square bar the fall is that to the nearer pair of walls, and they come to 19 / 13. One step from the
middle of a tube of few voxels cannot tell it from a square one; three steps can.

Balls are painted into slices so that each voxel gets the first ball that covers it.

Each unpainted voxel is one bit, and groups of eight rows have bits of their own, so that a ball
without new voxels costs a few words of 64 voxels.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Float32s, Float64s, Int32s, Int64s

    _Around = tuple[tuple[bool, bool, bool], tuple[float, float, float], Int64s, Float64s, Float64s]


#: Slices that are painted in one go, from one choice of balls.
AT_A_TIME = 4

#: So that a voxel at the very distance of the nearest solid is out, however that was rounded.
INSIDE = 1 - 1e-6


@kernel
def _between(begin: int, end: int, word: int) -> np.uint64:
    """Return the bits of a word that stand for voxels from `begin` to `end`."""
    ones = ~np.uint64(0)
    low, high = max(begin - (word << 6), 0), min(end - (word << 6), 63)
    return np.uint64((ones << np.uint64(low)) & (ones >> np.uint64(63 - high)))


@kernel
def _begin(
    distance: Float32s,
    out: Float32s,
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
def _write(row: Float32s, start: int, new: np.uint64, value: np.float32) -> int:
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
def paint(
    distance: Float32s,
    radii: Float32s,
    widths: Float32s,
    centres: Int32s,
    weights: tuple[float, float, float],
    scale: float,
    out: Float32s,
    first: int,
    last: int,
) -> None:
    """Paint the slices of blocks `first` to `last` of a slab."""
    depth, height, width = distance.shape
    weight_z = weights[0]
    words, groups = (width + 63) // 64, (height + 7) // 8
    bits = np.empty((AT_A_TIME, height, words), np.uint64)
    # of eight rows of a slice, and of eight rows of all slices of the block
    group_bits = np.empty((AT_A_TIME, groups, words), np.uint64)
    block_bits = np.empty((groups, words), np.uint64)
    for block in range(first, last):
        start, stop = block * AT_A_TIME, min((block + 1) * AT_A_TIME, depth)
        left = 0
        for z in range(start, stop):
            left += _begin(distance[z], out[z], bits[z - start], group_bits[z - start])
        _join(group_bits[: stop - start], block_bits)
        for k in range(radii.size):
            if left == 0:
                break
            radius, at = float(radii[k]), int(centres[k, 0])
            away = max(start - at, at - (stop - 1), 0)
            disc = radius * INSIDE - weight_z * away * away
            if disc <= 0:
                continue
            y, x = int(centres[k, 1]), int(centres[k, 2])
            if not _is_open(block_bits, y, x, disc, weights, height, width):
                continue
            value, painted = np.float32(scale * widths[k]), 0
            for z in range(start, stop):
                disc = radius * INSIDE - weight_z * (z - at) * (z - at)
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
    out: Float32s,
) -> int:
    """Write a value to the unpainted voxels of a ball in a slice; returns their number.

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


#: Steps, in voxels along an axis, up to which a ball that another lies in is looked for.
REACH = 3

#: Least fall of the distance to both sides, for a way of 1, with which a voxel counts as near the
#: middle of the phase: it is a half where the middle is half way to the next one.
_RIDGE = 0.4

#: The same along one way, with which walls count as opposite each other along it.
_ACROSS = 0.2

#: Steps, in voxels along an axis, within the ball to which the fall of the distance is followed.
_FAR = 3

#: Slices beside those of some balls that their widths depend on.
BESIDE = _FAR

#: How much nearer walls are than the centres beyond them, in voxels, by how many pairs of walls
#: stand opposite each other: flat ones, of plates and square bars; those of tubes; and of balls, of
#: which balls about voxels leave out a little, since the middle mostly lies between voxels.
_FLAT, _TUBE, _BALL = (1.5, 1.0), (1.75, 0.1), (3.0, -0.15)

#: Squares of falls that are none.
_NONE = 1e-9

#: Squared radius, in squared voxels of the smallest spacing, above which balls are all painted:
#: they are few, and the table of what lies in what grows with its cube.
_LARGEST = 64.0**2

#: Steps of the table in one squared voxel, where squared distances are no whole numbers.
_FINE = 4


class Balls:
    """Finds the widths about voxels of a phase, and which of their balls need not be painted.

    Its table says how large a ball must be, so that another with a step between their centres lies
    in it, voxel by voxel.
    """

    def __init__(
        self,
        largest: float,
        shape: Sequence[int],
        steps: tuple[float, float, float],
        solid_outside: Sequence[bool],
    ) -> None:
        z, y, x = (bool(each) for each in solid_outside)
        has_sides = [size > 1 or solid for size, solid in zip(shape, (z, y, x), strict=True)]
        self._around = (z, y, x), steps, *_directions(has_sides, steps)
        weights = steps[0] ** 2, steps[1] ** 2, steps[2] ** 2
        is_whole = all(weight == int(weight) for weight in weights)
        fine = 1 if is_whole else _FINE
        size = int(min(largest, _LARGEST) * fine) + 2
        table = np.zeros((size, *[REACH + 1] * 3))
        _fill_table(table, weights, fine)
        self._how = table, weights, fine

    def mark(self, distance: Float32s, start: int, first: int, last: int) -> None:
        """Change the sign of balls that lie in others as wide, in slices from `start`."""
        _mark_inside(distance, *self._how, self._around, start + first, start + last)

    def find_widths(
        self, distance: Float32s, places: Int64s, out: Float32s, first: int, last: int
    ) -> None:
        """Write the widths about voxels `first` to `last` of those with some places in memory."""
        _find_widths(distance, places, self._around, out, first, last)


def _directions(
    has_sides: Sequence[bool], steps: Sequence[float]
) -> tuple[Int64s, Float64s, Float64s]:
    """Return the ways from a voxel to its neighbours, of which each stands for its opposite, too.

    Returns: (ways, 3) in voxels; their lengths; and (3, ways) the shares of each with which the
    squares of falls along them add up to those along z, y and x, by least squares.
    """
    sides = [range(-1, 2) if has else range(1) for has in has_sides]
    ways = np.array([way for way in itertools.product(*sides) if way > (0, 0, 0)])
    away = ways * np.asarray(steps)
    lengths = np.linalg.norm(away, axis=1)
    return ways, lengths, np.linalg.pinv((away / lengths[:, None]) ** 2)


@kernel
def _fill_table(table: Float64s, weights: tuple[float, float, float], fine: int) -> None:
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
    distance: Float32s,
    table: Float64s,
    weights: tuple[float, float, float],
    fine: int,
    around: _Around,
    first: int,
    last: int,
) -> None:
    """Change the sign of balls that lie in that of a voxel up the slope that is as wide."""
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
                is_inside, wide = False, np.float32(0.0)
                if steepest > 0:
                    # in halves of a voxel along the steepest axis
                    half_z, half_y, half_x = (
                        0.5 * rise_z / steepest,
                        0.5 * rise_y / steepest,
                        0.5 * rise_x / steepest,
                    )
                    for half in range(2, 2 * REACH + 1):
                        to_z = int(np.rint(half * half_z))
                        to_y = int(np.rint(half * half_y))
                        to_x = int(np.rint(half * half_x))
                        at_z, at_y, at_x = z + to_z, y + to_y, x + to_x
                        if not (0 <= at_z < depth and 0 <= at_y < height and 0 <= at_x < width):
                            break
                        other = abs(distance[at_z, at_y, at_x])
                        least = table[ball, abs(to_z), abs(to_y), abs(to_x)]
                        if other > own and other * INSIDE > least:
                            if wide == 0:
                                wide = _width_at(distance, z, y, x, around)
                            if _width_at(distance, at_z, at_y, at_x, around) >= wide:
                                is_inside = True
                                break
                if is_inside:
                    distance[z, y, x] = -own


@kernel
def _find_widths(
    distance: Float32s, places: Int64s, around: _Around, out: Float32s, first: int, last: int
) -> None:
    """Write the widths about voxels `first` to `last` of those with some places in memory."""
    for ball in range(first, last):
        row, x = divmod(places[ball], distance.shape[2])
        z, y = divmod(row, distance.shape[1])
        out[ball] = _width_at(distance, z, y, x, around)


@kernel
def _width_at(distance: Float32s, z: int, y: int, x: int, around: _Around) -> np.float32:
    """Return the width about a voxel."""
    is_solid_outside, steps, ways, lengths, shares = around
    own = _root(distance[z, y, x])
    across, any_way, steepest = np.inf, np.inf, 0.0
    along_z, along_y, along_x = 0.0, 0.0, 0.0
    depth, height, width = distance.shape
    flat, place = distance.reshape(-1), (z * height + y) * width + x
    is_inner = _FAR <= z < depth - _FAR and _FAR <= y < height - _FAR and _FAR <= x < width - _FAR
    for way in range(lengths.size):
        to_z, to_y, to_x = ways[way, 0], ways[way, 1], ways[way, 2]
        # as far as the ball reaches; at its very end a step counts, however that was rounded
        far = max(1, min(int(own / (lengths[way] * INSIDE)), _FAR))
        if is_inner:
            step = (to_z * height + to_y) * width + to_x
            both = _root(flat[place + step]) + _root(flat[place - step])
            step *= far
            far_both = _root(flat[place + step]) + _root(flat[place - step])
        else:
            both = _distance_at(distance, is_solid_outside, z + to_z, y + to_y, x + to_x)
            both += _distance_at(distance, is_solid_outside, z - to_z, y - to_y, x - to_x)
            to_z, to_y, to_x = far * to_z, far * to_y, far * to_x
            far_both = _distance_at(distance, is_solid_outside, z + to_z, y + to_y, x + to_x)
            far_both += _distance_at(distance, is_solid_outside, z - to_z, y - to_y, x - to_x)
        wide = both + 2 * lengths[way]
        any_way = min(any_way, wide)
        if own - both / 2 >= _ACROSS * lengths[way]:
            across = min(across, wide)
        fall = max(own - far_both / 2, 0.0) / (far * lengths[way])
        steepest = max(steepest, fall)
        along_z += shares[0, way] * fall * fall
        along_y += shares[1, way] * fall * fall
        along_x += shares[2, way] * fall * fall
    # least squares may come out below zero
    along_z, along_y, along_x = max(along_z, 0.0), max(along_y, 0.0), max(along_x, 0.0)
    total = along_z + along_y + along_x
    nearer, step = _FLAT[1], 1.0
    # no fall at all may come out as some, by rounding
    if total > _NONE:
        nearer = _nearer(total / max(steepest, _RIDGE) ** 2)
        curved = along_z / steps[0] ** 2 + along_y / steps[1] ** 2 + along_x / steps[2] ** 2
        step = np.sqrt(total / curved)
    return np.float32((across if across < np.inf else any_way) - min(nearer * step, own))


@kernel
def _nearer(pairs: float) -> float:
    """Return how much nearer walls are than centres, by how many pairs are opposite each other."""
    low, high = (_FLAT, _TUBE) if pairs < _TUBE[0] else (_TUBE, _BALL)
    part = min(max((pairs - low[0]) / (high[0] - low[0]), 0.0), 1.0)
    return low[1] + part * (high[1] - low[1])


@kernel
def _root(squared: np.float32) -> float:
    """Return the distance of a squared one, whatever its sign."""
    return float(np.sqrt(abs(squared)))


@kernel
def _distance_at(
    distance: Float32s, is_solid_outside: tuple[bool, bool, bool], z: int, y: int, x: int
) -> float:
    """Return the distance of a voxel; beyond a face the phase goes on as it is there, or ends."""
    depth, height, width = distance.shape
    outside_z, outside_y, outside_x = is_solid_outside
    if (
        (outside_z and (z < 0 or z >= depth))
        or (outside_y and (y < 0 or y >= height))
        or (outside_x and (x < 0 or x >= width))
    ):
        return 0.0
    z, y, x = min(max(z, 0), depth - 1), min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    return _root(distance[z, y, x])
