"""Local thickness: the diameter of the widest inscribed ball that covers a voxel.

The ball centred on a voxel reaches to the nearest voxel of the other phase; its width is estimated
in `hushpore.pores.geometry.balls`. Most balls lie inside a ball uphill that is at least as wide and
are skipped; the others are painted a few slices at a time, widest first, so that each voxel keeps
the first ball that covers it. The result is exact: no ball is missed or rounded.

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

from hushpore.pores.geometry.balls import AT_A_TIME, BESIDE, REACH, Balls, paint

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Float32s, Float64s, Int32s, Int64s
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Slabs, Stack

# bins of the distribution
_BINS = 30


@dataclass(frozen=True, eq=False)
class LocalThickness:
    """Local thickness of void or solid.

    Attributes
    ----------
    diameter : numpy.ndarray
        float32, in the shape of the volume: diameter of the widest ball (in 2D: disc) that
        covers the voxel, in the unit of the volume; 0 outside the phase, infinite if unbounded.
    mean, deviation : float or None
        Volume-weighted, in the same unit; None if the phase is empty or unbounded.
    edges : numpy.ndarray
        (bins + 1,), float64: edges of equally wide bins, from 0 to the largest.
    counts : numpy.ndarray
        (bins,), int64: voxels per bin.
    """

    diameter: Float32s
    mean: float | None
    deviation: float | None
    edges: Float64s
    counts: Int64s

    def scaled(self, ratio: float) -> LocalThickness:
        """Return the thickness for voxels that are larger by a ratio."""
        mean, deviation = (
            None if each is None else each * ratio for each in (self.mean, self.deviation)
        )
        diameter = self.diameter * np.float32(ratio)
        return LocalThickness(diameter, mean, deviation, self.edges * ratio, self.counts)


class Found(NamedTuple):
    """Mean, deviation and distribution of a local thickness; see `LocalThickness`."""

    mean: float | None
    deviation: float | None
    edges: Float64s
    counts: Int64s


def find_thickness(
    distance: Stack,
    slabs: Slabs,
    thickness: Stack,
    spacing: Sequence[float],
    solid_outside: Sequence[bool],
    threads: KernelThreads,
) -> Generator[float, None, Found]:
    """Find the local thickness in a phase slab by slab.

    `distance`: (z, y, x), float32: squared distance of each voxel of the phase to the nearest one
    that is not, in squared voxels of the smallest spacing; 0 elsewhere. Of balls that lie in others
    the sign changes. `thickness`: (z, y, x), float32: where diameters go, in the unit of `spacing`.
    `spacing`: voxel size in z, y, x order. `solid_outside`: as the distance was found with.
    Yields: the share that is done.
    Returns: mean, deviation and distribution.

    The same on any number of threads and slabs. Takes up to 28 bytes for each ball that reaches
    into a slab and does not lie in another; these are 10 to 30 % of the voxels of the phase.
    """
    smallest = min(spacing)
    z, y, x = (float(step / smallest) for step in spacing)
    steps = z, y, x
    weights = z * z, y * y, x * x
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
    known = Balls(largest, distance.shape, steps, solid_outside)
    for first, last in slabs:
        # with extra slices for the widths
        low = max(first - REACH - BESIDE, 0)
        part = distance.read(low, last + REACH + BESIDE)
        threads.over(last - first, known.mark, part, first - low)
        distance.write(first, part[first - low :][: last - first])
        yield 0.3 * last / slabs.depth
    search = _BallSearch(distance, known, largest, steps[0], threads)
    sums = _Sums()
    for first, last in slabs:
        balls = search.balls(first, last)
        part = distance.read(first, last)
        room = thickness.room(first, last)
        blocks = -(-(last - first) // AT_A_TIME)
        threads.over(blocks, paint, part, *balls, weights, smallest, room)
        del balls
        sums.add(room)
        thickness.write(first, room)
        yield 0.3 + 0.7 * last / slabs.depth
    for first, last in slabs:
        sums.count(thickness.read(first, last))
    return sums.found()


class _Sums:
    """Accumulator of diameters, slice by slice so that slabs do not affect rounding."""

    def __init__(self) -> None:
        self._sums: list[tuple[float, float]] = []
        self._largest = 0.0
        self._counts = np.zeros(_BINS, np.int64)

    @property
    def _edges(self) -> Float64s:
        # a little wider, so that the largest is in the last bin however it was rounded
        return np.linspace(0, self._largest * (1 + 1e-6), _BINS + 1)

    def add(self, slices: Float32s) -> None:
        """Add some slices; 0 is outside the phase."""
        for each in slices:
            values = each[each > 0].astype(np.float64)
            self._sums.append((values.sum(), (values * values).sum()))
            self._largest = max(self._largest, values.max(initial=0))

    def count(self, slices: Float32s) -> None:
        """Count some slices into bins, after all are added."""
        for each in slices:
            self._counts += np.histogram(each[each > 0], self._edges)[0]

    def found(self) -> Found:
        """Return mean, deviation and distribution."""
        count = int(self._counts.sum())
        total, squares = (math.fsum(each) / count for each in zip(*self._sums, strict=True))
        deviation = math.sqrt(max(squares - total * total, 0.0))
        return Found(total, deviation, self._edges, self._counts)


class _BallSearch:
    """Search for the balls that reach into a slab."""

    def __init__(
        self, distance: Stack, known: Balls, largest: float, step: float, threads: KernelThreads
    ) -> None:
        self._distance, self._known, self._step, self._threads = distance, known, step, threads
        self._reach = int(math.sqrt(largest) / step) + 1

    def balls(self, first: int, last: int) -> tuple[Float32s, Float32s, Int32s]:
        """Return the balls that reach into a slab, the widest first.

        Returns: squared radii, widths, and centres (balls, 3), z counted from the slab's first
        slice.
        """
        low, end = max(first - self._reach, 0), min(last + self._reach, len(self._distance))
        step = last - first
        fits = (end - low) * math.prod(self._distance.shape[1:]) <= 1 << 32
        of_places = np.uint32 if fits else np.int64
        parts = [
            self._within(start, min(start + step, end), (first, last), low, of_places)
            for start in range(low, end, step)
        ]
        radii, widths, places = (np.concatenate(each) for each in zip(*parts, strict=True))
        del parts
        # positive floats sort like their bits
        order = widths.view(np.int32).astype(np.int64)
        order <<= 32
        order |= np.arange(order.size, dtype=np.uint32)
        order.sort()
        order &= 0xFFFFFFFF
        order = order[::-1]
        radii, widths, places = radii[order], widths[order], places[order]
        del order
        centres = np.empty((places.size, 3), np.int32)
        for axis in (2, 1):
            places, centres[:, axis] = np.divmod(places, self._distance.shape[axis])
        centres[:, 0] = places
        centres[:, 0] -= first - low
        return radii, widths, centres

    def _within(
        self,
        start: int,
        stop: int,
        slab: tuple[int, int],
        low: int,
        of_places: type[np.uint32 | np.int64],
    ) -> tuple[Float32s, Float32s, npt.NDArray[np.uint32 | np.int64]]:
        """Return the balls that reach into a slab from some slices, in the order of their places.

        Returns: squared radii, widths, and places in memory, counted from slice `low`; these of
        the type `of_places`.
        """
        _, height, width = self._distance.shape
        below = min(start, BESIDE)
        around = self._distance.read(start - below, stop + BESIDE)
        part = around[below:][: stop - start].reshape(-1)
        place = np.flatnonzero(part > 0)
        radius = part[place]
        z = place // (height * width) + start
        away = np.maximum(np.maximum(slab[0] - z, z - (slab[1] - 1)), 0) * self._step
        near = away * away < radius
        place, radius = place[near], radius[near]
        found = np.empty(place.size, np.float32)
        place += below * height * width
        self._threads.over(place.size, self._known.find_widths, around, place, found)
        place += (start - below - low) * height * width
        return radius, found, place.astype(of_places, copy=False)
