"""Engine that processes slabs on the CPU; those of GPUs are in `hushpore.pores.gpu`.

Steps (`hushpore.pores.slab_steps`) iterate over slabs and combine their results independently of
the device. All functions of an engine take slabs from its own stacks and return slabs for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from hushpore.pores.void.components import AIR, SOLID, Components, find_runs
from hushpore.pores.void.grey import GreyValues, rounded_grey
from hushpore.pores.void.rolling_ball import count_crossings, face_neighbours
from hushpore.pores.void.threshold import make_void, survey
from hushpore.pores.watershed.basins import watershed_slab
from hushpore.pores.watershed.distance import edge_plane, fill_distance
from hushpore.pores.watershed.graph import Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.device.switches import Choices
    from hushpore.device.timing import StageTimer
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Scratch, Slabs, Stack
    from hushpore.pores.void.grey import RoundedGrey
    from hushpore.pores.void.histogram import Histogram
    from hushpore.pores.void.threshold import Range
    from hushpore.pores.watershed.basins import SlabWatershed
    from hushpore.pores.watershed.graph import BasinGraph

    T = TypeVar("T")
    #: A step, or part of one: yields the fraction that is done.
    Step: TypeAlias = Generator[float, None, T]


class VoidCounts(NamedTuple):
    """Counts of the void, as arrays of the engine that found it."""

    totals: Any  # (3,): components, voxels of open void, voxels of closed void
    # (13,): pairs of void and surrounding air, by direction
    air_crossings: Any
    air: Any  # voxels of each slice (in 2D: row) outside the sample


class Engine:
    """Engine on the CPU; base class of the engines on GPUs."""

    #: Whether a GPU holds all stacks, in one slab.
    holds_all = False

    #: Number of slab results in flight at once.
    under_way = 1

    def __init__(self, threads: KernelThreads) -> None:
        self.threads = threads

    # stacks

    def stack(
        self, scratch: Scratch, name: str, shape: Sequence[int], dtype: npt.DTypeLike
    ) -> Stack:
        """Return a new stack."""
        return scratch.stack(name, shape, dtype)

    def take(self, stack: Stack) -> Stack:
        """Return a stack of the host as a stack of this engine."""
        return stack

    def bring(self, scratch: Scratch, name: str, stack: Stack) -> Stack:
        """Return a stack of this engine as a stack of the host."""
        return stack

    def ahead(
        self, parts: Iterable[Any], arrays_of: Callable[[Any], Sequence[Any]]
    ) -> Generator[Any, None, None]:
        """Yield parts, possibly preparing the next one while one is processed.

        `arrays_of`: returns the arrays of a part that are passed to this engine (same objects).
        """
        yield from parts

    def behind(self, steps: Iterable[Any]) -> Generator[Any, None, None]:
        """Yield the items of `steps` once their results have arrived.

        `steps`: each item calls `fill_distance` or `watershed_slab` once.
        """
        yield from steps

    # grey values

    def grey(
        self, volume: Volume, slabs: Slabs, choices: Choices | None, timer: StageTimer | None
    ) -> Any:
        """Return the grey values of a volume: `GreyValues`, or the equivalent of this engine."""
        return GreyValues(volume, slabs, choices, timer)

    def survey(
        self, values: Any, with_histogram: bool, padding: float | None
    ) -> Step[tuple[Range, Histogram | None]]:
        """Find the range of grey values, and their histogram if requested."""
        return survey(values, with_histogram, self.threads, padding)

    def rounded(self, values: Any, low: float, high: float) -> RoundedGrey | None:
        """Return grey values rounded for exact sums; None if no sum needs them."""
        return rounded_grey(values, low, high)

    def void(self, values: Any, threshold: float | None, bright: bool, room: Any) -> Any:
        """Return 1 where values are beyond a threshold, else 0, uint8; `room`: output array."""
        make_void(values, threshold, bright, self.threads, room.view(np.bool_))
        return room

    # the void

    def components(self, faces: tuple[bool, bool, bool], slabs: Slabs) -> Any:
        """Return a finder of 6-connected components of the void, which marks open ones.

        `faces`: see `Components`.
        """
        return _SlabComponents(faces, slabs, self.threads)

    def is_all_void(self, void_state: Stack, slabs: Slabs) -> bool:
        """Return whether there is no solid."""
        return all(bool(void_state.read(first, last).all()) for first, last in slabs)

    def count_air(self, lines: Any) -> Any:
        """Count the voxels outside the sample in each slice (in 2D: row), int64."""
        return np.array([np.count_nonzero(line >= AIR) for line in lines], np.int64)

    def air_crossings(self, void_state: Any) -> Any:
        """Count the pairs of a void and an air voxel that are neighbours, by direction."""
        air = void_state >= AIR
        return count_crossings((void_state != SOLID) & ~air, air)

    # its distances and basins

    def fill_distance(
        self,
        void_state: Any,
        room: Any,
        before: Any,
        after: Any,
        spacing: Sequence[float],
        solid_beyond: Sequence[bool],
        highest: int = 1,
        within: float = np.inf,
    ) -> Any:
        """Return the squared distance in a slab; see `watershed.distance.fill_distance`.

        `room`: output array. `before`, `after`: None at the ends of the stack.
        """
        edge = edge_plane(void_state.shape, solid_beyond[0])
        beside = edge if before is None else before, edge if after is None else after
        fill_distance(
            void_state, room, *beside, spacing, solid_beyond, self.threads, highest, within
        )
        return room

    def clear_air(self, distance: Any, void_state: Any) -> None:
        """Set the distance to 0 in air, in place."""
        distance[void_state >= AIR] = 0

    def watershed_slab(
        self,
        distance: Any,
        pointers: Any,
        first: int,
        last: int,
        count: int = 0,
        *,
        faces_only: bool = False,
    ) -> SlabWatershed:
        """Find the basins of a slab; see `watershed.basins.watershed_slab`."""
        # slices beside the slab are overwritten, too
        before = pointers[:first].copy()
        how = (distance, pointers, self.threads, first, last, count)
        found = watershed_slab(*how, faces_only=faces_only)
        pointers[:first] = before
        return found

    def tables(self, shape: Sequence[int], peaks: Any, *, faces_only: bool = False) -> Any:
        """Return the accumulator that measures basins and contacts slab by slab: `Tables`."""
        return Tables(shape, peaks, faces_only=faces_only)

    def graph(
        self, tables: Any, counts: VoidCounts, grey_step: float
    ) -> tuple[BasinGraph, VoidCounts]:
        """Return the graph of all basins and the counts of the void, on the host."""
        return tables.graph(grey_step, counts.air_crossings), counts


class _SlabComponents:
    """Components of a void that is processed slab by slab, on the CPU."""

    def __init__(
        self, faces: tuple[bool, bool, bool], slabs: Slabs, threads: KernelThreads
    ) -> None:
        self._components, self._threads = Components(faces, slabs), threads

    def add_holding(self, void_state: Any, values: Any, limit: float, bright: bool) -> None:
        """Add the next slab; mark components that contain a value beyond a limit."""
        runs = find_runs(void_state, self._threads)
        self._components.add(runs, runs.holding(make_void(values, limit, bright, self._threads)))

    def add(self, void_state: Any, around: Any = None, begin: int = 0) -> None:
        """Add the next slab; mark components that reach a face.

        `around`: void states including the slices beside the slab, which starts at slice `begin`;
        components next to air are then marked, too.
        """
        runs, marked = find_runs(void_state, self._threads), None
        if around is not None:
            marked = runs.holding(face_neighbours(around >= AIR)[begin:][: len(void_state)])
        self._components.add(runs, marked)

    def classify(self, void_state: Stack, marked: int, unmarked: int) -> Step[Any]:
        """Write one void state for marked components and one for others, after the last slab.

        Returns: (3,), int64: number of components, voxels of marked ones, voxels of others.
        """
        components = self._components
        components.join()
        state_of = np.where(components.is_open, marked, unmarked).astype(np.uint8)
        for slab, (first, last) in enumerate(components.slabs):
            part = void_state.read(first, last)
            components.paint(slab, part, state_of, self._threads)
            void_state.write(first, part)
            yield last / components.slabs.depth
        opened, closed, count = components.totals
        return np.array([count, opened, closed], np.int64)
