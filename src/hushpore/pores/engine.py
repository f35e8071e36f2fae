"""The CPU engine: computations on the slabs of a stack. The GPU engines are in `pores/gpu`.

Steps (`hushpore.pores.slab_steps`) walk over the slabs and combine their results without knowing
the device. All of these functions take slabs from stacks of the engine and return arrays for such
stacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from hushpore.pores.void.components import (
    AIR,
    SOLID,
    Components,
    count_crossings,
    face_neighbours,
    find_runs,
)
from hushpore.pores.void.threshold import GreyValues, RoundedGrey, Rounding, make_void, survey
from hushpore.pores.watershed.basins import apply_labels, watershed_slab
from hushpore.pores.watershed.distance import edge_plane, fill_distance
from hushpore.pores.watershed.graph import Tables

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Int32s
    from hushpore.base.volume import Volume
    from hushpore.device.timing import StageTimer
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Scratch, Slabs, Stack
    from hushpore.pores.void.threshold import Range
    from hushpore.pores.watershed.basins import SlabWatershed
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.scan.histogram import Histogram

    T = TypeVar("T")
    #: A step, or a part of one, as a generator that yields the completed fraction.
    Pass: TypeAlias = Generator[float, None, T]


class VoidCounts(NamedTuple):
    """Counts of the void, as arrays on the device of the engine."""

    totals: Any  # (3,): components, voxels of open ones, voxels of closed ones
    # (13,): crossings between the void and the exterior, by direction
    air_crossings: Any
    air: Any  # voxels outside the sample in each slice (row, in 2D)


class Engine:
    """The computations of a pore segmentation on the CPU."""

    #: Whether whole stacks stay in GPU memory, as a single slab.
    holds_all = False

    def __init__(self, threads: KernelThreads) -> None:
        self.threads = threads

    # stacks

    def stack(
        self, scratch: Scratch, name: str, shape: Sequence[int], dtype: npt.DTypeLike
    ) -> Stack:
        """Return a new stack."""
        return scratch.stack(name, shape, dtype)

    def take(self, stack: Stack) -> Stack:
        """Copy a stack from the host to this engine, if needed."""
        return stack

    def bring(self, scratch: Scratch, name: str, stack: Stack, highest: int | None = None) -> Stack:
        """Copy a stack from this engine to the host, if needed; `highest`: its largest value."""
        return stack

    def relabelled(self, basins: Any, label_of: Int32s) -> Any:
        """Return the labels of basins (z, y, x), in their place on the CPU."""
        return apply_labels(basins, label_of, self.threads, basins)

    # grey values

    def grey(self, volume: Volume, slabs: Slabs, timer: StageTimer | None) -> Any:
        """Return the grey values of a volume, as `GreyValues` or its counterpart on a GPU."""
        return GreyValues(volume, slabs, timer)

    def survey(
        self, values: Any, with_histogram: bool, padding: float | None
    ) -> Pass[tuple[Range, Histogram | None]]:
        """Find the range of the grey values and, if requested, their histogram."""
        return survey(values, with_histogram, self.threads, padding)

    def rounded(self, values: Any, low: float, high: float) -> RoundedGrey:
        """Return the grey values rounded for exact sums; `low`, `high`: their range."""
        return RoundedGrey(values, Rounding.of(values.dtype, low, high))

    def void(self, values: Any, threshold: float | None, bright: bool, room: Any) -> Any:
        """Return the void as uint8: 1 beyond the threshold, else 0; `room`: output array."""
        make_void(values, threshold, bright, self.threads, room.view(np.bool_))
        return room

    # the void

    def parts(self, faces: tuple[bool, bool, bool], slabs: Slabs) -> Any:
        """Return a finder of the 6-connected components of the void that marks open ones.

        `faces`: see `Components`.
        """
        return _Parts(faces, slabs, self.threads)

    def is_all_void(self, phase: Stack, slabs: Slabs) -> bool:
        """Return whether the volume contains no solid."""
        return all(bool(phase.read(first, last).all()) for first, last in slabs)

    def count_air(self, lines: Any) -> Any:
        """Count the voxels outside the sample in each slice (row, in 2D), int64."""
        return np.array([np.count_nonzero(line >= AIR) for line in lines], np.int64)

    def air_crossings(self, phase: Any) -> Any:
        """Count the pairs of a void voxel and a neighbouring air voxel, by direction."""
        air = phase >= AIR
        return count_crossings((phase != SOLID) & ~air, air)

    # distances and basins

    def fill_distance(
        self,
        phase: Any,
        room: Any,
        before: Any,
        after: Any,
        spacing: Sequence[float],
        solid_outside: Sequence[bool],
        highest: int = 1,
        within: float = np.inf,
    ) -> Any:
        """Return the squared distance in a slab; see `watershed.distance.fill_distance`.

        `room`: output array. `before`, `after`: distances carried from the neighbouring slabs;
        None at the ends of the stack.
        """
        edge = edge_plane(phase.shape, solid_outside[0])
        beside = edge if before is None else before, edge if after is None else after
        fill_distance(phase, room, *beside, spacing, solid_outside, self.threads, highest, within)
        return room

    def clear_air(self, distance: Any, phase: Any) -> None:
        """Set the distance to 0 in the air, in place."""
        distance[phase >= AIR] = 0

    def watershed_slab(
        self,
        distance: Any,
        pointers: Any,
        first: int,
        last: int,
        count: int = 0,
        *,
        faces_only: bool = False,
        further: Any = None,
    ) -> SlabWatershed:
        """Find the basins of a slab; see `watershed.basins.watershed_slab`."""
        # the watershed also writes to the slice beside the slab
        before = pointers[:first].copy()
        how = (distance, pointers, self.threads, first, last, count)
        found = watershed_slab(*how, faces_only=faces_only, further=further)
        pointers[:first] = before
        return found

    def tables(self, shape: Sequence[int], peaks: Any, *, faces_only: bool = False) -> Any:
        """Return the `Tables` that measure basins and their contacts slab by slab."""
        return Tables(shape, peaks, faces_only=faces_only)

    def graph(
        self, tables: Any, counts: VoidCounts, rounding: Rounding
    ) -> tuple[BasinGraph, VoidCounts]:
        """Return the graph of all basins and the counts of the void, on the host."""
        return tables.graph(rounding, counts.air_crossings), counts


class _Parts:
    """The connected components of a void that is added slab by slab, on the CPU."""

    def __init__(
        self, faces: tuple[bool, bool, bool], slabs: Slabs, threads: KernelThreads
    ) -> None:
        self._components, self._threads = Components(faces, slabs), threads

    def add_holding(self, phase: Any, values: Any, limit: float, bright: bool) -> None:
        """Add the next slab; components with a grey value beyond the limit are marked."""
        runs = find_runs(phase, self._threads)
        self._components.add(runs, runs.holding(make_void(values, limit, bright, self._threads)))

    def add(self, phase: Any, around: Any = None, begin: int = 0) -> None:
        """Add the next slab; components that reach a face of the volume are marked.

        `around`: phase labels of the slab and the slices beside it, of which the slab begins at
        slice `begin`; if given, components beside air are marked, too.
        """
        runs, marked = find_runs(phase, self._threads), None
        if around is not None:
            marked = runs.holding(face_neighbours(around >= AIR)[begin:][: len(phase)])
        self._components.add(runs, marked)

    def classify(self, phase: Stack, marked: int, unmarked: int) -> Pass[Any]:
        """Write one phase label for marked components and one for the others, after the last slab.

        Returns: (3,), int64: number of components, voxels of marked ones, voxels of the others.
        """
        components = self._components
        components.join()
        phase_of = np.where(components.is_open, marked, unmarked).astype(np.uint8)
        for slab, (first, last) in enumerate(components.slabs):
            part = phase.read(first, last)
            components.paint(slab, part, phase_of, self._threads)
            phase.write(first, part)
            yield last / components.slabs.depth
        opened, closed, count = components.totals
        return np.array([count, opened, closed], np.int64)
