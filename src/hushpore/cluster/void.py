"""The void of each slab: threshold, exterior air, open and closed void, and distances along z.

Tasks report a few numbers, which the client combines.

Air around the sample: whether the rolling ball fits at a voxel depends only on slices within its
radius, and so does the region that it covers from there. Slabs are therefore read with as many
neighbouring slices. The region that the ball reaches consists of connected components of the
voxels where it fits, joined across the faces between slabs. The ball moves in a padded volume,
larger than the scan, which has its own slabs.
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.provenance import fingerprint_of_slices, slice_fingerprints
from hushpore.base.volume import Volume
from hushpore.cluster.blocks import Blocks
from hushpore.cluster.merging import paint_parts, parts_of, parts_on_gpu, stitch_parts, store_parts
from hushpore.cluster.task_runner import on_gpu_or_cpu
from hushpore.pores.forms.sample_map import grid_of
from hushpore.pores.gpu.void import GpuGrey, GpuParts, kind_of
from hushpore.pores.gpu.void import mark_outside as mark_outside_on_gpu
from hushpore.pores.void.components import (
    AIR,
    OPEN,
    SOLID,
    face_neighbours,
    find_filled_in,
    find_runs,
    outside_of_slices,
    touching,
)
from hushpore.pores.void.threshold import (
    GreyValues,
    Range,
    bins_of,
    counted_once,
    find_range,
    make_histogram,
    make_void,
    measured,
)
from hushpore.pores.watershed.distance import carry, edge_plane, squared_distance
from hushpore.pores.work import apply_mask
from hushpore.scan.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hushpore.base.arrays import Array, Float32s, Mask, UInt8s
    from hushpore.cluster.blocks import Report
    from hushpore.pores.gpu.engine import Gpu
    from hushpore.pores.void.components import Ball
    from hushpore.pores.void.threshold import LocalThreshold


def copy_scan(blocks: Blocks, layer: int) -> Report:
    """Copy a layer of the scan to the scratch folder, so that it is decompressed only once.

    Writes the stack ``grey``.
    """
    first, last = blocks.plan.layers[layer]
    grey = GreyValues(blocks.plan.volume, blocks.plan.layers).read(first, last)
    blocks.write("grey", layer, grey)
    blocks.moved += grey.nbytes
    return {"slices": np.frombuffer(slice_fingerprints(grey), np.uint8)}


def survey(blocks: Blocks, slab: int, with_histogram: bool) -> Report:
    """Return the grey range of a slab, or its histogram if one pass over the values is enough."""
    grey = blocks.read("grey", *blocks.plan.slabs[slab])
    counted = counted_once(grey.dtype) if with_histogram else None
    own = measured(grey, blocks.plan.padding)
    if counted is not None:
        return _counts(own, blocks, counted)
    if not own.size:
        return {"range": np.zeros(0, grey.dtype), "bad": 0}

    def look(gpu: Gpu | None) -> Report:
        found = find_range(own, blocks.threads) if gpu is None else _on(gpu, own).ends()
        return {"range": np.array([found.low, found.high], grey.dtype), "bad": found.bad}

    return on_gpu_or_cpu(_device(blocks, own), look)


def count_levels(blocks: Blocks, slab: int, low: Any, high: Any) -> Report:
    """Return the histogram of a slab over the grey range of the whole volume."""
    grey = blocks.read("grey", *blocks.plan.slabs[slab])
    among = Range(low, high)
    report = _counts(measured(grey, blocks.plan.padding), blocks, among)
    return {**report, "centers": bins_of(grey.dtype, among)[0]}


def _counts(values: Array, blocks: Blocks, among: Range) -> Report:
    """Return the histogram of grey values, of zeros if there are no values."""
    if not values.size:
        return {"counts": np.zeros(bins_of(values.dtype, among)[0].size, np.int64)}

    def count(gpu: Gpu | None) -> Report:
        if gpu is None:
            return {"counts": make_histogram(values, blocks.threads, among).counts}
        return {"counts": _on(gpu, values).histogram(among).counts}

    return on_gpu_or_cpu(_device(blocks, values), count)


def find_void(
    blocks: Blocks,
    slab: int,
    target: str,
    threshold: float | None,
    local: LocalThreshold | None,
    strict: float | None,
) -> Report:
    """Write the phases of a slab, and find the components of its void.

    `strict`: hysteresis threshold; components that contain such voxels are marked. Without it,
    components are found as by `find_parts`, unless that needs the air in neighbouring slabs.
    """
    first, last = blocks.plan.slabs[slab]
    wanted = (first, last) if local is None else local.slices(first, last)
    grey = blocks.read("grey", *wanted)
    bright = blocks.plan.settings.are_bright(grey.dtype)
    own = grey[first - wanted[0] :][: last - first]

    def find(gpu: Gpu | None) -> Report:
        phase = np.empty(own.shape, np.uint8)
        there = None if gpu is None else _on(gpu, own)
        if local is not None:
            local.void(grey, first, last, blocks.threads, phase.view(np.bool_))
        elif gpu is None or there is None:
            make_void(own, threshold, bright, blocks.threads, phase.view(np.bool_))
        else:
            gpu.get(there.beyond(threshold, bright=bright), phase)
        report: Report = {}
        padding = blocks.plan.padding
        if padding is not None:
            # fill value counts as air: for the void both are alike, and thickness is not measured
            phase[find_filled_in(own, padding, blocks.threads)] = AIR
            report["padded"] = np.count_nonzero(phase == AIR, axis=(1, 2)).astype(np.int64)
        blocks.write(target, slab, phase)
        report["is_all_void"] = bool(phase.all())
        if strict is None:
            return report if blocks.work.has_air else report | _find_parts(blocks, slab, phase, gpu)
        if gpu is None or there is None:
            runs = find_runs(phase, blocks.threads)
            marked = runs.holding(make_void(own, strict, bright, blocks.threads))
            return report | store_parts(blocks, slab, parts_of(runs, marked))
        on_gpu = gpu.put(phase)
        parts = GpuParts(gpu, on_gpu)
        there.mark_beyond(strict, parts.parts, parts.is_marked, bright=bright)
        found = parts_on_gpu(gpu, parts, on_gpu, phase, (0, len(phase)), blocks.threads)
        return report | store_parts(blocks, slab, found)

    return on_gpu_or_cpu("" if local is not None else _device(blocks, own), find)


def apply_hysteresis(blocks: Blocks, slab: int, source: str, target: str, kept: Mask) -> Report:
    """Keep the components of the void that pass the hysteresis threshold.

    `kept`: whether each component shared with other slabs is kept.
    """

    def apply(gpu: Gpu | None) -> Report:
        phase = blocks.read(source, *blocks.plan.slabs[slab])
        paint_parts(blocks, slab, phase, kept, (OPEN, SOLID), gpu)
        blocks.write(target, slab, phase)
        return {}

    return on_gpu_or_cpu(blocks.plan.device, apply)


def find_parts(blocks: Blocks, slab: int, source: str) -> Report:
    """Find the connected components of the void in a slab, and mark those open to the outside."""
    first, last = blocks.plan.slabs[slab]
    around = (first - 1, last + 1) if blocks.work.has_air else (first, last)

    def find(gpu: Gpu | None) -> Report:
        return _find_parts(blocks, slab, blocks.read(source, *around), gpu)

    return on_gpu_or_cpu(blocks.plan.device, find)


def _find_parts(blocks: Blocks, slab: int, phase: UInt8s, gpu: Gpu | None) -> Report:
    """Find the components in the phases of a slab; with air, also given one slice on each side."""
    first, last = blocks.plan.slabs[slab]
    has_air = blocks.work.has_air
    begin = min(first, 1) if has_air else 0
    at_ends = first == 0, last == blocks.plan.shape[0]
    own = phase[begin:][: last - first]
    if paints_late(blocks):
        _begin_along_z(blocks, slab, own)
    if gpu is None:
        runs = find_runs(own, blocks.threads)
        marked = touching(runs, (at_ends, (True, True)))
        if has_air:
            near = face_neighbours(phase == AIR)[begin:][: last - first]
            marked |= runs.holding(np.ascontiguousarray(near))
        return store_parts(blocks, slab, parts_of(runs, marked))
    # in the slices beside the slab, only air counts
    for each in (phase[:begin], phase[begin + last - first :]):
        each[each != AIR] = SOLID
    on_gpu = gpu.put(phase)
    parts = GpuParts(gpu, on_gpu)
    parts.mark_faces(along_z=at_ends, along_y=True)
    if has_air:
        parts.mark_neighbours(on_gpu, AIR)
    where = (begin, begin + last - first)
    found = parts_on_gpu(gpu, parts, on_gpu, phase, where, blocks.threads)
    return store_parts(blocks, slab, found)


def paints_late(blocks: Blocks) -> bool:
    """Whether open and closed void are separated only in the search for basins (all pores)."""
    return blocks.plan.settings.pore_type == "all"


def paint(blocks: Blocks, slab: int, source: str, shared_open: Mask) -> Report:
    """Separate open and closed void in the phases of a slab, and start its distances along z.

    Writes the stack ``void``.
    """
    first, last = blocks.plan.slabs[slab]

    def paint(gpu: Gpu | None) -> Report:
        phase = blocks.read(source, first, last)
        paint_parts(blocks, slab, phase, shared_open, blocks.work.states_kept, gpu)
        blocks.write("void", slab, phase)
        _begin_along_z(blocks, slab, phase)
        return {}

    return on_gpu_or_cpu(blocks.plan.device, paint)


def _begin_along_z(blocks: Blocks, slab: int, phase: UInt8s) -> None:
    """Write four planes with the distance along z to the solid in the slab; inf if there is none.

    Forward: from the first slice to two slices before the end, and from there to the end. Backward:
    from the last slice to two slices after the start, and from there to the start.
    """
    nothing = edge_plane(phase.shape, False)
    after, before = min(2, len(phase)), max(len(phase) - 2, 0)
    highest = blocks.work.highest_void
    with blocks.create(blocks.planes("along", slab)) as add:
        for part in (phase[:before], phase[before:]):
            add(carry(part, nothing, blocks.threads, highest, back=False))
        for part in (phase[after:], phase[:after]):
            add(carry(part, nothing, blocks.threads, highest, back=True))


def pass_along_z(blocks: Blocks, band: int) -> Report:
    """Carry the distance along z through all slabs, in a band of rows.

    Writes for each slab the distance that arrives two slices before its first slice; then, in
    reverse order of slabs, the distance that arrives two slices after its last slice.
    """
    plan = blocks.plan
    rows, slabs = plan.rows(band), plan.slabs
    shape = (1, rows[1] - rows[0], plan.shape[2])

    def onward(slab: int, plane: int, value: Array, slices: int) -> Array:
        own = blocks.read_plane("along", slab, plane, rows, plan.shape[1])
        return np.minimum(own, value + np.float32(slices))

    forward = range(len(slabs))
    with blocks.create(blocks.planes("carried", band)) as add:
        for plane, order in ((0, forward), (2, reversed(forward))):
            arriving = value = edge_plane(shape, blocks.work.solid_beyond[0])
            for slab in order:
                first, last = slabs[slab]
                add(arriving)
                near = min(2, last - first)
                arriving = onward(slab, plane, value, last - first - near)
                value = onward(slab, plane + 1, arriving, near)
    return {}


def carried(blocks: Blocks, slab: int) -> tuple[Float32s, Float32s]:
    """Return the distances along z that arrive before and after a slab, (y, x) each."""
    plan = blocks.plan
    found: tuple[list[Any], list[Any]] = ([], [])
    count = len(plan.slabs)
    for band in range(plan.bands):
        first, last = plan.rows(band)
        height = last - first
        for planes, index in zip(found, (slab, 2 * count - 1 - slab), strict=True):
            planes.append(blocks.read_plane("carried", band, index, (0, height), height))
    before, after = (np.concatenate(planes) for planes in found)
    return before, after


def digest_of(reports: Sequence[Report]) -> dict[str, str]:
    """Return the fingerprint of the input, from the fingerprints of all slices."""
    digest = fingerprint_of_slices(each["slices"].tobytes() for each in reports)
    return {"blake2b": digest}


def range_of(reports: Sequence[Report], dtype: np.dtype[Any]) -> tuple[Range, Histogram | None]:
    """Return the range of all grey values, and their histogram if one pass was enough for it."""
    if "counts" not in reports[0]:
        # slabs with only fill value have no range
        ends = np.array([each["range"] for each in reports if len(each["range"])])
        bad = sum(int(each["bad"]) for each in reports)
        return Range(ends[:, 0].min(), ends[:, 1].max(), bad), None
    limits = counted_once(dtype)
    assert limits is not None, "they were counted"
    counts = np.sum([each["counts"] for each in reports], axis=0)
    levels = int(limits.low) + np.arange(counts.size, dtype=np.float64)
    histogram = Histogram(counts, levels).trimmed()
    return Range(*dtype.type(histogram.centers[[0, -1]])), histogram


def histogram_of(reports: Sequence[Report]) -> Histogram:
    """Return the histogram of the volume from those of the slabs."""
    return Histogram(np.sum([each["counts"] for each in reports], axis=0), reports[0]["centers"])


def _device(blocks: Blocks, values: Array) -> str:
    """Return the GPU to process grey values on; empty for types that it does not support."""
    return "" if kind_of(Volume(values)) is None else blocks.plan.device


def _on(gpu: Gpu, values: Array) -> GpuGrey:
    return GpuGrey(gpu, Volume(values))


# ---- exterior of the sample: surrounding air, or voxels outside the sample mask

_NO_WALLS = (False, False, False)


def mark_slices(blocks: Blocks, slab: int, source: str, target: str) -> Report:
    """Mark the air around the sample in each slice of a slab, slice by slice."""
    first, last = blocks.plan.slabs[slab]
    spacing, radius = blocks.work.spacing, blocks.plan.settings.ball_radius

    def find(gpu: Gpu | None) -> Report:
        phase = blocks.read(source, first, last)
        if gpu is None:
            void = phase != SOLID
            outside = outside_of_slices(void, spacing, radius, blocks.threads)
            phase[outside & (phase == OPEN)] = AIR
        else:
            on_gpu = gpu.put(phase)
            mark_outside_on_gpu(gpu, blocks.work, on_gpu)
            gpu.get(on_gpu, phase)
        blocks.write(target, slab, phase)
        return {"air": np.count_nonzero(phase == AIR, axis=(1, 2)).astype(np.int64)}

    # the rolling ball needs padding around the slices
    voxels = math.prod(blocks.work.ball((last - first, *blocks.plan.shape[1:])).shape)
    return on_gpu_or_cpu(blocks.plan.device if voxels < 2**31 else "", find)


def mark_masked(blocks: Blocks, slab: int, source: str, target: str) -> Report:
    """Mark the void of a slab outside the sample mask as air."""
    first, last = blocks.plan.slabs[slab]
    phase = blocks.read(source, first, last)
    outside = apply_mask(blocks.work, phase, first, last)
    blocks.write(target, slab, phase)
    return {"air": np.count_nonzero(outside, axis=(1, 2)).astype(np.int64)}


def read_points(blocks: Blocks, slab: int, source: str) -> Report:
    """Return the phases of a slab at the points of the map of the sample."""
    first, last = blocks.plan.slabs[slab]
    along, *plane = grid_of(blocks.plan.shape)
    inside = [z for z in range(*along.indices(last)) if z >= first]
    points = [blocks.read(source, z, z + 1)[:, *plane] for z in inside]
    none = np.zeros((0, *blocks.plan.shape[1:]), np.uint8)[:, *plane]
    return {"points": np.concatenate([none, *points])}


@contextmanager
def room_of(blocks: Blocks) -> Iterator[tuple[Blocks, Ball]]:
    """Open the blocks of the padded volume of the rolling ball; yields these and the ball.

    Its slabs are as thick as those of the volume. Bytes moved are added to those of `blocks`.
    """
    ball = blocks.work.ball(blocks.plan.shape)
    depth, height, width = ball.shape
    with Blocks(dataclasses.replace(blocks.plan, shape=(depth, height, width))) as room:
        yield room, ball
        blocks.moved += room.moved


def fit_balls(blocks: Blocks, slab: int, source: str) -> Report:
    """Find where the ball fits in a slab of the padded volume, and mark the outer components.

    Writes the stack ``balls``.
    """
    with room_of(blocks) as (room, ball):
        first, last = room.plan.slabs[slab]
        before, *inner = ball.inner[0].start, *ball.inner[1:]
        # with as many slices on both sides as the ball reaches
        free = np.ones((last - first + 2 * before, *ball.shape[1:]), np.bool_)
        phase = blocks.read(source, first - 2 * before, last)
        place = max(2 * before - first, 0)
        free[place:][: len(phase)][:, *inner] = phase != SOLID
        distance = squared_distance(free, ball.spacing, _NO_WALLS, blocks.threads, ball.limit)
        fits = (distance[before:][: last - first] > ball.limit).view(np.uint8)
        del free, distance
        room.write("balls", slab, fits)
        runs = find_runs(fits, blocks.threads)
        marked = touching(runs, ((False, False), (False, True)))
        return store_parts(room, slab, parts_of(runs, marked))


def stitch_balls(blocks: Blocks, slab: int) -> Report:
    """Find the pairs of components of the ball's positions that touch across a slab's last face."""
    with room_of(blocks) as (room, _):
        return stitch_parts(room, slab)


def reach_balls(blocks: Blocks, slab: int, shared_outside: Mask) -> Report:
    """Write the stack ``reached``: the positions in a slab that the ball reaches from outside."""
    with room_of(blocks) as (room, _):
        fits = room.read("balls", *room.plan.slabs[slab])
        paint_parts(room, slab, fits, shared_outside, (OPEN, SOLID), None)
        room.write("reached", slab, fits)
    return {}


def mark_covered(blocks: Blocks, slab: int, source: str, target: str) -> Report:
    """Mark the void of a slab that the ball covers at the positions it reaches as air."""
    first, last = blocks.plan.slabs[slab]
    with room_of(blocks) as (room, ball):
        before, *inner = ball.inner[0].start, *ball.inner[1:]
        # with as many slices on both sides as the ball reaches
        unreached = room.read("reached", first, last + 2 * before) != OPEN
    distance = squared_distance(unreached, ball.spacing, _NO_WALLS, blocks.threads, ball.limit)
    near = distance[before:][: last - first][:, *inner] <= ball.limit
    phase = blocks.read(source, first, last)
    phase[near & (phase != SOLID)] = AIR
    blocks.write(target, slab, phase)
    return {"air": np.count_nonzero(phase == AIR, axis=(1, 2)).astype(np.int64)}
