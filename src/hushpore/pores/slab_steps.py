"""The steps of a pore segmentation: each walks over the slabs of a stack, once or back and forth.

A step is a generator: it yields the completed fraction after every slab, can be closed there, and
returns its result. Its voxel data go to stacks (`hushpore.pores.slabs`). An engine does the
computations on a slab: the CPU (`hushpore.pores.engine`); a GPU, to which slabs are copied
(`hushpore.pores.gpu.engines`); or a GPU that holds whole stacks as one slab, so that nothing is
copied between steps (`hushpore.pores.gpu.engines`).
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import part_of
from hushpore.pores.engine import VoidCounts
from hushpore.pores.geometry.thickness import LocalThickness, find_thickness
from hushpore.pores.slabs import Slabs
from hushpore.pores.void.components import (
    AIR,
    FILLED_IN,
    OPEN,
    SOLID,
    ball_around,
    closed_bits,
    find_filled_in,
    outside_of_slices,
)
from hushpore.pores.void.threshold import Range
from hushpore.pores.watershed.basins import Watershed, apply_labels
from hushpore.pores.watershed.distance import carry, edge_plane
from hushpore.pores.work import (
    Threshold,
    apply_mask,
    check_hysteresis,
    local_threshold,
    require_sample,
    require_solid,
    threshold_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from hushpore.base.arrays import Float32s, Int32s, Int64s, UInt8s
    from hushpore.base.volume import Volume
    from hushpore.pores.engine import Engine, Pass
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.slabs import Scratch, Stack
    from hushpore.pores.void.threshold import LocalThreshold, RoundedGrey
    from hushpore.pores.work import Work


class Grey(NamedTuple):
    """Grey values and the threshold between pores and solid."""

    values: Any  # grey values on the engine's device
    threshold: Threshold
    local: LocalThreshold | None = None
    rounded: RoundedGrey | None = None  # for sums of grey values; None for a mask


def read_values(volume: Volume, slabs: Slabs) -> Pass[Volume]:
    """Read a lazy array into memory: a volume slab by slab, a 2D image at once."""
    values = np.empty(volume.shape, volume.dtype.newbyteorder("="))
    data: Any = volume.data
    if volume.n_spatial == 2:
        values[...] = data
        yield 1.0
        return volume.replace(values)
    if hasattr(data, "read_into"):
        # by several threads that wait for each other only at the end
        for planes in data.read_into(values):
            yield planes / slabs.depth
        return volume.replace(values)
    for first, last in slabs:
        values[first:last] = data[first:last]
        yield last / slabs.depth
    return volume.replace(values)


def find_grey_value(work: Work) -> Pass[Grey]:
    """Check the grey values and return them with the given or automatic threshold."""
    settings, engine = work.settings, work.engine
    values = engine.grey(work.volume, work.slabs, work.timer)
    if values.dtype == np.bool_:
        return Grey(values, Threshold(None))
    with_histogram = isinstance(settings.threshold, str)
    (low, high, bad), histogram = yield from engine.survey(values, with_histogram, work.padding)
    rounded = engine.rounded(values, low, high)
    if settings.is_local:
        among = Range(low, high, bad)
        local = local_threshold(work.volume, settings, work.slabs.depth, among, work.padding)
        return Grey(values, Threshold(None), local, rounded)
    threshold = threshold_of(settings, low, high, histogram)
    check_hysteresis(settings, threshold.value)
    return Grey(values, threshold, rounded=rounded)


def find_void(work: Work, grey: Grey) -> Pass[Stack]:
    """Find the void beyond the threshold, with hysteresis if requested.

    Returns a stack of uint8 phase labels: `SOLID`, `OPEN` and `FILLED_IN`.
    """
    values, threshold, local = grey.values, grey.threshold.value, grey.local
    engine, bright = work.engine, work.settings.are_bright(values.dtype)
    strict = None if threshold is None else work.settings.hysteresis
    phase: Stack = engine.stack(work.scratch, "phase", work.shape, np.uint8)
    parts = engine.parts((False,) * 3, work.slabs)
    share = 1.0 if strict is None else 0.5
    grey_parts = values.in_slabs(None if local is None else local.slices)
    for (first, last), part in zip(work.slabs, grey_parts, strict=True):
        room = phase.room(first, last)
        if local is not None:
            local.void(part, first, last, work.threads, room.view(np.bool_))
        else:
            room = engine.void(part, threshold, bright, room)
        if work.padding is not None:
            own = part if local is None else part[first - local.slices(first, last)[0] :]
            room[find_filled_in(own[: last - first], work.padding, work.threads)] = FILLED_IN
        phase.write(first, room)
        if strict is not None:
            parts.add_holding(room, part, strict, bright)
        yield share * last / work.slabs.depth
    if strict is not None:
        # keep components with a value beyond the hysteresis threshold; faces do not matter here
        yield from part_of(parts.classify(phase, OPEN, SOLID), 0.5, 1.0)
    return phase


def find_air(work: Work, phase: Stack) -> Pass[Any]:
    """Mark the air around the sample.

    Returns the number of voxels outside the sample in each slice (row, in 2D).
    """
    engine = work.engine
    if not work.has_air:
        return np.zeros(work.volume.shape[0], np.int64)
    if work.settings.sample_mask:
        return (yield from _mask(work, phase))
    if work.settings.removes_air:
        require_solid(work.volume, not engine.is_all_void(phase, work.slabs))
        if engine.holds_all:
            engine.mark_outside(work, phase)
        else:
            ball = work.spacing, work.settings.ball_radius, work.is_slicewise
            yield from mark_outside(phase, work.slabs, work.scratch, *ball, engine)
    counts = []
    for first, last in work.slabs:
        part = phase.read(first, last)
        lines = part[0] if work.volume.n_spatial == 2 else part
        counts.append(engine.count_air(lines))
    return _joined(counts)


def mark_outside(
    phase: Stack,
    slabs: Slabs,
    scratch: Scratch,
    spacing: Sequence[float],
    radius: float,
    slicewise: bool,
    engine: Engine,
) -> Pass[None]:
    """Mark the air around the sample in the void as `AIR`, slab by slab.

    `phase`: (z, y, x), uint8: the void is `OPEN`; the ball also enters padding (`FILLED_IN`).
    `spacing`: voxel size in z, y, x order. `radius`: radius of the ball, in voxels of the smallest
    spacing. The ball is centred on a voxel and fits if the centres of all solid voxels are farther
    away than its radius. `slicewise`: whether to process each slice separately, with a disc instead
    of the ball: for a sample that extends from the first slice to the last, so that pores cut by
    these slices are not open to the air.

    Linear in the number of voxels: two distance transforms and one search for connected components,
    in a volume that is larger by the diameter of the ball (`outside_bytes`).
    """
    if slicewise:
        for first, last in slabs:
            part = phase.read(first, last)
            outside = outside_of_slices(part != SOLID, spacing, radius, engine.threads)
            part[outside & (part == OPEN)] = AIR
            phase.write(first, part)
            yield last / slabs.depth
        return
    ball = ball_around(phase.shape, spacing, radius, slicewise)
    shape, limit = ball.shape, ball.limit
    before, *inner = ball.inner[0].start, *ball.inner[1:]
    thickness = shape[0] if len(slabs) == 1 else min(slabs.thickness, shape[0])
    around = Slabs(shape[0], thickness, slabs.on_disk)
    balls = scratch.stack("balls", shape, np.uint8)
    for first, last in around:
        part = phase.read(first - before, last - before)
        room = balls.room(first, last)
        room[...] = 1
        place = max(first, before)
        room[place - first :][: len(part)][:, *inner] = part != SOLID
        balls.write(first, room)
    steps = balls, around, scratch, spacing, (False,) * 3, engine
    with closing(distances(*steps, within=limit)) as found:
        for first, distance in found:
            # where the ball fits
            balls.write(first, (distance > limit).view(np.uint8))
            yield 0.5 * (1 - first / around.depth)
    parts = engine.parts((False, False, True), around)
    for first, last in around:
        parts.add(balls.read(first, last))
    for _ in parts.classify(balls, OPEN, SOLID):
        pass
    for first, last in around:
        # swap the labels, so that the distance to the reached positions can be computed
        part = balls.read(first, last)
        balls.write(first, np.bitwise_xor(part, 1, out=part))
    with closing(distances(*steps, within=limit)) as found:
        for first, distance in found:
            place = max(first, before)
            part = phase.read(place - before, first + len(distance) - before)
            near = distance[place - first :][: len(part)][:, *inner] <= limit
            part[near & (part == OPEN)] = AIR
            phase.write(place - before, part)
            yield 1 - 0.5 * first / around.depth
    balls.close()


def _joined(arrays: list[Any]) -> Any:
    """Concatenate the arrays of slabs; a single array, which may be on a GPU, is returned as is."""
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]


def _mask(work: Work, phase: Stack) -> Pass[Int64s]:
    """Mark the void outside the sample mask as air; returns as `find_air`."""
    mask = work.volume.auxiliary_of(work.settings, "sample_mask")
    if tuple(mask.shape) != work.volume.shape:
        raise InputError(
            f"sample_mask needs labels or a mask of shape {work.volume.shape}; got points."
        )
    counts = []
    for first, last in work.slabs:
        part = phase.read(first, last)
        outside = apply_mask(work, part, first, last)
        phase.write(first, part)
        lines = outside[0] if work.volume.n_spatial == 2 else outside
        counts += [np.count_nonzero(line) for line in lines]
        yield last / work.slabs.depth
    return require_sample(work.volume, work.settings, np.array(counts, np.int64))


def classify_void(work: Work, phase: Stack, air: Any) -> Pass[VoidCounts]:
    """Classify the void as open or closed in the phase labels, and keep the requested pore type.

    `air`: voxels outside the sample in each slice, as `find_air` returns them.
    """
    engine, depth = work.engine, work.slabs.depth
    parts = engine.parts(work.faces, work.slabs)
    for first, last in work.slabs:
        around = phase.read(first - 1, last + 1) if work.has_air else None
        parts.add(phase.read(first, last), around, min(first, 1))
        yield 0.5 * last / depth
    totals = yield from part_of(parts.classify(phase, *work.states_kept), 0.5, 1.0)
    del parts
    open_to_air: Any = 0
    if work.has_air:
        for first, last in work.slabs:
            open_to_air = engine.air_crossings(phase.read(first, last + 1)) + open_to_air
            if last < depth:
                # do not count pairs inside the next slab twice
                open_to_air -= engine.air_crossings(phase.read(last, last + 1))
    return VoidCounts(totals, open_to_air, air)


def distances(
    phase: Stack,
    slabs: Slabs,
    scratch: Scratch,
    spacing: Sequence[float],
    solid_outside: Sequence[bool],
    engine: Engine,
    highest: int = 1,
    out: Stack | None = None,
    within: float = math.inf,
) -> Generator[tuple[int, Any], None, None]:
    """Find the squared distance in a stack slab by slab, from its last to its first.

    `phase`: (z, y, x), uint8: 1 to `highest` is void, all else is solid. `scratch`: for a stack of
    one slice per slab. `spacing`, `solid_outside`, `within`: as for `squared_distance`. `engine`:
    computes the distance in a slab. `out`: a stack of float32 for the whole distance map.
    Yields: first slice of a slab, and its squared distance, float32; without `out` a later slab
    overwrites it.
    """
    room_of = out.room if out is not None else _one_slab(slabs, phase.shape)
    # distances carried into each slab but the first from the slices before it
    carried = scratch.stack("carried", (len(slabs) - 1, *phase.shape[1:]), np.float32)
    forward = edge = edge_plane(phase.shape, solid_outside[0])
    for slab, (first, last) in enumerate(slabs):
        if last < slabs.depth:
            forward = carry(phase.read(first, last), forward, engine.threads, highest)
            carried.write(slab, forward[None])
    after = None
    for slab in reversed(range(len(slabs))):
        first, last = slabs[slab]
        states = phase.read(first, last)
        before = carried.read(slab - 1, slab)[0] if slab else None
        room = room_of(first, last)
        distance = engine.fill_distance(
            states, room, before, after, spacing, solid_outside, highest, within
        )
        yield first, distance
        if slab:
            beyond = edge if after is None else after
            after = carry(states, beyond, engine.threads, highest, back=True)
    carried.close()


def _one_slab(slabs: Slabs, shape: Sequence[int]) -> Callable[[int, int], Float32s]:
    """Return a function that provides the same array for each slab."""
    shared = np.empty((slabs.thickness, *shape[1:]), np.float32)
    return lambda first, last: shared[: last - first]


def find_distance(work: Work, phase: Stack) -> Pass[Stack]:
    """Find the squared distance to the solid, in the void; returns a stack of float32."""
    engine, slabs = work.engine, work.slabs
    distance: Stack = engine.stack(work.scratch, "distance", work.shape, np.float32)
    room = None if slabs.on_disk else distance
    how = work.spacing, work.solid_beyond, engine, work.highest_void, room
    with closing(distances(phase, slabs, work.scratch, *how)) as found:
        for first, part in found:
            if work.has_air:
                engine.clear_air(part, phase.read(first, first + len(part)))
            distance.write(first, part)
            yield 1 - first / slabs.depth
    return distance


class _SolidOf:
    """A phase stack with void and solid swapped; air becomes solid, too."""

    _TURNED = np.zeros(FILLED_IN + 1, np.uint8)
    _TURNED[[SOLID, FILLED_IN]] = OPEN, FILLED_IN

    def __init__(self, phase: Stack) -> None:
        self._phase, self.shape = phase, phase.shape

    def read(self, first: int, last: int) -> UInt8s:
        """Return slices `first` to `last` with void and solid swapped."""
        turned: UInt8s = self._TURNED[self._phase.read(first, last)]
        return turned


def find_local_thickness(
    work: Work, phase: Stack, name: str, distance: Stack | None = None
) -> Pass[LocalThickness]:
    """Find the local thickness of the void or the solid.

    `name`: ``"void"`` or ``"solid"``. `distance`: squared distance in the void, if it is known; for
    the void it is overwritten and closed.
    """
    if name == "solid":
        # the solid continues beyond the faces of the volume
        settings = dataclasses.replace(work.settings, border_is_solid=False)
        work = dataclasses.replace(work, settings=settings)
        turned: Any = _SolidOf(phase)
        distance = yield from part_of(find_distance(work, turned), 0.0, 0.1)
    elif distance is None:
        distance = yield from part_of(find_distance(work, phase), 0.0, 0.1)
    thickness = work.scratch.stack(f"{name} thickness", work.shape, np.float32)
    how = work.spacing, work.solid_beyond, work.threads
    finding = find_thickness(distance, work.slabs, thickness, *how)
    found = yield from part_of(finding, 0.1, 1.0)
    distance.close()
    return LocalThickness(thickness.array().reshape(work.volume.shape), *found)


def find_closed(work: Work, phase: Stack) -> Pass[Stack]:
    """Return the closed void of the phase labels, one bit per voxel; see `closed_bits`.

    The later steps need nothing else of the phase labels. A GPU that holds whole stacks keeps the
    labels instead.
    """
    if work.engine.holds_all:
        return phase
    depth, height, width = phase.shape
    closed = work.scratch.stack("closed", (depth, height, -(-width // 8)), np.uint8)
    for first, last in work.slabs:
        room = closed.room(first, last)
        closed.write(first, closed_bits(phase.read(first, last), work.threads, room))
        yield last / depth
    return closed


class UnstitchedBasins(NamedTuple):
    """Basins of all slabs before they are stitched across the slabs."""

    stack: Stack  # int32: basins, except for exits that `found` has to relabel
    found: Watershed
    peaks: Any  # int64: flat index of each basin's peak


def find_basins(work: Work, distance: Stack) -> Pass[UnstitchedBasins]:
    """Find the basins of the distance map."""
    engine, plane = work.engine, math.prod(work.shape[1:])
    basins = engine.stack(work.scratch, "basins", work.shape, np.int32)
    found = Watershed(work.slabs.depth, engine.watershed_slab, faces_only=work.faces_only)
    peaks = []

    for first, last in work.slabs:
        low, high = found.slices(first, last)
        slab = found.find(distance.read(low, high), basins.room(low, high), first - low, last - low)
        basins.write(first, slab.basins)
        peaks.append(slab.peaks + first * plane)
        yield last / work.slabs.depth
    found.join()
    return UnstitchedBasins(basins, found, _joined(peaks))


def measure_basins(
    work: Work,
    unstitched: UnstitchedBasins,
    closed: Stack,
    distance: Stack,
    grey: RoundedGrey | None,
) -> Pass[Any]:
    """Stitch the stack of basins, measure them and find their contacts.

    Returns the tables for `Engine.graph`, which is called after `closed` and `distance` are closed,
    to save memory.
    """
    engine = work.engine
    tables = engine.tables(work.shape, unstitched.peaks, faces_only=work.faces_only)
    basins, found = unstitched.stack, unstitched.found

    for slab, (first, last) in enumerate(work.slabs):
        # with the first slice of the next slab
        numbers = basins.read(first, last + 1)
        in_slab = numbers[: last - first]
        found.relabel_exits(slab, in_slab, work.threads)
        basins.write(first, in_slab)
        if last < work.slabs.depth:
            found.relabel_exits(slab + 1, numbers[last - first :], work.threads)
        values = None if grey is None else grey.read(first, last, work.threads)
        tables.add(numbers, distance.read(first, last + 1), work.threads, first, last, values)
        tables.add_closed(in_slab, closed.read(first, last), work.threads)
        yield last / work.slabs.depth
    return tables


def write_labels(
    basins: Stack, label_of: Int32s, slabs: Slabs, labels: Stack, threads: KernelThreads
) -> Pass[None]:
    """Replace basins by their labels, in a stack of int32."""
    for first, last in slabs:
        room = labels.room(first, last)
        labels.write(first, apply_labels(basins.read(first, last), label_of, threads, room))
        yield last / slabs.depth
