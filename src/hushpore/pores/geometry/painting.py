"""Paints balls into slices, so that each voxel takes the first that comes to it.

What is not painted yet is a bit for each voxel, and eight rows together have bits of their own, so
that a ball that comes to nothing new costs a few words of 64 voxels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hushpore.pores.parallel import kernel

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.arrays import Float32s, Int32s

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
