"""The void of each slab: threshold, air outside, open and closed, and what is passed along z.

Tasks report few numbers, which the client puts together in a moment.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.provenance import fingerprint
from hushpore.pores.distance import carry, edge_plane
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
    CLOSED,
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
    from hushpore.pores.local_threshold import LocalThreshold

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
        counts = _counts(own, blocks, counted)
        return {**report, "counts": counts}
    if not own.size:
        return {**report, "range": np.zeros(0, grey.dtype), "bad": 0}
    found = find_range(own, blocks.threads)
    return {**report, "range": np.array([found.low, found.high], grey.dtype), "bad": found.bad}


def count_levels(blocks: Blocks, slab: int, low: Any, high: Any) -> Report:
    """Count the grey values of a slab between the ends of all."""
    grey = _grey(blocks).read(*blocks.plan.slabs[slab])
    blocks.moved += grey.nbytes
    among = Range(low, high)
    counts = _counts(measured(grey, blocks.plan.padding), blocks, among)
    return {"counts": counts, "centers": bins_of(grey.dtype, among)[0]}


def _counts(values: npt.NDArray[Any], blocks: Blocks, among: Range) -> npt.NDArray[np.int64]:
    """Count the grey values of a slab, of which there may be none."""
    if not values.size:
        return np.zeros(bins_of(values.dtype, among)[0].size, np.int64)
    return make_histogram(values, blocks.threads, among).counts


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
    phase = np.empty((last - first, *blocks.plan.shape[1:]), np.uint8)
    if local is not None:
        local.void(grey, first, last, blocks.threads, phase.view(np.bool_))
    else:
        make_void(grey, threshold, bright, blocks.threads, phase.view(np.bool_))
    report: Report = {}
    padding = blocks.plan.padding
    if padding is not None:
        own = grey[first - wanted[0] :][: last - first]
        phase[find_filled_in(own, padding, blocks.threads)] = AIR
        report["padded"] = np.count_nonzero(phase == AIR, axis=(1, 2)).astype(np.int64)
    blocks.write(target, slab, phase)
    report["is_all_void"] = bool(phase.all())
    if strict is not None:
        runs = find_runs(phase, blocks.threads)
        marked = runs.holding(make_void(grey, strict, bright, blocks.threads))
        report |= _parts(blocks, slab, runs, marked)
    return report


def apply_hysteresis(
    blocks: Blocks, slab: int, source: str, target: str, kept: npt.NDArray[np.bool_]
) -> Report:
    """Leave the parts of the void that hold a stricter value; `kept` says it of shared parts."""
    phase = blocks.read(source, *blocks.plan.slabs[slab])
    runs = find_runs(phase, blocks.threads)
    shared, is_kept = blocks.load("parts", slab, "shared", "marked")
    is_kept[shared] = kept
    runs.paint(phase, np.where(is_kept, OPEN, SOLID).astype(np.uint8))
    blocks.write(target, slab, phase)
    return {}


def mark_air(blocks: Blocks, slab: int, source: str, target: str) -> Report:
    """Mark the air outside the sample in every slice of a slab."""
    first, last = blocks.plan.slabs[slab]
    stack = Stack.of(blocks.read(source, first, last))
    whole = Slabs(last - first, last - first)
    radius = blocks.plan.settings.outside_radius
    how = (blocks.work.spacing, radius, True, blocks.threads)
    for _ in mark_outside(stack, whole, Scratch(False), *how):
        pass
    phase = stack.array()
    blocks.write(target, slab, phase)
    return {"air": np.count_nonzero(phase == AIR, axis=(1, 2)).astype(np.int64)}


def find_parts(blocks: Blocks, slab: int, source: str) -> Report:
    """Find the connected parts of the void in a slab, and which of them reach what is outside."""
    first, last = blocks.plan.slabs[slab]
    around = (first - 1, last + 1) if blocks.work.has_air else (first, last)
    phase = blocks.read(source, *around)
    own = phase[min(first, 1) if blocks.work.has_air else 0 :][: last - first]
    runs = find_runs(own, blocks.threads)
    marked = touching(runs, ((first == 0, last == blocks.plan.shape[0]), (True, True)))
    if blocks.work.has_air:
        near = face_neighbours(phase == AIR)
        marked |= runs.holding(np.ascontiguousarray(near[min(first, 1) :][: last - first]))
    return _parts(blocks, slab, runs, marked)


def _parts(blocks: Blocks, slab: int, runs: Runs, marked: npt.NDArray[np.bool_]) -> Report:
    """Store what joins parts with those of other slabs; tell of shared ones each, else sums."""
    slabs = blocks.plan.slabs
    faces = {}
    if slab > 0:
        faces["first"] = runs.face(last=False)
    if slab < len(slabs) - 1:
        faces["last"] = runs.face(last=True)
    parts = [face.part for face in faces.values()]
    shared = np.unique(np.concatenate([*parts, np.zeros(0, np.int32)]))
    for name, face in faces.items():
        arrays = {each: getattr(face, each) for each in _RUNS}
        blocks.save(f"face-{name}", slab, **arrays)
    blocks.save("parts", slab, shared=shared, marked=marked)
    voxels = np.bincount(runs.part, runs.end - runs.begin, runs.count).astype(np.int64)
    alone = np.ones(runs.count, np.bool_)
    alone[shared] = False
    return {
        "shared_voxels": voxels[shared],
        "shared_marked": marked[shared],
        "count": int(alone.sum()),
        "marked_voxels": int(voxels[alone & marked].sum()),
        "other_voxels": int(voxels[alone & ~marked].sum()),
    }


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
    phase = blocks.read(source, first, last)
    runs = find_runs(phase, blocks.threads)
    shared, is_open = blocks.load("parts", slab, "shared", "marked")
    is_open[shared] = shared_open
    phase_of = np.where(is_open, OPEN, CLOSED).astype(np.uint8)
    mode = blocks.plan.settings.mode
    if mode != "all":
        phase_of[is_open != (mode == "open")] = SOLID
    runs.paint(phase, phase_of)
    blocks.write("void", slab, phase)
    nothing = edge_plane(phase.shape, False)
    after, before = min(2, len(phase)), max(len(phase) - 2, 0)
    highest = highest_void(blocks.work)
    with blocks.create(blocks.planes("along", slab)) as add:
        for part in (phase[:before], phase[before:]):
            add(carry(part, nothing, blocks.threads, highest, back=False))
        for part in (phase[after:], phase[:after]):
            add(carry(part, nothing, blocks.threads, highest, back=True))
    return {}


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


def _grey(blocks: Blocks) -> GreyValues:
    return GreyValues(blocks.work.volume, blocks.plan.slabs)
