"""Choice of the device that finds the void, its basins and their graph: a GPU if possible.

A GPU with enough memory for a stack and its grey values does all steps. Otherwise the host finds
the void, and the GPU does the other steps in slabs that fit into its memory; if even the thinnest
slabs do not fit, the CPU does them. The steps are the same (`hushpore.pores.slab_steps`), and an
engine does their computations.
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hushpore.base.errors import DeviceError
from hushpore.base.events import Attention, Driver, Note, Preview, Progress
from hushpore.base.rescaled import Scaled, held
from hushpore.device.backend import Backend
from hushpore.device.memory import arrays_apart, free_pools, give_back_freed, is_out_of_memory
from hushpore.device.timing import HostClock, StageTimer
from hushpore.pores.engine import Engine, VoidCounts
from hushpore.pores.gpu.engines import (
    GpuSlabs,
    GpuWhole,
    holds_values,
    in_one_piece,
    open_gpu,
    room_on,
)
from hushpore.pores.gpu.void import why_on_host
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
from hushpore.pores.void.threshold import AS_IS
from hushpore.pores.work import Threshold, VoidTotals, check_tables, void_totals_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any, TypeVar

    from hushpore.base.arrays import Int32s
    from hushpore.base.events import Event, Job, Subject
    from hushpore.base.volume import Volume
    from hushpore.device.timing import Clock
    from hushpore.pores.engine import Pass
    from hushpore.pores.slabs import Slabs, Stack
    from hushpore.pores.void.threshold import RoundedGrey
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.work import Work

    T = TypeVar("T")

#: Voxels of the volume per basin, below which a volume may be noise.
_FEW = 200

#: Bytes from which freed memory is returned to the system, although allocating it again takes time.
_WORTH_GIVING = 1 << 24


def is_noise(work: Work, basins: int) -> bool:
    """Whether a volume with so many basins may be noise, so that tables take more than voxels."""
    return basins * _FEW > math.prod(work.shape)


class Stages:
    """Runs the passes of a job as timed stages, with progress and previews.

    `timer`: timer of the stages, on the host's clock until `StageTimer.run_on` changes it.
    """

    def __init__(self, volume: Volume, timer: StageTimer | None = None) -> None:
        self.timer = timer or StageTimer()
        self.timer.run_on(HostClock())
        self.slices = volume.spatial_shape[0] if volume.n_spatial == 3 else 1
        self.voxels = math.prod(volume.shape)
        # the lower of two middle slices, as viewers open it
        self._looked_at = (self.slices - 1) // 2
        self._is_stack = volume.n_spatial == 3
        self._done = 0.05
        # the stack to preview, and the stack and slice of the last preview
        self._whole: Stack | None = None
        self._shown: tuple[Stack, int] | None = None

    def show(self, stack: Stack, share: float = 1.0) -> Generator[Preview, None, None]:
        """Preview the slice that the viewer shows, if the preview has changed.

        Until a pass reaches the slice, the stack of the previous pass is shown.
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
        """Remember the slice that the viewer shows, if the answer to a `Progress` names one."""
        if isinstance(answer, Attention) and self._is_stack and len(answer.index) == 1:
            self._looked_at = min(max(answer.index[0], 0), self.slices - 1)

    def prepare(self, work: Generator[Progress, None, None]) -> Job:
        """Run the preparation of a job as the timed stage "preparing"."""
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
        """Run a pass as a timed stage; an empty stage name means that the pass times its own.

        `until`: fraction of the whole job that is done after the pass. `shown`: stack to preview,
        whose slices the pass writes in order. `nbytes`: bytes that the pass moves, for its
        throughput; by default voxels are counted.
        """
        start = self._done
        # a pass that is repeated on another device does not move the progress back
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
    """Basins and their graph, and the device that found them."""

    work: Work  # its volume is in memory if it was read
    backend: Backend
    threshold: Threshold
    void: VoidTotals
    basins: Stack
    graph: BasinGraph
    distance: Stack | None  # squared distance in the void, if needed later
    phase: Stack | None  # phase labels, if needed later
    # returns the labels of the basins on the GPU, if they stay there, for a label of each
    relabelled: Callable[[Int32s], Any] | None = None


class _Void(NamedTuple):
    """The void that an engine has found."""

    phase: Stack
    counts: VoidCounts
    threshold: Threshold
    grey: RoundedGrey | None  # rounded grey values for sums; None for a mask


class Pipeline:
    """Finds the void, its basins and their graph on a GPU or the CPU.

    `backend`: device to use; its owner releases it. `notes`: list to which notes are appended.
    """

    def __init__(self, work: Work, backend: Backend, stages: Stages, notes: list[Note]) -> None:
        self._work, self._backend, self._stages, self._notes = work, backend, stages, notes
        # the void if the host has found it, for each further attempt
        self._void: _Void | None = None

    def run(self) -> Generator[Event, None, Segmented]:
        """Find the void, basins and graph on the GPU, or on the CPU if that fails."""
        if self._backend.is_cuda:
            reason = "the GPU's memory ran out"
            try:
                found = yield from self._on_gpu()
                if found is not None:
                    return found
            except DeviceError as error:
                reason = str(error)
            self._backend = Backend(reason=reason)
            yield from self._say(f"Pores are segmented on the CPU: {reason}.", warning=True)
        yield from self._find_void_on_host()
        return (yield from self._find(Engine(self._work.threads), self._work.slabs))

    def find_phase(self) -> Generator[Event, None, Stack]:
        """Find the void on the CPU and return its phase labels, classified as open or closed."""
        yield from self._find_void_on_host()
        assert self._void is not None
        return self._void.phase

    def _on_gpu(self) -> Generator[Event, None, Segmented | None]:
        """Try the GPU with thinner and thinner slabs; None if its memory is too small for all."""
        timer, threads = self._stages.timer, self._work.threads
        with timer.stage("preparing"):
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
            engine = GpuWhole(gpu, threads, timer) if is_whole else GpuSlabs(gpu, threads, timer)
            try:
                with self._timed_on(clock):
                    return (yield from self._find(engine, slabs))
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                gpu.drop_fetches()
            del engine
            # return unused memory of one library's pool, so that the other can allocate it
            free_pools()
        return None

    def _find(self, engine: Engine, slabs: Slabs) -> Generator[Event, None, Segmented]:
        """Run all steps on an engine, except for the void if the host has found it."""
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
        # keep the host's void until a GPU is done, in case its memory runs out
        is_last = type(engine) is Engine
        if is_last and kept is None:
            phase.close()
            if phase.nbytes >= _WORTH_GIVING:
                # the freed block may lie between used ones, so that malloc would keep it
                give_back_freed()
        finding = find_basins if work.labels is None else work.labels.find
        unstitched = yield from run("basins", finding(work, distance), 0.6)
        count = unstitched.found.count
        check_tables(work.volume, settings, slabs, count)
        # a GPU that holds all has no slabs to stitch, and copies basins while it measures them
        basins = engine.bring(work.scratch, "basins", unstitched.stack, count)
        # preview only stacks in host memory
        shown = None if engine.holds_all else unstitched.stack
        measuring = measure_basins(work, unstitched, closed, distance, grey)
        # in noise, tables take more memory than voxels
        with arrays_apart() if is_noise(work, count) else nullcontext():
            tables = yield from run("measuring", measuring, 0.85, shown)
            closed.close()
            if not settings.keeps_distance:
                distance.close()
            with timer.stage("measuring"):
                rounding = AS_IS if grey is None else grey.rounding
                graph, counts = engine.graph(tables, counts, rounding)
            del tables, grey
        left = engine.bring(work.scratch, "distance", distance) if settings.keeps_distance else None
        relabelled = None
        if self._backend.keeps_labels and engine.holds_all:
            relabelled = partial(engine.relabelled, unstitched.stack.read(0, slabs.depth))
        del unstitched
        if self._void is not None and kept is None:
            self._void.phase.close()
        phases = void_totals_of(work, counts)
        if of_host is None:
            # not earlier, since another attempt may find the void again and repeat the warning
            yield from self._warn(threshold.problem)
        yield from self._warn(phases.problem)
        where = self._work, self._backend
        return Segmented(*where, threshold, phases, basins, graph, left, kept, relabelled)

    def _find_void_on_host(self) -> Generator[Event, None, None]:
        """Read the grey values into memory and find the void on the host, unless it is known."""
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
        """Find the void and classify it as open or closed."""
        run = self._stages.run
        grey = yield from run("threshold", find_grey_value(work), 0.15)
        threshold, rounded = grey.threshold, grey.rounded
        if work.labels is not None:
            rounded = yield from run("measuring", work.labels.grey(work), 0.16)
        phase = yield from run("void", find_void(work, grey), 0.17)
        del grey
        air = yield from run("void", find_air(work, phase), 0.19)
        counts = yield from run("void", classify_void(work, phase, air), 0.2)
        return _Void(phase, counts, threshold, rounded)

    def _begins_on_gpu(self, slabs: Slabs) -> bool:
        """Whether the GPU finds the void, too; the choice is recorded with its reason."""
        work = self._work
        reason = why_on_host(work.volume, work.settings, work.padding)
        if not reason and not holds_values(work, slabs, room_on(self._backend)):
            reason = "the GPU does not hold the volume with its grey values"
        kind = np.dtype(held(work.volume.data).dtype).name
        return self._backend.choices.record(
            "void on GPU", not reason, reason or f"{kind} values cross as they are"
        )

    def _read_stored(self) -> Generator[Event, None, None]:
        """Read the values to copy to the GPU into memory; rescaled values as stored integers."""
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
