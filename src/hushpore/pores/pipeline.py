"""Where the void, its basins and their graph are found: on a GPU as far as can be, else on the CPU.

A GPU that holds a stack with its grey values finds all of it. Else the void is found on the host,
and the rest on the GPU, in slabs that it holds; where even the thinnest is too much, on the CPU.
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hushpore.base.errors import DeviceError
from hushpore.base.events import Note
from hushpore.base.scaled import Scaled, held
from hushpore.device.backend import Backend
from hushpore.device.clocks import HostClock
from hushpore.device.memory import arrays_apart, free_pools, give_back_freed, is_out_of_memory
from hushpore.pores.gpu.passes import (
    find_from_values,
    find_from_void,
    holds_values,
    in_one_piece,
    open_gpu,
    room_on,
)
from hushpore.pores.gpu.slabs import GpuSlabs
from hushpore.pores.gpu.void import why_on_host
from hushpore.pores.passes import (
    Threshold,
    VoidPhases,
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
from hushpore.pores.plan import check_tables

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import torch

    from hushpore.base.events import Event
    from hushpore.base.volume import Volume
    from hushpore.device.clocks import Clock
    from hushpore.pores.gpu.engine import Gpu
    from hushpore.pores.passes import Work
    from hushpore.pores.slabs import Slabs, Stack
    from hushpore.pores.stages import Stages
    from hushpore.pores.void.grey import RoundedGrey
    from hushpore.pores.watershed.graph import BasinGraph

#: Voxels of the volume a basin, of which and of fewer a volume may be noise.
_FEW = 200

#: Bytes that are given back to the system, though pages are taken anew then, which takes time.
_WORTH_GIVING = 1 << 24


def is_noise(work: Work, basins: int) -> bool:
    """Whether so many basins may be noise, of which tables take more room than voxels."""
    return basins * _FEW > math.prod(work.shape)


class Segmented(NamedTuple):
    """Basins and their graph, and where they were found."""

    work: Work  # its volume in memory, where it was read into it
    backend: Backend
    threshold: Threshold
    void: VoidPhases
    basins: Stack
    graph: BasinGraph
    distance: Stack | None  # in the void, where it is needed further
    phase: Stack | None  # the void and the solid, likewise


class _Void(NamedTuple):
    """The void as the host has found it."""

    phase: Stack
    void_phases: VoidPhases
    threshold: Threshold
    grey: RoundedGrey | None  # what sums take of the grey values


class Pipeline:
    """Finds all that is measured of a volume, and says what is to be said.

    `backend`: where to. Whoever made it releases it. `notes`: what was said; told what is.
    """

    def __init__(self, work: Work, backend: Backend, stages: Stages, notes: list[str]) -> None:
        self._work, self._backend, self._stages, self._notes = work, backend, stages, notes
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
                with self._stages.timer.stage("preparing"):
                    gpu, ways = open_gpu(self._backend, self._work)
                    if self._resident is not None and not self._begins_on_gpu(ways[0]):
                        # they would lie where there is work to do
                        self._resident = None
                        free_pools()
                        gpu, ways = open_gpu(self._backend, self._work)
                found = yield from self._on_gpu(gpu, ways)
                if found is not None:
                    return found
            except DeviceError as error:
                reason = str(error)
            self._backend, self._resident = Backend(reason=reason), None
            yield from self._say(f"Pores are segmented on the CPU: {reason}.", warning=True)
        if self._void is None:
            self._void = yield from self._find_void()
        return (yield from self._in_slabs(self._work, None))

    def _on_gpu(self, gpu: Gpu, ways: list[Slabs]) -> Generator[Event, None, Segmented | None]:
        """Find it in thinner and thinner slabs; None where none was thin enough."""
        from_values = self._begins_on_gpu(ways[0])
        clock = self._backend.clock()
        for number, slabs in enumerate(ways):
            whole = from_values and number == 0
            if not whole and self._void is None:
                self._void = yield from self._find_void()
            if not in_one_piece(self._work, slabs):
                thick = f"orked on in {len(slabs)} slabs of {slabs.thickness} slices on the GPU."
                text = f"The GPU's memory ran out: w{thick}" if number else f"W{thick}"
                yield from self._say(text, warning=bool(number))
            if whole:
                yield from self._read_stored()
            try:
                with self._timed_on(clock):
                    return (yield from self._attempt(gpu, slabs, whole=whole))
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            # what one library holds and does not use, the other cannot have
            free_pools()
        return None

    def _attempt(self, gpu: Gpu, slabs: Slabs, *, whole: bool) -> Generator[Event, None, Segmented]:
        work, timer = self._work, self._stages.timer
        if whole:
            resident, self._resident = self._resident, None
            from_values = find_from_values(gpu, work, timer, resident)
            del resident
            run = self._stages.run("", from_values, 0.85)
            found, void_phases, threshold = yield from run
            yield from self._warn(threshold.problem)
            return Segmented(work, self._backend, threshold, void_phases, *found, None)
        if not in_one_piece(work, slabs):
            in_slabs = dataclasses.replace(work, slabs=slabs)
            return (
                yield from self._in_slabs(in_slabs, GpuSlabs(gpu, timer, self._backend.choices))
            )
        assert self._void is not None, "it was found first of all"
        phase, void_phases, threshold, grey = self._void
        from_void = find_from_void(gpu, work, phase, grey, void_phases.air_crossings, timer)
        found = yield from self._stages.run("", from_void, 0.85)
        return Segmented(work, self._backend, threshold, void_phases, *found, self._kept(phase))

    def _in_slabs(self, work: Work, gpu: GpuSlabs | None) -> Generator[Event, None, Segmented]:
        """Find it in the void slab by slab, where what is done to a slab may be done on a GPU."""
        assert self._void is not None, "it was found first of all"
        phase, void_phases, threshold, grey = self._void
        run = self._stages.run
        closed = yield from run("void", find_closed(work, phase), 0.21)
        distance = yield from run("distance", find_distance(work, phase, gpu), 0.4)
        # where a GPU's memory runs out before, the void is needed again
        kept = None if gpu is not None else self._kept(phase)
        if phase.nbytes >= _WORTH_GIVING:
            # it may lie between what is in use, where what is freed stays with the process
            give_back_freed()
        unstitched = yield from run("basins", find_basins(work, distance, gpu), 0.6)
        check_tables(work.volume, work.settings, work.slabs, unstitched.found.count)
        measuring = measure_basins(work, unstitched, closed, distance, grey, gpu)
        # tables of noise take more room than its voxels
        noise = is_noise(work, unstitched.found.count)
        with arrays_apart() if noise else nullcontext():
            tables = yield from run("measuring", measuring, 0.85, unstitched.stack)
            closed.close()
            if not work.settings.keeps_distance:
                distance.close()
            with self._stages.timer.stage("measuring"):
                step = 1.0 if grey is None else grey.step
                graph = tables.graph(step, void_phases.air_crossings)
        if gpu is not None:
            kept = self._kept(phase)
        how = self._work, self._backend, threshold, void_phases
        kept_distance = distance if work.settings.keeps_distance else None
        return Segmented(*how, unstitched.stack, graph, kept_distance, kept)

    def _kept(self, phase: Stack) -> Stack | None:
        """Return the void where it is measured further, else let it go."""
        if self._work.settings.keeps_void:
            return phase
        phase.close()
        return None

    def _find_void(self) -> Generator[Event, None, _Void]:
        """Find the void on the host, and tell open from closed."""
        volume, slabs, run = self._work.volume, self._work.slabs, self._stages.run
        if not slabs.on_disk and not isinstance(volume.data, np.ndarray):
            reading = read_values(volume, slabs)
            values = yield from run("reading", reading, 0.1, nbytes=volume.nbytes)
            self._work = dataclasses.replace(self._work, volume=values)
        work = self._work
        grey = yield from run("threshold", find_grey_value(work), 0.15)
        threshold, rounded = grey.threshold, grey.rounded
        phase = yield from run("void", find_void(work, grey), 0.17)
        del grey
        air = yield from run("void", find_air(work, phase), 0.19)
        void_phases = yield from run("void", classify_void(work, phase, air), 0.2)
        yield from self._warn(threshold.problem)
        yield from self._warn(void_phases.problem)
        return _Void(phase, void_phases, threshold, rounded)

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
            return choices.say("void", asked, "as asked")
        kind = np.dtype(held(work.volume.data).dtype).name
        stay = f"{kind} values cross as they are"
        if self._resident is not None:
            stay = f"{kind} values are there already"
        return choices.say("void", not reason, reason or stay)

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
            yield from self._say(problem, warning=True)

    def _say(self, text: str, *, warning: bool) -> Generator[Event, None, None]:
        self._notes.append(text)
        yield Note(text, warning=warning)
