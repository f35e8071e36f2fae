"""How the void hangs together: Euler number, connectivity, percolation, tortuosity.

Euler number of the void: components minus loops plus enclosed solid components.

It is summed over slices minus the interfaces between neighbouring slices, so that it adds up over
slabs. If the void is 26-connected, the solid is 6-connected, and vice versa (8 and 4 in 2D).

Connectivity of the solid, from the Euler number of the void and the outer faces of the volume.

For a box B that is void V and solid S, chi(S) = 1 + chi(V) - chi(V on the surface of B) if void is
connected over the 26 neighbours of a voxel: the surface between both counts half in each, apart
from the rims where faces cut it. So the six faces are all that has to be looked at once the Euler
number of the void is known. What the volume adds to the Euler number of the larger structure that
it was cut from is then chi(S) less half of that of its faces, plus a quarter of that of its edges,
less an eighth of that of its corners (Odgaard and Gundersen).

Percolation: fraction of the void that connects opposite faces of the volume.

It follows from the contacts and bounds in the graph of basins, so that it costs no further pass.
Connectivity is that of pores: over the 26 neighbours of a voxel, or over its 6 faces.

Geodesic tortuosity: length of the shortest paths through the void per straight length.

Fast marching: a front starts from the void of the first slice along an axis and reaches each voxel
after the length of the shortest path within the void. Voxels are processed nearest first, each with
the length that solves the eikonal equation with its face neighbours; with 26-connectivity, straight
steps across edges and corners count, too, if shorter. Paths along axes and diagonals are exact;
others are up to a few per cent too long, compared with an eighth for steps alone.

References
----------
H. J. Vogel and K. Roth (2001), "Quantitative morphology and network representation of soil pore
structure", Advances in Water Resources 24, 233-242. https://doi.org/10.1016/S0309-1708(00)00055-5

J. Ohser and F. Mucklich (2000), "Statistical Analysis of Microstructures in Materials Science",
Wiley, ISBN 978-0-471-97486-4.

A. Odgaard and H. J. G. Gundersen (1993), "Quantification of connectivity in cancellous bone, with
special emphasis on 3-D reconstructions", Bone 14, 173-182.
https://doi.org/10.1016/8756-3282(93)90245-6

J. A. Sethian (1996), "A fast marching level set method for monotonically advancing fronts", PNAS
93, 1591-1595. https://doi.org/10.1073/pnas.93.4.1591

C. J. Gommes, A.-J. Bons, S. Blacher, J. H. Dunsmuir and A. H. Tsou (2009), "Practical methods for
measuring the tortuosity of porous materials from binary or gray-tone tomographic reconstructions",
AIChE Journal 55, 2000-2012. https://doi.org/10.1002/aic.11812
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from hushpore.base.events import Driver
from hushpore.pores.parallel import inlined, kernel
from hushpore.pores.void.components import join_pairs

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float32s, Int64s, Mask, UInt8s
    from hushpore.base.volume import Volume
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Slabs
    from hushpore.pores.watershed.graph import BasinGraph


class SolidEuler(NamedTuple):
    """Euler numbers of the solid."""

    whole: int  # of the solid in the volume
    added: float  # what the volume adds to that of the structure that it was cut from

    @property
    def connectivity(self) -> float:
        """Loops that the volume adds: 1 less its Euler number, as in Conn.D of bone."""
        return 1 - self.added


def solid_euler(void: Array, euler_number: int, *, faces_only: bool) -> SolidEuler:
    """Return the Euler numbers of the solid of a volume without air around the sample.

    Parameters
    ----------
    void : numpy.ndarray
        (z, y, x), not 0 where void is; its outer faces are read.
    euler_number : int
        Of the void, as `hushpore.pores.topology.find_euler_number` counts it.
    faces_only : bool
        Whether void is connected over the 6 faces of a voxel; solid is then over its 26 neighbours,
        else over 6.

    Returns
    -------
    SolidEuler
        Of the solid.

    Examples
    --------
    A bar through the volume has no loop:

    >>> void = np.ones((5, 5, 5), bool)
    >>> void[:, 2, 2] = False
    >>> solid_euler(void, 0, faces_only=False).whole
    1
    """
    planes = [np.asarray(void.take(end, axis)) != 0 for axis in range(3) for end in (0, -1)]
    rows = [plane.take(end, axis) for plane in planes for axis in range(2) for end in (0, -1)]
    corners = [void[place] != 0 for place in product((0, -1), repeat=3)]
    # each edge of the volume is an edge of two faces
    void_on_surface = (
        sum(_of_plane(plane ^ faces_only, closed=True) for plane in planes)
        - sum(_of_row(row ^ faces_only) for row in rows) // 2
        + sum(bool(corner) ^ faces_only for corner in corners)
    )
    sign = -1 if faces_only else 1
    whole = euler_number + sign * (1 - void_on_surface)
    added = (
        whole
        - sum(_of_plane(~plane, closed=faces_only) for plane in planes) / 2
        + sum(_of_row(~row) for row in rows) / 8
        - sum(not corner for corner in corners) / 8
    )
    return SolidEuler(whole, added)


def _of_plane(mask: Mask, *, closed: bool) -> int:
    """Return the Euler number of a plane; closed: connected over 8 neighbours, else over 4."""
    if closed:
        wide = np.pad(mask, 1)
        upright, across = wide[1:] | wide[:-1], wide[:, 1:] | wide[:, :-1]
        corners = upright[:, 1:] | upright[:, :-1]
    else:
        upright, across = mask[1:] & mask[:-1], mask[:, 1:] & mask[:, :-1]
        corners = upright[:, 1:] & upright[:, :-1]
    # of closed voxels corners are points; of open ones voxels are, and corners are squares
    return int(mask.sum()) - int(upright.sum()) - int(across.sum()) + int(corners.sum())


def _of_row(mask: Mask) -> int:
    """Return how many runs of voxels a row has."""
    return int(np.count_nonzero(np.diff(mask.astype(np.int8), prepend=0) == 1))


class _Slices(Protocol):
    def read(self, first: int, last: int) -> Array: ...


def find_euler_number(
    void: _Slices, slabs: Slabs, threads: KernelThreads, *, faces_only: bool
) -> Generator[float, None, int]:
    """Find the Euler number of a void, slab by slab.

    `void`: a stack that is nonzero in the void. `faces_only`: whether void is connected over the 6
    faces of a voxel, not over its 26 neighbours.
    """
    total = 0
    for first, last in slabs:
        total += euler_of_slab(void.read(first, last + 1), last - first, threads, faces_only)
        yield last / slabs.depth
    return total


def euler_of_slab(values: Array, count: int, threads: KernelThreads, faces_only: bool) -> int:
    """Return the contribution of the first slices of a slab to the Euler number.

    `values`: (z, y, x), nonzero in the void: `count` slices, and the next one if there is one.
    """
    _, height, width = values.shape

    def add_slices(first: int, last: int) -> int:
        # with solid around, and beyond the last slice
        planes = np.zeros((2, height + 2, width + 2), np.bool_)
        added = np.zeros(width + 1, np.int8)
        np.not_equal(values[first], 0, out=planes[first % 2, 1:-1, 1:-1])
        total = 0
        for z in range(first, last):
            here, there = planes[z % 2], planes[(z + 1) % 2]
            beyond = values[z + 1] if z + 1 < len(values) else 0
            there[1:-1, 1:-1] = np.not_equal(beyond, 0)
            total += _of_slice(here.view(np.uint8), there.view(np.uint8), added, faces_only)
        return total

    return sum(threads.over(count, add_slices))


@kernel
def _of_slice(here: UInt8s, there: UInt8s, added: npt.NDArray[np.int8], faces_only: bool) -> int:
    """Return the contribution of a slice, minus its interface with the next; `added`: buffer."""
    total = 0
    for y in range(len(here) - 1):
        if faces_only:
            _add_over_faces(here[y], here[y + 1], there[y], there[y + 1], added)
        else:
            _add_rows(here[y], here[y + 1], there[y], there[y + 1], added)
        for x in range(added.size):
            total += int(added[x])
    return total


@inlined
def _add_rows(
    here_before: UInt8s,
    here: UInt8s,
    there_before: UInt8s,
    there: UInt8s,
    added: npt.NDArray[np.int8],
) -> None:
    """Write what voxels of a row add, of a slice and the next: void over its 26 neighbours.

    Corners, less edges, plus faces: of both slices seen as one, less those of the next alone.
    Voxels are the faces; their edges and corners count where any voxel has them.
    """
    for x in range(added.size):
        a, b = there_before[x], there_before[x + 1]
        c, d = there[x], there[x + 1]
        e, f = a | here_before[x], b | here_before[x + 1]
        g, h = c | here[x], d | here[x + 1]
        both = (e | f | g | h) - (g | h) - (f | h) + h
        added[x] = np.int8(both - (a | b | c | d) + (c | d) + (b | d) - d)


@inlined
def _add_over_faces(
    here_before: UInt8s,
    here: UInt8s,
    there_before: UInt8s,
    there: UInt8s,
    added: npt.NDArray[np.int8],
) -> None:
    """Do what `_add_rows` does where void is connected over faces: there voxels are the corners.

    Of the slice, less those of what it shares with the next.
    """
    for x in range(added.size):
        a, b = here_before[x], here_before[x + 1]
        c, d = here[x], here[x + 1]
        e, f = a & there_before[x], b & there_before[x + 1]
        g, h = c & there[x], d & there[x + 1]
        shared = h - (g & h) - (f & h) + (e & f & g & h)
        added[x] = np.int8(d - (c & d) - (b & d) + (a & b & c & d) - shared)


def percolation_totals(
    graph: BasinGraph, sample: Int64s, volume: Volume
) -> dict[str, float | None]:
    """Return the percolating fraction of the void along each axis.

    `graph`: basins of the segmented void. `sample`: sample voxels of each slice (in 2D: row).
    `volume`: 2D or 3D, for its shape.
    Returns: by the names of `hushpore.pores.tables.totals.TOTALS`; None without void, and if air
    lies between a face of the volume and the sample.
    """
    n_spatial = volume.n_spatial
    part, count = join_pairs(graph.count + 1, *graph.ends_of_ways)
    voxels = np.zeros(count, np.int64)
    np.add.at(voxels, part, graph.voxels)
    void = int(voxels.sum())
    is_whole = int(sample.sum()) == np.prod(volume.shape)
    found: dict[str, float | None] = {}
    for axis, name in enumerate("zyx"[-n_spatial:]):
        in_bounds = axis + 3 - n_spatial
        reaches = np.zeros((2, count), np.bool_)
        reaches[0, part[1:][graph.bounds[1:, in_bounds] == 0]] = True
        reaches[1, part[1:][graph.bounds[1:, in_bounds + 3] == volume.shape[axis]]] = True
        # a core in air reaches the first and last slice, but not the sides
        is_at_face = is_whole or (axis == 0 and bool(sample[0] and sample[-1]))
        through = int(voxels[reaches.all(axis=0)].sum())
        found[f"percolating_fraction_{name}"] = through / void if void and is_at_face else None
    return found


#: Voxels processed between two points at which the job can be cancelled: tenths of a second.
_AT_A_TIME = 1 << 18

#: Initial size of the queue.
_ROOM = 1 << 12


def find_tortuosity(
    void: Mask, spacing: Sequence[float], n_spatial: int, *, faces_only: bool
) -> Generator[float, None, dict[str, float | None]]:
    """Find the mean tortuosity along each axis.

    `void`: (z, y, x). `spacing`: likewise. `n_spatial`: 2 for an image, in one slice.
    `faces_only`: whether void is connected over the 6 faces of a voxel alone.
    Returns: by the names of `hushpore.pores.tables.totals.TOTALS`; None without a path
    through the void.
    """
    found: dict[str, float | None] = {}
    for number, axis in enumerate(range(3 - n_spatial, 3)):
        along = np.ascontiguousarray(np.moveaxis(void, axis, 0))
        steps = spacing[axis], *(spacing[i] for i in range(3) if i != axis)
        straight = (len(along) - 1) * spacing[axis]
        with Driver(find_path_lengths(along, steps, faces_only=faces_only)) as marching:
            for reached in marching:
                yield (number + min(reached / max(straight, spacing[axis]), 1.0)) / n_spatial
        lengths = marching.result[-1]
        lengths = lengths[np.isfinite(lengths)].astype(np.float64)
        has_way = lengths.size > 0 and straight > 0
        found[f"tortuosity_{'zyx'[axis]}"] = float(lengths.mean()) / straight if has_way else None
    return found


def find_path_lengths(
    void: Mask, spacing: Sequence[float], *, faces_only: bool
) -> Generator[float, None, Float32s]:
    """Find the length of the shortest path to each void voxel from the void of the first slice.

    Yields: path length of the front. Returns: float32, infinite without a path.
    """
    length = np.full(void.shape, np.inf, np.float32)
    length[0][void[0]] = 0
    start = np.flatnonzero(void[0])
    keys, places = np.zeros(start.size, np.float32), start.astype(np.int64)
    size = start.size
    step_z, step_y, step_x = (float(each) for each in spacing)
    while size:
        if keys.size < 2 * size + _ROOM:
            more = size + _ROOM
            keys = np.concatenate([keys[:size], np.empty(more, np.float32)])
            places = np.concatenate([places[:size], np.empty(more, np.int64)])
        steps = step_z, step_y, step_x
        size = _march(void, steps, faces_only, length, keys, places, size, _AT_A_TIME)
        yield float(keys[0]) if size else math.inf
    return length


@kernel
def _push(keys: Float32s, places: Int64s, size: int, key: np.float32, place: int) -> None:
    """Insert a place into a binary heap of `size` entries, lowest key first."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] <= key:
            break
        keys[at], places[at] = keys[above], places[above]
        at = above
    keys[at], places[at] = key, place


@kernel
def _drop_first(keys: Float32s, places: Int64s, size: int) -> None:
    """Remove the first entry from a heap of `size` entries."""
    last = size - 1
    key, place = keys[last], places[last]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        if below + 1 < last and keys[below + 1] < keys[below]:
            below += 1
        if keys[below] >= key:
            break
        keys[at], places[at] = keys[below], places[below]
        at = below
    keys[at], places[at] = key, place


@kernel
def _march(
    void: Mask,
    steps: tuple[float, float, float],
    faces_only: bool,
    length: Float32s,
    keys: Float32s,
    places: Int64s,
    size: int,
    at_a_time: int,
) -> int:
    """Take the front on by so many voxels, or until its heap is full; returns the heap's size."""
    depth, height, width = void.shape
    for _ in range(at_a_time):
        if size == 0 or size + 26 > keys.size:
            break
        here, place = keys[0], places[0]
        _drop_first(keys, places, size)
        size -= 1
        z, rest = divmod(place, height * width)
        y, x = divmod(rest, width)
        # a shorter way was found since
        if here > length[z, y, x]:
            continue
        for to_z in range(max(z - 1, 0), min(z + 2, depth)):
            for to_y in range(max(y - 1, 0), min(y + 2, height)):
                for to_x in range(max(x - 1, 0), min(x + 2, width)):
                    if not void[to_z, to_y, to_x] or length[to_z, to_y, to_x] <= here:
                        continue
                    over = abs(to_z - z) + abs(to_y - y) + abs(to_x - x)
                    if over == 1:
                        new = np.float32(_solve(length, (to_z, to_y, to_x), steps, here))
                    elif faces_only:
                        continue
                    else:
                        square = (steps[0] * (to_z - z)) ** 2 + (steps[1] * (to_y - y)) ** 2
                        new = np.float32(here + np.sqrt(square + (steps[2] * (to_x - x)) ** 2))
                    if new < length[to_z, to_y, to_x]:
                        length[to_z, to_y, to_x] = new
                        _push(keys, places, size, new, (to_z * height + to_y) * width + to_x)
                        size += 1
    return size


@kernel
def _solve(
    length: Float32s,
    place: tuple[int, int, int],
    steps: tuple[float, float, float],
    here: np.float32,
) -> float:
    """Return the length at a voxel of which the slope is one, of neighbours no farther than here.

    The sum of ``((t - near) / step)**2`` over the axes is one; axes whose neighbour is farther than
    that are left out.
    """
    z, y, x = place
    depth, height, width = length.shape
    low_z, high_z = max(z - 1, 0), min(z + 1, depth - 1)
    low_y, high_y = max(y - 1, 0), min(y + 1, height - 1)
    low_x, high_x = max(x - 1, 0), min(x + 1, width - 1)
    near_z = float(min(length[low_z, y, x], length[high_z, y, x]))
    near_y = float(min(length[z, low_y, x], length[z, high_y, x]))
    near_x = float(min(length[z, y, low_x], length[z, y, high_x]))
    # the lengths of farther voxels may still change
    near_z = near_z if near_z <= here else np.inf
    near_y = near_y if near_y <= here else np.inf
    near_x = near_x if near_x <= here else np.inf
    found = min(near_z + steps[0], near_y + steps[1], near_x + steps[2])
    # the nearest neighbours first: one more axis counts while it is nearer than what was found
    a, b, c = 0.0, 0.0, -1.0
    for _ in range(3):
        near, step = near_z, steps[0]
        if near_y < near:
            near, step = near_y, steps[1]
        if near_x < near:
            near, step = near_x, steps[2]
        if near >= found:
            break
        if near == near_z:
            near_z = np.inf
        elif near == near_y:
            near_y = np.inf
        else:
            near_x = np.inf
        weight = 1.0 / (step * step)
        a += weight
        b += weight * near
        c += weight * near * near
        root = b * b - a * c
        if root < 0:
            break
        found = min(found, (b + np.sqrt(root)) / a)
    return found
