"""The passes of a pore segmentation: each walks over the slabs of a stack once, or there and back.

A pass is a generator: it yields the share of it that is done after every slab, where it can be
closed, and returns what it found. What it leaves behind lies in stacks (`hushpore.pores.slabs`).
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import closing
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import part_of
from hushpore.base.volume import require_grey
from hushpore.pores.geometry.surface import DIRECTIONS
from hushpore.pores.geometry.thickness import LocalThickness, find_thickness
from hushpore.pores.void.grey import GreyValues, rounded_grey
from hushpore.pores.void.local_threshold import LocalThreshold, window_in_voxels
from hushpore.pores.void.outside import count_crossings, face_neighbours, mark_outside
from hushpore.pores.void.parts import (
    AIR,
    CLOSED,
    FILLED_IN,
    OPEN,
    SOLID,
    Components,
    closed_bits,
    find_filled_in,
    find_runs,
    make_void,
)
from hushpore.pores.void.threshold import find_threshold, survey
from hushpore.pores.watershed.basins import Watershed, apply_labels
from hushpore.pores.watershed.distance import distances
from hushpore.pores.watershed.graph import Tables

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.device.switches import Choices
    from hushpore.device.timing import StageTimer
    from hushpore.pores.gpu.slabs import GpuSlabs
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.slabs import Scratch, Slabs, Stack
    from hushpore.pores.void.grey import RoundedGrey
    from hushpore.pores.void.threshold import Histogram, Range
    from hushpore.pores.watershed.basins import SlabWatershed

    T = TypeVar("T")
    Pass: TypeAlias = Generator[float, None, T]

#: What else can be done with labels than segment them as grey values.
_OF_LABELS = (
    "; or, to segment all that is labelled anew, a boolean volume: volume.replace(volume.array() "
    "!= 0), or the layer of labels in napari"
)


@dataclass(frozen=True)
class Work:
    """What all passes of a job need to know."""

    volume: Volume
    settings: PoreSettings
    slabs: Slabs
    scratch: Scratch
    threads: KernelThreads
    choices: Choices | None = None  # about optimisations
    timer: StageTimer | None = None  # told how long values are waited for
    padding: float | None = None  # grey value of what is filled in, around what was measured

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the stack: an image is one slice."""
        return (1,) * (3 - self.volume.n_spatial) + self.volume.shape

    @property
    def spacing(self) -> tuple[float, ...]:
        """In z, y, x, also of an image."""
        return spacing_of(self.volume)

    @property
    def faces(self) -> tuple[bool, bool, bool]:
        """Which axes have faces: in an image not z."""
        return (self.volume.n_spatial == 3, True, True)

    @property
    def faces_only(self) -> bool:
        """Whether only voxels that share a face are neighbours."""
        return self.settings.connectivity == "faces"

    @property
    def has_air(self) -> bool:
        """Whether there may be air outside the sample, or what is filled in."""
        settings = self.settings
        return settings.removes_air or bool(settings.sample_mask) or self.padding is not None


def spacing_of(volume: Volume) -> tuple[float, ...]:
    """Spacing in z, y, x, also of an image."""
    return (min(volume.spacing),) * (3 - volume.n_spatial) + volume.spacing


def is_slicewise(volume: Volume, settings: PoreSettings) -> bool:
    """Whether the air outside is found slice by slice: an image is one slice."""
    return volume.n_spatial == 2 or settings.outside == "remove-slicewise"


class Threshold(NamedTuple):
    """The grey value that parts pores from solid."""

    value: float | None  # None where the values are the void itself, or it is a local one
    problem: str = ""
    only_values: tuple[float, float] | None = None  # where there are only two


class Grey(NamedTuple):
    """Grey values, and the one that parts pores from solid."""

    values: GreyValues
    threshold: Threshold
    local: LocalThreshold | None = None
    rounded: RoundedGrey | None = None  # where sums take them


def read_values(volume: Volume, slabs: Slabs) -> Pass[Volume]:
    """Read what lies elsewhere into memory, a slab at a time, or as it is for an image."""
    values = np.empty(volume.shape, volume.dtype.newbyteorder("="))
    data: Any = volume.data
    if volume.n_spatial == 2:
        values[...] = data
        yield 1.0
        return volume.replace(values)
    if hasattr(data, "read_into"):
        # by several threads, which wait for each other at the end alone
        for planes in data.read_into(values):
            yield planes / slabs.depth
        return volume.replace(values)
    for first, last in slabs:
        values[first:last] = data[first:last]
        yield last / slabs.depth
    return volume.replace(values)


def find_grey_value(work: Work) -> Pass[Grey]:
    """Find the threshold, or take the one that is given, and check the values."""
    settings = work.settings
    values = GreyValues(work.volume, work.slabs, work.choices, work.timer)
    if values.dtype == np.bool_:
        return Grey(values, Threshold(None), rounded=rounded_grey(values, 0, 1))
    method = settings.threshold
    if settings.is_local:
        found, _ = yield from survey(values, False, work.threads, work.padding)
        local = local_threshold(work.volume, settings, work.slabs.depth, found, work.padding)
        return Grey(values, Threshold(None), local, rounded_grey(values, found.low, found.high))
    counting = survey(values, isinstance(method, str), work.threads, work.padding)
    (low, high, _), histogram = yield from counting
    threshold = threshold_of(settings, low, high, histogram)
    return Grey(values, threshold, rounded=rounded_grey(values, low, high))


def threshold_of(
    settings: PoreSettings, low: float, high: float, histogram: Histogram | None
) -> Threshold:
    """Return the threshold of values from `low` to `high`, and what is to be said of it.

    The histogram is needed for a method, not for a number.
    """
    if histogram is None:
        threshold = float(settings.threshold)
    else:
        bright = settings.pores_are == "bright"
        threshold = find_threshold(histogram, str(settings.threshold), settings.phases, bright)
    problem = ""
    if not low <= threshold < high:
        side = "above" if threshold >= high else "below"
        problem = (
            f"The threshold {threshold:g} is {side} all grey values ({low:g} to {high:g}): "
            "nothing is separated by it."
        )
    are_two = histogram is not None and np.count_nonzero(histogram.counts) == 2
    return Threshold(threshold, problem, (float(low), float(high)) if are_two else None)


def local_threshold(
    volume: Volume, settings: PoreSettings, depth: int, grey: Range, padding: float | None
) -> LocalThreshold:
    """Return the local threshold of settings for a stack of some depth, range and padding."""
    bright = settings.pores_are == "bright"
    window, method = window_of(volume, settings), str(settings.threshold)
    return LocalThreshold(method, window, settings.local_k, bright, depth, grey, padding)


def check_grey(volume: Volume, settings: PoreSettings) -> None:
    """Refuse grey values that are none, and what has no meaning for a local threshold.

    Raises InputError: with what to change. Of booleans, which are the void itself, there is nothing
    to refuse.
    """
    if volume.dtype == np.bool_:
        return
    require_grey(volume, _OF_LABELS)
    if not settings.is_local:
        return
    if settings.hysteresis is not None:
        raise InputError(
            "The hysteresis threshold is one grey value for the whole volume and cannot be "
            f"stricter than the local threshold {settings.threshold!r}. Leave it out "
            "(hysteresis=None), or choose another threshold."
        )
    if settings.phases > 2:
        raise InputError(
            f"Only the method 'otsu' knows {settings.phases} phases; got {settings.threshold!r}. "
            "Choose 'otsu', or set phases to 2."
        )


def check_hysteresis(settings: PoreSettings, threshold: float | None) -> None:
    """Refuse a stricter grey value that is none.

    Raises InputError: with the side on which it must be.
    """
    bright, strict = settings.pores_are == "bright", settings.hysteresis
    if strict is None or threshold is None:
        return
    if (strict < threshold) == bright:
        raise InputError(
            f"The hysteresis threshold must be stricter than the threshold, {threshold:g}: "
            f"{'above' if bright else 'below'} it for {settings.pores_are} pores; got {strict:g}."
        )


def window_of(volume: Volume, settings: PoreSettings) -> tuple[int, int, int]:
    """Return the window of a local threshold in voxels, (z, y, x)."""
    in_slice = settings.window_in_slice or volume.n_spatial == 2
    return window_in_voxels(settings.window, spacing_of(volume), in_slice)


def find_void(work: Work, grey: Grey) -> Pass[Stack]:
    """Find the void beyond the threshold, with hysteresis where that is asked for.

    Returns a stack of uint8, `SOLID`, `OPEN` and `FILLED_IN`.
    """
    values, threshold, local = grey.values, grey.threshold.value, grey.local
    bright = work.settings.pores_are == "bright"
    strict = None if threshold is None else work.settings.hysteresis
    if threshold is not None:
        check_hysteresis(work.settings, threshold)
    phase = work.scratch.stack("phase", work.shape, np.uint8)
    parts = Components((False,) * 3, work.slabs)
    share = 1.0 if strict is None else 0.5
    grey_parts = values.ahead(None if local is None else local.slices)
    for (first, last), part in zip(work.slabs, grey_parts, strict=True):
        room = phase.room(first, last)
        if local is not None:
            local.void(part, first, last, work.threads, room.view(np.bool_))
        else:
            make_void(part, threshold, bright, work.threads, room.view(np.bool_))
        if work.padding is not None:
            own = part if local is None else part[first - local.slices(first, last)[0] :]
            room[find_filled_in(own[: last - first], work.padding, work.threads)] = FILLED_IN
        phase.write(first, room)
        if strict is not None:
            runs = find_runs(room, work.threads)
            parts.add(runs, runs.holding(make_void(part, strict, bright, work.threads)))
        yield share * last / work.slabs.depth
    if strict is not None:
        parts.join()
        # of what was marked, not of what reaches a face
        kept = np.where(parts.is_open, OPEN, SOLID).astype(np.uint8)
        for share in _paint(work, phase, parts, kept):
            yield 0.5 + 0.5 * share
    return phase


def _paint(
    work: Work, phase: Stack, parts: Components, phase_of: npt.NDArray[np.uint8]
) -> Iterator[float]:
    """Write the phase of each part of the void."""
    for slab, (first, last) in enumerate(work.slabs):
        part = phase.read(first, last)
        parts.paint(slab, part, phase_of, work.threads)
        phase.write(first, part)
        yield last / work.slabs.depth


class VoidPhases(NamedTuple):
    """How much of the void of a sample is of which phase."""

    open_voxels: int  # connected to a face of the volume, or to the air outside
    closed_voxels: int
    components: int
    sample: npt.NDArray[np.int64]  # voxels of each slice (row, in 2D) that are not air
    share_outside: float  # of the volume that is air
    # crossings between void and the air outside, by direction
    air_crossings: npt.NDArray[np.int64] | int = 0
    problem: str = ""


def find_air(work: Work, phase: Stack) -> Pass[npt.NDArray[np.int64]]:
    """Mark the air around the sample.

    Returns how many voxels of each slice (row, in 2D) are not of the sample.
    """
    if not work.has_air:
        return np.zeros(work.volume.shape[0], np.int64)
    if work.settings.sample_mask:
        return (yield from _mask(work, phase))
    if work.settings.removes_air:
        require_solid(
            work.volume, not all(phase.read(first, last).all() for first, last in work.slabs)
        )
        slicewise = is_slicewise(work.volume, work.settings)
        ball = (work.spacing, work.settings.outside_radius, slicewise)
        yield from mark_outside(phase, work.slabs, work.scratch, *ball, work.threads)
    counts = []
    for first, last in work.slabs:
        part = phase.read(first, last)
        lines = part[0] if work.volume.n_spatial == 2 else part
        counts += [np.count_nonzero(line >= AIR) for line in lines]
    return np.array(counts, np.int64)


def require_solid(volume: Volume, is_solid: bool) -> None:
    """Raise `InputError` if there is no solid, where air outside a sample is looked for."""
    if not is_solid:
        raise InputError(
            f"There is no solid in {volume.name}, so no sample that air could be around. "
            "Set another threshold, or have the air count as pore (outside='keep')."
        )


def _mask(work: Work, phase: Stack) -> Pass[npt.NDArray[np.int64]]:
    """Take void outside the mask of the sample as air; returns as `find_air`."""
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


def apply_mask(
    work: Work, phase: npt.NDArray[np.uint8], first: int, last: int
) -> npt.NDArray[np.bool_]:
    """Take void of some slices outside the mask as air, in place.

    Returns what is not of the sample: what is outside, and what is filled in within the mask.
    """
    outside = beyond_mask(work, first, last)
    phase[outside & (phase == OPEN)] = AIR
    outside |= phase >= AIR
    return outside


def beyond_mask(work: Work, first: int, last: int) -> npt.NDArray[np.bool_]:
    """Return where the mask of the sample says of some slices (z, y, x) that it is not."""
    mask = work.volume.auxiliary_of(work.settings, "sample_mask")
    own = np.asarray(mask[first:last]) if work.volume.n_spatial == 3 else np.asarray(mask)[None]
    # there it is not either where it is no number
    return np.asarray(~(own > 0))


def require_sample(
    volume: Volume, settings: PoreSettings, outside: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Raise `InputError` if the mask leaves nothing; returns the voxels outside, slice by slice."""
    if outside.sum() == math.prod(volume.shape):
        name = settings.sample_mask
        raise InputError(f"The sample_mask {name!r} is empty: no voxel of it is above 0.")
    return outside


def classify_void(work: Work, phase: Stack, air: npt.NDArray[np.int64]) -> Pass[VoidPhases]:
    """Tell open void from closed in the phase labels, and leave only what is asked for."""
    components = Components(work.faces, work.slabs)
    depth = work.slabs.depth
    for first, last in work.slabs:
        runs = find_runs(phase.read(first, last), work.threads)
        marked = None
        if work.has_air:
            near = face_neighbours(phase.read(first - 1, last + 1) >= AIR)
            marked = runs.holding(near[min(first, 1) :][: last - first])
        components.add(runs, marked)
        yield 0.5 * last / depth
    components.join()
    phase_of = np.where(components.is_open, np.uint8(OPEN), np.uint8(CLOSED))
    if work.settings.mode != "all":
        phase_of[components.is_open != (work.settings.mode == "open")] = SOLID
    for share in _paint(work, phase, components, phase_of):
        yield 0.5 + 0.5 * share
    voxels = components.totals
    del components
    open_to_air = np.zeros(len(DIRECTIONS), np.int64)
    if work.has_air:
        for first, last in work.slabs:
            part = phase.read(first, last + 1)
            open_to_air += air_crossings(part)
            # but for those within the next slab
            open_to_air -= air_crossings(part[last - first :])
    return void_phases_of(work, voxels, open_to_air, air)


def void_phases_of(
    work: Work,
    voxels: tuple[int, int, int],
    open_to_air: npt.NDArray[np.int64],
    air: npt.NDArray[np.int64],
) -> VoidPhases:
    """Return the phases of the void, given the air in each slice (row, in 2D)."""
    problem = ""
    if work.settings.removes_air and not air.any():
        problem = "No air was found outside the sample: the ball cannot reach any."
    sample = math.prod(work.volume.shape[1:]) - air
    share = float(air.sum()) / math.prod(work.volume.shape)
    return VoidPhases(*voxels, sample, share, open_to_air, problem)


def air_crossings(phase: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Count the neighbours of which one is void and one is air, by direction, in some slices."""
    air = phase >= AIR
    return count_crossings((phase != SOLID) & ~air, air)


def solid_beyond(work: Work) -> tuple[bool, ...]:
    """Whether there is solid beyond the faces, by axis."""
    return tuple(work.settings.border_is_solid and face for face in work.faces)


def highest_void(work: Work) -> int:
    """Return the highest phase label that counts as void when distances are measured.

    The mouth of a pore is no wall: what is not of the sample counts like what lies beyond the faces
    of the volume.
    """
    return CLOSED if work.settings.border_is_solid else FILLED_IN


def find_distance(work: Work, phase: Stack, gpu: GpuSlabs | None = None) -> Pass[Stack]:
    """Find the squared distance to the solid, in the void; returns a stack of float32."""
    distance = work.scratch.stack("distance", work.shape, np.float32)
    slabs = work.slabs
    out = None if slabs.on_disk else distance.array()
    solid_outside, highest = solid_beyond(work), highest_void(work)
    for first, part in distances(
        phase, slabs, work.scratch, work.spacing, solid_outside, work.threads, highest, out, gpu
    ):
        if work.has_air:
            part[phase.read(first, first + len(part)) >= AIR] = 0
        distance.write(first, part)
        yield 1 - first / slabs.depth
    return distance


class _SolidOf:
    """The solid of a phase stack, as the void of another, whose walls are void and air."""

    _TURNED = np.zeros(FILLED_IN + 1, np.uint8)
    _TURNED[[SOLID, FILLED_IN]] = OPEN, FILLED_IN

    def __init__(self, phase: Stack) -> None:
        self._phase, self.shape = phase, phase.shape

    def read(self, first: int, last: int) -> npt.NDArray[np.uint8]:
        """Return some slices."""
        turned: npt.NDArray[np.uint8] = self._TURNED[self._phase.read(first, last)]
        return turned


def find_local_thickness(
    work: Work, phase: Stack, name: str, distance: Stack | None = None
) -> Pass[LocalThickness]:
    """Find the local thickness of the void or the solid.

    `name`: ``"void"`` or ``"solid"``. `distance`: that of the void, where it is known; used up and
    closed by what is found of the void.
    """
    if name == "solid":
        # beyond the faces of the volume it goes on
        settings = dataclasses.replace(work.settings, border_is_solid=False)
        work = dataclasses.replace(work, settings=settings)
        turned: Any = _SolidOf(phase)
        distance = yield from part_of(find_distance(work, turned), 0.0, 0.1)
    elif distance is None:
        distance = yield from part_of(find_distance(work, phase), 0.0, 0.1)
    thickness = work.scratch.stack(f"{name} thickness", work.shape, np.float32)
    how = work.spacing, solid_beyond(work), work.threads
    finding = find_thickness(distance, work.slabs, thickness, *how)
    found = yield from part_of(finding, 0.1, 1.0)
    distance.close()
    return LocalThickness(thickness.array().reshape(work.volume.shape), *found)


def find_closed(work: Work, phase: Stack) -> Pass[Stack]:
    """Keep of the phase labels where void is closed, a bit a voxel; see `closed_bits`.

    Once distances are known that is all that is needed of them.
    """
    depth, height, width = phase.shape
    closed = work.scratch.stack("closed", (depth, height, -(-width // 8)), np.uint8)
    for first, last in work.slabs:
        room = closed.room(first, last)
        closed.write(first, closed_bits(phase.read(first, last), work.threads, room))
        yield last / depth
    return closed


class UnstitchedBasins(NamedTuple):
    """Basins of each slab, whose exits still have to be stitched."""

    stack: Stack  # int32: basins, but for exits that `found` has to relabel
    found: Watershed
    peaks: npt.NDArray[np.int64]  # flat index of each basin's peak


def find_basins(work: Work, distance: Stack, gpu: GpuSlabs | None = None) -> Pass[UnstitchedBasins]:
    """Find the basins of the distance map."""
    basins = work.scratch.stack("basins", work.shape, np.int32)
    slab = None if gpu is None else gpu.watershed_slab
    found = Watershed(work.slabs.depth, faces_only=work.faces_only, watershed=slab)
    peaks = []

    def read() -> Iterator[tuple[int, int, npt.NDArray[np.float32]]]:
        for first, last in work.slabs:
            yield first, last, distance.read(*found.slices(first, last))

    def steps() -> Generator[tuple[int, int, npt.NDArray[np.int32], SlabWatershed], None, None]:
        for first, last, heights in read() if gpu is None else gpu.ahead(read(), itemgetter(2)):
            low, high = found.slices(first, last)
            own = slice(first - low, last - low)
            pointers = basins.room(low, high)
            if gpu is None:
                # what lies beside the slab is written, too
                before = pointers[: own.start].copy()
                part = found.find(heights, pointers, work.threads, own.start, own.stop)
                pointers[: own.start] = before
            else:
                part = found.find(heights, pointers, work.threads, own.start, own.stop)
            yield first, last, pointers[own], part

    with closing(steps() if gpu is None else gpu.behind(steps())) as found_parts:
        for first, last, own, part in found_parts:
            found.connect(part, own)
            basins.write(first, own)
            peaks.append(part.peaks + first * math.prod(work.shape[1:]))
            yield last / work.slabs.depth
    found.join()
    return UnstitchedBasins(basins, found, np.concatenate(peaks))


def measure_basins(
    work: Work,
    unstitched: UnstitchedBasins,
    closed: Stack,
    distance: Stack,
    grey: RoundedGrey | None,
    gpu: GpuSlabs | None = None,
) -> Pass[Tables]:
    """Measure all basins and find where they touch; stitches their stack.

    Once `closed` and `distance` are closed there is room to join the tables to a graph.
    """
    scan = None if gpu is None else gpu.scan_slices
    tables = Tables(work.shape, unstitched.peaks, faces_only=work.faces_only, scan=scan)
    basins, found = unstitched.stack, unstitched.found

    def stitched() -> Generator[tuple[int, int, list[npt.NDArray[Any]]], None, None]:
        for slab, (first, last) in enumerate(work.slabs):
            part = basins.read(first, last + 1)
            own = part[: last - first]
            found.relabel_exits(slab, own, work.threads)
            basins.write(first, own)
            if last < work.slabs.depth:
                found.relabel_exits(slab + 1, part[last - first :], work.threads)
            values = [] if grey is None else [grey.read(first, last)]
            yield first, last, [part, distance.read(first, last + 1), *values]

    with closing(stitched() if gpu is None else gpu.ahead(stitched(), itemgetter(2))) as parts:
        for first, last, (part, heights, *values) in parts:
            tables.add(part, heights, work.threads, first, last, *values)
            tables.add_closed(part[: last - first], closed.read(first, last), work.threads)
            yield last / work.slabs.depth
    return tables


def write_labels(
    basins: Stack,
    label_of: npt.NDArray[np.int32],
    slabs: Slabs,
    labels: Stack,
    threads: KernelThreads,
) -> Pass[None]:
    """Write the label of each basin in its place, in a stack of int32."""
    for first, last in slabs:
        room = labels.room(first, last)
        labels.write(first, apply_labels(basins.read(first, last), label_of, threads, room))
        yield last / slabs.depth
