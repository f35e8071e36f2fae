"""Where the void, its basins and their graph are found: on a GPU as far as can be, else on the CPU.

A GPU that holds a stack with its grey values finds all of it. Else the void is found on the host,
and the rest on the GPU, in slabs that it holds; where even the thinnest is too much, on the CPU.
The steps are the same ones (`hushpore.pores.slab_steps`), and what does them to slabs is an engine.
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hushpore.base.errors import DeviceError
from hushpore.base.events import Attention, Driver, Note, Preview, Progress
from hushpore.base.rescaled import Scaled, held
from hushpore.device.backend import Backend
from hushpore.device.clocks import HostClock
from hushpore.device.memory import arrays_apart, free_pools, give_back_freed, is_out_of_memory
from hushpore.device.timing import StageTimer
from hushpore.pores.engine import Engine, VoidCounts
from hushpore.pores.gpu.opening import holds_values, in_one_piece, open_gpu, room_on
from hushpore.pores.gpu.slabs import GpuSlabs
from hushpore.pores.gpu.void import why_on_host
from hushpore.pores.gpu.whole import GpuWhole
from hushpore.pores.memory_plan import check_tables
from hushpore.pores.slab_steps import (
    classify_void,
    find_air,
    find_basins,
    find_closed,
    find_distance,
    find_grey_value,
    find_void,
    measure_basins,
    read_values,
)
from hushpore.pores.work import Threshold, VoidTotals, void_totals_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any, TypeVar

    import torch

    from hushpore.base.events import Event, Job, Subject
    from hushpore.base.volume import Volume
    from hushpore.device.clocks import Clock
    from hushpore.pores.engine import Pass
    from hushpore.pores.slabs import Slabs, Stack
    from hushpore.pores.void.grey import RoundedGrey
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.work import Work

    T = TypeVar("T")

#: Voxels of the volume a basin, of which and of fewer a volume may be noise.
_FEW = 200

#: Bytes that are given back to the system, though pages are taken anew then, which takes time.
_WORTH_GIVING = 1 << 24


def is_noise(work: Work, basins: int) -> bool:
    """Whether so many basins may be noise, of which tables take more room than voxels."""
    return basins * _FEW > math.prod(work.shape)


class Stages:
    """Runs the passes of a job as timed stages; says how far they are and shows what they do.

    `timer`: times them; on the host's clock, until it is told of another.
    """

    def __init__(self, volume: Volume, timer: StageTimer | None = None) -> None:
        self.timer = timer or StageTimer()
        self.timer.run_on(HostClock())
        self.slices = volume.spatial_shape[0] if volume.n_spatial == 3 else 1
        self.voxels = math.prod(volume.shape)
        # of two slices in the middle the first, as viewers open it
        self._looked_at = (self.slices - 1) // 2
        self._is_stack = volume.n_spatial == 3
        self._done = 0.05
        # what has slices to show, and what was shown last
        self._whole: Stack | None = None
        self._shown: tuple[Stack, int] | None = None

    def show(self, stack: Stack, share: float = 1.0) -> Generator[Preview, None, None]:
        """Preview the slice that is being looked at, where that is new.

        Until a pass comes to it, it is that of the stack of the pass before.
        """
        at = self._looked_at
        newest = stack if at < round(share * self.slices) else self._whole
        if share == 1:
            self._whole = stack
        if newest is not None and (newest, at) != self._shown:
            self._shown = newest, at
            image = newest.read(at, at + 1)[0].copy()
            yield Preview("labels", image, (at,) if self._is_stack else ())

    def _heed(self, answer: object) -> None:
        """Remember which slice is looked at, where that was the answer to a `Progress`."""
        if isinstance(answer, Attention) and self._is_stack and len(answer.index) == 1:
            self._looked_at = min(max(answer.index[0], 0), self.slices - 1)

    def prepare(self, work: Generator[Progress, None, None]) -> Job:
        """Make ready as a stage of its own."""
        with closing(work) as preparing:
            while True:
                with self.timer.stage("preparing"):
                    progress = next(preparing, None)
                if progress is None:
                    return
                self._heed((yield progress))

    def run(
        self, stage: str, work: Pass[T], until: float, shown: Stack | None = None, nbytes: int = 0
    ) -> Generator[Event, Any, T]:
        """Run a pass, up to some share of the whole job; without a stage it times its own.

        What is counted is `nbytes` where it moves some, else voxels.

        Slices of the stack `shown`, which the pass writes in their order, are previewed.
        """
        start = self._done
        # what was begun elsewhere, and could not be done there, goes on from where it was
        until = max(until, start)
        if stage:
            work = self.timer.timed(stage, work, nbytes, 0 if nbytes else self.voxels)
        with Driver(work) as driver:
            for share in driver:
                self._done = start + (until - start) * share
                slices = round(share * self.slices)
                name = stage or "basins"
                self._heed((yield Progress(name, slices, self.slices, "slices", self._done)))
                stack = shown or self._whole
                if stack is not None:
                    yield from self.show(stack, share if shown else 1.0)
        self._done = until
        return driver.result


class Segmented(NamedTuple):
    """Basins and their graph, and where they were found."""

    work: Work  # its volume in memory, where it was read into it
    backend: Backend
    threshold: Threshold
    void: VoidTotals
    basins: Stack
    graph: BasinGraph
    distance: Stack | None  # in the void, where it is needed further
    phase: Stack | None  # the void and the solid, likewise


class _Void(NamedTuple):
    """The void, as an engine has found it."""

    phase: Stack
    counts: VoidCounts
    threshold: Threshold
    grey: RoundedGrey | None  # what sums take of the grey values


class Pipeline:
    """Finds all that is measured of a volume, and says what is to be said.

    `backend`: where to. Whoever made it releases it. `notes`: what was said; told what is.
    """

    def __init__(self, work: Work, backend: Backend, stages: Stages, notes: list[Note]) -> None:
        self._work, self._backend, self._stages, self._notes = work, backend, stages, notes
        # once the host has found it: what is tried next begins with it
        self._void: _Void | None = None
        # the grey values, where a job before has left them on the GPU
        self._resident: torch.Tensor | None = None
        if backend.resident is not None:
            self._resident = backend.resident.take(work.volume.data, backend.device)

    def run(self) -> Generator[Event, None, Segmented]:
        """Find it, where that can be done."""
        if self._backend.is_cuda:
            reason = "the GPU's memory ran out"
            try:
                found = yield from self._on_gpu()
                if found is not None:
                    return found
            except DeviceError as error:
                reason = str(error)
            self._backend, self._resident = Backend(reason=reason), None
            yield from self._say(f"Pores are segmented on the CPU: {reason}.", warning=True)
        yield from self._find_void_on_host()
        return (yield from self._find(Engine(self._work.threads), self._work.slabs))

    def _on_gpu(self) -> Generator[Event, None, Segmented | None]:
        """Find it in thinner and thinner slabs; None where none was thin enough."""
        timer, threads = self._stages.timer, self._work.threads
        with timer.stage("preparing"):
            gpu, ways = open_gpu(self._backend, self._work)
            from_values = self._begins_on_gpu(ways[0])
            if self._resident is not None and not from_values:
                # they would lie where there is work to do
                self._resident = None
                free_pools()
                gpu, ways = open_gpu(self._backend, self._work)
                from_values = self._begins_on_gpu(ways[0])
        clock = self._backend.clock()
        for number, slabs in enumerate(ways):
            is_whole = in_one_piece(self._work, slabs)
            if from_values and number == 0:
                yield from self._read_stored()
            else:
                yield from self._find_void_on_host()
            if not is_whole:
                thick = f"orked on in {len(slabs)} slabs of {slabs.thickness} slices on the GPU."
                text = f"The GPU's memory ran out: w{thick}" if number else f"W{thick}"
                yield from self._say(text, warning=bool(number))
            engine: Engine
            if is_whole:
                engine, self._resident = GpuWhole(gpu, threads, timer, self._resident), None
            else:
                engine = GpuSlabs(gpu, threads, timer, self._backend.choices)
            try:
                with self._timed_on(clock):
                    return (yield from self._find(engine, slabs))
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            del engine
            # what one library holds and does not use, the other cannot have
            free_pools()
        return None

    def _find(self, engine: Engine, slabs: Slabs) -> Generator[Event, None, Segmented]:
        """Find it by an engine, which finds the void first where the host has not."""
        work = dataclasses.replace(self._work, engine=engine, slabs=slabs)
        timer, run, settings = self._stages.timer, self._stages.run, work.settings
        of_host = self._void
        void = of_host or (yield from self._find_void(work))
        phase, counts, threshold, grey = void
        del void
        if of_host is not None:
            phase = engine.take(phase)
        closed = yield from run("void", find_closed(work, phase), 0.21)
        distance = yield from run("distance", find_distance(work, phase), 0.4)
        kept = self._void.phase if self._void is not None and settings.keeps_void else None
        # where a GPU's memory runs out before the end, the void of the host is needed again
        is_last = type(engine) is Engine
        if is_last and kept is None:
            phase.close()
            if phase.nbytes >= _WORTH_GIVING:
                # it may lie between what is in use, where what is freed stays with the process
                give_back_freed()
        unstitched = yield from run("basins", find_basins(work, distance), 0.6)
        count = unstitched.found.count
        check_tables(work.volume, settings, slabs, count)
        # a viewer is shown what the host has
        shown = None if engine.holds_all else unstitched.stack
        measuring = measure_basins(work, unstitched, closed, distance, grey)
        # tables of noise take more room than its voxels
        with arrays_apart() if is_noise(work, count) else nullcontext():
            tables = yield from run("measuring", measuring, 0.85, shown)
            closed.close()
            if not settings.keeps_distance:
                distance.close()
            with timer.stage("measuring"):
                graph, counts = engine.graph(tables, counts, 1.0 if grey is None else grey.step)
            del tables, grey
        basins = engine.bring(work.scratch, "basins", unstitched.stack)
        del unstitched
        left = engine.bring(work.scratch, "distance", distance) if settings.keeps_distance else None
        if self._void is not None and kept is None:
            self._void.phase.close()
        phases = void_totals_of(work, counts)
        if of_host is None:
            # not before, as it may be found once more
            yield from self._warn(threshold.problem)
        yield from self._warn(phases.problem)
        where = self._work, self._backend
        return Segmented(*where, threshold, phases, basins, graph, left, kept)

    def _find_void_on_host(self) -> Generator[Event, None, None]:
        """Find the void on the host, where it is not found yet, of values read into memory."""
        if self._void is not None:
            return
        volume, slabs = self._work.volume, self._work.slabs
        if not slabs.on_disk and not isinstance(volume.data, np.ndarray):
            reading = read_values(volume, slabs)
            values = yield from self._stages.run("reading", reading, 0.1, nbytes=volume.nbytes)
            self._work = dataclasses.replace(self._work, volume=values)
        self._void = yield from self._find_void(self._work)
        yield from self._warn(self._void.threshold.problem)

    def _find_void(self, work: Work) -> Generator[Event, None, _Void]:
        """Find the void, and tell open from closed."""
        run = self._stages.run
        grey = yield from run("threshold", find_grey_value(work), 0.15)
        threshold, rounded = grey.threshold, grey.rounded
        phase = yield from run("void", find_void(work, grey), 0.17)
        del grey
        air = yield from run("void", find_air(work, phase), 0.19)
        counts = yield from run("void", classify_void(work, phase, air), 0.2)
        return _Void(phase, counts, threshold, rounded)

    def _begins_on_gpu(self, slabs: Slabs) -> bool:
        """Whether the void is found on the GPU, too; told with its reason."""
        work, choices = self._work, self._backend.choices
        reason = why_on_host(work.volume, work.settings, work.padding)
        room = room_on(self._backend)
        if self._resident is not None:
            room += self._resident.nbytes
        if not reason and not holds_values(work, slabs, room):
            reason = "the GPU does not hold the volume with its grey values"
        asked = choices.asked("void")
        if asked is not None and not (asked and reason):
            return choices.record("void", asked, "as requested")
        kind = np.dtype(held(work.volume.data).dtype).name
        stay = f"{kind} values cross as they are"
        if self._resident is not None:
            stay = f"{kind} values are there already"
        return choices.record("void", not reason, reason or stay)

    def _read_stored(self) -> Generator[Event, None, None]:
        """Read what is to cross into memory: of the integers of a scanner these alone."""
        volume = self._work.volume
        stored: Volume = volume.replace(held(volume.data))
        if isinstance(stored.data, np.ndarray):
            return
        reading = read_values(stored, self._work.slabs)
        stored = yield from self._stages.run("reading", reading, 0.1, nbytes=stored.nbytes)
        data, read = volume.data, stored.data
        values = data.with_stored(read) if isinstance(data, Scaled) else read
        self._work = dataclasses.replace(self._work, volume=volume.replace(values))

    @contextmanager
    def _timed_on(self, clock: Clock) -> Iterator[None]:
        timer = self._stages.timer
        timer.run_on(clock)
        try:
            yield
        finally:
            timer.run_on(HostClock())

    def _warn(self, problem: str) -> Generator[Event, None, None]:
        if problem:
            yield from self._say(problem, warning=True, subject="result")

    def _say(
        self, text: str, *, warning: bool, subject: Subject = "run"
    ) -> Generator[Event, None, None]:
        self._notes.append(Note(text, warning, subject))
        yield self._notes[-1]
