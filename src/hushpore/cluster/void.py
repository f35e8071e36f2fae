"""The void of each slab: threshold, air outside, open and closed, and what is passed along z.

Tasks report few numbers, which the client puts together in a moment. A part of the void is known to
other tasks by the number of its first voxel in the slab: the same on a GPU and on a CPU.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.provenance import fingerprint
from hushpore.base.volume import Volume
from hushpore.cluster.gpus import on_gpu_or_cpu
from hushpore.pores.distance import carry, edge_plane
from hushpore.pores.gpu.grey import GpuGrey, kind_of
from hushpore.pores.gpu.void import GpuParts, ball_of, phases_kept
from hushpore.pores.gpu.void import mark_outside as mark_outside_on_gpu
from hushpore.pores.grey import GreyValues
from hushpore.pores.outside import face_neighbours, mark_outside
from hushpore.pores.passes import highest_void, solid_beyond
from hushpore.pores.slabs import Scratch, Slabs, Stack
from hushpore.pores.threshold import (
    Histogram,
    Range,
    bins_of,
    counted_once,
    find_range,
    make_histogram,
    measured,
)
from hushpore.pores.void import (
    AIR,
    OPEN,
    SOLID,
    Runs,
    find_filled_in,
    find_runs,
    make_void,
    pairs_across,
    touching,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.cluster.blocks import Blocks
    from hushpore.pores.gpu.engine import Gpu
    from hushpore.pores.local_threshold import LocalThreshold
    from hushpore.pores.parallel import KernelThreads

    #: What a task tells the client: few numbers.
    Report = dict[str, Any]

_RUNS = ("row_start", "begin", "end", "part")


def survey(blocks: Blocks, slab: int, with_histogram: bool) -> Report:
    """Look at the grey values of a slab: their range, or where that is one reading all levels."""
    first, last = blocks.plan.slabs[slab]
    grey = _grey(blocks).read(first, last)
    blocks.moved += grey.nbytes
    digests = b"".join(bytes.fromhex(fingerprint(plane)) for plane in grey)
    report: Report = {"slices": np.frombuffer(digests, np.uint8)}
    counted = counted_once(grey.dtype) if with_histogram else None
    if grey.dtype == np.bool_:
        return report
    own = measured(grey, blocks.plan.padding)
    if counted is not None:
        return {**report, **_counts(own, blocks, counted)}
    if not own.size:
        return {**report, "range": np.zeros(0, grey.dtype), "bad": 0}

    def look(gpu: Gpu | None) -> Report:
        found = find_range(own, blocks.threads) if gpu is None else _on(gpu, own).ends()
        return {"range": np.array([found.low, found.high], grey.dtype), "bad": found.bad}

    return {**report, **on_gpu_or_cpu(_device(blocks, own), look)}


def count_levels(blocks: Blocks, slab: int, low: Any, high: Any) -> Report:
    """Count the grey values of a slab between the ends of all."""
    grey = _grey(blocks).read(*blocks.plan.slabs[slab])
    blocks.moved += grey.nbytes
    among = Range(low, high)
    report = _counts(measured(grey, blocks.plan.padding), blocks, among)
    return {**report, "centers": bins_of(grey.dtype, among)[0]}


def _counts(values: npt.NDArray[Any], blocks: Blocks, among: Range) -> Report:
    """Count the grey values of a slab, of which there may be none."""
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
    """Write the phases of a slab; with a stricter value, which parts hold that too."""
    first, last = blocks.plan.slabs[slab]
    bright = blocks.plan.settings.pores_are == "bright"
    wanted = (first, last) if local is None else local.slices(first, last)
    grey = _grey(blocks).read(*wanted)
    blocks.moved += grey.nbytes
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
            phase[find_filled_in(own, padding, blocks.threads)] = AIR
            report["padded"] = np.count_nonzero(phase == AIR, axis=(1, 2)).astype(np.int64)
        blocks.write(target, slab, phase)
        report["is_all_void"] = bool(phase.all())
        if strict is None:
            return report
        if gpu is None or there is None:
            runs = find_runs(phase, blocks.threads)
            marked = runs.holding(make_void(own, strict, bright, blocks.threads))
            return report | _store(blocks, slab, parts_of(runs, marked))
        on_gpu = gpu.put(phase)
        parts = GpuParts(gpu, on_gpu)
        there.mark_beyond(strict, parts.parts, parts.is_marked, bright=bright)
        found = parts_on_gpu(gpu, parts, on_gpu, phase, (0, len(phase)), blocks.threads)
        return report | _store(blocks, slab, found)

    return on_gpu_or_cpu("" if local is not None else _device(blocks, own), find)


def apply_hysteresis(
    blocks: Blocks, slab: int, source: str, target: str, kept: npt.NDArray[np.bool_]
) -> Report:
    """Leave the parts of the void that hold a stricter value; `kept` says it of shared parts."""

    def apply(gpu: Gpu | None) -> Report:
        phase = blocks.read(source, *blocks.plan.slabs[slab])
        _paint(blocks, slab, phase, kept, (OPEN, SOLID), gpu)
        blocks.write(target, slab, phase)
        return {}

    return on_gpu_or_cpu(blocks.plan.device, apply)


def mark_air(blocks: Blocks, slab: int, source: str, target: str) -> Report:
    """Mark the air outside the sample in every slice of a slab."""
    first, last = blocks.plan.slabs[slab]
    spacing, radius = blocks.work.spacing, blocks.plan.settings.outside_radius

    def find(gpu: Gpu | None) -> Report:
        phase = blocks.read(source, first, last)
        if gpu is None:
            whole = Slabs(last - first, last - first)
            how = (spacing, radius, True, blocks.threads)
            for _ in mark_outside(Stack.of(phase), whole, Scratch(False), *how):
                pass
        else:
            on_gpu = gpu.put(phase)
            mark_outside_on_gpu(gpu, blocks.work, on_gpu)
            gpu.get(on_gpu, phase)
        blocks.write(target, slab, phase)
        return {"air": np.count_nonzero(phase == AIR, axis=(1, 2)).astype(np.int64)}

    # balls take room around the slices
    voxels = math.prod(ball_of(blocks.work, (last - first, *blocks.plan.shape[1:])).shape)
    return on_gpu_or_cpu(blocks.plan.device if voxels < 2**31 else "", find)


def find_parts(blocks: Blocks, slab: int, source: str) -> Report:
    """Find the connected parts of the void in a slab, and which of them reach what is outside."""
    first, last = blocks.plan.slabs[slab]
    has_air = blocks.work.has_air
    around = (first - 1, last + 1) if has_air else (first, last)
    begin = min(first, 1) if has_air else 0
    at_ends = first == 0, last == blocks.plan.shape[0]

    def find(gpu: Gpu | None) -> Report:
        phase = blocks.read(source, *around)
        own = phase[begin:][: last - first]
        if gpu is None:
            runs = find_runs(own, blocks.threads)
            marked = touching(runs, (at_ends, (True, True)))
            if has_air:
                near = face_neighbours(phase == AIR)[begin:][: last - first]
                marked |= runs.holding(np.ascontiguousarray(near))
            return _store(blocks, slab, parts_of(runs, marked))
        # of the slices beside it the air counts, and not the void
        for each in (phase[:begin], phase[begin + last - first :]):
            each[each != AIR] = SOLID
        on_gpu = gpu.put(phase)
        parts = GpuParts(gpu, on_gpu)
        parts.mark_faces(along_z=at_ends, along_y=True)
        if has_air:
            parts.mark_neighbours(on_gpu, AIR)
        where = (begin, begin + last - first)
        return _store(blocks, slab, parts_on_gpu(gpu, parts, on_gpu, phase, where, blocks.threads))

    return on_gpu_or_cpu(blocks.plan.device, find)


class SlabParts(NamedTuple):
    """The parts of the void in a slab, by the numbers of their first voxels."""

    faces: tuple[Runs, Runs]  # what they are in the first slice and in the last one
    marked: npt.NDArray[np.int64]  # those that are marked
    # of all that lie in these slices, in their order: which, how many voxels, whether marked
    shared: npt.NDArray[np.int64]
    voxels: npt.NDArray[np.int64]
    is_marked: npt.NDArray[np.bool_]
    totals: tuple[int, int, int]  # of all: how many, voxels of marked ones, of others


def first_voxels(runs: Runs) -> npt.NDArray[np.int64]:
    """Return the number of the first voxel of each part, counted over the slab."""
    first = np.empty(runs.count, np.int64)
    # of the runs of a part the first stays
    first[runs.part[::-1]] = np.arange(runs.part.size)[::-1]
    row = np.searchsorted(runs.row_start, first, side="right") - 1
    return row * runs.shape[2] + runs.begin[first]


def parts_of(runs: Runs, marked: npt.NDArray[np.bool_]) -> SlabParts:
    """Return the parts that the runs of a slab belong to, some of them marked."""
    first: Any = first_voxels(runs)
    voxels = np.bincount(runs.part, runs.end - runs.begin, runs.count).astype(np.int64)
    faces = [runs.face(last=last) for last in (False, True)]
    shared = np.unique(np.concatenate([face.part for face in faces]))
    named = [dataclasses.replace(face, part=first[face.part]) for face in faces]
    totals = runs.count, int(voxels[marked].sum()), int(voxels[~marked].sum())
    about = first[shared], voxels[shared], marked[shared], totals
    return SlabParts((named[0], named[1]), first[marked], *about)


def parts_on_gpu(
    gpu: Gpu,
    parts: GpuParts,
    on_gpu: Any,
    phase: npt.NDArray[np.uint8],
    where: tuple[int, int],
    threads: KernelThreads,
) -> SlabParts:
    """Return the parts of a slab as a GPU has found and marked them.

    `on_gpu`, `phase`: what they are the parts of, there and here; not of use afterwards there.
    `where`: slices of the slab in it, outside of which there is no void.
    """
    plane = phase[0].size
    before = where[0] * plane
    voxels, in_slices = parts.measure(before, (where[1] - 1) * plane)
    first, totals = gpu.get_all([in_slices, parts.classify(on_gpu, OPEN, OPEN)])
    shared = np.unique(first[first >= 0]).astype(np.int64)
    faces, counts, is_marked = [], np.zeros(0, np.int32), np.zeros(0, np.uint8)
    for slice_, found in zip((where[0], where[1] - 1), first, strict=True):
        runs = find_runs(phase[slice_ : slice_ + 1], threads)
        row = np.repeat(np.arange(len(found)), np.diff(runs.row_start))
        part: Any = found[row, runs.begin].astype(np.int64) - before
        faces.append(dataclasses.replace(runs, part=part))
    if shared.size:
        at = gpu.put(shared)
        counts, is_marked = gpu.get_all([voxels[at], parts.is_marked[at]])
    marked = np.flatnonzero(gpu.get(parts.is_marked)) - before
    count, of_marked, of_others = (int(each) for each in totals)
    about = counts.astype(np.int64), is_marked.astype(np.bool_), (count, of_marked, of_others)
    return SlabParts((faces[0], faces[1]), marked, shared - before, *about)


def _store(blocks: Blocks, slab: int, parts: SlabParts) -> Report:
    """Store what joins parts with those of other slabs; tell of shared ones each, else sums."""
    is_met = slab > 0, slab < len(blocks.plan.slabs) - 1
    found = [face for face, is_there in zip(parts.faces, is_met, strict=True) if is_there]
    met = np.unique(np.concatenate([np.zeros(0, np.int64), *(face.part for face in found)]))
    for name, face, is_there in zip(("first", "last"), parts.faces, is_met, strict=True):
        if is_there:
            arrays = {each: getattr(face, each) for each in _RUNS}
            blocks.save(f"face-{name}", slab, **arrays)
    blocks.save("parts", slab, shared=met, marked=parts.marked)
    own = np.searchsorted(parts.shared, met)
    voxels, is_marked = parts.voxels[own], parts.is_marked[own]
    count, of_marked, of_others = parts.totals
    return {
        "shared_voxels": voxels,
        "shared_marked": is_marked,
        "count": count - met.size,
        "marked_voxels": of_marked - int(voxels[is_marked].sum()),
        "other_voxels": of_others - int(voxels[~is_marked].sum()),
    }


def _paint(
    blocks: Blocks,
    slab: int,
    phase: npt.NDArray[np.uint8],
    shared_marked: npt.NDArray[np.bool_],
    phases: tuple[int, int],
    gpu: Gpu | None,
) -> None:
    """Write the phase of marked parts, and that of others, in place.

    `shared_marked`: which of those are that are shared with other slabs.
    """
    shared, marked = blocks.load("parts", slab, "shared", "marked")
    is_marked = np.zeros(phase.size, np.uint8)
    is_marked[marked] = 1
    is_marked[shared] = shared_marked
    if gpu is None:
        runs = find_runs(phase, blocks.threads)
        of_parts = is_marked[first_voxels(runs)].view(np.bool_)
        runs.paint(phase, np.where(of_parts, *phases).astype(np.uint8))
        return
    on_gpu = gpu.put(phase)
    parts = GpuParts(gpu, on_gpu)
    parts.is_marked = gpu.put(is_marked)
    parts.classify(on_gpu, *phases)
    gpu.get(on_gpu, phase)


def stitch_parts(blocks: Blocks, slab: int) -> Report:
    """Find which of the shared parts of a slab and of the next one are connected."""
    height, width = blocks.plan.shape[1:]
    faces = []
    for name, number in (("last", slab), ("first", slab + 1)):
        row_start, begin, end, part = blocks.load(f"face-{name}", number, *_RUNS)
        shared = blocks.load("parts", number, "shared")
        place = np.searchsorted(shared, part).astype(np.int32)
        faces.append(Runs((1, height, width), row_start, begin, end, place, shared.size))
    return {"pairs": pairs_across(*faces)}


def paint(blocks: Blocks, slab: int, source: str, shared_open: npt.NDArray[np.bool_]) -> Report:
    """Tell open void from closed in the phase labels of a slab, and pass along z through it.

    Writes the stack ``void`` and four planes: the distance along z to the solid in the slab, inf
    where there is none. Forward at two slices before its end, and on from there at its end;
    backward at two slices after its beginning, and from there at its beginning.
    """
    first, last = blocks.plan.slabs[slab]

    def paint(gpu: Gpu | None) -> Report:
        phase = blocks.read(source, first, last)
        _paint(blocks, slab, phase, shared_open, phases_kept(blocks.plan.settings), gpu)
        blocks.write("void", slab, phase)
        _begin_along_z(blocks, slab, phase)
        return {}

    return on_gpu_or_cpu(blocks.plan.device, paint)


def _begin_along_z(blocks: Blocks, slab: int, phase: npt.NDArray[np.uint8]) -> None:
    nothing = edge_plane(phase.shape, False)
    after, before = min(2, len(phase)), max(len(phase) - 2, 0)
    highest = highest_void(blocks.work)
    with blocks.create(blocks.planes("along", slab)) as add:
        for part in (phase[:before], phase[before:]):
            add(carry(part, nothing, blocks.threads, highest, back=False))
        for part in (phase[after:], phase[:after]):
            add(carry(part, nothing, blocks.threads, highest, back=True))


def pass_along_z(blocks: Blocks, band: int) -> Report:
    """Carry the distance along z through all slabs, in a band of rows.

    Writes for each slab what comes from before its first slice but two, and in the order of their
    ends what comes from after its last but two.
    """
    plan = blocks.plan
    rows, slabs = plan.rows(band), plan.slabs
    shape = (1, rows[1] - rows[0], plan.shape[2])

    def onward(slab: int, plane: int, value: npt.NDArray[Any], slices: int) -> npt.NDArray[Any]:
        own = blocks.read_plane("along", slab, plane, rows, plan.shape[1])
        return np.minimum(own, value + np.float32(slices))

    forward = range(len(slabs))
    with blocks.create(blocks.planes("carried", band)) as add:
        for plane, order in ((0, forward), (2, reversed(forward))):
            arriving = value = edge_plane(shape, solid_beyond(blocks.work)[0])
            for slab in order:
                first, last = slabs[slab]
                add(arriving)
                near = min(2, last - first)
                arriving = onward(slab, plane, value, last - first - near)
                value = onward(slab, plane + 1, arriving, near)
    return {}


def carried(blocks: Blocks, slab: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return what `pass_along_z` found before and after a slab, (y, x) each."""
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
    """Return what tells the input from others: the fingerprint of those of all slices."""
    digest = hashlib.blake2b(digest_size=16)
    for each in reports:
        digest.update(each["slices"].tobytes())
    return {"blake2b_of_slices": digest.hexdigest()}


def range_of(reports: Sequence[Report], dtype: np.dtype[Any]) -> tuple[Range, Histogram | None]:
    """Return the range of all values, and their histogram where one reading was enough for it."""
    if "counts" not in reports[0]:
        # slabs that are filled in throughout have none
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
    """Return the histogram of all values from those of slabs."""
    return Histogram(np.sum([each["counts"] for each in reports], axis=0), reports[0]["centers"])


class Joined(NamedTuple):
    """The connected components of the void."""

    # for each slab, of each of its parts that it shares, whether the component is marked
    marked: list[npt.NDArray[np.bool_]]
    voxels: tuple[int, int]  # of the components that are marked, and of those that are not
    components: int  # how many there are


def join_shared(reports: Sequence[Report], pairs: Sequence[Report]) -> Joined:
    """Join the parts that slabs share, by the pairs that touch over each face between two."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    before = np.cumsum([0, *(each["shared_voxels"].size for each in reports)])
    size = int(before[-1])
    ends = [np.zeros((0, 2), np.int64)]
    ends += [each["pairs"] + before[slab : slab + 2] for slab, each in enumerate(pairs)]
    first, second = np.concatenate(ends).T
    count, component = 0, np.zeros(0, np.int32)
    if size:
        touching = coo_array((np.ones(first.size, np.bool_), (first, second)), (size, size))
        count, component = connected_components(touching, directed=False)
    marked = np.zeros(count, np.bool_)
    marked[component[np.concatenate([each["shared_marked"] for each in reports])]] = True
    own = marked[component]
    voxels = np.concatenate([each["shared_voxels"] for each in reports])
    alone = [sum(int(each[name]) for each in reports) for name in ("marked_voxels", "other_voxels")]
    return Joined(
        np.split(own, before[1:-1]),
        (alone[0] + int(voxels[own].sum()), alone[1] + int(voxels[~own].sum())),
        count + sum(int(each["count"]) for each in reports),
    )


def _device(blocks: Blocks, values: npt.NDArray[Any]) -> str:
    """Return the GPU on which grey values are looked at; empty for types that it does not know."""
    return "" if kind_of(Volume(values)) is None else blocks.plan.device


def _on(gpu: Gpu, values: npt.NDArray[Any]) -> GpuGrey:
    return GpuGrey(gpu, Volume(values))


def _grey(blocks: Blocks) -> GreyValues:
    return GreyValues(blocks.work.volume, blocks.plan.slabs)
