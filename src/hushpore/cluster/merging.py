"""Merging of basins into pores along a binary tree of slab ranges, and the SNOW peaks of slabs.

Each range of slabs decides all merges that it can. Only undecided groups and edges are passed up
the tree, so that the data stay small.

On one machine, all edges between basins are processed from the widest neck to the narrowest, and
two basins merge if the lower of their peaks rises above the neck by at most h
(`hushpore.pores.watershed.merging`). A basin that does not reach the faces of a range is completely
known there, so its edges can be processed in the same order. Two groups of basins are then

- both *closed* (all of their basins are completely known): decided as on one machine;
- one closed (A) and one open (B). If A rises above the neck by at most h, they merge, whatever the
  final height of B, since the lower of the two rises no higher. If A rises higher, and the known
  part of B does too, they never merge, since peaks only rise and necks only narrow. Otherwise the
  decision depends on voxels beyond the faces: the edge is kept, and A is open from then on;
- both open: never merged if both are known to rise higher; otherwise the edge is kept.

Open groups and kept edges are passed up, where two neighbouring ranges become one and fewer groups
reach a face. Treating A and B as one from the beginning, instead of from their neck e on, changes
no other decision. Let A rise above e by at most h. An edge f before e (with a neck at least as
wide) from A to another group was rejected for good, and a higher A would not change that. An edge f
from B to C merges them if B or C rises above f by at most h. Joining A to B can change this only if
A is the higher one; but A rises above e, and so above f, by at most h, and B then did too: B and C
merge with and without A. After e, A and B are one group anyway.

Rounding does not change the comparisons, since it preserves the order of differences.

Merging from markers works in the same way, with peaks of infinite height in marked basins and of
minus infinite height elsewhere.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.pores.gpu.void import GpuParts
from hushpore.pores.parallel import kernel
from hushpore.pores.void.components import OPEN, Runs, find_runs, pairs_across
from hushpore.pores.watershed.graph import count_peaks, number_keys
from hushpore.pores.watershed.merging import find_in_slab, find_overlapping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Array, Float32s, Float64s, Int64s, Mask, UInt8s
    from hushpore.cluster.blocks import Blocks, Report
    from hushpore.pores.gpu.engine import Gpu
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.watershed.graph import Peaks


#: Columns of edges besides the groups that they join.
_OF_EDGES = ("a", "b", "saddle", "contacts", "partial")


@dataclass(frozen=True, eq=False)
class Reduced:
    """Undecided merges of a range of slabs: groups of basins, and edges between them."""

    # (n,), int64: sorted numbers of groups; the number of its basin at a face, if it has one
    group: Int64s
    root: Int64s  # (n,), int64: the highest known basin of a group
    radius: Float64s  # (n,), float64: the distance at its peak
    # (n,), bool: whether the basin reaches the first face, and the last face
    low: Mask
    high: Mask
    # (edges,), int64: groups
    u: Int64s
    v: Int64s
    # (edges,), int64: the basins that touch, ``a < b``
    a: Int64s
    b: Int64s
    # (edges,), float32 and int64: squared distance at the neck; contacts of voxels
    saddle: Float32s
    contacts: Int64s
    # (edges,), bool: whether the edge may continue in another range: both basins reach a face
    partial: Mask

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(getattr(self, each.name).nbytes for each in fields(self))


def contract(whole: Reduced, h: float) -> tuple[Reduced, Int64s]:
    """Decide all merges that the known part of a range allows.

    `whole`: undecided groups and edges of a range of slabs. `h`: merge height in voxels.
    Returns: the groups and edges that are still open; (n,), int64: for each group its group among
    these, or the root of its pore if that is decided for good.
    """
    is_face = whole.low | whole.high
    ready = np.flatnonzero(~whole.partial & (whole.saddle >= 0))
    by_rank = (whole.b[ready], whole.a[ready], -whole.contacts[ready], -whole.saddle[ready])
    order = ready[np.lexsort(by_rank)]
    parent = np.arange(whole.group.size)
    radius, root, opened = whole.radius.copy(), whole.root.copy(), is_face.copy()
    # the group that reaches a face, for each merged group; -1: none
    anchor = np.where(is_face, parent, -1)
    neck = np.sqrt(whole.saddle[order].astype(np.float64))
    u, v = (np.searchsorted(whole.group, ends[order]) for ends in (whole.u, whole.v))
    kept = np.zeros(order.size, np.bool_)
    _contract(radius, root, opened, anchor, parent, u, v, neck, float(h), kept)
    own = parent == np.arange(parent.size)
    anchored = anchor >= 0
    name = np.where(anchored, whole.group[anchor], root)
    becomes = np.where(opened, name, root)[parent]
    stays = np.flatnonzero(own & opened)
    stays = stays[np.argsort(name[stays])]
    low, high = (np.where(anchored, face[anchor], False)[stays] for face in (whole.low, whole.high))
    picked = np.concatenate(
        [_first_between(whole, order[kept], becomes), np.flatnonzero(whole.partial)]
    )
    u, v = (becomes[np.searchsorted(whole.group, each[picked])] for each in (whole.u, whole.v))
    edges = {column: getattr(whole, column)[picked] for column in _OF_EDGES}
    left = Reduced(name[stays], root[stays], radius[stays], low, high, u, v, **edges)
    return left, becomes


def combine(first: Reduced, second: Reduced) -> Reduced:
    """Combine two ranges of slabs, the second following the first, without deciding merges."""
    both = (first, second)
    group, row = np.unique(np.concatenate([each.group for each in both]), return_inverse=True)
    root, radius = (
        np.concatenate([getattr(each, name) for each in both]) for name in ("root", "radius")
    )
    # for groups in both ranges take the higher peak, at equal height the first
    order = np.lexsort((root, -radius, row))
    best = order[np.searchsorted(row[order], np.arange(group.size))]
    low, high = np.zeros((2, group.size), np.bool_)
    low[np.searchsorted(group, first.group)] = first.low
    high[np.searchsorted(group, second.group)] = second.high
    is_face = low | high
    edges = {
        name: np.concatenate([getattr(each, name) for each in both])
        for name in ("u", "v", *_OF_EDGES)
    }
    partial = edges.pop("partial")
    whole = {name: column[~partial] for name, column in edges.items()}
    some = {name: column[partial] for name, column in edges.items()}
    # combine the parts of each edge
    key, which = number_keys((some["a"] << 32) | some["b"])
    a, b = key >> 32, key & 0xFFFFFFFF
    saddle, contacts = np.full(key.size, -1, np.float32), np.zeros(key.size, np.int64)
    np.maximum.at(saddle, which, some["saddle"])
    np.add.at(contacts, which, some["contacts"])
    still = is_face[np.searchsorted(group, a)] & is_face[np.searchsorted(group, b)]
    joined = {"u": a, "v": b, "a": a, "b": b, "saddle": saddle, "contacts": contacts}
    columns = {name: np.concatenate([whole[name], joined[name]]) for name in joined}
    waits = np.concatenate([np.zeros(whole["u"].size, np.bool_), still])
    return Reduced(group, root[best], radius[best], low, high, **columns, partial=waits)


def look_up(numbers: Int64s, maps: Sequence[tuple[Int64s, Int64s]]) -> Int64s:
    """Replace numbers by a sequence of maps, each of sorted keys and their values."""
    for keys, values in maps:
        if keys.size:
            place = np.minimum(np.searchsorted(keys, numbers), keys.size - 1)
            numbers = np.where(keys[place] == numbers, values[place], numbers)
    return numbers


def _first_between(whole: Reduced, edges: Int64s, becomes: Int64s) -> Int64s:
    """Return the first edge, in order of rank, between each two groups."""
    ends = np.stack(
        [becomes[np.searchsorted(whole.group, each[edges])] for each in (whole.u, whole.v)]
    )
    ends.sort(axis=0)
    order = np.lexsort((ends[1], ends[0]))
    changes = (np.diff(ends[:, order], axis=1) != 0).any(axis=0)
    # sorting is stable: the first of a pair has the first rank
    first: Int64s = edges[order[np.concatenate([[True], changes])[: edges.size]]]
    return first


@kernel
def _contract(
    radius: Float64s,
    root: Int64s,
    opened: Mask,
    anchor: Int64s,
    parent: Int64s,
    u: Int64s,
    v: Int64s,
    neck: Float64s,
    h: float,
    kept: Mask,
) -> None:
    for edge in range(u.size):
        a = _root(parent, u[edge])
        b = _root(parent, v[edge])
        if a == b:
            continue
        if opened[a]:
            a, b = b, a
        # from here on, b is open if either group is
        a_merges = radius[a] - neck[edge] <= h
        b_merges = radius[b] - neck[edge] <= h
        if not (a_merges or b_merges):
            continue
        if opened[a] or (opened[b] and not a_merges):
            kept[edge] = True
            opened[a] = True
            continue
        if radius[a] > radius[b] or (radius[a] == radius[b] and root[a] < root[b]):
            radius[b] = radius[a]
            root[b] = root[a]
        parent[a] = b
    for i in range(parent.size):
        parent[i] = _root(parent, i)


# a copy of the function in `hushpore.pores.watershed.merging`: numba's cache checks only the date
# of the kernel's own file and would miss a change there
@kernel
def _root(parent: Int64s, i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


# ---- tasks

_REDUCED = tuple(each.name for each in fields(Reduced))

#: Report entries on the peaks of a slab's basins; those at its faces may be higher in other slabs.
_OF_PEAKS = ("inner", "inner_apart", "at_face", "at_face_squared", "at_face_apart")


def begin_merging(
    blocks: Blocks, slab: int, basin: Int64s, reaches: tuple[Mask, Mask], table: dict[str, Array]
) -> Report:
    """Store the groups and edges of a slab; returns its peaks and whether each is isolated.

    `basin`, `reaches`: sorted numbers of basins, and whether each reaches the first slice and the
    slice after the last. `table`: columns ``peak`` and ``peak_squared_distance`` of the basins, and
    ``a``, ``b``, ``saddle``, ``contacts`` of their edges.
    """
    a, b, saddle = table["a"], table["b"], table["saddle"]
    peak_squared_distance = table["peak_squared_distance"]
    is_face = reaches[0] | reaches[1]
    is_way = saddle >= 0
    touches = np.isin(basin, np.concatenate([a[is_way], b[is_way]]))
    rows = np.searchsorted(basin, a), np.searchsorted(basin, b)
    partial = is_face[rows[0]] & is_face[rows[1]]
    settings, volume = blocks.plan.settings, blocks.plan.volume
    if settings.merges_overlapping:
        peaks = table["peak"], peak_squared_distance
        near = find_overlapping(*peaks, *rows, volume.shape, volume.spacing)
        saddle = np.where(near & is_way, np.float32(np.inf), saddle)
    radius = np.sqrt(peak_squared_distance.astype(np.float64))
    contacts = table["contacts"].sum(axis=1)
    low, high = reaches
    whole = Reduced(basin, basin, radius, low, high, a, b, a, b, saddle, contacts, partial)
    _save(blocks, "undecided", slab, whole)
    return {
        "basins": basin.size,
        "edges": a.size,
        "inner": peak_squared_distance[~is_face],
        "inner_apart": ~touches[~is_face],
        "at_face": basin[is_face],
        "at_face_squared": peak_squared_distance[is_face],
        "at_face_apart": ~touches[is_face],
    }


def peaks_of(reports: Sequence[Report]) -> Peaks:
    """Count peaks as `hushpore.pores.watershed.graph.count_peaks`, from the reports of slabs."""
    told = {name: np.concatenate([each[name] for each in reports]) for name in _OF_PEAKS}
    number, row = np.unique(told["at_face"], return_inverse=True)
    squared = np.zeros(number.size, np.float32)
    np.maximum.at(squared, row, told["at_face_squared"])
    apart = np.ones(number.size, np.bool_)
    apart[row[~told["at_face_apart"]]] = False
    return count_peaks(
        np.concatenate([told["inner"], squared]), np.concatenate([told["inner_apart"], apart])
    )


def merge_slab(blocks: Blocks, slab: int, h: float, marked: Int64s | None, purpose: str) -> Report:
    """Decide the merges within a slab.

    `h`: merge height in voxels. `marked`: numbers of marked basins; all others are merged into
    these, whatever the height. `purpose`: name that distinguishes this merging from others.
    """
    whole = Reduced(*blocks.load("undecided", slab, *_REDUCED))
    if marked is not None:
        radius = np.where(np.isin(whole.group, marked), np.inf, -np.inf)
        whole = dataclasses.replace(whole, radius=radius)
    return {"open_bytes": _decide(blocks, purpose, 0, slab, whole, h)}


def union_ranges(blocks: Blocks, number: int, level: int, h: float, purpose: str) -> Report:
    """Decide the merges between ranges ``2 * number`` and ``2 * number + 1`` of the level below."""
    below = f"{purpose}-open-{level - 1}"
    parts = [Reduced(*blocks.load(below, 2 * number, *_REDUCED))]
    if (blocks.folder / f"{below}-{2 * number + 1}.arrays").is_file():
        parts.append(Reduced(*blocks.load(below, 2 * number + 1, *_REDUCED)))
    whole = combine(*parts) if len(parts) == 2 else parts[0]
    return {
        "open_bytes": _decide(blocks, purpose, level, number, whole, h),
        "received_bytes": sum(part.nbytes for part in parts),
        "groups": whole.group.size,
        "edges": whole.a.size,
    }


def roots(blocks: Blocks, slab: int, levels: int, numbers: Int64s, purpose: str) -> Int64s:
    """Return the root basin of the pore of each basin of a slab, 0 for 0."""
    names = ("keys", "values")
    maps = [blocks.load(f"{purpose}-map-{level}", slab >> level, *names) for level in range(levels)]
    return look_up(numbers, maps)


def _decide(blocks: Blocks, purpose: str, level: int, number: int, whole: Reduced, h: float) -> int:
    left, becomes = contract(whole, h)
    changed = becomes != whole.group
    arrays = {"keys": whole.group[changed], "values": becomes[changed]}
    blocks.save(f"{purpose}-map-{level}", number, **arrays)
    _save(blocks, f"{purpose}-open-{level}", number, left)
    return left.nbytes


def _save(blocks: Blocks, name: str, number: int, groups: Reduced) -> None:
    blocks.save(name, number, **{column: getattr(groups, column) for column in _REDUCED})


# ---- peaks by SNOW


class _Distance:
    """The distance in all slabs, as a stack."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks

    def read(self, first: int, last: int) -> Array:
        return self._blocks.read("distance", first, last)


def find_slab_peaks(
    blocks: Blocks, slab: int, basins_before: Sequence[int], levels: int, purpose: str
) -> Report:
    """Find the SNOW peaks of a slab, and the basins that contain them.

    `basins_before`: number of basins in the slabs before each slab; the last entry is the total.
    `levels`, `purpose`: those of the merging at height 0, which gives the peak height that each
    basin leads to.
    """
    numbers = blocks.load("numbers", slab, "numbers")
    root = roots(blocks, slab, levels, numbers, purpose)
    level = np.full(root.size, -1, np.float32)
    home = np.searchsorted(basins_before, root) - 1
    for other in np.unique(home[1:]):
        own = np.flatnonzero(home == other)
        squared = blocks.load("slab_basins", int(other), "peak_squared_distance")
        level[own] = squared[root[own] - basins_before[other]]
    first, last = blocks.plan.slabs[slab]
    basins = blocks.read("basins", first, last)
    place, owner = find_in_slab(_Distance(blocks), first, basins, level, blocks.threads)
    return {"place": place, "basin": numbers[owner]}


def look_up_widths(blocks: Blocks, slab: int, place: Int64s) -> Report:
    """Look up the squared distance at voxels (m, 3) of a slab."""
    first, last = blocks.plan.slabs[slab]
    z, y, x = place.T
    return {"squared": blocks.read("distance", first, last)[z - first, y, x]}


_RUNS = ("row_start", "begin", "end", "part")


class SlabParts(NamedTuple):
    """The connected components of the void in a slab, by the indices of their first voxels."""

    faces: tuple[Runs, Runs]  # components in the first and in the last slice
    marked: Int64s  # marked components
    # components in the first or last slice, sorted: index, voxels, whether marked
    shared: Int64s
    voxels: Int64s
    is_marked: Mask
    totals: tuple[int, int, int]  # number of components, voxels of marked and of other ones


def first_voxels(runs: Runs) -> Int64s:
    """Return the flat index of the first voxel of each component in the slab."""
    first = np.empty(runs.count, np.int64)
    # assigned in reverse order, so that the first run of each component remains
    first[runs.part[::-1]] = np.arange(runs.part.size)[::-1]
    row = np.searchsorted(runs.row_start, first, side="right") - 1
    return row * runs.shape[2] + runs.begin[first]


def parts_of(runs: Runs, marked: Mask) -> SlabParts:
    """Return the components of the runs of a slab, with `marked` for each component."""
    first: Any = first_voxels(runs)
    voxels = np.bincount(runs.part, runs.end - runs.begin, runs.count).astype(np.int64)
    faces = [runs.face(last=last) for last in (False, True)]
    shared = np.unique(np.concatenate([face.part for face in faces]))
    named = [dataclasses.replace(face, part=first[face.part]) for face in faces]
    totals = runs.count, int(voxels[marked].sum()), int(voxels[~marked].sum())
    return SlabParts(
        (named[0], named[1]), first[marked], first[shared], voxels[shared], marked[shared], totals
    )


def parts_on_gpu(
    gpu: Gpu,
    parts: GpuParts,
    on_gpu: Any,
    phase: UInt8s,
    where: tuple[int, int],
    threads: KernelThreads,
) -> SlabParts:
    """Return the components of a slab that were found and marked on a GPU.

    `on_gpu`, `phase`: phase labels on the GPU (overwritten) and on the host. `where`: range of the
    slab's slices in these; the other slices contain no void.
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
    return SlabParts(
        (faces[0], faces[1]),
        marked,
        shared - before,
        counts.astype(np.int64),
        is_marked.astype(np.bool_),
        (count, of_marked, of_others),
    )


def store_parts(blocks: Blocks, slab: int, parts: SlabParts) -> Report:
    """Store the components that touch other slabs; returns those one by one, others as sums."""
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


def paint_parts(
    blocks: Blocks,
    slab: int,
    phase: UInt8s,
    shared_marked: Mask,
    phases: tuple[int, int],
    gpu: Gpu | None,
) -> None:
    """Write one phase into marked components and another into the rest, in place.

    `shared_marked`: which of the components shared with other slabs are marked.
    """
    shared, marked = blocks.load("parts", slab, "shared", "marked")
    is_marked = np.zeros(phase.size, np.uint8)
    is_marked[marked] = 1
    is_marked[shared] = shared_marked
    if gpu is None:
        runs = find_runs(phase, blocks.threads)
        of_parts = is_marked[first_voxels(runs)].view(np.bool_)
        runs.paint(phase, np.where(of_parts, *phases).astype(np.uint8), blocks.threads)
        return
    on_gpu = gpu.put(phase)
    parts = GpuParts(gpu, on_gpu)
    parts.is_marked = gpu.put(is_marked)
    parts.classify(on_gpu, *phases)
    gpu.get(on_gpu, phase)


def stitch_parts(blocks: Blocks, slab: int) -> Report:
    """Find the pairs of shared components that touch across the face after a slab."""
    height, width = blocks.plan.shape[1:]
    faces = []
    for name, number in (("last", slab), ("first", slab + 1)):
        row_start, begin, end, part = blocks.load(f"face-{name}", number, *_RUNS)
        shared = blocks.load("parts", number, "shared")
        place = np.searchsorted(shared, part).astype(np.int32)
        faces.append(Runs((1, height, width), row_start, begin, end, place, shared.size))
    return {"pairs": pairs_across(*faces)}


class Joined(NamedTuple):
    """The connected components of the void."""

    # per slab, whether each of its shared parts belongs to a marked component
    marked: list[Mask]
    voxels: tuple[int, int]  # voxels of marked and of unmarked components
    components: int  # number of components


def join_shared(reports: Sequence[Report], pairs: Sequence[Report]) -> Joined:
    """Join the shared parts of all slabs by the pairs that touch across each face."""
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
