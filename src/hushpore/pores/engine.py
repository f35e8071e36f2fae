"""What is done to the slabs of a stack, by the CPU; a GPU has engines of its own (`pores/gpu`).

Steps (`hushpore.pores.slab_steps`) walk over slabs, put together what is found in each, and know
nothing of where it was found. All of these functions are given slabs that come from stacks of the
engine, and what they return goes there.
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
    #: A step, or part of one: yields the share of it that is done.
    Pass: TypeAlias = Generator[float, None, T]


class VoidCounts(NamedTuple):
    """What is counted of the void, as arrays of the engine that has found it."""

    totals: Any  # (3,): components, voxels of open ones, voxels of closed ones
    # (13,): crossings between void and the air outside, by direction
    air_crossings: Any
    air: Any  # voxels of each slice (row, in 2D) that are not of the sample


class Engine:
    """The CPU."""

    #: Whether stacks stay on a GPU, which holds all of them: there is one slab.
    holds_all = False

    #: Results of slabs that are under way at once.
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
        """Return a stack of the host as one of this engine."""
        return stack

    def bring(self, scratch: Scratch, name: str, stack: Stack) -> Stack:
        """Return a stack of this engine as one of the host."""
        return stack

    def ahead(
        self, parts: Iterable[Any], arrays_of: Callable[[Any], Sequence[Any]]
    ) -> Generator[Any, None, None]:
        """Yield parts, of which the next may be made while one is worked on.

        `arrays_of`: those of its arrays that this engine is given, the very objects.
        """
        yield from parts

    def behind(self, steps: Iterable[Any]) -> Generator[Any, None, None]:
        """Yield what each step gives when its result is there.

        `steps`: each calls `fill_distance` or `watershed_slab` once.
        """
        yield from steps

    # grey values

    def grey(
        self, volume: Volume, slabs: Slabs, choices: Choices | None, timer: StageTimer | None
    ) -> Any:
        """Return the grey values of a volume: `GreyValues`, or what this engine has for them."""
        return GreyValues(volume, slabs, choices, timer)

    def survey(
        self, values: Any, with_histogram: bool, padding: float | None
    ) -> Pass[tuple[Range, Histogram | None]]:
        """Find the range of grey values, and their histogram where that is wanted."""
        return survey(values, with_histogram, self.threads, padding)

    def rounded(self, values: Any, low: float, high: float) -> RoundedGrey | None:
        """Return what sums take for grey values; None where none takes any."""
        return rounded_grey(values, low, high)

    def void(self, values: Any, threshold: float | None, bright: bool, room: Any) -> Any:
        """Return 1 where values are beyond a threshold, else 0, uint8; `room`: where to."""
        make_void(values, threshold, bright, self.threads, room.view(np.bool_))
        return room

    # the void

    def parts(self, faces: tuple[bool, bool, bool], slabs: Slabs) -> Any:
        """Return what finds the 6-connected parts of a void, and marks those that are open.

        `faces`: see `Components`.
        """
        return _Parts(faces, slabs, self.threads)

    def is_all_void(self, phase: Stack, slabs: Slabs) -> bool:
        """Return whether there is no solid."""
        return all(bool(phase.read(first, last).all()) for first, last in slabs)

    def count_air(self, lines: Any) -> Any:
        """Count what is not of the sample in each of some slices (rows, in 2D), int64."""
        return np.array([np.count_nonzero(line >= AIR) for line in lines], np.int64)

    def air_crossings(self, phase: Any) -> Any:
        """Count the neighbours of which one is void and one is air, by direction."""
        air = phase >= AIR
        return count_crossings((phase != SOLID) & ~air, air)

    # its distances and basins

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

        `room`: where to. `before`, `after`: None at the ends of the stack.
        """
        edge = edge_plane(phase.shape, solid_outside[0])
        beside = edge if before is None else before, edge if after is None else after
        fill_distance(phase, room, *beside, spacing, solid_outside, self.threads, highest, within)
        return room

    def clear_air(self, distance: Any, phase: Any) -> None:
        """Set the distance to 0 where there is air, in place."""
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
    ) -> SlabWatershed:
        """Find the basins of a slab; see `watershed.basins.watershed_slab`."""
        # what lies beside the slab is written, too
        before = pointers[:first].copy()
        how = (distance, pointers, self.threads, first, last, count)
        found = watershed_slab(*how, faces_only=faces_only)
        pointers[:first] = before
        return found

    def tables(self, shape: Sequence[int], peaks: Any, *, faces_only: bool = False) -> Any:
        """Return what measures basins slab by slab, and finds where they touch: `Tables`."""
        return Tables(shape, peaks, faces_only=faces_only)

    def graph(
        self, tables: Any, counts: VoidCounts, grey_step: float
    ) -> tuple[BasinGraph, VoidCounts]:
        """Return the graph of all basins, and what was counted of the void, on the host."""
        return tables.graph(grey_step, counts.air_crossings), counts


class _Parts:
    """The parts of a void that is met slab by slab, on the CPU."""

    def __init__(
        self, faces: tuple[bool, bool, bool], slabs: Slabs, threads: KernelThreads
    ) -> None:
        self._components, self._threads = Components(faces, slabs), threads

    def add_holding(self, phase: Any, values: Any, limit: float, bright: bool) -> None:
        """Add the next slab; parts that hold a value beyond a limit are marked."""
        runs = find_runs(phase, self._threads)
        self._components.add(runs, runs.holding(make_void(values, limit, bright, self._threads)))

    def add(self, phase: Any, around: Any = None, begin: int = 0) -> None:
        """Add the next slab; parts that reach a face are marked.

        `around`: phases with the slices beside the slab, which begins with slice `begin`, where
        parts beside air are marked, too.
        """
        runs, marked = find_runs(phase, self._threads), None
        if around is not None:
            marked = runs.holding(face_neighbours(around >= AIR)[begin:][: len(phase)])
        self._components.add(runs, marked)

    def classify(self, phase: Stack, marked: int, unmarked: int) -> Pass[Any]:
        """Write a phase label for marked parts, and one for others, once all slabs are added.

        Returns: (3,), int64: how many parts there are, voxels of marked ones, voxels of others.
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
